"""What is to be forgotten: a text, a time, a thread or a user; and matching words in text, JSON and bytes of files.

A *user* is a label of an item's namespace in ``AgentKVStore`` (``("memories", "ada")`` is an item of ``ada``), and
every thread with that name or with it as a part of its name (``ada``, ``ada/7``, ``user:ada``, ``mail ada 2026``; parts
end at a blank or one of ``/ : # | @ , ;``). A store knows no other users. The time of a turn is that of its file, of a
log line the one in it, of an item that of its last change; manuals and documents have none and are never too old.

Words match in any case, composed or not, and as JSON escapes them. Any white space between two words is one blank, line
ends too; invisible characters (soft hyphens, zero width, vowel marks) are ignored. Accents count: José is not Jose.
"""

from __future__ import annotations

import html
import json
import re
import unicodedata
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime

import orjson
import regex
import zstandard

from agentkv.errors import UsageError

_PARTS = re.compile(r"[\s/:#|@,;]+")


@dataclass(frozen=True)
class Selection:
    """Exactly one of: a ``text``; everything ``before`` a time; a ``thread``; a ``user``. Raises UsageError."""

    text: str | None = None
    before: datetime | None = None
    thread: str | None = None
    user: str | None = None

    def __post_init__(self) -> None:
        given = [name for name, value in vars(self).items() if value is not None]
        if len(given) != 1:
            raise UsageError("give one thing to forget: a text, before, a thread or a user")
        if any(isinstance(value, str) and not value.strip() for value in vars(self).values()):
            raise UsageError(f"{given[0]} is empty; it would match everything")

    @property
    def words(self) -> Words:
        """The text; for the other selections the words are not known beforehand."""
        return Words([self.text] if self.text else [])

    @property
    def seconds(self) -> float | None:
        """``before`` in seconds since 1970."""
        return None if self.before is None else self.before.timestamp()

    def selects_thread(self, thread_id: str) -> bool:
        """Whether a thread is selected by its name."""
        if self.thread is not None:
            return thread_id == self.thread
        if self.user is not None:
            return thread_id == self.user or self.user in _PARTS.split(thread_id)
        return self.words.are_in(thread_id)

    def is_before(self, seconds: float) -> bool:
        """Whether a time, in seconds since 1970, is before the one given."""
        return self.seconds is not None and seconds < self.seconds

    def is_before_day(self, time: str) -> bool:
        """The same for a time in ISO 8601; False for anything else."""
        try:
            moment = datetime.fromisoformat(time)
        except ValueError:
            return False
        return self.is_before((moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp())


def parsed_date(text: str) -> datetime:
    """A date or time in ISO 8601, in UTC unless it has a zone. Raises UsageError."""
    try:
        moment = datetime.fromisoformat(text.strip())
    except ValueError as error:
        raise UsageError(f"{text!r} is not a date; write it like 2026-10-14 or 2026-10-14T12:00") from error
    return moment if moment.tzinfo else moment.replace(tzinfo=UTC)


# --- words ----------------------------------------------------------------------------------------

_ESCAPES = re.compile(r"(?:\\u[0-9a-fA-F]{4})+")
_ENTITY = re.compile(r"&(?:#\d{1,7}|#[xX][0-9a-fA-F]{1,6}|[A-Za-z]\w{1,31});")
_BLANKS = re.compile(r"(?:[^\S ]|\\[nrt]| (?=[\s\\]))(?:\s|\\[nrt])*")
"""White space of all kinds, also as JSON escapes it, that is not a single blank already."""
_UNSEEN = regex.compile(r"[\p{Cf}\u0640[\p{M}&&[\p{Hebrew}\p{Arabic}\u064b-\u065f\u0670]]]", regex.V1)
_BROKEN = re.compile(r"[-\u2010]\s*(?:\n|\\n)\s*")
_ZSTD = b"\x28\xb5\x2f\xfd"
_MOST_UNPACKED = 256 << 20


class Words:
    """Texts, any of which is to be found; empty ones are ignored."""

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
        """Whether a text holds one, with or without a hyphen at a line's end."""
        if not text or not self._plain:
            return False
        texts = [text, _BROKEN.sub("", text), _BROKEN.sub("-", text)] if _BROKEN.search(text) else [text]
        return any(form in normal for normal in map(_normal, texts) for form in self._forms)

    def are_in_bytes(self, data: bytes) -> bool:
        """Whether a file's bytes hold one: decoded as UTF-8, JSON escapes resolved, a zstd frame unpacked."""
        if not self._plain:
            return False
        if data.startswith(_ZSTD) and self.are_in_bytes(_unpacked(data)):
            return True
        text = data.decode("utf-8", "ignore")
        return self.are_in(_ESCAPES.sub(_resolved, text) if "\\u" in text else text)

    def are_in_line(self, line: bytes) -> bool:
        """Whether a line of JSON holds one in its values, or a line of anything else anywhere."""
        try:
            return any(map(self.are_in, strings(orjson.loads(line))))
        except orjson.JSONDecodeError:
            return self.are_in_bytes(line)

    def are_in_raw(self, data: bytes) -> bool:
        """Whether binary data holds one exactly as given: much faster, for files of numbers."""
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
