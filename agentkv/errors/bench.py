"""Results of self-checks."""

from __future__ import annotations

from agentkv.errors.base import AgentKVError


class BenchError(AgentKVError):
    """Something about results; nothing was measured or changed."""


class InvalidResult(BenchError):
    """The file is no result, is of another benchmark, or has no such figure."""

    exit_code = 62

    def __init__(self, where: str, reason: str) -> None:
        super().__init__(f"{where}: {reason}. `agentkv bench NAME --out FILE` writes results.")
        self.where, self.reason = where, reason


class DifferentRuns(BenchError):
    """Two figures of different runs; ``first`` and ``second`` say which."""

    exit_code = 63

    def __init__(self, first: str, second: str) -> None:
        super().__init__(
            f"{first} and {second} are of different runs: another load, build or input may be all that differs. "
            "Measure both in one run."
        )
        self.first, self.second = first, second
