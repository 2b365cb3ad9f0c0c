"""What of a skill is stored, and whether it can be used: blocks with all their files and parents, and the texts kept.

A fault is not a refusal: what is missing or corrupt is mended by a deposit, what the system would not read is
raised, since nothing is known of it. Looking costs an open file a segment, and each file's bytes once a process.

Knows the store and names; neither folders nor models. Not guaranteed: that the decoded bytes of a segment whose file is
whole have their digest; ``agentkv check --deep`` looks at that.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from pathlib import Path

from agentkv.errors import CorruptBlock, MissingSegment, StoreError, UnknownBlock
from agentkv.io.hashing import sha256
from agentkv.records import NamedBlock
from agentkv.skills.manual import Manual
from agentkv.skills.report import SkillEvent
from agentkv.store.budget import Victim
from agentkv.store.catalog import BlockStore

DAMAGE = (CorruptBlock, MissingSegment, UnknownBlock)
"""Faults that depositing the text again mends."""


def fault_of(store: BlockStore, named: NamedBlock) -> StoreError | None:
    """Why what a name points to cannot be used as it was deposited; None if it can. Raises StoreReadError."""
    try:
        parent_id = store.verify(named.block_id, deep=False).parent_id
        while parent_id is not None:
            summary = store.files.summary(parent_id)
            if summary is None:
                raise UnknownBlock(parent_id, f"It is what the block of {named.name!r} follows; deposit it again.")
            parent_id = summary.parent_id
        if named.source_sha256 and store.text(named.source_sha256) is None:
            raise CorruptBlock(f"the text of {named.name!r}", None, "it is missing")
    except DAMAGE as error:
        return error
    return None


def parts_of(skill: str, names: Sequence[str]) -> list[str]:
    """Of a skill that was split, the names of the parts of its manual; none if it is stored as a whole."""
    return [] if skill in names else [name for name in names if name.startswith(f"{skill}/") and name.count("/") == 1]


def is_current(store: BlockStore, manual: Manual, group: Sequence[NamedBlock]) -> bool:
    """Whether the stored texts are the manual's: one, or parts that make it up. References are not looked at.

    A text that is missing or corrupt is not. Raises StoreReadError.
    """
    whole = [named for named in group if named.name == manual.name]
    if whole:
        same_text = whole[0].source_sha256 == sha256(manual.block_text.encode())
        return same_text and whole[0].description == manual.card
    texts = []
    parts = parts_of(manual.name, [named.name for named in group])
    for named in group:
        if named.name not in parts:
            continue
        try:
            text = store.text(named.source_sha256) if named.source_sha256 else None
        except CorruptBlock:
            text = None
        if text is None or not named.description.endswith(manual.card):
            return False
        texts.append(text.removeprefix(f"# Manual: {named.name}\n\n").removesuffix("\n"))
    return sum(map(len, texts)) == len(manual.text) and all(text in manual.text for text in texts)


# --- evictions -------------------------------------------------------------------------------------


class Evictions:
    """What has gone from ``store`` for deposits made through this object of it, since this was made.

    The store's list is read and left as it is; somebody else may clear it.
    """

    def __init__(self, store: BlockStore) -> None:
        self._store, self._seen = store, len(store.evicted)
        self._victims: list[Victim] = []

    @property
    def names(self) -> tuple[str, ...]:
        """The names that went, in order; what had none (cards, prefixes, old versions) is left out."""
        return tuple(name for victim in self._victims for name in victim.names)

    def bytes_of(self, names: Collection[str]) -> int:
        """What the blocks of these names freed as they went."""
        return sum(victim.bytes for victim in self._victims if not set(names).isdisjoint(victim.names))

    def look(self, sources: Mapping[str, Path]) -> list[SkillEvent]:
        """One event for each name that went since the last look. ``sources``: the folders of known names."""
        there = self._store.evicted
        new = there[self._seen if self._seen <= len(there) else 0 :]
        self._seen = len(there)
        self._victims += new
        return [
            SkillEvent("evicted", name, sources.get(name), reason="to keep to the store's budget")
            for victim in new
            for name in victim.names
        ]
