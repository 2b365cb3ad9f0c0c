"""``agentkv evidence``: what was run, and whether it is still what was recorded. No model is loaded.

list_.py     the runs of a ledger
show.py      one run: settings, code, verdicts, scores, raw generations
verify.py    every changed, missing, moved or forged record
score.py     a run's scores computed anew
head.py      the anchor to publish or sign
"""

from __future__ import annotations

from agentkv.cli.command import App
from agentkv.cli.evidence import head, list_, score, show, verify

app = App(help="A ledger of runs that anybody can check and score again.", no_args_is_help=True)
app.command("list")(list_.list_)
app.command()(show.show)
app.command()(verify.verify)
app.command()(score.score)
app.command()(head.head)
