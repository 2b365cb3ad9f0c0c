"""Options of the flywheel's commands, and how they open it."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from agentkv.cli.output import printable

if TYPE_CHECKING:
    from agentkv.flywheel.journal import Recorder
    from agentkv.flywheel.loop import Flywheel
    from agentkv.flywheel.sandbox.base import Level
    from agentkv.flywheel.solvers import Solver
    from agentkv.memory import AgentMemory

_GATE = "Gate"
Samples = Annotated[
    int, typer.Option(metavar="N", min=1, rich_help_panel=_GATE, help="The model's own programs before help is asked.")
]
Agreement = Annotated[
    float, typer.Option(min=0, max=1, rich_help_panel=_GATE, help="Share of them that has to agree to be confident.")
]
Margin = Annotated[
    float | None,
    typer.Option(
        metavar="NATS",
        min=0,
        rich_help_panel=_GATE,
        show_default="agreement of programs",
        help="Instead: one direct answer, confident from this margin over the next best token on.",
    ),
]
MaxNew = Annotated[int, typer.Option(metavar="N", min=1, help="Most tokens of one program.")]
Seed = Annotated[int, typer.Option(min=0, help="Of the first sample; the others count on from it.")]
Isolation = Annotated[
    str,
    typer.Option(
        metavar="LEVEL", help="What a proof needs: limits, namespaces or bubblewrap. Below namespaces it can be forged."
    ),
]
LedgerFolder = Annotated[
    Path | None,
    typer.Option(
        "--ledger",
        metavar="DIR",
        envvar="AGENTKV_LEDGER",
        show_default="agentkv/ledger in the user's data folder",
        help="Where every attempt is recorded.",
    ),
]


def level(name: str) -> Level:
    """The isolation level of that name. Raises UsageError."""
    from agentkv.errors import UsageError
    from agentkv.flywheel.sandbox.base import Level

    known = [one.value for one in Level if one is not Level.PROCESS]
    if name not in known:
        raise UsageError(f"--isolation is one of {', '.join(known)}, not {name!r}")
    return Level(name)


def open_flywheel(
    memory: AgentMemory,
    recorder: Recorder,
    *,
    isolation: str,
    samples: int,
    agreement: float,
    max_new: int,
    seed: int,
    best_of: int = 0,
    budget: int = 4096,
    margin: float | None = None,
    solvers: tuple[Solver, ...] = (),
) -> Flywheel:
    """The flywheel of a command. ``best_of``: programs of the model's own beyond the gate's, 0 for none.

    ``margin``: of the gate by margin; None for the one by agreement.
    """
    from agentkv.flywheel.book import SolutionBook
    from agentkv.flywheel.gate import Gate
    from agentkv.flywheel.library import SolutionLibrary
    from agentkv.flywheel.loop import Flywheel
    from agentkv.flywheel.sandbox.base import Policy
    from agentkv.flywheel.sandbox.sandbox import Sandbox
    from agentkv.flywheel.solvers import BestOfN

    policy = Policy(deposit=level(isolation))
    sandbox = Sandbox(policy=policy)
    library = SolutionLibrary(memory, SolutionBook(memory.store.root, policy))
    base = BestOfN(memory, n=max(samples, best_of), budget=budget, max_new=max_new, seed=seed)
    gate = Gate(base, sandbox, samples=samples, agreement=agreement)
    if margin is not None:
        from agentkv.flywheel.margin import MarginGate

        gate = MarginGate(base, sandbox, samples=samples, agreement=agreement, memory=memory, margin=margin)
    mine: tuple[Solver, ...] = (base,) if best_of and (best_of > samples or margin is not None) else ()
    return Flywheel(library, sandbox, gate, (*mine, *solvers), recorder=recorder)


def shown(value: Any) -> str:
    """An answer for people."""
    from agentkv.flywheel import values

    return printable(value if isinstance(value, str) else values.encode(value))
