"""``answers``: the labelled questions of every skill, routed, answered from a graft and from a cold prefill.

Shown: how many are routed rightly and answered rightly (the accepted string is in the reply), and whether the grafted
turn, with prefix and manual restored, is that of a cold prefill: the same token ids and the same SHA-256 over every
step's logits. Questions that no skill covers show how often the router abstains.
"""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from agentkv.bench.base import Column, Row, Table, duration, interval, option, small_option
from agentkv.bench.measured import Raw
from agentkv.bench.results import say
from agentkv.bench.texts import skills_folder
from agentkv.errors import GuaranteeViolated, UsageError
from agentkv.figures import share
from agentkv.io.hashing import canonical_json
from agentkv.memory.memory import AgentMemory
from agentkv.records import Timings, Turn
from agentkv.skills.manual import load_manuals
from agentkv.skills.questions import Route, contains_answer, load_routes
from tests.benchmarks.recording import Recorded, Seen, counted, opened_memory, summary_of
from tests.benchmarks.recording import Settings as RecordedSettings

UNCOVERED = "uncovered.jsonl"
SMALL = {"n_skills": 4, "uncovered": 5}
"""The first so many skills, and questions that no skill covers."""


@dataclass(frozen=True, kw_only=True)
class Settings(RecordedSettings):
    """``max_new``: tokens of an answer, at most."""

    skills: Path | None = option(None, "Skill folders; by default those that come along.", metavar="DIR")
    per_skill: int | None = option(None, "Only the first so many questions a skill.", least=1, small=1)
    small: bool = small_option()
    compare: bool = option(True, "Also answer by a cold prefill of the manual, and compare.", name="reread")
    store: Path | None = option(
        None, "The store's folder.", metavar="DIR", shown="a temporary folder", env="AGENTKV_STORE"
    )
    max_new: int = 48

    def naming(self) -> dict[str, Any]:
        """What names a run."""
        parts = SMALL if self.small else dict.fromkeys(SMALL)
        return {**parts, "per_skill": self.per_skill, "reread": self.compare, "max_new": self.max_new}


class Answer(Row):
    """What a turn gave."""

    text: str
    token_ids: list[int]
    logits_sha256: str
    ms: Timings

    @classmethod
    def of(cls, turn: Turn) -> Answer:
        """Of a turn."""
        ids = list(turn.token_ids)
        return cls(text=turn.text, token_ids=ids, logits_sha256=turn.logits_sha256, ms=turn.ms)


class Asked(Row):
    """A question of a skill: the decision, with scores as a list, since their order counts, and the answers."""

    raw_pick: str
    pick: str | None
    fallback: str | None
    scores: list[tuple[str, float]]
    router_tokens: int
    not_restored: str | None
    graft: Answer
    reread: Answer | None

    @property
    def cold(self) -> Answer | None:
        """That of a cold prefill."""
        return self.reread


class Label(Row):
    """What a question is scored against."""

    query: str
    skill: str | None
    answers: list[str]

    @classmethod
    def of(cls, route: Route, skill: str | None) -> Label:
        """Of a labelled question."""
        return cls(query=route.query, skill=skill, answers=list(route.answers))


class Question(Seen[Asked, Label]):
    """A question that a skill covers."""

    @property
    def routed(self) -> bool:
        """Whether its skill was picked."""
        return self.raw.pick == self.expected.skill

    @property
    def right(self) -> bool:
        """Whether the answer from a graft says an accepted string."""
        return contains_answer(self.raw.graft.text, self.expected.answers)

    @property
    def identical(self) -> bool | None:
        """Whether all was restored and the turn is that of a cold prefill; None where there was none."""
        one, other = self.raw.graft, self.raw.cold
        if other is None:
            return None
        same = (one.token_ids, one.logits_sha256) == (other.token_ids, other.logits_sha256)
        return same and self.raw.not_restored is None


class Picked(Row):
    """What the router made of a question that no skill covers."""

    raw_pick: str
    pick: str | None


class Answers(Recorded[Settings]):
    """The skills' own labelled questions: routed rightly, answered rightly, grafted as after a cold prefill.

    With --ledger a run that broke off is resumed.
    """

    name = "answers"
    tables = (
        Table(
            summary_of,
            (
                counted("routed rightly", "routed"),
                counted("answered rightly", "answered"),
                counted("… where routed rightly", "answered_when_routed"),
                counted("restored = prefilled again (ids and logits)", "identical"),
                counted("no block, where no skill covers it", "abstained_on_uncovered"),
                Column(
                    "a decision",
                    lambda row: f"{row['median_router_tokens']:.0f} tokens, {duration(row['median_router_ms'])}",
                ),
            ),
            name="answers",
        ),
    )

    def run(self) -> dict[str, Any]:
        """See the module's text. Raises UsageError for no folder, or one without labelled questions."""
        asked, naming = self.settings, self.settings.naming()
        folder = skills_folder() if asked.skills is None else asked.skills.absolute()
        if not folder.is_dir():
            raise UsageError(f"--skills {folder} is not a directory")
        manuals = load_manuals([folder]).loaded[: naming["n_skills"]]
        covered = [(manual, load_routes(manual.path)[: asked.per_skill]) for manual in manuals]
        others = load_routes(folder / UNCOVERED)[: naming["uncovered"]] if (folder / UNCOVERED).exists() else []
        if not any(routes for _, routes in covered):
            raise UsageError(f"no labelled questions (routes.jsonl) in the skills at {folder}")
        listed = [[m.sha256, [[r.query, *r.answers] for r in routes]] for m, routes in covered]
        with opened_memory(asked, asked.store) as memory:
            for manual in manuals:
                memory.deposit_skill(manual)
                say(f"deposited {manual.name}")
            inputs = canonical_json([listed, [route.query for route in others]])
            recording = self.recording(memory, "questions", inputs, naming)
            recording.header["skills"] = len(manuals)
            done = recording.keys
            for manual, routes in covered:
                rows = []
                for key, route in _keyed(manual.name, routes, done):
                    rows.append(self.question(memory, key, manual.name, route))
                    recording.add(rows[-1].item)
                right, routed = sum(row.right for row in rows), sum(row.routed for row in rows)
                say(f"{manual.name}: routed {routed}, right {right} of {len(rows)}")
            for key, route in _keyed(UNCOVERED, others, done):
                decision = memory.route(route.query)
                picked = Picked(raw_pick=decision.raw_pick, pick=decision.pick)
                recording.add(Seen(key=key, raw=picked, expected=Label.of(route, None)).item)
            return recording.end()

    def question(self, memory: AgentMemory, key: str, skill: str, route: Route) -> Question:
        """Ask it: from a graft, and again by a cold prefill."""
        most = self.settings.max_new
        turn = memory.ask(route.query, max_new=most)
        decision, again = turn.decision, None
        if self.settings.compare:
            again = memory.ask(route.query, skill=decision.pick, graft=False, max_new=most)
        raw = Asked(
            **{name: getattr(decision, name) for name in ("raw_pick", "pick", "fallback")},
            scores=list(decision.scores.items()),
            router_tokens=decision.tokens,
            not_restored=turn.not_restored,
            graft=Answer.of(turn),
            reread=None if again is None else Answer.of(again),
        )
        return Question(key=key, raw=raw, expected=Label.of(route, skill), tokens=turn.tokens.model_dump())

    @staticmethod
    def figures(raw: Raw) -> dict[str, Any]:
        """Shares with their Wilson 95 % intervals, and medians; times are to the first token."""
        rows = questions(raw.values())
        abstained = [record["raw"]["pick"] is None for record in raw.values() if record["expected"]["skill"] is None]
        compared = [(row, row.raw.cold.ms) for row in rows if row.raw.cold is not None]
        routed = [row for row in rows if row.routed]
        first = statistics.median(row.raw.graft.ms.restore + row.raw.graft.ms.prefill for row in rows)
        cold = statistics.median(ms.prefill for _, ms in compared) if compared else None
        return {
            "routed": share(len(routed), len(rows)),
            "answered": share(sum(row.right for row in rows), len(rows)),
            "answered_when_routed": share(sum(row.right for row in routed), len(routed)),
            "identical": share(sum(row.identical is True for row, _ in compared), len(compared)),
            "abstained_on_covered": share(sum(row.raw.pick is None for row in rows), len(rows)),
            "abstained_on_uncovered": share(sum(abstained), len(abstained)),
            "median_ms_to_first_token": {"graft": first, "reread": cold},
            "median_router_tokens": statistics.median(row.raw.router_tokens for row in rows),
            "median_router_ms": statistics.median(row.raw.graft.ms.route for row in rows),
        }

    @staticmethod
    def check(result: dict[str, Any]) -> None:
        """Every grafted turn was that of a cold prefill."""
        different = [row.expected.query for row in questions(result["raw"]) if row.identical is False]
        if different:
            raise GuaranteeViolated(
                f"{len(different)} grafted answers differ from those of a cold prefill, first: {different[0]!r}"
            )

    @staticmethod
    def notes(result: dict[str, Any]) -> Iterable[str]:
        """Of covered questions, how many got no block; the time to the first token."""
        summary = result["summary"]
        first, cold = (summary["median_ms_to_first_token"][way] for way in ("graft", "reread"))
        yield f"no block, though a skill covers it: {interval(summary['abstained_on_covered'])}"
        rest = "" if cold is None else f", {duration(cold)} by a cold prefill"
        yield f"the first token after {duration(first)} from a graft{rest} (medians)"


def questions(raw: Iterable[Mapping[str, Any]]) -> list[Question]:
    """Those that a skill covers, of the records of a result."""
    return [Question.model_validate(record) for record in raw if record["expected"]["skill"] is not None]


def _keyed(name: str, routes: Sequence[Route], done: set[str]) -> list[tuple[str, Route]]:
    """The questions that are left, under the keys that their records have."""
    keyed = [(f"{name}/{number}", route) for number, route in enumerate(routes)]
    return [(key, route) for key, route in keyed if key not in done]
