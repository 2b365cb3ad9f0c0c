"""What a sandbox promises and reports: levels of isolation, limits, the policy, the record of a run."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Annotated, Literal

from pydantic import Field

from agentkv.records import Record

Bytes = Annotated[int, Field(ge=1 << 12, le=1 << 40)]
Seconds = Annotated[float, Field(gt=0, le=86_400, allow_inf_nan=False)]


class Level(StrEnum):
    """How far a candidate is isolated, from least to most; the package's docstring says what each does not prevent.

    ``process``: a process of its own, watched and ended. ``limits``: and every limit binds, and no descendant is left;
    not reached by root where it cannot become another user, nor where ``/proc`` shows no ancestry (macOS).
    ``namespaces``: and no network, no sight of other processes, a read-only selection of files, a user of its own.
    ``bubblewrap``: the same, made by ``bwrap``, which many others use and review.
    """

    PROCESS = "process"
    LIMITS = "limits"
    NAMESPACES = "namespaces"
    BUBBLEWRAP = "bubblewrap"

    @property
    def rank(self) -> int:
        """0 for the least."""
        return list(Level).index(self)


class Isolation(Record):
    """What was in force in a run, as the launcher set it up. ``not_reached``: higher levels, and why not."""

    level: Level
    descendants: Literal["pid namespace", "sweep by ancestry", "process group"]
    network: Literal["none", "open"]
    files: Literal["read-only selection", "open"]
    identity: str
    system_calls: Literal["filtered", "all"]
    processes: str
    memory: str
    not_reached: dict[str, str] = Field(default_factory=dict)


class Limits(Record):
    """What a candidate may use; passing one ends it and all its descendants.

    ``wall_s``: from the start of the interpreter. ``cpu_s``: of all its processes together. ``memory_bytes``: address
    space a process, and resident memory of all together (seen every 50 ms). ``processes``: with threads.
    ``output_bytes``: standard output and error together. ``disk_bytes``: of its own folder, which is in memory;
    ``file_bytes``: of one file.
    """

    wall_s: Seconds = 10.0
    cpu_s: Seconds = 10.0
    memory_bytes: Bytes = 512 << 20
    processes: Annotated[int, Field(ge=1, le=4096)] = 16
    output_bytes: Bytes = 256 << 10
    answer_bytes: Bytes = 1 << 20
    file_bytes: Bytes = 16 << 20
    disk_bytes: Bytes = 64 << 20
    open_files: Annotated[int, Field(ge=16, le=4096)] = 64


class Policy(Record):
    """Which level is enough. ``run``: below it nothing is run. ``deposit``: below it no verdict is "verified"."""

    run: Level = Level.LIMITS
    deposit: Level = Level.NAMESPACES


class Ending(StrEnum):
    """Why a run ended: by itself (``exit``, ``signal``), or at the limit of that name."""

    EXIT = "exit"
    SIGNAL = "signal"
    TIMEOUT = "timeout"
    CPU = "cpu"
    MEMORY = "memory"
    PROCESSES = "processes"
    OUTPUT = "output"
    ANSWER = "answer"
    LOST = "lost"


@dataclass(frozen=True)
class Captured:
    """A stream's first and last bytes. ``total``: bytes that were read; ``truncated``: more came than are kept."""

    head: bytes
    tail: bytes
    total: int
    truncated: bool

    @property
    def text(self) -> str:
        """Head and tail as text, with a line between them where something is left out."""
        head = self.head.decode(errors="replace")
        return f"{head}\n[…]\n{self.tail.decode(errors='replace')}" if self.truncated else head


@dataclass(frozen=True)
class Run:
    """What one run did. ``stdout``, ``stderr`` and ``answer`` are untrusted; the rest is measured from outside.

    ``code``: exit status or signal number, None at a limit. ``answer``: bytes from the answer pipe, data only.
    ``wall_s``: from ready to the verdict; ``cpu_s``, ``max_rss_bytes``: of all processes that were waited for.
    ``survivors``: a process may be left (never with a pid namespace).
    """

    ending: Ending
    code: int | None
    stdout: Captured
    stderr: Captured
    answer: bytes
    wall_s: float
    cpu_s: float
    max_rss_bytes: int
    isolation: Isolation
    survivors: bool = False

    @property
    def truncated(self) -> bool:
        """Whether some of the output is not kept."""
        return self.stdout.truncated or self.stderr.truncated
