"""``answers`` on the fake engine: broken off and resumed, and when it is not."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from agentkv import FakeEngine
from agentkv.bench import measured
from agentkv.bench.results import Result
from agentkv.errors import GuaranteeViolated
from agentkv.evidence import Ledger
from agentkv.evidence.scoring import score
from tests.benchmarks.answers import Answers
from tests.benchmarks.recording import unfinished
from tests.benchmarks.tables import TABLES

SKILL = "---\nname: {name}\ndescription: All about {name}.\n---\n\nThe {name} are kept for {days} days.\n"
ROUTE = '{{"query": "How long are {name} kept?", "skill": "{name}", "answer": ["{days} days"]}}\n'


@pytest.fixture
def skills(tmp_path: Path) -> Path:
    folder = tmp_path / "skills"
    for name, days in (("apples", 11), ("books", 12), ("coats", 13)):
        (folder / name).mkdir(parents=True)
        (folder / name / "SKILL.md").write_text(SKILL.format(name=name, days=days))
        (folder / name / "routes.jsonl").write_text(ROUTE.format(name=name, days=days))
    (folder / "uncovered.jsonl").write_text('{"query": "zzzz", "skill": null}\n')
    return folder


def made(skills: Path, ledger: Ledger | None = None, **asked: Any) -> Answers:
    engine = FakeEngine(window=1 << 15, replies=lambda prompt: "11 days")
    benchmark = Answers(model="scripted", engine=engine, skills=skills, **asked)
    benchmark.ledger = ledger
    return benchmark


def broken_off(skills: Path, ledger: Ledger, monkeypatch: pytest.MonkeyPatch) -> Any:
    """The run, which was stopped at its second question."""
    ask, seen = Answers.question, []

    def stops(*asked: Any) -> Any:
        seen.append(asked)
        if len(seen) == 2:
            raise KeyboardInterrupt
        return ask(*asked)

    with monkeypatch.context() as patched:
        patched.setattr(Answers, "question", stops)
        with pytest.raises(KeyboardInterrupt):
            made(skills, ledger).run()
    (run,) = ledger.runs()
    assert (run.status, [item.key for item in run.items]) == ("unfinished", ["apples/0"])
    return run


def test_a_run_that_broke_off_is_resumed(skills: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ledger = Ledger(tmp_path / "ledger")
    first = broken_off(skills, ledger, monkeypatch)
    naming = {
        "n_skills": None,
        "per_skill": None,
        "uncovered": None,
        "reread": True,
        "max_new": 48,
        "model": "scripted",
    }
    assert unfinished(ledger, "answers", naming) == first
    assert unfinished(ledger, "answers", {**naming, "reread": False}) is None
    result = made(skills, ledger).run()
    (done,) = ledger.runs()
    assert unfinished(ledger, "answers", naming) is None
    assert (done.status, result["ledger_run"]) == ("finished", first.id)
    assert [item.key for item in done.items] == ["apples/0", "books/0", "coats/0", "uncovered.jsonl/0"]
    assert (result["summary"]["answered"]["k"], result["summary"]["answered"]["n"]) == (1, 3)
    assert result["summary"]["identical"]["k"] == 3
    assert measured.rescore(result) == []
    score(ledger, done).require_equal()


def test_other_questions_are_another_run(skills: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ledger = Ledger(tmp_path / "ledger")
    first = broken_off(skills, ledger, monkeypatch)
    (skills / "apples" / "routes.jsonl").write_text(ROUTE.format(name="apples", days=99))
    result = made(skills, ledger).run()
    assert result["ledger_run"] != first.id
    assert result["summary"]["answered"]["k"] == 0
    assert [run.status for run in ledger.runs()] == ["unfinished", "finished"]


def test_settings_name_the_run(skills: Path) -> None:
    small = made(skills, small=True, per_skill=1).settings.naming()
    assert small == {"n_skills": 4, "uncovered": 5, "per_skill": 1, "reread": True, "max_new": 48}
    assert made(skills, per_skill=1).settings.naming() != small


def test_several_models_are_in_one_table_with_intervals(skills: Path) -> None:
    one, other = made(skills).run(), made(skills, compare=False).run()
    table = next(table for table in TABLES if table.name == "answers")
    text = table.markdown([Result(one, "a.json"), Result({**other, "model": "another"}, "b.json")])
    first, second = text.splitlines()[2:]
    assert first.startswith("| another | 3/3 = 1.000 (0.438–1.000) | 1/3 = 0.333 (0.061–0.792) |")
    assert "| not asked |" in first
    assert "| 3/3 = 1.000 (0.438–1.000) | 1/1 = 1.000 (0.207–1.000) |" in second


def test_an_answer_that_differs_is_a_failure(skills: Path) -> None:
    result = made(skills).run()
    Answers.check(result)
    result["raw"][1]["raw"]["reread"]["logits_sha256"] = "00"
    with pytest.raises(GuaranteeViolated, match=r"1 grafted answers differ .* first: 'How long are books kept"):
        Answers.check(result)
