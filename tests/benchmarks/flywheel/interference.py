"""``interference``: eight solutions in one prompt against the one that is routed, on the same questions.

Both ways the model fills parameters for the same new tasks, under the same grammar, and the same program (the right
one) runs with what it wrote: so only what stood in the prompt differs. All eight blocks' texts are one block of their
own. The eight are families of small tasks, or hard problems in this project's own words. Scoring is strict: the
program's answer is the true one, or it is not.
"""

from __future__ import annotations

import contextlib
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from agentkv.bench import measured
from agentkv.bench.results import now, origin, say
from agentkv.evidence import Item, Ledger
from agentkv.flywheel import values
from agentkv.flywheel.library import Known, SolutionLibrary, block_text, parameters_question
from agentkv.flywheel.program import call
from agentkv.flywheel.slots import grammar
from agentkv.flywheel.solution import Program
from agentkv.flywheel.transfer import FILL_TOKENS
from agentkv.io.hashing import canonical_json
from agentkv.memory.memory import AgentMemory
from agentkv.records import Turn
from agentkv.sandbox.sandbox import Sandbox
from tests.benchmarks.flywheel import grading
from tests.benchmarks.flywheel.families import FAMILIES, Family
from tests.benchmarks.flywheel.library import deposit, fill
from tests.benchmarks.flywheel.variants import BY, ORIGINS

N_BLOCKS = 8
ALL = "all-solutions"


def chosen(families: Sequence[Family] = FAMILIES, count: int = N_BLOCKS) -> list[Family]:
    """Every n-th family, so that all kinds are among them."""
    step = max(1, len(families) // count)
    return list(families[::step][:count])


@dataclass(frozen=True)
class Case:
    """A new task for one of the eight, ``of``; ``answer``: the true one."""

    key: str
    of: str
    prompt: str
    parameters: dict[str, Any]
    answer: Any


def small_tasks(count: int) -> tuple[list[str], list[Case], Callable[[SolutionLibrary, Sandbox], dict[str, Known]]]:
    """Eight families, ``count`` instances of each, and what fills the library with one of each."""
    families = chosen()
    instances = [item for family in families for item in family.instances("held-out", count)]
    cases = [Case(one.key, one.family, one.prompt, one.parameters, one.answer) for one in instances]
    return [family.name for family in families], cases, lambda library, sandbox: fill(library, families, sandbox)


def hard_problems(count: int) -> tuple[list[str], list[Case], Callable[[SolutionLibrary, Sandbox], dict[str, Known]]]:
    """The same of the first eight hard problems that have variants."""
    origins = ORIGINS[:N_BLOCKS]
    variants = [variant for one in origins for variant in one.variants(count)]
    cases = [Case(one.key, one.origin, one.prompt, one.parameters, one.answer) for one in variants]

    def filled(library: SolutionLibrary, sandbox: Sandbox) -> dict[str, Known]:
        return {one.name: deposit(library, one.task(), one.source, sandbox, BY) for one in origins}

    return [one.name for one in origins], cases, filled


def run(
    model: str,
    *,
    per_family: int = 4,
    problems: bool = False,
    quote: bool = True,
    settings: dict[str, Any] | None = None,
    ledger: Ledger | None = None,
) -> dict[str, Any]:
    """The whole benchmark; ``quote=False`` binds parameters by type alone, which is harder for both.

    ``problems``: the eight are hard problems, and the new tasks their variants.
    """
    started = now()
    names, cases, filled = (hard_problems if problems else small_tasks)(per_family)
    inputs = canonical_json([[case.prompt, case.parameters, case.answer] for case in cases])
    with (
        tempfile.TemporaryDirectory(prefix="agentkv-interference-") as temporary,
        AgentMemory(Path(temporary) / "store", model, **(settings or {})) as memory,
    ):
        library, sandbox = SolutionLibrary(memory), Sandbox()
        known = filled(library, sandbox)
        texts = [block_text(entry.kept.task, entry.kept.parameters, entry.solution) for entry in known.values()]
        memory.deposit_text(ALL, "\n".join(texts))
        digest = memory.engine.info.sha256
        how = {"per_family": per_family, "problems": problems, "quote": quote}
        result = origin(grading.INTERFERENCE, model, digest, inputs, started=started, **how)
        with contextlib.ExitStack() as held:
            writer = None
            if ledger is not None:
                writer = held.enter_context(
                    ledger.run(
                        grading.INTERFERENCE,
                        settings=result["settings"] | {"model": model},
                        inputs={"instances": inputs, "model": result["model_sha256"]},
                        fingerprints={"engine": memory.engine.fingerprint()},
                    )
                )
            items = []
            for number, case in enumerate(cases, 1):
                item = _item(library, sandbox, case, known[case.of], quote)
                items.append(item)
                say(f"{number} of {len(cases)}, {item.key}")
                if writer is not None:
                    writer.record_all([item])
            summary = grading.interference(items)
            if writer is not None:
                writer.scores(summary)
    return {**measured.result(result, items, under="summary"), "blocks": names}


def _item(library: SolutionLibrary, sandbox: Sandbox, case: Case, right: Known, quote: bool) -> Item:
    decision, source = library.route(case.prompt)
    bound = grammar(right.slots, case.prompt, quote=quote)
    raw: dict[str, Any] = {"pick": decision.pick, "raw_pick": decision.raw_pick}
    for key, name in (("one", right.name if source is None else source.name), ("all", ALL)):
        turn = library.memory.ask(parameters_question(case.prompt), skill=name, grammar=bound, max_new=FILL_TOKENS)
        raw[key] = {"generated": turn.text, **_ran(sandbox, right, turn), "tokens": turn.tokens.model_dump()}
    expected = {"family": case.of, "block": right.name, "prompt": case.prompt, "answer": case.answer}
    return Item(case.key, raw, expected)


def _ran(sandbox: Sandbox, right: Known, turn: Turn) -> dict[str, Any]:
    candidate = right.solution.candidate
    assert isinstance(candidate, Program)
    try:
        filled = values.decode(turn.text)
    except ValueError as error:
        return {"answer": None, "reason": str(error)}
    if not isinstance(filled, dict):
        return {"answer": None, "reason": "no parameters"}
    outcome = call(sandbox, Program(source=candidate.source, parameters=filled), {})
    return {"answer": outcome.value, "reason": outcome.reason}


def check(result: dict[str, Any]) -> None:
    """Nothing is guaranteed: which is better is what is measured."""
