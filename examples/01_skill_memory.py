"""Deposit two skills, ask three questions: which manual answers, and what it costs in tokens.

python examples/01_skill_memory.py                 # the fake engine: no model, scripted words
python examples/01_skill_memory.py smollm2-135m    # a real model
"""
# ruff: noqa: T201 - an example prints

from __future__ import annotations

import sys
from pathlib import Path
from tempfile import TemporaryDirectory

from agentkv import AgentMemory, FakeEngine

SKILLS = Path(__file__).parent.parent / "skills"
QUESTIONS = {
    "Which reason code do I pick if the shop was billed twice for the same order?": "RF-DUP",
    "How long is the handover call meant to be?": "20 minutes",
    "What's the most goodwill credit one customer can have in a year?": "GBP 65",
}


def fake_answer(prompt: str) -> str:
    """What a model that reads its manual would say."""
    return next(
        (answer for asked, answer in QUESTIONS.items() if asked in prompt and answer in prompt), "I do not know."
    )


def main() -> None:
    model = sys.argv[1] if len(sys.argv) > 1 else FakeEngine(window=8192, replies=fake_answer)
    with TemporaryDirectory() as store, AgentMemory(store, model) as memory:
        for skill in ("refund-policy", "on-call-handover"):
            deposit = memory.deposit_skill(SKILLS / skill)
            print(f"{skill}: {deposit.manifest.n_tokens} tokens, {deposit.manifest.exactness}")
        for question in QUESTIONS:
            turn = memory.ask(question, max_new=32)
            print(f"\n{question}\n  {turn.decision.raw_pick} -> {turn.decision.pick}: {turn.text}")
            tokens = turn.tokens
            print(f"  {tokens.restored} restored, {tokens.prefilled} prefilled, {tokens.generated} generated")


if __name__ == "__main__":
    main()
