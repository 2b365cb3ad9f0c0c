"""Quotes and answers: bound to the chunk, checked in the source, tried chunk by chunk, voted on."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentkv import AgentKVWarning, AgentMemory, FakeEngine
from agentkv.documents import Corpus
from agentkv.documents.answer import EVIDENCE, FROM_CHUNK, combine, key_of, stands_at
from agentkv.documents.quote import MAX_QUOTE, NOT_STATED, choose, is_grounded, normalised, sentences, shares_of
from agentkv.engine.base import Cancellation, Logits
from agentkv.errors import UsageError, WindowOverflow

from .conftest import GUIDE, script


def corpus_saying(tmp_path: Path, folder: Path, answer: str, **how: object) -> Corpus:
    memory = AgentMemory(tmp_path / "store", FakeEngine(window=2048, replies=script(answer)))
    made = Corpus(memory, chunk_tokens=160, overlap=0, **how)  # type: ignore[arg-type]
    made.add([folder])
    return made


def saying(quote: str, answer: str) -> str:
    return f'{answer}{EVIDENCE}{quote}"'


def test_a_reply_carries_its_evidence(tmp_path: Path, folder: Path) -> None:
    corpus = corpus_saying(tmp_path, folder, saying("Returns are accepted for 7 days.", "7 days"))
    reply = corpus.ask("How long are returns accepted?", k=1)
    assert reply.answer == "7 days"
    evidence = reply.evidence
    assert evidence is not None
    assert (evidence.quote, evidence.path) == ("Returns are accepted for 7 days.", "docs/guide.md")
    assert evidence.heading == "Shop > Returns"
    assert (folder / "guide.md").read_bytes()[evidence.start : evidence.stop] == b"Returns are accepted for 7 days."
    assert (evidence.verified, evidence.origin) == (True, "same")
    (attempt,) = reply.attempts
    assert attempt.tokens.restored > 150
    assert attempt.kept


def test_a_quote_from_html_names_source_bytes(tmp_path: Path, folder: Path) -> None:
    corpus = corpus_saying(tmp_path, folder, saying("The pump holds 40 litres & more.", "40"))
    evidence = corpus.ask("How many litres does the pump hold?", k=1).evidence
    assert evidence is not None
    source = (folder / "page.html").read_bytes()[evidence.start : evidence.stop]
    assert source == b"The <b>pump</b> holds&nbsp;40&thinsp;litres &amp; more."
    assert evidence.verified


def test_whatever_the_model_says_a_quote_is_a_sentence_of_the_chunk(tmp_path: Path, folder: Path) -> None:
    corpus = corpus_saying(tmp_path, folder, "made up nonsense")
    for question in ("returns fee", "cutoff monday", "pump litres"):
        for attempt in corpus.ask(question, k=3, votes=True).attempts:
            if attempt.evidence is not None:
                assert attempt.evidence.verified
                assert attempt.evidence.quote in normalised(attempt.hit.text)


def test_a_word_that_no_sentence_holds_dilutes_no_other() -> None:
    texts = ["Players of the club Rakaufem train in Safutrask.", "The team practises what it calls review.", "Nothing."]
    rakaufem, team, _ = shares_of(["where", "team", "called", "rakaufem", "unheard", "of", "words"], texts)
    assert rakaufem > 0.3
    assert shares_of(["rakaufem", "unheard", "words"], texts) == [1.0, 0.0, 0.0]
    assert team < 1


def test_not_stated_goes_on_to_the_next_chunk(tmp_path: Path, folder: Path) -> None:
    corpus = corpus_saying(tmp_path, folder, NOT_STATED)
    reply = corpus.ask("shop returns cutoff pump", k=3)
    assert (reply.answer, reply.evidence) == (None, None)
    assert len(reply.attempts) == 3
    assert {attempt.answer for attempt in reply.attempts} == {None}


def test_a_large_model_answers_from_the_chunk(tmp_path: Path, folder: Path) -> None:
    corpus = corpus_saying(tmp_path, folder, saying("Returns are accepted for 7 days.", "Up to 7 days"))
    question = "How long are returns accepted?"
    from_quote = corpus.ask(question, k=1, answer_from="quote").attempts[0]
    from_chunk = corpus.ask(question, k=1, answer_from="chunk").attempts[0]
    assert (from_chunk.answer, from_chunk.draft) == ("Up to 7 days", "Up to 7 days")
    assert from_chunk.evidence == from_quote.evidence
    assert from_chunk.tokens.prefilled < from_quote.tokens.prefilled - len(question)
    info = corpus.memory.engine.info
    for n_params, like in ((FROM_CHUNK - 1, from_quote), (FROM_CHUNK, from_chunk)):
        corpus.memory.engine.info = replace(info, n_params=n_params)
        assert corpus.ask(question, k=1).attempts[0].tokens == like.tokens


@pytest.mark.parametrize("draft", ["It takes 14 weeks and a receipt", ""])
def test_a_large_models_answer_that_stands_nowhere_counts_as_not_stated(
    tmp_path: Path, folder: Path, draft: str
) -> None:
    corpus = corpus_saying(tmp_path, folder, saying("Returns are accepted for 7 days.", draft))
    reply = corpus.ask("shop returns cutoff pump", k=3, answer_from="chunk")
    assert (reply.answer, reply.evidence, len(reply.attempts)) == (None, None, 3)
    assert {attempt.draft for attempt in reply.attempts} == {draft}


@pytest.mark.parametrize(
    ("answer", "grounded"),
    [
        (["7", "days"], True),
        (["8", "day"], False),  # half is not enough
        (["8", "days", "accepted"], True),
        (["yes"], True),
        (["yes", "six"], False),
        (["long", "returns"], True),  # the question's own words
        ([], True),
    ],
)
def test_grounded_answers(answer: list[str], grounded: bool) -> None:
    assert is_grounded(answer, ["long", "return"], "Accepted for 7 days.") is grounded


def test_a_file_that_changed_or_went_is_told(tmp_path: Path, folder: Path) -> None:
    corpus = corpus_saying(tmp_path, folder, saying("Returns are accepted for 7 days.", "7 days"))
    question = "How long are returns accepted?"
    (folder / "guide.md").write_text(GUIDE.replace("7 days", "30 days"))
    with pytest.warns(AgentKVWarning, match="docs/guide.md has changed since it was added"):
        reply = corpus.ask(question, k=1)
    assert reply.evidence is not None
    assert (reply.evidence.quote, reply.evidence.verified, reply.evidence.origin) == (
        "Returns are accepted for 7 days.",
        False,
        "changed",
    )
    assert reply.moved_on == ("docs/guide.md",)
    assert "--refresh" in reply.notes[0]
    (folder / "guide.md").unlink()
    gone = corpus.ask(question, k=1).evidence
    assert gone is not None
    assert (gone.verified, gone.origin) == (True, "gone")  # the kept copy can be read, and no other says otherwise


def test_a_changed_file_is_read_anew_where_that_is_asked_for(tmp_path: Path, folder: Path) -> None:
    corpus = corpus_saying(tmp_path, folder, saying("Returns are accepted for 30 days.", "30 days"))
    (folder / "guide.md").write_text(GUIDE.replace("7 days", "30 days"))
    reply = corpus.ask("How long are returns accepted?", k=1, refresh=True)
    assert reply.evidence is not None
    assert (reply.evidence.quote, reply.evidence.verified) == ("Returns are accepted for 30 days.", True)
    assert (reply.notes, reply.moved_on) == ((), ())
    assert corpus.refresh().plan.planned == ()


def test_a_quote_is_checked_in_the_kept_source(corpus: Corpus, folder: Path) -> None:
    corpus.add([folder])
    hit = corpus.find("restocking fee", k=1)[0]
    start = (folder / "guide.md").read_bytes().index(b"Returns are")
    assert stands_at(corpus.shelf, hit.document, start, start + 32, "Returns  are accepted\nfor 7 days.")
    assert not stands_at(corpus.shelf, hit.document, start, start + 32, "Returns are accepted for 8 days.")
    assert not stands_at(corpus.shelf, hit.document, start + 1, start + 33, "Returns are accepted for 7 days.")
    corpus.shelf.sources.remove(hit.document.sha256)
    assert not stands_at(corpus.shelf, hit.document, start, start + 32, "Returns are accepted for 7 days.")


def test_votes(tmp_path: Path, folder: Path) -> None:
    corpus = corpus_saying(tmp_path, folder, saying("Returns are accepted for 7 days.", "7 days"))
    reply = corpus.ask("shop returns cutoff pump", k=3, votes=True)
    assert len(reply.attempts) == 3
    first, second, third = (
        replace(attempt, answer=answer, evidence=reply.evidence)
        for attempt, answer in zip(reply.attempts, ("9", "the 7 days.", "7 Days"), strict=True)
    )
    combined = combine("q", [first, second, third])
    assert (combined.answer, combined.votes) == ("the 7 days.", 2)
    assert combine("q", [first, second]).answer == "9"
    assert combine("q", []).answer is None


def test_chunks_read_one_behind_the_other_give_one_answer(tmp_path: Path, folder: Path) -> None:
    quote = "The cutoff is on Monday at four."
    corpus = corpus_saying(tmp_path, folder, saying(quote, "Monday"))
    question, engine = "shop returns cutoff", corpus.memory.engine
    first, *others = corpus.find(question, k=3)
    read: list[tuple[int, ...]] = []
    extend = engine.extend

    def watched(tokens: Sequence[int], cancellation: Cancellation | None = None) -> Logits:
        logits = extend(tokens, cancellation)
        read.append(tuple(engine.tokens))
        return logits

    engine.extend = watched  # type: ignore[method-assign]
    reply = corpus.ask(question, k=3, together=True)
    (attempt,) = reply.attempts
    assert (reply.answer, attempt.hit.chunk) == ("Monday", first.chunk)
    assert reply.evidence is not None
    assert (reply.evidence.quote, reply.evidence.path, reply.evidence.verified) == (quote, "docs/deep/trains.rst", True)
    prompts = [corpus.chunks.chunk_prompt(hit.document, hit.chunk, question) for hit in (first, *others)]
    whole = (*prompts[0].prefix, *(token for prompt in prompts for token in prompt.manual), *prompts[0].turn)
    assert whole in read
    assert attempt.tokens.restored >= len(prompts[0].prefix) + len(prompts[0].manual)
    assert attempt.tokens.prefilled > sum(len(prompt.manual) for prompt in prompts[1:])
    with pytest.raises(UsageError, match="vote"):
        corpus.ask(question, votes=True, together=True)
    long = "shop returns cutoff pump " * 60
    assert corpus.ask(long, k=3).attempts
    with pytest.raises(WindowOverflow):
        corpus.ask(long, k=3, together=True)


def test_keys_of_answers() -> None:
    assert key_of(" The  Answer. ") == key_of("answer") == "answer"
    assert key_of("7 days") != key_of("8 days")


def test_questions_that_cannot_be_asked(corpus: Corpus, folder: Path) -> None:
    corpus.add([folder])
    with pytest.raises(UsageError):
        corpus.ask(" ")
    stored = corpus.shelf.stored()
    with pytest.raises(WindowOverflow):
        corpus.ask("returns " * 400)
    assert corpus.shelf.stored() == stored
    assert corpus.ask("zzzz").attempts == ()


def test_the_restored_answer_is_that_of_a_chunk_read_anew(tmp_path: Path, folder: Path) -> None:
    def ask(store: str) -> object:
        with AgentMemory(tmp_path / store, FakeEngine(window=2048)) as memory:
            corpus = Corpus(memory, chunk_tokens=160, overlap=0)
            corpus.add([folder])
            reply = corpus.ask("returns fee", k=2, votes=True)
            return [(a.answer, a.evidence, a.confidence) for a in reply.attempts]

    assert ask("one") == ask("one") == ask("two")


# --- the choice -----------------------------------------------------------------------------------


@given(st.lists(st.text(alphabet="ab ", max_size=6), min_size=1, max_size=8, unique=True), st.integers(0, 99))
def test_a_choice_is_always_one_of_the_texts(texts: list[str], weights: int) -> None:
    engine = FakeEngine(window=256, weights=str(weights))
    logits = engine.extend([1, 2, 3])
    offered = [f"{text}|" for text in texts]
    choice = choose(engine, logits, offered)
    read = bytes(engine.tokens[3:]).decode()
    assert [i for i, text in enumerate(offered) if text.startswith(read)].count(choice.index) == 1
    assert 0 < choice.probability <= 1
    assert choice.asked < len(texts) or len(texts) == 1


def test_the_models_likeliest_way_is_taken() -> None:
    engine = FakeEngine(window=256, replies=script("beta|"))
    logits = engine.extend([*b"q", 259])
    choice = choose(engine, logits, ["alpha|", "beta|", "bets|", "gamma|"])
    assert choice.index == 1
    assert choice.asked == 2


def test_a_bonus_outweighs_the_model_where_it_is_large() -> None:
    for bonus, expected in (([0.0, 0.0], 0), ([0.0, 50.0], 1)):
        engine = FakeEngine(window=256, replies=script("alpha|"))
        logits = engine.extend([*b"q", 259])
        assert choose(engine, logits, ["alpha|", "beta|"], bonus).index == expected


def test_shared_words_count_by_how_rare_they_are() -> None:
    texts = ["The fee of readers is high.", "The reader is red.", "Nothing."]
    fee, reader, nothing = shares_of(["fee", "reader"], texts)
    assert fee == pytest.approx(1.0)
    assert 0 < reader < 0.5
    assert nothing == 0
    assert shares_of([], texts) == [0.0, 0.0, 0.0]


# --- sentences ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("One is here. Two is there! Three?", ["One is here.", "Two is there!", "Three?"]),
        ("Use e.g. Debian. Dr. Smith said so.", ["Use e.g. Debian.", "Dr. Smith said so."]),
        ("Wrapped\nover lines. Next\n\nNew paragraph", ["Wrapped over lines.", "Next", "New paragraph"]),
        ("- first\n- second\n", ["- first", "- second"]),
        ("tea | 3 | red\nmilk | 2 | white\n | 4 |\n", ["tea | 3 | red", "milk | 2 | white", "| 4 |"]),
        ("Version 1.5 is out.", ["Version 1.5 is out."]),
        ("これは文です。次の文。", ["これは文です。", "次の文。"]),
        (" \n ", []),
    ],
)
def test_sentences(text: str, found: list[str]) -> None:
    assert [item.text for item in sentences(text)] == found


def test_lines_of_code() -> None:
    assert [item.text for item in sentences("def f():\n    return 1. \n", code=True)] == ["def f():", "return 1."]


@given(st.text(alphabet=st.sampled_from("ab. \nAé!-"), max_size=1500))
def test_sentences_stand_where_they_say_and_are_short(text: str) -> None:
    before = 0
    for item in sentences(text):
        assert before <= item.start < item.stop <= len(text)
        assert normalised(text[item.start : item.stop]) == item.text
        assert item.stop - item.start <= MAX_QUOTE
        before = item.stop


def test_a_choice_is_not_read_to_its_end() -> None:
    texts = ["alpha one|", "alpha two|", "beta|"]
    for reply, index, read in (("alpha two|", 1, "alpha "), ("beta|", 2, "")):
        engine = FakeEngine(window=256, replies=script(reply))
        logits = engine.extend([*b"q", 259])
        choice = choose(engine, logits, texts)
        assert (choice.index, bytes(engine.tokens[2:]).decode()) == (index, read)


def test_a_quote_costs_what_it_takes_to_tell_it_from_the_others(tmp_path: Path, folder: Path) -> None:
    question = "How long are returns accepted?"
    corpus = corpus_saying(tmp_path, folder, saying("Returns are accepted for 7 days.", "7 days"))
    (attempt,) = corpus.ask(question, k=1).attempts
    assert attempt.evidence is not None
    turn = len(corpus.chunks.prompt("x", question).turn)
    cue = len(EVIDENCE) + len(corpus.chunks.short_answers._prompt(question, attempt.evidence.quote)[1])
    assert turn + cue <= attempt.tokens.prefilled < turn + cue + len("Returns are accepted")
    assert attempt.tokens.generated >= len("7 days\n")
