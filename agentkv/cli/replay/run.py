"""``agentkv replay run``: carries a sealed plan out, into a ledger."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from agentkv.cli import options
from agentkv.cli.evidence import common
from agentkv.cli.output import finish, tell
from agentkv.cli.replay.verify import failed, record_of, say_verdict

if TYPE_CHECKING:
    from agentkv.evidence.plan import Step


def run(
    plan: Annotated[Path, typer.Argument(metavar="PLAN", help="The sealed plan, as `agentkv replay plan` wrote it.")],
    ledger: common.LedgerFolder = None,
    again: Annotated[bool, typer.Option("--again", help="Begin anew, also if a run of it was broken off.")] = False,
    as_json: options.Json = False,
) -> None:
    """Carry a plan out and record it. A run that was broken off goes on; exit code 106 if the prediction fails."""
    from agentkv.evidence import plan as plans
    from agentkv.evidence import replay

    sealed = plans.load(plan)
    opened = common.open_ledger(ledger, there=False)

    def progress(step: Step, index: int, total: int) -> None:
        tell(f"step {index + 1} of {total}, {step.name}: agentkv {' '.join(step.arguments)}")

    verdict = replay.run(sealed, opened, progress=progress, again=again)
    result = {"plan": sealed.digest, "ledger": opened.folder, **record_of(verdict)}
    finish(result, as_json, lambda: say_verdict(verdict), failed(sealed.digest, [verdict]))
