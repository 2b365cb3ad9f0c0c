"""``AgentMemory``: the facade. Deposit skills and texts; on each turn route, graft one block, answer.

A turn's prompt is three parts of token ids: agent prefix, manual, turn. The first two are blocks in a chain, so fifty
manuals share one prefix on disk. What is stored of the chain is restored, the rest is read, and the record says
how many tokens went each way, counted at the decode call.
"""

from __future__ import annotations

import dataclasses
import difflib
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import Any, Literal

from pydantic import ValidationError

from agentkv.blocks import Blocks, Deposit
from agentkv.engine.base import Cancellation, Engine, Sampling
from agentkv.engine.generate import check_window
from agentkv.engine.prompt import Message, Prompt, PromptBuilder
from agentkv.errors import IncompatibleFingerprint, StoreError, UnknownBlock, UnknownSkill, UsageError
from agentkv.hashing import sha256
from agentkv.records import Decision, Manifest, NamedBlock, Turn
from agentkv.router.base import NONE, Candidate, Classifier
from agentkv.router.classifier import ChannelClassifier
from agentkv.router.decision import Fallback, decide, given
from agentkv.router.evaluate import Labelled
from agentkv.router.learn import Learned, learn, load, save
from agentkv.router.log import DecisionLog
from agentkv.skills.manual import Manual, load_manual
from agentkv.skills.split import summary
from agentkv.store.catalog import BlockStore
from agentkv.store.files import DECISIONS, ROUTER
from agentkv.turn import TurnInProgress

DEFAULT_PREFIX = (
    "You are a helpful assistant. Answer the user's question briefly and exactly. "
    "If a manual is given below, answer from it and quote its values.\n\n"
)


class Pick(Enum):
    """Values of ``skill`` that are no name."""

    ROUTE = "route"
    """Ask the router."""


@dataclass(frozen=True)
class Within:
    """For ``skill``: ask the router, but only among what lies within this skill, its parts and references."""

    skill: str


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
        self._texts: dict[str, str] = {}
        self._candidates_of: tuple[object, tuple[dict[str, Candidate], dict[str, str]]] = (None, ({}, {}))
        self.classifier: Classifier = classifier or self._default_classifier()
        self.fallback = fallback
        self.decisions = decisions or DecisionLog(self.store.root / DECISIONS)

    def __enter__(self) -> AgentMemory:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the engine if this memory opened it."""
        if self._owns_engine:
            self.engine.close()

    def _default_classifier(self) -> ChannelClassifier:
        """The channel classifier, with what was learned for this model and these settings."""
        plain = ChannelClassifier(self.blocks)
        known = load(self.store.root / ROUTER, self.blocks.fingerprint.id, f"{plain.name}/{plain.version}")
        return ChannelClassifier(self.blocks, weights=known.weights, labelled=known.labelled) if known else plain

    def learn(
        self, questions: Sequence[Labelled], progress: Callable[[Iterable[Labelled]], Iterable[Labelled]] | None = None
    ) -> Learned:
        """Fit the router to labelled questions and keep what it learned beside the store, for this model.

        Raises UsageError for a classifier that does not learn.
        """
        if not isinstance(self.classifier, ChannelClassifier):
            raise UsageError(f"the classifier {self.classifier.name!r} does not learn")
        plain = ChannelClassifier(self.blocks)
        with self.blocks.exclusive():
            how = () if progress is None else (progress,)
            learned = learn(plain, questions, self.candidates(), self.blocks.fingerprint.id, *how)
        save(learned, self.store.root / ROUTER)
        self.classifier = ChannelClassifier(self.blocks, weights=learned.weights, labelled=learned.labelled)
        return learned

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

    def deposit_cards(self) -> int:
        """Store the router's cards that names of this model lack (after an import); how many were read."""
        if not isinstance(self.classifier, ChannelClassifier):
            return 0
        cards = [("", "")] + [(entry.name, entry.description) for entry in self.names() if entry.description]
        with self.engine.lock:
            return sum(self.classifier.deposit_card(*card).created for card in cards)

    def _deposit(
        self,
        entry: _Entry,
        text: str,
        allow_inexact: bool,
        cancellation: Cancellation | None,
        behind: str | None = None,
    ) -> Deposit:
        prompt = self._prompts.build(self.prefix, text, [Message("user", "?")])
        above = None if behind is None else self._manifest(behind)
        before = len(prompt.prefix) if above is None else above.n_tokens
        check_window(before + len(prompt.manual), len(prompt.turn), 1, self.engine.window)
        parent_id = self.blocks.id_of(prompt.prefix) if above is None else above.block_id
        named = self._name_record(entry, text, self.blocks.id_of(prompt.manual, parent_id))
        how: Any = {"allow_inexact": allow_inexact, "cancellation": cancellation}
        with self.engine.lock:
            parent = self.blocks.deposit(prompt.prefix, **how).manifest if above is None else above
            deposit = self.blocks.deposit(prompt.manual, parent=parent, **how)
            if entry.description and isinstance(self.classifier, ChannelClassifier):
                self.classifier.deposit_card("", "", allow_inexact=allow_inexact)
                self.classifier.deposit_card(entry.name, entry.description, allow_inexact=allow_inexact)
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

    # --- what is there ----------------------------------------------------------------------------

    def names(self) -> list[NamedBlock]:
        """The skills and texts stored for this model and these settings, by name."""
        return self.store.names(fingerprint_id=self.blocks.fingerprint.id)

    def _named(self, name: str) -> NamedBlock:
        stored = {entry.name: entry for entry in self.names()}
        if name not in stored:
            for entry in self.store.names():
                difference = self._foreign(entry) if entry.name == name else None
                if difference is not None:
                    raise IncompatibleFingerprint(*difference)
            raise UnknownSkill(name, difflib.get_close_matches(name, stored, n=3, cutoff=0.5))
        return stored[name]

    def _manifest(self, name: str) -> Manifest:
        block_id = self._named(name).block_id
        manifest = self.store.manifest(block_id)
        if manifest is None:
            raise UnknownBlock(block_id, f"It is what {name!r} points to; deposit it again.")
        return manifest

    # --- a turn -----------------------------------------------------------------------------------

    def route(self, question: str) -> Decision:
        """Which skill this question needs, or none; the raw pick is on record before anything is made of it."""
        with self.blocks.exclusive():
            return self._route(question)

    def _route(self, question: str) -> Decision:
        live, left_out = self._candidates()
        decision = decide(self.classifier, question, live, self.fallback)
        decision = decision.model_copy(update={"left_out": left_out}) if left_out else decision
        self.decisions.append(question, live, decision)
        return decision

    def _route_within(self, question: str, skill: str) -> Decision:
        """Which part or reference of a skill; if none fits, its manual alone, or no block where it was split."""
        stored = {entry.name: entry for entry in self.names()}
        inner = {name: self._text_of(entry) for name, entry in stored.items() if name.startswith(f"{skill}/")}
        if not inner:
            return given(self._named(skill).name)
        cards = {name: Candidate(stored[name].description or summary(text), text) for name, text in inner.items()}
        decision = decide(self.classifier, question, cards, self.fallback)
        if decision.pick is None and skill in stored:
            reason = decision.fallback or "nothing within the skill fits"
            decision = decision.model_copy(update={"pick": skill, "fallback": f"{reason}: its manual alone"})
        self.decisions.append(question, cards, decision)
        return decision

    def _decide(self, question: str, skill: str | Pick | Within | None) -> Decision:
        if isinstance(skill, Pick):
            return self._route(question)
        if isinstance(skill, Within):
            return self._route_within(question, skill.skill)
        names = {entry.name for entry in self.names()} if skill is not None else set()
        if skill is None or skill in names or not any(name.startswith(f"{skill}/") for name in names):
            return given(skill)
        return self._route_within(question, skill)  # it was split: no block is the whole of it

    def candidates(self) -> dict[str, Candidate]:
        """What a question is routed among: the names of this model with a description, by label."""
        return self._candidates()[0]

    def _candidates(self) -> tuple[dict[str, Candidate], dict[str, str]]:
        """The live labels with what is known of them, and the names that cannot be candidates, with the reason.

        As long as the store does not change they are those of the last time.
        """
        version = self.store.version()
        if version is None or version != self._candidates_of[0]:
            self._candidates_of = (version, self._find_candidates())
        return self._candidates_of[1]

    def _find_candidates(self) -> tuple[dict[str, Candidate], dict[str, str]]:
        live: dict[str, Candidate] = {}
        left_out: dict[str, str] = {}
        for entry in self.store.names():
            if not entry.description:
                continue
            try:
                difference = self._foreign(entry)
                if difference is not None:
                    left_out[entry.name] = f"stored with {difference[0]} = {difference[1]}, here it is {difference[2]}"
                    continue
                live[entry.name] = Candidate(entry.description, self._text_of(entry))
            except (StoreError, UsageError) as error:
                left_out[entry.name] = error.message
        return live, {name: reason for name, reason in left_out.items() if name not in live}

    def _foreign(self, entry: NamedBlock) -> tuple[str, Any, Any] | None:
        """The field by which the name's block is not of this engine, with both values; None if it is."""
        if entry.fingerprint_id == self.blocks.fingerprint.id:
            return None
        manifest = self.store.manifest(entry.block_id)
        return manifest.fingerprint.first_difference(self.blocks.fingerprint) if manifest else None

    def _text_of(self, entry: NamedBlock) -> str:
        """The text that a name stands for, to tell its block from others.

        As the store keeps it; else the block's own tokens. Raises UnknownBlock, CorruptBlock, UsageError for foreign
        token ids.
        """
        if not self.store.exists(entry.block_id):
            raise UnknownBlock(entry.block_id, "Its name points to nothing; deposit it again.")
        if entry.block_id not in self._texts:
            text = self.store.text(entry.source_sha256) if entry.source_sha256 else None
            self._texts[entry.block_id] = self._detokenised(entry.block_id) if text is None else text
        return self._texts[entry.block_id]

    def _detokenised(self, block_id: str) -> str:
        manifest = self.store.manifest(block_id)
        tokens = manifest.tokens if manifest else ()
        return b"".join(map(self.engine.token_bytes, tokens)).decode("utf-8", "replace")

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
            decide=lambda asked: self._decide(asked, skill),
            build=lambda pick: self.prompt(messages, pick),
            graft=graft,
        )

    def prompt(self, messages: Sequence[Message], name: str | None) -> Prompt:
        """The ids of a turn behind the block ``name``, or behind the agent prefix alone. Raises UnknownSkill."""
        prompt = self._prompts.build(self.prefix, "", messages)
        if name is None:
            return prompt
        manifest = self._manifest(name)
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
