"""A file's bytes as text, with the byte at which each character begins. Knows encodings, no structure and no model.

The rule for encodings, first that applies: a byte-order mark; for HTML, the charset that the first 1,024 bytes declare,
if the whole file decodes by it; UTF-8. A byte that is no UTF-8 is read as Windows-1252, one character a byte, so that
an old Latin-1 file and a UTF-8 file with a few bad bytes both come out readable, and no U+FFFD appears that was not in
the source. What holds NUL bytes and is neither marked nor UTF-8 is binary and refused.

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
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from agentkv import fsio
from agentkv.errors import InvalidDocument, StoreReadError
from agentkv.hashing import sha256

Kind = Literal["text", "markdown", "rst", "html", "code"]
Offsets = NDArray[np.uint32]

MAX_SOURCE_BYTES = 32 << 20
"""Largest source, unpacked: offsets and texts of one file are held in memory."""

SUFFIXES: dict[str, Kind] = {
    **dict.fromkeys((".txt", ".text", ".adoc", ".asciidoc", ".org", ".tex", ".log"), "text"),
    **dict.fromkeys((".md", ".markdown", ".mdx"), "markdown"),
    ".rst": "rst",
    **dict.fromkeys((".html", ".htm", ".xhtml"), "html"),
    **dict.fromkeys((".py", ".pyi", ".c", ".h", ".cc", ".cpp", ".hpp", ".rs", ".go", ".java", ".kt", ".swift"), "code"),
    **dict.fromkeys(
        (".js", ".ts", ".tsx", ".jsx", ".rb", ".pl", ".pm", ".sh", ".bash", ".sql", ".lua", ".php"), "code"
    ),
    **dict.fromkeys((".cs", ".scala", ".hs", ".ml", ".ex", ".r", ".jl", ".toml", ".ini", ".cfg", ".yaml"), "code"),
}
"""Kind by the file name's ending, ``.gz`` taken off; a file named by itself that has another is text."""

_TEXTS = frozenset("readme changelog changes news license copying authors todo faq install".split())  # noqa: SIM905
_BOMS: tuple[tuple[bytes, str], ...] = (
    (codecs.BOM_UTF8, "utf-8"),
    (codecs.BOM_UTF32_LE, "utf-32-le"),
    (codecs.BOM_UTF32_BE, "utf-32-be"),
    (codecs.BOM_UTF16_LE, "utf-16-le"),
    (codecs.BOM_UTF16_BE, "utf-16-be"),
)
_DECLARED = re.compile(rb"""(?:charset|encoding)\s*=\s*["']?\s*([A-Za-z0-9._:-]{2,40})""", re.I)
_GZIP = b"\x1f\x8b"
_READABLE = {index: codecs.decode(bytes([index]), "cp1252", "ignore") or chr(index) for index in range(0x80, 0x100)}
_BAD_BYTES = {0xDC00 + byte: char for byte, char in _READABLE.items()}
"""What "surrogateescape" leaves in place of a byte that is no UTF-8 -> the character shown for it."""


@dataclass(frozen=True)
class Source:
    """``text`` is ``data`` decoded; ``starts[i]`` the byte at which character i begins, shape (len(text) + 1,).

    ``starts[0]`` is 0 and the last is ``len(data)``: a byte-order mark belongs to the first character.
    """

    data: bytes
    text: str
    starts: Offsets
    encoding: str

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
    stem = name.split(".")[0].split("-")[0]
    is_text = stem in {
        "readme",
        "changelog",
        "changes",
        "news",
        "license",
        "copying",
        "authors",
        "todo",
        "faq",
        "install",
    }
    return "text" if is_text else None


def read_source(path: Path) -> bytes:
    """The source bytes of a file, unpacked where it is gzip. Raises InvalidDocument."""
    try:
        data = fsio.read_regular(path, MAX_SOURCE_BYTES)
    except StoreReadError as error:
        raise InvalidDocument(path, error.reason) from error
    if data is None:
        raise InvalidDocument(path, "there is no such file")
    return unpacked(path, data) if data.startswith(_GZIP) else data


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


def decode(path: Path, data: bytes, kind: Kind) -> Source:
    """``data`` as text, by the rule of the module. ``path`` is for the error. Raises InvalidDocument."""
    for mark, encoding in _BOMS:
        if data.startswith(mark):
            return _marked(path, data, mark, encoding)
    if kind == "html":
        declared = _declared(data)
        if declared is not None:
            return declared
    text = data.decode("utf-8", "surrogateescape")
    codes = _codes(text)
    bad = (codes >= 0xDC80) & (codes <= 0xDCFF)
    if b"\0" in data and bad.any():
        raise InvalidDocument(path, "it is binary: it holds NUL bytes and is not UTF-8")
    lengths = np.where(bad, 1, _utf8_lengths(codes))
    encoding = "utf-8" if not bad.any() else f"utf-8, {int(bad.sum()):,} bytes read as windows-1252"
    return Source(data, text.translate(_BAD_BYTES) if bad.any() else text, _starts(lengths), encoding)


def _marked(path: Path, data: bytes, mark: bytes, encoding: str) -> Source:
    body = data[len(mark) :]
    if encoding == "utf-8":
        source = decode(path, body, "text")
        return Source(data, source.text, _shifted(source.starts, len(mark)), source.encoding)
    try:
        text = body.decode(encoding)
    except UnicodeDecodeError as error:
        raise InvalidDocument(
            path, f"marked as {encoding}, and it is not, at byte {error.start + len(mark)}"
        ) from error
    codes = _codes(text)
    width = np.full(len(text), 4) if encoding.startswith("utf-32") else 2 + 2 * (codes >= 0x10000)
    return Source(data, text, _shifted(_starts(width), len(mark)), encoding)


def _declared(data: bytes) -> Source | None:
    """HTML by the charset that it declares; None where that is UTF-8, unknown, or not what the bytes are."""
    found = _DECLARED.search(data[:1024])
    if found is None:
        return None
    try:
        codec = codecs.lookup(found[1].decode("ascii"))
        encoding = "cp1252" if codec.name in {"iso8859-1", "ascii"} else codec.name  # as browsers do
        if encoding.startswith("utf"):
            return None
        text = data.decode(encoding)
    except (LookupError, UnicodeError):
        return None
    if not isinstance(text, str):  # a codec from bytes to bytes
        return None
    lengths = np.ones(len(text), np.int64) if len(text) == len(data) else _measured(data, encoding)
    return Source(data, text, _starts(lengths), encoding) if len(lengths) == len(text) else None


def _measured(data: bytes, encoding: str) -> NDArray[np.int64]:
    """Bytes of each character, found by feeding a decoder one byte after the other."""
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


def _utf8_lengths(codes: NDArray[np.uint32]) -> NDArray[np.int64]:
    return 1 + (codes >= 0x80).astype(np.int64) + (codes >= 0x800) + (codes >= 0x10000)


def _starts(lengths: NDArray[np.int64]) -> Offsets:
    starts = np.zeros(len(lengths) + 1, np.uint32)
    np.cumsum(lengths, out=starts[1:])
    return starts


def _shifted(starts: Offsets, by: int) -> Offsets:
    moved = starts + np.uint32(by)
    moved[0] = 0
    return moved
