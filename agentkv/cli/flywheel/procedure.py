"""``agentkv learn --procedure``: does this text make the model better at these tasks?"""

from __future__ import annotations

from typing import TYPE_CHECKING

from agentkv.cli.output import print_json, say
from agentkv.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from agentkv.engine.base import Cancellation
    from agentkv.evidence import Ledger
    from agentkv.flywheel.task import Task
    from agentkv.memory.memory import AgentMemory

KIND = "flywheel procedure"


def try_procedure(
    memory: AgentMemory,
    tasks: Sequence[Task],
    path: Path,
    ledger: Ledger,
    max_new: int,
    cancellation: Cancellation,
    as_json: bool,
) -> None:
    """Try the text of ``path``, keep it or not, and say why."""
    from agentkv.flywheel.gate import ProcedureTrial

    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"cannot read {path}: {error}") from error
    inputs: dict[str, bytes | Path | str] = {"procedure": path, "model": memory.engine.info.sha256}
    with ledger.run(
        KIND, settings={"max_new": max_new, "tasks": [task.task_id for task in tasks]}, inputs=inputs
    ) as run:
        trial = ProcedureTrial(memory, run, max_new)
        found = trial.try_text(path.stem, text, tasks, cancellation=cancellation)
        run.verdict("kept", found.keeps, found.reason)
    if as_json:
        print_json({"run": run.id, "name": path.stem, "kept": found.keeps, "reason": found.reason, **found.plain()})
    else:
        say(f"{path.stem}: {'kept' if found.keeps else 'not kept'}: {found.reason}")
