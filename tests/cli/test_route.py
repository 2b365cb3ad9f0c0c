"""``agentkv route``: every candidate's score, the raw pick and what was made of it."""

from __future__ import annotations

from pathlib import Path

from agentkv.records import Decision

from .conftest import Run


def test_table(filled: Run) -> None:
    lines = filled("route", "what is the restocking fee").stdout.splitlines()
    candidates = {line.split("  ")[0] for line in lines[1:4]}
    assert candidates == {"fees", "release", "none of these"}
    assert lines[1].endswith("← raw pick")
    assert [line.split("  ")[0] for line in lines[5:8]] == ["raw pick", "pick", "fallback"]
    assert lines[8].startswith("channel+lexical/1: ")


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
