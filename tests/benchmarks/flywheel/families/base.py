"""What a family of tasks is: one program with parameters, four wordings, a generator, and a second implementation.

The program is text, as a solver would have written it, and runs in the sandbox. ``truth`` is another implementation,
written in another way, and runs here; each instance's answer has to be the same by both. Wording 0 is the library's,
wording 1 is for development, wordings 2 and 3 are held out. Pure.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from agentkv.flywheel.task import Task, Truth
from agentkv.flywheel.values import Tolerance

Part = Literal["library", "dev", "held-out"]
_SEEDS = {"library": 1, "dev": 2, "held-out": 3}
TOLERANCE = Tolerance(absolute=0.006)
"""Money is rounded to cents, temperatures to tenths: half a cent and no more."""


@dataclass(frozen=True)
class Instance:
    """One task of a family: its text, the true parameters and the true answer."""

    family: str
    number: int
    wording: int
    prompt: str
    parameters: dict[str, Any]
    answer: Any

    @property
    def key(self) -> str:
        """By which it is known in records."""
        return f"{self.family}/{self.number}"

    def task(self, *, checked: bool) -> Task:
        """As a task; with ``checked`` it carries its parameters and its truth, as a library's task does."""
        if not checked:
            return Task(id=f"{self.family}-{self.number}", prompt=self.prompt)
        check = Truth(answer=self.answer, tolerance=TOLERANCE)
        return Task(id=self.family, prompt=self.prompt, parameters=self.parameters, check=check)


@dataclass(frozen=True)
class Family:
    """See the module's docstring. ``show``: how a parameter is written in the text, where not by ``str``."""

    name: str
    program: str
    draw: Callable[[random.Random], dict[str, Any]]
    truth: Callable[..., Any]
    wordings: tuple[str, str, str, str]
    show: Mapping[str, Callable[[Any], str]] = field(default_factory=dict)

    def instances(self, part: Part, count: int) -> list[Instance]:
        """The first ``count`` instances of a part, no two with the same parameters; the same on every run."""
        draw = random.Random(f"{self.name} {_SEEDS[part]}")
        wordings = {"library": (0,), "dev": (1,), "held-out": (2, 3)}[part]
        taken = [] if part == "library" else [item.parameters for item in self.instances("library", 1)]
        found: list[Instance] = []
        while len(found) < count:
            parameters = self.draw(draw)
            if parameters in taken:
                continue
            taken.append(parameters)
            wording = wordings[len(found) % len(wordings)]
            answer = self.truth(**parameters)
            found.append(Instance(self.name, len(found), wording, self.text(wording, parameters), parameters, answer))
        return found

    def text(self, wording: int, parameters: Mapping[str, Any]) -> str:
        """The task as text, in one of the wordings."""
        shown = {name: self.show.get(name, str)(value) for name, value in parameters.items()}
        return self.wordings[wording].format(**shown)


def money(value: float) -> str:
    """``12.50``, ``1,250.00``."""
    return f"{value:,.2f}"


def listed(items: list[Any]) -> str:
    """``a, b and c``."""
    return ", ".join(map(str, items[:-1])) + f" and {items[-1]}"
