"""``AgentMemory``: the facade. Deposit skills and texts; on each turn route, graft one block, answer.

A turn's prompt is three parts of token ids: agent prefix, manual, turn. The first two are blocks in a chain, so fifty
manuals share one prefix on disk. What is stored of the chain is restored, the rest is prefilled, and the record says
how many tokens went each way, counted at the decode call.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from pathlib import Path
from typing import Any, Literal, Unpack

from pydantic import ValidationError

from agentkv.blocks.blocks import Blocks, Deposit
from agentkv.blocks.checkpoints import Checkpoints, Division, begins_with_opening, divide
from agentkv.engine.base import Cancellation, Engine
from agentkv.engine.embed import Embedder, open_embedder
from agentkv.engine.generate import check_window
from agentkv.engine.opening import choose, open_engine
from agentkv.engine.prompt import Message, Prompt, PromptBuilder, Schema
from agentkv.engine.settings import EngineSettings
from agentkv.engine.template import CallForm
from agentkv.errors import UsageError
from agentkv.io.forks import Shared
from agentkv.io.hashing import sha256
from agentkv.memory import again, threads
from agentkv.memory.again import Again
from agentkv.memory.fitting import Fitting
from agentkv.memory.manuals import Manuals
from agentkv.memory.options import TurnOptions, TurnSettings, WhenFull
from agentkv.memory.threads import Thread
from agentkv.memory.turn import TurnInProgress
from agentkv.notices import warn
from agentkv.records import Decision, NamedBlock, SelfTest, Turn
from agentkv.router.base import NONE, Candidate, Classifier
from agentkv.router.decision import Fallback
from agentkv.router.evaluate import Labelled
from agentkv.router.learn import Learned
from agentkv.router.log import DecisionLog
from agentkv.router.routing import Progress, Routing
from agentkv.router.weights import LOSE
from agentkv.skills.manual import Manual, load_manual
from agentkv.store.catalog import BlockStore
from agentkv.tracing import Telemetry, open_tracing, routed

DEFAULT_PREFIX = (
    "You are a helpful assistant. Answer the user's question briefly and exactly. "
    "If a manual is given below, answer from it and quote its values.\n\n"
)


_ROUTER_WINDOW = 2048


class AgentMemory(Shared):
    """The memory of one agent: an engine, a store, a router. Use it as a context manager.

    ``store`` is a directory (made if it is not there) or an open :class:`~agentkv.BlockStore`; ``model`` a catalogue
    name, a ``.gguf`` path, ``hf:REPO/FILE`` or an open :class:`~agentkv.engine.base.Engine`; None for
    ``AGENTKV_MODEL``, else the store's (``agentkv settings``), else qwen2.5-coder-0.5b. ``prefix`` is the agent's
    system text, prefilled before every manual. ``fallback`` is what is done with a pick that is not a live label; each
    decision is appended to ``decisions``, by default a log in the store's folder. ``one_pass``: conversations are cut
    so that, on a CPU, prefilling them turn by turn gives the bits of prefilling them at once, for up to 11 tokens more
    a turn; see :func:`agentkv.blocks.checkpoints.divide`. ``telemetry``: True for spans of OpenTelemetry, ``"content"``
    for spans with questions and answers, None to go by ``AGENTKV_OTEL``; see :mod:`agentkv.tracing`. ``strict``: fail
    with SkillsLeftOut, instead of a warning, where routing would leave out what another engine has deposited. Other
    keywords are those of :class:`~agentkv.engine.settings.EngineSettings`; what is not given is as the environment says
    (``AGENTKV_KV_TYPE`` and so on), else the store.

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
        model: str | Path | Engine | None = None,
        *,
        prefix: str = DEFAULT_PREFIX,
        classifier: Classifier | None = None,
        fallback: Fallback = Fallback.NO_BLOCK,
        decisions: DecisionLog | None = None,
        embedder: str | Path | Embedder | None = None,
        router_model: str | Path | Engine | None = None,
        one_pass: bool = False,
        telemetry: Telemetry = None,
        strict: bool = False,
        **settings: Any,
    ) -> None:
        tracing = open_tracing(telemetry)
        self.store = store if isinstance(store, BlockStore) else BlockStore(store)
        self.engine = _open_engine(model, settings, self.store)
        self.prefix = prefix
        self.blocks = Blocks(self.engine, self.store, tracing)
        self.checkpoints = Checkpoints(self.blocks)
        self._alignment = self.engine.alignment if one_pass else 1
        self._prompts = PromptBuilder(self.engine)
        is_ours = model is None or isinstance(model, str | Path)
        router = None if router_model is None else _open_router(router_model, self.engine if is_ours else None)
        self.embedder = meaning = open_embedder(embedder)
        self._opened: list[Any] = [
            opened
            for given, opened in ((model or "", self.engine), (router_model, router), (embedder, meaning))
            if isinstance(given, str | Path)
        ]
        router_blocks = None if router is None else Blocks(router, self.store, tracing)
        self.routing = Routing(self.blocks, classifier, fallback, decisions, meaning, router_blocks)
        self._manuals = Manuals(self.routing, self._prompts, prefix)
        self.strict = strict

    @property
    def strict(self) -> bool:
        """Whether routing fails where it would leave out what another engine has deposited."""
        return self.routing.strict

    @strict.setter
    def strict(self, strict: bool) -> None:
        self.routing.strict = strict

    def __enter__(self) -> AgentMemory:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the engine, the router's and the embedder if this memory opened them."""
        for opened in self._opened:
            opened.close()

    # --- deposit ----------------------------------------------------------------------------------

    def deposit_skill(
        self,
        skill: str | Path | Manual,
        *,
        parent: str | None = None,
        allow_inexact: bool = False,
        cancellation: Cancellation | None = None,
    ) -> Deposit:
        """Prefill a SKILL.md folder once and store its state, with its card for the router.

        A skill that is stored already, unchanged, costs a hash. A text of the same name is replaced: names are one
        space. ``parent``: the name whose block the new one follows, for a reference of that skill; see
        :class:`agentkv.skills.library.SkillLibrary`, which also splits what is too long. Raises InvalidManual,
        WindowOverflow, InexactBlock, UnknownSkill, Cancelled.
        """
        manual = skill if isinstance(skill, Manual) else load_manual(Path(skill))
        if manual is not skill and manual.notes:
            warn(manual.warning)
        entry = _Entry("skill", manual.name, manual.card, str(manual.path), manual.license or "")
        return self._deposit(entry, manual.block_text, allow_inexact, cancellation, parent)

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
        """Prefill a plain text once and store its state under ``name``; with a ``description`` it is routed like a
        skill.
        """
        if not name.strip() or not text.strip():
            raise UsageError("a text block takes a name and a text that are not empty")
        entry = _Entry("text", name.strip(), description, source)
        return self._deposit(entry, text.strip("\n") + "\n", allow_inexact, cancellation)

    def deposit_source(
        self,
        named: NamedBlock,
        text: str,
        *,
        parent: str | None = None,
        allow_inexact: bool = False,
        cancellation: Cancellation | None = None,
    ) -> Deposit:
        """Prefill a text that was deposited elsewhere, for another model, and store its state under the same name.

        ``text`` is what the other store's ``text(named.source_sha256)`` gives; ``parent`` as for a skill.
        """
        entry = _Entry(named.kind, named.name, named.description, named.source, named.license)
        return self._deposit(entry, text, allow_inexact, cancellation, parent)

    def deposit_again(
        self,
        *,
        allow_inexact: bool = False,
        on_work: Callable[[NamedBlock], None] = lambda _: None,
        cancellation: Cancellation | None = None,
    ) -> Again:
        """Deposit for this engine what only others have, from the texts in the store; see :mod:`agentkv.memory.again`.

        ``on_work`` is called before each. Raises Cancelled, OverBudget; what was deposited by then stays.
        """
        return again.deposit_again(
            self.blocks, self.deposit_source, allow_inexact=allow_inexact, on_work=on_work, cancellation=cancellation
        )

    def _deposit(
        self,
        entry: _Entry,
        text: str,
        allow_inexact: bool,
        cancellation: Cancellation | None,
        parent: str | None = None,
    ) -> Deposit:
        prompt = self._prompts.build(self.prefix, text, [Message("user", "?")])
        above = None if parent is None else self.routing.manifest(parent)
        before = len(prompt.prefix) if above is None else above.n_tokens
        check_window(before + len(prompt.manual), len(prompt.turn), 1, self.engine.window)
        parent_id = self.blocks.id_of(prompt.prefix) if above is None else above.block_id
        named = self._name_record(entry, text, self.blocks.id_of(prompt.manual, parent_id))
        if entry.kind == "text" and self.store.name("skill", entry.name, named.fingerprint_id) is not None:
            raise UsageError(f"{entry.name!r} is the name of a skill. Choose another, or run `agentkv rm` on it first.")
        deposit_tokens = partial(self.blocks.deposit, allow_inexact=allow_inexact, cancellation=cancellation)
        with self.engine.lock, self.store.holding():  # a card must not make its own manual go
            above = deposit_tokens(prompt.prefix).manifest if above is None else above
            deposit = deposit_tokens(prompt.manual, parent=above)
            self.routing.deposit_card(entry.name, entry.description, allow_inexact=allow_inexact)
            self.store.set_name(named, text)
            self.routing.remember(named, text)
            self.store.set_model_name(self.engine.info.sha256, self.engine.info.name)
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
            raise UsageError(f"{entry.name[:40]!r} holds text that is not valid Unicode") from error

    # --- what is there, and what fits -------------------------------------------------------------

    def names(self) -> list[NamedBlock]:
        """The skills and texts stored for this model and these settings, by name."""
        return self.routing.names()

    def candidates(self) -> dict[str, Candidate]:
        """What a question is routed among: the names of this model with a description, by label."""
        for text in self.routing.notices:
            warn(text)
        return self.routing.candidates()

    def route(self, question: str) -> Decision:
        """Which skill this question needs, or none; the raw pick is on record before anything is made of it.

        Warns of what another engine has deposited, and is left out for that. Raises SkillsLeftOut if ``strict``.
        """
        with self.blocks.exclusive(), self.blocks.tracing.span("agentkv.route") as span:
            decision = self.routing.route(question)
            if span.on:
                span.set(routed(decision))
        for text in decision.notes:
            warn(text)
        return decision

    def learn(self, questions: Sequence[Labelled], progress: Progress | None = None, *, lose: float = LOSE) -> Learned:
        """Fit the router to labelled questions and keep what it learned beside the store, for this model.

        ``progress`` is passed the questions as they are worked on. ``lose``, 0 to 1: the share of them that may lose
        their skill so that others, which none fits, get none. Raises UsageError for a classifier that does not learn.
        """
        return self.routing.learn(questions, progress, lose=lose)

    def deposit_cards(self) -> int:
        """Store the router's cards that names of this model lack (after an import); how many were read."""
        return self.routing.deposit_cards()

    @property
    def call_form(self) -> CallForm:
        """How this model writes a call of a tool."""
        return self._prompts.calls

    @property
    def classifier(self) -> Classifier:
        """The router's classifier."""
        return self.routing.classifier

    @property
    def decisions(self) -> DecisionLog:
        """The router's log."""
        return self.routing.log

    # --- a turn -----------------------------------------------------------------------------------

    def ask(self, question: str | Sequence[Message], **options: Unpack[TurnOptions]) -> Turn:
        """Answer one question and return the turn's record; the options are those of :class:`~agentkv.TurnOptions`.

        ``question`` may be a whole conversation, the question last; what an earlier turn of it has kept is restored.
        A manual that leaves no room for the question alone gives way to a smaller part of the same skill, or, if it
        was only routed to, to none; ``Turn.notes`` says so. Raises UnknownSkill, WindowOverflow (before anything is
        decoded), CorruptBlock, InvalidGrammar, UsageError, Cancelled; TypeError for an option that does not exist.
        """
        turn = self._turn(question, TurnSettings(**options))
        for _ in turn.run():
            pass
        return turn.record()

    def stream(self, question: str | Sequence[Message], **options: Unpack[TurnOptions]) -> Iterator[str | Turn]:
        """Like :meth:`ask`, as pieces of text while they come; the last item is the record."""
        turn = self._turn(question, TurnSettings(**options))
        for piece in turn.run():
            if piece.text:
                yield piece.text
        yield turn.record()

    # --- threads ----------------------------------------------------------------------------------

    def thread(self, thread_id: str, *, entry: int | None = None, when_full: WhenFull = "refuse") -> Thread:
        """The conversation of that name as it is in the store, or a new one, which is stored with its first turn.

        ``entry``: as it was at that entry of its log. ``when_full``: what is done with a turn that no longer fits into
        the context window after everything said before: ``refuse`` it (WindowOverflow), ``keep-last``, which shows the
        model the last turns only, or ``summarise``, which lets it summarise the oldest. ``Turn.notes`` says what was
        left out; the log keeps it. Raises CorruptThread.
        """
        return Thread(self, thread_id, entry, when_full)

    def threads(self) -> list[str]:
        """The names of the stored conversations, sorted."""
        return threads.names(self.store)

    def remove_thread(self, thread_id: str) -> int:
        """Delete a conversation with the states that only it uses; how many blocks went. Raises UnknownThread."""
        return threads.remove(self.store, thread_id)

    # --- how a turn is put together ---------------------------------------------------------------

    def _turn(self, question: str | Sequence[Message], options: TurnSettings) -> TurnInProgress:
        if options.when_full == "summarise":
            raise UsageError("only a thread summarises what does not fit; here when_full is refuse or keep-last")
        messages = [Message("user", question)] if isinstance(question, str) else list(question)

        def build(pick: str | None) -> tuple[Division, tuple[str, ...]]:
            prompt_of = partial(self._prompt, system=options.system, tools=options.tools)
            fitting = Fitting(prompt_of, self.routing, self.engine.window, options.max_new)
            trims = options.when_full == "keep-last"
            fitted = fitting.fit(messages, turn.decision, trims=trims, drops=options.routes)
            if fitted.pick != pick:
                turn.fall_back(fitted.pick, fitted.notes[0])
            for note in fitted.notes:
                turn.note(note)
            return self._divided(fitted.prompt, fitted.messages)

        turn = TurnInProgress(
            self.blocks,
            messages,
            options,
            decide=lambda asked: options.decision or self.routing.decide(asked, options.skill, options.within),
            build=build,
            checkpoints=self.checkpoints if options.keep else None,
        )
        return turn

    def _divided(self, prompt: Prompt, messages: Sequence[Message]) -> tuple[Division, tuple[str, ...]]:
        roles = [message.role for message in messages]
        return divide(prompt, roles, opens=self._opens, alignment=self._alignment), prompt.stops

    @cached_property
    def _opens(self) -> bool:
        """Whether this model's answers are prefilled again after what asked for them."""
        messages = [Message("user", "a"), Message("assistant", "b"), Message("user", "c")]
        return begins_with_opening(self._prompts.build("", "", messages))

    def self_test(self, cancellation: Cancellation | None = None) -> SelfTest:
        """Prove that this model and these settings are exact, once for each store; what ``keep`` rests on.

        The first turn that keeps something does it otherwise, after its answer: about 200 decoding steps. Raises
        InexactBlock, Cancelled.
        """
        with self.blocks.exclusive():
            return self.checkpoints.self_test(cancellation)

    def prompt(
        self, messages: Sequence[Message], name: str | None, *, system: str = "", tools: Sequence[Schema] = ()
    ) -> Prompt:
        """The token ids of a turn after the block ``name``, or after the agent prefix alone. Raises UnknownSkill."""
        return self._prompt(messages, name, system, tools)[0]

    def _prompt(
        self, messages: Sequence[Message], name: str | None, system: str, tools: Sequence[Schema]
    ) -> tuple[Prompt, str | None]:
        """The same, and what there is to tell where the block could not be used for its ids."""
        prompt = self._prompts.build(self.prefix + system, "", messages, tools=tools)
        if name is None:
            return prompt, None
        parts, note = self._manuals.parts(name, None if system or tools else len(prompt.prefix))
        return dataclasses.replace(prompt, manual=parts[0], reference=sum(parts[1:], ())), note


@dataclass(frozen=True)
class _Entry:
    kind: Literal["skill", "text"]
    name: str
    description: str
    source: str
    license: str = ""


def _open_router(model: str | Path | Engine, main: Engine | None) -> Engine:
    """A router's engine. It takes over threads and layers, not the window, whose state it would hold in vain."""
    if not isinstance(model, str | Path):
        return model
    own: Any = getattr(main, "settings", None)
    alike = {} if own is None else {"threads": own.threads, "gpu_layers": own.gpu_layers}
    return open_engine(model, EngineSettings(window=_ROUTER_WINDOW, **alike))


def _open_engine(model: str | Path | Engine | None, settings: dict[str, Any], store: BlockStore) -> Engine:
    if model is None or isinstance(model, str | Path):
        return open_engine(*choose({"model": model, **settings}, store.engine_choice))
    if settings:
        raise UsageError(f"an open engine has its settings already: {', '.join(sorted(settings))}")
    return model
