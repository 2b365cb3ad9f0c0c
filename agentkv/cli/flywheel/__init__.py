"""``agentkv flywheel``: what the flywheel has learned. (``agentkv learn`` and ``agentkv solve`` make it turn.)

common.py    options, and how a command opens the flywheel
learn.py solve.py report.py retire.py
"""

from __future__ import annotations

from agentkv.cli.command import App
from agentkv.cli.flywheel import report, retire

__all__ = ["app"]

app = App(no_args_is_help=True, help="What was learned: tasks, solutions, their proofs.")
app.command()(report.report)
app.command()(retire.retire)


@app.callback()
def _group() -> None:
    """What was learned: tasks, solutions, their proofs."""
