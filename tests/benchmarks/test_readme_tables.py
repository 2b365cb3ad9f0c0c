"""The tables of RESULTS.md and EXACTNESS.md are those of the committed results, and their maker can tell when not."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from agentkv.bench.base import milliseconds
from agentkv.bench.results import Result, read_all
from agentkv.errors import InvalidResult
from tests.benchmarks import readme, tables
from tests.benchmarks.agent.agent import Agent
from tests.conftest import REPOSITORY

TEXT = "\n".join((REPOSITORY / file).read_text(encoding="utf-8") for file in readme.FILES)
RESULTS = read_all(REPOSITORY / readme.FOLDER)


def test_the_readme_is_what_the_files_give() -> None:
    made, changed = readme.rendered(TEXT, RESULTS)
    assert changed == [], "run `python -m tests.benchmarks readme`"
    assert made == TEXT
    assert set(readme.named(TEXT)) >= {"exactness", "subsidy", "answers", "size", "restore", "catalogue", "integrity"}


def test_a_changed_digit_is_seen_and_mended() -> None:
    bent = TEXT.replace("| 624/624 |", "| 623/624 |", 1)
    made, changed = readme.rendered(bent, RESULTS)
    assert changed == ["exactness"]
    assert made == TEXT


def test_another_result_is_another_table() -> None:
    others = [
        Result({**one.data, "lengths": one.data["lengths"][:-1]}, one.where) if one.benchmark == "exactness" else one
        for one in RESULTS
    ]
    assert readme.rendered(TEXT, others)[1] == ["exactness"]


def test_text_outside_of_the_markers_stays() -> None:
    text = "before\n\n<!-- results: catalogue -->\nold\n<!-- end of results -->\nbehind {} \\1\n"
    made, changed = readme.rendered(text, RESULTS)
    assert changed == ["catalogue"]
    assert made.startswith("before\n\n<!-- results: catalogue -->\n\n| blocks |")
    assert made.endswith("|\n\n<!-- end of results -->\nbehind {} \\1\n")
    assert readme.rendered(made, RESULTS) == (made, [])


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("<!-- results: nothing -->\n<!-- end of results -->", "no such table"),
        ("<!-- results: catalogue -->\n| a |\n", "has no `<!-- end of results -->`"),
        ("<!-- results: one -->\n", "has no `<!-- end of results -->`"),
    ],
)
def test_bad_markers(text: str, why: str) -> None:
    with pytest.raises(InvalidResult, match=why):
        readme.rendered(text, RESULTS)


def test_no_result_and_a_missing_figure_are_told() -> None:
    with pytest.raises(InvalidResult, match="there is no result of catalogue"):
        readme.rendered("<!-- results: catalogue -->\n<!-- end of results -->", [])
    broken = Result({"format": 1, "benchmark": "catalogue", "run": "1", "counts": [{"blocks": 1}]}, "c.json")
    with pytest.raises(InvalidResult, match=r"c\.json: a figure of the table catalogue is missing"):
        readme.rendered("<!-- results: catalogue -->\n<!-- end of results -->", [broken])


def test_rows_stand_in_the_order_of_the_models() -> None:
    text = next(table for table in tables.TABLES if table.name == "size").markdown(RESULTS[::-1])
    models = list(dict.fromkeys(re.findall(r"^\| (\S+) \| [\d,]+ \|", text, re.M)))
    measured = {result.data["model"] for result in RESULTS if result.data["benchmark"] == "size"}
    assert models == [model for model in tables.MODELS if model in measured]


@pytest.mark.parametrize(
    ("value", "text"),
    [(0.016, "0.02"), (0.52, "0.5"), (4.94, "4.9"), (57.6, "58"), (824.4, "824"), (1474.0, "1,470"), (7012.3, "7,010")],
)
def test_milliseconds_have_three_digits_at_most(value: float, text: str) -> None:
    assert milliseconds(value) == text


def evaluated(classifier: str, digest: str) -> Result:
    share = {"k": 8, "n": 10, "wilson_95": [0.49, 0.943]}
    row: dict[str, Any] = dict.fromkeys(("right", "right_in_top_5", "abstained_on_covered"), share)
    row |= {"tokens": {"median": 0}, "ms": {"median": 1.2}}
    head = {"format": 1, "benchmark": "route evaluate", "run": classifier, "model": "fake"}
    data = {**head, "settings": {"classifier": classifier}, "questions_sha256": digest, "sizes": [row]}
    return Result(data, f"{classifier}.json")


def test_routers_are_compared_on_the_same_questions_only() -> None:
    table = next(table for table in tables.TABLES if table.name == "route-evaluate")
    text = table.markdown([evaluated("lexical/1", "a"), evaluated("meaning/1", "a")])
    assert "| lexical/1 | 8 of 10 (49–94 %) | 8 | 8 | 0, 1 ms |" in text
    with pytest.raises(InvalidResult, match="2 files of questions"):
        table.markdown([evaluated("lexical/1", "a"), evaluated("meaning/1", "b")])


def test_the_folder_is_not_in_the_package() -> None:
    assert Path(readme.FOLDER).parts[0] == "tests"


def test_a_conversation_has_a_row_an_arm() -> None:
    def row(turn: int, evaluated: int) -> dict[str, Any]:
        times = {"first_ms": 250.0, "generate_ms": 5.0, "keep_ms": 45.0, "total_ms": 300.0}
        return {"turn": turn, "prompt": 4000, "evaluated": evaluated, "generated": 2, "answer": "a", **times}

    ours = {"label": "ours", "prepare": row(0, 3000), "rows": [row(n, 60) for n in (1, 2, 3)], "all_turns": True}
    theirs = {"label": "theirs", "rows": [row(1, 60), row(2, 3400), row(3, 60)]}
    plan = {"part": "conversation", "before": 1, "ours": "agentkv", "manual_tokens": 3000}
    raw = {"plan": plan, "agentkv": ours, "reread": theirs, "ram": {"label": "ram", "skipped": "x"}}
    data = {"model": "m", "settings": {"part": "conversation"}, **Agent.figures(raw)}
    table = next(table for table in tables.TABLES if table.name == "agent")
    others = Result({"format": 1, "benchmark": "agent", "run": "2", "model": "m", "settings": {"part": "secrets"}}, "b")
    text = table.markdown([others, Result({"format": 1, "benchmark": "agent", "run": "1", **data}, "a.json")])
    assert text.splitlines()[2:] == [
        "| m | ours | 60 | 250 ms | 60 | 250 ms | 900 ms | 300 ms |  |  |",
        "| m | theirs | 60 | 250 ms | 3,400 | 250 ms | not every turn |  |  | 3 of 3 |",
    ]
