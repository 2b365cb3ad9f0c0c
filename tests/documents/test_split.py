"""Chunks: every byte in one, none over its size, cut where the document allows."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import get_args

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agentkv import FakeEngine
from agentkv.documents.readers import readable
from agentkv.documents.readers.document import Readable
from agentkv.documents.records import Kind
from agentkv.documents.split import Slice, Splitter, block_text
from agentkv.errors import UsageError

from .conftest import GUIDE, TRAINS

FILE = Path("x.txt")


class Uneven(FakeEngine):
    """Tokens of three bytes, cut without regard to characters: as a byte-level vocabulary may do."""

    def tokenize(self, text: str, *, special: bool) -> list[int]:
        data = text.encode()
        self.pieces: dict[bytes, int] = getattr(self, "pieces", {})
        ids = []
        for at in range(0, len(data), 3):
            piece = data[at : at + 3]
            ids.append(self.pieces.setdefault(piece, len(self.pieces)))
        self.by_id = {token: piece for piece, token in self.pieces.items()}
        return ids

    def token_bytes(self, token: int) -> bytes:
        return self.by_id[token]


def split(
    text: str | bytes, chunk_tokens: int = 128, overlap: int = 0, kind: Kind = "text"
) -> tuple[Readable, list[Slice]]:
    document = readable(FILE, text.encode() if isinstance(text, str) else text, kind)
    return document, Splitter(FakeEngine(), chunk_tokens, overlap).split("x.txt", document)


def check(document: Readable, found: list[Slice], splitter: Splitter, engine: FakeEngine) -> None:
    """Everything that hazard B24 asks of chunks."""
    data, before = document.source.data, (-1, 0)
    for piece in found:
        start, stop = document.byte_range(piece.start, piece.stop)
        assert before[0] < start <= before[1] < stop
        assert document.characters(start, stop) == (piece.start, piece.stop)
        body = document.text[piece.start : piece.stop]
        assert body
        if document.kind != "html" and not data.startswith(b"\xef\xbb\xbf"):
            assert data[start:stop].decode() == body
        assert len(engine.tokenize(block_text(piece.header, body), special=False)) == piece.n_tokens
        assert piece.n_tokens <= splitter.chunk_tokens
        before = start, stop
    assert before[1] == len(data) or not document.text


HOSTILE = {
    "multi-byte": "ä" * 3001 + "🙂" * 997 + "日本語" * 800,
    "no break": "a" * 20_000,
    "newlines": "\n" * 5000,
    "one line": "word and word " * 8000,
    "nul": "a\0b " * 500,
    "hex dump": "\n".join(f"{i:08x}  " + " ".join(f"{(i * 7 + j) % 256:02x}" for j in range(16)) for i in range(300)),
    "cjk": "漢字" * 250,
    "combining": "e\u0301\u0302" * 2000,
    "families": "👨\u200d👩\u200d👧 " * 600,
    "crlf": "one line\r\n" * 900,
    "repeated": "The same sentence. " * 900,
}


@pytest.mark.parametrize("name", HOSTILE)
@pytest.mark.parametrize("overlap", [0, 30])
@pytest.mark.parametrize("make", [FakeEngine, Uneven])
def test_hostile_documents(name: str, overlap: int, make: type[FakeEngine]) -> None:
    engine = make()
    document, splitter = readable(FILE, HOSTILE[name].encode(), "text"), Splitter(engine, 128, overlap)
    found = splitter.split("x.txt", document)
    check(document, found, splitter, engine)
    if not overlap:
        assert "".join(document.text[piece.start : piece.stop] for piece in found) == HOSTILE[name]


def test_no_bytes_no_chunks() -> None:
    assert split("")[1] == []
    assert split(b"\xef\xbb\xbf")[1] == []
    assert split("<script>x()</script>", kind="html")[1] == []


def test_characters_that_belong_together_stay_together() -> None:
    document, found = split("e\u0301" * 400)
    assert all(document.text[piece.start] == "e" for piece in found)
    document, found = split("x\r\n" * 300)
    assert all(document.text[piece.start] != "\n" for piece in found)


@settings(max_examples=150, deadline=None)
@given(
    st.text(alphabet=st.sampled_from("aä🙂日 \n.#=-*`\t<>&;\r\u0301xyz"), max_size=900),
    st.sampled_from(get_args(Kind)),
    st.integers(64, 200),
    st.integers(0, 16),
    st.booleans(),
)
def test_any_text_of_any_kind(text: str, kind: Kind, chunk_tokens: int, overlap: int, uneven: bool) -> None:
    engine = Uneven() if uneven else FakeEngine()
    document = readable(FILE, text.encode(), kind)
    splitter = Splitter(engine, chunk_tokens, overlap)
    check(document, splitter.split("x.txt", document), splitter, engine)


def test_headings_begin_chunks_and_are_named_in_headers() -> None:
    document, found = split(GUIDE, chunk_tokens=160, kind="markdown")
    assert [document.text[piece.start : piece.stop].splitlines()[0] for piece in found] == ["# Shop", "## Hours"]
    assert [piece.header for piece in found] == ["[x.txt | Shop]", "[x.txt | Shop > Hours]"]
    assert found[0].within == ("Returns",)


def test_reStructuredText_titles_by_the_order_of_their_marks() -> None:
    document, found = split(TRAINS, chunk_tokens=100, kind="rst")
    assert [piece.heading_path for piece in found] == [("Trains",), ("Trains", "Cutoff")]
    assert [h.depth for h in document.headings] == [1, 2]


def test_functions_begin_chunks_with_their_comments() -> None:
    code = (
        "import os\n\n\n# Adds.\n@cache\ndef add(a, b):\n    return a + b\n\n\n"
        "class Tree:\n    def grow(self):\n        pass\n"
    )
    document = readable(Path("x.py"), code.encode(), "code")
    assert [(h.title, h.depth) for h in document.headings] == [("add", 1), ("Tree", 1), ("grow", 2)]
    assert code[document.headings[0].position :].startswith("# Adds.\n@cache")
    assert document.heading_path(code.index("pass")) == ("Tree", "grow")


@pytest.mark.parametrize(
    ("code", "names"),
    [
        ("int main(int argc, char **argv)\n{\n  if (x) return 1;\n}\nstatic void stop(void) {\n}\n", ["main", "stop"]),
        ("pub fn grow(x: u8) -> u8 {\n}\nimpl Tree for Oak {\n}\n", ["grow", "Tree"]),
        ("[server]\nport = 1\n\n[client]\nport = 2\n", ["server", "client"]),
        ("def broken(:\n    pass\n", ["broken"]),
        ("CREATE TABLE trees (id int);\n", ["trees"]),
    ],
)
def test_definitions_of_other_languages(code: str, names: list[str]) -> None:
    assert [h.title for h in readable(FILE, code.encode(), "code").headings] == names


@pytest.mark.parametrize(
    ("text", "titles"),
    [
        ("NAME\n\ngit - it\n\nSYNOPSIS\n\ngit x\n", ["NAME", "SYNOPSIS"]),
        ("== Remotes\n\nText\n\n=== Pulling\n", ["Remotes", "Pulling"]),
        ("2.1 Options\n\nText\n", ["2.1 Options"]),
        ("a table\n---- ----\nx    y\n", []),
        ("A line that is much longer\n------\ntext\n", []),
    ],
)
def test_titles_of_plain_text(text: str, titles: list[str]) -> None:
    assert [h.title for h in readable(FILE, text.encode(), "text").headings] == titles


def test_a_fence_holds_no_headings() -> None:
    document, _ = split("# One\n\n```\n# not a heading\n```\n\nText\n", kind="markdown")
    assert [h.title for h in document.headings] == ["One"]


def test_an_overlap_repeats_the_end_but_not_across_a_heading() -> None:
    text = "".join(f"Sentence number {index} stands here. " for index in range(40))
    document, found = split(text, chunk_tokens=200, overlap=40)
    for before, after in itertools.pairwise(found):
        assert after.start < before.stop
        assert document.text[after.start :].startswith("Sentence")
    _, found = split(GUIDE, chunk_tokens=160, overlap=40, kind="markdown")
    assert found[1].start == found[0].stop


def test_a_long_path_and_trail_are_shortened_from_the_outside() -> None:
    document = readable(FILE, ("# " + "A" * 80 + "\n\n## Inner\n\n" + "word " * 40).encode(), "markdown")
    found = Splitter(FakeEngine(), 128, 0).split("folder/" * 20 + "name.md", document)
    assert all(len(piece.header) <= 32 for piece in found)
    assert all("name.md" in piece.header for piece in found)


@pytest.mark.parametrize(("chunk_tokens", "overlap"), [(63, 0), (128, 33), (128, -1)])
def test_sizes_that_make_no_sense(chunk_tokens: int, overlap: int) -> None:
    with pytest.raises(UsageError):
        Splitter(FakeEngine(), chunk_tokens, overlap)
