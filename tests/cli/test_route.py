"""``agentkv route``: every candidate's score, the raw pick and what was made of it."""

from __future__ import annotations

from pathlib import Path

import orjson

from agentkv.records import Decision

from .conftest import Run


def test_table(filled: Run) -> None:
    lines = filled("route", "what is the restocking fee").stdout.splitlines()
    candidates = {line.split("  ")[0] for line in lines[1:4]}
    assert candidates == {"fees", "release", "none of these"}
    assert lines[1].endswith("← raw pick")
    assert [line.split("  ")[0] for line in lines[5:8]] == ["raw pick", "pick", "fallback"]
    assert lines[8].startswith("channel+lexical/5: ")


def test_json_is_the_decision(filled: Run) -> None:
    result = filled("route", "what is the restocking fee", "--json")
    decision = Decision.model_validate_json(result.stdout)
    assert max(decision.scores.values()) == decision.scores[decision.raw_pick]
    assert decision.tokens > 0


def test_without_candidates(run: Run, tmp_path: Path) -> None:
    (tmp_path / "text.txt").write_text("no description")
    run("deposit", tmp_path / "text.txt")
    lines = run("route", "anything").stdout.splitlines()
    assert lines[-2] == "fallback  no skill is stored: no block"


def test_an_option_may_stand_before_the_question(filled: Run) -> None:
    before = filled("route", "--json", "what is the restocking fee")
    assert Decision.model_validate_json(before.stdout).raw_pick
    explicit = filled("route", "question", "what is the restocking fee", "--explain")
    assert "what it is for" in explicit.stdout


def test_evaluate_a_file_of_tools(run: Run, tmp_path: Path) -> None:
    (tmp_path / "tools.json").write_text('{"csv": "Reads tables.", "mail": "Sends letters."}')
    lines = ['{"query": "read this table", "tool": "csv"}', '{"query": "send a letter", "tool": "mail"}']
    (tmp_path / "q.jsonl").write_text("\n".join([*lines, '{"query": "zzzz", "tool": null}']))
    files = ("route", "evaluate", tmp_path / "q.jsonl", "--tools", tmp_path / "tools.json")
    result = run(*files, "--classifier", "lexical", "--sizes", "2,5", "--out", tmp_path / "out.json", "--json")
    record = orjson.loads(result.stdout)
    saved = orjson.loads((tmp_path / "out.json").read_bytes())
    assert "read this table" not in str(saved)
    assert len(saved.pop("raw")) == 6
    assert record == saved
    assert [(row["size"], row["made_up"]) for row in record["sizes"]] == [(2, 0), (5, 3)]
    assert [row["right"]["n"] for row in record["sizes"]] == [2, 2]
    assert record["sizes"][0]["right"]["k"] == 2
    assert record["sizes"][0]["abstained_on_uncovered"]["k"] == 1
    screen = run(*files).stdout
    assert screen.startswith("2 candidates, 3 questions")
    assert "no block, where none fits" in screen
    refused = run(*files, "--classifier", "magic")
    assert (refused.exit_code, refused.stderr[:20]) == (2, "error: --classifier ")


def test_learning_takes_a_share_that_may_be_lost(filled: Run, tmp_path: Path) -> None:
    lines = ['{"query": "what does a restock cost", "tool": "fees"}', '{"query": "who tags it", "tool": "release"}']
    (tmp_path / "q.jsonl").write_text("\n".join(lines * 5))
    kept, given_up = (
        orjson.loads(filled("route", "learn", tmp_path / "q.jsonl", "--lose", lose, "--json").stdout)["weights"]
        for lose in ("0", "1")
    )
    assert given_up["none"] > kept["none"]
    assert given_up["channel"] == kept["channel"]
    screen = filled("route", "learn", tmp_path / "q.jsonl").stdout
    assert "embeddings of card and labelled questions" in screen
    assert filled("route", "learn", tmp_path / "q.jsonl", "--lose", "2").exit_code == 2


def test_log_and_replay(filled: Run) -> None:
    assert "no decision is on record" in filled("route", "log").stdout
    filled("route", "what is the restocking fee")
    filled("route", "when is the release")
    lines = filled("route", "log").stdout.splitlines()
    assert len([line for line in lines if "restocking" in line or "when is" in line]) == 2
    record = orjson.loads(filled("route", "log", "--replay", "--last", "1", "--json").stdout)
    assert [(row["question"], row["replay"]) for row in record["decisions"]] == [("when is the release", "same")]
    filled("rm", "fees")
    assert "another library now" in filled("route", "log", "--replay").stdout
