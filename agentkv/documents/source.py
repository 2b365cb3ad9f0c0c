"""A file's bytes as text, with the byte at which each character begins. Knows encodings, no structure and no model.

Which encoding: :mod:`agentkv.documents.charset`. A byte that is not UTF-8 in a file that mostly is, is read as
Windows-1252, one character a byte, so that UTF-8 with a few bad bytes comes out readable, and no U+FFFD appears that
was not in the source. What holds NUL bytes and is neither marked nor UTF-8 is binary and refused.

A gzip file is unpacked first: *source bytes* are always the unpacked ones.
"""

from __future__ import annotations

import codecs
import gzip
import io
import re
import zlib
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from agentkv.documents.charset import BOMS, By, Charset, charset_of
from agentkv.documents.formats import refusal
from agentkv.errors import InvalidDocument, StoreReadError, UsageError
from agentkv.io import fsio
from agentkv.io.hashing import sha256

Kind = Literal["text", "markdown", "rst", "html", "code", "csv"]
Offsets = NDArray[np.uint32]

MAX_SOURCE_BYTES = 64 << 20
"""Largest source, unpacked: offsets and texts of one file are held in memory."""

SUFFIXES: dict[str, Kind] = {
    **dict.fromkeys((".txt", ".text", ".adoc", ".asciidoc", ".org", ".tex", ".log"), "text"),
    **dict.fromkeys((".texi", ".texinfo", ".pod", ".man", ".srt", ".vtt"), "text"),
    **dict.fromkeys((".md", ".markdown", ".mdx", ".rmd", ".qmd"), "markdown"),
    ".rst": "rst",
    **dict.fromkeys((".html", ".htm", ".xhtml"), "html"),
    **dict.fromkeys((".csv", ".tsv", ".tab"), "csv"),
    **dict.fromkeys((".py", ".pyi", ".c", ".h", ".cc", ".cpp", ".hpp", ".rs", ".go", ".java", ".kt", ".swift"), "code"),
    **dict.fromkeys(
        (".js", ".ts", ".tsx", ".jsx", ".rb", ".pl", ".pm", ".sh", ".bash", ".sql", ".lua", ".php"), "code"
    ),
    **dict.fromkeys(
        (".cs", ".scala", ".hs", ".ml", ".ex", ".r", ".jl", ".toml", ".ini", ".cfg", ".yaml", ".yml"), "code"
    ),
}
"""Kind by the file name's ending, ``.gz`` taken off; a file named by itself that has another is text."""

_TEXT_NAMES = frozenset(
    {"readme", "changelog", "changes", "news", "license", "copying", "authors", "todo", "faq", "install"}
)
_SECTION, _LONE_SECTION = re.compile(r"\.[1-9n][a-z_]*"), re.compile(r"[^.]+\.[1-8]")
"""Endings of man pages: in folders of theirs, and elsewhere, where ``libz.so.1`` and ``a.log.1`` end so too."""
_GZIP = b"\x1f\x8b"
_READABLE = {index: codecs.decode(bytes([index]), "cp1252", "ignore") or chr(index) for index in range(0x80, 0x100)}
_BAD_BYTES = {0xDC00 + byte: char for byte, char in _READABLE.items()}
"""What "surrogateescape" leaves in place of a byte that is no UTF-8 -> the character shown for it."""
_CODES = 0x110000


@dataclass(frozen=True)
class Source:
    """``text`` is ``data`` decoded; ``starts[i]`` the byte at which character i begins, shape (len(text) + 1,).

    ``starts[0]`` is 0 and the last is ``len(data)``: a byte-order mark belongs to the first character. ``encoding``:
    what it was decoded by; ``by``: how that is known.
    """

    data: bytes
    text: str
    starts: Offsets
    encoding: str
    by: By = "known"

    @property
    def sha256(self) -> str:
        """Digest of the source bytes."""
        return sha256(self.data)


def kind_of(path: Path) -> Kind | None:
    """What a file's name says that it holds; None if its ending is not known."""
    name = path.name.lower().removesuffix(".gz")
    suffix = Path(name).suffix
    if suffix in SUFFIXES:
        return SUFFIXES[suffix]
    is_manual = _SECTION.fullmatch(suffix) if path.parent.name.startswith("man") else _LONE_SECTION.fullmatch(name)
    return "text" if is_manual or name.split(".")[0].split("-")[0] in _TEXT_NAMES else None


def read_source(path: Path) -> bytes:
    """The source bytes of a file, unpacked where it is gzip. Raises InvalidDocument."""
    try:
        data = fsio.read_regular(path, MAX_SOURCE_BYTES)
    except StoreReadError as error:
        raise InvalidDocument(path, error.reason) from error
    if data is None:
        raise InvalidDocument(path, "there is no such file")
    return unpacked(path, data) if data.startswith(_GZIP) else data


def read_text_source(path: Path) -> bytes:
    """Like :func:`read_source`, but a format whose bytes are not its text is refused by its name."""
    data = read_source(path)
    reason = refusal(path, data)
    if reason is not None:
        raise InvalidDocument(path, reason)
    return data


def unpacked(path: Path, data: bytes) -> bytes:
    """What a gzip file holds. Raises InvalidDocument, also where it is larger than the limit."""
    try:
        with gzip.GzipFile(fileobj=io.BytesIO(data)) as file:
            whole = file.read(MAX_SOURCE_BYTES + 1)
    except (OSError, EOFError, zlib.error) as error:
        raise InvalidDocument(path, f"it cannot be unpacked: {error}") from error
    if len(whole) > MAX_SOURCE_BYTES:
        raise InvalidDocument(path, f"more than {MAX_SOURCE_BYTES:,} bytes when unpacked")
    return whole


# --- decoding -------------------------------------------------------------------------------------


def decode(path: Path, data: bytes, kind: Kind, encoding: str | None = None) -> Source:
    """``data`` as text, in ``encoding`` if that is known. ``path`` is for the error. Raises InvalidDocument."""
    charset = charset_of(data, kind) if encoding is None else Charset(encoding, "known")
    if charset is None:
        raise InvalidDocument(
            path,
            "it is binary: it holds NUL bytes and is not UTF-8 (if it is text, pass its encoding: --encoding NAME)",
        )
    if charset.name.startswith("utf-8"):
        return _utf8(data, charset.by)
    return _by_codec(path, data, charset)


def checked_encoding(name: str) -> str:
    """The codec of Python meant by a user's word for an encoding. Raises UsageError for one that is not for text."""
    try:
        found = codecs.lookup(name).name
        "".encode(found)
    except (LookupError, ValueError):
        raise UsageError(
            f"{name!r} is not an encoding of text. Known are for example gb18030, shift_jis, koi8-r."
        ) from None
    if found == "utf-8-sig":
        return "utf-8"
    return {"utf-16": "utf-16-le", "utf-32": "utf-32-le"}.get(found, found)


def _utf8(data: bytes, by: By) -> Source:
    n_mark = len(codecs.BOM_UTF8) if data.startswith(codecs.BOM_UTF8) else 0
    text = data[n_mark:].decode("utf-8", "surrogateescape")
    if text.isascii():
        return Source(data, text, _shifted(np.arange(len(text) + 1, dtype=np.uint32), n_mark), "utf-8", by)
    codes = _codes(text)
    bad = (codes >= 0xDC80) & (codes <= 0xDCFF)
    lengths = np.ones(len(text), np.uint8)
    for least in (0x80, 0x800, 0x10000):
        lengths += codes >= least
    lengths[bad] = 1
    n_bad = int(bad.sum())
    encoding = "utf-8" if not n_bad else f"utf-8, {n_bad:,} bytes read as windows-1252"
    shown = text.translate(_BAD_BYTES) if n_bad else text
    return Source(data, shown, _shifted(_starts(lengths), n_mark), encoding, "guessed" if n_bad else by)


def _by_codec(path: Path, data: bytes, charset: Charset) -> Source:
    """By any codec of Python that decodes all of it."""
    name = charset.name
    n_mark = next((len(mark) for mark, marked in BOMS if marked == name and data.startswith(mark)), 0)
    body = data[n_mark:]
    try:
        text = body.decode(name)
    except UnicodeDecodeError as error:
        raise InvalidDocument(path, f"it is not {name}: byte {error.start + n_mark:,} does not decode") from error
    except (LookupError, UnicodeError) as error:
        raise InvalidDocument(path, f"it cannot be read as {name}: {error}") from error
    starts = _starts(_lengths(body, text, name))
    if len(starts) != len(text) + 1 or int(starts[-1]) != len(body):
        raise InvalidDocument(path, f"its characters have no places of their own in {name}")
    return Source(data, text, _shifted(starts, n_mark), name, charset.by)


def _lengths(data: bytes, text: str, encoding: str) -> NDArray[Any]:
    """Bytes of each character of ``text``, which is ``data`` decoded."""
    if len(text) == len(data):
        return np.ones(len(text), np.uint8)
    if encoding.startswith(("utf-16", "utf-32")):
        wide = encoding.startswith("utf-32")
        return np.full(len(text), 4, np.uint8) if wide else (2 + 2 * (_codes(text) >= 0x10000)).astype(np.uint8)
    codes = _codes(text)
    known = np.zeros(_CODES, np.uint8)
    for code in np.flatnonzero(np.bincount(codes, minlength=_CODES)):
        known[code] = len(chr(code).encode(encoding, "ignore"))
    lengths = known[codes]
    if int(lengths.sum(dtype=np.int64)) == len(data) and text.encode(encoding, "ignore") == data:
        return lengths
    return _measured(data, encoding)


def _measured(data: bytes, encoding: str) -> NDArray[np.int64]:
    """Bytes of each character, found by feeding a decoder one byte after the other: for codecs that have states."""
    decoder = codecs.getincrementaldecoder(encoding)()
    lengths, since = [], 0
    for index in range(len(data)):
        since += 1
        for _ in decoder.decode(data[index : index + 1]):
            lengths.append(since)
            since = 0
    for _ in decoder.decode(b"", True):
        lengths.append(since)
        since = 0
    if since and lengths:
        lengths[-1] += since
    return np.asarray(lengths, np.int64)


def _codes(text: str) -> NDArray[np.uint32]:
    return np.frombuffer(text.encode("utf-32-le", "surrogatepass"), "<u4")


def _starts(lengths: NDArray[Any]) -> Offsets:
    starts = np.zeros(len(lengths) + 1, np.uint32)
    np.cumsum(lengths, dtype=np.uint32, out=starts[1:])
    return starts


def _shifted(starts: Offsets, by: int) -> Offsets:
    if by:
        starts += np.uint32(by)
        starts[0] = 0
    return starts
