"""What the tests of the chat model share: a slow engine, a router that reads labels, answers."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from functools import reduce
from operator import add
from typing import Any

from langchain_core.messages import AIMessage, AIMessageChunk

from agentkv import FakeEngine
from agentkv.engine.base import Cancellation, Logits
from agentkv.router.base import Classification


class SlowEngine(FakeEngine):
    """Takes its time for each decode call, as a model does; waits outside the interpreter."""

    step = 0.0

    def extend(self, tokens: Sequence[int], cancellation: Cancellation | None = None) -> Logits:
        time.sleep(self.step)
        return super().extend(tokens, cancellation)


class Echo:
    """Routes to the label that stands in the question, and remembers what it was asked. ``scores``: of other labels."""

    name, version = "echo", "1"
    scores: Mapping[str, float] = {}

    def __init__(self) -> None:
        self.asked: list[str] = []

    def classify(self, question: str, candidates: Any) -> Classification:
        self.asked.append(question)
        pick = next((label for label in candidates if label in question), "none of these")
        return Classification(pick, {pick: 1.0, **self.scores}, 0)


def reply(prompt: str) -> str:
    """Codes that stand in the prompt; ``say …`` is repeated; ``count`` goes on for long."""
    question = prompt.rsplit("user\n", 1)[-1]
    if "say " in question:
        return question.split("say ", 1)[1].removesuffix("assistant\n")
    if "count" in question:
        return " ".join(map(str, range(200)))
    codes = [code for code in ("7001", "8002") if code in prompt]
    return " ".join(codes) or "I do not know."


def digest(answer: AIMessage) -> str:
    return str(answer.response_metadata["agentkv"]["logits_sha256"])


def timeless(message: AIMessage) -> dict[str, Any]:
    """A message without what may differ between two runs: id, milliseconds."""
    record = {**message.response_metadata["agentkv"], "ms": None}
    record["decision"] = {**record["decision"], "ms": None}
    return {
        "content": message.content,
        "usage": message.usage_metadata,
        "metadata": {**message.response_metadata, "agentkv": record},
    }


def added(chunks: Sequence[AIMessageChunk]) -> AIMessageChunk:
    return reduce(add, chunks)
