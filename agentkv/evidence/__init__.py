"""Evidence that anybody can check: a hash-chained ledger of runs, scores computed anew, plans sealed before their runs.

```
ledger.py      Ledger, Run: with ledger.run(...) as run: run.record(...); run.verdict(...)
├── appending.py   durable lines, one process at a time; unfinished ones set aside
├── payloads.py    raw generations: in the line, in files, or kept out
├── code.py        version and source tree
└── records.py     what a line holds, its digest, its one spelling
verify.py      every fault of a ledger, with its place; what that shows and what not
└── anchors.py     what is published or signed, against a cut or re-made end
scoring.py     scorers by kind and version; scores without a model
replay.py      carry out a plan, judge it
├── plan.py        what will be run, and what has to come out
├── plans/         those that come along
└── machine.py     is there a GPU?
errors.py
```
FORMAT.md says what each byte means.
"""

from __future__ import annotations

from agentkv.evidence.ledger import Ledger, Run
from agentkv.evidence.records import Item
from agentkv.evidence.scoring import Score, score
from agentkv.evidence.verify import VerifyReport, verify

__all__ = ["Item", "Ledger", "Run", "Score", "VerifyReport", "score", "verify"]
