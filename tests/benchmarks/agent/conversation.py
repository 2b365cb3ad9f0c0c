"""``--part conversation``: one agent's conversation, its process killed in the middle, by several chat models.

Each arm has processes of its own, one after another: never two models at once. Where states outlive a process, the
manual has been prefilled in an earlier conversation of the same agent, in a process of its own (``prepare``); what that
cost is recorded, and the whole conversation is given with it and without it. Then half of the turns, SIGKILL, and the
rest in a new process. Arms that prefill everything in each turn are measured in the first turn, the one after the kill
and the last only, and no sum is given for them.

Answers of other lengths are computed, not measured: the turns without their generation, plus the measured milliseconds
a token. ``work``: a folder where finished arms are kept, to go on with; the result says which came from there.
"""

from __future__ import annotations

import statistics
import subprocess
import sys
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import orjson
from pydantic import Field

from agentkv.bench.base import Column, Row, Table, duration
from agentkv.bench.measured import Raw
from agentkv.bench.results import say
from agentkv.bench.texts import manual_texts
from agentkv.errors import GuaranteeViolated, WorkerFailed
from agentkv.io import fsio
from agentkv.io.hashing import canonical_json, sha256
from tests.benchmarks.agent import arms, script
from tests.benchmarks.agent.arms import Opened, Request, Task, TurnRow
from tests.benchmarks.agent.part import Lengths, Measured, Part

TARGET = "tests.benchmarks.agent.arms"
LENGTHS = (1, 500)
"""Answers, in tokens, for which the conversation is computed beside the measured one."""


@dataclass(frozen=True)
class Plan(Lengths):
    """And tokens of the manual."""

    turns: int = 20
    answer: int = 16
    manual: int = 3000

    @property
    def before(self) -> int:
        """Turns before the process is killed."""
        return self.turns // 2

    @property
    def window(self) -> int:
        """Tokens of the context: tools and a turn take less than this."""
        return -(-(self.manual + 1000 + 200 * self.turns + self.answer) // 256) * 256


# --- records ----------------------------------------------------------------------------------------


class Whole(Row):
    """The raw record of what was measured. ``before``: turns before the kill; ``ours``: the arm of agentkv."""

    part: str
    before: int
    ours: str
    manual_tokens: int


class Seen(Row):
    """The raw record of one arm. ``prepare``: the earlier conversation; ``skipped``: why there are no turns."""

    label: str = ""
    skipped: str | None = None
    prepare: TurnRow | None = None
    rows: list[TurnRow] = Field(default_factory=list)
    opened: list[Opened] = Field(default_factory=list)
    all_turns: bool = False
    resumed: bool = False


class Times(Row):
    """Of a turn; ``turn`` is None for the median of several."""

    turn: int | None = None
    evaluated: int | float
    first_ms: float
    total_ms: float

    @classmethod
    def of(cls, row: TurnRow) -> Times:
        """Of one turn."""
        return cls(**row.model_dump(include=set(cls.model_fields)))

    @classmethod
    def usual(cls, rows: Sequence[TurnRow]) -> Times:
        """The medians."""
        medians = {key: statistics.median(getattr(row, key) for row in rows) for key in cls.model_fields}
        return cls(**{key: value for key, value in medians.items() if key != "turn"})


class Summary(Row):
    """The figures of one arm. ``whole_ms``: of the conversation, ``measured`` and by an answer's tokens."""

    token_ms: float
    first_turn: Times
    restarted: Times
    usual: Times
    whole_ms: dict[str, float] | None = None
    whole_with_prepare_ms: dict[str, float] | None = None
    evaluated: int | None = None

    @classmethod
    def of(cls, arm: Seen, before: int) -> Summary:
        """Of an arm that was measured, killed after turn ``before``."""
        rows = arm.rows
        steps = sum(row.generated - 1 for row in rows)
        token_ms = sum(row.generate_ms for row in rows) / steps if steps else 0.0
        restarted = next(row for row in rows if row.turn > before)
        usual = [row for row in rows if row.turn not in (1, restarted.turn)] or rows
        summary = cls(
            token_ms=token_ms, first_turn=Times.of(rows[0]), restarted=Times.of(restarted), usual=Times.usual(usual)
        )
        if not arm.all_turns:
            return summary
        rest = sum(row.total_ms - row.generate_ms for row in rows)
        prepare = arm.prepare.total_ms if arm.prepare else 0.0
        whole = {
            "measured": sum(row.total_ms for row in rows),
            **{str(n): rest + len(rows) * (n - 1) * token_ms for n in LENGTHS},
        }
        sums = {
            "whole_ms": whole,
            "whole_with_prepare_ms": {key: value + prepare for key, value in whole.items()},
            "evaluated": sum(row.evaluated for row in rows),
        }
        return summary.model_copy(update=sums)


class Against(Row):
    """An arm against agentkv: answers that are equal, and how many times longer it took."""

    answers_equal: dict[str, int]
    first_after_restart: float
    usual_first: float
    whole_ms: dict[str, float] | None = None
    whole_with_prepare_ms: dict[str, float] | None = None

    @classmethod
    def of(cls, theirs: Seen, ours: Seen, before: int) -> Against:
        """Of two arms that were measured."""
        answers = {row.turn: _plain(row.answer) for row in ours.rows}
        equal = [answers[row.turn] == _plain(row.answer) for row in theirs.rows]
        own, other = Summary.of(ours, before), Summary.of(theirs, before)
        against = cls(
            answers_equal={"k": sum(equal), "n": len(equal)},
            first_after_restart=other.restarted.first_ms / own.restarted.first_ms,
            usual_first=other.usual.first_ms / own.usual.first_ms,
        )
        pairs = {key: (getattr(other, key), getattr(own, key)) for key in ("whole_ms", "whole_with_prepare_ms")}
        ratios = {key: {n: value / two[n] for n, value in one.items()} for key, (one, two) in pairs.items() if one}
        return against.model_copy(update=ratios)


class Arm(Seen):
    """An arm of a result: what was seen, its figures, and those against agentkv's."""

    summary: Summary | None = None
    against: Against | None = None

    @property
    def of(self) -> Summary:
        """The figures of an arm that was measured."""
        assert self.summary is not None
        return self.summary

    def ratios(self) -> str:
        """Against agentkv, measured and computed."""
        assert self.against is not None
        parts = [f"first token after the kill {self.against.first_after_restart:.1f} ×"]
        whole = {"whole": self.against.whole_ms, "with the prefill before": self.against.whole_with_prepare_ms}
        for label, ratios in whole.items():
            if ratios is not None:
                others = ", ".join(
                    f"at {n} tokens an answer {ratio:.2f} ×" for n, ratio in ratios.items() if n != "measured"
                )
                parts.append(f"{label} {ratios['measured']:.2f} × (computed: {others})")
        return "; ".join(parts)

    def notes(self) -> Iterable[str]:
        """Why it was skipped, or what the table does not say."""
        if self.skipped is not None:
            yield f"{self.label}: skipped, {self.skipped}"
            return
        if not self.all_turns:
            turns = ", ".join(str(row.turn) for row in self.rows)
            yield f"{self.label}: only turns {turns} were measured, so there is no sum"
        if self.prepare and self.prepare.restore_ms is not None:
            kept = duration(self.prepare.keep_ms)
            yield f"{self.label}: {kept} of the prefill before were keeping, with the test that a store needs once"
        if self.resumed:
            yield f"{self.label}: measured in an earlier run"
        if self.against is not None:
            yield f"{self.label} / agentkv: {self.ratios()}"


def arms_of(result: Mapping[str, Any]) -> list[Arm]:
    """The arms of a result of this part; none of another's."""
    found = []
    for name, arm in result.get("arms", {}).items():
        seen = {key: value for key, value in arm.items() if key in Seen.model_fields}
        summary = {key: value for key, value in arm.items() if key in Summary.model_fields} or None
        found.append(Arm.model_validate({**seen, "summary": summary, "against": result["against"].get(name)}))
    return found


def _plain(text: str) -> str:
    """White space does not count: one arm gives calls as objects, another as text."""
    return " ".join(text.split())


TABLE = Table(
    lambda result: [arm for arm in arms_of(result) if arm.skipped is None],
    (
        Column[Arm]("arm", lambda arm: arm.label, left=True),
        Column("tokens prefilled a turn", lambda arm: f"{arm.of.usual.evaluated:,.0f}"),
        Column("first token", lambda arm: duration(arm.of.usual.first_ms)),
        Column("after the kill: tokens prefilled", lambda arm: f"{arm.of.restarted.evaluated:,}"),
        Column("first token", lambda arm: duration(arm.of.restarted.first_ms)),
        Column(
            "whole conversation",
            lambda arm: "not every turn" if arm.of.whole_ms is None else duration(arm.of.whole_ms["measured"]),
        ),
        Column("prefill before it", lambda arm: duration(arm.prepare.total_ms) if arm.prepare else ""),
        Column(
            "its time / agentkv's",
            lambda arm: f"{arm.against.whole_ms['measured']:.2f}" if arm.against and arm.against.whole_ms else "",
        ),
        Column(
            "answers as agentkv's",
            lambda arm: "{k} of {n}".format(**arm.against.answers_equal) if arm.against else "",
        ),
    ),
    name="agent",
)

# --- the part ---------------------------------------------------------------------------------------


class Conversation(Part[Plan]):
    """See the module's text."""

    model = "qwen2.5-coder-1.5b"
    usual, small = Plan(), Plan(turns=4, manual=600)

    def run(self, folder: Path) -> Measured:
        """Every chosen arm in turn; ``folder`` is for the arms' states."""
        plan, settings = self.lengths, self.settings
        with self.open(64) as engine:

            def count(text: str) -> int:
                return len(engine.tokenize(text, special=False))

            manual = script.cut_manual(list(settings.texts or manual_texts()), plan.manual, count)
            digest, train, n_manual = engine.info.sha256, engine.info.train_window, count(manual)
        turns = [asdict(turn) for turn in script.exchanges(plan.turns)]
        inputs = [manual, script.ROLE, list(script.TOOLS), turns]
        raw: dict[str, Any] = {}
        for name in settings.arms or arms.USUAL:
            window = plan.window + arms.ROOM.get(name, 0)
            reason = arms.why_skipped(name, self.model_name)
            if reason is None and window > train:
                reason = f"it takes a window of {window:,} tokens, and the model was trained on {train:,}"
            if reason is not None:
                say(f"{name}: left out: {reason}")
                found = Seen(skipped=reason)
            else:
                key = sha256(canonical_json([sha256(canonical_json(inputs)), digest, asdict(plan), name]))
                task = Task(
                    arm=name,
                    model=self.model_name,
                    manual=manual,
                    turns=plan.turns,
                    threads=plan.threads,
                    folder=folder / name,
                    window=window,
                )
                found = _kept(settings.work, name, key) or _new(settings.work, task, plan, key)
            raw[name] = {**found.model_dump(exclude_unset=True), "label": arms.LABELS[name]}
        whole = Whole(part="conversation", before=plan.before, ours=arms.AGENTKV, manual_tokens=n_manual)
        return Measured({"plan": whole.model_dump(), **raw}, digest, inputs)

    @staticmethod
    def figures(raw: Raw) -> dict[str, Any]:
        """``arms``: what was seen of each, and its figures; ``against``: of each other arm, against agentkv."""
        whole = Whole.model_validate(raw["plan"])
        seen = {name: Seen.model_validate(record) for name, record in raw.items() if name != "plan"}
        measured = {name: arm for name, arm in seen.items() if arm.skipped is None}
        found = {name: Summary.of(arm, whole.before).model_dump(exclude_unset=True) for name, arm in measured.items()}
        ours = measured.get(whole.ours)
        against = {
            name: Against.of(arm, ours, whole.before).model_dump(exclude_unset=True)
            for name, arm in measured.items()
            if ours is not None and name != whole.ours
        }
        return {
            "manual_tokens": whole.manual_tokens,
            "arms": {name: {**arm.model_dump(exclude_unset=True), **found.get(name, {})} for name, arm in seen.items()},
            "against": against,
        }

    @staticmethod
    def check(result: dict[str, Any]) -> None:
        """Agentkv prefilled the new tokens only, kept every turn, and gave the logits of a cold prefill."""
        seen = {name: arm for name, arm in zip(result["arms"], arms_of(result), strict=True) if arm.skipped is None}
        if arms.AGENTKV not in seen:
            return
        ours = seen[arms.AGENTKV].rows
        for before, row in zip([None, *ours], ours, strict=False):
            if row.not_kept:
                raise GuaranteeViolated(f"turn {row.turn} was not kept: {row.not_kept}")
            new = row.prompt - (before.prompt if before else result["manual_tokens"])
            if row.evaluated > new + 1:
                raise GuaranteeViolated(f"turn {row.turn} evaluated {row.evaluated} tokens; {new} are new")
        logits = {row.turn: row.logits_sha256 for row in ours}
        for row in seen[arms.PREFILLED].rows if arms.PREFILLED in seen else ():
            if logits[row.turn] != row.logits_sha256:
                raise GuaranteeViolated(f"turn {row.turn}: the logits are not those of a cold prefill")

    @staticmethod
    def notes(result: dict[str, Any]) -> Iterable[str]:
        """How long it was, and what the table does not say of each arm."""
        settings = result["settings"]
        yield (
            f"{result['model']}: a manual of {result['manual_tokens']:,} tokens, {settings['turns']} turns, answers of "
            f"{settings['answer']} tokens, killed after turn {settings['turns'] // 2}"
        )
        for arm in arms_of(result):
            yield from arm.notes()


# --- one arm ------------------------------------------------------------------------------------------


class _Process:
    """A process with one arm in it. It ends when it is killed, or with this block."""

    def __init__(self, task: Task) -> None:
        command = [sys.executable, "-m", TARGET]
        started = time.perf_counter()
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        try:
            opened = Opened.model_validate_json(self._exchange(task))
        except BaseException:
            self.kill()
            raise
        self.opened = Opened(open_ms=opened.open_ms, process_ms=(time.perf_counter() - started) * 1e3)

    def __enter__(self) -> _Process:
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()

    def ask(self, turn: int, max_new: int) -> TurnRow:
        return TurnRow.model_validate_json(self._exchange(Request(turn=turn, max_new=max_new)))

    def kill(self) -> None:
        """SIGKILL: nothing is closed or written any more."""
        self._process.kill()
        self._process.wait()
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe is not None:
                pipe.close()

    def _exchange(self, line: Row) -> str:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        try:
            self._process.stdin.write(line.model_dump_json() + "\n")
            self._process.stdin.flush()
        except BrokenPipeError:
            pass  # it has ended, and its code says how
        answer = self._process.stdout.readline()
        if not answer:
            raise WorkerFailed(TARGET, self._process.wait())
        return answer


def _new(work: Path | None, task: Task, plan: Plan, key: str) -> Seen:
    """The arm, measured now, and kept in ``work``."""
    task.folder.mkdir(parents=True, exist_ok=True)
    try:
        arm = _measured(task, plan)
    except WorkerFailed as error:
        if task.arm in arms.OWN:
            raise
        arm = Seen(skipped=f"it failed: {error.message}")
    if work is not None:
        work.mkdir(parents=True, exist_ok=True)
        kept = {"key": key, "arm": arm.model_dump(exclude_unset=True)}
        fsio.write_durably(work / f"{task.arm}.json", [orjson.dumps(kept)])
    return arm


def _measured(task: Task, plan: Plan) -> Seen:
    name, prepare = task.arm, None
    if name in arms.SURVIVING:
        with _Process(task) as process:
            prepare = process.ask(0, 1)
        say(f"{name}: the manual was prefilled in {prepare.total_ms / 1e3:.1f} s")
    turns = list(range(1, plan.turns + 1))
    if name in arms.SAMPLED:
        turns = sorted({1, plan.before + 1, plan.turns})
    rows, opened = [], []
    for half in ([t for t in turns if t <= plan.before], [t for t in turns if t > plan.before]):
        with _Process(task) as process:
            opened.append(process.opened)
            rows += [process.ask(turn, plan.answer) for turn in half]
        say(f"{name}: turns {half[0]} to {half[-1]} done, killed")
    return Seen(prepare=prepare, rows=rows, opened=opened, all_turns=len(turns) == plan.turns)


def _kept(work: Path | None, name: str, key: str) -> Seen | None:
    file = work / f"{name}.json" if work is not None else None
    if file is None or not file.exists():
        return None
    found = orjson.loads(file.read_bytes())
    return Seen.model_validate({**found["arm"], "resumed": True}) if found["key"] == key else None
