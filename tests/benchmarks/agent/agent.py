"""``agent``: what an agent's memory is worth in a conversation, and whether it ever mixes things up.

Three parts: a conversation with a manual, tools and a killed process, by several LangChain chat models
(``conversation``); many threads on one model, each block with a secret (``secrets``); a long thread, forked and rewound
(``threads``). One part a run: they are about different models. The record ``plan`` says of which part a result is.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterable
from dataclasses import asdict
from pathlib import Path
from typing import Any

from agentkv.bench.base import Benchmark
from agentkv.bench.measured import Raw
from agentkv.errors import UsageError
from tests.benchmarks.agent import arms
from tests.benchmarks.agent.conversation import TABLE, Conversation
from tests.benchmarks.agent.part import Settings
from tests.benchmarks.agent.secrets import Secrets
from tests.benchmarks.agent.threads import Threads

PARTS: dict[str, type[Conversation | Secrets | Threads]] = {
    "conversation": Conversation,
    "secrets": Secrets,
    "threads": Threads,
}


class Agent(Benchmark[Settings]):
    """An agent's conversation with its process killed in the middle, against ChatLlamaCpp; secrets; forked threads."""

    name = "agent"
    tables = (TABLE,)

    def part(self) -> Conversation | Secrets | Threads:
        """The part that was asked for. Raises UsageError for a part, an arm or a length that does not exist."""
        asked = self.settings
        if asked.part not in PARTS:
            raise UsageError(f"{asked.part!r} is not a part; there are: {', '.join(PARTS)}")
        if unknown := [name for name in asked.arms if name not in arms.ARMS]:
            raise UsageError(f"{unknown[0]!r} is not an arm; there are: {', '.join(arms.ARMS)}")
        return PARTS[asked.part](asked)

    def models(self) -> list[str]:
        """The one of the part."""
        return [self.part().model_name]

    def run(self) -> dict[str, Any]:
        """See the text of the part's module."""
        part = self.part()
        with tempfile.TemporaryDirectory(prefix="agentkv-agent-") as temporary:
            found = part.run(Path(temporary) / "store")
        return self.result(
            found.raw,
            model=part.model_name,
            model_sha256=found.model_sha256,
            inputs=found.inputs,
            settings={"part": self.settings.part, **asdict(part.lengths)},
        )

    @staticmethod
    def figures(raw: Raw) -> dict[str, Any]:
        """Those of the part. Raises ValueError for a part that does not exist."""
        part = raw["plan"]["part"]
        if part not in PARTS:
            raise ValueError(f"there is no part {part!r}")
        return PARTS[part].figures(raw)

    @staticmethod
    def check(result: dict[str, Any]) -> None:
        """What the part promises."""
        PARTS[result["settings"]["part"]].check(result)

    @staticmethod
    def notes(result: dict[str, Any]) -> Iterable[str]:
        """Those of the part."""
        return PARTS[result["settings"]["part"]].notes(result)
