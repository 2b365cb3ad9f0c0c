"""A file's bytes as text, with the source byte at which each character begins; and in which encoding it is.

The encoding is the first of these that applies: a byte-order mark; a charset that the file declares (HTML's ``<meta>``,
an XML declaration, Python's coding line), if the whole file decodes by it; UTF-16 without a mark, by its NUL bytes;
ISO-2022, by its escapes; UTF-8; UTF-8 with some invalid bytes; charset-normalizer's guess from the lines with bytes
above 127; Windows-1252. A guess is always reported as one.

A byte that is not UTF-8 in a file that mostly is, is decoded as Windows-1252, one character a byte, so that no U+FFFD
appears that was not in the source. What holds NUL bytes and is neither marked nor UTF-8 is binary and refused. A gzip
file is unpacked first: *source bytes* are always the unpacked ones.
"""

from __future__ import annotations

import codecs
import gzip
import io
import re
import unicodedata
import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from agentkv.documents.readers.formats import refusal
from agentkv.documents.records import By, Kind
from agentkv.errors import InvalidDocument, StoreReadError, UsageError
from agentkv.io import fsio
from agentkv.io.hashing import sha256

if TYPE_CHECKING:
    from charset_normalizer import CharsetMatch

Offsets = NDArray[np.uint32]

MAX_SOURCE_BYTES = 64 << 20
"""Largest source, unpacked: offsets and texts of one file are held in memory."""

_GZIP = b"\x1f\x8b"
_READABLE = {index: codecs.decode(bytes([index]), "cp1252", "ignore") or chr(index) for index in range(0x80, 0x100)}
_BAD_BYTES = {0xDC00 + byte: char for byte, char in _READABLE.items()}
"""What "surrogateescape" leaves in place of an invalid byte -> the character shown for it."""
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
    """Like :func:`read_source`, but raises InvalidDocument, with a remedy, for a format that is not read."""
    data = read_source(path)
    reason = refusal(path, data)
    if reason is not None:
        raise InvalidDocument(path, reason)
    return data


def unpacked(path: Path, data: bytes) -> bytes:
    """The contents of a gzip file. Raises InvalidDocument, also where they are larger than the limit."""
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
    """The name of Python's codec for an encoding. Raises UsageError for one that is unknown or not for text."""
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
        raise InvalidDocument(path, f"its characters cannot be mapped to bytes in {name}")
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
    """Bytes of each character, found by feeding a decoder byte by byte: for codecs with state."""
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


# --- which encoding ---------------------------------------------------------------------------------

BOMS: tuple[tuple[bytes, str], ...] = (
    (codecs.BOM_UTF8, "utf-8"),
    (codecs.BOM_UTF32_LE, "utf-32-le"),
    (codecs.BOM_UTF32_BE, "utf-32-be"),
    (codecs.BOM_UTF16_LE, "utf-16-le"),
    (codecs.BOM_UTF16_BE, "utf-16-be"),
)
CANDIDATES = (
    *("gb18030", "big5", "cp932", "euc_jp", "cp949", "koi8_r", "koi8_u", "cp1251", "cp866", "cp1250", "iso8859_2"),
    *("cp1252", "cp1253", "cp1254", "cp1255", "cp1256", "cp1257", "cp874", "mac_cyrillic", "mac_roman", "cp850"),
)
"""Candidates of a guess; with every codec of Python short texts become Johab and Mac Greek."""

_SIBLINGS = {"cp1250": "iso8859_2"}
_SIGNS = frozenset({"mac_roman", "cp850"})
_LATIN = _SIGNS | {"cp1250", "iso8859_2", "cp1254", "cp1257"}
_ODD = re.compile(r"(?<=[^\W\d_])[\u0080-\U0010ffff](?<=[\W])(?=[^\W\d_])|(?<=[a-z])[\u00c0-\u00de\u0160\u0178\u017d]")
_INSTEAD = ("iso8859_15", "cp1250", "iso8859_2")
_WITHIN = re.compile(r"(?<=[^\W\d_])[\u0080-\U0010ffff](?=[^\W\d_])|(?<![^\W_])[¹²³¼½¾](?=[a-z]{3})")
_CAPITAL_WITHIN = re.compile(r"(?<=[a-z])[\u00c0-\u00de\u0152\u0160\u0178\u017d]")
_CENTRAL = frozenset({"Czech", "Polish", "Slovak", "Hungarian", "Romanian", "Croatian", "Slovene"})

_HTML = re.compile(rb"""<meta[^>]{0,300}?charset\s*=\s*["']?\s*([A-Za-z0-9._:-]{2,40})""", re.I)
_XML = re.compile(rb"""^\s*<\?xml[^>]{0,200}?encoding\s*=\s*["']([A-Za-z0-9._:-]{2,40})["']""", re.I)
_PYTHON = re.compile(rb"^(?:[^\n]*\n)?[ \t\f]*#[^\n]{0,100}?coding[:=][ \t]*([A-Za-z0-9._-]{2,40})")
_ESCAPES = ((b"\x1b$)C", "iso2022_kr"), (b"\x1b$B", "iso2022_jp"), (b"\x1b$@", "iso2022_jp"), (b"\x1b(J", "iso2022_jp"))
_HIGH = re.compile(rb"[\x80-\xff]")
_SCANNED, _SAMPLE, _DECLARED_WITHIN = 4 << 20, 64 << 10, 4096
_FEW = 4
"""With fewer bytes above 127 than this no guess is made: they are decoded as Windows-1252."""
_PLAIN, _OTHER, _SHORTEST = 0.85, 0.01, 32


class Charset(NamedTuple):
    """An encoding's name, as Python and :func:`agentkv.documents.source.decode` know it, and how it is known."""

    name: str
    by: By


def charset_of(data: bytes, kind: str) -> Charset | None:
    """The encoding of a file's bytes; None where they are binary."""
    for mark, name in BOMS:
        if data.startswith(mark):
            return Charset(name, "known")
    declared = _declared(data, kind)
    if declared is not None:
        return Charset(declared, "known")
    marked = _without_mark(data) or _escaped(data)
    if marked is not None:
        return Charset(marked, "guessed")
    try:
        data.decode()
    except UnicodeDecodeError:
        return _guessed(data)
    return Charset("utf-8", "known")


def decodes(data: bytes, name: str) -> bool:
    """Whether all of ``data`` is text in that encoding."""
    try:
        return isinstance(data.decode(name), str)
    except (LookupError, UnicodeError, ValueError):
        return False


def _declared(data: bytes, kind: str) -> str | None:
    """The charset that a file says it is in; None where that is UTF-8, unknown, or not what the bytes are."""
    head = data[:_DECLARED_WITHIN]
    patterns = {"html": (_HTML, _XML), "code": (_PYTHON, _XML)}.get(kind, (_XML,))
    found = next((match for pattern in patterns if (match := pattern.search(head))), None)
    if found is None:
        return None
    try:
        name = codecs.lookup(found[1].decode("ascii")).name
    except (LookupError, UnicodeError):
        return None
    name = {"iso8859-1": "cp1252", "ascii": "cp1252", "gb2312": "gb18030", "gbk": "gb18030"}.get(name, name)
    name = {"shift_jis": "cp932", "euc_kr": "cp949"}.get(name, name)  # as browsers do
    return None if name.startswith("utf") or not decodes(data, name) else name


def _without_mark(data: bytes) -> str | None:
    """UTF-16 without a mark: of ASCII text every other byte is NUL."""
    if len(data) % 2 or len(data) < _SHORTEST:
        return None
    even, odd = data[: 2 * _SAMPLE : 2], data[1 : 2 * _SAMPLE : 2]
    shares = even.count(0) / len(even), odd.count(0) / len(odd)
    for name, nul, text in (("utf-16-le", shares[1], shares[0]), ("utf-16-be", shares[0], shares[1])):
        if nul >= _PLAIN and text < _OTHER and decodes(data, name):
            return name
    return None


def _escaped(data: bytes) -> str | None:
    name = next((name for mark, name in _ESCAPES if mark in data), None)
    return name if name is not None and decodes(data, name) and data.decode(name) else None


def _guessed(data: bytes) -> Charset | None:
    """What is not UTF-8 as a whole."""
    bad = sum(0xDC80 <= ord(char) <= 0xDCFF for char in _above_ascii(data.decode("utf-8", "surrogateescape")))
    sequences = _count_sequences(data)
    if b"\0" in data:
        return None
    name = _normalizers(data) if sequences < bad and bad >= _FEW else None
    if name is None and not sequences and decodes(data, "cp1252"):
        name = "cp1252"
    if name is not None:
        return Charset(_without_signs(data) if name == "cp1252" else name, "guessed")
    return Charset(f"utf-8, {bad:,} bytes read as windows-1252", "guessed")


def _above_ascii(text: str) -> str:
    return re.sub(r"[\x00-\x7f]+", "", text)


def _count_sequences(data: bytes) -> int:
    """Characters of several bytes that are valid UTF-8."""
    return len(_above_ascii(data.decode("utf-8", "ignore")))


def _normalizers(data: bytes) -> str | None:
    """charset-normalizer's best guess that decodes the whole file."""
    from charset_normalizer import from_bytes

    sample = _sample(data)
    for left_out in range(4):  # a sample that had to be cut may end within a character
        part = sample[: len(sample) - left_out]
        matches = [m for m in from_bytes(part, cp_isolation=list(CANDIDATES)) if decodes(data, m.encoding)]
        if matches:
            return _or_alike(matches, part, data)
        if len(sample) < _SAMPLE:
            break
    return None


def _or_alike(matches: Sequence[CharsetMatch], sample: bytes, data: bytes) -> str:
    """The best match, or a similar one: in short texts encodings that differ in some accented letters look alike.

    Windows-1252, by far the commonest, where nothing speaks against it: neither how well the words fit a language, nor
    that the language is of Central Europe, nor letters that become signs.
    """
    best = matches[0]
    name, other = best.encoding, _SIBLINGS.get(best.encoding)
    if other is not None and decodes(data, other) and _letters(sample, other) > _letters(sample, name):
        name = other
    if name not in _LATIN or not decodes(data, "cp1252"):
        return name
    if name in _SIGNS:
        return "cp1252" if _oddities(sample, "cp1252") <= _oddities(sample, name) else name
    western = next((m for m in matches if "cp1252" in m.could_be_from_charset), None)
    is_as_good = western is not None and western.coherence >= best.coherence and best.language not in _CENTRAL
    return "cp1252" if is_as_good or sample.decode("cp1252") == sample.decode(name) else name


def _letters(sample: bytes, name: str) -> int:
    """How many of the characters above ASCII are letters."""
    return sum(char.isalpha() for char in _above_ascii(sample.decode(name, "ignore")))


def _oddities(sample: bytes, name: str) -> int:
    """How many characters above ASCII are signs between letters, or capitals after small letters."""
    return len(_ODD.findall(sample.decode(name, "ignore")))


def _without_signs(data: bytes) -> str:
    """Windows-1252, or a similar encoding that has no sign within a word: ``obowi¹zuje``, ``½uvre``."""
    sample = _sample(data)
    fewest, found = _signs_within(sample, "cp1252"), "cp1252"
    for name in _INSTEAD:
        if fewest and decodes(data, name) and (signs := _signs_within(sample, name)) < fewest:
            fewest, found = signs, name
    return found


def _signs_within(sample: bytes, name: str) -> int:
    """How many characters within words are not letters, or are capitals after small ones; with ``½`` before letters."""
    text = sample.decode(name, "ignore")
    signs = (match for match in _WITHIN.finditer(text) if unicodedata.category(match[0]) not in {"Lu", "Ll", "Lo"})
    return sum(1 for _ in signs) + len(_CAPITAL_WITHIN.findall(text))


def _sample(data: bytes) -> bytes:
    """Lines that hold bytes above 127, from the first on."""
    first = _HIGH.search(data)
    start = data.rfind(b"\n", 0, first.start()) + 1 if first else 0
    lines = data[start : start + _SCANNED].split(b"\n")
    return b"\n".join(line for line in lines if _HIGH.search(line))[:_SAMPLE]
