"""Runs benchmarks one after another, each in a process of its own, and goes on where it was stopped.

Never two models at once: a process is awaited before the next begins. What a finished benchmark gave is kept in the
work folder under a key over its arguments and this package's source tree, and is not run again; one that ended with an
error, or whose data was not to be had, is. What any of them measures is in its file, not here.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import orjson

from agentkv.errors import GuaranteeViolated
from agentkv.evidence import environment as source
from agentkv.io import fsio
from agentkv.io.hashing import tagged_digest
from tests.benchmarks.errors import PackageUnavailable, WrongPackage

HOLDS, FAILS, SKIPPED, BROKEN = "holds", "does not hold", "skipped", "broken"
_RESULT_CODES = {0: HOLDS, GuaranteeViolated.exit_code: FAILS}
_MISSING = {PackageUnavailable.exit_code, WrongPackage.exit_code}
"""Exit codes of a benchmark whose optional data cannot be had here."""
_LIMIT = 1 << 20
_PATIENCE_S = 20.0
"""How long a benchmark that is stopped may take to end by itself."""


@dataclass(frozen=True)
class Job:
    """One benchmark. ``arguments``: its command's, without ``--out``; ``skip``: why it is not run, if it is not."""

    name: str
    arguments: tuple[str, ...]
    skip: str | None = None


@dataclass(frozen=True)
class Outcome:
    """How a job ended. ``code`` is None where it was skipped; ``result`` the file with its figures."""

    name: str
    verdict: str
    code: int | None
    seconds: float
    reason: str | None
    result: str | None


def run(
    jobs: Sequence[Job],
    work: Path,
    *,
    tell: Callable[[str], None] = lambda line: None,
    progress: Callable[[str], None] = lambda line: None,
    command: Sequence[str] = (sys.executable, "-m", "tests.benchmarks"),
) -> list[Outcome]:
    """Every job in turn. ``tell`` gets a line before and after each, ``progress`` what the job itself says.

    Raises StoreReadError or StoreFull if the work folder cannot be used.
    """
    tree = source.source_code().tree_sha256
    outcomes = []
    for number, job in enumerate(jobs, 1):
        place = f"{number} of {len(jobs)}, {job.name}"
        key = tagged_digest("bench-job/1", [tree, list(job.arguments)])
        done = _kept(work, job, key)
        if job.skip is not None:
            done = Outcome(job.name, SKIPPED, None, 0.0, job.skip, None)
        elif done is None:
            tell(f"{place}: python -m tests.benchmarks {' '.join(job.arguments)}")
            done = _run(job, work, command, progress)
            if done.result is not None:
                record = orjson.dumps({"key": key, **asdict(done)}, option=orjson.OPT_INDENT_2)
                fsio.write_durably(_record(work, job), [record])
        tell(f"{place}: {done.verdict}" + (f" ({done.reason})" if done.reason else ""))
        outcomes.append(done)
    return outcomes


def _run(job: Job, work: Path, command: Sequence[str], progress: Callable[[str], None]) -> Outcome:
    work.mkdir(parents=True, exist_ok=True)
    out = work / f"{job.name}.json"
    out.unlink(missing_ok=True)
    started, last = time.perf_counter(), ""
    line = [*command, *job.arguments, "--out", str(out)]
    with _process(line) as process:
        assert process.stderr is not None
        for text in process.stderr:
            progress(text.rstrip("\n"))
            last = text.strip() or last
        code = process.wait()
    seconds = round(time.perf_counter() - started, 1)
    verdict = _RESULT_CODES.get(code, BROKEN) if out.exists() else BROKEN
    skipped = _skipped(out) if verdict == HOLDS else None
    if skipped is not None:
        return Outcome(job.name, SKIPPED, code, seconds, skipped, None)
    reason = None if verdict == HOLDS else last.removeprefix("error: ")
    if code in _MISSING:
        return Outcome(job.name, SKIPPED, code, seconds, reason, None)
    return Outcome(job.name, verdict, code, seconds, reason, None if verdict == BROKEN else out.name)


@contextlib.contextmanager
def _process(line: Sequence[str]) -> Iterator[subprocess.Popen[str]]:
    """The process, in a group of its own: neither it nor a process that it started outlives this block."""
    nothing, pipe = subprocess.DEVNULL, subprocess.PIPE
    process = subprocess.Popen(line, stdin=nothing, stdout=nothing, stderr=pipe, text=True, start_new_session=True)
    try:
        yield process
    finally:
        if process.poll() is None:
            _stop(process)
        if process.stderr is not None:
            process.stderr.close()


def _stop(process: subprocess.Popen[str]) -> None:
    """End the whole group, first as Ctrl-C would, so that what is committed stays and the rest is cleaned up."""
    for sign in (signal.SIGINT, signal.SIGKILL):
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, sign)
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(_PATIENCE_S)
            return


def _skipped(out: Path) -> str | None:
    """Why a benchmark measured nothing, if it says so."""
    found = orjson.loads(out.read_bytes()).get("skipped")
    return found if isinstance(found, str) else None


def _record(work: Path, job: Job) -> Path:
    return work / "done" / f"{job.name}.json"


def _kept(work: Path, job: Job, key: str) -> Outcome | None:
    data = fsio.read_regular(_record(work, job), _LIMIT)
    if data is None:
        return None
    try:
        found = orjson.loads(data)
        if found.pop("key") != key:
            return None
        done = Outcome(**found)
    except (orjson.JSONDecodeError, KeyError, TypeError, AttributeError):
        return None  # half written or of another version: it is run again
    return done if done.result is not None and (work / done.result).exists() else None
