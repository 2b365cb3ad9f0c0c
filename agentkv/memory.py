"""``AgentMemory``: the facade. Deposit skills and texts; on each turn route, graft one block, answer.

A turn's prompt is three parts of token ids: agent prefix, manual, turn. The first two are blocks in a chain, so fifty
manuals share one prefix on disk. What is stored of the chain is restored, the rest is read, and the record says
how many tokens went each way, counted at the decode call.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from pydantic import ValidationError

from agentkv.blocks import Blocks, Deposit
from agentkv.engine.base import Cancellation, Engine, Sampling
from agentkv.engine.generate import check_window
from agentkv.engine.prompt import Message, Prompt, PromptBuilder
from agentkv.errors import UsageError
from agentkv.hashing import sha256
from agentkv.records import Decision, NamedBlock, Turn
from agentkv.router.base import NONE, Candidate, Classifier
from agentkv.router.decision import Fallback
from agentkv.router.evaluate import Labelled
from agentkv.router.learn import Learned
from agentkv.router.log import DecisionLog
from agentkv.router.routing import Pick, Progress, Routing, Within
from agentkv.skills.manual import Manual, load_manual
from agentkv.store.catalog import BlockStore
from agentkv.turn import TurnInProgress

__all__ = ["DEFAULT_PREFIX", "AgentMemory", "Pick", "Within"]

DEFAULT_PREFIX = (
    "You are a helpful assistant. Answer the user's question briefly and exactly. "
    "If a manual is given below, answer from it and quote its values.\n\n"
)


class AgentMemory:
    """The memory of one agent: an engine, a store, a router. Use it as a context manager.

    ``store`` is a directory (made if it is not there) or an open :class:`~agentkv.BlockStore`; ``model`` a catalogue
    name, a ``.gguf`` path, ``hf:REPO/FILE`` or an open :class:`~agentkv.Engine`. ``prefix`` is the agent's system
    text, read before every manual. ``fallback`` is what is done with a pick that is no live label; each decision is
    appended to ``decisions``, by default a log in the store's folder. Other keywords go to
    :class:`~agentkv.engine.settings.EngineSettings`.

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
        fallback: Fallback = Fallback.NO_BLOCK,
        decisions: DecisionLog | None = None,
        **settings: Any,
    ) -> None:
        self.store = store if isinstance(store, BlockStore) else BlockStore(store)
        self._owns_engine = isinstance(model, str | Path)
        self.engine = _open_engine(model, settings)
        self.prefix = prefix
        self.blocks = Blocks(self.engine, self.store)
        self._prompts = PromptBuilder(self.engine)
        self.routing = Routing(self.blocks, classifier, fallback, decisions)

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
        behind: str | None = None,
        allow_inexact: bool = False,
        cancellation: Cancellation | None = None,
    ) -> Deposit:
        """Read a SKILL.md folder once and store it, with its card for the router.

        A skill that is stored already, unchanged, costs a hash. A text of the same name is replaced: names are one
        space. ``behind``: the name whose block is the new one's parent, for a reference of that skill; see
        :class:`agentkv.skills.library.SkillLibrary`, which also splits what is too long. Raises InvalidManual,
        WindowOverflow, InexactBlock, UnknownSkill, Cancelled.
        """
        manual = skill if isinstance(skill, Manual) else load_manual(Path(skill))
        entry = _Entry("skill", manual.name, manual.description, str(manual.path), manual.license or "")
        return self._deposit(entry, manual.block_text, allow_inexact, cancellation, behind)

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

    def deposit_source(
        self,
        named: NamedBlock,
        text: str,
        *,
        allow_inexact: bool = False,
        cancellation: Cancellation | None = None,
    ) -> Deposit:
        """Read a text that was deposited elsewhere, for another model, and store it under the same name.

        ``text`` is what the other store's ``text(named.source_sha256)`` gives.
        """
        entry = _Entry(named.kind, named.name, named.description, named.source, named.license)
        return self._deposit(entry, text, allow_inexact, cancellation)

    def _deposit(
        self,
        entry: _Entry,
        text: str,
        allow_inexact: bool,
        cancellation: Cancellation | None,
        behind: str | None = None,
    ) -> Deposit:
        prompt = self._prompts.build(self.prefix, text, [Message("user", "?")])
        above = None if behind is None else self.routing.manifest(behind)
        before = len(prompt.prefix) if above is None else above.n_tokens
        check_window(before + len(prompt.manual), len(prompt.turn), 1, self.engine.window)
        parent_id = self.blocks.id_of(prompt.prefix) if above is None else above.block_id
        named = self._name_record(entry, text, self.blocks.id_of(prompt.manual, parent_id))
        if entry.kind == "text" and self.store.name("skill", entry.name, named.fingerprint_id) is not None:
            raise UsageError(f"{entry.name!r} is the name of a skill. Choose another, or run `agentkv rm` on it first.")
        how: Any = {"allow_inexact": allow_inexact, "cancellation": cancellation}
        with self.engine.lock, self.store.holding():  # a card must not make its own manual go
            parent = self.blocks.deposit(prompt.prefix, **how).manifest if above is None else above
            deposit = self.blocks.deposit(prompt.manual, parent=parent, **how)
            self.routing.deposit_card(entry.name, entry.description, allow_inexact=allow_inexact)
            self.store.set_name(named, text)
            self.store.remove_name("text" if entry.kind == "skill" else "skill", entry.name, named.fingerprint_id)
        return deposit

    def _name_record(self, entry: _Entry, text: str, block_id: str) -> NamedBlock:
        """The name's record, made before anything is read, so that a bad name costs nothing. Raises UsageError."""
        if entry.name.casefold() == NONE:
            raise UsageError(f"{NONE!r} is what the router says when no skill fits; choose another name")
        try:
            return NamedBlock(
                kind=entry.kind,
                name=entry.name,
                fingerprint_id=self.blocks.fingerprint.id,
                block_id=block_id,
                description=entry.description,
                source=entry.source.encode("utf-8", "replace").decode(),
                source_sha256=sha256(text.encode()),
                license=entry.license,
            )
        except ValidationError as error:
            first = error.errors()[0]
            raise UsageError(f"{first['loc'][0]} of {entry.name[:40]!r}: {first['msg']}") from error
        except UnicodeEncodeError as error:
            raise UsageError(f"{entry.name[:40]!r} holds text that is no valid Unicode") from error

    # --- what is there, and what fits -------------------------------------------------------------

    def names(self) -> list[NamedBlock]:
        """The skills and texts stored for this model and these settings, by name."""
        return self.routing.names()

    def candidates(self) -> dict[str, Candidate]:
        """What a question is routed among: the names of this model with a description, by label."""
        return self.routing.candidates()

    def route(self, question: str) -> Decision:
        """Which skill this question needs, or none; the raw pick is on record before anything is made of it."""
        with self.blocks.exclusive():
            return self.routing.route(question)

    def learn(self, questions: Sequence[Labelled], progress: Progress | None = None) -> Learned:
        """Fit the router to labelled questions and keep what it learned beside the store, for this model.

        ``progress`` is passed the questions as they are worked on. Raises UsageError for a classifier that does not
        learn.
        """
        return self.routing.learn(questions, progress)

    def deposit_cards(self) -> int:
        """Store the router's cards that names of this model lack (after an import); how many were read."""
        return self.routing.deposit_cards()

    @property
    def classifier(self) -> Classifier:
        """The router's classifier."""
        return self.routing.classifier

    @property
    def decisions(self) -> DecisionLog:
        """The router's log."""
        return self.routing.log

    # --- a turn -----------------------------------------------------------------------------------

    def ask(
        self,
        question: str | Sequence[Message],
        *,
        skill: str | Pick | Within | None = Pick.ROUTE,
        graft: bool = True,
        max_new: int = 96,
        sampling: Sampling | None = None,
        stop: Sequence[str] = (),
        grammar: str | None = None,
        logprobs: bool = False,
        cancellation: Cancellation | None = None,
    ) -> Turn:
        """Answer one question and return the turn's whole record.

        ``skill``: a stored name, None for no block, by default whatever the router picks, or :class:`Within` a skill
        what it picks there (so too for the name of a skill that was stored in parts). ``graft=False`` reads
        the manual instead of restoring it: the same prompt, the same ids, for comparison. Raises UnknownSkill,
        WindowOverflow (before anything is decoded), CorruptBlock, InvalidGrammar, Cancelled.
        """
        turn = self._turn(question, skill, graft)
        for _ in turn.run(max_new, sampling, stop, grammar, cancellation, logprobs):
            pass
        return turn.record()

    def stream(
        self,
        question: str | Sequence[Message],
        *,
        skill: str | Pick | Within | None = Pick.ROUTE,
        graft: bool = True,
        max_new: int = 96,
        sampling: Sampling | None = None,
        stop: Sequence[str] = (),
        grammar: str | None = None,
        logprobs: bool = False,
        cancellation: Cancellation | None = None,
    ) -> Iterator[str | Turn]:
        """Like :meth:`ask`, as pieces of whole characters while they come; the last item is the record."""
        turn = self._turn(question, skill, graft)
        for piece in turn.run(max_new, sampling, stop, grammar, cancellation, logprobs):
            if piece.text:
                yield piece.text
        yield turn.record()

    def _turn(
        self, question: str | Sequence[Message], skill: str | Pick | Within | None, graft: bool
    ) -> TurnInProgress:
        messages = [Message("user", question)] if isinstance(question, str) else list(question)
        return TurnInProgress(
            self.blocks,
            messages[-1].content if messages else "",
            decide=lambda asked: self.routing.decide(asked, skill),
            build=lambda pick: self.prompt(messages, pick),
            graft=graft,
        )

    def prompt(self, messages: Sequence[Message], name: str | None) -> Prompt:
        """The ids of a turn behind the block ``name``, or behind the agent prefix alone. Raises UnknownSkill."""
        prompt = self._prompts.build(self.prefix, "", messages)
        if name is None:
            return prompt
        manifest = self.routing.manifest(name)
        if manifest.n_tokens - len(manifest.tokens) == len(prompt.prefix):
            return Prompt(prompt.prefix, manifest.tokens, prompt.turn, prompt.stops)
        chain = self.blocks.chain(manifest)
        manual, *references = [link.tokens for link in chain[1:] or chain]
        return Prompt(prompt.prefix, manual, prompt.turn, prompt.stops, reference=sum(references, ()))


@dataclass(frozen=True)
class _Entry:
    kind: Literal["skill", "text"]
    name: str
    description: str
    source: str
    license: str = ""


def _open_engine(model: str | Path | Engine, settings: dict[str, Any]) -> Engine:
    if not isinstance(model, str | Path):
        if settings:
            raise UsageError(f"an open engine has its settings already: {', '.join(sorted(settings))}")
        return model
    from agentkv.engine.llama import LlamaEngine
    from agentkv.engine.settings import EngineSettings

    unknown = sorted(set(settings) - {field.name for field in dataclasses.fields(EngineSettings)})
    if unknown:
        raise UsageError(f"unknown engine setting: {', '.join(unknown)}")
    return LlamaEngine.open(model, EngineSettings(**settings))
