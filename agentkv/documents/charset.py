"""In which encoding a file is: what it says itself, else UTF-8, else a guess, which is always told as one.

The order, first that applies: a byte-order mark; a charset that the file declares (HTML's ``<meta>``, an XML
declaration, Python's coding line), if the whole file decodes by it; UTF-16 without a mark, by its NUL bytes; ISO-2022,
by its escapes; UTF-8; UTF-8 with some bytes that are not; the guess of charset-normalizer from the lines that hold
bytes above 127; Windows-1252. Knows bytes and names of encodings, no characters' places.
"""

from __future__ import annotations

import codecs
import re
import unicodedata
from collections.abc import Sequence
from typing import TYPE_CHECKING, Literal, NamedTuple

if TYPE_CHECKING:
    from charset_normalizer import CharsetMatch

By = Literal["known", "guessed", "given"]
"""``known``: a mark, a declaration, or valid UTF-8; ``guessed``: by the bytes; ``given``: by the user."""

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
"""What is guessed among; with every codec of Python as a candidate short texts become Johab and Mac Greek."""

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
"""Fewer bytes above 127 than this are no ground for a guess: they are read as Windows-1252."""
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
    """The best match, or one like it: short texts do not tell apart what differs in some accented letters only.

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
    """How many characters above ASCII are signs between letters, or capitals behind small letters."""
    return len(_ODD.findall(sample.decode(name, "ignore")))


def _without_signs(data: bytes) -> str:
    """Windows-1252, or the encoding like it by which no sign stands within a word: ``obowi¹zuje``, ``½uvre``."""
    sample = _sample(data)
    fewest, found = _signs_within(sample, "cp1252"), "cp1252"
    for name in _INSTEAD:
        if fewest and decodes(data, name) and (signs := _signs_within(sample, name)) < fewest:
            fewest, found = signs, name
    return found


def _signs_within(sample: bytes, name: str) -> int:
    """How many characters within words are no letters, or are capitals behind small ones; with ``½`` before letters."""
    text = sample.decode(name, "ignore")
    signs = (match for match in _WITHIN.finditer(text) if unicodedata.category(match[0]) not in {"Lu", "Ll", "Lo"})
    return sum(1 for _ in signs) + len(_CAPITAL_WITHIN.findall(text))


def _sample(data: bytes) -> bytes:
    """Lines that hold bytes above 127, from the first on."""
    first = _HIGH.search(data)
    start = data.rfind(b"\n", 0, first.start()) + 1 if first else 0
    lines = data[start : start + _SCANNED].split(b"\n")
    return b"\n".join(line for line in lines if _HIGH.search(line))[:_SAMPLE]
