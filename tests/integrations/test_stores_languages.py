"""``AgentKVStore`` in the world's languages, and stores whose words an earlier version made."""

from __future__ import annotations

import sqlite3
import unicodedata
import warnings
from contextlib import closing
from pathlib import Path

import pytest
from langchain_agentkv import AgentKVStore

from agentkv import AgentKVWarning
from agentkv.errors import StoreReadError

ITEMS = {
    "zh": "逾期违约金为合同总额的百分之十。RAG检索增强另计。",
    "ja": "違約金は一割です。会議室の予約は受付で行います。",
    "ko": "회의실이 넓다. 문이 열렸다.",
    "th": "ต้องชำระค่าปรับตามสัญญาภายในสามสิบวัน",
    "de": "Die Maßnahme in der Hauptstraße endet mit freundlichem Gruß nach der Prüfung.",
    "ar": "يجب سداد القِسْط خلال ثلاثين يوماً",
    "en": "The pump is eﬃcient; the investi-\ngation of HTTPServer2 took 48,213 steps. We don’t know why.",
}
ASKED = [
    ("逾期违约金是多少？", "zh"),
    ("检索", "zh"),
    ("違約金はいくらですか", "ja"),
    ("회의실은?", "ko"),
    ("문을", "ko"),
    ("ค่าปรับ", "th"),
    ("MASSNAHME", "de"),
    (unicodedata.normalize("NFD", "Prüfung"), "de"),
    ("gruss", "de"),
    ("القسط", "ar"),
    ("efficient", "en"),
    ("investigation", "en"),
    ("http server", "en"),
    ("48213", "en"),
]


@pytest.fixture
def store(tmp_path: Path) -> AgentKVStore:
    made = AgentKVStore(tmp_path / "store")
    for key, text in ITEMS.items():
        made.put(("texts",), key, {"text": text})
    return made


def best(store: AgentKVStore, question: str) -> str | None:
    (item,) = store.search(("texts",), query=question, limit=1)
    return None if item.score is None else item.key


@pytest.mark.parametrize(("question", "key"), ASKED)
def test_the_item_that_has_the_words_comes_first(store: AgentKVStore, question: str, key: str) -> None:
    assert best(store, question) == key


def of_the_first_version(store: AgentKVStore) -> None:
    """Put the table of words in the place that 0.1 made, whose text had blanks around characters of some scripts."""
    with closing(sqlite3.connect(store.path)) as connection, connection:
        rows = connection.execute("SELECT id, key FROM items").fetchall()
        connection.execute("DROP TABLE words")
        connection.execute("CREATE VIRTUAL TABLE words USING fts5(text, tokenize = 'unicode61 remove_diacritics 2')")
        for item, key in rows:
            spaced = "".join(f" {c} " if is_spaced(c) else c for c in ITEMS[key.decode()])
            connection.execute("INSERT INTO words (rowid, text) VALUES (?, ?)", (item, spaced))


def is_spaced(character: str) -> bool:
    ranges = [(0xE00, 0xEFF), (0x1000, 0x109F), (0x1780, 0x17FF), (0x3040, 0x30FF), (0x3400, 0x9FFF), (0xAC00, 0xD7AF)]
    return any(low <= ord(character) <= high for low, high in ranges)


def test_words_of_an_earlier_version_are_made_again_at_the_first_search(store: AgentKVStore) -> None:
    of_the_first_version(store)
    again = AgentKVStore(store.path.parents[1])
    with pytest.warns(AgentKVWarning, match="made by an earlier version"):
        assert best(again, "逾期违约金是多少？") == "zh"
    for question, key in ASKED:
        assert best(again, question) == key
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert best(AgentKVStore(store.path.parents[1]), "القسط") == "ar"
    with closing(sqlite3.connect(store.path)) as connection:
        kept = connection.execute("SELECT text FROM words ORDER BY rowid").fetchall()
    assert [row[0] for row in kept] == list(ITEMS.values())


def test_or_at_the_first_write(store: AgentKVStore) -> None:
    of_the_first_version(store)
    again = AgentKVStore(store.path.parents[1])
    with pytest.warns(AgentKVWarning, match="made by an earlier version"):
        again.put(("texts",), "new", {"text": "Ein Gruß aus Gießen"})
    assert best(again, "Giessen") == "new"
    assert best(again, "MASSNAHME") == "de"


def test_a_file_that_cannot_be_written_is_searched_all_the_same(
    store: AgentKVStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    of_the_first_version(store)
    again = AgentKVStore(store.path.parents[1])

    def refuse() -> None:
        raise StoreReadError(again.path, "attempt to write a readonly database")

    monkeypatch.setattr(again._database, "writing", refuse)
    for question, key in ASKED:
        assert best(again, question) == key
