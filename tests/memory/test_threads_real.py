"""A conversation with a real model that another process goes on with: what it prefills, and that it equals a cold
prefill.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from agentkv import AgentMemory
from agentkv.engine.base import Engine
from tests.conftest import REPOSITORY

pytestmark = pytest.mark.model

MANUAL = (REPOSITORY / "skills" / "refund-policy" / "SKILL.md").read_text()[:4000]
QUESTIONS = [
    "How many days does a customer have to return a product?",
    "And if it was damaged?",
    "Who pays for the way back?",
    "Thanks. What should I write to the customer?",
    "Shorter, please.",
    "Now in one sentence.",
]
GO_ON = """
import json, sys
from agentkv import AgentMemory
with AgentMemory(sys.argv[1], "smollm2-135m", window=2048) as memory:
    thread = memory.thread("customer 12")
    decoded = memory.engine.counters.decoded
    turns = [thread.ask(question, max_new=24) for question in json.loads(sys.argv[2])]
    decoded = memory.engine.counters.decoded - decoded
    print(json.dumps({"decoded": decoded, "turns": [turn.model_dump(mode="json") for turn in turns]}))
"""


def test_six_turns_over_a_restart_equal_a_fresh_reading_and_read_only_what_is_new(
    tmp_path: Path, smollm2: Engine
) -> None:
    memory = AgentMemory(tmp_path / "store", smollm2)
    memory.deposit_text("refunds", MANUAL)
    thread = memory.thread("customer 12")
    turns = [thread.ask(question, skill="refunds", max_new=24).model_dump(mode="json") for question in QUESTIONS[:3]]
    memory.store.close()

    command = [sys.executable, "-c", GO_ON, str(tmp_path / "store"), json.dumps(QUESTIONS[3:])]
    output = subprocess.run(command, capture_output=True, text=True, check=False)
    assert output.returncode == 0, output.stderr
    later: dict[str, Any] = json.loads(output.stdout)
    turns += later["turns"]

    again = AgentMemory(tmp_path / "store", smollm2).thread("customer 12")
    assert [entry.question for entry in again.turns] == QUESTIONS
    before = 0
    for number, turn in enumerate(turns):
        ids = memory.prompt(again.messages[: 2 * number + 1], "refunds").tokens
        assert turn["not_kept"] is None
        if number:
            assert turn["tokens"]["prefilled"] == len(ids) - before
            assert turn["exactness"] == "exact_by_config"
        before = len(ids)
    read = sum(turn["tokens"]["prefilled"] + turn["tokens"]["generated"] - 1 for turn in later["turns"])
    assert later["decoded"] == read, "nothing was decoded but what the records say"

    empty = AgentMemory(tmp_path / "empty", smollm2)
    empty.deposit_text("refunds", MANUAL)
    for number in (2, 5):
        fresh = empty.ask(again.messages[: 2 * number + 1], skill="refunds", max_new=24, graft=False)
        assert fresh.tokens.restored == 0
        assert fresh.logits_sha256 == turns[number]["logits_sha256"]
        assert list(fresh.token_ids) == turns[number]["token_ids"]
    kept = empty.ask(again.messages[:-1], skill="refunds", max_new=24, keep=True)
    assert kept.checkpoint == turns[-1]["checkpoint"]
    assert kept.logits_sha256 == turns[-1]["logits_sha256"]
    here, there = (one.store.verify(kept.checkpoint or "") for one in (memory, empty))
    assert here.state_sha256 == there.state_sha256
