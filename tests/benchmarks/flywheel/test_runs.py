"""The benchmarks as a whole on a scripted model: figures, records, going on, scoring again without a model."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from agentkv import AgentMemory, FakeEngine
from agentkv.bench import measured
from agentkv.bench.results import Result
from agentkv.errors import GuaranteeViolated, UsageError
from agentkv.evidence import Ledger, score
from agentkv.flywheel.gate import Gate
from agentkv.flywheel.solution import Program
from agentkv.io.hashing import sha256
from tests.benchmarks.flywheel import adaptation, aime, interference, negatives, reread, transfer
from tests.benchmarks.flywheel.families import FAMILIES
from tests.benchmarks.flywheel.variants import ORIGINS
from tests.benchmarks.tables import TABLES

Engines = Callable[[], FakeEngine]
TWO = FAMILIES[1], FAMILIES[8]


@pytest.fixture(autouse=True)
def _opened(monkeypatch: pytest.MonkeyPatch, engine: Engines) -> None:
    """The benchmarks open their model by name; here they get the scripted one."""
    for module in (transfer, interference, aime, negatives):

        def opened(store: Any, model: str, embedder: Any = None, **settings: Any) -> AgentMemory:
            return AgentMemory(store, engine())

        monkeypatch.setattr(module, "AgentMemory", opened)


def test_families_are_scored_and_can_be_gone_on_with(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ledger = Ledger(tmp_path / "ledger")
    run = transfer._Bench._item

    def breaks(self: Any, instance: Any) -> Any:
        if instance.number == 1:
            raise KeyboardInterrupt
        return run(self, instance)

    monkeypatch.setattr(transfer._Bench, "_item", breaks)
    with pytest.raises(KeyboardInterrupt):
        transfer.run("scripted", per_family=2, families=TWO, ledger=ledger)
    monkeypatch.setattr(transfer._Bench, "_item", run)
    (begun,) = ledger.runs()
    assert (begun.status, len(begun.items)) == ("unfinished", 1)
    result = transfer.run("scripted", per_family=2, families=TWO, ledger=ledger, found=begun)
    summary = result["summary"]
    assert (summary["instances"], summary["answered_given"]["k"], summary["filled"]["n"]) == (4, 4, 4)
    assert summary["direct"]["n"] == 4
    assert summary["direct"]["k"] < 4
    (done,) = ledger.runs()
    score(ledger, done).require_equal()
    assert done.status == "finished"


def test_interference_compares_the_same_questions(tmp_path: Path) -> None:
    ledger = Ledger(tmp_path / "ledger")
    result = interference.run("scripted", per_family=1, ledger=ledger)
    summary = result["summary"]
    assert len(result["blocks"]) == 8
    assert summary["all_blocks"] == {**summary["all_blocks"], "k": 8, "n": 8}
    assert summary["prompt_tokens"]["all"] > 3 * summary["prompt_tokens"]["one"]
    score(ledger, ledger.runs()[0]).require_equal()


def test_interference_of_hard_problems(monkeypatch: pytest.MonkeyPatch) -> None:
    variants = {v.prompt: v.parameters for one in ORIGINS[:8] for v in one.variants(1)}

    def reply(prompt: str) -> str:
        text = prompt.rpartition("Task: ")[2].partition("\nParameters:")[0]
        return json.dumps(variants.get(text, {}))

    def opened(store: Any, model: str, **settings: Any) -> AgentMemory:
        return AgentMemory(store, FakeEngine(window=1 << 15, replies=reply, keeps_grammar=True))

    monkeypatch.setattr(interference, "AgentMemory", opened)
    result = interference.run("scripted", per_family=1, problems=True)
    assert result["blocks"] == [one.name for one in ORIGINS[:8]]
    assert (result["summary"]["all_blocks"]["k"], result["summary"]["all_blocks"]["n"]) == (8, 8)
    table = next(one for one in TABLES if one.name == "interference").markdown([Result(result, "i.json")])
    assert "| scripted | hard problems | 8/8" in table


def test_negatives_are_found(tmp_path: Path) -> None:
    result = negatives.run("scripted")
    rows = {row["id"]: row for row in result["baked"]}
    assert {name: row["verdict"] for name, row in rows.items()} == dict.fromkeys(rows, "verified")
    assert [name for name, row in rows.items() if row["transferable"]] == ["a-method"]
    assert [one["value"] for one in rows["baked-half"]["baked_in"]] == [46]
    assert rows["baked-answer"]["ignored"] == ["crates", "kg"]
    assert not result["procedure"]["kept"]
    negatives.check(result)
    assert result["procedure"]["n"] == len(negatives.SUMS)
    assert [row["id"] for row in result["easy"]] == [name for name, *_ in negatives.EASY]
    table = next(one for one in TABLES if one.name == "negatives").markdown([Result(result, "n.json")])
    assert len(table.splitlines()) == 2 + len(negatives.EASY) + 1 + len(negatives.BAKED)
    assert "| a harmful procedure | not kept |" in table
    assert "| a solution: baked-half | verified, cannot transfer | 46 (" in table
    assert measured.rescore(result) == []
    said = next(record for record in result["raw"] if record["key"].startswith("without/"))
    answer = str(said["expected"]["answer"])
    said["raw"]["generated"] = "no number" if said["raw"]["generated"].strip() == answer else answer
    (wrong,) = measured.rescore(result)
    assert wrong.startswith("procedure.without: reported")
    with pytest.raises(GuaranteeViolated):
        negatives.check({**result, "baked": [{**rows["baked-half"], "transferable": True}]})


PROBLEMS = [{"id": f"p{n}", "problem": f"What is {n} squared, plus one, times {n}?", "answer": str(n)} for n in (3, 4)]


def test_hard_problems_by_rule(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path, by_hand = tmp_path / "problems.jsonl", tmp_path / "solutions.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in PROBLEMS))
    by_hand.write_text('{"id": "p4", "program": "def solve():\\n    return 2 + 2\\n"}\n')
    monkeypatch.setattr(aime, "in_new_process", lambda target, payload: aime.recall_worker(payload))
    ledger = Ledger(tmp_path / "ledger")
    how: dict[str, Any] = {"samples": 1, "max_new": 20, "ledger": ledger, "solutions": by_hand, "repeats": 2}
    result = aime.run(path, "scripted", tmp_path / "store", **how)
    summary = result["summary"]
    assert (summary["base"]["k"], summary["base"]["n"], summary["library"]) == (1, 2, ["p4"])
    assert (summary["recurrence"]["k"], summary["system"]["k"], summary["repeats"]) == (1, 2, 2)
    assert summary["repeats_equal"]
    assert (summary["base_confident"]["k"], summary["base_confident"]["n"]) == (1, 2)
    assert 0 < summary["recurrence_check_seconds"] < summary["recurrence_seconds"]
    assert len(summary["recurrence_joules"]) == 2
    assert measured.rescore(result) == []
    (run,) = ledger.runs()
    score(ledger, run).require_equal()
    assert PROBLEMS[0]["problem"] not in (tmp_path / "ledger" / "ledger.jsonl").read_text()
    (kept,) = [item.raw["attempts"][0] for item in ledger.items(run) if item.key == "base/p3"]
    (told,) = [item.raw["attempts"][0] for item in measured.items_of(result) if item.key == "base/p3"]
    assert told["generated"] == f"sha256:{sha256(kept['generated'].encode())}"
    assert {**told, "generated": kept["generated"], "program": kept["program"]} == kept


def test_the_programs_that_come_along_are_the_last_to_be_asked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    one = ORIGINS[1]
    path = tmp_path / "problems.jsonl"
    rows = [{"id": name, "problem": f"{name} is hard", "answer": str(one.answer)} for name in (one.problem, "zz")]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    monkeypatch.setattr(aime, "in_new_process", lambda target, payload: aime.recall_worker(payload))
    ledger = Ledger(tmp_path / "ledger")
    how: dict[str, Any] = {"samples": 2, "max_new": 20, "ledger": ledger, "repeats": 1}
    without = aime.run(path, "scripted", tmp_path / "a", own_programs=False, **how)
    assert without["summary"]["library"] == []
    by_hand = tmp_path / "solutions.jsonl"
    program = f"def solve():\n    return {one.answer - 1} + 1\n"
    by_hand.write_text(json.dumps({"id": "zz", "program": program}) + "\n")
    found = aime.run(path, "scripted", tmp_path / "b", solutions=by_hand, **how)
    assert found["summary"]["library"] == [one.problem, "zz"]
    assert adaptation.in_library(ledger, "scripted") == [one.problem]
    assert adaptation.in_library(ledger, "another") == []
    solvers = [item.raw["solver"] for item in measured.items_of(found) if item.key.startswith("learned/")]
    assert solvers == ["programs of this benchmark", "file solutions.jsonl"]


def test_the_base_is_gone_on_with_by_problem(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path, asked = tmp_path / "problems.jsonl", list[str]()
    path.write_text("".join(json.dumps(row) + "\n" for row in PROBLEMS))
    own = Gate.own

    def breaks(self: Any, task: Any, **how: Any) -> Any:
        asked.append(task.id)
        if len(asked) == 2:
            raise KeyboardInterrupt
        return own(self, task, **how)

    monkeypatch.setattr(Gate, "own", breaks)
    ledger = Ledger(tmp_path / "ledger")
    how: dict[str, Any] = {"samples": 2, "max_new": 20, "own_programs": False, "repeats": 0}
    with pytest.raises(KeyboardInterrupt):
        aime.run(path, "scripted", tmp_path / "store", ledger=ledger, **how)
    (begun,) = ledger.runs()
    result = aime.run(path, "scripted", tmp_path / "store", ledger=ledger, found=begun, **how)
    assert asked[:3] == ["p3", "p4", "p4"]
    assert result["summary"]["base"]["n"] == 2
    assert len(ledger.runs()) == 1


def test_what_was_written_is_read_anew(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path, ledger = tmp_path / "problems.jsonl", Ledger(tmp_path / "ledger")
    path.write_text("".join(json.dumps(row) + "\n" for row in PROBLEMS))
    how: dict[str, Any] = {"samples": 2, "max_new": 20, "own_programs": False, "repeats": 0, "ledger": ledger}
    first = aime.run(path, "scripted", tmp_path / "a", **how)
    monkeypatch.setattr(AgentMemory, "ask", lambda *_, **__: pytest.fail("the model was asked"))
    monkeypatch.setattr(reread, "candidate_in", lambda text: Program(source="def solve():\n    return 4\n"))
    again = aime.run(path, "scripted", tmp_path / "b", reread=first["ledger_run"], **how)
    answers = [[item.raw["answer"] for item in measured.items_of(one)] for one in (first, again)]
    assert answers == [[3, 3], [4, 4]]
    assert again["settings"]["reread"] == first["ledger_run"]
    for name in ("base_tokens", "base_seconds", "base_joules"):
        assert again["summary"][name] == first["summary"][name]
    assert again["summary"]["base_answered"] == [4, 4]
    digests = [[one["sha256"] for one in item.raw["attempts"]] for item in measured.items_of(first)]
    assert digests != [[one["sha256"] for one in item.raw["attempts"]] for item in measured.items_of(again)]
    runs = len(ledger.runs())
    with pytest.raises(UsageError, match="another samples"):
        aime.run(path, "scripted", tmp_path / "c", reread=first["ledger_run"], **(how | {"samples": 3}))
    assert len(ledger.runs()) == runs


def test_variants_are_routed_and_adapted_in_three_ways(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    origins = [ORIGINS[0], ORIGINS[2]]
    variants = {one.variants(1)[0].prompt: (one, one.variants(1)[0]) for one in origins}
    asked = list[str]()

    def reply(prompt: str) -> str:
        question = prompt.rpartition("user\n")[2].removesuffix("assistant\n")
        text = question.removeprefix("Task: ").removesuffix("\nParameters:")
        if text in variants:
            asked.append(text)
            return json.dumps(variants[text][1].parameters)
        known = [pair for text, pair in variants.items() if text in question]
        if not known:
            return "no idea"
        one, variant = known[0]
        return f"```python\nPARAMETERS = {variant.parameters!r}\n\n{one.program}```"

    def opened(store: Any, model: str, embedder: Any = None, **settings: Any) -> AgentMemory:
        return AgentMemory(store, FakeEngine(window=1 << 15, replies=reply, keeps_grammar=True))

    monkeypatch.setattr(adaptation, "AgentMemory", opened)
    ledger, run = Ledger(tmp_path / "ledger"), adaptation._Bench._item

    def breaks(self: Any, variant: Any) -> Any:
        if variant.origin == origins[1].name:
            raise KeyboardInterrupt
        return run(self, variant)

    monkeypatch.setattr(adaptation._Bench, "_item", breaks)
    with pytest.raises(KeyboardInterrupt):
        adaptation.run("scripted", origins=origins, ledger=ledger)
    monkeypatch.setattr(adaptation._Bench, "_item", run)
    (begun,) = ledger.runs()
    assert (begun.status, len(begun.items)) == ("unfinished", 1)
    result = adaptation.run("scripted", origins=origins, ledger=ledger, found=begun)
    summary = result["summary"]
    assert summary["variants"] == 2
    assert {way: found["k"] for way, found in summary["answered_given"].items()} == {
        "fill": 2,
        "rewrite": 2,
        "substitute": 2,
    }
    assert summary["answered"]["fill"]["k"] <= summary["routed"]["k"]
    assert measured.rescore(result) == []
    (done,) = ledger.runs()
    score(ledger, done).require_equal()
    assert done.status == "finished"


def test_an_absent_file_skips_and_a_bad_one_is_an_error(tmp_path: Path) -> None:
    ledger = Ledger(tmp_path / "ledger")
    assert "not there" in aime.run(tmp_path / "no", "scripted", tmp_path / "store", ledger=ledger)["skipped"]
    bad = tmp_path / "bad.jsonl"
    bad.write_text('{"id": "a"}\n')
    with pytest.raises(UsageError):
        aime.problems(bad)
