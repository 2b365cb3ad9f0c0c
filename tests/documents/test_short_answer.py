"""The answer in a few words: from one sentence, after examples that are restored, and left out where they cannot be."""

from __future__ import annotations

from pathlib import Path

from agentkv import AgentMemory, FakeEngine
from agentkv.documents import Corpus
from agentkv.documents.quote import EXAMPLES, ShortAnswers

SENTENCE, QUESTION = "Returns are accepted for 7 days.", "How long may I send things back?"


def model(prompt: str) -> str:
    """Says 7 days where the sentence is all it has, else a long draft."""
    return "7 days" if f'"{SENTENCE}" {QUESTION}' in prompt else "they are accepted for 7 days, says the shop"


def test_the_examples_are_read_once_and_a_turn_is_the_sentence_and_the_question(tmp_path: Path) -> None:
    with AgentMemory(tmp_path, FakeEngine(replies=model)) as memory:
        first, again = (ShortAnswers(memory).answer(QUESTION, SENTENCE, 20) for _ in range(2))
        assert first is not None
        assert first == again
        assert first.text == "7 days"
        shots, turn, _ = ShortAnswers(memory)._prompt(QUESTION, SENTENCE)
        assert (first.restored, first.prefilled) == (len(shots), len(turn))
        assert len(list(memory.store.block_ids())) == 1
        assert all(answer in text or answer == "3 June 2021" for text, _, answer in EXAMPLES)


def test_without_room_or_exactness_there_is_no_brief_answer(tmp_path: Path) -> None:
    with AgentMemory(tmp_path / "small", FakeEngine(window=512, replies=model)) as memory:
        assert ShortAnswers(memory).answer(QUESTION, SENTENCE, 20) is None
    with AgentMemory(tmp_path / "inexact", FakeEngine(replies=model, diverge_after=3)) as memory:
        assert ShortAnswers(memory).answer(QUESTION, SENTENCE, 20) is None
        assert list(memory.store.block_ids()) == []


def test_a_store_without_room_reads_the_examples(tmp_path: Path) -> None:
    with AgentMemory(tmp_path, FakeEngine(replies=model)) as memory:
        memory.store.set_budget(2000)
        short = ShortAnswers(memory).answer(QUESTION, SENTENCE, 20)
        assert short is not None
        assert (short.text, short.restored) == ("7 days", 0)


def test_a_reply_is_the_brief_answer_and_keeps_the_draft(tmp_path: Path) -> None:
    (tmp_path / "guide.txt").write_text(f"The shop.\n\n{SENTENCE}\n\nNothing else.\n")
    with AgentMemory(tmp_path / "store", FakeEngine(window=2048, replies=model)) as memory:
        corpus = Corpus(memory, chunk_tokens=160, overlap=0)
        corpus.add([tmp_path / "guide.txt"])
        (attempt,) = corpus.ask(QUESTION.replace("send things back", "make returns"), k=1).attempts
        assert attempt.draft == "they are accepted for 7 days, says the shop"
        (attempt,) = corpus.ask(QUESTION + " Are returns accepted?", k=1).attempts
        assert attempt.evidence is not None
        assert attempt.evidence.quote == SENTENCE
