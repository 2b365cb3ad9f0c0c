"""Programs: one call in a process of its own, a look at the text, and whether it is a method or a constant answer.

:func:`call` returns the value that the program's process sent. It may have been sent by other means than ``return``,
but it is this program's answer to these parameters, because nothing else was in that process. :func:`look` parses the
text there without running any of it.

:func:`examine` perturbs parameters and compares constants. A parameter counts as used if another value of it gives
another answer. A constant counts as hard-coded if it is in the program outside its parameters, and in the prompt too,
or is the answer. 0, 1, 2 and -1 are in every program and are let pass: so a small constant can be missed, and one that
is there by chance can be marked.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction
from functools import cache
from pathlib import Path
from typing import Any

from agentkv.flywheel import values
from agentkv.flywheel.solution import HardCoded, ParameterUse, Parametric, Program, Verdict
from agentkv.flywheel.task import Task
from agentkv.flywheel.values import same
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
    """What one call gave: ``value`` if ``answered``, else ``verdict`` and ``reason``.

    ``traceback``: of the program's error, as its own process reports it, for repair; "" if there is none.
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
        return no(Verdict.FAILED, f"the answer is not a value: {error}")
    if isinstance(message, dict) and message.keys() == {"value"}:
        return True, message["value"], Verdict.UNVERIFIED, "", ""
    raised = message.get("error") if isinstance(message, dict) else None
    if isinstance(raised, dict):
        shown = f"{raised.get('type')}: {raised.get('message')}"[:1000]
        return no(Verdict.FAILED, f"the program raised {shown}", str(raised.get("traceback", ""))[-6000:])
    return no(Verdict.FAILED, "what came through the answer pipe is not an answer")


@dataclass(frozen=True)
class Look:
    """A program's text, parsed. ``error``: why it cannot be, else "". ``literals``: pairs of value and line."""

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
        return Look(f"its text could not be parsed: {run.ending} {run.code}, {error}", False, {}, [])


# --- a method or a constant answer? ---------------------------------------------------------------

_NUMBER = re.compile(r"(?<![\w.])\d{1,3}(?:,\d{3})+(?:\.\d+)?(?!\w)|(?<![\w.])\d+(?:\.\d+)?(?![\w])")
_COMMON = {Fraction(-1), Fraction(0), Fraction(1), Fraction(2)}
_MIN_TEXT = 3
_MAX_PARAMETERS = 32


def examine(sandbox: Sandbox, program: Program, task: Task, limits: Limits | None = None) -> Parametric:
    """Parse the program and run it with one parameter changed at a time, at most four times for each.

    Raises IsolationTooLow, SandboxUnavailable.
    """
    seen = look(sandbox, program)
    if seen.error:
        return Parametric(parameters=(), hard_coded=(), reason=f"the program's text cannot be read: {seen.error}")
    given = {**seen.parameters, **program.parameters, **task.parameters}
    original = call(sandbox, program, given, limits)
    if not original.answered:
        constants = tuple(_hard_coded(seen, task, given, None))
        return Parametric(parameters=(), hard_coded=constants, reason=f"it gives no answer: {original.reason}"[:4000])
    uses = [_use(sandbox, program, given, name, original.value, limits) for name in list(given)[:_MAX_PARAMETERS]]
    constants = tuple(_hard_coded(seen, task, given, original.value))
    reason = "" if given else "it has no parameters"
    return Parametric(parameters=tuple(uses), hard_coded=constants, reason=reason)


def _use(
    sandbox: Sandbox, program: Program, given: dict[str, Any], name: str, answer: Any, limits: Limits | None
) -> ParameterUse:
    tried = answered = 0
    for other in perturbed(given[name]):
        tried += 1
        outcome = call(sandbox, program, {**given, name: other}, limits)
        answered += outcome.answered
        if outcome.answered and not same(outcome.value, answer):
            return ParameterUse(name=name, use="used", tried=tried)
    return ParameterUse(name=name, use="ignored" if answered else "unknown", tried=tried)


def perturbed(value: Any) -> list[Any]:
    """Other values of the same kind, at most four; none for None and for what is empty."""
    if type(value) is bool:
        return [not value]
    if type(value) is int:
        return [value + 1, value + 7, 2 * value + 3, max(value - 1, 0)]
    if type(value) is float:
        return [value + 1.0, value * 1.5 + 0.25, value / 2]
    if type(value) is str:
        return list(_other_texts(value))[:4]
    if type(value) is list:
        return list(_other_lists(value))[:4]
    if type(value) is dict and value:
        first = next(iter(value))
        return [{**value, first: other} for other in perturbed(value[first])][:4]
    return []


def _other_texts(text: str) -> Iterator[str]:
    digits = [match.start() for match in re.finditer(r"\d", text)]
    for at in dict.fromkeys(digits[-1:] + digits[:1]):
        yield text[:at] + str((int(text[at]) + 1) % 10) + text[at + 1 :]
    if text:
        yield text + text[-1]
        yield text[:-1]
        yield text + text


def _other_lists(items: list[Any]) -> Iterator[list[Any]]:
    if not items:
        return
    for other in perturbed(items[0])[:2]:
        yield [other, *items[1:]]
    if len(items) > 1:
        yield items[:-1]
        yield [items[1], items[0], *items[2:]]


# --- constants ------------------------------------------------------------------------------------


def _hard_coded(seen: Look, task: Task, given: dict[str, Any], answer: Any) -> Iterator[HardCoded]:
    in_prompt = {Fraction(match[0].replace(",", "")) for match in _NUMBER.finditer(task.prompt)}
    parameters = list(_leaves(given))
    answers = list(_leaves(answer))
    for value, line in seen.literals:
        if any(_equal(value, known) for known in answers) and not _is_common(value):
            yield HardCoded(value=value, line=line, of="answer")
        elif any(_equal(value, known) for known in parameters) and not _is_common(value):
            yield HardCoded(value=value, line=line, of="parameter")
        elif _stands_in(value, task.prompt, in_prompt):
            yield HardCoded(value=value, line=line, of="prompt")


def _leaves(value: Any) -> Iterator[Any]:
    if type(value) is list:
        for item in value:
            yield from _leaves(item)
    elif type(value) is dict:
        for item in value.values():
            yield from _leaves(item)
    elif type(value) in (int, float, str):
        yield value


def _equal(a: Any, b: Any) -> bool:
    return bool(a == b) and (type(a) is str) == (type(b) is str)


def _is_common(value: Any) -> bool:
    return len(value) < _MIN_TEXT if type(value) is str else Fraction(value) in _COMMON


def _stands_in(value: Any, prompt: str, numbers: set[Fraction]) -> bool:
    if _is_common(value):
        return False
    if type(value) is str:
        return bool(re.search(rf"(?<!\w){re.escape(value.strip())}(?!\w)", prompt)) if value.strip() else False
    return Fraction(value) in numbers
