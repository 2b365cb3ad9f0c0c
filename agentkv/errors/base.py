"""What every error is, and those that belong to no room."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar, Self

if TYPE_CHECKING:
    from agentkv.records import Turn


class AgentKVError(Exception):
    """Base of all errors of this package; ``exit_code`` is what the command line ends with.

    ``turn``: an answer that was given before the error and could not be kept, or None.
    """

    exit_code: ClassVar[int] = 1
    turn: Turn | None = None

    def __init__(self, message: str) -> None:
        super().__init__(message)
        self.message = message

    def worded(self, message: str) -> Self:
        """This error, with a message that fits the place where it is reported."""
        self.message, self.args = message, (message,)
        return self


class UsageError(AgentKVError):
    """The request cannot be carried out as it was put."""

    exit_code = 2


class GuaranteeViolated(AgentKVError):
    """A benchmark measured the guarantee that it checks, and it did not hold."""

    exit_code = 60


class WorkerFailed(AgentKVError):
    """A benchmark's other process ended with an error of its own, which it has printed."""

    exit_code = 61

    def __init__(self, target: str, code: int) -> None:
        super().__init__(f"{target} ended with code {code} in its own process; its message is above")
        self.target, self.code = target, code


class NotConfirmed(AgentKVError):
    """Something would be removed that was not named, or that exists nowhere else, and nobody has confirmed it."""

    exit_code = 56

    def __init__(self, what: str, *, asked: bool) -> None:
        why = (
            "Nothing was removed." if asked else "Nothing was removed: pass --yes, or run it on a terminal to be asked."
        )
        super().__init__(f"this would remove {what}. {why}")
        self.what = what


class Interrupted(AgentKVError):
    """Stopped by Ctrl-C; everything committed before stays. ``counts``: of what was done, for a script."""

    exit_code = 130

    def __init__(
        self, message: str = "interrupted; what was committed before stays, nothing is half-written", **counts: int
    ) -> None:
        super().__init__(message)
        vars(self).update(counts)


class OpenedBeforeFork(AgentKVError):
    """Something of the parent process is used in a forked child."""

    exit_code = 28

    def __init__(self, what: str) -> None:
        super().__init__(
            f"the {what} was opened before this process was forked, and its threads stayed in the parent. Open it "
            "after the fork, and no model before it, in the worker's own start-up (gunicorn's post_fork, a "
            "multiprocessing initializer), or start workers with 'spawn'."
        )
        self.what = what


class NotPicklable(AgentKVError, TypeError):
    """Something that holds an open model or store was pickled; a TypeError too, as for whatever cannot be pickled."""

    exit_code = 27

    def __init__(self, what: str) -> None:
        super().__init__(
            f"{what} cannot be pickled: it holds an open model or store, with locks and files. Pass the store's folder "
            f"and the model's name to the other process, and open a new {what} there from them."
        )
        self.what = what


class BenchError(AgentKVError):
    """Something about results; nothing was measured or changed."""


class InvalidResult(BenchError):
    """The file is not a result, is of another benchmark, or has no such figure."""

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
