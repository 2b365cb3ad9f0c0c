"""Where one chunk ends and the next begins: a sentence that is cut there counts where it stands whole."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from agentkv import AgentMemory, FakeEngine
from agentkv.documents import Corpus
from agentkv.documents.answer import _quotable
from agentkv.documents.locate import better_of, cut_sentences
from agentkv.engine.embed import FakeEmbedder

QUESTION = "What is the access code of the north gate?"
FILLER = (
    "Every morning the caretaker walks along the fence and looks whether the lamps still burn. In winter he begins at "
    "six, in summer at five; then he has his tea. The dog comes along and barks at crows. Nobody minds it much. "
)
WELL = "beside the orchard and the old well"
NEEDLES = {
    "a sentence": f"The access code of the north gate, which is the one {WELL}, is now 48213 again.",
    "value first": f"With 48213 you have the access code of the north gate, the one {WELL} of stone.",
    "a list item": f"\n\n- access code of the north gate, the one {WELL} of the village: it is 48213\n\n",
    "a table row": f"\n\n| access code of the north gate | {WELL} of the village there | 48213 |\n\n",
    "a line": f"\naccess code of the north gate = {WELL} of the village, where one types 48213\n",
}
"""Longer than the share of a chunk within which a sentence's end is looked for, shorter than the overlap."""


def corpus_of(tmp_path: Path, memory: AgentMemory, text: str, overlap: int = 128, chunk_tokens: int = 512) -> Corpus:
    (tmp_path / "docs").mkdir(exist_ok=True)
    (tmp_path / "docs" / "rounds.md").write_text(text)
    corpus = Corpus(memory, chunk_tokens=chunk_tokens, overlap=overlap, keep="lazy")
    corpus.add([tmp_path / "docs"])
    return corpus


def seams(needle: str, stream: bool) -> list[str]:
    """Texts in which the chunks' ends fall at many places of the needle; ``stream``: nothing else ends a sentence."""
    filler = re.sub(r"[.;,]", "", FILLER).lower() if stream else FILLER
    words = (filler * 4).split(" ")
    return [" ".join(words[:count]) + " " + needle + " " + filler * 3 for count in range(60, 100, 3)]


@pytest.mark.parametrize("kind", NEEDLES)
@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("embedded", [False, True])
def test_the_chunk_that_holds_the_sentence_whole_is_first(
    tmp_path: Path, kind: str, stream: bool, embedded: bool
) -> None:
    for number, text in enumerate(seams(NEEDLES[kind], stream)):
        place = tmp_path / f"{number}"
        place.mkdir()
        with AgentMemory(place / "store", FakeEngine(window=2048)) as memory:
            corpus = corpus_of(place, memory, text)
            every = corpus.find("caretaker fence lamps winter summer tea dog crows gate", k=20)
            half = [hit for hit in every if "gate" in hit.text and "48213" not in hit.text]
            whole = [hit.number for hit in every if "north gate" in hit.text and "48213" in hit.text]
            if not half or not whole:
                continue
            first = corpus.find(QUESTION, k=1, embed=FakeEmbedder() if embedded else None)[0]
            assert first.number in whole, (number, first.text[-90:])
            texts = [item.text for _, item in _quotable(half)]
            assert stream or not any("gate" in text for text in texts), texts


def test_what_is_cut_and_stands_whole_nowhere_is_still_found(tmp_path: Path, memory: AgentMemory) -> None:
    for text in seams(NEEDLES["a sentence"], False)[::5]:
        corpus = corpus_of(tmp_path, memory, text, overlap=0)
        hits = corpus.find(QUESTION, k=3)
        assert "gate" in hits[0].text
        assert all(hit.cut == (0, 0) for hit in hits)


def test_whole_sentences_at_a_seam_are_no_cut(tmp_path: Path, memory: AgentMemory) -> None:
    corpus = corpus_of(tmp_path, memory, FILLER * 4)
    record = next(iter(corpus.shelf.all().values()))
    document = corpus.shelf.readable(record)
    for number, chunk in enumerate(record.chunks):
        start, stop = document.characters(chunk.start, chunk.stop)
        lead, tail = cut_sentences(record, document, number)
        inner = document.text[start + lead : stop - tail].strip()
        assert inner[0].isupper(), inner[:40]
        assert inner[-1] in ".;", inner[-40:]


CODE = "The access code of the north gate of the yard behind is 48213."
SHORT = [(count, stream) for count in (38, 46, 54, 66, 74, 86, 98) for stream in (False, True)]
"""Words of the filler before it, and whether these end no sentence."""


def test_seams_that_once_put_the_cut_one_first(tmp_path: Path) -> None:
    """Some of these were answered by a chunk that ends with "the yard behind"."""
    cut = 0
    for number, (count, stream) in enumerate(SHORT):
        filler = (re.sub(r"[.;,]", "", FILLER).lower() if stream else FILLER) * 6
        words = filler.split(" ")
        place = tmp_path / f"{number}"
        place.mkdir()
        with AgentMemory(place / "store", FakeEngine(window=2048)) as memory:
            text = f"{' '.join(words[:count])} {CODE} {' '.join(words[:80])}"
            corpus = corpus_of(place, memory, text, overlap=64, chunk_tokens=256)
            every = corpus.find("caretaker fence lamps winter summer tea dog crows gate", k=20)
            if any("gate" in hit.text and "48213" not in hit.text for hit in every):
                cut += 1
                hits = corpus.find(QUESTION, k=1)
                assert CODE in hits[0].text, (count, stream)
                assert len(hits) == 1
    assert cut >= 3


def test_what_tells_two_chunks_apart(tmp_path: Path, memory: AgentMemory) -> None:
    corpus = corpus_of(tmp_path, memory, f"{FILLER * 2}{CODE} {FILLER * 2}", overlap=64, chunk_tokens=256)
    record = next(iter(corpus.shelf.all().values()))
    document = corpus.shelf.readable(record)
    last = len(record.chunks) - 1
    for number in range(last):
        assert better_of(["nowhere"], record, document, number) is None
        assert better_of([], record, document, number) is None
    flat = Corpus(memory, "flat", chunk_tokens=256, overlap=0, keep="lazy")
    flat.add([tmp_path / "docs"])
    record = next(iter(flat.shelf.all().values()))
    document = flat.shelf.readable(record)
    assert all(better_of(["gate", "code"], record, document, n) is None for n in range(len(record.chunks) - 1))
