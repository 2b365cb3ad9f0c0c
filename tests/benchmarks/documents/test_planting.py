"""Needles: where they go, that they are unique, and that questions do not repeat them."""

from __future__ import annotations

import re
from itertools import pairwise
from pathlib import Path

import pytest

from agentkv.documents.readers import readable
from agentkv.documents.records import Kind
from agentkv.errors import UsageError
from agentkv.text import STOP_WORDS
from tests.benchmarks.documents import planting


@pytest.fixture
def documents(folder: Path) -> dict[str, bytes]:
    files = sorted(path for path in folder.rglob("*") if path.is_file())
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in files}


def words(text: str) -> set[str]:
    """Words that search goes by."""
    return set(re.findall(r"\w+", text.casefold())) - STOP_WORDS


def test_a_question_shares_only_the_name_with_its_needle(documents: dict[str, bytes]) -> None:
    for needle in planting.make(60, 0, documents):
        assert words(needle.sentence) & words(needle.question) == {needle.name.casefold()}
        assert needle.value in needle.sentence
        assert needle.value not in needle.question


def test_names_and_values_occur_once_and_nowhere_in_the_documents() -> None:
    usual = planting.make(60, 0, {})
    documents = {"a.txt": f"{usual[0].name.upper()} and {usual[1].value}".encode()}
    made = planting.make(60, 0, documents)
    assert usual[0].name not in {needle.name for needle in made}
    assert usual[1].value not in {needle.value for needle in made}
    assert len({text.casefold() for needle in made for text in (needle.name, needle.value)}) == 120


def test_the_same_seed_gives_the_same_needles_and_another_others() -> None:
    assert planting.make(9, 4, {}) == planting.make(9, 4, {})
    assert planting.make(9, 4, {}) != planting.make(9, 5, {})


def test_needles_are_spread_from_the_first_place_to_the_last(documents: dict[str, bytes]) -> None:
    made = planting.make(7, 0, documents)
    changed, put = planting.plant(documents, made)
    texts = {path: readable(Path(path), data, _kind(path)).text for path, data in changed.items()}
    whole = "".join(texts.values())
    depths = [whole.index(needle.sentence) / len(whole) for needle in put]
    assert [needle.sentence for needle in put] == [needle.sentence for needle in made]
    assert depths == sorted(depths)
    assert max(after - before for before, after in pairwise(depths)) < 0.25
    assert whole.index(put[0].sentence) < 60
    assert whole.rstrip().endswith(put[-1].sentence)
    assert all(needle.sentence in texts[needle.path] for needle in put)


def test_nothing_of_the_documents_is_lost(documents: dict[str, bytes]) -> None:
    changed, put = planting.plant(documents, planting.make(7, 0, documents))
    for path, data in changed.items():
        for needle in put:
            for form in (f"<p>{needle.sentence}</p>\n", f"{needle.sentence}\n\n", f"\n{needle.sentence}\n"):
                data = data.replace(form.encode(), b"", 1) if form.encode() in data else data
        assert data == documents[path]


def test_more_needles_than_places_are_refused() -> None:
    documents = {"a.txt": b"one paragraph\n"}
    with pytest.raises(UsageError, match="1 places"):
        planting.plant(documents, planting.make(2, 0, documents))


def _kind(path: str) -> Kind:
    kinds: dict[str, Kind] = {"html": "html", "rst": "rst", "txt": "text"}
    return kinds[path.rpartition(".")[2]]
