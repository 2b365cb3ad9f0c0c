"""Is a program a method, or its task's answer in other words? Its parameters are perturbed, its constants compared.

A parameter counts as used if another value of it gives another answer. A constant counts as baked in if it stands in
the program, outside its parameters, and in the prompt too, or is the answer. Numbers 0, 1, 2 and -1 are in every
program and are let pass; so this can miss a small constant, and can mark one that is there by chance. Refuses to
know whether the answers are right.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from fractions import Fraction
from typing import Any

from agentkv.flywheel.program import Look, call, look
from agentkv.flywheel.solution import BakedIn, ParameterUse, Parametric, Program
from agentkv.flywheel.task import Task
from agentkv.flywheel.values import same
from agentkv.sandbox.base import Limits
from agentkv.sandbox.sandbox import Sandbox

_NUMBER = re.compile(r"(?<![\w.])\d{1,3}(?:,\d{3})+(?:\.\d+)?(?!\w)|(?<![\w.])\d+(?:\.\d+)?(?![\w])")
_COMMON = {Fraction(-1), Fraction(0), Fraction(1), Fraction(2)}
_MIN_TEXT = 3
_MAX_PARAMETERS = 32


def examine(sandbox: Sandbox, program: Program, task: Task, limits: Limits | None = None) -> Parametric:
    """Look at the program's text and run it with one parameter changed at a time, at most four times each.

    Raises IsolationTooLow, SandboxUnavailable.
    """
    seen = look(sandbox, program)
    if seen.error:
        return Parametric(parameters=(), baked_in=(), reason=f"the program's text cannot be read: {seen.error}")
    given = {**seen.parameters, **program.parameters, **task.parameters}
    original = call(sandbox, program, given, limits)
    if not original.answered:
        baked = tuple(_baked_in(seen, task, given, None))
        return Parametric(parameters=(), baked_in=baked, reason=f"it gives no answer: {original.reason}"[:4000])
    uses = [_use(sandbox, program, given, name, original.value, limits) for name in list(given)[:_MAX_PARAMETERS]]
    baked = tuple(_baked_in(seen, task, given, original.value))
    reason = "" if given else "it has no parameters"
    return Parametric(parameters=tuple(uses), baked_in=baked, reason=reason)


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


def _baked_in(seen: Look, task: Task, given: dict[str, Any], answer: Any) -> Iterator[BakedIn]:
    in_prompt = {Fraction(match[0].replace(",", "")) for match in _NUMBER.finditer(task.prompt)}
    parameters = list(_leaves(given))
    answers = list(_leaves(answer))
    for value, line in seen.literals:
        if any(_equal(value, known) for known in answers) and not _is_common(value):
            yield BakedIn(value=value, line=line, of="answer")
        elif any(_equal(value, known) for known in parameters) and not _is_common(value):
            yield BakedIn(value=value, line=line, of="parameter")
        elif _stands_in(value, task.prompt, in_prompt):
            yield BakedIn(value=value, line=line, of="prompt")


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
