"""Documents in the world's languages: found by their own words, quoted at their exact bytes, old indexes made again."""

from __future__ import annotations

import sqlite3
import unicodedata
from contextlib import closing
from pathlib import Path

import pytest

from agentkv import AgentKVWarning, AgentMemory, FakeEngine
from agentkv.documents import Corpus
from agentkv.documents.answer import EVIDENCE, key_of
from agentkv.documents.index import match_expression, names_of
from agentkv.documents.locate import nothing_found
from agentkv.documents.quote import is_grounded, sentences, shares_of

from .conftest import script

CHINESE = "付款逾期。发票未在三十日内付清的，逾期违约金为合同总额的百分之十。RAG检索增强另计。"
FILES = {
    "zh.md": f"# 合同\n\n{CHINESE}\n",
    "ja.md": "# 契約\n\n請求書が未払いの場合、違約金は一割です。会議室の予約は受付で行います。\n",
    "ko.md": "# 안내\n\n회의실이 스무 명을 수용합니다. 예약은 안내대에서 받습니다.\n",
    "th.md": "# คู่มือ\n\nต้องชำระค่าปรับตามสัญญาภายในสามสิบวัน\n",
    "de.md": "# Prüfung\n\nDie Maßnahme in der Hauptstraße endet mit freundlichem Gruß.\n",
    "ar.md": "# العقد\n\nيجب سداد القِسْط خلال ثلاثين يوماً.\n",
    "hi.md": "# नियम\n\nकागज़ स्वागत कक्ष पर मिलता है।\n",
    "page.html": "<html><body><h1>Umbruch</h1><p>Die Wort&shy;trennung hilft.</p></body></html>",
    "en.txt": "The pump is eﬃcient. After an investi-\ngation the HTTPServer2 was stopped.\n",
}
ASKED = [
    ("逾期违约金是多少？", "zh.md"),
    ("ＲＡＧ是什么", "zh.md"),
    ("额", "zh.md"),
    ("違約金はいくらですか？", "ja.md"),
    ("회의실은 몇 명인가요?", "ko.md"),
    ("ค่าปรับเท่าไร", "th.md"),
    (unicodedata.normalize("NFD", "Wann ist die Prüfung?"), "de.md"),
    ("HAUPTSTRASSE", "de.md"),
    ("Massnahmen", "de.md"),
    ("ما هو القسط؟", "ar.md"),
    ("कागज कहां है", "hi.md"),
    ("Worttrennung", "page.html"),
    ("efficient", "en.txt"),
    ("investigation", "en.txt"),
    ("http server", "en.txt"),
]


@pytest.fixture
def languages(memory: AgentMemory, tmp_path: Path) -> Corpus:
    corpus = Corpus(memory, chunk_tokens=512, overlap=0, keep="lazy")
    corpus.add([written(tmp_path)])
    return corpus


def written(tmp_path: Path) -> Path:
    folder = tmp_path / "files"
    folder.mkdir()
    for name, text in FILES.items():
        (folder / name).write_bytes(text.encode())
    return folder


@pytest.mark.parametrize(("question", "name"), ASKED)
def test_the_file_that_has_the_words_comes_first(languages: Corpus, question: str, name: str) -> None:
    assert languages.find(question, 1)[0].path == f"files/{name}"


@pytest.mark.parametrize(
    ("question", "name", "quote", "source"),
    [
        ("逾期违约金是多少？", "zh.md", "发票未在三十日内付清的，逾期违约金为合同总额的百分之十。", None),
        ("HAUPTSTRASSE", "de.md", "Die Maßnahme in der Hauptstraße endet mit freundlichem Gruß.", None),
        ("ما هو القسط؟", "ar.md", "يجب سداد القِسْط خلال ثلاثين يوماً.", None),
        ("Worttrennung", "page.html", "Die Wort\xadtrennung hilft.", "Die Wort&shy;trennung hilft."),
        (
            "investigation",
            "en.txt",
            "After an investi- gation the HTTPServer2 was stopped.",
            "After an investi-\ngation the HTTPServer2 was stopped.",
        ),
    ],
)
def test_a_quote_is_of_the_source_s_own_bytes(
    tmp_path: Path, question: str, name: str, quote: str, source: str | None
) -> None:
    folder = written(tmp_path)
    with AgentMemory(tmp_path / "own", FakeEngine(window=4096, replies=script(f'draft{EVIDENCE}{quote}"'))) as memory:
        corpus = Corpus(memory, chunk_tokens=512, overlap=0, keep="lazy")
        corpus.add([folder])
        evidence = corpus.ask(question, 1).evidence
    assert evidence is not None
    assert (evidence.path, evidence.quote, evidence.verified) == (f"files/{name}", quote, True)
    assert (folder / name).read_bytes()[evidence.start : evidence.stop].decode().strip() == (source or quote)


def test_an_index_of_the_version_before_is_made_again_and_it_is_said(languages: Corpus) -> None:
    path = languages.shelf.index_path
    path.unlink()
    with closing(sqlite3.connect(path)) as connection:
        connection.execute(
            'CREATE VIRTUAL TABLE words USING fts5 (path, headings, body, tokenize = "porter unicode61")'
        )
        connection.execute("PRAGMA user_version = 2")
    with pytest.warns(AgentKVWarning, match="nothing has to be done"):
        assert languages.find("逾期违约金是多少？", 1)[0].path == "files/zh.md"
    assert languages.find("Massnahme", 1)[0].path == "files/de.md"


def test_sentences_end_at_the_marks_of_every_script() -> None:
    for text, count in [
        ("一つ目です。二つ目です！三つ目？", 3),
        ("पहला वाक्य है। दूसरा वाक्य है।", 2),
        ("هل تم السداد؟ نعم تم ذلك.", 2),
        ("یہ پہلا جملہ ہے۔ یہ دوسرا ہے۔", 2),
        ("ประโยคแรก", 1),
        ("ပထမ စာကြောင်း။ ဒုတိယ စာကြောင်း။", 2),
        ("ប្រយោគទីមួយ។ ប្រយោគទីពីរ។", 2),
        ("Առաջին նախադասություն։ Երկրորդ նախադասություն։", 2),
    ]:
        found = sentences(text)
        assert len(found) == count, text
        assert all(text[one.start : one.stop] == one.text for one in found)


def test_sentences_share_words_in_any_script() -> None:
    first, second = shares_of(["违约", "约金"], ["违约金为百分之十。", "会议室在二楼。"])
    assert (first, second) == (1.0, 0.0)
    assert is_grounded(["百分", "分之", "之十"], ["违约"], "违约金为百分之十。")
    assert not is_grounded(["百分", "分之", "之十"], ["违约"], "会议室在二楼。")
    assert key_of("Die Prüfung.") == key_of(unicodedata.normalize("NFD", "die prüfung"))


def test_names_are_names_however_they_are_typed() -> None:
    assert names_of(unicodedata.normalize("NFD", "Wo ist Größe und fooBar?")) == ["grosse", "foobar"]
    assert match_expression("检索") == '"检索"'
    assert match_expression("检索增强").endswith('"检索 索增" OR "索增 增强"')


def test_what_was_looked_for_is_named() -> None:
    assert nothing_found("What is the zzzz?") == "no chunk has any of these words: zzzz"
    assert nothing_found("退货期") == "no chunk has any of these words: 退货, 货期"
    assert nothing_found("?!") == "there is no word in the question that could be looked for"
    assert nothing_found(" ".join(f"w{i}" for i in range(50))).endswith("w19, …")
