"""The verified-knowledge flywheel: what was found once, and proven by running it, is not derived again.

```
task.py          what is asked, and how it is checked; files of tasks
├── values.py        strict JSON, compared by type and value
solution.py      candidates, provenance, proof records
verify.py        a task and a candidate in, a proof out; checks, and stubs that must not pass
├── program.py       one call of a program in a process of its own; is it a method or a constant?
│   ├── harness.py       … runs there to call it
│   └── inspector.py     … runs there to look at its text
book.py          what is live for each task, what was, and the tasks
└── files.py         … their files

loop.py          learn a task; solve a task                               what commands use
├── gate.py          does the model lack it? does a text help it?
├── solvers.py       who proposes candidates: the model, a file, an endpoint
│   └── source.py        … the program in a reply
├── library.py       the blocks of live solutions, routed among themselves
├── transfer.py      the very task again; another task, by a solution's program
│   └── slots.py         … its parameters, bound to what the text mentions
└── journal.py       what is recorded of each attempt, and the figures of a run
```
Why a verdict can be believed: a candidate runs in a process that holds its parameters and nothing else; each check has
a fresh one. It can send a value, by ``return`` or otherwise, and that is all that it can do. What was asked, how many
checks there are, what is expected, and whether it was met is known and decided in the parent alone, after the last
check. A program that ends early, leaves, crashes, floods or sends two answers has not answered.

Why it cannot always be believed: a check is as good as its cases. A program that knows the answers of all cases passes
them. Constants of the task in its text are marked, and a check that a stub passes is called vacuous; a table of the
right answers, made to look computed, is not found by either.

:meth:`Flywheel.of` makes one in a memory's store; ``examples/07_flywheel.py`` uses it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from agentkv._lazy import lazily

if TYPE_CHECKING:
    from agentkv.flywheel.loop import Answered, Flywheel, Learned
    from agentkv.flywheel.solvers import BestOfN, FromFile, SelfRepair
    from agentkv.flywheel.task import Task, Truth

# Nothing is imported before it is asked for: a store's own records and the errors' codes need none of it.
_HOMES = {
    "Answered": "loop",
    "BestOfN": "solvers",
    "Flywheel": "loop",
    "FromFile": "solvers",
    "Learned": "loop",
    "SelfRepair": "solvers",
    "Task": "task",
    "Truth": "task",
}

__all__ = [
    "Answered",
    "BestOfN",
    "Flywheel",
    "FromFile",
    "Learned",
    "SelfRepair",
    "Task",
    "Truth",
]

__getattr__, __dir__ = lazily(__name__, _HOMES, __all__)
