"""The questions that come along, how they are graded, and the benchmark on a small folder and the fake engine."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import orjson
import pytest

from agentkv import FakeEngine
from agentkv.bench import measured
from agentkv.documents.readers import readable
from agentkv.errors import GuaranteeViolated, UsageError
from tests.benchmarks.documents.questions import Question, Questions, Seen, is_right, load, places

WORDS = re.compile(r"[a-z0-9]+")


# --- the data -------------------------------------------------------------------------------------


def test_the_questions_that_come_along() -> None:
    asked = load()
    covered = [question for question in asked if question.passages]
    assert len(covered) >= 40
    assert len({question.key for question in asked}) == len(asked)
    assert len({question.text for question in asked}) == len(asked)
    assert abs(sum(q.kept_out for q in covered) - len(covered) / 2) <= 1
    assert any(not question.passages and question.kept_out for question in asked)
    assert any(not question.passages and not question.kept_out for question in asked)
    for question in covered:
        assert question.answers, question.key
        assert all(file.split("/")[0] in ("git-doc", "postgresql-doc-15") for file, _ in question.passages)
    assert all(not question.answers for question in asked if not question.passages)


def test_no_text_of_the_manuals_comes_along_but_short_anchors() -> None:
    for question in load():
        assert all(len(anchor.split()) <= 12 for _, anchor in question.passages), question.key


def test_questions_are_in_other_words_than_the_passages() -> None:
    for question in load():
        for _, anchor in question.passages:
            asked, passage = (WORDS.findall(text.casefold()) for text in (question.text, anchor))
            runs = {tuple(passage[i : i + 4]) for i in range(len(passage) - 3)}
            shared = [run for i in range(len(asked) - 3) if (run := tuple(asked[i : i + 4])) in runs]
            assert not shared, (question.key, shared)


# --- grading --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("answer", "accepted", "right"),
    [
        ("It is 63 bytes.", ["63"], True),
        ("1063 bytes", ["63"], False),
        ("63.5 bytes", ["63"], False),
        ("Use  jsonb", ["JSONB"], True),
        ("jsonbx", ["jsonb"], False),
        ("git rm --cached FILE", ["--cached"], True),
        ("@{-1}", ["@{-1}"], True),
        ("", ["x"], False),
        (None, ["x"], False),
    ],
)
def test_an_answer_holds_an_accepted_string_as_a_word(answer: str | None, accepted: list[str], right: bool) -> None:
    assert is_right(answer, accepted) is right


def record(**change: Any) -> dict[str, Any]:
    quote = {"path": "d/a", "start": 10, "stop": 30, "verified": True}
    attempt = {
        "window": ["d/a", 0, 100],
        "answer": "yes",
        "draft": "maybe",
        "confidence": 0.5,
        "tokens": {"restored": 90, "prefilled": 20, "generated": 3},
        "restore_ms": 4.0,
        "answer_ms": 6.0,
    }
    return {
        "kept_out": False,
        "answers": ["yes"],
        "passages": [["d/a", 20, 40]],
        "found": [["d/b", 0, 100], ["d/a", 0, 100]],
        "found_by_words": [["d/b", 0, 100]],
        "plainly_found": [["d/a", 0, 100]],
        "find_ms": 1.0,
        "asked": {"answer": "yes", "quote": quote, "attempts": [attempt]},
        "plain": {"answer": None, "prefilled": 200, "generated": 2, "read_ms": 50.0, "answer_ms": 5.0},
        **change,
    }


def test_a_window_is_right_if_it_holds_a_passage_whole() -> None:
    assert not Seen(**record()).is_found("found", 1)
    assert Seen(**record()).is_found("found", 2)
    assert not Seen(**record(passages=[["d/a", 90, 101]])).is_found("found", 5)
    assert not Seen(**record(passages=[])).is_found("found", 5)


@pytest.mark.parametrize(
    ("change", "right"),
    [
        ({}, True),
        ({"start": 39}, True),
        ({"start": 40, "stop": 50}, False),
        ({"stop": 20}, False),
        ({"path": "d/b"}, False),
        ({"verified": False}, False),
    ],
)
def test_a_quote_is_right_if_it_touches_a_passage(change: dict[str, Any], right: bool) -> None:
    made = record()
    made["asked"]["quote"] |= change
    assert Seen(**made).is_quoted() is right


def test_figures_tell_the_halves_apart() -> None:
    nothing: dict[str, Any] = {"answer": None, "quote": None, "attempts": []}
    raw = {
        "a": record(),
        "b": record(kept_out=True, asked=nothing),
        "c": record(passages=[], answers=[], asked=nothing),
        "d": record(passages=[], answers=[], kept_out=True),
    }
    found = Questions.figures(raw)
    tuned, kept = found["halves"]["tuned"], found["halves"]["kept out"]
    assert (tuned["answer"]["k"], tuned["answer"]["n"]) == (1, 1)
    assert (kept["answer"]["k"], kept["answer"]["n"], kept["not_stated_wrongly"]["k"]) == (0, 1, 1)
    assert (tuned["not_stated_rightly"]["k"], kept["not_stated_rightly"]["k"]) == (1, 0)
    assert (tuned["window_first"]["k"], tuned["window_in_5"]["k"], tuned["plain_window_first"]["k"]) == (0, 1, 1)
    assert (tuned["words_window_in_5"]["k"], tuned["draft"]["k"]) == (0, 0)
    assert found["halves"]["all"]["quote"]["n"] == 2
    assert found["ms"]["question"]["max"] == 1.0 + 4.0 + 6.0
    assert found["ms"]["plain_question"]["median"] == 1.0 + 50.0 + 5.0
    assert found["tokens"]["prefilled_aim_met"]
    assert found["quotes_not_in_the_source"] == []


def test_an_anchor_is_found_across_line_ends_and_named_in_bytes() -> None:
    source = "ä <b>The default\n is 7</b>.\n\nThe default is 7.".encode()
    document = readable(Path("x.html"), source, "html")
    found = [source[start:stop].decode() for start, stop in places(document, "The default is")]
    assert found == ["The default\n is", "The default is"]


# --- the run --------------------------------------------------------------------------------------


def a_question(folder: Path, **change: Any) -> Question:
    how: dict[str, Any] = {
        "key": "x-01",
        "text": "What is kept for 4 turns of the clock at step 2?",
        "passages": ((f"{folder.name}/a.html", "of step 2 is read before"),),
        "answers": ("Rule 2",),
        "kept_out": False,
    }
    return Question(**(how | change))


def run(folder: Path, work: Path, *asked: Question, **how: Any) -> dict[str, Any]:
    engine = FakeEngine(window=4096)
    return Questions(engine=engine, work=work, questions=asked, source=folder, window=512, **how).run()


@pytest.fixture
def named(folder: Path) -> str:
    """How the recipe calls a document of the folder."""
    return f"{folder.name}/a.html"


def test_a_question_is_put_both_ways(folder: Path, tmp_path: Path, named: str) -> None:
    asked = a_question(folder, passages=((named, "of step 2 is read before"),))
    other = a_question(folder, key="x-02", text="zzz qqq", passages=(), answers=(), kept_out=True)
    result = run(folder, tmp_path / "work", asked, other, k=2)
    first, second = (item["raw"] for item in result["raw"])
    assert [len(place) for place in first["passages"]] == [3]
    assert 1 <= len(first["found"]) <= 5
    assert 1 <= len(first["asked"]["attempts"]) <= 2
    assert first["plain"]["prefilled"] > 300
    assert all(attempt["tokens"]["restored"] > 300 for attempt in first["asked"]["attempts"])
    assert second["plain"] is None
    assert second["asked"] == {"answer": None, "quote": None, "attempts": []}
    assert result["halves"]["kept out"]["not_stated_rightly"]["k"] == 1
    assert measured.rescore(result) == []
    Questions.check(result)


def test_a_run_goes_on_where_it_was(folder: Path, tmp_path: Path, named: str) -> None:
    work = tmp_path / "work"
    asked = [a_question(folder, key=f"x-{i}", passages=((named, "of step 2 is read before"),)) for i in range(2)]
    whole = run(folder, work, *asked, plain=False)
    (file,) = work.glob("questions-*.jsonl")
    lines = file.read_bytes().splitlines(keepends=True)
    assert len(lines) == 2
    kept = orjson.loads(lines[0])
    kept[1]["find_ms"] = 123456.0
    file.write_bytes(orjson.dumps(kept) + b"\n" + lines[1][:40])  # and half a line
    again = run(folder, work, *asked, plain=False)
    assert again["raw"][0]["raw"]["find_ms"] == 123456.0
    assert again["raw"][1]["raw"]["found"] == whole["raw"][1]["raw"]["found"]
    assert len(file.read_bytes().splitlines()) == 2
    assert [item["raw"]["plain"] for item in again["raw"]] == [None, None]


def test_other_questions_have_a_file_of_their_own(folder: Path, tmp_path: Path, named: str) -> None:
    passages = ((named, "of step 2 is read before"),)
    run(folder, tmp_path / "work", a_question(folder, passages=passages), plain=False)
    run(folder, tmp_path / "work", a_question(folder, passages=passages, text="Rule 2?"), plain=False)
    assert len(list((tmp_path / "work").glob("questions-*.jsonl"))) == 2


def test_a_passage_that_is_not_there_is_told(folder: Path, tmp_path: Path, named: str) -> None:
    for passages in (((named, "no such words"),), (("nowhere.html", "of step 2"),)):
        with pytest.raises(UsageError, match="the passage of x-01 is not in"):
            run(folder, tmp_path / "work", a_question(folder, passages=passages))


def test_a_quote_that_is_not_in_its_source_breaks_the_promise() -> None:
    made = record()
    made["asked"]["quote"]["verified"] = False
    with pytest.raises(GuaranteeViolated, match="1 quotes do not stand in their source: a"):
        Questions.check(Questions.figures({"a": made}))
