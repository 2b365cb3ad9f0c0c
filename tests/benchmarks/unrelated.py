"""Does a plainly unrelated question get no manual, where each is a line? ``python -m tests.benchmarks.unrelated``.

``unrelated.json`` holds libraries of six one-line manuals, questions that have nothing to do with any of them, and
questions that one of them answers. Each library is asked all of the first and its own of the second. The router was not
tuned on any of them. Prints k of n for both, and the SHA-256 of what was asked and of the model.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from agentkv import AgentMemory, FakeEngine
from agentkv.cli.output import say
from agentkv.router.base import Candidate
from agentkv.router.decision import decide

DATA = Path(__file__).with_name("unrelated.json")


@dataclass(frozen=True)
class Asked:
    """What one question got. ``label``: None where no manual answers it. ``ahead``: of NONE, in the router's score."""

    library: str
    question: str
    label: str | None
    pick: str | None
    ahead: float

    @property
    def right(self) -> bool:
        """Whether it got what it should, or nothing."""
        return self.pick == self.label


def ask(memory: AgentMemory, data: Mapping[str, Any]) -> Iterator[Asked]:
    """Route every question of ``data``, as the file has it, by the memory's own classifier."""
    classifier = memory.routing.classifier
    for library, manuals in data["libraries"].items():
        candidates = {name: Candidate(described, text) for name, (described, text) in manuals.items()}
        for name, known in candidates.items():
            memory.routing.deposit_card(name, known.description)
        related = [(question, label) for of, question, label in data["related"] if of == library]
        for question, label in [*((question, None) for question in data["unrelated"]), *related]:
            decision = decide(classifier, question, candidates)
            scores = dict(decision.scores)
            none = scores.pop("none of these")
            ahead = max(scores.values(), default=none) - none
            yield Asked(library, question, label, decision.pick, round(ahead, 3))


def figures(asked: Sequence[Asked]) -> dict[str, list[int]]:
    """By library and kind of question, how many were right, and of how many."""
    found: dict[str, list[int]] = {}
    for one in asked:
        kind = "unrelated: none" if one.label is None else "related: right"
        for key in (f"{one.library}, {kind}", f"all, {kind}"):
            right, n = found.get(key, (0, 0))
            found[key] = [right + one.right, n + 1]
    return dict(sorted(found.items()))


def main(arguments: Sequence[str] | None = None) -> int:
    """Run, print, and write JSON where that was asked for."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default="smollm2-135m", help="a model's name or GGUF, or `fake`")
    parser.add_argument("--embedder", default=None)
    parser.add_argument("--data", type=Path, default=DATA)
    parser.add_argument("--out", type=Path, default=None, help="write every decision as JSON")
    given = parser.parse_args(arguments)
    text = given.data.read_bytes()
    model = FakeEngine(window=2048) if given.model == "fake" else given.model
    with tempfile.TemporaryDirectory(prefix="agentkv-unrelated-") as folder:
        settings: dict[str, Any] = {} if given.model == "fake" else {"window": 2048}
        with AgentMemory(folder, model, embedder=given.embedder, **settings) as memory:
            asked = []
            for one in ask(memory, json.loads(text)):
                asked.append(one)
                if not one.right:
                    say(f"{one.library}: {one.question!r} got {one.pick or 'none'}, ahead of none by {one.ahead:+.2f}")
            model_sha256 = memory.engine.info.sha256
    result: dict[str, Any] = {
        "figures": figures(asked),
        "data_sha256": hashlib.sha256(text).hexdigest(),
        "model_sha256": model_sha256,
    }
    for name, (right, n) in result["figures"].items():
        say(f"{name}: {right} of {n} ({right / n:.2f})")
    say(f"data {result['data_sha256']}\nmodel {given.model} {model_sha256}, embedder {given.embedder}")
    if given.out is not None:
        given.out.write_text(json.dumps({**result, "asked": [asdict(one) for one in asked]}, indent=1) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
