"""Words of any language in one normal form, the same for what is indexed and for what is asked.

``words`` and ``indexed`` bring text to one form: compatibility characters, ligatures and full-width forms to plain
ones, accents and vowel marks off, case folded, soft hyphens and zero-width characters dropped, digits of every script
to 0-9. Scripts that are written without blanks, and Korean, whose particles are written onto the word, become
overlapping pairs of characters. Beside a compound (``e-mail``, ``log_file``, ``HTTPServer2``, a word broken by a hyphen
at a line's end) stand its parts and the whole. No position is kept: a quote is looked for in the text itself.

Written on ``unicodedata`` and ``regex`` (scripts as character classes), whose wheels install everywhere, rather than on
ICU: PyICU is a source package that needs ICU's own libraries. Not guaranteed: knowledge of any language. Traditional
and simplified Chinese, or a word in kana and in kanji, stay apart.
"""

from __future__ import annotations

import html
import itertools
import re
import unicodedata
from collections.abc import Iterable, Iterator
from functools import lru_cache

import regex

VERSION = 2
"""Of the normal form. An index of another version is made again."""
TOKENIZER = "porter ascii"
"""FTS5's tokenizer for what :func:`indexed` gives: cuts at ASCII marks only, and takes English endings off."""

STOP_WORDS = frozenset(
    """
    a about all also am an and any are as at be been but by can could did do does doing done for from get had has have
    having he her here him his how i if in into is it its just me more most much my no nor not of off on one or our out
    over own shall she should so some such than that the their them then there these they this those to too up us use
    used using very was we were what when where which while who whom whose why will with would you your s t
    """.split()  # noqa: SIM905 - a list of a hundred quoted words is no better to read
)

# --- the normal form -------------------------------------------------------------------------------------

_BEYOND_ASCII = re.compile(r"(?<![!-~])[!-~]*+[^\x00-\x7f][^\x00-\x20]*+")
_ENTITY = re.compile(r"&(?:#\d{1,7}|#[xX][0-9a-fA-F]{1,6}|[A-Za-z]\w{1,31});")
_BROKEN = re.compile(r"\xad(?=[ \t]*\r?\n)")
_WRAPPED = re.compile(
    r"(?<=[\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff\u3400-\u9fff])\r?\n[ \t]*+"
    r"(?=[\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff\u3400-\u9fff])"
)
"""A line's end within a sentence of a script without blanks: no word ends there."""
_DROPPED = regex.compile(
    r"[\p{Cf}\p{Variation_Selector}\u0640"  # zero width, soft hyphens, directions; variants; the Arabic tatweel
    r"\u0300-\u036f\u0483-\u0489\u1ab0-\u1aff\u1dc0-\u1dff\u20d0-\u20ff\ufe20-\ufe2f"  # accents
    r"[\p{M}&&[\p{Hebrew}\p{Arabic}\p{Syriac}\u064b-\u065f\u0670]]"  # vowel marks
    r"\u093c\u09bc\u0a3c\u0abc\u0b3c\U0001f3fb-\U0001f3ff]",  # nuktas; tones of skin
    regex.V1,
)
_SAME = str.maketrans(
    {
        **dict.fromkeys("’‘ʼʹ′`´ʻ＇", "'"),
        **dict.fromkeys("‐‑", "-"),
        **dict.fromkeys("“”„‟«»–—―•", " "),
        **dict(zip("ıøØłŁđĐðÐħĦŧŦґҐ", "ioOlLdDdDhHtTгГ", strict=True)),
        **{"æ": "ae", "Æ": "AE", "œ": "oe", "Œ": "OE", "þ": "th", "Þ": "TH"},
        **{"ى": "ي", "ی": "ي", "ک": "ك", "ة": "ه", "ہ": "ه", "ھ": "ه", "ٱ": "ا"},  # Arabic and Persian keyboards
        "ँ": "ं",
    }
)
_THAI = regex.compile(r"\u0e4d([\u0e48-\u0e4b])\u0e32"), r"\1" + "\u0e4d\u0e32"
_SHORT = 40
_DIGIT = regex.compile(r"[\p{Nd}--[0-9]]", regex.V1)


def folded(text: str) -> str:
    """The text in its normal form, case kept; not of the same length.

    >>> folded("Maßnahme, eﬃcient, القِسْط, Ａ１, don’t")
    "Maßnahme, efficient, القسط, A1, don't"
    """
    if "&" in text:
        text = _ENTITY.sub(lambda match: html.unescape(match[0]), text)
    if "\xad" in text:
        text = _BROKEN.sub("-", text)
    return text if text.isascii() else _BEYOND_ASCII.sub(_folded_run, _WRAPPED.sub("", text))


def _folded_run(match: re.Match[str]) -> str:
    run = match[0]
    return _remembered(run) if len(run) < _SHORT else _fold(run)


@lru_cache(1 << 15)
def _remembered(run: str) -> str:
    return _fold(run)


def _fold(run: str) -> str:
    plain = _DROPPED.sub("", unicodedata.normalize("NFKD", run)).translate(_SAME)
    plain = _DIGIT.sub(lambda digit: str(unicodedata.decimal(digit[0])), plain)
    plain = _THAI[0].sub(_THAI[1], plain.replace("เเ", "แ"))
    return unicodedata.normalize("NFC", plain)


# --- words ----------------------------------------------------------------------------------------

_NO_BLANKS = (
    r"\p{Han}\p{Hiragana}\p{Katakana}\p{Bopomofo}\p{Yi}\p{Thai}\p{Lao}\p{Khmer}\p{Myanmar}\p{Tai_Le}\p{Tai_Tham}"
    r"\p{New_Tai_Lue}\p{Tai_Viet}\p{Javanese}\p{Balinese}ー"
)
_PIECE = regex.compile(
    rf"(?P<pairs>(?:[{_NO_BLANKS}]\p{{M}}*+)++)|(?P<hangul>\p{{Hangul}}++)"
    rf"|(?P<word>[\w--[{_NO_BLANKS}\p{{Hangul}}]]++)|(?P<sign>[\p{{Extended_Pictographic}}\p{{Regional_Indicator}}])",
    regex.V1,
)
_CHARACTER = regex.compile(r".\p{M}*+")
_PARTICLES = frozenset("은는이가을를에의도로만와과나")
_LONGER = frozenset({"에서", "으로", "에게", "부터", "까지", "보다", "처럼", "하고"})


def stream(text: str) -> list[str]:
    """The words of a text in order, without the parts and wholes of compounds.

    >>> stream("Größe der RAG检索增强")
    ['grosse', 'der', 'rag', '检索', '索增', '增强']
    """
    return _pieces(folded(text).casefold())


def words(text: str) -> list[str]:
    """The words of a text as they are searched for: those of :func:`stream`, then parts and wholes of compounds.

    >>> words("Das HTTPServer2-Modul")
    ['das', 'httpserver2', 'modul', 'http', 'server', '2', 'httpserver2modul']
    """
    plain = folded(text)
    return [*_pieces(plain.casefold()), *_beside(text, plain)]


def indexed(text: str, *, inflected: bool | None = None) -> str:
    """The text for a table of FTS5 with ``TOKENIZER``: every word that :func:`words` gives of it.

    With them the beginnings of words in an ``inflected`` language (of a heading: what its text is), and each character
    of scripts without blanks by itself, so that a question of one character finds it.
    """
    plain = folded(text)
    beside = _beside(text, plain)
    if seems_inflected(text) if inflected is None else inflected:
        beside += _beginnings(_pieces(plain.casefold()))
    if not plain.isascii():
        beside += _single(plain)
        plain = _BEYOND_ASCII.sub(lambda run: " ".join(_pieces(run[0].casefold())), plain)
    return f"{plain}\n{' '.join(beside)}"


def terms(question: str) -> list[str]:
    """The words of a question that search goes by, each once; the stop words only where there is nothing else."""
    found = list(dict.fromkeys(words(question)))
    return [word for word in found if word not in STOP_WORDS] or found


def looked_for(question: str) -> list[str]:
    """What is looked for in what :func:`indexed` gave: a question's :func:`terms`, then the beginnings of its words."""
    others, english = _small_words(unicodedata.normalize("NFC", question))
    starts = _beginnings(word for word in stream(question) if word not in STOP_WORDS) if others >= english else []
    return [*terms(question), *dict.fromkeys(starts)]


def seems_inflected(text: str) -> bool:
    """Whether a text is in another language than English: by its script, accents, and commonest small words.

    Of an English text, of code and of tables beginnings are not looked for: Porter's endings are enough there, and the
    few passages that had some would come before all others.
    """
    head = unicodedata.normalize("NFC", text[:_HEAD])
    others, english = _small_words(head)
    return 12 * others >= len(head.split()) and others > english


def _small_words(text: str) -> tuple[int, int]:
    """How many words are of other languages by their letters or are small words of them, and how many are English."""
    found = text.casefold().split()
    others = sum(map(_OF_OTHERS.__contains__, found))
    if not text.isascii():
        beyond = (word for word in found if not word.isascii())
        others += sum(any(character > "\x7f" and character.isalpha() for character in word) for word in beyond)
    return others, sum(map(_OF_ENGLISH.__contains__, found))


def quoted(word: str) -> str:
    """A word as a string of FTS5, in which nothing is syntax."""
    return '"' + word.replace('"', '""').replace("\0", " ") + '"'


def _pieces(plain: str) -> list[str]:
    if plain.isascii():
        return _ASCII_WORD.findall(plain)
    found: list[str] = []
    for piece in _PIECE.finditer(plain):
        kind = piece.lastgroup
        if kind == "pairs":
            found += _pairs(_CHARACTER.findall(piece[0]))
        elif kind == "hangul":
            found += _hangul(piece[0])
        elif piece[0].strip("_"):
            found.append(piece[0])
    return found


def _pairs(characters: list[str]) -> list[str]:
    return [first + second for first, second in itertools.pairwise(characters)] or characters


def _hangul(word: str) -> list[str]:
    """Pairs; of a word of one syllable with its particle the word too, which else shares no pair with itself."""
    return [*_pairs(list(word)), *([word[0]] if word[1:] in _PARTICLES | _LONGER else [])]


def _single(plain: str) -> Iterator[str]:
    for run in _BEYOND_ASCII.finditer(plain):
        for piece in _PIECE.finditer(run[0]):
            if piece.lastgroup == "pairs":
                yield from _CHARACTER.findall(piece[0])


# --- beginnings -------------------------------------------------------------------------------------

_HEAD = 2000
_OF_ENGLISH = frozenset(
    {"the", "and", "of", "is", "are", "with", "that", "this", "which", "from", "you", "be", "not", "when", "it", "if"}
)
_OF_OTHERS = frozenset(
    """
    der die das und ist nicht ein eine den dem mit von zu wird wie le la les des et est un une dans pour pas que du au
    el los las por para con se del il lo gli che di non della os uma em da de het een van niet voor och att det som ikke
    av af til med nie jest na oraz je ja ei ovat joka ve bir bu ile az nem egy hogy yang dan dengan este nu cu
    """.split()  # noqa: SIM905 - as above
)
"""Small words that English has not, or seldom."""
_ENDED = "…"
"""Marks a beginning, which no word ends with."""
_LETTERS_ONLY = regex.compile(r"[\p{L}\p{M}]{4,}")
_PAIRED = regex.compile(rf"[{_NO_BLANKS}\p{{Hangul}}]", regex.V1)
_HEBREW, _ARABIC = re.compile(r"[והבלכמש](?=[א-ת]{3})"), re.compile(r"[وف]?(?:لل|[بكل]?(?:ال)?)(?=[ء-ي]{3})")


def _beginnings(found: Iterable[str]) -> list[str]:
    """The first letters of each word, by which its other forms are found: six, of a shorter word all and all but one
    or two, since of ``город`` and ``города``, ``Tisch`` and ``Tische`` one has an ending and the other none.

    Measured on ``tests/benchmarks/languages.jsonl`` beside Snowball's stemmers, which find no more and have to know
    the language. Hebrew's and Arabic's articles and prepositions, which are written onto the word, are taken off.
    """
    starts = []
    for word in found:
        if _LETTERS_ONLY.fullmatch(word) and not _PAIRED.search(word):
            starts += [f"{one[:length]}{_ENDED}" for one in _bare(word) for length in _lengths(len(one))]
    return starts


def _lengths(n: int) -> range:
    return range(min(max(n - 2, 4), 6, n - 1), min(n, 6) + 1)


def _bare(word: str) -> list[str]:
    bare = [word]
    if "א" <= word[0] <= "ת":
        while len(bare) < 3 and _HEBREW.match(bare[-1]):
            bare.append(bare[-1][1:])
    elif "ء" <= word[0] <= "ي":
        end = _ARABIC.match(word)
        if end is not None and end[0]:
            bare.append(word[end.end() :])
    return bare


# --- parts and wholes -----------------------------------------------------------------------------

_ASCII_WORD = re.compile(r"_*+[a-zA-Z0-9]\w*", re.ASCII)
_HUMP = r"[{high}](?:(?<=[{low}].)|(?<=[{high}].)(?=[{low}])|(?<=[0-9].)(?=[{low}]{{2}}))"
"""The capital of ``aB``, the second one of ``ABc``, and that of ``64Encoder``."""
_HUMPS_ASCII, _HUMPS = (
    re.compile(_HUMP.format(low="a-z", high="A-Z")),
    regex.compile(_HUMP.format(low=r"\p{Ll}", high=r"\p{Lu}")),
)
_LETTERS = regex.compile(r"[^\W_]++")
_PARTS = regex.compile(r"\p{Lu}+(?!\p{Ll})|\p{Lu}?\p{Ll}++|[0-9]++|[^\W_]")
_NUMBERED = regex.compile(r"(?<=[0-9\p{Ll}])(?=\p{Lu}\p{Ll}\p{Ll})", regex.V1)
"""Between ``Base64`` and ``Encoder``, ``IPv6`` and ``Address``."""
_COMPOUND = r"\b{one}++(?:(?:-(?:[ \t]*+\r?\n[ \t>#*/;%|]*+)?|_++){one}++)++"
"""With the marks of a quotation or a comment at the beginning of the next line."""
_COMPOUNDS_ASCII, _COMPOUNDS = (
    re.compile(_COMPOUND.format(one="[a-zA-Z0-9]"), re.ASCII),
    re.compile(_COMPOUND.format(one=r"[^\W_]")),
)
_NUMBER = re.compile(r"[0-9](?<![\w.,][0-9])[0-9]{0,2}(?:[ .,'][0-9]{3})++(?![0-9])")
_UNJOINED = regex.compile(r"[\p{L}\p{M}\p{N}]++(?:\u200c[\p{L}\p{M}\p{N}]++)++")
"""Words of Persian and its like whose parts a zero-width sign keeps apart, where others type a blank or nothing."""
_LONGEST = 64
_UMLAUT = re.compile(r"[äöüøåÄÖÜØÅ]")
_WRITTEN_OUT = str.maketrans({"ä": "ae", "ö": "oe", "ü": "ue", "ø": "oe", "å": "aa"})


def _beside(text: str, plain: str) -> list[str]:
    """Parts of camel case, compounds as one word, numbers without separators, umlauts written out."""
    found = [part.casefold() for word in _humped(plain) for part in _parts(word)]
    for compound in (_COMPOUNDS_ASCII if plain.isascii() else _COMPOUNDS).findall(plain):
        whole = "".join(_LETTERS.findall(compound)).casefold()
        if len(whole) <= _LONGEST and not whole.isdigit():
            found.append(whole)
    found += ["".join(filter(str.isdigit, number)) for number in _NUMBER.findall(plain)]
    if not text.isascii():
        found += _written_out(text)
        found += [folded(part).casefold() for word in _UNJOINED.findall(text) for part in word.split("\u200c")]
    return found


def _humped(plain: str) -> Iterator[str]:
    """The words of a text that are written as several, by capitals within."""
    yield from _at(_HUMPS_ASCII.finditer(plain), plain)
    if not plain.isascii():
        for run in _BEYOND_ASCII.findall(plain):
            yield from _at(_HUMPS.finditer(run), run)


def _at(humps: Iterable[re.Match[str] | regex.Match[str]], text: str) -> Iterator[str]:
    end = 0
    for hump in humps:
        if hump.start() >= end:
            start = hump.start()
            while start and text[start - 1].isalnum():
                start -= 1
            word = _LETTERS.match(text, start)
            assert word is not None
            end = word.end()
            if end - start <= _LONGEST:
                yield word[0]


def _parts(word: str) -> list[str]:
    """Of a name its parts, those with a number whole; of digits among letters (a digest, a part number) nothing."""
    parts = _PARTS.findall(word)
    if any(part.isdigit() for part in parts[:-1]):
        parts = _NUMBERED.split(word)
        return parts if 1 < len(parts) < 5 else []
    return parts if 1 < len(parts) < 8 else []


def _written_out(text: str) -> Iterator[str]:
    composed = unicodedata.normalize("NFC", text)
    if _UMLAUT.search(composed):
        for word in _LETTERS.findall(composed):
            if _UMLAUT.search(word):
                yield folded(word.casefold().translate(_WRITTEN_OUT)).casefold()
