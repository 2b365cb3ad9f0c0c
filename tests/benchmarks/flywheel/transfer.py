"""``families``: one solved instance of each family, ten others in other words; routed, filled, run.

The library holds one instance of each family, verified and examined in the sandbox. Each held-out instance has other
numbers and other wording, and the system gets nothing but its text: it is routed among all families, the program's
parameters are filled under a grammar, the program runs, and its answer is compared with that of a second
implementation. Beside it, on the same instances: the right block given, a grammar of types alone, substitution
without a model, and the model answering directly with ten times the tokens. Wordings and seeds of the held-out part
are used here only.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from agentkv.bench.base import Column, Row, Table, duration, option, small_option
from agentkv.bench.measured import Raw
from agentkv.bench.results import say
from agentkv.figures import share
from agentkv.flywheel.library import Known, SolutionLibrary
from agentkv.flywheel.transfer import Transfer, Transferred, Way
from agentkv.flywheel.values import same
from agentkv.io.hashing import canonical_json
from agentkv.sandbox.sandbox import Sandbox
from tests.benchmarks.flywheel.families import FAMILIES, Family, Instance
from tests.benchmarks.flywheel.families.base import TOLERANCE
from tests.benchmarks.flywheel.grading import is_same, mean, said_rightly
from tests.benchmarks.flywheel.library import Expected, Outcome, decided, of_families, outcome
from tests.benchmarks.recording import Recorded, Seen, counted, of_asked, opened_memory, summary_of, window_option
from tests.benchmarks.recording import Settings as RecordedSettings

DIRECT_FACTOR = 10
"""Tokens for answering directly, in tokens of the filled parameters of the same instance."""
DIRECTLY = "{prompt}\nThink step by step, then write the result in the last line as: Answer: …"
_SHARES = ("routed", "abstained", "filled", "answered", "answered_given", "answered_typed", "substituted", "direct")


@dataclass(frozen=True, kw_only=True)
class Settings(RecordedSettings):
    """``families``: those of the library; every sixth of them with ``small``."""

    per_family: int = option(10, "Held-out instances a family.", least=1, small=2)
    direct: int | None = option(
        None, "Instances a family that are also answered directly.", shown="all", least=0, small=1
    )
    small: bool = small_option()
    typed: bool = option(True, "Also fill under a grammar of types alone.")
    embedder: str | None = None
    window: int | None = window_option(2048)
    families: Sequence[Family] = FAMILIES


class Target(Expected):
    """An instance."""

    family: str
    parameters: dict[str, Any]


class Direct(Row):
    """What the model answered without any block, within ``budget`` tokens."""

    text: str
    budget: int
    tokens: int
    finish: str


class Tried(Outcome):
    """An instance as it was routed and answered. ``given``: from the right block; ``typed``: the same, of types alone;
    ``ms``: of routing and of all."""

    raw_pick: str
    pick: str | None
    scores: dict[str, float]
    given: Outcome
    typed: Outcome | None
    substituted: Any
    direct: Direct | None
    ms: dict[str, float]


class Judged(Row):
    """Of one instance: routed, filled and answered rightly; None for what was not tried."""

    family: str
    routed: bool
    abstained: bool
    filled: bool
    answered: bool
    answered_given: bool
    answered_typed: bool | None
    substituted: bool
    direct: bool | None
    tokens: int
    direct_tokens: int | None
    ms: dict[str, float]

    @classmethod
    def of(cls, seen: Seen[Tried, Target]) -> Judged:
        """From what was recorded."""
        raw, expected = seen.raw, seen.expected
        return cls(
            family=expected.family,
            routed=raw.pick == expected.block,
            abstained=raw.pick is None,
            filled=raw.parameters is not None and same(raw.parameters, expected.parameters, TOLERANCE),
            answered=raw.right(expected),
            answered_given=is_same(raw.given.answer, expected.answer),
            answered_typed=None if raw.typed is None else is_same(raw.typed.answer, expected.answer),
            substituted=is_same(raw.substituted, expected.answer),
            direct=None if raw.direct is None else said_rightly(raw.direct.text, expected.answer),
            tokens=(seen.tokens or {}).get("generated", 0),
            direct_tokens=None if raw.direct is None else raw.direct.tokens,
            ms=raw.ms,
        )


class Families(Recorded[Settings]):
    """Transfer: one solved task of each of 27 families, others in other words; routed, filled, run.

    With --ledger a run that broke off is resumed.
    """

    name, kind = "families", "bench families"
    tables = (
        Table(
            summary_of,
            (
                counted("routed rightly", "routed"),
                counted("answered rightly", "answered"),
                counted("… given the right block", "answered_given"),
                counted("substituted, no model", "substituted"),
                Column("tokens a task", lambda row: f"{row['tokens']['a_task']:.0f}"),
                counted("the model directly", "direct"),
                Column("tokens a task", lambda row: f"{row['direct_tokens']['a_task']:.0f}"),
            ),
            name="families",
        ),
    )

    def run(self) -> dict[str, Any]:
        """See the module's text."""
        asked = self.settings
        families = asked.families[::6] if asked.small else asked.families
        instances = [item for family in families for item in family.instances("held-out", asked.per_family)]
        inputs = canonical_json([[item.prompt, item.parameters, item.answer] for item in instances])
        naming = {name: getattr(asked, name) for name in ("per_family", "direct", "typed", "embedder")}
        naming |= {"part": "held-out", "families": [family.name for family in families]}
        with opened_memory(asked, window=asked.window, embedder=asked.embedder) as memory:
            library, sandbox = SolutionLibrary(memory), Sandbox()
            transfer = Transfer(library, sandbox, ways=(Way.FILL,))
            known = of_families(library, families, sandbox)
            recording = self.recording(memory, "instances", inputs, naming)
            done = recording.keys
            for number, instance in enumerate(instances, 1):
                if instance.key not in done:
                    seen = self.instance(transfer, instance, known[instance.family])
                    recording.add(seen.item)
                    right = "right" if Judged.of(seen).answered else "wrong"
                    say(f"{number} of {len(instances)}, {instance.key}: {right}")
            result = recording.end()
        return {**result, "rows": [row.model_dump() for row in judged(result["raw"])]}

    def instance(self, transfer: Transfer, instance: Instance, right: Known) -> Seen[Tried, Target]:
        """Try one, in every way."""
        task = instance.task(checked=False)
        start = time.perf_counter()
        decision, source = transfer.route(task)
        routed_ms = (time.perf_counter() - start) * 1e3
        done = None if source is None else transfer.adapt(task, source, Way.FILL)
        ms = (time.perf_counter() - start) * 1e3
        is_right = source is not None and source.name == right.name
        given = done if is_right and done is not None else transfer.adapt(task, right, Way.FILL)
        typed = replace(transfer, quote=False).adapt(task, right, Way.FILL) if self.settings.typed else None
        tokens = None if done is None or done.turn is None else done.turn.tokens
        raw = Tried(
            **decided(decision),
            **outcome(done),
            given=Outcome(**outcome(given)),
            typed=None if typed is None else Outcome(**outcome(typed)),
            substituted=transfer.adapt(task, right, Way.SUBSTITUTE).answer,
            direct=self._directly(transfer.library, instance, given),
            ms={"route": round(routed_ms, 1), "all": round(ms, 1)},
        )
        counts = None if tokens is None else tokens.model_dump()
        return Seen(key=instance.key, raw=raw, expected=Target.of(instance, right), tokens=counts)

    def _directly(self, library: SolutionLibrary, instance: Instance, given: Transferred) -> Direct | None:
        most = self.settings.direct
        if given.turn is None or (most is not None and instance.number >= most):
            return None
        budget = DIRECT_FACTOR * given.turn.tokens.generated
        turn = library.memory.ask(DIRECTLY.format(prompt=instance.prompt), skill=None, max_new=budget)
        return Direct(text=turn.text, budget=budget, tokens=turn.tokens.generated, finish=turn.finish)

    @staticmethod
    def figures(raw: Raw) -> dict[str, Any]:
        """Shares with their Wilson 95 % intervals, and tokens; ``families``: so many of so many, by name."""
        rows = judged(raw.values())
        by_family: dict[str, list[bool]] = {}
        for row in rows:
            by_family.setdefault(row.family, []).append(row.answered)
        tried = {name: [value for row in rows if (value := getattr(row, name)) is not None] for name in _SHARES}
        tokens = {
            "tokens": [row.tokens for row in rows],
            "direct_tokens": [row.direct_tokens for row in rows if row.direct_tokens is not None],
        }
        return {
            "instances": len(rows),
            "families": {name: f"{sum(right)} of {len(right)}" for name, right in sorted(by_family.items())},
            **{name: share(sum(values), len(values)) for name, values in tried.items()},
            **{name: {"sum": sum(counts), "a_task": mean(counts)} for name, counts in tokens.items()},
        }

    @staticmethod
    def notes(result: dict[str, Any]) -> Iterable[str]:
        """The grammar of types alone, weak families, and the time of a transfer."""
        summary, all_ms = result["summary"], [one["ms"]["all"] for one in result["rows"]]
        yield f"given the right block, the grammar binding types alone: {of_asked(summary['answered_typed'])}"
        weak = [f"{name} {right}" for name, right in summary["families"].items() if len(set(right.split(" of "))) > 1]
        yield f"families with mistakes: {', '.join(weak) or 'none'}"
        yield f"median time of a transfer: {duration(statistics.median(all_ms))}"


def judged(raw: Iterable[Any]) -> list[Judged]:
    """Of each record of a result."""
    return [Judged.of(Seen[Tried, Target].model_validate(record)) for record in raw]
