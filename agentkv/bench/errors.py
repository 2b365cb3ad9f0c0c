"""What can be wrong with results of benchmarks; leaves of the tree in :mod:`agentkv.errors`.

AgentKVError
└── BenchError
    ├── InvalidResult         62   a file that is no result of a benchmark, or lacks the figure
    ├── DifferentRuns         63   figures of two runs were to be compared
    ├── PlotsUnavailable      64   matplotlib is not installed
    ├── ReadmeDiffers         65   the README's tables are not those of the result files
    ├── PackageUnavailable    66   a package of documents cannot be had or unpacked here
    └── WrongPackage          67   the package is not the pinned one
"""

from __future__ import annotations

from collections.abc import Sequence

from agentkv.errors import AgentKVError


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


class PlotsUnavailable(BenchError):
    """The extra ``plots`` is not installed."""

    exit_code = 64

    def __init__(self) -> None:
        super().__init__("plots need matplotlib. Run pip install 'agentkv-sdk[plots]'.")


class ReadmeDiffers(BenchError):
    """Tables between the README's markers that are not what the result files give."""

    exit_code = 65

    def __init__(self, path: str, tables: Sequence[str]) -> None:
        super().__init__(
            f"{path}: {', '.join(tables)}: not what the result files give. Run `python -m tests.benchmarks readme`."
        )
        self.path, self.tables = path, list(tables)


class PackageUnavailable(BenchError):
    """A Debian package cannot be downloaded or unpacked here."""

    exit_code = 66

    def __init__(self, name: str, reason: str) -> None:
        super().__init__(f"package {name}: {reason}. --folder DIR takes documents of your own.")
        self.name, self.reason = name, reason


class WrongPackage(BenchError):
    """The package that was downloaded is not the pinned one; digests are SHA-256 of the ``.deb`` file."""

    exit_code = 67

    def __init__(self, name: str, expected: str, found: str) -> None:
        super().__init__(
            f"package {name}: the file has SHA-256 {found[:12]}, not {expected[:12]}. --any-version takes it as it is."
        )
        self.name, self.expected, self.found = name, expected, found
