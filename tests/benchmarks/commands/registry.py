"""Every benchmark, and the arguments of its small size. A new benchmark adds a line here.

The small sizes together took 14 minutes on two cores, with the default model, and must not take more than 15; the full
ones are the commands' defaults. The order is the order in which they run: what needs no model comes first.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tests.benchmarks.every import Job


@dataclass(frozen=True)
class Given:
    """What all benchmarks are given. ``problems``: a file of hard problems, which does not come along."""

    model: str
    threads: int | None = None
    problems: str | None = None
    work: str = ""


@dataclass(frozen=True)
class Benchmark:
    """``command``: its name; ``small`` and ``full``: its arguments; ``model``: whether it takes one."""

    name: str
    command: str
    small: tuple[str, ...] = ("--small",)
    full: tuple[str, ...] = ()
    model: bool = True
    threads: bool = True
    needs: Callable[[Given], str | None] = lambda given: None
    more: Callable[[Given], tuple[str, ...]] = lambda given: ()


def _no_problems(given: Given) -> str | None:
    return None if given.problems else "the problems do not come with this project; --problems FILE has them"


def _aime(given: Given) -> tuple[str, ...]:
    places = ("--store", f"{given.work}/aime-store", "--ledger", f"{given.work}/aime-ledger")
    return (given.problems or "", *places)


def _folder(name: str) -> Callable[[Given], tuple[str, ...]]:
    """A work folder of its own, where a benchmark keeps packages and what it has done."""
    return lambda given: ("--work", f"{given.work}/{name}")


def _no_packages(given: Given) -> str | None:
    there = all(shutil.which(command) for command in ("apt-get", "dpkg-deb"))
    return None if there else "the documents are Debian's packages, and there is no apt-get or dpkg-deb here"


def _part(name: str) -> tuple[str, ...]:
    return ("--part", name)


def _arms(*names: str) -> tuple[str, ...]:
    """Arms that need no environment of their own; pip takes minutes for the others."""
    return tuple(word for name in names for word in ("--arm", name))


BENCHMARKS = (
    Benchmark("integrity", "integrity", model=False, threads=False),
    Benchmark("catalogue", "catalogue", model=False, threads=False),
    Benchmark("architectures", "architectures", model=False, threads=False),
    Benchmark("exactness", "exactness"),
    Benchmark("subsidy", "subsidy"),
    Benchmark("size", "size"),
    Benchmark("restore", "restore"),
    Benchmark("portability", "portability"),
    Benchmark("answers", "answers"),
    Benchmark("route", "route"),
    Benchmark("agent-conversation", "agent", (*_part("conversation"), "--small"), _part("conversation")),
    Benchmark("agent-secrets", "agent", (*_part("secrets"), "--small"), _part("secrets")),
    Benchmark("agent-threads", "agent", (*_part("threads"), "--small"), _part("threads")),
    Benchmark("families", "families"),
    Benchmark("interference", "interference"),
    Benchmark("negatives", "negatives"),
    Benchmark("variants", "variants"),
    Benchmark("aime", "aime", needs=_no_problems, more=_aime),
    Benchmark("arrangements", "arrangements"),
    Benchmark("compose", "compose"),
    Benchmark("reread", "reread"),
    Benchmark("interrupt", "interrupt"),
    Benchmark("migration", "migration"),
    Benchmark("widen", "widen", needs=_no_packages, more=_folder("widen")),
    Benchmark("needles", "needles", needs=_no_packages, more=_folder("widen")),
    Benchmark("depth", "depth", needs=_no_packages, more=_folder("widen")),
    Benchmark("questions", "questions", needs=_no_packages, more=_folder("questions")),
    Benchmark("peers", "peers", ("--small", "--no-faults", *_arms("agentkv", "save-state")), more=_folder("peers")),
)


def jobs(given: Given, *, small: bool, only: tuple[str, ...] = ()) -> list[Job]:
    """The jobs of every benchmark, or of ``only`` those."""
    from tests.benchmarks.every import Job

    found = []
    for one in BENCHMARKS:
        if only and one.name not in only:
            continue
        model = ("--model", given.model) if one.model else ()
        threads = ("--threads", str(given.threads)) if one.threads and given.threads is not None else ()
        size = one.small if small else one.full
        found.append(Job(one.name, (one.command, *one.more(given), *size, *model, *threads), one.needs(given)))
    return found
