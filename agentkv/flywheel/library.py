"""The blocks of live solutions: what is in them, how they are deposited and found, and routing among them.

A block's text shows the program, the task with its parameters and answer, and the same task with other values (made by
substitution, without a model). A turn appended to it repeats the form of these examples, so even a small model goes on
with parameters or with the answer.

A solution's block has a name below ``solution/`` and no description, so no ordinary question is routed to it; only
:meth:`SolutionLibrary.route` does that, among live solutions that can transfer. The book, not the names, says what is
live: a block that a superseded or retired solution has left is never picked.
"""

from __future__ import annotations

import contextlib
import datetime
import json
import random
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from agentkv.engine.base import Cancellation
from agentkv.errors import InexactBlock, InvalidGrammar, NotProven, WindowOverflow
from agentkv.flywheel import values
from agentkv.flywheel.book import Deposited, KeptTask, KeptTasks, SolutionBook
from agentkv.flywheel.slots import Mention, Mentions, Slot, can_be_filled, render, replaced, slots_of
from agentkv.flywheel.solution import Program, Solution
from agentkv.flywheel.task import Task
from agentkv.memory.memory import AgentMemory
from agentkv.records import Decision
from agentkv.router.base import Candidate
from agentkv.router.classifier import ChannelClassifier
from agentkv.router.decision import decide
from agentkv.router.weights import Weights
from agentkv.store.catalog import BlockStore

EXAMPLES = 2
_MAX_ANSWER = 400


def block_text(task: Task, parameters: Mapping[str, Any], solution: Solution, examples: int = EXAMPLES) -> str:
    """The text that is deposited for a live solution; ``parameters`` are those that gave its answer."""
    answer = values.encode(solution.answer)
    shown = answer if len(answer) <= _MAX_ANSWER else f"{answer[:_MAX_ANSWER]}…"
    lines = ["This task was solved, and the solution was checked by running it."]
    if isinstance(solution.candidate, Program):
        lines += ["Program:", solution.candidate.source.strip("\n"), ""]
    slots = slots_of(task.prompt, parameters)
    lines.append(f"Task: {task.prompt.strip()}")
    if parameters:
        lines.append(f"Parameters: {render(parameters, slots)}")
    lines += [f"Answer: {shown}", ""]
    for prompt, other in other_values(task.prompt, parameters, slots, examples):
        lines += [f"Task: {prompt.strip()}", f"Parameters: {render(other, slots)}", ""]
    return "\n".join(lines)


def parameters_question(prompt: str) -> str:
    """What is asked of a block, so that the answer is the parameters."""
    return f"Task: {prompt.strip()}\nParameters:"


RECALL_QUESTION = "The solved task again: say its answer.\nAnswer:"
"""What is asked of the block of the very task. The task is not repeated: its text is in the block, and its prefill
costs time (164 tokens and 1.7 s for a hard problem on two cores). The best of four wordings: 24 of 27 answers by the
default model (12 with the task repeated), 8 of 8 by the 1.5B model."""


def answer_question(prompt: str) -> str:
    """What is asked of a task without a block, so that the answer is nothing else."""
    return f"Task: {prompt.strip()}\nAnswer:"


def rewriting_question(prompt: str) -> str:
    """What is asked of a block, so that the answer is another program."""
    return (
        f"Task: {prompt.strip()}\nRewrite the program above for this task: the same method with this task's values. "
        "Set PARAMETERS to its values and define solve. Answer with the whole program in a ```python block."
    )


def other_values(
    prompt: str, parameters: Mapping[str, Any], slots: Sequence[Slot], count: int
) -> list[tuple[str, dict[str, Any]]]:
    """The task with other values in place of those that it quotes, and those values; deterministic."""
    found: list[tuple[str, dict[str, Any]]] = []
    for number in range(count):
        draw = random.Random(f"{number} {prompt}")
        other, changes = dict(parameters), list[tuple[Mention, str]]()
        for slot in slots:
            new = [_other(mention, draw) for mention in slot.where]
            if any(text != mention.text for text, mention in zip(new, slot.where, strict=True)):
                other[slot.name] = _value(slot, new, slot.where)
                changes += zip(slot.where, new, strict=True)
        if changes:
            found.append((replaced(prompt, changes), other))
    return found


def _value(slot: Slot, texts: Sequence[str], where: Sequence[Mention]) -> Any:
    if not slot.kind.endswith(("number", "numbers")):
        return texts[0] if slot.kind in ("words", "quoted") else list(texts)
    assert all(mention.number is not None for mention in where)
    read = [json.loads(_digits(text)) for text in texts]
    return read[0] if slot.kind == "number" else read


def _digits(text: str) -> str:
    found = re.search(r"-?\d+(?:\.\d+)?", text.replace(",", "").replace("−", "-"))
    assert found is not None
    whole, _, part = found[0].partition(".")
    return f"{int(whole)}.{part.rstrip('0') or '0'}" if part else str(int(whole))


def _other(mention: Mention, draw: random.Random) -> str:
    """A text like the mention's; without digits it stays as it is."""
    text = mention.text
    try:
        day = datetime.date.fromisoformat(text)
        return (day + datetime.timedelta(days=draw.randint(20, 300))).isoformat()
    except (ValueError, OverflowError):
        pass
    if re.fullmatch(r"(?:[01]?\d|2[0-3]):[0-5]\d", text):
        hours, minutes = divmod(draw.randrange(7 * 60, 18 * 60, 5), 60)
        return f"{hours:0{len(text) - 3}d}:{minutes:02d}"
    if mention.number is None and len(re.findall(r"\d+", text)) > 1:
        return text  # digits that belong together: other ones may make no sense
    if mention.number is not None and not re.search(r"\d", text):
        return str(draw.randint(2, 9))
    return re.sub(r"\d+", lambda run: _other_digits(run[0], draw), text)


def _other_digits(run: str, draw: random.Random) -> str:
    first = draw.choice("123456789") if run[0] != "0" or len(run) == 1 else "0"
    return first + "".join(draw.choice("0123456789") for _ in run[1:])


# --- the library ----------------------------------------------------------------------------------

PREFIX = "solution/"
NO_BLOCK = (WindowOverflow, InexactBlock)
"""Why a solution may have no block on a model."""
UNREADABLE = (*NO_BLOCK, InvalidGrammar)
"""Why a model may not be able to read an answer or parameters from it: also where its engine knows no grammar."""
SHORTLIST = 3
"""Solutions that the model scores for one question, by lexical similarity."""
WEIGHTS = Weights(channel=3.0, card=0.0, text=6.0, asked=0.0, none=2.5)
"""For routing among solutions without an embedder: what a task says counts, not its lexical similarity. Set by hand on
the development wordings of the families in ``bench/flywheel`` and twelve unrelated questions."""
WEIGHTS_WITH_MEANING = Weights(channel=3.0, card=0.0, text=6.0, asked=0.0, meaning=15.0, none=8.0)
"""With an embedder. On 108 instances in development wordings smollm2-135m routes 108 rightly with these (105 with the
weights for tools, 103 without meaning), and qwen2.5-coder-1.5b the first 65 of them (63, 58). No right one scores below
8.2; half of the likeliest wrong ones score below 6.5."""
_CARD_CHARS = 600


@dataclass(frozen=True)
class Known:
    """A live solution with its task."""

    kept: KeptTask
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
        """Whether it is a program that depends on its parameters and on nothing else of its task."""
        parametric = self.solution.parametric
        return isinstance(self.solution.candidate, Program) and parametric is not None and parametric.transferable


def block_name(kept: KeptTask) -> str:
    """``solution/<the caller's id>-<digits of the task's identity>``. The model sees it when it routes.

    It has nothing of the solution, whose proof holds times: its digits, and so the routing scores, would differ from
    run to run.
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
            whole=False,  # another instance of a task has names and values that are in no solution
        )
        self._slots: dict[str, list[Slot]] = {}

    def live(self) -> Iterator[Known]:
        """Every live solution whose task is kept, in the order of task identities."""
        for solution in self.book.all_live():
            kept = self._kept(solution)
            if kept is not None:
                yield Known(kept, solution)

    def find(self, task_id: str) -> Known | None:
        """The live solution of exactly that task."""
        solution = self.book.live(task_id)
        kept = None if solution is None else self._kept(solution)
        return None if solution is None or kept is None else Known(kept, solution)

    def _kept(self, solution: Solution) -> KeptTask | None:
        kept = self.tasks.find(solution.task_id)
        return kept if kept is not None and kept.solution_id == solution.solution_id else None

    def keep(self, kept: KeptTask, solution: Solution, cancellation: Cancellation | None = None) -> Deposited:
        """Deposit a proven solution: the book's record, its task, its block.

        A block that does not fit into the context window, or is not exact on this model, is left out: the same task can
        still be answered, but nothing is transferred. Raises NotProven, also for a proof by another check than the
        task's; StoreFull.
        """
        if (solution.task_id, solution.proof.check_sha256) != (kept.task.task_id, kept.task.check_sha256):
            reason = "its proof is that of another task or of another check than the task's"
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
        """Retire a live solution whose task a crash has left unwritten: nobody can answer from it or check it."""
        lost = self.book.live(solution.task_id)
        if lost is not None and lost.solution_id != solution.solution_id:
            reason = "its task was not kept, so nobody could check it"
            self.book.retire(solution.task_id, reason, only=lost.solution_id)

    def block(self, known: Known, cancellation: Cancellation | None = None) -> str:
        """The name of its block; prefilled and stored now if this model has none yet, else it costs a hash."""
        text = block_text(known.kept.task, known.kept.parameters, known.solution)
        source = f"flywheel: task {known.kept.task.task_id}"
        self.memory.deposit_text(known.name, text, source=source, cancellation=cancellation)
        if known.can_transfer:
            self.classifier.deposit_card("", "")
            self.classifier.deposit_card(known.name, _description(known))
        return known.name

    def forget_block(self, name: str) -> None:
        """Remove the name, for every model; the blocks go with the next garbage collection."""
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
    """Retire a task's live solution and remove its block's name; without a model. Raises UnknownTask."""
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
