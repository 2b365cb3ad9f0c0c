"""Evidence that anybody can check: a hash-chained ledger of runs, recomputed scores, plans sealed before their runs.

```
ledger.py      Ledger, Run: with ledger.run(...) as run: run.record(...); run.verdict(...)
├── files.py       durable lines, one process at a time; raw generations in the line, in files, or left out
├── environment.py version and source tree; the machine and its GPU
└── records.py     what a line holds, its digest, its canonical form
verify.py      every fault of a ledger, with its place; what that shows and what not
└── anchors.py     published or signed anchors, against a cut or rewritten end
scoring.py     scorers by kind and version; scores without a model
replay.py      carry out a plan, judge it
├── plan.py        what will be run, and which results are required
└── plans/         the plans shipped with the package
```
FORMAT.md says what each byte means.
"""

from __future__ import annotations

from agentkv.evidence.ledger import Ledger, Run
from agentkv.evidence.records import Item
from agentkv.evidence.scoring import Score, score
from agentkv.evidence.verify import VerifyReport, verify

__all__ = ["Item", "Ledger", "Run", "Score", "VerifyReport", "score", "verify"]
