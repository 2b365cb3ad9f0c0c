"""What is recorded of every attempt (inputs, program, output, verdict, and the SHA-256 of each), and the figures of it.

Where a record goes is the recorder's matter: a run of :mod:`agentkv.evidence`, or nowhere. The scorer of
``agentkv learn``'s runs is registered when this module is imported; it reads recorded outcomes, without a model.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from agentkv.evidence.records import Item
from agentkv.evidence.scoring import scorer
from agentkv.flywheel import values
from agentkv.flywheel.solution import Program, Text
from agentkv.flywheel.solvers import Attempt
from agentkv.flywheel.task import Task
from agentkv.flywheel.transfer import Transferred
from agentkv.flywheel.verify import Verification
from agentkv.io.hashing import sha256
from agentkv.records import Turn


class Recorder(Protocol):
    """Where records go; :class:`agentkv.evidence.Run` is one."""

    def record(
        self,
        key: str,
        raw: Any,
        *,
        expected: Any = None,
        tokens: Mapping[str, int] | None = None,
        figures: Mapping[str, Any] | None = None,
    ) -> None:
        """Write one record."""
        ...


class NoRecorder:
    """Writes nothing."""

    def record(self, key: str, raw: Any, **_: Any) -> None:
        """See :class:`Recorder`."""


def attempt_record(task: Task, attempt: Attempt, found: Verification | None, answer: Any) -> dict[str, Any]:
    """A solver's attempt."""
    return {
        "task": task.task_id,
        "solver": attempt.provenance.solver,
        "seeds": list(attempt.provenance.seeds),
        "prompt": attempt.prompt,
        "generated": attempt.generated,
        **_run(attempt.candidate, found, answer, task.parameters),
    }


def transfer_record(done: Transferred) -> dict[str, Any]:
    """An attempt to adapt a solution."""
    return {
        "task": done.task.task_id,
        "prompt": done.task.prompt,
        "source": done.source.name,
        "solution": done.source.solution.solution_id,
        "way": done.way.value,
        "generated": None if done.turn is None else done.turn.text,
        **_run(done.program, done.verification, done.answer, done.task.parameters),
        "verdict": done.verdict.value,
        "reason": done.reason,
        "answered": done.answered,
    }


def _run(candidate: Program | Text | None, found: Verification | None, answer: Any, given: Mapping[str, Any]) -> Any:
    verdict = "no program" if found is None else found.proof.verdict.value
    reason = "" if found is None else found.proof.reason
    parameters = {**candidate.parameters, **given} if isinstance(candidate, Program) else {}
    text = None if candidate is None else candidate.source if isinstance(candidate, Program) else candidate.text
    return {
        "program": text,
        "parameters": parameters,
        "answer": answer,
        "verdict": verdict,
        "reason": reason,
        "sha256": {
            "inputs": _digest(parameters),
            "program": None if candidate is None else candidate.sha256,
            "output": _digest(answer),
            "verdict": _digest({"verdict": verdict, "reason": reason}),
        },
    }


def _digest(value: Any) -> str:
    return sha256(values.encode(value).encode())


def turn_tokens(turn: Turn | None) -> dict[str, int] | None:
    """A turn's tokens, for a record."""
    return None if turn is None else dict(turn.tokens.model_dump())


# --- figures --------------------------------------------------------------------------------------

LEARN = "flywheel learn"


def learned(rows: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Tasks by state, and what they cost."""
    return {
        "tasks": len(rows),
        "states": dict(sorted(Counter(row["state"] for row in rows).items())),
        "attempts": sum(row["attempts"] for row in rows),
        "tokens": sum(row["tokens"] for row in rows),
        "transferable": sum(bool(row["transferable"]) for row in rows),
    }


@scorer(LEARN, 1)
def _score(items: Sequence[Item]) -> dict[str, Any]:
    return learned([item.raw for item in items if item.key.startswith("outcome/")])
