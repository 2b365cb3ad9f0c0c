"""A function in a process of its own that gets SIGKILL some time after its work has begun."""

from __future__ import annotations

import contextlib
import json
import signal
import subprocess
from typing import Any

from agentkv.bench.process import command
from agentkv.bench.results import say
from agentkv.errors import WorkerFailed

_BEGUN = "begun"


def begin() -> None:
    """Called there once all is open: from now on the time until the kill counts."""
    say(_BEGUN)


def run_or_kill(target: str, payload: dict[str, Any], delay: float | None) -> dict[str, Any] | None:
    """What ``module:function`` gives for ``payload``, or None if it was killed ``delay`` seconds after its beginning.

    It may be done before; with no ``delay`` it always is. Raises WorkerFailed.
    """
    pipe = subprocess.PIPE
    with subprocess.Popen(command(target), stdin=pipe, stdout=pipe, stderr=pipe, text=True) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdin.write(json.dumps(payload))
        process.stdin.close()
        lines = []
        for line in process.stderr:
            lines.append(line)
            if line.strip() == _BEGUN:
                break
        if delay is not None:
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(delay)
            process.send_signal(signal.SIGKILL)
        result = process.stdout.read()
        lines.append(process.stderr.read())
    if process.returncode == -signal.SIGKILL:
        return None
    if process.returncode != 0:
        say("".join(lines))
        raise WorkerFailed(target, process.returncode)
    report: dict[str, Any] = json.loads(result)
    return report
