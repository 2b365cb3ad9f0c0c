"""What is on disk."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from agentkv.errors.base import AgentKVError


class StoreError(AgentKVError):
    """Something between a block and its bytes on disk."""


class StoreUnusable(StoreError):
    """The path cannot serve as a store directory."""

    exit_code = 40

    def __init__(self, path: Path, reason: str) -> None:
        super().__init__(f"{path} cannot be used as a store: {reason}")
        self.path, self.reason = path, reason


class StoreFormatError(StoreError):
    """The store was written in a format that this version does not know."""

    exit_code = 41

    def __init__(self, path: Path, found: object, known: list[int]) -> None:
        super().__init__(
            f"{path} has store format {found}, this version reads {known}. Use the agentkv version that wrote it."
        )
        self.path, self.found, self.known = path, found, known


class CorruptBlock(StoreError):
    """Bytes on disk are not those that were committed; found before anything was restored."""

    exit_code = 42

    def __init__(self, what: str, path: Path | None, reason: str) -> None:
        where = f" ({path})" if path else ""
        super().__init__(f"{what} is corrupt{where}: {reason}. It was not used; deposit the text again.")
        self.what, self.path, self.reason = what, path, reason


class MissingSegment(StoreError):
    """A manifest names a segment that is not there."""

    exit_code = 43

    def __init__(self, block_id: str, segment: str, path: Path) -> None:
        super().__init__(f"block {block_id[:12]} lacks its segment {segment[:12]} ({path}). Deposit the text again.")
        self.block_id, self.segment, self.path = block_id, segment, path


class UnknownBlock(StoreError):
    """No block under that id or name."""

    exit_code = 44

    def __init__(self, key: str, hint: str = "") -> None:
        super().__init__(f"no block {key!r} in this store. {hint or 'Run `agentkv list`.'}")
        self.key = key


class StoreFull(StoreError):
    """The file system has no room; what was half-written has been removed."""

    exit_code = 45

    def __init__(self, path: Path, needed: int, free: int | None) -> None:
        have = "" if free is None else f", {free:,} are free"
        super().__init__(
            f"no space to write {needed:,} bytes at {path}{have}. Nothing was stored and nothing was lost; "
            "free some space and repeat the command."
        )
        self.path, self.needed, self.free = path, needed, free


class StoreReadError(StoreError):
    """The operating system refused the read or write (EACCES, EIO, EMFILE…); nothing is known to be corrupt."""

    exit_code = 46

    def __init__(self, path: Path, reason: str) -> None:
        super().__init__(f"cannot access {path}: {reason}. Nothing is known to be corrupt.")
        self.path, self.reason = path, reason


class StoreDamaged(StoreError):
    """A check of a whole store found corruption; ``findings`` lists each."""

    exit_code = 47

    def __init__(self, path: Path, findings: Sequence[str]) -> None:
        more = f", and {len(findings) - 1:,} more" if len(findings) > 1 else ""
        super().__init__(
            f"{path} is corrupt: {findings[0]}{more}. Nothing was changed; `agentkv check --repair` moves what is "
            "corrupt to the quarantine, so that it can be deposited again."
        )
        self.path, self.findings = path, list(findings)


class OverBudget(StoreError):
    """The store's budget cannot hold the block, whatever else is evicted."""

    exit_code = 48

    def __init__(self, needed: int, budget: int, kept: int, evicted: str | None = None) -> None:
        what = f"{needed:,} bytes are needed; the store's budget is {budget:,}, and {kept:,} cannot go"
        end = "Nothing was stored" if evicted is None else f"{evicted!r} was stored and then evicted for later blocks"
        super().__init__(f"{what}. {end}. Raise it with `agentkv gc --set-budget SIZE`, unpin, or `gc --quarantine`.")
        self.needed, self.budget, self.kept, self.evicted = needed, budget, kept, evicted


class CorruptDatabase(StoreError):
    """An adapter's SQLite file in the store, or a row of it, is not what was written; no block depends on it."""

    exit_code = 49

    def __init__(self, path: Path, reason: str, remedy: str) -> None:
        super().__init__(f"{path} is corrupt: {reason}. No block is concerned, and nothing was changed. {remedy}")
        self.path, self.reason, self.remedy = path, reason, remedy


class StillReadable(AgentKVError):
    """After forgetting, words can still be read in some file; ``places`` lists where."""

    exit_code = 94

    def __init__(self, places: Sequence[str]) -> None:
        more = f", and {len(places) - 3:,} more" if len(places) > 3 else ""
        super().__init__(
            f"not everything could be removed. Still readable in: {'; '.join(places[:3])}{more}. "
            "Remove these by hand, or close what uses the store and run the command again."
        )
        self.places = list(places)
