"""Errors of the research benchmarks."""

from __future__ import annotations

from collections.abc import Sequence

from agentkv.errors import BenchError


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
