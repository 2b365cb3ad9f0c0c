"""What a library says of its skills: what is to be done, what was done, what could not be."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from agentkv.errors import AgentKVError, InvalidManual
from agentkv.notices import warn
from agentkv.records import NamedBlock
from agentkv.skills.discovery import FILE_NAMES
from agentkv.skills.manual import Manual
from agentkv.skills.pieces import SkillBlock

Done = Literal["added", "changed", "mended", "replaced"]
"""What a deposit does to a skill.

``mended``: what was stored of it was damaged, or its file was broken for a while; ``replaced``: its name was that of
another folder's skill.
"""

MAX_WARNINGS = 20
"""Warnings of one reading of a library; a folder of thousands would else fill the screen."""

Kind = Literal[Done, "removed", "broken", "evicted"]


@dataclass(frozen=True)
class Broken:
    """A manual that could not be loaded or deposited. ``kept``: names of an earlier version that stay routed."""

    path: Path
    error: AgentKVError
    kept: tuple[str, ...] = ()

    @property
    def folder(self) -> Path:
        """The skill's folder."""
        return self.path.parent if self.path.name in FILE_NAMES else self.path

    @property
    def message(self) -> str:
        """What is wrong, and what is done meanwhile."""
        stays = f" Until then its earlier version stays ({', '.join(self.kept)})." if self.kept else ""
        return self.error.message + stays


@dataclass(frozen=True)
class Work:
    """A skill to be deposited: ``missing`` of its ``pieces`` are to be read or named, ``stale`` names go afterwards.

    ``before``: the names that it has now. ``kind``: what that will be; ``was``: the folder whose skill is replaced.
    """

    manual: Manual
    pieces: tuple[SkillBlock, ...]
    missing: tuple[SkillBlock, ...]
    stale: tuple[NamedBlock, ...]
    before: tuple[NamedBlock, ...]
    kind: Done = "added"
    was: Path | None = None

    @property
    def replaced(self) -> list[str]:
        """Ids of the blocks that lose their name to another one."""
        now = {piece.manual.name: piece.block_id for piece in self.missing}
        return [named.block_id for named in self.before if now.get(named.name, named.block_id) != named.block_id]

    @property
    def n_tokens(self) -> int:
        """Tokens of what is missing, proofs and cards not counted."""
        return sum(piece.n_tokens for piece in self.missing)


@dataclass(frozen=True)
class Plan:
    """What a sync would do. ``problems``: references that are not text; their skills are not broken by that.

    ``notices``: for a person, a line for each manual that was loaded with a warning, and for what was not looked at.
    """

    work: tuple[Work, ...]
    unchanged: tuple[tuple[Manual, tuple[SkillBlock, ...]], ...]
    removed: tuple[NamedBlock, ...]
    broken: tuple[Broken, ...]
    problems: tuple[InvalidManual, ...] = ()
    notices: tuple[str, ...] = ()

    @property
    def clashes(self) -> list[InvalidManual]:
        """The manuals that are not loaded since another one has their name."""
        errors = [entry.error for entry in self.broken if isinstance(entry.error, InvalidManual)]
        return [error for error in errors if error.keeper is not None]

    @property
    def n_tokens(self) -> int:
        """Tokens to be read."""
        return sum(work.n_tokens for work in self.work)


@dataclass(frozen=True)
class SkillEvent:
    """What became of one skill, or of one name that was evicted (its ``path`` is None where it is not a skill's).

    ``pieces``: its blocks; ``tokens``: of these, each with what it follows, as ``agentkv list`` counts;
    ``own_tokens``: without that; ``read``: evaluated now, proofs and cards included. ``was``: the folder whose skill
    was replaced.
    """

    kind: Kind
    name: str
    path: Path | None
    pieces: int = 0
    tokens: int = 0
    own_tokens: int = 0
    read: int = 0
    seconds: float = 0.0
    reason: str = ""
    was: Path | None = None


@dataclass(frozen=True)
class SyncReport:
    """What a sync did: each of the ``found`` manuals is in one of ``added`` to ``unchanged``, ``evicted``, ``broken``.

    ``mended``: unchanged, but what was stored of it was damaged; ``replaced``: in place of another folder's skill of
    that name. ``evicted``: deposited or unchanged, and gone at the end, because the store's budget does not hold all.
    ``evicted_names``: every name that went for this sync's deposits; ``evicted_bytes``: what these skills lost by it.
    ``removed``: names retired, of skills that are gone. ``retired``: ids of blocks that lost their name.
    """

    added: tuple[str, ...] = ()
    changed: tuple[str, ...] = ()
    mended: tuple[str, ...] = ()
    replaced: tuple[str, ...] = ()
    unchanged: tuple[str, ...] = ()
    evicted: tuple[str, ...] = ()
    removed: tuple[str, ...] = ()
    broken: tuple[Broken, ...] = ()
    problems: tuple[InvalidManual, ...] = ()
    retired: tuple[str, ...] = ()
    evicted_names: tuple[str, ...] = ()
    evicted_bytes: int = 0
    events: tuple[SkillEvent, ...] = field(default=(), repr=False)

    @property
    def found(self) -> int:
        """Manuals found in the folders."""
        done = (self.added, self.changed, self.mended, self.replaced)
        return sum(map(len, done)) + len(self.unchanged) + len(self.evicted) + len(self.broken)


def warn_of(texts: Sequence[str], warned: set[str]) -> None:
    """Warn of what is not in ``warned`` yet, which it is then: the first MAX_WARNINGS by themselves."""
    new = [text for text in dict.fromkeys(texts) if text not in warned]
    warned.update(new)
    for text in new[:MAX_WARNINGS]:
        warn(text)
    if len(new) > MAX_WARNINGS:
        warn(f"{len(new) - MAX_WARNINGS:,} more warnings of this kind; `agentkv skills validate FOLDER` lists them all")
