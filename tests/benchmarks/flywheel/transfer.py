"""``families``: one solved instance of each family, ten others in other words; routed, filled, run.

The library holds one instance of each family, verified and examined in the sandbox. Each held-out instance has other
numbers and other wording, and nothing is told to the system but its text: it is routed among all families, the
program's parameters are filled under a grammar, the program runs, and its answer is compared with that of a second
implementation. Beside it, on the same instances: the right block given, a grammar of types alone, substitution
without a model, and the model answering directly with ten times the tokens. Wordings and seeds of the held-out part
are used here only.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from agentkv.bench.results import now, origin, say
from agentkv.evidence import Item, Ledger
from agentkv.evidence.ledger import RecordedRun
from agentkv.flywheel.library import SolutionLibrary
from agentkv.flywheel.transfer import Transfer, Transferred, Way
from agentkv.io.hashing import canonical_json
from agentkv.memory.memory import AgentMemory
from agentkv.sandbox.sandbox import Sandbox
from tests.benchmarks.flywheel import grading
from tests.benchmarks.flywheel.families import FAMILIES, Family, Instance
from tests.benchmarks.flywheel.families.base import Part
from tests.benchmarks.flywheel.library import fill
from tests.benchmarks.flywheel.outcomes import decided, outcome
from tests.benchmarks.recording import Recording

DIRECT_FACTOR = 10
"""Tokens for answering directly, in tokens of the filled parameters of the same instance."""
SMALL = FAMILIES[::6]
DIRECTLY = "{prompt}\nThink step by step, then write the result in the last line as: Answer: …"


def run(
    model: str,
    *,
    per_family: int = 10,
    part: Part = "held-out",
    direct: int | None = None,
    typed: bool = True,
    families: Sequence[Family] = FAMILIES,
    embedder: str | None = None,
    store: Path | None = None,
    settings: dict[str, Any] | None = None,
    ledger: Ledger | None = None,
    found: RecordedRun | None = None,
) -> dict[str, Any]:
    """The whole benchmark. ``direct``: instances a family that are also answered directly, by default all.

    With a ``ledger`` every instance goes there when it is done; ``found`` is an unfinished run to go on with.
    """
    started = now()
    instances = [item for family in families for item in family.instances(part, per_family)]
    inputs = canonical_json([[item.prompt, item.parameters, item.answer] for item in instances])
    how = settings_of(families, per_family, part, direct, typed, embedder)
    with (
        tempfile.TemporaryDirectory(prefix="agentkv-families-") as temporary,
        AgentMemory(store or Path(temporary) / "store", model, embedder=embedder, **(settings or {})) as memory,
    ):
        header = origin(grading.FAMILIES, model, memory.engine.info.sha256, inputs, started=started, **how)
        bench = _Bench(SolutionLibrary(memory), Sandbox(), families, per_family if direct is None else direct, typed)
        recording = Recording.opened(header, memory, "instances", ledger, found)
        done = recording.keys
        for item in bench.items([one for one in instances if one.key not in done]):
            recording.add(item)
        return {**recording.end(), "rows": [grading.families_row(item) for item in recording.items]}


def settings_of(
    families: Sequence[Family], per_family: int, part: Part, direct: int | None, typed: bool, embedder: str | None
) -> dict[str, Any]:
    """What names a run, so that it can be gone on with."""
    names = [family.name for family in families]
    how = {"per_family": per_family, "part": part, "direct": direct, "typed": typed, "embedder": embedder}
    return {**how, "families": names}


class _Bench:
    def __init__(
        self, library: SolutionLibrary, sandbox: Sandbox, families: Sequence[Family], direct: int, typed: bool
    ) -> None:
        self._library, self._direct, self._typed = library, direct, typed
        self._transfer = Transfer(library, sandbox, ways=(Way.FILL,))
        self._known = fill(library, families, sandbox)

    def items(self, instances: Sequence[Instance]) -> Iterator[Item]:
        for number, instance in enumerate(instances, 1):
            item = self._item(instance)
            row = grading.families_row(item)
            say(f"{number} of {len(instances)}, {item.key}: {'right' if row['answered'] else 'wrong'}")
            yield item

    def _item(self, instance: Instance) -> Item:
        task, right = instance.task(checked=False), self._known[instance.family]
        start = time.perf_counter()
        decision, source = self._transfer.route(task)
        routed_ms = (time.perf_counter() - start) * 1e3
        done = None if source is None else self._transfer.adapt(task, source, Way.FILL)
        ms = (time.perf_counter() - start) * 1e3
        given = (
            done if source is not None and source.name == right.name else self._transfer.adapt(task, right, Way.FILL)
        )
        typed = replace(self._transfer, quote=False).adapt(task, right, Way.FILL) if self._typed else None
        tokens = None if done is None or done.turn is None else done.turn.tokens
        raw = {
            **decided(decision),
            **outcome(done),
            "given": outcome(given),
            "typed": None if typed is None else outcome(typed),
            "substituted": self._transfer.adapt(task, right, Way.SUBSTITUTE).answer,
            "direct": self._directly(instance, given),
            "ms": {"route": round(routed_ms, 1), "all": round(ms, 1)},
        }
        expected = {
            "family": instance.family,
            "block": right.name,
            "prompt": instance.prompt,
            "parameters": instance.parameters,
            "answer": instance.answer,
        }
        return Item(instance.key, raw, expected, None if tokens is None else tokens.model_dump())

    def _directly(self, instance: Instance, given: Transferred | None) -> dict[str, Any] | None:
        if instance.number >= self._direct or given is None or given.turn is None:
            return None
        budget = DIRECT_FACTOR * given.turn.tokens.generated
        question = DIRECTLY.format(prompt=instance.prompt)
        turn = self._library.memory.ask(question, skill=None, max_new=budget)
        return {"text": turn.text, "budget": budget, "tokens": turn.tokens.generated, "finish": turn.finish}


def check(result: dict[str, Any]) -> None:
    """Nothing is guaranteed: a model answers as well as it can."""
