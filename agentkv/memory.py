"""``AgentMemory``: the facade. Deposit skills and texts; on each turn route, graft one block, answer.

A turn's prompt is three parts of token ids: agent prefix, manual, turn. The first two are blocks in a chain, so fifty
manuals share one prefix on disk. What is stored of the chain is restored, the rest is read, and the record says
how many tokens went each way, counted at the decode call.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import Any, Literal

from agentkv.blocks import Blocks, Deposit
from agentkv.engine.base import Cancellation, Engine, Sampling
from agentkv.engine.generate import check_window
from agentkv.engine.prompt import Message, Prompt, PromptBuilder
from agentkv.errors import UnknownBlock, UnknownSkill, UsageError
from agentkv.hashing import sha256
from agentkv.records import Decision, NamedBlock, Turn
from agentkv.router.base import Candidate, Classifier
from agentkv.router.classifier import ChannelClassifier
from agentkv.router.decision import decide, given
from agentkv.skills.manual import Manual, load_manual
from agentkv.store.catalog import BlockStore
from agentkv.turn import TurnInProgress

DEFAULT_PREFIX = (
    "You are a helpful assistant. Answer the user's question briefly and exactly. "
    "If a manual is given below, answer from it and quote its values.\n\n"
)


class Pick(Enum):
    """Values of ``skill`` that are no name."""

    ROUTE = "route"
    """Ask the router."""


class AgentMemory:
    """The memory of one agent: an engine, a store, a router. Use it as a context manager.

    ``store`` is a directory (made if it is not there) or an open :class:`~agentkv.BlockStore`; ``model`` a catalogue
    name, a ``.gguf`` path, ``hf:REPO/FILE`` or an open :class:`~agentkv.Engine`. ``prefix`` is the agent's system
    text, read before every manual. Other keywords go to :class:`~agentkv.engine.settings.EngineSettings`.

    >>> from agentkv import AgentMemory, FakeEngine
    >>> import tempfile
    >>> engine = FakeEngine(replies=lambda prompt: "7 days" if "returns" in prompt else "no idea")
    >>> with AgentMemory(tempfile.mkdtemp(), engine) as memory:
    ...     _ = memory.deposit_text("returns", "returns are accepted for 7 days")
    ...     turn = memory.ask("How long?", skill="returns")
    >>> turn.text, turn.tokens.restored > 0
    ('7 days', True)
    """

    def __init__(
        self,
        store: str | Path | BlockStore,
        model: str | Path | Engine = "smollm2-135m",
        *,
        prefix: str = DEFAULT_PREFIX,
        classifier: Classifier | None = None,
        **settings: Any,
    ) -> None:
        self.store = store if isinstance(store, BlockStore) else BlockStore(store)
        self._owns_engine = isinstance(model, str | Path)
        self.engine = _open_engine(model, settings)
        self.prefix = prefix
        self.blocks = Blocks(self.engine, self.store)
        self._prompts = PromptBuilder(self.engine)
        self._texts: dict[str, str] = {}
        self.classifier: Classifier = classifier or ChannelClassifier(self.blocks)

    def __enter__(self) -> AgentMemory:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the engine if this memory opened it."""
        if self._owns_engine:
            self.engine.close()

    # --- deposit ----------------------------------------------------------------------------------

    def deposit_skill(
        self,
        skill: str | Path | Manual,
        *,
        allow_inexact: bool = False,
        cancellation: Cancellation | None = None,
    ) -> Deposit:
        """Read a SKILL.md folder once and store it, with its card for the router.

        A skill that is stored already, unchanged, costs a hash. A text of the same name is replaced: names are one
        space. Raises InvalidManual, WindowOverflow, InexactBlock, Cancelled.
        """
        manual = skill if isinstance(skill, Manual) else load_manual(Path(skill))
        entry = _Entry("skill", manual.name, manual.description, str(manual.path))
        return self._deposit(entry, f"# Manual: {manual.name}\n\n{manual.text}\n", allow_inexact, cancellation)

    def deposit_text(
        self,
        name: str,
        text: str,
        description: str = "",
        *,
        source: str = "",
        allow_inexact: bool = False,
        cancellation: Cancellation | None = None,
    ) -> Deposit:
        """Read a plain text once and store it under ``name``; with a ``description`` it is routed like a skill."""
        if not name.strip() or not text.strip():
            raise UsageError("a text block takes a name and a text that are not empty")
        entry = _Entry("text", name.strip(), description, source)
        return self._deposit(entry, text.strip("\n") + "\n", allow_inexact, cancellation)

    def _deposit(self, entry: _Entry, text: str, allow_inexact: bool, cancellation: Cancellation | None) -> Deposit:
        prompt = self._prompts.build(self.prefix, text, [Message("user", "?")])
        check_window(len(prompt.prefix) + len(prompt.manual), len(prompt.turn), 1, self.engine.window)
        how: Any = {"allow_inexact": allow_inexact, "cancellation": cancellation}
        with self.engine.lock:
            parent = self.blocks.deposit(prompt.prefix, **how)
            deposit = self.blocks.deposit(prompt.manual, parent=parent.manifest, **how)
            if entry.description and isinstance(self.classifier, ChannelClassifier):
                self.classifier.deposit_card("", "")
                self.classifier.deposit_card(entry.name, entry.description)
        fingerprint_id = self.blocks.fingerprint.id
        self.store.set_name(
            NamedBlock(
                kind=entry.kind,
                name=entry.name,
                fingerprint_id=fingerprint_id,
                block_id=deposit.manifest.block_id,
                description=entry.description,
                source=entry.source,
                source_sha256=sha256(text.encode()),
            )
        )
        self.store.remove_name("text" if entry.kind == "skill" else "skill", entry.name, fingerprint_id)
        return deposit

    # --- what is there ----------------------------------------------------------------------------

    def names(self) -> list[NamedBlock]:
        """The skills and texts stored for this model and these settings, by name."""
        return [n for n in self.store.names(fingerprint_id=self.blocks.fingerprint.id) if n.kind in ("skill", "text")]

    def _named(self, name: str) -> NamedBlock:
        stored = {entry.name: entry for entry in self.names()}
        if name not in stored:
            raise UnknownSkill(name, difflib.get_close_matches(name, stored, n=3, cutoff=0.5))
        return stored[name]

    # --- a turn -----------------------------------------------------------------------------------

    def route(self, question: str) -> Decision:
        """Which skill this question needs, or none; the raw pick is on record before anything is made of it."""
        with self.blocks.exclusive():
            return self._route(question)

    def _route(self, question: str) -> Decision:
        return decide(self.classifier, question, self._candidates())

    def _candidates(self) -> dict[str, Candidate]:
        """The live labels: what has a description and a block, with the text that the block was made from."""
        live: dict[str, Candidate] = {}
        for entry in self.names():
            manifest = self.store.manifest(entry.block_id) if entry.description else None
            if manifest is None:
                continue
            text = self._texts.get(entry.block_id)
            if text is None:
                text = b"".join(map(self.engine.token_bytes, manifest.tokens)).decode("utf-8", "replace")
                self._texts[entry.block_id] = text
            live[entry.name] = Candidate(entry.description, text)
        return live

    def ask(
        self,
        question: str | Sequence[Message],
        *,
        skill: str | Pick | None = Pick.ROUTE,
        graft: bool = True,
        max_new: int = 96,
        sampling: Sampling | None = None,
        stop: Sequence[str] = (),
        grammar: str | None = None,
        cancellation: Cancellation | None = None,
    ) -> Turn:
        """Answer one question and return the turn's whole record.

        ``skill``: a stored name, None for no block, or by default whatever the router picks. ``graft=False`` reads
        the manual instead of restoring it: the same prompt, the same ids, for comparison. Raises UnknownSkill,
        WindowOverflow (before anything is decoded), CorruptBlock, InvalidGrammar, Cancelled.
        """
        turn = self._turn(question, skill, graft)
        for _ in turn.run(max_new, sampling, stop, grammar, cancellation):
            pass
        return turn.record()

    def stream(
        self,
        question: str | Sequence[Message],
        *,
        skill: str | Pick | None = Pick.ROUTE,
        graft: bool = True,
        max_new: int = 96,
        sampling: Sampling | None = None,
        stop: Sequence[str] = (),
        grammar: str | None = None,
        cancellation: Cancellation | None = None,
    ) -> Iterator[str | Turn]:
        """Like :meth:`ask`, as pieces of whole characters while they come; the last item is the record."""
        turn = self._turn(question, skill, graft)
        for piece in turn.run(max_new, sampling, stop, grammar, cancellation):
            if piece.text:
                yield piece.text
        yield turn.record()

    def _turn(self, question: str | Sequence[Message], skill: str | Pick | None, graft: bool) -> TurnInProgress:
        messages = [Message("user", question)] if isinstance(question, str) else list(question)
        return TurnInProgress(
            self.blocks,
            messages[-1].content if messages else "",
            decide=self._route if isinstance(skill, Pick) else lambda _: given(skill),
            build=lambda pick: self.prompt(messages, pick),
            graft=graft,
        )

    def prompt(self, messages: Sequence[Message], name: str | None) -> Prompt:
        """The ids of a turn behind the block ``name``, or behind the agent prefix alone. Raises UnknownSkill."""
        prompt = self._prompts.build(self.prefix, "", messages)
        if name is None:
            return prompt
        entry = self._named(name)
        manifest = self.store.manifest(entry.block_id)
        if manifest is None:
            raise UnknownBlock(entry.block_id, f"It is what {name!r} points to; deposit it again.")
        return Prompt(prompt.prefix, manifest.tokens, prompt.turn, prompt.stops)


@dataclass(frozen=True)
class _Entry:
    kind: Literal["skill", "text"]
    name: str
    description: str
    source: str


def _open_engine(model: str | Path | Engine, settings: dict[str, Any]) -> Engine:
    if not isinstance(model, str | Path):
        if settings:
            raise UsageError(f"an open engine has its settings already: {', '.join(sorted(settings))}")
        return model
    from agentkv.engine.llama import LlamaEngine
    from agentkv.engine.settings import EngineSettings

    try:
        return LlamaEngine.open(model, EngineSettings(**settings))
    except TypeError as error:
        raise UsageError(f"unknown engine setting: {error}") from error
