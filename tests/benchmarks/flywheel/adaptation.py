"""``variants``: hard problems' programs, adapted to problems like theirs with other numbers and words.

The library holds one solution of each chosen origin: the problem in this project's own words, and the program that
comes along, verified and examined in the sandbox. Each variant is text and nothing else: it is routed among all of the
library, and answered in three ways: parameters filled by the model, the program rewritten by the model, values
substituted by position without a model. Its answer was computed by two independent programs, and is not the original's.
An answer counts when it comes from the routed block; beside it, the same with the right block given.

The problems' own texts are not needed: the chosen origins are those in the library of a recorded ``bench aime`` run,
those that are named, or all. Knows no file of problems.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from agentkv.bench.results import now, origin, say
from agentkv.errors import GuaranteeViolated, UsageError
from agentkv.evidence import Item, Ledger
from agentkv.evidence.ledger import RecordedRun
from agentkv.flywheel.library import Known, SolutionLibrary
from agentkv.flywheel.program import call
from agentkv.flywheel.solution import Program
from agentkv.flywheel.task import Task
from agentkv.flywheel.transfer import Transfer, Way
from agentkv.io.hashing import canonical_json
from agentkv.memory.memory import AgentMemory
from agentkv.sandbox.sandbox import Sandbox
from tests.benchmarks.flywheel import grading
from tests.benchmarks.flywheel.library import deposit
from tests.benchmarks.flywheel.outcomes import decided, outcome
from tests.benchmarks.flywheel.variants import BY, ORIGINS, Origin, Variant
from tests.benchmarks.recording import Recording

REWRITE_TOKENS = 768
SMALL = ("aime25-0", "aime25-5")


def chosen(names: Sequence[str]) -> list[Origin]:
    """The origins of these names or problems' ids, in the order of the problems; all for none. Raises UsageError."""
    known = {name for one in ORIGINS for name in (one.name, one.problem)}
    unknown = sorted(set(names) - known)
    if unknown:
        raise UsageError(f"no such origin: {', '.join(unknown)}; there are {', '.join(one.problem for one in ORIGINS)}")
    return [one for one in ORIGINS if not names or one.name in names or one.problem in names]


def in_library(ledger: Ledger, model: str) -> list[str]:
    """The problems that the latest finished ``bench aime`` run of that model took into its library; maybe none.

    Those that have no variants here are left out, and that is said.
    """
    for run in reversed(ledger.runs()):
        if run.kind == grading.AIME and run.status == "finished" and run.body.settings.get("model") == model:
            keys = [item.key for item in ledger.items(run)]
            problems = [key.removeprefix("learned/") for key in keys if key.startswith("learned/")]
            have = {one.problem for one in ORIGINS}
            for problem in problems:
                if problem not in have:
                    say(f"{problem} is in the library of {run.id}, and has no variants here")
            return [problem for problem in problems if problem in have]
    return []


def run(
    model: str,
    *,
    origins: Sequence[Origin] = ORIGINS,
    per_origin: int = 1,
    rewrite_tokens: int = REWRITE_TOKENS,
    embedder: str | None = None,
    settings: dict[str, Any] | None = None,
    ledger: Ledger | None = None,
    found: RecordedRun | None = None,
) -> dict[str, Any]:
    """The whole benchmark. With a ``ledger`` every variant goes there when it is done; ``found``: a run to go on with.

    Raises GuaranteeViolated where a variant's two programs do not agree.
    """
    started = now()
    variants = [variant for one in origins for variant in one.variants(per_origin)]
    inputs = canonical_json([[one.prompt, one.parameters, one.answer] for one in variants])
    how = settings_of(origins, per_origin, rewrite_tokens, embedder)
    with (
        tempfile.TemporaryDirectory(prefix="agentkv-variants-") as folder,
        AgentMemory(Path(folder) / "store", model, embedder=embedder, **(settings or {})) as memory,
    ):
        header = origin(grading.VARIANTS, model, memory.engine.info.sha256, inputs, started=started, **how)
        library, sandbox = SolutionLibrary(memory), Sandbox()
        cross_check(origins, variants, sandbox)
        recording = Recording.opened(header, memory, "variants", ledger, found)
        bench = _Bench(library, sandbox, origins, rewrite_tokens)
        done = recording.keys
        for item in bench.items([one for one in variants if one.key not in done]):
            recording.add(item)
        return {**recording.end(), "rows": [grading.variants_row(item) for item in recording.items]}


def settings_of(
    origins: Sequence[Origin], per_origin: int, rewrite_tokens: int, embedder: str | None
) -> dict[str, Any]:
    """What names a run, so that it can be gone on with."""
    problems = [one.problem for one in origins]
    return {"origins": problems, "per_origin": per_origin, "rewrite_tokens": rewrite_tokens, "embedder": embedder}


def cross_check(origins: Sequence[Origin], variants: Sequence[Variant], sandbox: Sandbox) -> None:
    """Each variant's answer again, by its origin's program in the sandbox. Raises GuaranteeViolated."""
    by_name = {one.name: one for one in origins}
    for variant in variants:
        known = by_name[variant.origin]
        outcome = call(sandbox, Program(source=known.source, parameters=variant.parameters), {})
        if not outcome.answered or not grading.is_same(outcome.value, variant.answer):
            got = outcome.value if outcome.answered else outcome.reason
            raise GuaranteeViolated(f"{variant.key}: one program says {variant.answer}, the other {got}")
        if grading.is_same(variant.answer, known.answer):
            raise GuaranteeViolated(f"{variant.key} has the answer of its original")


class _Bench:
    def __init__(
        self, library: SolutionLibrary, sandbox: Sandbox, origins: Sequence[Origin], rewrite_tokens: int
    ) -> None:
        self._transfer = Transfer(library, sandbox, rewrite_tokens=rewrite_tokens)
        self._known = {one.name: deposit(library, one.task(), one.source, sandbox, BY) for one in origins}

    def items(self, variants: Sequence[Variant]) -> Iterator[Item]:
        for number, variant in enumerate(variants, 1):
            item = self._item(variant)
            right = [way for way, is_right in grading.variants_row(item)["answered"].items() if is_right]
            say(f"{number} of {len(variants)}, {item.key}: answered rightly by {', '.join(right) or 'no way'}")
            yield item

    def _item(self, variant: Variant) -> Item:
        task, right = variant.task(), self._known[variant.origin]
        start = time.perf_counter()
        decision, source = self._transfer.route(task)
        ms = round((time.perf_counter() - start) * 1e3, 1)
        given = self._adapted(task, right)
        if source is None:
            ways: dict[str, Any] = {way.value: None for way in Way}
        elif source.name == right.name:
            ways = given
        else:
            ways = self._adapted(task, source)
        expected = {
            **{"block": right.name, "prompt": variant.prompt},
            **{"parameters": variant.parameters, "answer": variant.answer},
        }
        return Item(variant.key, {**decided(decision), "route_ms": ms, "ways": ways, "given": given}, expected)

    def _adapted(self, task: Task, source: Known) -> dict[str, Any]:
        """What became of each way."""
        found = {}
        for way in Way:
            start = time.perf_counter()
            done = self._transfer.adapt(task, source, way)
            ms = round((time.perf_counter() - start) * 1e3, 1)
            tokens = 0 if done.turn is None else done.turn.tokens.generated
            found[way.value] = {**outcome(done), "tokens": tokens, "ms": ms}
        return found


def check(result: dict[str, Any]) -> None:
    """Nothing is guaranteed: a model adapts as well as it can."""
