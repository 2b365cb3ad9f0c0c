"""``answers``: the labelled questions of every skill, routed, answered from a graft and from re-reading.

What is shown: routed rightly, answered rightly (the accepted string is in the reply), both with Wilson 95 % intervals,
and whether the grafted turn, with prefix and manual restored, is the re-read one: the same token ids and the same
SHA-256 over every step's logits. Questions that no skill covers show how often the router abstains.
"""

from __future__ import annotations

import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from agentkv.bench import measured
from agentkv.bench.results import now, origin, say
from agentkv.errors import GuaranteeViolated, UsageError
from agentkv.evidence import Ledger
from agentkv.evidence.ledger import RecordedRun
from agentkv.io.hashing import canonical_json
from agentkv.memory.memory import AgentMemory
from agentkv.skills.manual import Manual, load_manuals
from agentkv.skills.questions import Route, load_routes
from tests.benchmarks.recording import Recording
from tests.benchmarks.scorers import answers as scores

UNCOVERED = "uncovered.jsonl"
MAX_NEW = 48
"""Tokens of an answer, at most."""


def run(
    model: str,
    skills: Path,
    *,
    n_skills: int | None = None,
    per_skill: int | None = None,
    uncovered: int | None = None,
    reread: bool = True,
    max_new: int = MAX_NEW,
    store: Path | None = None,
    settings: dict[str, Any] | None = None,
    ledger: Ledger | None = None,
    found: RecordedRun | None = None,
) -> dict[str, Any]:
    """The whole benchmark over the skill folders below ``skills``.

    ``n_skills`` takes the first so many, ``per_skill`` the first so many questions of each, ``uncovered`` of those that
    no skill covers.
    With a ``ledger`` every raw generation goes there as soon as it is made; ``found``: a run of it to go on with.
    """
    started = now()
    manuals = load_manuals([skills]).loaded[:n_skills]
    questions = [(m, load_routes(m.path)[:per_skill]) for m in manuals]
    others = load_routes(skills / UNCOVERED)[:uncovered] if (skills / UNCOVERED).exists() else []
    if not any(routes for _, routes in questions):
        raise UsageError(f"no labelled questions (routes.jsonl) in the skills at {skills}")
    with (
        tempfile.TemporaryDirectory(prefix="agentkv-answers-") as temporary,
        AgentMemory(store or Path(temporary) / "store", model, **(settings or {})) as memory,
    ):
        for manual in manuals:
            memory.deposit_skill(manual)
            say(f"deposited {manual.name}")
        asked = [[m.sha256, [[r.query, *r.answers] for r in routes]] for m, routes in questions]
        inputs = canonical_json([asked, [route.query for route in others]])
        how = settings_of(n_skills, per_skill, uncovered, reread, max_new)
        header = origin(scores.ANSWERS, model, memory.engine.info.sha256, inputs, started=started, **how)
        header["skills"] = len(manuals)
        recording = Recording.opened(header, memory, "questions", ledger, found)
        done = recording.keys
        for m, routes in questions:
            left = {key: route for key, route in _keyed(m.name, routes).items() if key not in done}
            _skill(memory, m, left, reread, max_new, recording)
        for key, route in _keyed(UNCOVERED, others).items():
            if key not in done:
                recording.add(scores.abstention_item(key, route, memory.route(route.query)))
        return recording.end()


def settings_of(
    n_skills: int | None, per_skill: int | None, uncovered: int | None, reread: bool, max_new: int = MAX_NEW
) -> dict[str, Any]:
    """What names a run, so that it can be gone on with."""
    return {
        "n_skills": n_skills,
        "per_skill": per_skill,
        "uncovered": uncovered,
        "reread": reread,
        "max_new": max_new,
    }


def rows(result: dict[str, Any]) -> list[dict[str, Any]]:
    """A row for each question that a skill covers, from the result's raw records."""
    return [scores.answer_row(item) for item in measured.items_of(result) if item.expected["skill"] is not None]


def check(result: dict[str, Any]) -> None:
    """Raise GuaranteeViolated if any grafted turn was not the re-read one."""
    different = [row["query"] for row in rows(result) if row["identical"] is False]
    if different:
        raise GuaranteeViolated(f"{len(different)} grafted answers differ from re-read ones, first: {different[0]!r}")


def _keyed(name: str, routes: Sequence[Route]) -> dict[str, Route]:
    """The questions under the keys that their records have."""
    return {f"{name}/{number}": route for number, route in enumerate(routes)}


def _skill(
    memory: AgentMemory, manual: Manual, left: Mapping[str, Route], reread: bool, max_new: int, recording: Recording
) -> None:
    """The questions of one skill that are ``left``; what is told counts all of its questions on record."""
    for key, route in left.items():
        turn = memory.ask(route.query, max_new=max_new)
        again = memory.ask(route.query, skill=turn.decision.pick, graft=False, max_new=max_new) if reread else None
        recording.add(scores.answer_item(key, manual.name, route, turn, again))
    done = [scores.answer_row(item) for item in recording.items if item.expected["skill"] == manual.name]
    right = sum(row["right"] for row in done)
    say(f"{manual.name}: routed {sum(row['routed'] for row in done)}, right {right} of {len(done)}")
