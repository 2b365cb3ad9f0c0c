"""Words: whatever way a text and a question are typed, the same word is the same; and nothing else is."""

from __future__ import annotations

import sqlite3
import time
import unicodedata
from contextlib import closing

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agentkv.text import (
    STOP_WORDS,
    TOKENIZER,
    folded,
    indexed,
    looked_for,
    quoted,
    seems_inflected,
    stream,
    terms,
    words,
)


def nfd(text: str) -> str:
    return unicodedata.normalize("NFD", text)


def is_found(text: str, question: str) -> bool:
    """Whether SQLite finds ``text`` by any word of ``question``."""
    with closing(sqlite3.connect(":memory:")) as connection:
        connection.execute(f"CREATE VIRTUAL TABLE words USING fts5(text, tokenize = '{TOKENIZER}')")
        connection.execute("INSERT INTO words VALUES (?)", (indexed(text),))
        expression = " OR ".join(map(quoted, looked_for(question)))
        return bool(expression) and bool(
            connection.execute("SELECT 1 FROM words WHERE words MATCH ?", (expression,)).fetchone()
        )


SAME = [
    # German, and what Unicode calls compatible
    ("Die Hauptstraße ist gesperrt.", "Hauptstraße"),
    ("Die Hauptstraße ist gesperrt.", "HAUPTSTRASSE"),
    ("HAUPTSTRAẞE", "hauptstrasse"),
    ("Eine Maßnahme der Stadt.", "Massnahme"),
    ("Mit freundlichem Gruß", "gruß"),
    ("Prüfung der Anlage", nfd("Prüfung")),
    (nfd("Prüfung der Anlage"), "Prüfung"),
    ("Prüfung der Anlage", "Pruefung"),
    ("Muenchen liegt an der Isar", "München"),
    ("an eﬃcient pump", "efficient"),
    ("an efficient pump", "eﬃcient"),
    ("ﬂuﬀy oﬃce", "fluffy"),
    ("ＡＢＣ１２３ を入力", "abc123"),
    ("the ５００ ohm part", "500"),
    ("№ ㎏ Ⅳ", "kg"),
    # other alphabets' case and accents
    ("ISPARTA'DA", "ısparta"),
    ("İSTANBUL", "istanbul"),
    ("ılık su", "ILIK"),
    ("ΟΔΟΣ ΑΘΗΝΩΝ", "οδός"),
    ("Ο ΠΡΩΤΟΣ ΟΡΟΦΟΣ", "πρώτος"),
    ("ёлка стоит", "Елка"),
    ("Їжак", nfd("їжак")),
    ("Łódź nocą", "lodz"),
    ("smørrebrød på københavn", "smorrebrod"),
    ("Æsir og þórr", "aesir"),
    ("cœur et œuvre", "coeur"),
    ("Việt Nam", nfd("việt")),
    ("đường phố", "duong"),
    ("café crème", "CAFE"),
    # Arabic, Persian, Hebrew
    ("سدد القِسْط الأخير", "القسط"),
    ("سدد القسط الأخير", "القِسْط"),
    ("مــحــمــد", "محمد"),
    ("أحمد وإبراهيم", "احمد"),
    ("مدرسة", "مدرسه"),
    ("والكتاب", "كتاب"),
    ("في البيت ١٢٣ غرفة", "123"),
    ("ﻣﺤﻤﺪ", "محمد"),
    ("كتاب‌های فارسی", "کتابهای"),
    ("نمی‌خواهم", "نمیخواهم"),
    ("שָׁלוֹם עֲלֵיכֶם", "שלום"),
    ("החשבונית שולמה", "חשבונית"),
    ("צה״ל", 'צה"ל'),
    # India and its neighbours
    ("कागज़ और क़लम", "कागज"),
    ("कागज और कलम", "काग\u095b"),
    ("वहाँ मिलता है", "वहां"),
    ("हिन्दी भाषा में पुस्तक", "पुस्तक"),
    ("पृष्ठ १२", "12"),
    ("தமிழ் மொழி", "தமிழ்"),
    ("বাংলা ভাষা", "ভাষা"),
    # scripts without blanks
    ("逾期违约金为合同总额的百分之十。", "逾期违约金是多少？"),
    ("逾期违约金为合同总额的百分之十。", "违约金"),
    ("逾期违约金为合同总额的百分之十。", "金"),
    ("合同的逾期违\n约金为百分之十", "违约"),
    ("รอบของการช\r\n    ำระ", "การชำระ"),
    ("RAG检索增强生成", "rag"),
    ("RAG检索增强生成", "检索"),
    ("契約の違約金は一割です。", "違約金はいくらですか"),
    ("サーバーを再起動する", "ｻｰﾊﾞｰ"),
    ("ﾃﾞｰﾀﾍﾞｰｽ", "データベース"),
    ("データベース", nfd("データベース")),
    ("サーバーを再起動する", "サーバ"),
    ("กำหนดชำระเงินภายในสามสิบวัน", "ชำระเงิน"),
    ("สำเนา", "ส\u0e4d\u0e32เนา"),
    ("แผนก", "เเผนก"),
    ("ສັນຍາເຊົ່າ", "ສັນຍາ"),
    ("កិច្ចសន្យាជួលផ្ទះ", "កិច្ចសន្យា"),
    ("စာချုပ်ချုပ်ဆိုသည်", "စာချုပ်"),
    # Korean
    ("회의실이 넓다", "회의실은"),
    ("회의실이 넓다", nfd("회의실")),
    ("문이 열렸다", "문을"),
    ("집에서 일한다", "집"),
    # what is not seen, and what breaks a word
    ("Wort&shy;trennung", "Worttrennung"),
    ("Wort\u00adtrennung", "worttrennung"),
    ("Wort\u00ad\n   trennung", "worttrennung"),
    ("zero\u200bwidth", "zerowidth"),
    ("\ufeffbeginning", "beginning"),
    ("an investi-\ngation of it", "investigation"),
    ("an investi-\r\n    gation of it", "investigation"),
    ("an investi\u2010\ngation of it", "investigation"),
    ("по-\nвторение урока", "повторение"),
    ("Stra&szlig;e", "strasse"),
    # marks
    ("we don’t know", "don't"),
    ("l’article premier", "article"),
    ("м’яч", "м'яч"),
    ("мʼяч", "м’яч"),
    ("“quoted”", "quoted"),
    ("one—two", "two"),
    ("send an e-mail", "email"),
    ("send an email", "e-mail"),
    ("non‑breaking", "non-breaking"),
    ("COVID-19", "covid19"),
    # names of programs
    ("call HTTPServer2 now", "httpserver2"),
    ("call HTTPServer2 now", "http server"),
    ("getUserName()", "user name"),
    ("getUserName()", "get_user_name"),
    ("get_user_name()", "getUserName"),
    ("get-user-name", "getusername"),
    ("get_user_name()", "user"),
    ("XMLHttpRequest", "request"),
    ("new Base64Encoder()", "encoder"),
    ("an IPv6Address", "ipv6"),
    ("OAuth2Client.get", "oauth2 client"),
    ("S3Bucket", "bucket"),
    ("имяФайла", "файла"),
    # joined by a sign without width, by a blank, or written as one
    ("کتاب‌خانه می‌تواند", "كتاب خانه"),
    ("کتاب‌خانه می‌تواند", "کتابخانه"),
    ("داده‌ها را", "داده ها"),
    ("ꦲꦏ꧀ꦱꦫꦗꦮ", "ꦲꦏ꧀ꦱꦫ"),
    # broken within a quotation or a comment
    ("> the depre-\n> ciation of it", "depreciation"),
    (">> a ware-\n>> house", "warehouse"),
    ("# amorti-\n# zation\n// refri-\n// geration", "refrigeration"),
    (" * amorti-\r\n * zation", "amortization"),
    # numbers
    ("48,213 rows", "48213"),
    ("48213 rows", "48,213"),
    ("48.213 Zeilen", "48,213"),
    ("48 213 lignes", "48213"),
    ("48\u202f213 lignes", "48 213"),
    ("48’213 Zeilen", "48213"),
    # signs
    ("Lieferung🚚heute", "lieferung"),
    ("Lieferung 🚚 heute", "🚚"),
    ("👍🏽 gut", "👍"),
    ("❤️", "❤"),
]


@pytest.mark.parametrize(("text", "question"), SAME)
def test_the_same_word_is_found_however_it_is_typed(text: str, question: str) -> None:
    assert is_found(text, question)


OTHER_FORMS = [
    ("Die Rechnungen sind bezahlt und nicht offen.", "Rechnung"),
    ("Les factures sont payées dans les délais.", "facturé"),
    ("Kara umowna jest należna.", "kary umownej"),
    ("Kokoushuone varataan etukäteen.", "kokoushuoneessa"),
    ("договорная неустойка взимается", "договорной"),
    ("Το τιμολόγιο εξοφλήθηκε", "τιμολόγια"),
    ("The invoices are paid.", "invoice"),
    # a short word with nothing at its end, and the same one with an ending
    ("В этот город не доставляем.", "доставка в города"),
    ("Доставка в города идёт.", "город"),
    ("Uzun bir ofis günü ve iş", "ofisi"),
    ("Der Tisch ist nicht frei.", "Tische"),
    ("Żółty guzik nie jest mały", "guziki"),
    ("ዋስትናው ለሁለት ዓመት ይቆያል።", "ዋስትና"),
    ("بعد انتهاء الضمان", "للضمان"),
]


@pytest.mark.parametrize(("text", "question"), OTHER_FORMS)
def test_other_forms_of_a_word_are_found(text: str, question: str) -> None:
    assert is_found(text, question)


@pytest.mark.parametrize(
    ("text", "question"),
    [
        ("逾期违约金为合同总额的百分之十。", "退货"),
        ("회의실이 넓다", "주차장"),
        ("문서를 읽는다", "문을"),
        ("กำหนดชำระเงิน", "ห้อง"),
        ("The contract ends.", "contraband"),
        ("page 12", "page12"),
        ("word1", "word2"),
        ("key 3fa9bc2", "fa"),
        ("Strasse", ""),
        ("a b c", "…"),
    ],
)
def test_other_words_are_not(text: str, question: str) -> None:
    assert not is_found(text, question)


def test_words_keep_their_order_and_compounds_follow_them() -> None:
    assert stream("To_be, or Not-to be") == ["to_be", "or", "not", "to", "be"]
    assert words("To_be, or Not-to be") == ["to_be", "or", "not", "to", "be", "tobe", "notto"]
    assert words("iPhone") == ["iphone", "i", "phone"]
    assert words("3fa9bc2d " + "a1B2" * 40) == ["3fa9bc2d", "a1b2" * 40]


def test_of_plain_english_nothing_is_changed() -> None:
    text = "The restocking fee of an opened reader is 12% of its price; it's due at once."
    assert indexed(text).strip() == text
    assert " ".join(words(text)) == "the restocking fee of an opened reader is 12 of its price it s due at once"


def test_terms_are_the_words_that_say_something() -> None:
    assert terms("What is the fee of the FEE?") == ["fee"]
    assert terms("what is it") == ["what", "is", "it"]
    assert terms("?") == []
    assert STOP_WORDS.isdisjoint(terms("What is the fee?"))


def test_beginnings_are_looked_for_where_a_language_has_endings() -> None:
    assert looked_for("What is the restocking fee?") == ["restocking", "fee"]
    assert looked_for("Rechnungen der Firma")[-3:] == ["rechnu…", "firm…", "firma…"]
    assert "rechnu…" in indexed("Die Rechnungen der Firma sind bezahlt.")
    assert "…" not in indexed("The invoices of the company are paid.") + indexed("int main(void) { return fee_total; }")
    assert seems_inflected(nfd("Prüfung läuft"))
    assert not seems_inflected("The naïve café owner is one of those that pay at the end of the month.")


@settings(deadline=None)
@given(st.text(max_size=80))
def test_any_text_is_found_by_any_of_its_words(text: str) -> None:
    plain = text.replace("\0", " ").encode("utf-8", "replace").decode()
    for word in looked_for(plain):
        assert is_found(plain, word) or word.endswith("…") or word not in looked_for(word)


@settings(deadline=None)
@given(st.text(max_size=80))
def test_folding_is_done_once(text: str) -> None:
    assert stream(folded(text)) == stream(text) or "&" in text or "\xad" in text


def test_the_time_is_linear_in_the_text() -> None:
    def seconds(text: str) -> float:
        start = time.perf_counter()
        indexed(text)
        return time.perf_counter() - start

    for piece in ("word ", "größe-", "a_", "逾期违约金", "1,234", "aB", "x", "é"):
        short, long = min(seconds(piece * 10_000) for _ in range(3)), min(seconds(piece * 80_000) for _ in range(3))
        assert long < 40 * short + 0.05, piece
