"""The router of a live store: which names there are, which block a question gets, on record and learned from.

Not guaranteed: that a file
which was changed in place since it was last read is noticed here; it is when its block is grafted.
"""

from __future__ import annotations

import contextlib
import difflib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Final

from agentkv.blocks.blocks import Blocks
from agentkv.blocks.mismatch import in_words, incompatible, notice, others
from agentkv.engine.embed import Embedder
from agentkv.errors import SkillsLeftOut, StoreError, StoreReadError, UnknownBlock, UnknownSkill, UsageError
from agentkv.notices import warn
from agentkv.records import Decision, Manifest, NamedBlock
from agentkv.router.base import Candidate, Classifier
from agentkv.router.classifier import ChannelClassifier
from agentkv.router.decision import Fallback, decide, given
from agentkv.router.evaluate import Labelled
from agentkv.router.learn import Learned, forget, learn, load, save
from agentkv.router.log import DecisionLog
from agentkv.router.vectors import Vectors
from agentkv.router.weights import LOSE
from agentkv.skills.split import summary
from agentkv.store.files import DECISIONS, ROUTER

Progress = Callable[[Iterable[Labelled]], Iterable[Labelled]]


class Pick(Enum):
    """The one value of ``skill`` that is neither a name nor None."""

    ROUTE = "route"


ROUTE: Final = Pick.ROUTE
"""For ``skill``: what the router picks."""


@dataclass(frozen=True)
class _Found:
    """The live labels with what is known of them, and the names that cannot be candidates, with the reason.

    ``notice``: what of these belongs to another engine, for whoever asks; None if nothing does.
    """

    live: dict[str, Candidate]
    left_out: dict[str, str]
    notice: str | None


class Routing:
    """Names and decisions of one engine in one store. Decisions are made by whoever holds ``blocks.exclusive()``."""

    def __init__(
        self,
        blocks: Blocks,
        classifier: Classifier | None = None,
        fallback: Fallback = Fallback.NO_BLOCK,
        log: DecisionLog | None = None,
        embedder: Embedder | None = None,
        router: Blocks | None = None,
    ) -> None:
        """``router``: the blocks of another, smaller model that only routes, in the same store."""
        self._blocks, self._store, self._engine = blocks, blocks.store, blocks.engine
        self._remembered: dict[str, NamedBlock] = {}
        self._router = router or blocks
        self._vectors = None if embedder is None else Vectors(embedder, self._store.root / ROUTER)
        self._fingerprint = blocks.fingerprint
        self._texts: dict[str, str] = {}
        self._known: tuple[object, _Found] = (None, _Found({}, {}, None))
        self.strict = False
        self.classifier: Classifier = classifier or self._default_classifier()
        self.fallback = fallback
        self.log = log or DecisionLog(self._store.root / DECISIONS, within=self._store.root)

    # --- names ------------------------------------------------------------------------------------

    def names(self) -> list[NamedBlock]:
        """The skills and texts stored for this model and these settings, by name."""
        return [entry for entry in self._stored() if entry.fingerprint_id == self._fingerprint.id]

    def _stored(self, *, described: bool = False) -> list[NamedBlock]:
        """The names of the store, of any engine; what cannot be read now is as it was when it last could.

        ``described``: only those with a description, and their texts are kept in RAM where the store has them at hand.
        """
        errors: list[StoreError] = []
        known = sorted(self._remembered.values(), key=lambda entry: entry.name)
        known = [entry for entry in known if entry.description or not described]
        if self._store.is_gone:
            return known
        try:
            found = self._described(errors.append) if described else self._store.names(on_error=errors.append)
        except StoreReadError as error:  # the folder itself
            if not known:
                raise
            self._store.pass_over(error)
            return known
        for fault in errors:
            self._store.pass_over(fault)
        unread = {fault.path for fault in errors if isinstance(fault, StoreReadError)}
        found += [entry for entry in known if self._store.name_path(entry) in unread]
        self._remembered |= {entry.name: entry for entry in found if entry.fingerprint_id == self._fingerprint.id}
        return found

    def _described(self, on_error: Callable[[StoreError], None]) -> list[NamedBlock]:
        found = self._store.described(on_error)
        for entry, text in found:
            if text is not None and entry.fingerprint_id == self._fingerprint.id:
                self._texts.setdefault(entry.block_id, text)
        return [entry for entry, _ in found]

    @property
    def blocks(self) -> Blocks:
        """The blocks that names point to."""
        return self._blocks

    def remember(self, named: NamedBlock, text: str) -> None:
        """Keep in RAM what was deposited: it is there for this process whatever becomes of the store's folder."""
        self._remembered[named.name] = named
        self._texts[named.block_id] = text

    def kept_text(self, named: NamedBlock) -> str | None:
        """The text that was deposited under a name, from RAM or the store; None if nobody kept it.

        Raises CorruptBlock, StoreReadError.
        """
        if named.block_id in self._texts:
            return self._texts[named.block_id]
        return self._store.text(named.source_sha256) if named.source_sha256 else None

    def find(self, name: str) -> NamedBlock | None:
        """What is stored under a name for this model, or None; costs a file, not a list."""
        if self._store.is_gone:
            return self._remembered.get(name)
        found: Iterator[NamedBlock | None] = (
            self._store.name(kind, name, self._fingerprint.id) for kind in ("skill", "text")
        )
        try:
            entry = next((entry for entry in found if entry is not None), None)
        except StoreError:
            if name not in self._remembered:
                raise
            return self._remembered[name]
        if entry is not None:
            self._remembered[name] = entry
        else:
            self._remembered.pop(name, None)
        return entry

    def named(self, name: str) -> NamedBlock:
        """The same, but raises UnknownSkill, or IncompatibleFingerprint if it is there for another model only."""
        entry = self.find(name)
        if entry is not None:
            return entry
        known = self._store.names(on_error=lambda _: None)
        away = [other for other in known if other.name == name or other.name.startswith(f"{name}/")]
        error = incompatible(self._store, self._engine, away)
        if error is not None:
            raise error
        stored = [known.name for known in self.names()]
        raise UnknownSkill(name, difflib.get_close_matches(name, stored, n=3, cutoff=0.5))

    def manifest(self, name: str) -> Manifest:
        """The manifest of what a name points to. Raises UnknownSkill, UnknownBlock, IncompatibleFingerprint."""
        block_id = self.named(name).block_id
        manifest = self._store.manifest(block_id)
        if manifest is None:
            raise UnknownBlock(block_id, f"It is what {name!r} points to; deposit it again.")
        return manifest

    # --- candidates -------------------------------------------------------------------------------

    def candidates(self) -> dict[str, Candidate]:
        """What a question is routed among: the names of this model with a description, by label."""
        return self._all().live

    @property
    def notices(self) -> tuple[str, ...]:
        """What a question is routed without since another engine has made it, in a sentence; empty for nothing."""
        notice = self._all().notice
        return () if notice is None else (notice,)

    def _all(self) -> _Found:
        """As long as the store does not change they are those of the last time."""
        version = self._store.version()
        if self._store.is_gone:
            own = {e.name: Candidate(e.description, self._texts.get(e.block_id, "")) for e in self.names()}
            here = {name: card for name, card in own.items() if card.description}
            return _Found(self._known[1].live | here, {}, None)
        if version is None or version != self._known[0]:
            self._known = (version, self._find())
        return self._known[1]

    def _find(self) -> _Found:
        live: dict[str, Candidate] = {}
        left_out: dict[str, str] = {}
        described = self._stored(described=True)
        away = others(self._store, self._fingerprint, described)
        for other in away:
            reason = f"stored for another engine: {in_words(self._store, other.fields, self._engine.info.name)}"
            left_out |= {entry.name: reason for entry in other.names}
        for entry in described:
            if entry.fingerprint_id != self._fingerprint.id:
                left_out.setdefault(entry.name, "stored for another engine, and its block cannot be read")
                continue
            try:
                live[entry.name] = Candidate(entry.description, self._text_of(entry))
            except (StoreError, UsageError) as error:
                left_out[entry.name] = error.message
        left_out = {name: reason for name, reason in left_out.items() if name not in live}
        return _Found(live, left_out, notice(self._store, self._engine, away) if away else None)

    def _text_of(self, entry: NamedBlock) -> str:
        """The text that a name stands for, to tell its block from others.

        As the store keeps it, whether or not the block can still be restored; else the block's own tokens. Raises
        UnknownBlock, CorruptBlock, UsageError for token ids of another vocabulary.
        """
        if entry.block_id not in self._texts:
            text = None
            try:
                text = self._store.text(entry.source_sha256) if entry.source_sha256 else None
            except StoreError as error:
                self._store.tell_once(error)
            self._texts[entry.block_id] = self._detokenised(entry.block_id) if text is None else text
        return self._texts[entry.block_id]

    def _detokenised(self, block_id: str) -> str:
        manifest = self._store.manifest(block_id)
        if manifest is None:
            raise UnknownBlock(block_id, "Its name points to nothing, and no text is kept; deposit it again.")
        tokens = manifest.tokens
        return b"".join(map(self._engine.token_bytes, tokens)).decode("utf-8", "replace")

    # --- decisions --------------------------------------------------------------------------------

    def decide(self, question: str, skill: str | Pick | None, within: str | None = None) -> Decision:
        """The decision of a turn with these options; see :class:`agentkv.TurnOptions`."""
        if within is not None:
            return self._within(question, within)
        if isinstance(skill, Pick):
            return self.route(question)
        if skill is None or self.find(skill) is not None:
            return given(skill)
        if any(entry.name.startswith(f"{skill}/") for entry in self.names()):
            return self._within(question, skill)  # it was split: no block is the whole of it
        return given(skill)

    def route(self, question: str) -> Decision:
        """Which block this question gets, or none; on record before anything is made of it.

        Raises SkillsLeftOut where ``strict`` is set and another engine's skills would be left out.
        """
        found = self._all()
        if found.notice is not None and self.strict:
            raise SkillsLeftOut(found.notice, sorted(found.left_out))
        decision = decide(self.classifier, question, found.live, self.fallback)
        if found.left_out:
            decision = decision.model_copy(update={"left_out": found.left_out})
        if found.notice is not None:
            reason = decision.fallback if found.live else "no skill is stored for this engine: no block"
            decision = decision.model_copy(update={"notes": (found.notice,), "fallback": reason})
        self.log.append(question, found.live, decision)
        return decision

    def _within(self, question: str, skill: str) -> Decision:
        """Which part or reference of a skill; if none fits, its manual alone, or no block where it was split."""
        stored = {entry.name: entry for entry in self.names()}
        notes = self._missing_within(skill)
        inner = {}
        for name, entry in stored.items():
            if name.startswith(f"{skill}/"):
                try:
                    inner[name] = self._text_of(entry)
                except StoreError as error:
                    self._store.tell_once(error)
        if not inner:
            return given(self.named(skill).name).model_copy(update={"notes": notes})
        cards = {name: Candidate(stored[name].description or summary(text), text) for name, text in inner.items()}
        decision = decide(self.classifier, question, cards, self.fallback)
        if decision.pick is None:
            reason = decision.fallback or "nothing within the skill fits"
            pick = skill if skill in stored else None
            instead = "its manual alone" if pick else f"no block, since {skill!r} is stored in parts only"
            decision = decision.model_copy(update={"pick": pick, "fallback": f"{reason}: {instead}"})
        decision = decision.model_copy(update={"notes": notes})
        self.log.append(question, cards, decision)
        return decision

    def _missing_within(self, skill: str) -> tuple[str, ...]:
        """What of a skill only another engine has, in a sentence. Raises SkillsLeftOut where ``strict`` is set."""
        names = [e for e in self._store.names(on_error=lambda _: None) if e.name.startswith(f"{skill}/")]
        away = others(self._store, self._fingerprint, names)
        text = notice(self._store, self._engine, away) if away else None
        if text is not None and self.strict:
            raise SkillsLeftOut(text, sorted(entry.name for other in away for entry in other.names))
        return () if text is None else (text,)

    # --- learning ---------------------------------------------------------------------------------

    def _default_classifier(self) -> ChannelClassifier:
        """The channel classifier, with what was learned for this model and these settings."""
        plain = self.plain_classifier()
        try:
            known = load(self._store.root / ROUTER, self._router.fingerprint.id)
        except StoreError as error:  # no block depends on it
            self._store.tell_once(error, "Routing goes on without it; `agentkv route learn` makes it again.")
            return plain
        here = f"{plain.name}/{plain.version}"
        if known is None or known.classifier == here:
            return plain.with_learned(known.weights, known.labelled) if known else plain
        warn(
            f"what the router has learned was learned by {known.classifier}, and this is {here}: it is left out. "
            "`agentkv route learn` learns it again."
        )
        return plain

    @property
    def vectors(self) -> Vectors | None:
        """The embedder's vectors, if there is an embedder."""
        return self._vectors

    def plain_classifier(self) -> ChannelClassifier:
        """The channel classifier as it is before it has learned anything."""
        return ChannelClassifier(self._router, vectors=self._vectors)

    def learn(self, questions: Sequence[Labelled], progress: Progress | None = None, *, lose: float = LOSE) -> Learned:
        """Fit the router to labelled questions and keep what it learned beside the store, for this model.

        Raises UsageError for a classifier that does not learn, and for a ``lose`` that is not a share.
        """
        if not 0 <= lose <= 1:
            raise UsageError(f"the share of questions that may be lost is 0 to 1, not {lose}")
        if not isinstance(self.classifier, ChannelClassifier):
            raise UsageError(f"the classifier {self.classifier.name!r} does not learn")
        plain = self.plain_classifier()
        with self._router.exclusive():
            candidates, here = self.candidates(), self._router.fingerprint.id
            learned = learn(plain, questions, candidates, here, progress or (lambda items: items), lose)
        save(learned, self._store.root / ROUTER)
        self.classifier = plain.with_learned(learned.weights, learned.labelled)
        return learned

    def others_learned(self, others: Mapping[str, bool]) -> tuple[Learned, bool] | None:
        """What was learned for an engine that this one takes the place of; None if there is none, or need be none.

        ``others``: fingerprints, and whether each is of the same model with other settings or another build; these
        come first. With the result comes whether it is one.
        """
        folder = self._store.root / ROUTER
        own = folder / f"{self._router.fingerprint.id}.json"
        if not isinstance(self.classifier, ChannelClassifier) or own.exists():
            return None
        for fingerprint_id, is_same_model in sorted(others.items(), key=lambda item: not item[1]):
            with contextlib.suppress(StoreError):
                known = load(folder, fingerprint_id)
                if known is not None and known.labelled:
                    return known, is_same_model
        return None

    def take_over(self, known: Learned, is_same_model: bool) -> Learned:
        """Route by what was learned for another engine: its weights if the model is the same, else from its questions.

        Of questions that no name fits only the count is known, so another model's are not learned from.
        """
        plain = self.plain_classifier()
        if not is_same_model or known.classifier != f"{plain.name}/{plain.version}":
            return self.learn([Labelled(one, label) for label, many in known.labelled.items() for one in many])
        learned = known.model_copy(update={"fingerprint_id": self._router.fingerprint.id})
        save(learned, self._store.root / ROUTER)
        self.classifier = plain.with_learned(learned.weights, learned.labelled)
        return learned

    def forget(self) -> bool:
        """Drop what was learned for this model; False if nothing was."""
        gone = forget(self._store.root / ROUTER, self._router.fingerprint.id)
        if isinstance(self.classifier, ChannelClassifier):
            self.classifier = self.plain_classifier()
        return gone

    def deposit_card(self, name: str, description: str, *, allow_inexact: bool = False) -> None:
        """Store the card by which a name is routed, if the classifier goes by cards and there is a description."""
        if description and isinstance(self.classifier, ChannelClassifier):
            self.classifier.deposit_card("", "", allow_inexact=allow_inexact)
            self.classifier.deposit_card(name, description, allow_inexact=allow_inexact)

    def deposit_cards(self) -> int:
        """Store the cards that names of this model lack (after an import); how many were read."""
        if not isinstance(self.classifier, ChannelClassifier):
            return 0
        cards = [("", "")] + [(entry.name, entry.description) for entry in self.names() if entry.description]
        with self._router.engine.lock:
            return sum(self.classifier.deposit_card(*card) for card in cards)
