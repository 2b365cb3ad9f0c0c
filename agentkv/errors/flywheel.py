"""Tasks, solutions, their proofs, and the sandbox."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path

from agentkv.errors.base import AgentKVError


class FlywheelError(AgentKVError):
    """Something about tasks, solutions and their proofs."""


class InvalidTask(FlywheelError):
    """A task that cannot be read or makes no sense: which file, which line, why."""

    exit_code = 110

    def __init__(self, path: Path | None, reason: str, line: int | None = None) -> None:
        at = "" if path is None else f"{path}: " if line is None else f"{path}:{line}: "
        super().__init__(f"{at}{reason}")
        self.path, self.reason, self.line = path, reason, line


class NotProven(FlywheelError):
    """The solution's proof record does not say "verified", or says it of something else."""

    exit_code = 111

    def __init__(self, task_id: str, verdict: str, reason: str) -> None:
        super().__init__(f"the solution of task {task_id[:12]} is {verdict}: {reason}. Nothing was stored.")
        self.task_id, self.verdict, self.reason = task_id, verdict, reason


class IsolationTooLow(FlywheelError):
    """The policy requires a level of isolation that is not available here; nothing was run."""

    exit_code = 112

    def __init__(self, reached: str, required: str, not_reached: Mapping[str, str]) -> None:
        why = "; ".join(f"{level}: {reason}" for level, reason in not_reached.items())
        super().__init__(
            f"a candidate can be isolated by {reached!r} here, the policy requires {required!r}"
            f"{f' ({why})' if why else ''}. Nothing was run. Install bubblewrap or allow user namespaces, or lower "
            "the policy if you trust the program."
        )
        self.reached, self.required, self.not_reached = reached, required, dict(not_reached)


class SandboxUnavailable(FlywheelError):
    """No process for a candidate can be started."""

    exit_code = 113

    def __init__(self, reason: str) -> None:
        super().__init__(f"no candidate can be run here: {reason}")
        self.reason = reason


class UnknownTask(FlywheelError):
    """The book keeps no live solution for the task, by its identity or by what its owner calls it."""

    exit_code = 114

    def __init__(self, task_id: str) -> None:
        shown = task_id[:12] if re.fullmatch("[0-9a-f]{64}", task_id) else repr(task_id[:80])
        super().__init__(f"no live solution is kept for task {shown}; `agentkv flywheel report` lists what there is")
        self.task_id = task_id


class EndpointFailed(FlywheelError):
    """A teacher's endpoint could not be reached, refused, or answered something that is not a chat completion.

    ``status``: the HTTP status, where there was one.
    """

    exit_code = 115

    def __init__(self, url: str, reason: str, status: int | None = None) -> None:
        super().__init__(f"the endpoint {url} failed: {reason}. What was learned before stays; run the command again.")
        self.url, self.reason, self.status = url, reason, status
