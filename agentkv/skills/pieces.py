"""From a manual to the blocks that it becomes: itself, or routed parts, and its references.

Tokens are counted here as the memory will count them, and ids are known before anything is read, so "is it stored?"
costs a hash. Knows engines and prompts; neither stores nor reads anything with a model.

**When a manual is split**: if with the agent prefix it leaves less than half of the window for what else a turn holds
(a system text, tools, the conversation, the answer), or, where ``max_tokens`` is given, if it is over that or leaves
less than a reserve for question and answer (``RESERVE``, or an eighth of a small window). Parts are called
``skill/heading``, and ``skill/heading-2`` where that is taken. A part's name, and so its block, does not change with
the parts before it.

**References** (``references/….md``) are blocks whose parent is the manual's, called ``skill/references/file.md``. They
have no description, so no question is routed to them from outside of the skill. A reference that does not fit after
its manual, or whose manual was split, follows the agent prefix; one that is too long for that is split like a manual.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from agentkv.blocks.blocks import Blocks
from agentkv.engine.prompt import Message, PromptBuilder
from agentkv.errors import InvalidManual, UsageError
from agentkv.io.hashing import sha256
from agentkv.skills.discovery import is_reference
from agentkv.skills.manual import MAX_FILE_BYTES, Manual, decode_text
from agentkv.skills.split import split, titles

RESERVE = 512
_MAX_SLUG, _NAME_TOKENS = 40, 48
_MAX_CARD = 400


@dataclass(frozen=True)
class SkillBlock:
    """One block of a skill. ``manual``: as the memory deposits it; ``parent``: the name of the block that it follows.

    ``n_tokens``: its own, in tokens, without the prefix or manual before it; ``n_whole``: with them.
    """

    manual: Manual
    parent: str | None
    n_tokens: int
    n_whole: int
    block_id: str
    source_sha256: str


class Cutter:
    """Cuts manuals for one engine, prefix and budget. ``max_tokens``: of one block, the prefix not counted."""

    def __init__(self, blocks: Blocks, prefix: str, *, max_tokens: int | None = None) -> None:
        if max_tokens is not None and max_tokens < 1:
            raise UsageError(f"a budget of {max_tokens} tokens holds nothing")
        self._blocks, self._prefix = blocks, prefix
        self._prompts = PromptBuilder(blocks.engine)
        self._max_tokens = max_tokens
        self._prefix_ids = self._prompts.build(prefix, "", [Message("user", "?")]).prefix
        self._prefix_id = blocks.id_of(self._prefix_ids)
        window, n_prefix = blocks.engine.window, len(self._prefix_ids)
        most = window - min(RESERVE, window // 8) - n_prefix
        self._room = most if max_tokens else min(most, max(window // 2 - n_prefix, (window - n_prefix) // 4))

    def cut(self, manual: Manual, references: Sequence[tuple[str, str]] = ()) -> list[SkillBlock]:
        """The blocks of a skill, each after its parent.

        ``references``: path and text of each, the path relative to the skill. Raises UsageError if the budget cannot
        hold anything.
        """
        budget = min(self._room, self._max_tokens or self._room)
        pieces = [self._block(part, None) for part in self._parts(manual, budget)]
        whole = pieces[0] if len(pieces) == 1 else None
        for path, text in references:
            reference = replace(manual, name=f"{manual.name}/{path}", description="", text=text.strip("\n"))
            length = self._count(reference)
            if whole is not None and length <= budget and length <= self._room - whole.n_tokens:
                pieces.append(self._block(reference, whole))
            else:
                pieces += [self._block(part, None) for part in self._parts(reference, budget)]
        return pieces

    def _parts(self, manual: Manual, budget: int) -> list[Manual]:
        """The manual itself if it fits, else its parts, each of which does, by the tokens of what is deposited."""
        if self._count(manual) <= budget:
            return [manual]
        for spared in (1, 2, 4):
            room = budget - spared * _NAME_TOKENS
            bare = replace(manual, name=f"{manual.name}/")
            texts = split(manual.text, lambda text: self._count(replace(bare, text=text)) <= room)  # noqa: B023
            parts = list(_named(manual, texts))
            if all(self._count(part) <= budget for part in parts):
                return parts
        raise UsageError(f"{manual.name!r} cannot be split into parts of {budget} tokens; allow more")

    def _count(self, manual: Manual) -> int:
        return len(self._ids(manual))

    def _ids(self, manual: Manual) -> tuple[int, ...]:
        return self._prompts.build("", manual.block_text, [Message("user", "?")]).manual

    def _block(self, manual: Manual, parent: SkillBlock | None) -> SkillBlock:
        ids = self._ids(manual)
        return SkillBlock(
            manual=manual,
            parent=None if parent is None else parent.manual.name,
            n_tokens=len(ids),
            n_whole=len(ids) + (len(self._prefix_ids) if parent is None else parent.n_whole),
            block_id=self._blocks.id_of(ids, self._prefix_id if parent is None else parent.block_id),
            source_sha256=sha256(manual.block_text.encode()),
        )


def owner(name: str) -> str:
    """The skill that a block's name belongs to."""
    return name.split("/", 1)[0]


def read_references(manual: Manual) -> tuple[list[tuple[str, str]], list[InvalidManual]]:
    """Path and text of each reference of a skill, and those that are not text."""
    texts, broken = [], []
    for path in filter(is_reference, manual.resources):
        try:
            texts.append((path, _read(manual.path / path)))
        except InvalidManual as error:
            broken.append(error)
    return texts, broken


def _read(file: Path) -> str:
    try:
        if file.stat().st_size > MAX_FILE_BYTES:
            raise InvalidManual(file, f"larger than {MAX_FILE_BYTES:,} bytes")
        return decode_text(file, file.read_bytes())
    except OSError as error:
        raise InvalidManual(file, error.strerror or str(error)) from error


def _named(manual: Manual, texts: Sequence[str]) -> Iterator[Manual]:
    taken: set[str] = set()
    for text, headings in zip(texts, titles(manual.text, texts), strict=True):
        own = next((title for title in headings if title in text), headings[-1])
        slug = _slug(own) or "part"
        number, name = 1, slug
        while name in taken:
            number += 1
            name = f"{slug}-{number}"
        taken.add(name)
        about = "; ".join(headings)[:_MAX_CARD]
        description = f"{about}. {manual.description}" if manual.description else ""
        yield replace(manual, name=f"{manual.name}/{name}", description=description, text=text)


def _slug(title: str) -> str:
    plain = unicodedata.normalize("NFKD", title).encode("ascii", "ignore").decode().casefold()
    return "-".join(re.findall(r"[a-z0-9]+", plain))[:_MAX_SLUG].strip("-")
