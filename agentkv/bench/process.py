"""Runs one function in a new process, JSON in and JSON out.

A graft is only shown to survive a restart if another process does it. Progress lines pass through on stderr.
"""

from __future__ import annotations

import importlib
import json
import os
import subprocess
import sys
from collections.abc import Mapping
from typing import Any

from agentkv.errors import AgentKVError, WorkerFailed


def command(target: str) -> list[str]:
    """The command that runs ``module:function``, as ``f"{__name__}:work"``: payload on stdin, result on stdout."""
    return [sys.executable, "-m", "agentkv.bench.process", target]


def in_new_process(target: str, payload: dict[str, Any], environment: Mapping[str, str] | None = None) -> Any:
    """Call ``module:function`` with ``payload`` in a new interpreter; its JSON result.

    ``environment`` is laid over this process's own. Raises WorkerFailed.
    """
    done = subprocess.run(
        command(target),
        input=json.dumps(payload),
        stdout=subprocess.PIPE,
        text=True,
        check=False,
        env={**os.environ, **(environment or {})},
    )
    if done.returncode != 0:
        raise WorkerFailed(target, done.returncode)
    return json.loads(done.stdout)


def main() -> int:
    """Entry point of the new process."""
    module, _, function = sys.argv[1].partition(":")
    work = getattr(importlib.import_module(module), function)
    try:
        result = work(json.loads(sys.stdin.read()))
    except AgentKVError as error:
        sys.stderr.write(f"{error.message}\n")
        return error.exit_code
    sys.stdout.write(json.dumps(result))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
