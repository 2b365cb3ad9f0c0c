"""``agentkv replay``: say first what will come out, then run it, then compare.

plan.py      seal what will be run, on which code and models, and what has to come out
run.py       carry a plan out, into a ledger
verify.py    pass or fail, against the plan
"""

from __future__ import annotations

from agentkv.cli.command import App
from agentkv.cli.replay import plan, run, verify

app = App(help="Pre-registered runs: plan, carry out, judge.", no_args_is_help=True)
app.command()(plan.plan)
app.command()(run.run)
app.command()(verify.verify)
