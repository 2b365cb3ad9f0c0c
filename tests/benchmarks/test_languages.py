"""The table of languages without a model: what comes first, and what is known not to."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.benchmarks.languages import ARMS, DATA, KINDS, Asked, load, main, run, table


@pytest.fixture(scope="module")
def asked() -> list[Asked]:
    return list(run(DATA.read_bytes(), None))


def test_the_data_is_of_many_languages_and_scripts() -> None:
    languages, paragraphs, questions = load(DATA.read_bytes())
    assert len(languages) >= 14
    assert len({entry["script"] for entry in languages.values()}) >= 10
    assert len(paragraphs) == 5 * len(languages)
    assert all(question.right in paragraphs for question in questions)
    assert {(question.language, question.kind) for question in questions} == {
        (code, kind) for code in languages for kind in KINDS
    }


@pytest.mark.parametrize("arm", ARMS)
def test_what_words_miss_is_what_the_data_say(asked: list[Asked], arm: str) -> None:
    languages, _, _ = load(DATA.read_bytes())
    missed: dict[str, list[str]] = {code: [] for code in languages}
    for row in asked:
        if row.arm == arm and not row.is_right:
            missed[row.question.language].append(row.question.text)
    assert missed == {code: entry["missed"][arm] for code, entry in languages.items()}


def test_the_same_words_are_found_in_every_language(asked: list[Asked]) -> None:
    assert [row for row in asked if row.question.kind == "same" and not row.is_right] == []


def test_of_other_forms_few_are_missed(asked: list[Asked]) -> None:
    rows = [row for row in asked if row.question.kind == "form"]
    assert sum(row.is_right for row in rows) >= 0.93 * len(rows)


def test_the_table_and_the_record(asked: list[Asked], capsys: pytest.CaptureFixture[str]) -> None:
    languages, _, _ = load(DATA.read_bytes())
    assert table(languages, asked).splitlines()[-1].startswith("all")
    main(["--json", "--embedder", "fake"])
    record = json.loads(capsys.readouterr().out)
    assert (record["embedder"], len(record["rows"])) == ("fake-embedder", len(asked))
    assert {found["of"] for found in record["english"].values()} == {432}
    rights = {kind: [row["right"] for row in of_store(record) if row["question"]["kind"] == kind] for kind in KINDS}
    assert all(rights["same"])  # an embedder that knows no language hides nothing that has the words


def of_store(record: dict[str, Any]) -> list[dict[str, Any]]:
    return [row for row in record["rows"] if row["arm"] == "store"]
