"""The flywheel: learn one task, answer it again, adapt its program to a task like it. Programs run in a sandbox.

python examples/07_flywheel.py                       # the fake engine: no model, scripted words
python examples/07_flywheel.py qwen2.5-coder-1.5b    # a real model
"""
# ruff: noqa: T201 - an example prints

from __future__ import annotations

import json
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

from agentkv import AgentMemory, FakeEngine
from agentkv.flywheel import Flywheel, FromFile, Task, Truth

LEASE = "A lease of 48 months at 319 dollars a month has a last rate of 2150 dollars. What is paid in all?"
LIKE_IT = "A lease of 36 months at 275 dollars a month has a last rate of 1900 dollars. What is paid in all?"
PROGRAM = """PARAMETERS = {"months": 48, "rate": 319, "last": 2150}

def solve(months, rate, last):
    return months * rate + last
"""


def fake_answer(prompt: str) -> str:
    """A model that cannot do the sum, and can use its block and a task's numbers."""
    question = prompt.rpartition("user\n")[2]
    if "Parameters:" in question:
        return '{"months": 36, "rate": 275, "last": 1900}'
    return "17462" if "solved task" in question else "Answer: 15312"


def main() -> None:
    real = sys.argv[1] if len(sys.argv) > 1 else None
    model = real or FakeEngine(window=4096, replies=fake_answer, keeps_grammar=True)
    with TemporaryDirectory() as folder, AgentMemory(Path(folder) / "store", model) as memory:
        by_hand = Path(folder) / "solutions.jsonl"
        by_hand.write_text(json.dumps({"id": "lease", "program": PROGRAM, "by": "the accounts team"}))
        wheel = Flywheel.of(memory, solvers=[FromFile.read(by_hand)])

        learned = wheel.learn(Task(id="lease", prompt=LEASE, check=Truth(answer=17462)))
        print(f"{learned.state}: {learned.reason}")
        for prompt in (LEASE, LIKE_IT):
            found = wheel.solve(Task(id="asked", prompt=prompt), own=False)
            print(f"{found.by}: {found.answer} ({found.origin}), {found.tokens} tokens")


if __name__ == "__main__":
    main()
