"""What is looked for when words are to be forgotten: the same words in any case, composed or not, as JSON writes them.

Any blanks between two words are one blank, line ends too, and what nobody sees (soft hyphens, zero width, vowel marks)
is nothing. Accents count: José is not Jose. Knows texts and bytes; refuses to know files and what they are for.
"""

from __future__ import annotations

import html
import json
import re
import unicodedata
from collections.abc import Iterable, Iterator

import orjson
import regex
import zstandard

_ESCAPES = re.compile(r"(?:\\u[0-9a-fA-F]{4})+")
_ENTITY = re.compile(r"&(?:#\d{1,7}|#[xX][0-9a-fA-F]{1,6}|[A-Za-z]\w{1,31});")
_BLANKS = re.compile(r"(?:[^\S ]|\\[nrt]| (?=[\s\\]))(?:\s|\\[nrt])*")
"""Blanks of all kinds, also as JSON writes them, but a single one that is what it is to become."""
_UNSEEN = regex.compile(r"[\p{Cf}\u0640[\p{M}&&[\p{Hebrew}\p{Arabic}\u064b-\u065f\u0670]]]", regex.V1)
_BROKEN = re.compile(r"[-\u2010]\s*(?:\n|\\n)\s*")
_ZSTD = b"\x28\xb5\x2f\xfd"
_MOST_UNPACKED = 256 << 20


class Words:
    """Texts, any of which is to be found. An empty one is none."""

    def __init__(self, texts: Iterable[str]) -> None:
        given = {text for text in texts if text.strip()}
        self._plain = {_normal(text) for text in given} - {"", " "}
        escaped = {_normal(json.dumps(text, ensure_ascii=False)[1:-1]) for text in given} if self._plain else set()
        self._forms = sorted(self._plain | escaped, key=len)
        self.longest = max((len(form.encode()) for form in self._forms), default=0)
        """Bytes of the longest form."""

    def __bool__(self) -> bool:
        return bool(self._plain)

    def are_in(self, text: str | None) -> bool:
        """Whether a text holds one; a hyphen at a line's end is there or not."""
        if not text or not self._plain:
            return False
        texts = [text, _BROKEN.sub("", text), _BROKEN.sub("-", text)] if _BROKEN.search(text) else [text]
        return any(form in normal for normal in map(_normal, texts) for form in self._forms)

    def are_in_bytes(self, data: bytes) -> bool:
        """Whether the bytes of a file do: read as UTF-8, JSON's escapes resolved, a zstd frame unpacked."""
        if not self._plain:
            return False
        if data.startswith(_ZSTD) and self.are_in_bytes(_unpacked(data)):
            return True
        text = data.decode("utf-8", "ignore")
        return self.are_in(_ESCAPES.sub(_resolved, text) if "\\u" in text else text)

    def are_in_line(self, line: bytes) -> bool:
        """Whether a line of JSON holds one in its values; of what is no JSON, anywhere."""
        try:
            return any(map(self.are_in, strings(orjson.loads(line))))
        except orjson.JSONDecodeError:
            return self.are_in_bytes(line)

    def are_in_raw(self, data: bytes) -> bool:
        """Whether bytes that are no text hold one as it was given, for files of numbers: much quicker."""
        return any(form.encode() in data for form in self._forms)


def strings(value: object) -> Iterator[str]:
    """The texts in a JSON value, without the names of fields."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, list):
        for item in value:
            yield from strings(item)
    elif isinstance(value, dict):
        for item in value.values():
            yield from strings(item)


def _normal(text: str) -> str:
    if "&" in text:
        text = _ENTITY.sub(lambda match: html.unescape(match[0]), text)
    if not text.isascii():
        text = _UNSEEN.sub("", unicodedata.normalize("NFKC", text))
    return _BLANKS.sub(" ", unicodedata.normalize("NFC", text.casefold()))


def _resolved(run: re.Match[str]) -> str:
    return str(json.loads(f'"{run[0]}"'))


def _unpacked(data: bytes) -> bytes:
    try:
        return bytes(zstandard.ZstdDecompressor().decompress(data, max_output_size=_MOST_UNPACKED))
    except zstandard.ZstdError:
        return b""
