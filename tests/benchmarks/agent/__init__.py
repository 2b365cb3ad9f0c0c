"""``agent``: what an agent's memory is worth in a conversation, and whether it ever mixes things up.

Three parts: a conversation with a manual, tools and a killed process, by several LangChain chat models
(``conversation``); many threads on one model, each block with a secret (``secrets``); a long thread, forked and rewound
(``threads``). One part a run: they are about different models.
"""

from __future__ import annotations

import dataclasses
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from agentkv.errors import UsageError
from tests.benchmarks.agent import arms, conversation, secrets, threads

PARTS = {"conversation": conversation, "secrets": secrets, "threads": threads}
MODELS = {"conversation": "qwen2.5-coder-1.5b", "secrets": "smollm2-135m", "threads": "smollm2-135m"}
"""The model of each part, where none is given."""


def run(
    part: str,
    model: str | None = None,
    *,
    texts: Sequence[str] = (),
    small: bool = False,
    chosen: Sequence[str] = arms.USUAL,
    work: Path | None = None,
    **lengths: Any,
) -> dict[str, Any]:
    """One part. ``texts``: what the manual is made of; ``lengths``: of a part's plan, None to leave them.

    Raises UsageError for a part, an arm or a length that there is not.
    """
    if part not in PARTS:
        raise UsageError(f"{part!r} is no part; there are: {', '.join(PARTS)}")
    if unknown := [name for name in chosen if name not in arms.ARMS]:
        raise UsageError(f"{unknown[0]!r} is no arm; there are: {', '.join(arms.ARMS)}")
    module: Any = PARTS[part]
    model = model or MODELS[part]
    plan: Any = module.SMALL if small else module.Plan()
    given = {name: value for name, value in lengths.items() if value is not None}
    if unknown := sorted(set(given) - {field.name for field in dataclasses.fields(plan)}):
        raise UsageError(f"the part {part} has no {unknown[0]}")
    plan = dataclasses.replace(plan, **given)
    if plan.turns < 2:
        raise UsageError("a part takes two turns or more")
    with tempfile.TemporaryDirectory(prefix="agentkv-agent-") as temporary:
        if part == "conversation":
            return conversation.run(model, list(texts), plan, Path(temporary), chosen, work)
        result: dict[str, Any] = module.run(model, plan, Path(temporary) / "store")
        return result


def check(result: dict[str, Any]) -> None:
    """Raise GuaranteeViolated for the first thing that does not hold."""
    part: Any = PARTS[result["settings"]["part"]]
    part.check(result)
