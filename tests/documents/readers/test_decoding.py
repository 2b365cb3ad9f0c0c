"""Bytes to text: each character with its byte, and in which encoding a file is."""

from __future__ import annotations

import gzip
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentkv import AgentKVWarning, AgentMemory, FakeEngine
from agentkv.documents import Corpus
from agentkv.documents.quote import normalised
from agentkv.documents.readers import kind_of
from agentkv.documents.readers.decoding import charset_of, checked_encoding, decode, read_source
from agentkv.documents.records import Kind
from agentkv.errors import InvalidDocument, UsageError

FILE = Path("x.txt")


def pieces(data: bytes, kind: Kind = "text") -> list[bytes]:
    source = decode(FILE, data, kind)
    return [data[a:b] for a, b in zip(source.starts[:-1].tolist(), source.starts[1:].tolist(), strict=True)]


@pytest.mark.parametrize(
    ("data", "text", "cut"),
    [
        (b"", "", []),
        ("aä€🙂".encode(), "aä€🙂", [b"a", "ä".encode(), "€".encode(), "🙂".encode()]),
        (b"\xef\xbb\xbfab", "ab", [b"\xef\xbb\xbfa", b"b"]),
        (b"a\xe4b", "aäb", [b"a", b"\xe4", b"b"]),
        (b"\x80\x81", "€\x81", [b"\x80", b"\x81"]),
        ("ä".encode() + b"\xff", "äÿ", ["ä".encode(), b"\xff"]),
        (b"a\0b", "a\0b", [b"a", b"\0", b"b"]),
        (b"\xff\xfea\0=\xd8B\xde", "a🙂", [b"\xff\xfea\0", b"=\xd8B\xde"]),
    ],
)
def test_characters_and_their_bytes(data: bytes, text: str, cut: list[bytes]) -> None:
    assert decode(FILE, data, "text").text == text
    assert pieces(data) == cut


@given(st.binary(max_size=200))
def test_any_bytes_without_nul_are_read_and_none_is_lost(data: bytes) -> None:
    data = data.replace(b"\0", b"")
    if data[:2] not in (b"\xff\xfe", b"\xfe\xff"):
        assert b"".join(pieces(data)) == data or data == b"\xef\xbb\xbf"


@given(st.text(max_size=200))
def test_valid_text_comes_back_and_no_replacement_appears(text: str) -> None:
    data = text.encode()
    if not data.startswith(b"\xef\xbb\xbf"):
        assert decode(FILE, data, "text").text == text


@pytest.mark.parametrize("encoding", ["shift_jis", "gb18030", "euc_kr", "iso2022_jp", "windows-1251"])
def test_a_charset_that_html_declares(encoding: str) -> None:
    word = {"euc_kr": "한국어", "windows-1251": "Привет"}.get(encoding, "日本")
    data = f'<meta charset="{encoding}"><p>{word}</p>'.encode(encoding)
    source = decode(FILE, data, "html")
    assert word in source.text
    at = source.text.index(word)
    assert word == data[source.starts[at] : source.starts[at + len(word)]].decode(encoding)


@pytest.mark.parametrize("declared", ["nonsense", "utf-8", "rot13", "base64", "utf-16"])
def test_a_charset_that_is_not_what_the_bytes_are(declared: str) -> None:
    source = decode(FILE, f'<meta charset="{declared}"><p>ä</p>'.encode(), "html")
    assert "<p>ä</p>" in source.text


def test_declared_latin_1_is_read_as_browsers_do() -> None:
    assert "€" in decode(FILE, b'<meta charset="iso-8859-1"><p>\x80</p>', "html").text


@pytest.mark.parametrize("data", [b"\x89PNG\0\xff\xfe", b"\xff\xfea"])
def test_what_is_no_text_is_refused(data: bytes) -> None:
    with pytest.raises(InvalidDocument):
        decode(FILE, data, "text")


def test_gzip_is_unpacked_and_damage_is_told(tmp_path: Path) -> None:
    whole = gzip.compress(b"hello")
    (tmp_path / "a.txt.gz").write_bytes(whole)
    (tmp_path / "b.txt.gz").write_bytes(whole[:-6])
    assert read_source(tmp_path / "a.txt.gz") == b"hello"
    with pytest.raises(InvalidDocument, match="unpacked"):
        read_source(tmp_path / "b.txt.gz")
    with pytest.raises(InvalidDocument, match="no such file"):
        read_source(tmp_path / "c")
    with pytest.raises(InvalidDocument):
        read_source(tmp_path)


def test_a_bomb_is_refused_before_it_fills_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("agentkv.documents.readers.decoding.MAX_SOURCE_BYTES", 1000)
    (tmp_path / "a.gz").write_bytes(gzip.compress(bytes(100_000)))
    with pytest.raises(InvalidDocument, match="more than 1,000 bytes"):
        read_source(tmp_path / "a.gz")


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        *(("a.MD", "markdown"), ("a.rst.gz", "rst"), ("README", "text"), ("README.Debian.gz", "text")),
        *(("x.py", "code"), ("a.html", "html"), ("x.png", None), ("Makefile", None)),
        ("man1/git-add.1.gz", "text"),
        ("share/man/ja/man3/a-1.2.3pm", "text"),
        ("doc/agent.8", "text"),
        ("lib/libz.so.1", None),
        ("a.log.1", None),
        ("a.7z", None),
        ("compose.yml", "code"),
        ("film.srt", "text"),
    ],
)
def test_kinds(name: str, kind: str | None) -> None:
    assert kind_of(Path(name)) == kind


# --- which encoding -------------------------------------------------------------------------------


CHINESE = (
    "合同自双方签字盖章之日起生效，有效期三年。任何一方违约，应当承担违约责任，并赔偿对方因此遭受的损失。"
    "逾期违约金为合同总额的百分之十。"
)
TAIWAN = "合約自雙方簽字蓋章之日起生效，有效期三年。任何一方違約，應當承擔違約責任，並賠償對方因此遭受的損失。"
JAPANESE = (
    "この契約は、両当事者が署名した日から三年間有効とします。支払いが遅れた場合、違約金は総額の十パーセントとします。"
)
KOREAN = "회의실은 삼층에 있습니다. 예약은 홈페이지에서 할 수 있으며, 취소는 하루 전까지 가능합니다."
RUSSIAN = "Договор вступает в силу с момента подписания. Неустойка за просрочку составляет десять процентов от суммы."
CZECH = "Smlouva nabývá účinnosti dnem podpisu oběma stranami. Příliš žluťoučký kůň úpěl ďábelské ódy."
POLISH = "Umowa wchodzi w życie z dniem podpisania przez obie strony. Zażółć gęślą jaźń."
HUNGARIAN = "A szerződés az aláírás napján lép hatályba; őszintén köszönöm, hűvös idő. A bérlő köteles fizetni."
GERMAN = "Der Vertrag tritt mit der Unterschrift in Kraft. Die Prüfung der Maßnahme „läuft“ für drei Jahre – höchstens."
FRENCH = (
    "Le contrat entre en vigueur à sa signature ; l'indemnité s'élève à dix pour cent. Où êtes-vous né ? Ça dépend."
)
GREEK = "Η σύμβαση ισχύει από την ημερομηνία υπογραφής. Η ποινική ρήτρα ανέρχεται σε δέκα τοις εκατό."
HEBREW = "החוזה נכנס לתוקף ביום החתימה ותקף לשלוש שנים. הקנס על איחור הוא עשרה אחוזים מסכום החוזה."
ARABIC = "يدخل العقد حيز التنفيذ من تاريخ التوقيع ويسري لمدة ثلاث سنوات. الغرامة عشرة في المئة من قيمة العقد."
TURKISH = "Sözleşme imza tarihinde yürürlüğe girer ve üç yıl geçerlidir. Cezai şart yüzde ondur. Işığı açık bırakın."
THAI = "สัญญามีผลบังคับใช้ตั้งแต่วันที่ลงนามและมีอายุสามปี ค่าปรับสำหรับความล่าช้าคือสิบเปอร์เซ็นต์ของมูลค่าสัญญา"
GUESSED = {
    "gb18030": CHINESE,
    "gbk": CHINESE,
    "gb2312": CHINESE,
    "big5": TAIWAN,
    "shift_jis": JAPANESE,
    "cp932": JAPANESE,
    "euc_jp": JAPANESE,
    "iso2022_jp": JAPANESE,
    "euc_kr": KOREAN,
    "cp949": KOREAN,
    "koi8_r": RUSSIAN,
    "cp1251": RUSSIAN,
    "cp866": RUSSIAN,
    "cp1250": CZECH,
    "windows-1250": HUNGARIAN,
    "iso8859_2": POLISH,
    "cp1252": GERMAN,
    "mac_roman": GERMAN,
    "latin_1": FRENCH,
    "cp1253": GREEK,
    "cp1255": HEBREW,
    "cp1256": ARABIC,
    "cp1254": TURKISH,
    "cp874": THAI,
}


@pytest.mark.parametrize("encoding", GUESSED)
@pytest.mark.parametrize("padding", ["", "Plain words of ASCII stand around it.\n" * 400])
def test_what_is_not_utf_8_is_guessed_from_the_lines_that_show_it(encoding: str, padding: str) -> None:
    text = f"{padding}{GUESSED[encoding]}\n{padding}"
    data = text.encode(encoding)
    source = decode(FILE, data, "text")
    assert source.text == text
    assert source.by == "guessed"
    pieces = [data[a:b] for a, b in zip(source.starts[:-1].tolist(), source.starts[1:].tolist(), strict=True)]
    assert b"".join(pieces) == data
    if encoding != "iso2022_jp":
        assert [piece.decode(encoding) for piece in pieces] == list(text)


@pytest.mark.parametrize(
    "text",
    [
        "Où êtes-vous né ? Ça dépend de l'été, du café et de la forêt où l'on s'est retrouvé à Noël.",
        "El niño comió piñas en el jardín. ¿Dónde está la señora? Mañana será otro día, ¡qué alegría!",
        "A solução não está pronta; a ação começou às três horas. Você também irá à reunião amanhã?",
        "Åäö är svenska bokstäver. Köp smör på torget och gå hem över ån när kvällen kommer.",
        "Rødgrød med fløde på en ø. Æbler og pærer er gode året rundt; få spørgsmål.",
        "Perché la città è così bella? È più felicità che libertà, però il caffè è già freddo.",
        "Größe, Maße und Gewichte übersteigen die zulässigen Höchstwerte für Züge.",
        "Það er gott að búa á Íslandi þótt veðrið sé stundum óblítt.",
        "Tämä on hyvä päivä lähteä järvelle; sää näyttää lämpimältä.",
        "De coördinatie van de financiële reünie is geëvalueerd; één idee.",
    ],
)
def test_short_western_texts_are_windows_1252(text: str) -> None:
    assert charset_of(text.encode("cp1252"), "text") == ("cp1252", "guessed")


SIGNS = [
    ("iso8859_15", "L'œuvre coûte cher à Noël, l'été dernier."),
    ("cp1250", "Umowa obowiązuje od dnia podpisania przez trzy lata. Żółty guzik wyłącza maszynę."),
    ("iso8859_2", "Umowa obowiązuje od dnia podpisania przez trzy lata. Żółty guzik wyłącza maszynę."),
    ("cp1252", "Aquesta col·lecció és molt intel·ligent i té paraules com ‘així’."),
    ("cp1252", "«Bonjour» dit-il, l’été coûte 5 €… «cher», déjà payé."),
    ("cp1252", "¿Qué pasa? ¡Hola! mañana él está aquí."),
    ("cp1252", "Das Maß „groß“ – 5 §§ und 20°C, 3µm, ©Foo ®Bar, Gebühr."),
]


@pytest.mark.parametrize(("encoding", "text"), SIGNS)
def test_signs_within_words_speak_against_windows_1252_and_others_do_not(encoding: str, text: str) -> None:
    assert charset_of(text.encode(encoding), "text") == (encoding, "guessed")


@pytest.mark.parametrize(
    ("data", "name", "by"),
    [
        (b"plain", "utf-8", "known"),
        ("ä€".encode(), "utf-8", "known"),
        (b"\xef\xbb\xbfab", "utf-8", "known"),
        ("\ufeffab".encode("utf-16-le"), "utf-16-le", "known"),
        ("\ufeffab".encode("utf-16-be"), "utf-16-be", "known"),
        ("\ufeffab".encode("utf-32-le"), "utf-32-le", "known"),
        (("Plain words in UTF-16 without a mark.\r\n" * 3).encode("utf-16-le"), "utf-16-le", "guessed"),
        (("Plain words in UTF-16 without a mark.\r\n" * 3).encode("utf-16-be"), "utf-16-be", "guessed"),
        (b"caf\xe9", "cp1252", "guessed"),
        (b"\x1b$)C", "utf-8", "known"),  # an escape before nothing
        ("mostly UTF-8: äöüß ".encode() + b"\xff", "utf-8, 1 bytes read as windows-1252", "guessed"),
    ],
)
def test_marks_utf_8_and_few_bytes(data: bytes, name: str, by: str) -> None:
    assert charset_of(data, "text") == (name, by)


@pytest.mark.parametrize(
    ("kind", "head", "encoding"),
    [
        ("html", '<html><head><meta charset="{}"></head>', "gbk"),
        ("html", '<meta http-equiv="Content-Type" content="text/html; charset={}">', "shift_jis"),
        ("html", '<?xml version="1.0" encoding="{}"?><html>', "koi8-r"),
        ("text", '<?xml version="1.0" encoding="{}"?>\n', "koi8-r"),
        ("code", "#!/usr/bin/python\n# -*- coding: {} -*-\n", "gbk"),
        ("code", "# vim: set fileencoding={} :\n", "cp1251"),
    ],
)
def test_what_a_file_says_itself_is_known(kind: Kind, head: str, encoding: str) -> None:
    text = head.format(encoding) + {"gbk": "很", "shift_jis": "日本"}.get(encoding, "Да")
    source = decode(FILE, text.encode(encoding), kind)
    assert (source.text, source.by) == (text, "known")


@pytest.mark.parametrize("encoding", ["gbk", "shift_jis", "koi8_r", "cp1252", "utf-16-le", "utf-16-be", "utf-8"])
def test_a_quote_stands_at_its_bytes_in_the_file_s_own_encoding(tmp_path: Path, encoding: str) -> None:
    body = {"gbk": CHINESE, "shift_jis": JAPANESE, "koi8_r": RUSSIAN, "cp1252": GERMAN}.get(encoding, GERMAN + RUSSIAN)
    mark = "\ufeff" if encoding.startswith("utf-16") else ""
    text = f"{mark}Preface.\n\n{body}\n\nThe end of reader 7.\n"
    file = tmp_path / "terms.txt"
    file.write_bytes(text.encode(encoding))
    with AgentMemory(tmp_path / "store", FakeEngine(window=8192)) as memory:
        corpus = Corpus(memory, chunk_tokens=512, overlap=0)
        if encoding in {"gbk", "shift_jis", "koi8_r", "cp1252"}:
            with pytest.warns(AgentKVWarning, match="the encoding of a file is a guess: terms.txt"):
                corpus.add([file])
        else:
            corpus.add([file])
        reply = corpus.ask("reader 7", k=3, votes=True)
        found = [attempt.evidence for attempt in reply.attempts if attempt.evidence is not None]
        assert found
        for evidence in found:
            assert evidence.verified
            quoted = file.read_bytes()[evidence.start : evidence.stop].decode(evidence.encoding)
            assert normalised(quoted).lstrip("\ufeff") == evidence.quote
        (record,) = corpus.shelf.all().values()
        whole = b"".join(file.read_bytes()[w.start : w.stop] for w in record.chunks)
        assert whole == file.read_bytes()


def test_an_encoding_that_is_given_is_kept_with_the_file(tmp_path: Path) -> None:
    file = tmp_path / "a.txt"
    file.write_bytes("Grüße".encode("cp1250"))
    with AgentMemory(tmp_path / "store", FakeEngine(window=2048)) as memory:
        corpus = Corpus(memory, chunk_tokens=160, overlap=0)
        corpus.add([file], encoding="koi8-r")
        (record,) = corpus.shelf.all().values()
        assert (record.encoding, record.encoding_by) == ("koi8-r", "given")
        assert corpus.add([file]).plan.planned == ()
        file.write_bytes("Grüße aus Köln".encode("cp1250"))
        corpus.add([file])
        (record,) = corpus.shelf.all().values()
        assert (record.encoding, record.encoding_by) == ("koi8-r", "given")
        corpus.add([file], encoding="CP1250")
        assert corpus.find("Köln")[0].text == "Grüße aus Köln"
        with pytest.raises(UsageError, match="not an encoding of text"):
            corpus.add([file], encoding="rot13")
        failed = corpus.add([file], encoding="utf-16").plan.failed
        assert "does not decode" in failed[0].reason


def test_a_kept_record_decides_how_its_file_is_read_and_not_a_later_guess() -> None:
    data = RUSSIAN.encode("koi8_r")
    assert decode(FILE, data, "text", "cp1251").text == data.decode("cp1251")
    legacy = f"utf-8, {len(data):,} bytes read as windows-1252"  # as an earlier version kept it
    assert len(decode(FILE, data, "text", legacy).text) == len(data)


@pytest.mark.parametrize(("name", "codec"), [("GBK", "gbk"), ("utf-8-sig", "utf-8"), ("UTF-16", "utf-16-le")])
def test_names_of_encodings(name: str, codec: str) -> None:
    assert checked_encoding(name) == codec


def test_nul_bytes_that_no_encoding_explains_are_binary() -> None:
    with pytest.raises(InvalidDocument, match="--encoding"):
        decode(FILE, b"\x01\0\xff\0\0\xfe" * 20, "text")
