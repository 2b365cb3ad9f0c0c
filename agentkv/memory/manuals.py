"""The tokens of a stored manual, also where its manifest cannot be read any more: a turn needs them, no state.

They come from the manifest, with those of its parents; else from the manifest as this process last read it; else the
kept text is tokenised again, which gives the very ids, and so the block's own id, unless another version made them.
"""

from __future__ import annotations

from collections.abc import Sequence

from agentkv.engine.prompt import Message, PromptBuilder
from agentkv.errors import StoreError
from agentkv.records import Manifest, NamedBlock
from agentkv.router.routing import Routing

Ids = tuple[int, ...]
_REMEMBERED = 256
_TURN = (Message("user", "?"),)


class Manuals:
    """The manuals of one memory. ``prefix``: the agent's, which comes before each of them."""

    def __init__(self, routing: Routing, prompts: PromptBuilder, prefix: str) -> None:
        self._routing, self._prompts, self._prefix = routing, prompts, prefix
        self._read: dict[str, tuple[Manifest, list[Ids]]] = {}

    def parts(self, name: str, n_prefix: int | None = None) -> tuple[list[Ids], str | None]:
        """Token ids of a manual and of what lies within it, without the agent's prefix; and why not by the manifest.

        ``n_prefix``: with a prefix of so many tokens, for a manual right after it the parents are not looked at.
        Raises UnknownSkill, IncompatibleFingerprint; UnknownBlock or CorruptBlock where no text is kept either.
        """
        named = self._routing.named(name)
        try:
            manifest = self._routing.manifest(name)
            if n_prefix is not None and manifest.n_tokens - len(manifest.tokens) == n_prefix:
                parts = [manifest.tokens]
            else:
                chain = self._routing.blocks.parts_of(manifest)
                parts = chain[1:] or chain
        except StoreError as error:
            return self._without(named, error)
        if len(self._read) >= _REMEMBERED:
            self._read.pop(next(iter(self._read)))
        self._read[named.block_id] = (manifest, parts)
        return parts, None

    def _without(self, named: NamedBlock, error: StoreError) -> tuple[list[Ids], str]:
        note = f"the block of {named.name!r} cannot be used ({error.message}), so its {{}}. Deposit it again."
        known = self._read.get(named.block_id)
        if known is not None:
            return known[1], note.format("tokens are those of a moment ago")
        text = self._text(named)
        if text is None:
            raise error
        own = self._ids(text)
        above = self._above(named, own)
        return [*above, own], note.format("kept text was tokenised again")

    def _text(self, named: NamedBlock) -> str | None:
        try:
            return self._routing.kept_text(named)
        except StoreError:
            return None

    def _ids(self, text: str) -> Ids:
        return self._prompts.build(self._prefix, text, list(_TURN)).manual

    def _above(self, named: NamedBlock, own: Ids) -> list[Ids]:
        """The manual that a reference lies within, if that gives the reference's block id; nothing for any other."""
        blocks, prefix = self._routing.blocks, self._prompts.build(self._prefix, "", list(_TURN)).prefix
        if blocks.ids_of([prefix, own])[-1] == named.block_id:
            return []
        skill = named.name.rpartition("/")[0]
        while skill:
            entry = self._routing.find(skill)
            text = None if entry is None else self._text(entry)
            parts: Sequence[Ids] = [] if text is None else [self._ids(text)]
            if parts and blocks.ids_of([prefix, *parts, own])[-1] == named.block_id:
                return list(parts)
            skill = skill.rpartition("/")[0]
        return []
