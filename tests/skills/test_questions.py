"""Grading and labelled questions: what counts as right, and what a malformed line says."""

from __future__ import annotations

from pathlib import Path

import pytest

from agentkv.errors import UsageError
from agentkv.skills.questions import Route, contains_answer, load_routes
from tests.conftest import REPOSITORY


class TestContainsAnswer:
    @pytest.mark.parametrize(
        ("text", "accepted"),
        [
            ("You have 21 days after delivery.", "21 days"),
            ("It is GATEHOUSE.", "Gatehouse"),
            ("the\n  limit is 65,000\u00a0rows", "65,000 rows"),
            ("at 09:45.", "09:45"),
            ("1) 12%", "12%"),
            ("(240)", "240"),
            ("Pay GBP 32, not more", "GBP 32"),
            ("Straße", "STRASSE"),
        ],
    )
    def test_right(self, text: str, accepted: str) -> None:
        assert contains_answer(text, ["something else", accepted])

    @pytest.mark.parametrize(
        ("text", "accepted"),
        [
            ("121 days", "21 days"),
            ("3.12%", "12%"),
            ("1,240 requests", "240"),
            ("2400", "240"),
            ("240,000", "240"),
            ("GBP 320", "GBP 32"),
            ("GBP 32.50", "GBP 32"),
            ("7RF-DUP", "RF-DUP"),
            ("", "21 days"),
            ("21  nights", "21 days"),
        ],
    )
    def test_wrong(self, text: str, accepted: str) -> None:
        assert not contains_answer(text, [accepted])

    def test_nothing_accepted_is_never_right(self) -> None:
        assert not contains_answer("anything", [])
        assert not contains_answer("anything", ["", " "])

    def test_accepted_text_is_no_pattern(self) -> None:
        assert contains_answer("[a] (b)", ["[a] (b"])
        assert not contains_answer("axb", ["a.b"])


class TestLoadRoutes:
    def test_folder_and_file(self, tmp_path: Path) -> None:
        file = tmp_path / "routes.jsonl"
        file.write_text('{"query": "how long?", "skill": "refunds", "answer": ["7 days"]}\n\n')
        expected = [Route("how long?", "refunds", ("7 days",))]
        assert load_routes(tmp_path) == load_routes(file) == expected

    def test_a_folder_without_questions(self, tmp_path: Path) -> None:
        assert load_routes(tmp_path) == []

    def test_no_skill(self, tmp_path: Path) -> None:
        (tmp_path / "uncovered.jsonl").write_text('{"query": "a poem", "skill": null}')
        assert load_routes(tmp_path / "uncovered.jsonl") == [Route("a poem", None, ())]

    @pytest.mark.parametrize(
        "line",
        [
            "{",
            "[]",
            '{"query": "q"}',
            '{"query": "q", "skill": "s", "answer": ["a"], "more": 1}',
            '{"query": " ", "skill": "s", "answer": ["a"]}',
            '{"query": "q", "skill": 1, "answer": ["a"]}',
            '{"query": "q", "skill": "s", "answer": "a"}',
            '{"query": "q", "skill": "s", "answer": [""]}',
            '{"query": "q", "skill": "s", "answer": []}',
            '{"query": "\\ud800", "skill": "s"}',
        ],
    )
    def test_malformed_line(self, tmp_path: Path, line: str) -> None:
        good = '{"query": "q", "skill": "s", "answer": ["a"]}'
        (tmp_path / "routes.jsonl").write_text(f"{good}\n{line}\n")
        with pytest.raises(UsageError, match=r"routes\.jsonl:2: "):
            load_routes(tmp_path)

    def test_unreadable(self, tmp_path: Path) -> None:
        with pytest.raises(UsageError, match="cannot read"):
            load_routes(tmp_path / "absent.jsonl")

    def test_the_shipped_questions(self) -> None:
        for folder in sorted((REPOSITORY / "skills").glob("*/")):
            routes = load_routes(folder)
            assert routes
            assert {route.skill for route in routes} == {folder.name}
