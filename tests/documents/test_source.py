"""Bytes to text: every character knows its byte, whatever the encoding."""

from __future__ import annotations

import gzip
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentkv.documents.source import Kind, decode, kind_of, read_source
from agentkv.errors import InvalidDocument

FILE = Path("x.txt")


def pieces(data: bytes, kind: Kind = "text") -> list[bytes]:
    source = decode(FILE, data, kind)
    return [data[a:b] for a, b in zip(source.starts[:-1].tolist(), source.starts[1:].tolist(), strict=True)]


@pytest.mark.parametrize(
    ("data", "text", "cut"),
    [
        (b"", "", []),
        ("aä€🙂".encode(), "aä€🙂", [b"a", "ä".encode(), "€".encode(), "🙂".encode()]),
        (b"\xef\xbb\xbfab", "ab", [b"\xef\xbb\xbfa", b"b"]),
        (b"a\xe4b", "aäb", [b"a", b"\xe4", b"b"]),
        (b"\x80\x81", "€\x81", [b"\x80", b"\x81"]),
        ("ä".encode() + b"\xff", "äÿ", ["ä".encode(), b"\xff"]),
        (b"a\0b", "a\0b", [b"a", b"\0", b"b"]),
        (b"\xff\xfea\0=\xd8B\xde", "a🙂", [b"\xff\xfea\0", b"=\xd8B\xde"]),
    ],
)
def test_characters_and_their_bytes(data: bytes, text: str, cut: list[bytes]) -> None:
    assert decode(FILE, data, "text").text == text
    assert pieces(data) == cut


@given(st.binary(max_size=200))
def test_any_bytes_without_nul_are_read_and_none_is_lost(data: bytes) -> None:
    data = data.replace(b"\0", b"")
    if data[:2] not in (b"\xff\xfe", b"\xfe\xff"):
        assert b"".join(pieces(data)) == data or data == b"\xef\xbb\xbf"


@given(st.text(max_size=200))
def test_valid_text_comes_back_and_no_replacement_appears(text: str) -> None:
    data = text.encode()
    if not data.startswith(b"\xef\xbb\xbf"):
        assert decode(FILE, data, "text").text == text


@pytest.mark.parametrize("encoding", ["shift_jis", "gb18030", "euc_kr", "iso2022_jp", "windows-1251"])
def test_a_charset_that_html_declares(encoding: str) -> None:
    word = {"euc_kr": "한국어", "windows-1251": "Привет"}.get(encoding, "日本")
    data = f'<meta charset="{encoding}"><p>{word}</p>'.encode(encoding)
    source = decode(FILE, data, "html")
    assert word in source.text
    at = source.text.index(word)
    assert word == data[source.starts[at] : source.starts[at + len(word)]].decode(encoding)


@pytest.mark.parametrize("declared", ["nonsense", "utf-8", "rot13", "base64", "utf-16"])
def test_a_charset_that_is_not_what_the_bytes_are(declared: str) -> None:
    source = decode(FILE, f'<meta charset="{declared}"><p>ä</p>'.encode(), "html")
    assert "<p>ä</p>" in source.text


def test_declared_latin_1_is_read_as_browsers_do() -> None:
    assert "€" in decode(FILE, b'<meta charset="iso-8859-1"><p>\x80</p>', "html").text


@pytest.mark.parametrize("data", [b"\x89PNG\0\xff\xfe", b"\xff\xfea"])
def test_what_is_no_text_is_refused(data: bytes) -> None:
    with pytest.raises(InvalidDocument):
        decode(FILE, data, "text")


def test_gzip_is_unpacked_and_damage_is_told(tmp_path: Path) -> None:
    whole = gzip.compress(b"hello")
    (tmp_path / "a.txt.gz").write_bytes(whole)
    (tmp_path / "b.txt.gz").write_bytes(whole[:-6])
    assert read_source(tmp_path / "a.txt.gz") == b"hello"
    with pytest.raises(InvalidDocument, match="unpacked"):
        read_source(tmp_path / "b.txt.gz")
    with pytest.raises(InvalidDocument, match="no such file"):
        read_source(tmp_path / "c")
    with pytest.raises(InvalidDocument):
        read_source(tmp_path)


def test_a_bomb_is_refused_before_it_fills_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("agentkv.documents.source.MAX_SOURCE_BYTES", 1000)
    (tmp_path / "a.gz").write_bytes(gzip.compress(bytes(100_000)))
    with pytest.raises(InvalidDocument, match="more than 1,000 bytes"):
        read_source(tmp_path / "a.gz")


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        *(("a.MD", "markdown"), ("a.rst.gz", "rst"), ("README", "text"), ("README.Debian.gz", "text")),
        *(("x.py", "code"), ("a.html", "html"), ("x.png", None), ("Makefile", None)),
        ("man1/git-add.1.gz", "text"),
        ("share/man/ja/man3/a-1.2.3pm", "text"),
        ("doc/agent.8", "text"),
        ("lib/libz.so.1", None),
        ("a.log.1", None),
        ("a.7z", None),
        ("compose.yml", "code"),
        ("film.srt", "text"),
    ],
)
def test_kinds(name: str, kind: str | None) -> None:
    assert kind_of(Path(name)) == kind
