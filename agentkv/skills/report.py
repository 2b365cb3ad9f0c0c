"""What a library says of its skills: what is to be done, what was done, what could not be."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from agentkv.errors import AgentKVError, InvalidManual
from agentkv.records import NamedBlock
from agentkv.skills.manual import FILE_NAMES, Manual
from agentkv.skills.pieces import Piece

Kind = Literal["added", "changed", "removed", "broken", "mended"]


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

    ``before``: the names that it has now.
    """

    manual: Manual
    pieces: tuple[Piece, ...]
    missing: tuple[Piece, ...]
    stale: tuple[NamedBlock, ...]
    before: tuple[NamedBlock, ...]

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
    """What a sync would do. ``problems``: references that are no texts; their skills are not broken by that."""

    work: tuple[Work, ...]
    unchanged: tuple[tuple[Manual, tuple[Piece, ...]], ...]
    removed: tuple[NamedBlock, ...]
    broken: tuple[Broken, ...]
    problems: tuple[InvalidManual, ...] = ()

    @property
    def n_tokens(self) -> int:
        """Tokens to be read."""
        return sum(work.n_tokens for work in self.work)


@dataclass(frozen=True)
class SkillEvent:
    """What became of one skill. ``pieces``: its blocks; ``tokens``: evaluated for it, proofs and cards included."""

    kind: Kind
    name: str
    path: Path
    pieces: int = 0
    tokens: int = 0
    seconds: float = 0.0
    reason: str = ""


@dataclass(frozen=True)
class SyncReport:
    """What a sync did: ``added`` + ``changed`` + ``unchanged`` + ``broken`` are the ``found`` manuals.

    ``removed``: names retired, of skills that are gone. ``retired``: ids of blocks that lost their name.
    """

    added: tuple[str, ...] = ()
    changed: tuple[str, ...] = ()
    unchanged: tuple[str, ...] = ()
    removed: tuple[str, ...] = ()
    broken: tuple[Broken, ...] = ()
    problems: tuple[InvalidManual, ...] = ()
    retired: tuple[str, ...] = ()
    events: tuple[SkillEvent, ...] = field(default=(), repr=False)

    @property
    def found(self) -> int:
        """Manuals found in the folders."""
        return len(self.added) + len(self.changed) + len(self.unchanged) + len(self.broken)
