"""The gate: only what the model lacks is worth a block.

Before anything is deposited, the model answers by itself and the answers are compared. A task that it solves at the
first try needs no help; nor does one without a check on whose answer its samples agree, which could not be proven
anyway. Each decision says why.

:class:`Gate` samples several programs. :class:`MarginGate` asks for one direct answer instead, greedily, bound to the
answer's type. The *margin* of a token is ln(its probability ÷ that of the best other token), before the grammar is
applied; the margin of an answer is the least of its tokens', its end included. A large one says that the model would
hardly have answered anything else, not that it is right. It costs tens of tokens instead of hundreds, but does not let
the model compute.

:class:`ProcedureTrial` tries a text that is to make the model better at certain tasks: each is answered with and
without it, under the same grammar and budget, and a text that does not help is not kept.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from agentkv.engine.base import Cancellation, Logits
from agentkv.engine.generate import generate
from agentkv.engine.prompt import Message
from agentkv.errors import UsageError
from agentkv.flywheel import values
from agentkv.flywheel.journal import NoRecorder, Recorder, turn_tokens
from agentkv.flywheel.library import answer_question
from agentkv.flywheel.program import call
from agentkv.flywheel.slots import any_grammar, typed_grammar
from agentkv.flywheel.solution import Provenance, Text, Verdict
from agentkv.flywheel.solvers import Attempt, Solver, Tried
from agentkv.flywheel.task import Task, TextTruth, Truth
from agentkv.flywheel.verify import Judging, Verification, verifier_of, verify
from agentkv.memory.memory import AgentMemory
from agentkv.records import Turn
from agentkv.sandbox.sandbox import Sandbox

Observe = Callable[[Attempt, Verification | None, Any], None]
"""Sees every attempt: what was proposed, its verification (None where nothing could be run), its answer."""


@dataclass(frozen=True)
class OwnAnswers:
    """The model's own attempts at a task.

    ``agreeing`` of ``samples`` attempts gave ``answer`` (the most frequent; the earliest of equals). ``first_right``:
    the first attempt passed the check. ``tried``: to continue from with the same solver; ``proven``: the first verified
    attempt, with its verification.
    """

    answer: Any
    answered: bool
    agreeing: int
    samples: int
    first_right: bool
    tokens: int
    tried: tuple[Tried, ...]
    proven: tuple[Attempt, Verification] | None

    @property
    def agreement(self) -> float:
        """Share of all samples that gave the commonest answer."""
        return self.agreeing / self.samples if self.samples else 0.0


@dataclass(frozen=True)
class Judged:
    """The gate's decision on a task: ``lacks`` it or not, and why."""

    lacks: bool
    reason: str
    own: OwnAnswers


@dataclass
class Gate:
    """Asks ``solver`` (the local model's) for up to ``samples`` answers, fewer if the first is verified.

    ``agreement``: the share of samples that has to agree for an answer to count as confident.
    """

    solver: Solver
    sandbox: Sandbox
    samples: int = 3
    agreement: float = 1.0
    callables: Mapping[str, Judging] = field(default_factory=dict)

    def own(
        self,
        task: Task,
        *,
        settle: bool = True,
        observe: Observe | None = None,
        cancellation: Cancellation | None = None,
    ) -> OwnAnswers:
        """The model's own answers; with ``settle`` it ends at the first verified one."""
        tried: list[Tried] = []
        answers: list[str] = []
        proven: tuple[Attempt, Verification] | None = None
        while len(tried) < self.samples:
            attempt = self.solver.attempt(task, tried, cancellation)
            if attempt is None:
                break
            found, answered, answer = self.run(task, attempt)
            if observe is not None:
                observe(attempt, found, answer)
            tried.append(as_tried(attempt, found))
            if answered:
                answers.append(values.encode(answer))
            if found is not None and found.verified and proven is None:
                proven = attempt, found
                if settle:
                    break
        common = Counter(answers).most_common(1)
        return OwnAnswers(
            answer=values.decode(common[0][0]) if common else None,
            answered=bool(common),
            agreeing=common[0][1] if common else 0,
            samples=len(tried),
            first_right=bool(tried) and tried[0].verdict == Verdict.VERIFIED,
            tokens=sum(one.attempt.provenance.tokens for one in tried),
            tried=tuple(tried),
            proven=proven,
        )

    def judge(self, task: Task, *, observe: Observe | None = None, cancellation: Cancellation | None = None) -> Judged:
        """Whether the model lacks the task."""
        own = self.own(task, observe=observe, cancellation=cancellation)
        if own.first_right:
            return Judged(False, "the model solves it at the first try: nothing to gain", own)
        confident = own.answered and own.agreement >= self.agreement
        if task.check is None and confident and own.samples > 1:
            return Judged(False, f"{own.agreeing} of {own.samples} samples agree, and nothing checks the task", own)
        if confident and own.samples > 1:
            reason = f"{own.agreeing} of {own.samples} samples agree on an answer that the check refuses"
        elif own.proven is not None:
            reason = f"solved, but not at the first try ({len(own.tried)} samples)"
        else:
            reason = f"not solved in {own.samples} samples; {own.agreeing} agree"
        return Judged(True, reason, own)

    def run(self, task: Task, attempt: Attempt) -> tuple[Verification | None, bool, Any]:
        """An attempt's verification, whether it gave an answer, and the answer; also where nothing checks the task."""
        if attempt.candidate is None:
            return None, False, None
        found = verify(task, attempt.candidate, self.sandbox, callables=self.callables)
        if found.answered or task.check is not None:
            return found, found.answered, found.answer
        if isinstance(attempt.candidate, Text):
            return found, True, attempt.candidate.text
        outcome = call(self.sandbox, attempt.candidate, task.parameters)
        return found, outcome.answered, outcome.value


def as_tried(attempt: Attempt, found: Verification | None) -> Tried:
    """An attempt with what became of it, as a solver is shown it."""
    if found is None:
        return Tried(attempt, Verdict.FAILED, "the reply holds no program with a function `solve`")
    return Tried(attempt, found.proof.verdict, found.proof.reason, found.traceback)


# --- does a text help? --------------------------------------------------------------------------------


@dataclass(frozen=True)
class Compared:
    """How many of ``n`` checked tasks the model answers correctly without a text and with it."""

    n: int
    without: int
    with_text: int

    @property
    def keeps(self) -> bool:
        """Whether the text is worth keeping: it makes the model better."""
        return self.with_text > self.without

    def plain(self) -> dict[str, int]:
        """As JSON values."""
        return {"n": self.n, "without": self.without, "behind": self.with_text}

    @property
    def reason(self) -> str:
        """The decision as a sentence."""
        figures = f"{self.without} of {self.n} right without it, {self.with_text} with it"
        if self.with_text < self.without:
            return f"it makes the model worse: {figures}"
        return f"it helps: {figures}" if self.keeps else f"it changes nothing: {figures}"


def compare(
    tasks: Sequence[Task],
    without: Callable[[Task], str],
    with_text: Callable[[Task], str],
    judge: Callable[[Task, str], bool],
) -> Compared:
    """Answer every task both ways and count."""
    return Compared(
        len(tasks),
        sum(judge(task, without(task)) for task in tasks),
        sum(judge(task, with_text(task)) for task in tasks),
    )


# --- a text on trial ------------------------------------------------------------------------------

ANSWER_TOKENS = 48


@dataclass
class ProcedureTrial:
    """Tries texts on checked tasks. ``max_new``: tokens of an answer."""

    memory: AgentMemory
    recorder: Recorder = field(default_factory=NoRecorder)
    max_new: int = ANSWER_TOKENS

    def try_text(
        self,
        name: str,
        text: str,
        tasks: Sequence[Task],
        *,
        description: str = "",
        cancellation: Cancellation | None = None,
    ) -> Compared:
        """Compare, and keep the text under ``name`` only if it makes the model better.

        Raises UsageError for no tasks, for one whose check is not a :class:`Truth` or :class:`TextTruth`, and for a
        name that is taken.
        """
        if not tasks or not all(isinstance(task.check, Truth | TextTruth) for task in tasks):
            raise UsageError("a procedure is tried on tasks with a true answer, one at least")
        if self.memory.routing.find(name) is not None:
            raise UsageError(f"{name!r} is the name of something that is stored; choose another, or `agentkv rm` it")
        self.memory.deposit_text(name, text, description, cancellation=cancellation)
        kept = False
        try:
            found = compare(
                tasks,
                lambda task: self._answer(task, None, cancellation),
                lambda task: self._answer(task, name, cancellation),
                is_right,
            )
            kept = found.keeps
        finally:
            if not kept:
                self.memory.store.remove_name("text", name, self.memory.blocks.fingerprint.id)
        return found

    def _answer(self, task: Task, skill: str | None, cancellation: Cancellation | None) -> str:
        grammar = typed_grammar(task.check.answer) if isinstance(task.check, Truth) else None
        turn: Turn = self.memory.ask(
            task.prompt, skill=skill, grammar=grammar, max_new=self.max_new, cancellation=cancellation
        )
        raw = {"prompt": task.prompt, "behind": skill, "generated": turn.text, "right": is_right(task, turn.text)}
        key = f"{'without' if skill is None else 'behind'}/{task.id}"
        assert task.check is not None
        self.recorder.record(key, raw, expected=task.check.model_dump(mode="json"), tokens=turn_tokens(turn))
        return turn.text


def is_right(task: Task, text: str) -> bool:
    """Whether the text of an answer is the true one: compared as a value, or as a text where the check is of text."""
    verifier = verifier_of(task, {})
    assert verifier is not None
    try:
        answer = values.decode(text) if isinstance(task.check, Truth) else text
    except ValueError:
        return False
    return all(question.judge(answer) for question in verifier.questions(task))


# --- the gate by margin ---------------------------------------------------------------------------


@dataclass(frozen=True)
class DirectAnswer:
    """A direct answer: its text, the value in it (if ``is_value``), its margin in nats, its number of tokens."""

    text: str
    value: Any
    is_value: bool
    margin: float
    tokens: int


def ask_directly(memory: AgentMemory, task: Task, cancellation: Cancellation | None = None) -> DirectAnswer:
    """The model's direct answer, without a block. Raises what a turn raises."""
    grammar = typed_grammar(task.check.answer) if isinstance(task.check, Truth) else any_grammar()
    prompt = memory.prompt([Message("user", answer_question(task.prompt))], None)
    seen: list[Logits] = []
    with memory.blocks.exclusive():
        logits = memory.engine.extend(prompt.tokens, cancellation)
        pieces = list(
            generate(
                memory.engine,
                logits,
                max_new=ANSWER_TOKENS,
                stop=prompt.stops,
                grammar=grammar,
                cancellation=cancellation,
                observe=seen.append,
            )
        )
    text = "".join(piece.text for piece in pieces).strip()
    margins = [margin(row, piece.token) for row, piece in zip(seen, pieces, strict=True) if piece.token is not None]
    try:
        value, is_value = values.decode(text), pieces[-1].finish != "length"
    except ValueError:
        value, is_value = None, False
    return DirectAnswer(text, value, is_value, min(margins), len(pieces))


def margin(logits: Logits, token: int) -> float:
    """By how many nats ``token`` is likelier than the best other token; negative if it is not."""
    others = np.delete(logits, token)
    return float(logits[token]) - float(others.max())


@dataclass
class MarginGate(Gate):
    """A gate that asks ``memory`` for a direct answer first.

    ``margin``: nats from which an answer counts as confident. A task whose check is not a true answer is decided by
    agreement; so is the model's own answer when it is asked for one.
    """

    memory: AgentMemory | None = None
    margin: float = 2.0

    def __post_init__(self) -> None:
        if self.memory is None:
            raise UsageError("a gate by margin needs the memory whose model it asks")

    def judge(self, task: Task, *, observe: Observe | None = None, cancellation: Cancellation | None = None) -> Judged:
        """Whether the model lacks the task: it does if it is not confident, or fails the check."""
        if task.check is not None and not isinstance(task.check, Truth | TextTruth):
            return super().judge(task, observe=observe, cancellation=cancellation)
        assert self.memory is not None
        direct = ask_directly(self.memory, task, cancellation)
        if observe is not None:
            observe(_attempt(self.memory, task, direct), None, direct.value)
        confident = direct.is_value and direct.margin >= self.margin
        right = task.check is not None and direct.is_value and is_right(task, _as_text(task, direct))
        own = OwnAnswers(direct.value, direct.is_value, int(direct.is_value), 1, right, direct.tokens, (), None)
        how = f"a direct answer with a margin of {direct.margin:.1f} nats" if direct.is_value else "no direct answer"
        if right:
            return Judged(False, f"the model answers it directly, rightly: {how}, nothing to gain", own)
        if task.check is None:
            return Judged(not confident, f"{how}, and nothing checks the task", own)
        return Judged(True, f"{how}, which the check refuses" if direct.is_value else how, own)


def _attempt(memory: AgentMemory, task: Task, direct: DirectAnswer) -> Attempt:
    """As it is recorded: it proposes no candidate."""
    by = Provenance(
        solver=f"direct answer {memory.engine.info.name}",
        fingerprint_id=memory.blocks.fingerprint.id,
        tokens=direct.tokens,
        note=f"margin {direct.margin:.3f} nats",
    )
    return Attempt(None, by, answer_question(task.prompt), direct.text)


def _as_text(task: Task, direct: DirectAnswer) -> str:
    return direct.value if isinstance(task.check, TextTruth) and isinstance(direct.value, str) else direct.text
