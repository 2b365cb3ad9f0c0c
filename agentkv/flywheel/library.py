"""The blocks of live solutions: deposited, found, routed among themselves.

A solution's block has a name below ``solution/`` and no description, so no ordinary question is routed to it; only
:meth:`SolutionLibrary.route` does that, among live solutions that can transfer. What is live says the book, not the
names: a block that was left behind by a superseded or retired solution is never picked. Refuses to know how solutions
are made and whether answers are right.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterator
from dataclasses import dataclass

from agentkv.engine.base import Cancellation
from agentkv.errors import InexactBlock, InvalidGrammar, NotProven, WindowOverflow
from agentkv.flywheel.blocktext import block_text
from agentkv.flywheel.book import Deposited, SolutionBook
from agentkv.flywheel.kept import Kept, KeptTasks
from agentkv.flywheel.mentions import Mentions
from agentkv.flywheel.slots import Slot, can_be_filled, slots_of
from agentkv.flywheel.solution import Program, Solution
from agentkv.memory.memory import AgentMemory
from agentkv.records import Decision
from agentkv.router.base import Candidate
from agentkv.router.classifier import ChannelClassifier
from agentkv.router.decision import decide
from agentkv.router.weights import Weights
from agentkv.store.catalog import BlockStore

PREFIX = "solution/"
NO_BLOCK = (WindowOverflow, InexactBlock)
"""Why a solution may have no block on a model."""
UNREADABLE = (*NO_BLOCK, InvalidGrammar)
"""Why a model may not be able to read an answer or parameters from it: also where its engine knows no grammar."""
SHORTLIST = 3
"""Solutions that the model scores for one question, the nearest in words first."""
WEIGHTS = Weights(channel=3.0, card=0.0, text=6.0, asked=0.0, none=2.5)
"""For routing among solutions without an embedder: what a task says counts, not what it shares in words with others.
Set by hand on the development wordings of the families in ``bench/flywheel`` and twelve unrelated questions."""
WEIGHTS_WITH_MEANING = Weights(channel=3.0, card=0.0, text=6.0, asked=0.0, meaning=15.0, none=8.0)
"""With an embedder. On 108 instances in development wordings smollm2-135m routes 108 rightly with these (105 with the
weights for tools, 103 without meaning), and qwen2.5-coder-1.5b the first 65 of them (63, 58). No right one scores below
8.2; half of the likeliest wrong ones score below 6.5."""
_CARD_CHARS = 600


@dataclass(frozen=True)
class Known:
    """A live solution with its task."""

    kept: Kept
    solution: Solution

    @property
    def name(self) -> str:
        """The name of its block."""
        return block_name(self.kept)

    @property
    def slots(self) -> list[Slot]:
        """How its parameters are quoted from its task."""
        return slots_of(self.kept.task.prompt, self.kept.parameters)

    @property
    def can_transfer(self) -> bool:
        """Whether it is a program that was found to depend on its parameters and on nothing else of its task."""
        parametric = self.solution.parametric
        return isinstance(self.solution.candidate, Program) and parametric is not None and parametric.transferable


def block_name(kept: Kept) -> str:
    """``solution/<what its owner calls the task>-<digits of what it is>``: the model reads it when it routes.

    Nothing of the solution is in it. A proof holds times, so its digits would differ from run to run, and scores too.
    """
    plain = re.sub(r"[^\w.-]+", "-", kept.task.id).strip("-")[:60] or "task"
    return f"{PREFIX}{plain}-{kept.task.task_id[:8]}"


class SolutionLibrary:
    """The solutions in a memory's store."""

    def __init__(self, memory: AgentMemory, book: SolutionBook | None = None) -> None:
        self.memory = memory
        self.book = book or SolutionBook(memory.store.root)
        self.tasks = KeptTasks(memory.store.root)
        vectors = memory.routing.vectors
        self.classifier = ChannelClassifier(
            memory.blocks,
            weights=WEIGHTS if vectors is None else WEIGHTS_WITH_MEANING,
            shortlist=SHORTLIST,
            vectors=vectors,
            prune_ratio=0.0,
            whole=False,  # another instance of a task says names and values that stand in no solution
        )
        self._slots: dict[str, list[Slot]] = {}

    def live(self) -> Iterator[Known]:
        """Every live solution of which the task is kept, by the task's identity."""
        for solution in self.book.all_live():
            kept = self._kept(solution)
            if kept is not None:
                yield Known(kept, solution)

    def find(self, task_id: str) -> Known | None:
        """The live solution of exactly that task."""
        solution = self.book.live(task_id)
        kept = None if solution is None else self._kept(solution)
        return None if solution is None or kept is None else Known(kept, solution)

    def _kept(self, solution: Solution) -> Kept | None:
        kept = self.tasks.find(solution.task_id)
        return kept if kept is not None and kept.solution_id == solution.solution_id else None

    def keep(self, kept: Kept, solution: Solution, cancellation: Cancellation | None = None) -> Deposited:
        """Deposit a proven solution: the book's record, its task, its block.

        Raises NotProven, also for a proof by another check than the task's; StoreFull.

        A block that does not fit into the window, or is not exact on this model, is left out: the very task can still
        be answered, but nothing is transferred.
        """
        if (solution.task_id, solution.proof.check_sha256) != (kept.task.task_id, kept.task.check_sha256):
            reason = "its proof is that of another task or of another check than the one handed in"
            raise NotProven(kept.task.task_id, solution.proof.verdict, reason)
        before = self.find(kept.task.task_id)
        if before is None:
            self._retire_lost(solution)
        done = self.book.deposit(solution)
        if done.live:
            if before is not None and done.superseded is not None:
                self.forget_block(before.name)
            self.tasks.keep(kept.model_copy(update={"solution_id": solution.solution_id}))
            known = self.find(kept.task.task_id)  # as every later reader has it: a block's text has parameters in order
            with contextlib.suppress(*NO_BLOCK):
                if known is not None:
                    self.block(known, cancellation)
        return done

    def _retire_lost(self, solution: Solution) -> None:
        """Retire a live solution whose task is not kept, as a crash leaves it: nobody can answer from or check it."""
        lost = self.book.live(solution.task_id)
        if lost is not None and lost.solution_id != solution.solution_id:
            reason = "its task was not kept, so nobody could check it"
            self.book.retire(solution.task_id, reason, only=lost.solution_id)

    def block(self, known: Known, cancellation: Cancellation | None = None) -> str:
        """The name of its block, which is read now where this model has none yet; else it costs a hash."""
        text = block_text(known.kept.task, known.kept.parameters, known.solution)
        source = f"flywheel: task {known.kept.task.task_id}"
        self.memory.deposit_text(known.name, text, source=source, cancellation=cancellation)
        if known.can_transfer:
            self.classifier.deposit_card("", "")
            self.classifier.deposit_card(known.name, _description(known))
        return known.name

    def forget_block(self, name: str) -> None:
        """Take the name away, of every model that has read it; the blocks go with the next collection."""
        forget_block(self.memory.store, name)

    def route(self, question: str) -> tuple[Decision, Known | None]:
        """Which live solution may be adapted to the question, or none; the decision is logged.

        Candidates are the solutions for each of whose parameters the question mentions a value.
        """
        mentions = Mentions(question)
        live = (entry for entry in self.live() if entry.can_transfer)
        fitting = {entry.name: entry for entry in live if can_be_filled(self._slots_of(entry), mentions)}
        candidates = {name: Candidate(_description(entry), entry.kept.task.prompt) for name, entry in fitting.items()}
        with self.memory.blocks.exclusive():
            decision = decide(self.classifier, question, candidates)
        self.memory.decisions.append(question, candidates, decision)
        return decision, None if decision.pick is None else fitting[decision.pick]

    def _slots_of(self, known: Known) -> list[Slot]:
        identity = known.solution.solution_id
        if identity not in self._slots:
            self._slots[identity] = known.slots
        return self._slots[identity]


def retire(store: BlockStore, task_id: str, reason: str, book: SolutionBook | None = None) -> None:
    """Make a task's live solution history and take its block's name away; no model is needed. Raises UnknownTask."""
    (book or SolutionBook(store.root)).retire(task_id, reason)
    kept = KeptTasks(store.root).find(task_id)
    if kept is not None:
        forget_block(store, block_name(kept))


def forget_block(store: BlockStore, name: str) -> None:
    """Take a solution's name out of a store, for every model."""
    for entry in store.names("text", on_error=lambda _: None):
        if entry.name == name:
            store.remove_name("text", name, entry.fingerprint_id)


def _description(known: Known) -> str:
    return " ".join(known.kept.task.prompt.split())[:_CARD_CHARS]
