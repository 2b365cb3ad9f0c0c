"""What the flywheel's benchmarks are tested with: a sandbox, and a model that fills parameters."""

from __future__ import annotations

import json
from collections.abc import Callable

import pytest

from agentkv import FakeEngine
from agentkv.sandbox.sandbox import Sandbox
from tests.benchmarks.flywheel.families import FAMILIES


@pytest.fixture
def engine(strong: Sandbox) -> Callable[[], FakeEngine]:
    """Makes an engine that gives the true parameters of an instance, but no answer when it is asked directly."""
    known = {
        item.prompt.strip(): json.dumps(item.parameters)
        for family in FAMILIES
        for part in ("held-out", "dev")
        for item in family.instances(part, 10)
    }

    def reply(prompt: str) -> str:
        question = prompt.rpartition("user\n")[2].removesuffix("assistant\n")
        text = question.removeprefix("Task: ").removesuffix("\nParameters:")
        return known.get(text, "Answer: 3")

    return lambda: FakeEngine(window=1 << 15, replies=reply, keeps_grammar=True)
