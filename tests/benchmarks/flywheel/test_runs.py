"""The benchmarks as a whole on a scripted model: figures, records, resumed runs, scoring again without a model."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import pytest

from agentkv import AgentMemory, FakeEngine
from agentkv.bench import measured
from agentkv.bench.results import Result
from agentkv.errors import GuaranteeViolated, UsageError
from agentkv.evidence import Ledger, score
from agentkv.flywheel.gate import Gate
from agentkv.flywheel.solution import Program
from agentkv.io.hashing import sha256
from tests.benchmarks.flywheel import adaptation, aime, replies
from tests.benchmarks.flywheel.adaptation import Variants
from tests.benchmarks.flywheel.aime import Aime
from tests.benchmarks.flywheel.families import FAMILIES
from tests.benchmarks.flywheel.interference import Interference
from tests.benchmarks.flywheel.negatives import EASY, PROGRAMS, SUMS, Negatives
from tests.benchmarks.flywheel.transfer import Families
from tests.benchmarks.flywheel.variants import ORIGINS
from tests.benchmarks.recording import Recorded
from tests.benchmarks.tables import TABLES

Engines = Callable[[], FakeEngine]
TWO = FAMILIES[1], FAMILIES[8]
B = TypeVar("B", bound=Recorded[Any])


@pytest.fixture
def ledger(tmp_path: Path) -> Ledger:
    return Ledger(tmp_path / "ledger")


def recorded(benchmark: B, ledger: Ledger) -> B:
    benchmark.ledger = ledger
    return benchmark


def broken_off(benchmark: Recorded[Any], owner: Any, name: str, second: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """The run, stopped when ``name`` of ``owner`` is called for the ``second`` time."""
    whole, calls = getattr(owner, name), list[Any]()

    def breaks(*asked: Any, **more: Any) -> Any:
        calls.append(asked)
        if len(calls) == second:
            raise KeyboardInterrupt
        return whole(*asked, **more)

    with monkeypatch.context() as patched:
        patched.setattr(owner, name, breaks)
        with pytest.raises(KeyboardInterrupt):
            benchmark.run()
    assert benchmark.ledger is not None
    (run,) = benchmark.ledger.runs()
    assert (run.status, len(run.items)) == ("unfinished", second - 1)


def resumed(benchmark: Recorded[Any]) -> Any:
    """The result of the one run in the ledger, which has its end now."""
    result = benchmark.run()
    assert benchmark.ledger is not None
    (done,) = benchmark.ledger.runs()
    assert (done.status, done.id) == ("finished", result["ledger_run"])
    score(benchmark.ledger, done).require_equal()
    assert measured.rescore(result) == []
    return result


def table_of(name: str, result: dict[str, Any]) -> str:
    return next(one for one in TABLES if one.name == name).markdown([Result(result, "r.json")])


def test_families_are_scored_and_resumed(engine: Engines, ledger: Ledger, monkeypatch: pytest.MonkeyPatch) -> None:
    benchmark = recorded(Families(model="scripted", engine=engine(), per_family=2, families=TWO), ledger)
    broken_off(benchmark, Families, "instance", 2, monkeypatch)
    result = resumed(benchmark)
    summary = result["summary"]
    assert (summary["instances"], summary["answered_given"]["k"], summary["filled"]["n"]) == (4, 4, 4)
    assert summary["direct"]["n"] == 4
    assert summary["direct"]["k"] < 4
    assert [row["family"] for row in result["rows"]] == [family.name for family in TWO for _ in range(2)]
    assert "median time of a transfer: " in list(Families.notes(result))[-1]
    few = Families(model="scripted", engine=engine(), per_family=2, direct=0, typed=False, families=TWO[:1]).run()
    assert few["summary"]["direct"]["n"] == few["summary"]["answered_typed"]["n"] == 0
    assert "| not asked |" in table_of("families", few)


def test_interference_compares_the_same_questions(
    engine: Engines, ledger: Ledger, monkeypatch: pytest.MonkeyPatch
) -> None:
    benchmark = recorded(Interference(model="scripted", engine=engine(), per_family=1), ledger)
    broken_off(benchmark, AgentMemory, "ask", 1, monkeypatch)
    result = resumed(benchmark)
    summary = result["summary"]
    assert len(result["blocks"]) == 8
    assert summary["all_blocks"] == {**summary["all_blocks"], "k": 8, "n": 8}
    assert summary["prompt_tokens"]["all"] > 3 * summary["prompt_tokens"]["one"]


def test_interference_of_hard_problems() -> None:
    variants = {v.prompt: v.parameters for one in ORIGINS[:8] for v in one.variants(1)}

    def reply(prompt: str) -> str:
        text = prompt.rpartition("Task: ")[2].partition("\nParameters:")[0]
        return json.dumps(variants.get(text, {}))

    engine = FakeEngine(window=1 << 15, replies=reply, keeps_grammar=True)
    result = Interference(model="scripted", engine=engine, per_family=1, problems=True).run()
    assert result["blocks"] == [one.name for one in ORIGINS[:8]]
    assert (result["summary"]["all_blocks"]["k"], result["summary"]["all_blocks"]["n"]) == (8, 8)
    assert "| scripted | hard problems | 8/8" in table_of("interference", result)


def test_negatives_are_found(engine: Engines) -> None:
    result = Negatives(model="scripted", engine=engine()).run()
    rows = {row["id"]: row for row in result["baked"]}
    assert {name: row["verdict"] for name, row in rows.items()} == dict.fromkeys(rows, "verified")
    assert [name for name, row in rows.items() if row["transferable"]] == ["a-method"]
    assert [one["value"] for one in rows["baked-half"]["baked_in"]] == [46]
    assert rows["baked-answer"]["ignored"] == ["crates", "kg"]
    assert not result["procedure"]["kept"]
    Negatives.check(result)
    assert result["procedure"]["n"] == len(SUMS)
    assert [row["id"] for row in result["easy"]] == [name for name, *_ in EASY]
    table = table_of("negatives", result)
    assert len(table.splitlines()) == 2 + len(EASY) + 1 + len(PROGRAMS)
    assert "| a harmful procedure | not kept |" in table
    assert "| a solution: baked-half | verified, cannot transfer | 46 (" in table
    assert measured.rescore(result) == []
    one = next(record for record in result["raw"] if record["key"].startswith("without/"))
    answer = str(one["expected"]["answer"])
    one["raw"]["generated"] = "no number" if one["raw"]["generated"].strip() == answer else answer
    (wrong,) = measured.rescore(result)
    assert wrong.startswith("procedure.without: reported")
    with pytest.raises(GuaranteeViolated):
        Negatives.check({**result, "baked": [{**rows["baked-half"], "transferable": True}]})


# --- hard problems ----------------------------------------------------------------------------------

PROBLEMS = [{"id": f"p{n}", "problem": f"What is {n} squared, plus one, times {n}?", "answer": str(n)} for n in (3, 4)]
Hard = Callable[..., Aime]


@pytest.fixture
def problems(tmp_path: Path) -> Path:
    path = tmp_path / "problems.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in PROBLEMS))
    return path


@pytest.fixture
def hard(engine: Engines, problems: Path, tmp_path: Path, ledger: Ledger, monkeypatch: pytest.MonkeyPatch) -> Hard:
    """``aime`` with a scripted model, all of it in this process."""
    monkeypatch.setattr(aime, "in_new_process", lambda target, payload: aime.recur(payload, engine()))

    def made(**asked: Any) -> Aime:
        usual: dict[str, Any] = {"file": problems, "store": tmp_path / "store", "samples": 2, "max_new": 20}
        return recorded(Aime(model="scripted", engine=engine(), **{**usual, **asked}), ledger)

    return made


def test_hard_problems_by_rule(hard: Hard, ledger: Ledger, tmp_path: Path) -> None:
    by_hand = tmp_path / "solutions.jsonl"
    by_hand.write_text('{"id": "p4", "program": "def solve():\\n    return 2 + 2\\n"}\n')
    result = hard(samples=1, solutions=by_hand, repeats=2).run()
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
    (shown,) = [item.raw["attempts"][0] for item in measured.items_of(result) if item.key == "base/p3"]
    assert shown["generated"] == f"sha256:{sha256(kept['generated'].encode())}"
    assert {**shown, "generated": kept["generated"], "program": kept["program"]} == kept


def test_the_programs_that_come_along_are_the_last_to_be_asked(
    hard: Hard, problems: Path, ledger: Ledger, tmp_path: Path
) -> None:
    one = ORIGINS[1]
    rows = [{"id": name, "problem": f"{name} is hard", "answer": str(one.answer)} for name in (one.problem, "zz")]
    problems.write_text("".join(json.dumps(row) + "\n" for row in rows))
    without = hard(store=tmp_path / "a", repeats=1, own_programs=False).run()
    assert without["summary"]["library"] == []
    by_hand = tmp_path / "solutions.jsonl"
    program = f"def solve():\n    return {one.answer - 1} + 1\n"
    by_hand.write_text(json.dumps({"id": "zz", "program": program}) + "\n")
    result = hard(store=tmp_path / "b", repeats=1, solutions=by_hand).run()
    assert result["summary"]["library"] == [one.problem, "zz"]
    assert adaptation.in_library(ledger, "scripted") == [one.problem]
    assert adaptation.in_library(ledger, "another") == []
    solvers = [item.raw["solver"] for item in measured.items_of(result) if item.key.startswith("learned/")]
    assert solvers == ["programs of this benchmark", "file solutions.jsonl"]


def test_the_base_is_resumed_by_problem(hard: Hard, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = list[str]()
    broken_off(hard(own_programs=False, repeats=0), Gate, "own", 2, monkeypatch)
    own = Gate.own

    def seen(gate: Gate, task: Any, **how: Any) -> Any:
        asked.append(task.id)
        return own(gate, task, **how)

    monkeypatch.setattr(Gate, "own", seen)
    result = resumed(hard(own_programs=False, repeats=0))
    assert set(asked) == {"p4"}
    assert result["summary"]["base"]["n"] == 2


def test_what_was_written_is_parsed_again(
    hard: Hard, ledger: Ledger, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    usual: dict[str, Any] = {"own_programs": False, "repeats": 0}
    first = hard(store=tmp_path / "a", **usual).run()
    monkeypatch.setattr(AgentMemory, "ask", lambda *_, **__: pytest.fail("the model was asked"))
    monkeypatch.setattr(replies, "candidate_in", lambda text: Program(source="def solve():\n    return 4\n"))
    again = hard(store=tmp_path / "b", again=first["ledger_run"], **usual).run()
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
        hard(store=tmp_path / "c", again=first["ledger_run"], samples=3, **usual).run()
    assert len(ledger.runs()) == runs


def test_an_absent_file_skips_and_bad_ones_are_errors(hard: Hard, tmp_path: Path) -> None:
    assert "not there" in hard(file=tmp_path / "no").run()["skipped"]
    bad = tmp_path / "bad.jsonl"
    bad.write_text('{"id": "a"}\n')
    with pytest.raises(UsageError, match=r"bad.jsonl:1"):
        hard(file=bad).run()
    with pytest.raises(UsageError, match="go together"):
        hard(teacher="http://127.0.0.1:1").run()
    with pytest.raises(UsageError, match="--ledger DIR"):
        Aime(file=bad, store=tmp_path).run()


def test_variants_are_routed_and_adapted_in_three_ways(ledger: Ledger, monkeypatch: pytest.MonkeyPatch) -> None:
    origins = [ORIGINS[0], ORIGINS[2]]
    variants = {one.variants(1)[0].prompt: (one, one.variants(1)[0]) for one in origins}

    def reply(prompt: str) -> str:
        question = prompt.rpartition("user\n")[2].removesuffix("assistant\n")
        text = question.removeprefix("Task: ").removesuffix("\nParameters:")
        if text in variants:
            return json.dumps(variants[text][1].parameters)
        known = [pair for text, pair in variants.items() if text in question]
        if not known:
            return "no idea"
        one, variant = known[0]
        return f"```python\nPARAMETERS = {variant.parameters!r}\n\n{one.program}```"

    engine = FakeEngine(window=1 << 15, replies=reply, keeps_grammar=True)
    names = ",".join(one.problem for one in origins)
    benchmark = recorded(Variants(model="scripted", engine=engine, origins=names), ledger)
    broken_off(benchmark, adaptation, "_tried", 2, monkeypatch)
    summary = resumed(benchmark)["summary"]
    assert summary["variants"] == 2
    given = {way: one["k"] for way, one in summary["answered_given"].items()}
    assert given == {"fill": 2, "rewrite": 2, "substitute": 2}
    assert summary["answered"]["fill"]["k"] <= summary["routed"]["k"]
