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

    @pytest.mark.parametrize(
        "text",
        [
            "not 48213 but 99999",
            "It is not 48213, but 99999.",
            "The code is not the 48213.",
            "the code isn't 48213",
            "It isn’t “48213”; it is 99999",
            "That can't be 48213",
            "It is never 48213",
            "neither 48213 nor 11111",
            "neither 11111 nor 48213",
            "99999 instead of 48213",
            "99999 rather than 48213",
            "Use 99999, not 48213",
            "Do not use the code 48213",
            "It used to be 48213",
            "no longer 48213",
            "It was changed from 48213 to 99999.",
            "It is not true that the code of the gate is 48213.",
            "I am not sure if it is 48213",
            "48213 is wrong",
            "48213 is not the code",
            "48213 isn't it; 99999 is",
            "Is it 48213? No, 99999.",
            "48213. No, wait: it is 99999.",
            "48213, sorry, 99999",
            "It was 48213, now 99999",
            "The code is 48213. The code is not 48213.",
            "**Not** `48213` but `99999`",
            "nicht 48213, sondern 99999",
            "Der Code ist nicht die 48213",
            "pas 48213 mais 99999",
            "no 48213 sino 99999",
            "non 48213 ma 99999",
            "48213 was the old code; the new one is 99999",
            "48213 has been replaced by 99999",
            "The code is not, as some say, 48213",
            "Forget 48213, use 99999",
            "~~48213~~ 99999",
            "48213 does not work",
            "Contrary to 48213, it is 99999",
            "Some say 48213, but that is wrong",
            "48213? I don't think so.",
            "The document does not say that it is 48213",
            "I cannot say whether it is 48213",
            "48213 (wrong)",
            "Wrong: 48213",
            "不是48213，而是99999",
            "48213ではなく99999",
            "48213이 아니라 99999",
            "не 48213, а 99999",
            "nie 48213 lecz 99999",
            "no es 48213",
            "não é 48213",
            "48213 non è il codice",
        ],
    )
    def test_what_an_answer_denies_is_not_its_answer(self, text: str) -> None:
        assert not contains_answer(text, ["48213"])

    @pytest.mark.parametrize(
        ("text", "accepted"),
        [
            ("not later than 21 days after delivery", "21 days"),
            ("Goods cannot be returned after 21 days.", "21 days"),
            ("It must not exceed 240 requests", "240"),
            ("no more than 65,000 rows", "65,000 rows"),
            ("Pay GBP 32, not more", "GBP 32"),
            ("48213, not 99999", "48213"),
            ("It is not 99999 but 48213", "48213"),
            ("not only 48213 but also 99999", "48213"),
            ("Room no 48213", "48213"),
            ("No. 48213", "48213"),
            ("Do not forget it: the code is 48213.", "48213"),
            ("I know that it is 48213. No other code works.", "48213"),
            ("It is never opened before 09:45.", "09:45"),
            ("99999 is wrong, it is 48213", "48213"),
            ("It was changed from 99999 to 48213.", "48213"),
            ("You cannot enter without it. 48213", "48213"),
            ("It is not allowed", "not allowed"),
            ("99999 was replaced by 48213", "48213"),
            ("~~99999~~ 48213", "48213"),
            ("48213 ~~99999~~", "48213"),
            ("I have no doubt that it is 48213", "48213"),
            ("不是99999，而是48213", "48213"),
            ("не 99999, а 48213", "48213"),
            ("It is clearly no secret that the code is 48213", "48213"),
            ("The code is 48213 and does not change.", "48213"),
            ("No, it is not.", "no"),
        ],
    )
    def test_a_negation_of_something_else_is_none_of_the_answer(self, text: str, accepted: str) -> None:
        assert contains_answer(text, [accepted])

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
