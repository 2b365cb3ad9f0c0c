"""``answers`` on the fake engine: broken off and gone on with, and when it is not."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from agentkv import FakeEngine
from agentkv.bench import measured
from agentkv.engine.llama import engine as llama
from agentkv.evidence import Ledger
from agentkv.evidence.scoring import score
from tests.benchmarks import answers
from tests.benchmarks.commands.resuming import unfinished
from tests.benchmarks.scorers import answers as scores

SKILL = "---\nname: {name}\ndescription: All about {name}.\n---\n\nThe {name} are kept for {days} days.\n"
ROUTE = '{{"query": "How long are {name} kept?", "skill": "{name}", "answer": ["{days} days"]}}\n'


@pytest.fixture
def skills(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    def opened(*_arguments: Any, **_more: Any) -> FakeEngine:
        return FakeEngine(window=1 << 15, replies=lambda prompt: "11 days")

    monkeypatch.setattr(llama.LlamaEngine, "open", opened)
    folder = tmp_path / "skills"
    for name, days in (("apples", 11), ("books", 12), ("coats", 13)):
        (folder / name).mkdir(parents=True)
        (folder / name / "SKILL.md").write_text(SKILL.format(name=name, days=days))
        (folder / name / "routes.jsonl").write_text(ROUTE.format(name=name, days=days))
    (folder / "uncovered.jsonl").write_text('{"query": "zzzz", "skill": null}\n')
    return folder


def broken_off(skills: Path, ledger: Ledger, monkeypatch: pytest.MonkeyPatch) -> Any:
    """The run, which was stopped at its second question."""
    make, seen = scores.answer_item, []

    def stops(*what: Any) -> Any:
        seen.append(what)
        if len(seen) == 2:
            raise KeyboardInterrupt
        return make(*what)

    with monkeypatch.context() as patched:
        patched.setattr(scores, "answer_item", stops)
        with pytest.raises(KeyboardInterrupt):
            answers.run("scripted", skills, ledger=ledger)
    (begun,) = ledger.runs()
    assert (begun.status, [item.key for item in begun.items]) == ("unfinished", ["apples/0"])
    return begun


def test_a_run_that_was_broken_off_is_gone_on_with(
    skills: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ledger = Ledger(tmp_path / "ledger")
    begun = broken_off(skills, ledger, monkeypatch)
    how = answers.settings_of(None, None, None, True) | {"model": "scripted"}
    assert unfinished(ledger, scores.ANSWERS, how) == begun  # as the command looks for it
    assert unfinished(ledger, scores.ANSWERS, {**how, "reread": False}) is None
    result = answers.run("scripted", skills, ledger=ledger, found=begun)
    (done,) = ledger.runs()
    assert unfinished(ledger, scores.ANSWERS, how) is None
    assert (done.status, result["ledger_run"]) == ("finished", begun.id)
    assert [item.key for item in done.items] == ["apples/0", "books/0", "coats/0", "uncovered.jsonl/0"]
    assert (result["summary"]["answered"]["k"], result["summary"]["answered"]["n"]) == (1, 3)
    assert result["summary"]["identical"]["k"] == 3
    assert measured.rescore(result) == []
    score(ledger, done).require_equal()


def test_other_questions_are_another_run(skills: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ledger = Ledger(tmp_path / "ledger")
    begun = broken_off(skills, ledger, monkeypatch)
    (skills / "apples" / "routes.jsonl").write_text(ROUTE.format(name="apples", days=99))
    result = answers.run("scripted", skills, ledger=ledger, found=begun)
    assert result["ledger_run"] != begun.id
    assert result["summary"]["answered"]["k"] == 0
    assert [run.status for run in ledger.runs()] == ["unfinished", "finished"]


def test_settings_name_the_run() -> None:
    assert answers.settings_of(None, 1, 5, True) != answers.settings_of(None, 1, 6, True)
    assert answers.settings_of(4, None, None, False)["max_new"] == answers.MAX_NEW
