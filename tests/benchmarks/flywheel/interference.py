"""``interference``: eight solutions in one prompt against the one that is routed, on the same questions.

Both ways the model fills parameters for the same new tasks, under the same grammar, and the same program (the right
one) runs with what it wrote: so only what stood in the prompt differs. All eight blocks' texts are one block of their
own. The eight are families of small tasks, or hard problems in this project's own words. Scoring is strict: the
program's answer is the true one, or it is not.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from agentkv.bench.base import Column, Row, Table, interval, option, small_option
from agentkv.bench.measured import Raw
from agentkv.bench.results import say
from agentkv.figures import share
from agentkv.flywheel import values
from agentkv.flywheel.library import Known, SolutionLibrary, block_text, parameters_question
from agentkv.flywheel.program import call
from agentkv.flywheel.slots import grammar
from agentkv.flywheel.solution import Program
from agentkv.flywheel.transfer import FILL_TOKENS
from agentkv.io.hashing import canonical_json
from agentkv.records import TokenCounts
from agentkv.sandbox.sandbox import Sandbox
from tests.benchmarks.flywheel.families import FAMILIES, Instance
from tests.benchmarks.flywheel.grading import is_same, mean
from tests.benchmarks.flywheel.library import Expected, family_of, of_families, of_origins
from tests.benchmarks.flywheel.variants import ORIGINS, Variant
from tests.benchmarks.recording import Recorded, Seen, counted, opened_memory
from tests.benchmarks.recording import Settings as RecordedSettings

N_BLOCKS = 8
ALL = "all-solutions"


@dataclass(frozen=True, kw_only=True)
class Settings(RecordedSettings):
    """``quote`` off binds parameters by type alone, which is harder for both."""

    per_family: int = option(4, "New tasks for each of the eight.", least=1, small=1)
    problems: bool = option(False, "Eight hard problems and their variants, in place of families.")
    quote: bool = option(True, "Bind values to those that the text mentions.")
    small: bool = small_option()


class Target(Expected):
    """A new task for one of the eight, ``family``."""

    family: str


class Filled(Row):
    """What the model wrote after one of the two prompts, and what the program made of it."""

    generated: str
    answer: Any
    reason: str
    tokens: TokenCounts

    @property
    def in_prompt(self) -> int:
        """Tokens before what was generated."""
        return self.tokens.restored + self.tokens.prefilled


class Both(Row):
    """A new task after the routed block, and after all."""

    pick: str | None
    raw_pick: str
    one: Filled
    all: Filled


class Interference(Recorded[Settings]):
    """Eight solutions in one prompt against the one that is routed, on the same questions."""

    name, kind = "interference", "bench interference"
    tables = (
        Table(
            lambda result: [{**result["settings"], **result["summary"]}],
            (
                Column("the eight", lambda row: "hard problems" if row.get("problems") else "small tasks", left=True),
                counted("after the routed block", "one_block"),
                Column("tokens", lambda row: f"{row['prompt_tokens']['one']:,.0f}"),
                counted("after all eight", "all_blocks"),
                Column("tokens", lambda row: f"{row['prompt_tokens']['all']:,.0f}"),
            ),
            name="interference",
        ),
    )

    def run(self) -> dict[str, Any]:
        """See the module's text."""
        asked, count = self.settings, self.settings.per_family
        families, origins = FAMILIES[:: len(FAMILIES) // N_BLOCKS][:N_BLOCKS], ORIGINS[:N_BLOCKS]
        tasks: list[Instance | Variant] = [item for one in families for item in one.instances("held-out", count)]
        if asked.problems:
            tasks = [variant for one in origins for variant in one.variants(count)]
        inputs = canonical_json([[task.prompt, task.parameters, task.answer] for task in tasks])
        naming = {"per_family": count, "problems": asked.problems, "quote": asked.quote}
        with opened_memory(asked) as memory:
            library, sandbox = SolutionLibrary(memory), Sandbox()
            known = (
                of_families(library, families, sandbox) if not asked.problems else of_origins(library, origins, sandbox)
            )
            texts = [block_text(one.kept.task, one.kept.parameters, one.solution) for one in known.values()]
            memory.deposit_text(ALL, "\n".join(texts))
            recording = self.recording(memory, "instances", inputs, naming)
            done = recording.keys
            for number, task in enumerate(tasks, 1):
                if task.key not in done:
                    recording.add(_tried(library, sandbox, task, known[family_of(task)], asked.quote).item)
                    say(f"{number} of {len(tasks)}, {task.key}")
            return {**recording.end(), "blocks": list(known)}

    @staticmethod
    def figures(raw: Raw) -> dict[str, Any]:
        """Shares with their Wilson 95 % intervals, and the mean length of a prompt."""
        rows = [Seen[Both, Target].model_validate(record) for record in raw.values()]
        right = [tuple(is_same(way.answer, r.expected.answer) for way in (r.raw.one, r.raw.all)) for r in rows]
        return {
            "routed": share(sum(row.raw.pick == row.expected.block for row in rows), len(rows)),
            "one_block": share(sum(one for one, _ in right), len(rows)),
            "all_blocks": share(sum(every for _, every in right), len(rows)),
            "only_one_block": right.count((True, False)),
            "only_all_blocks": right.count((False, True)),
            "prompt_tokens": {way: mean([getattr(row.raw, way).in_prompt for row in rows]) for way in ("one", "all")},
        }

    @staticmethod
    def notes(result: dict[str, Any]) -> Iterable[str]:
        """How many were routed rightly."""
        yield f"routed rightly: {interval(result['summary']['routed'])}"


def _tried(
    library: SolutionLibrary, sandbox: Sandbox, task: Instance | Variant, right: Known, quote: bool
) -> Seen[Both, Target]:
    decision, source = library.route(task.prompt)
    bound = grammar(right.slots, task.prompt, quote=quote)

    def filled(name: str) -> Filled:
        turn = library.memory.ask(parameters_question(task.prompt), skill=name, grammar=bound, max_new=FILL_TOKENS)
        answer, reason = _ran(sandbox, right, turn.text)
        return Filled(generated=turn.text, answer=answer, reason=reason, tokens=turn.tokens)

    one = filled(right.name if source is None else source.name)
    raw = Both(pick=decision.pick, raw_pick=decision.raw_pick, one=one, all=filled(ALL))
    return Seen(key=task.key, raw=raw, expected=Target.of(task, right))


def _ran(sandbox: Sandbox, right: Known, text: str) -> tuple[Any, str]:
    """The answer of the right program with the parameters that ``text`` has, or why there is none."""
    candidate = right.solution.candidate
    assert isinstance(candidate, Program)
    try:
        parameters = values.decode(text)
    except ValueError as error:
        return None, str(error)
    if not isinstance(parameters, dict):
        return None, "no parameters"
    outcome = call(sandbox, Program(source=candidate.source, parameters=parameters), {})
    return outcome.value, outcome.reason
