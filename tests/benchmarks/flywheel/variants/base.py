"""What an origin is: a hard problem's program, the problem in this project's own words, and others like it.

``program`` is text with ``PARAMETERS`` in front, as a solver writes it, and runs in the sandbox. ``truth`` is a second
program, by another method, and runs here; it gives None where numbers make no sense or no whole answer. Variants are
drawn by seed, in another wording, with an answer that is not the original's. The problem's own text stays in its file:
``problem`` is its id there. Pure.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from agentkv.flywheel.task import Task, Truth

BY = "written by an engineer's assistant"
_MOST_DRAWS = 10_000


@dataclass(frozen=True)
class Variant:
    """A problem like its origin's: text, true parameters, true answer."""

    origin: str
    number: int
    prompt: str
    parameters: dict[str, Any]
    answer: int

    @property
    def key(self) -> str:
        """By which it is known in records."""
        return f"{self.origin}/{self.number}"

    def task(self) -> Task:
        """Its text alone: nothing checks it and nothing else says its values."""
        return Task(id=self.key, prompt=self.prompt)


@dataclass(frozen=True)
class Origin:
    """See the module's docstring. ``wording`` is the original's, ``afresh`` that of its variants."""

    problem: str
    name: str
    parameters: Mapping[str, Any]
    program: str
    truth: Callable[..., int | None]
    draw: Callable[[random.Random], dict[str, Any]]
    wording: str
    afresh: str

    @property
    def source(self) -> str:
        """The program with the original's parameters."""
        return source(self.parameters, self.program)

    @property
    def answer(self) -> int:
        """The original's answer, by ``truth``."""
        found = self.truth(**self.parameters)
        assert found is not None
        return found

    def task(self) -> Task:
        """The original in this project's words, with its parameters and its answer as the check."""
        prompt = self.wording.format(**self.parameters)
        return Task(id=self.name, prompt=prompt, parameters=dict(self.parameters), check=Truth(answer=self.answer))

    def variants(self, count: int) -> list[Variant]:
        """The first ``count``, no two with the same parameters or answers; the same on every run."""
        draw = random.Random(f"variants of {self.name}")
        answers = {self.answer}
        found: list[Variant] = []
        for _ in range(_MOST_DRAWS):
            if len(found) == count:
                return found
            parameters = self.draw(draw)
            answer = self.truth(**parameters)
            if answer is None or answer in answers:
                continue
            answers.add(answer)
            text = self.afresh.format(**parameters)
            found.append(Variant(self.name, len(found), text, parameters, answer))
        raise ValueError(f"there are no {count} variants of {self.name}")


def source(parameters: Mapping[str, Any], program: str) -> str:
    """A program as a solver writes it."""
    return f"PARAMETERS = {dict(parameters)!r}\n\n{program}"
