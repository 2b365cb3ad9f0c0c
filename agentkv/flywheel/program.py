"""Calling a program once, in a process of its own, and what came of it.

Knows the sandbox and the two scripts that run in it. Refuses to know which answer is right. The answer is a value
that the program's process sent: it may have been sent by other means than ``return``, but it is this program's answer
to these parameters and to nothing else, because nothing else was in that process.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from agentkv.flywheel import values
from agentkv.flywheel.solution import Program, Verdict
from agentkv.io.hashing import sha256
from agentkv.sandbox.base import Ending, Limits, Run
from agentkv.sandbox.sandbox import Sandbox

_TIMES = (Ending.TIMEOUT, Ending.CPU)
_AT_LIMIT = {
    Ending.TIMEOUT: "did not end within {0.wall_s:g} s",
    Ending.CPU: "used more than {0.cpu_s:g} s of CPU",
    Ending.MEMORY: "used more than {0.memory_bytes:,} bytes of memory",
    Ending.PROCESSES: "had more than {0.processes} processes and threads",
    Ending.OUTPUT: "printed more than {0.output_bytes:,} bytes",
    Ending.ANSWER: "answered with more than {0.answer_bytes:,} bytes",
}


@dataclass(frozen=True)
class Outcome:
    """What one call came to. ``answered``: ``value`` is an answer; else ``verdict`` and ``reason`` say why not.

    ``traceback``: what the program's process says of its error, for showing it to whoever repairs it; "" if nothing.
    """

    answered: bool
    value: Any
    verdict: Verdict
    reason: str
    traceback: str
    run: Run
    inputs_sha256: str
    output_sha256: str | None


@cache
def _script(name: str) -> str:
    return (Path(__file__).parent / name).read_text(encoding="utf-8")


def call(sandbox: Sandbox, program: Program, parameters: dict[str, Any], limits: Limits | None = None) -> Outcome:
    """Run ``solve`` once with the program's and these parameters. Raises IsolationTooLow, SandboxUnavailable."""
    limits = limits or sandbox.limits
    given = {**program.parameters, **parameters}
    request = values.encode({"source": program.source, "parameters": given})
    run = sandbox.run(_script("harness.py"), request.encode(), limits=limits)
    inputs = sha256(values.encode(given).encode())
    answered, value, verdict, reason, traceback = _read(run, limits)
    output = sha256(values.encode(value).encode()) if answered else None
    return Outcome(answered, value, verdict, reason, traceback, run, inputs, output)


def _read(run: Run, limits: Limits) -> tuple[bool, Any, Verdict, str, str]:
    def no(verdict: Verdict, reason: str, traceback: str = "") -> tuple[bool, Any, Verdict, str, str]:
        return False, None, verdict, reason, traceback

    if run.ending is Ending.LOST:
        return no(Verdict.ERROR, "the sandbox lost the process")
    if run.survivors and run.ending not in _TIMES:
        return no(Verdict.ERROR, "a process of the candidate's may be left, and may yet do what it likes")
    if run.ending in _AT_LIMIT:
        why = _AT_LIMIT[run.ending].format(limits)
        return no(Verdict.TIMEOUT if run.ending in _TIMES else Verdict.FAILED, f"the program {why}")
    if run.ending is not Ending.EXIT or run.code != 0:
        how = f"signal {run.code}" if run.ending is Ending.SIGNAL else f"exit status {run.code}"
        return no(Verdict.FAILED, f"the program ended with {how} and gave no answer", run.stderr.text[-6000:])
    if not run.answer:
        return no(Verdict.FAILED, "the program ended with exit status 0 and gave no answer")
    try:
        message = values.decode(run.answer.removesuffix(b"\n"))
    except ValueError as error:
        return no(Verdict.FAILED, f"the answer is no value: {error}")
    if isinstance(message, dict) and message.keys() == {"value"}:
        return True, message["value"], Verdict.UNVERIFIED, "", ""
    raised = message.get("error") if isinstance(message, dict) else None
    if isinstance(raised, dict):
        shown = f"{raised.get('type')}: {raised.get('message')}"[:1000]
        return no(Verdict.FAILED, f"the program raised {shown}", str(raised.get("traceback", ""))[-6000:])
    return no(Verdict.FAILED, "what came through the answer pipe is no answer")


@dataclass(frozen=True)
class Look:
    """What a program's text holds. ``error``: why it could not be read, else "". ``literals``: value and line."""

    error: str
    has_solve: bool
    parameters: dict[str, Any]
    literals: list[tuple[Any, int]]


def look(sandbox: Sandbox, program: Program) -> Look:
    """Parse the program without running any of it, in a process of its own."""
    run = sandbox.run(_script("inspector.py"), program.source.encode(), limits=Limits())
    try:
        found = values.decode(run.answer)
        if "error" in found:
            return Look(str(found["error"]), False, {}, [])
        literals = [(value, line) for value, line in found["literals"]]
        return Look("", bool(found["solve"]), found["parameters"], literals)
    except (ValueError, KeyError, TypeError) as error:
        return Look(f"its text could not be looked at: {run.ending} {run.code}, {error}", False, {}, [])
