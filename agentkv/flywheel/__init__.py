"""The verified-knowledge flywheel: what was found out once, and proven by running it, is not derived again.

```
task.py          what is asked, and how it is checked                     files of tasks
solution.py      candidates, provenance, proof records
verify.py        a task and a candidate in, a proof out
├── checks.py        verifiers behind one protocol; stubs that must not pass
├── program.py       one call of a program, in a process of its own
│   ├── harness.py       … what runs there to call it
│   └── inspector.py     … what runs there to look at its text
├── values.py        strict JSON, compared by type and value
└── sandbox/         the process: limits, isolation, and what is not prevented
parametric.py    is a program a method, or its task's answer in other words?
book.py          what is live for each task, and all that was
kept.py          the tasks of solutions
└── sealed.py        … how both lie in their files

loop.py          learn a task; solve a task                               what commands use
├── gate.py          does the model lack it?
│   └── margin.py        … by the margin of one direct answer, which costs less
├── solvers.py       who proposes candidates: the model, a file
│   ├── endpoint.py      … a teacher behind an OpenAI-compatible endpoint
│   └── source.py        … the program in what was said
│       └── code.py          … the code in it, as Markdown or Python marks it
├── library.py       the blocks of live solutions, routed among themselves
│   └── blocktext.py     … what a model reads in them
├── recurrence.py    the very task again
├── transfer.py      another task, by a solution's program
│   ├── slots.py         … its parameters, bound to what the text mentions
│   └── mentions.py      … numbers, words, quotations, lists of a text
├── journal.py       what is recorded of each attempt
└── scores.py        a run's figures from its records
procedure.py     does a text make the model better?
errors.py        exit codes 110 to 119
```
Why a verdict can be believed: a candidate runs in a process that holds its parameters and nothing else; each check has
a fresh one. It can send a value, by ``return`` or otherwise, and that is all that it can do. What was asked, how many
checks there are, what is expected, and whether it was met is known and decided in the parent alone, after the last
check. A program that ends early, leaves, crashes, floods or sends two answers has not answered.

Why it cannot always be believed: a check is as good as its cases. A program that knows the answers of all cases passes
them; :mod:`~agentkv.flywheel.parametric` marks constants of the task in its text, and a check that a stub passes is
called vacuous, but a table of the right answers, made to look computed, is not found by either.

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
