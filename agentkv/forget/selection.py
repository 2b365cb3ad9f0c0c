"""Whose words, which words, or of which time: what is to be forgotten.

A *user* is a label of an item's namespace in ``AgentKVStore`` (``("memories", "ada")`` is an item of ``ada``), and
every thread that is called by it or has it as a part of its name (``ada``, ``ada/7``, ``user:ada``, ``mail ada 2026``;
parts end at a blank or one of ``/ : # | @ , ;``). A store knows no other users. The time of a turn is that of its file,
of a line the one that it says, of an item that of its last change; manuals and documents have none and are never too
old.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import UTC, datetime

from agentkv.errors import UsageError
from agentkv.forget.words import Words

_PARTS = re.compile(r"[\s/:#|@,;]+")


@dataclass(frozen=True)
class Selection:
    """Exactly one of: a ``text``; what was said ``before`` a time; a ``thread``; a ``user``. Raises UsageError."""

    text: str | None = None
    before: datetime | None = None
    thread: str | None = None
    user: str | None = None

    def __post_init__(self) -> None:
        given = [name for name, value in vars(self).items() if value is not None]
        if len(given) != 1:
            raise UsageError("say what to forget: one of a text, before, thread, user")
        if any(isinstance(value, str) and not value.strip() for value in vars(self).values()):
            raise UsageError(f"{given[0]} is empty; it would be found everywhere")

    @property
    def words(self) -> Words:
        """The text as what is looked for; of no other selection are the words known beforehand."""
        return Words([self.text] if self.text else [])

    @property
    def seconds(self) -> float | None:
        """``before`` in seconds since 1970."""
        return None if self.before is None else self.before.timestamp()

    def means_thread(self, thread_id: str) -> bool:
        """Whether a thread is meant by its name."""
        if self.thread is not None:
            return thread_id == self.thread
        if self.user is not None:
            return thread_id == self.user or self.user in _PARTS.split(thread_id)
        return self.words.are_in(thread_id)

    def is_before(self, seconds: float) -> bool:
        """Whether a time, in seconds since 1970, is of the time that is to be forgotten."""
        return self.seconds is not None and seconds < self.seconds

    def is_before_day(self, time: str) -> bool:
        """The same of a time in ISO 8601; False for what is none."""
        try:
            moment = datetime.fromisoformat(time)
        except ValueError:
            return False
        return self.is_before((moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp())


def parsed_date(text: str) -> datetime:
    """A date or time in ISO 8601, in UTC where it says no zone. Raises UsageError."""
    try:
        moment = datetime.fromisoformat(text.strip())
    except ValueError as error:
        raise UsageError(f"{text!r} is not a date; write it like 2026-10-14 or 2026-10-14T12:00") from error
    return moment if moment.tzinfo else moment.replace(tzinfo=UTC)
