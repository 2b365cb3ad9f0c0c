"""``--part conversation``: one agent's conversation, its process killed in the middle, by several chat models.

Each arm has processes of its own, one after another: never two models at once. Where states outlive a process, the
manual has been read in an earlier conversation of the same agent, in a process of its own (``prepare``); what that cost
is told, and the whole conversation is given with it and without it. Then half of the turns, SIGKILL, and the rest in a
new process. Arms that read everything in each turn are measured in the first turn, the one behind the kill and the last
only, and no sum is given for them.

Answers of other lengths are computed, not measured: the turns without their generation, plus the measured milliseconds
a token. ``work``: a folder where finished arms are kept, to go on with; the result says which came from there.
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import orjson

from agentkv.bench import measured
from agentkv.bench.results import now, origin, say
from agentkv.errors import GuaranteeViolated, WorkerFailed
from agentkv.io import fsio
from agentkv.io.hashing import canonical_json, sha256
from tests.benchmarks.agent import arms, script

TARGET = "tests.benchmarks.agent.worker"


@dataclass(frozen=True)
class Plan:
    """How long everything is: turns of the conversation, tokens of the manual and of an answer."""

    turns: int = 20
    manual: int = 3000
    answer: int = 16
    threads: int | None = None

    @property
    def before(self) -> int:
        """Turns before the process is killed."""
        return self.turns // 2

    @property
    def window(self) -> int:
        """Tokens of the context: tools and a turn take less than this."""
        return -(-(self.manual + 1000 + 200 * self.turns + self.answer) // 256) * 256


SMALL = Plan(turns=4, manual=600)


def run(
    model: str, texts: list[str], plan: Plan, folder: Path, chosen: Sequence[str] = arms.USUAL, work: Path | None = None
) -> dict[str, Any]:
    """Every chosen arm in turn. ``texts``: what the manual is made of; ``folder``: for the arms' states."""
    started, engine = now(), arms.open_engine(model, 64, plan.threads)

    def count(text: str) -> int:
        return len(engine.tokenize(text, special=False))

    manual = script.cut_manual(texts, plan.manual, count)
    digest, train, n_manual = engine.info.sha256, engine.info.train_window, count(manual)
    engine.close()
    said = [asdict(turn) for turn in script.exchanges(plan.turns)]
    inputs = canonical_json([manual, script.ROLE, list(script.TOOLS), said])
    header = origin("agent", model, digest, inputs, started=started, part="conversation", **asdict(plan))
    payload = {"model": model, "manual": manual, "turns": plan.turns, "threads": plan.threads}
    found: dict[str, Any] = {}
    for name in chosen:
        window = plan.window + arms.ROOM.get(name, 0)
        reason = arms.why_skipped(name, model)
        if reason is None and window > train:
            reason = f"it takes a window of {window:,} tokens, and the model was trained on {train:,}"
        if reason is not None:
            say(f"{name}: left out: {reason}")
            found[name] = {"skipped": reason}
            continue
        key = sha256(canonical_json([header["inputs_sha256"], digest, asdict(plan), name]))
        known = _kept(work, name, key)
        own = {"arm": name, "folder": str(folder / name), "window": window}
        found[name] = known or _arm(name, {**payload, **own}, plan)
        if known is None and work is not None:
            work.mkdir(parents=True, exist_ok=True)
            fsio.write_durably(work / f"{name}.json", [orjson.dumps({"key": key, "arm": found[name]})])
    raw = {name: {"label": arms.LABELS[name], **arm} for name, arm in found.items()}
    part = {"part": "conversation", "before": plan.before, "ours": arms.AGENTKV, "manual_tokens": n_manual}
    return measured.result(header, {"plan": part, **raw})


def check(result: dict[str, Any]) -> None:
    """Raise GuaranteeViolated if agentkv read more than the new tokens, kept nothing, or said other than by reading."""
    ours = result["arms"].get(arms.AGENTKV)
    if ours is None or "skipped" in ours:
        return
    for before, row in zip([None, *ours["rows"]], ours["rows"], strict=False):
        if row["not_kept"]:
            raise GuaranteeViolated(f"turn {row['turn']} was not kept: {row['not_kept']}")
        new = row["prompt"] - (before["prompt"] if before else result["manual_tokens"])
        if row["evaluated"] > new + 1:
            raise GuaranteeViolated(f"turn {row['turn']} evaluated {row['evaluated']} tokens; {new} are new")
    read = result["arms"].get(arms.REREAD, {}).get("rows", [])
    for row in read:
        same = next(mine for mine in ours["rows"] if mine["turn"] == row["turn"])
        if same["logits_sha256"] != row["logits_sha256"]:
            raise GuaranteeViolated(f"turn {row['turn']}: the logits are not those of reading everything")


# --- one arm ------------------------------------------------------------------------------------------


class _Process:
    """A process with one arm in it. It ends when it is killed, or with this block."""

    def __init__(self, payload: dict[str, Any]) -> None:
        command = [sys.executable, "-m", TARGET]
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        try:
            self.open_ms: float = self._exchange(payload)["open_ms"]
        except BaseException:
            self.kill()
            raise

    def __enter__(self) -> _Process:
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()

    def ask(self, turn: int, max_new: int) -> dict[str, Any]:
        return self._exchange({"turn": turn, "max_new": max_new})

    def kill(self) -> None:
        """SIGKILL: nothing is closed or written any more."""
        self._process.kill()
        self._process.wait()
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe is not None:
                pipe.close()

    def _exchange(self, line: dict[str, Any]) -> dict[str, Any]:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        try:
            self._process.stdin.write(json.dumps(line) + "\n")
            self._process.stdin.flush()
        except BrokenPipeError:
            pass  # it has ended, and its code says how
        answer = self._process.stdout.readline()
        if not answer:
            raise WorkerFailed(TARGET, self._process.wait())
        row: dict[str, Any] = json.loads(answer)
        return row


def _arm(name: str, payload: dict[str, Any], plan: Plan) -> dict[str, Any]:
    Path(payload["folder"]).mkdir(parents=True, exist_ok=True)
    try:
        return _measured(name, payload, plan)
    except WorkerFailed as error:
        if name in (arms.AGENTKV, arms.DEEP, arms.REREAD):
            raise
        return {"skipped": f"it failed: {error.message}"}


def _measured(name: str, payload: dict[str, Any], plan: Plan) -> dict[str, Any]:
    prepare: dict[str, Any] | None = None
    if name in arms.SURVIVING:
        with _Process(payload) as process:
            prepare = process.ask(0, 1)
        say(f"{name}: the manual was read in {prepare['total_ms'] / 1e3:.1f} s")
    turns = list(range(1, plan.turns + 1))
    if name in arms.SAMPLED:
        turns = sorted({1, plan.before + 1, plan.turns})
    rows, opened = [], []
    for half in ([t for t in turns if t <= plan.before], [t for t in turns if t > plan.before]):
        started = time.perf_counter()
        with _Process(payload) as process:
            opened.append({"process_ms": (time.perf_counter() - started) * 1e3, "open_ms": process.open_ms})
            rows += [process.ask(turn, plan.answer) for turn in half]
        say(f"{name}: turns {half[0]} to {half[-1]} done, killed")
    return {"prepare": prepare, "rows": rows, "opened": opened, "all_turns": len(turns) == plan.turns}


def _kept(work: Path | None, name: str, key: str) -> dict[str, Any] | None:
    file = work / f"{name}.json" if work is not None else None
    if file is None or not file.exists():
        return None
    found = orjson.loads(file.read_bytes())
    return {**found["arm"], "resumed": True} if found["key"] == key else None
