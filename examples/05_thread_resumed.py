"""A thread that is resumed in a new process: the second process prefills only what is new.

python examples/05_thread_resumed.py                 # the fake engine: no model, scripted words
python examples/05_thread_resumed.py smollm2-135m    # a real model
"""
# ruff: noqa: T201 - an example prints

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

from agentkv import AgentMemory, FakeEngine

SKILL = Path(__file__).parent.parent / "skills" / "refund-policy"
QUESTIONS = (
    "The shop was billed twice for order 1182. Which reason code do I pick?",
    "Say that code once more, please.",
)


def fake_answer(prompt: str) -> str:
    """What a model that reads its manual would say."""
    return "RF-DUP" if "RF-DUP" in prompt else "I do not know."


def one_process(store: str, model: str) -> None:
    """Ask the thread's next question, whichever that is, and end."""
    engine = FakeEngine(window=8192, replies=fake_answer) if model == "fake" else model
    with AgentMemory(store, engine) as memory:
        memory.deposit_skill(SKILL)
        thread = memory.thread("order 1182")
        turn = thread.ask(QUESTIONS[len(thread.turns)], skill="refund-policy", max_new=24)
        print(f"turn {len(thread.turns)}: {turn.text}")
        print(f"  {turn.tokens.restored} tokens restored, {turn.tokens.prefilled} prefilled", flush=True)


def main() -> None:
    if len(sys.argv) > 2:
        one_process(sys.argv[2], sys.argv[1])
        return
    with TemporaryDirectory() as store:
        for _ in QUESTIONS:
            model = sys.argv[1] if len(sys.argv) > 1 else "fake"
            subprocess.run([sys.executable, __file__, model, store], check=True)


if __name__ == "__main__":
    main()
