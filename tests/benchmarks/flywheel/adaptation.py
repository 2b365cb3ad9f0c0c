"""``variants``: hard problems' programs, adapted to problems like theirs with other numbers and words.

The library holds one solution of each chosen origin: the problem in this project's own words, and the program that
comes along, verified and examined in the sandbox. Each variant is text and nothing else: it is routed among all of the
library, and answered in three ways: parameters filled by the model, the program rewritten by the model, values
substituted by position without a model. Its answer was computed by two independent programs, and is not the original's.
An answer counts when it comes from the routed block; beside it, the same with the right block given.

The problems' own texts are not needed: the chosen origins are those in the library of a recorded run of ``aime``, those
that are named, or all.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from agentkv.bench.base import Column, Row, Table, interval, option, small_option
from agentkv.bench.measured import Raw
from agentkv.bench.results import say
from agentkv.errors import GuaranteeViolated, UsageError
from agentkv.evidence import Ledger
from agentkv.evidence.files import FILE
from agentkv.figures import share
from agentkv.flywheel.library import Known, SolutionLibrary
from agentkv.flywheel.program import call
from agentkv.flywheel.solution import Program
from agentkv.flywheel.task import Task
from agentkv.flywheel.transfer import Transfer, Way
from agentkv.io.hashing import canonical_json
from agentkv.sandbox.sandbox import Sandbox
from tests.benchmarks.flywheel.aime import Aime
from tests.benchmarks.flywheel.grading import is_same
from tests.benchmarks.flywheel.library import Expected, Outcome, decided, of_origins, outcome
from tests.benchmarks.flywheel.variants import ORIGINS, Origin, Variant
from tests.benchmarks.recording import Recorded, Seen, counted, opened_memory, window_option
from tests.benchmarks.recording import Settings as RecordedSettings

SMALL = ("aime25-0", "aime25-5")
WAYS = {"fill": "parameters filled", "rewrite": "program rewritten", "substitute": "substituted, no model"}


@dataclass(frozen=True, kw_only=True)
class Settings(RecordedSettings):
    """``origins``: names or problems' ids."""

    model: str = "qwen2.5-coder-1.5b"
    origins: str | None = option(
        None,
        "Problems whose programs are the library.",
        metavar="ID,ID,…",
        shown="the library of the ledger's latest `aime` of this model, else all",
    )
    per_origin: int = option(1, "Variants of each.", least=1)
    rewrite_tokens: int = option(768, "Most tokens of a rewritten program.", least=1, small=256)
    small: bool = small_option()
    embedder: str | None = None
    window: int | None = window_option(4096)


class Target(Expected):
    """A variant."""

    parameters: dict[str, Any]


class Adapted(Outcome):
    """By one way: tokens that the model wrote, milliseconds of all of it."""

    tokens: int
    ms: float


class Ways(Row):
    """Of each way; None where no block was picked."""

    fill: Adapted | None
    rewrite: Adapted | None
    substitute: Adapted | None

    def right(self, expected: Expected) -> dict[str, bool]:
        """Which of them gave the true answer."""
        ways = {way: getattr(self, way) for way in WAYS}
        return {way: done is not None and done.right(expected) for way, done in ways.items()}


class Routed(Row):
    """A variant as it was routed, and answered from the block that was picked and from the right one."""

    raw_pick: str
    pick: str | None
    scores: dict[str, float]
    route_ms: float
    ways: Ways
    given: Ways


class Judged(Row):
    """Of one variant: routed, and by each way answered rightly, from the routed block and from the right one."""

    variant: str
    routed: bool
    abstained: bool
    answered: dict[str, bool]
    answered_given: dict[str, bool]
    filled: bool

    @classmethod
    def of(cls, seen: Seen[Routed, Target]) -> Judged:
        """From what was recorded."""
        raw, expected = seen.raw, seen.expected
        return cls(
            variant=seen.key,
            routed=raw.pick == expected.block,
            abstained=raw.pick is None,
            answered=raw.ways.right(expected),
            answered_given=raw.given.right(expected),
            filled=raw.given.fill is not None and raw.given.fill.parameters == expected.parameters,
        )


class Variants(Recorded[Settings]):
    """Transfer: hard problems' programs, adapted to others with new numbers and words, in three ways.

    With --ledger a run that broke off is resumed.
    """

    name, kind = "variants", "bench variants"
    tables = (
        Table(
            lambda result: [result["summary"] | {"way": way} for way in WAYS],
            (
                Column("way", lambda row: WAYS[row["way"]], left=True),
                counted("routed rightly", "routed"),
                Column("answered rightly", lambda row: interval(row["answered"][row["way"]])),
                Column("… given the right block", lambda row: interval(row["answered_given"][row["way"]])),
            ),
            name="variants",
        ),
    )

    def run(self) -> dict[str, Any]:
        """See the module's text. Raises GuaranteeViolated where a variant's two programs do not agree."""
        asked, origins = self.settings, chosen(self._origins())
        variants = [variant for one in origins for variant in one.variants(asked.per_origin)]
        inputs = canonical_json([[one.prompt, one.parameters, one.answer] for one in variants])
        naming = {name: getattr(asked, name) for name in ("per_origin", "rewrite_tokens", "embedder")}
        naming["origins"] = [one.problem for one in origins]
        with opened_memory(asked, window=asked.window, embedder=asked.embedder) as memory:
            library, sandbox = SolutionLibrary(memory), Sandbox()
            cross_check(origins, variants, sandbox)
            recording = self.recording(memory, "variants", inputs, naming)
            transfer = Transfer(library, sandbox, rewrite_tokens=asked.rewrite_tokens)
            known = of_origins(library, origins, sandbox)
            done = recording.keys
            for number, variant in enumerate(variants, 1):
                if variant.key not in done:
                    seen = _tried(transfer, variant, known[variant.origin])
                    recording.add(seen.item)
                    right = [way for way, is_right in Judged.of(seen).answered.items() if is_right]
                    by = ", ".join(right) or "no way"
                    say(f"{number} of {len(variants)}, {variant.key}: answered rightly by {by}")
            result = recording.end()
        return {**result, "rows": [row.model_dump() for row in judged(result["raw"])]}

    def _origins(self) -> list[str]:
        """As asked for, else those of the ledger."""
        asked = self.settings
        names = [name.strip() for name in (asked.origins or "").split(",") if name.strip()]
        if not names and asked.small:
            return list(SMALL)
        if not names and self.ledger is not None and (self.ledger.folder / FILE).exists():
            return in_library(self.ledger, asked.model)
        return names

    @staticmethod
    def figures(raw: Raw) -> dict[str, Any]:
        """Shares with their Wilson 95 % intervals, the last four by way."""
        seen = [Seen[Routed, Target].model_validate(record) for record in raw.values()]
        rows, n = [Judged.of(one) for one in seen], len(seen)
        written = {"fill": [one.raw.ways.fill for one in seen], "rewrite": [one.raw.ways.rewrite for one in seen]}
        return {
            "variants": n,
            "routed": share(sum(row.routed for row in rows), n),
            "abstained": share(sum(row.abstained for row in rows), n),
            "answered": {way: share(sum(row.answered[way] for row in rows), n) for way in WAYS},
            "answered_given": {way: share(sum(row.answered_given[way] for row in rows), n) for way in WAYS},
            "tokens": {way: sum(done.tokens for done in ways if done is not None) for way, ways in written.items()},
            "missed": {way: [row.variant for row in rows if not row.answered[way]] for way in WAYS},
        }

    @staticmethod
    def notes(result: dict[str, Any]) -> Iterable[str]:
        """Tokens, and what each way missed."""
        summary = result["summary"]
        yield "tokens: " + ", ".join(f"{count:,} {WAYS[way]}" for way, count in summary["tokens"].items())
        yield from (f"missed by {way}: {', '.join(names)}" for way, names in summary["missed"].items() if names)


def judged(raw: Iterable[Any]) -> list[Judged]:
    """Of each record of a result."""
    return [Judged.of(Seen[Routed, Target].model_validate(record)) for record in raw]


def _tried(transfer: Transfer, variant: Variant, right: Known) -> Seen[Routed, Target]:
    task = variant.task()
    start = time.perf_counter()
    decision, source = transfer.route(task)
    ms = round((time.perf_counter() - start) * 1e3, 1)
    given = _adapted(transfer, task, right)
    if source is None:
        ways = Ways(fill=None, rewrite=None, substitute=None)
    else:
        ways = given if source.name == right.name else _adapted(transfer, task, source)
    raw = Routed(**decided(decision), route_ms=ms, ways=ways, given=given)
    return Seen(key=variant.key, raw=raw, expected=Target.of(variant, right))


def _adapted(transfer: Transfer, task: Task, source: Known) -> Ways:
    made = {}
    for way in Way:
        start = time.perf_counter()
        done = transfer.adapt(task, source, way)
        ms = round((time.perf_counter() - start) * 1e3, 1)
        tokens = 0 if done.turn is None else done.turn.tokens.generated
        made[way.value] = Adapted(**outcome(done), tokens=tokens, ms=ms)
    return Ways(**made)


# --- origins ----------------------------------------------------------------------------------------


def chosen(names: Sequence[str]) -> list[Origin]:
    """The origins of these names or problems' ids, in the order of the problems; all for none. Raises UsageError."""
    known = {name for one in ORIGINS for name in (one.name, one.problem)}
    unknown = sorted(set(names) - known)
    if unknown:
        raise UsageError(f"no such origin: {', '.join(unknown)}; there are {', '.join(one.problem for one in ORIGINS)}")
    return [one for one in ORIGINS if not names or one.name in names or one.problem in names]


def in_library(ledger: Ledger, model: str) -> list[str]:
    """The problems that the latest finished run of ``aime`` with that model took into its library; maybe none.

    Those that have no variants here are left out, and that is reported.
    """
    have = {one.problem for one in ORIGINS}
    for run in reversed(ledger.runs()):
        if run.kind == Aime.kind and run.status == "finished" and run.body.settings.get("model") == model:
            keys = [item.key for item in ledger.items(run)]
            problems = [key.removeprefix("learned/") for key in keys if key.startswith("learned/")]
            for problem in problems:
                if problem not in have:
                    say(f"{problem} is in the library of {run.id}, and has no variants here")
            return [problem for problem in problems if problem in have]
    return []


def cross_check(origins: Sequence[Origin], variants: Sequence[Variant], sandbox: Sandbox) -> None:
    """Each variant's answer again, by its origin's program in the sandbox. Raises GuaranteeViolated."""
    by_name = {one.name: one for one in origins}
    for variant in variants:
        known = by_name[variant.origin]
        outcome = call(sandbox, Program(source=known.source, parameters=variant.parameters), {})
        if not outcome.answered or not is_same(outcome.value, variant.answer):
            got = outcome.value if outcome.answered else outcome.reason
            raise GuaranteeViolated(f"{variant.key}: one program says {variant.answer}, the other {got}")
        if is_same(variant.answer, known.answer):
            raise GuaranteeViolated(f"{variant.key} has the answer of its original")
