"""``agentkv evidence score``: a run's scores from its raw generations, with no model."""

from __future__ import annotations

import orjson

from agentkv.cli import options
from agentkv.cli.evidence import common
from agentkv.cli.output import finish, say
from agentkv.errors import AgentKVError


def score(run: common.RunId, ledger: common.LedgerFolder = None, as_json: options.Json = False) -> None:
    """Compute a run's scores anew and compare them with those reported. Exit code 103 if they differ."""
    from agentkv.bench.measured import load_scorers
    from agentkv.errors import ScoreMismatch
    from agentkv.evidence import score as compute

    load_scorers()
    opened = common.open_ledger(ledger)
    found = compute(opened, opened.find(run))
    failures: list[AgentKVError] = [ScoreMismatch(found.run, found.differences)] if found.differences else []
    result = {
        "run": found.run,
        "kind": found.kind,
        "version": found.version,
        "computed": found.computed,
        "reported": found.reported,
        "equal": None if found.reported is None else not found.differences,
        "differences": found.differences,
    }

    def show() -> None:
        say(orjson.dumps(found.computed, option=orjson.OPT_INDENT_2).decode())
        if found.reported is None:
            say(f"run {found.run} reported no scores")
        elif not found.differences:
            say(f"run {found.run}: equal to the scores reported, every figure")
        for difference in found.differences:
            say(difference)

    finish(result, as_json, show, failures)
