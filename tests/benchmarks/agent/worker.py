"""The process in which one arm lives until it is killed.

It answers on stdout, a line of JSON each, what it is asked on stdin: so its parent can kill it between two turns, as a
crash would, with nothing closed.
"""

from __future__ import annotations

import json
import sys
import time
from typing import Any

from agentkv.errors import AgentKVError
from tests.benchmarks.agent.arms import open_arm
from tests.benchmarks.agent.script import exchanges, messages


def main() -> int:
    """The process: a payload on the first line, then one request a line; a line of JSON for each, on stdout."""
    out, sys.stdout = sys.stdout, sys.stderr  # nothing else may write between the answers
    started = time.perf_counter()
    try:
        payload = json.loads(sys.stdin.readline())
        arm = open_arm(payload)
        _tell(out, {"open_ms": (time.perf_counter() - started) * 1e3})
        said = exchanges(payload["turns"])
        for line in sys.stdin:
            wanted = json.loads(line)
            row = arm.ask(messages(payload["manual"], said[: wanted["turn"]]), wanted["max_new"])
            _tell(out, {"turn": wanted["turn"], **row})
    except AgentKVError as error:
        sys.stderr.write(f"{error.message}\n")
        return error.exit_code
    return 0


def _tell(out: Any, row: dict[str, Any]) -> None:
    out.write(json.dumps(row) + "\n")
    out.flush()


if __name__ == "__main__":
    raise SystemExit(main())
