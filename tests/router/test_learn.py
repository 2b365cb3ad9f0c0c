"""What is learned from labelled questions: the fit on made-up features, the file, and never from what is asked."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from agentkv import AgentMemory, FakeEngine
from agentkv.blocks.blocks import Blocks
from agentkv.errors import CorruptBlock, UsageError
from agentkv.notices import AgentKVWarning
from agentkv.router.base import NONE, Candidate
from agentkv.router.classifier import ChannelClassifier
from agentkv.router.evaluate import Labelled
from agentkv.router.learn import apart, best_taught, by_label, learn, load, save
from agentkv.router.lexical import LexicalClassifier
from agentkv.router.weights import (
    FEATURES,
    Rows,
    Weights,
    default_weights,
    fit,
    held_out,
    none_losing,
    probability,
    taught,
)
from agentkv.store.catalog import BlockStore

LIBRARY = {
    "csv": Candidate("Tables of text."),
    "refunds": Candidate("Giving money back."),
    "travel": Candidate("Trains and hotels."),
}
ASKED = [
    Labelled("the delimiter is a semicolon", "csv"),
    Labelled("which delimiter, semicolon or tab?", "csv"),
    Labelled("a semicolon inside quotes", "csv"),
    Labelled("the customer wants her cash", "refunds"),
    Labelled("a customer undoes a purchase", "refunds"),
    Labelled("cash for a purchase of last week", "refunds"),
    Labelled("a night in Lyon", "travel"),
    Labelled("Lyon, which platform and seat?", "travel"),
    Labelled("a seat for the night", "travel"),
    Labelled("who won the match", None),
]


def made_up(seed: int, questions: int = 80) -> list[tuple[Rows, int | None]]:
    """Questions whose right candidate is given away by the feature ``asked`` alone, loudly; one in four has none."""
    rng = np.random.default_rng(seed)
    examples: list[tuple[Rows, int | None]] = []
    for index in range(questions):
        rows = rng.normal(size=(5, len(FEATURES)))
        rows[:, 1:] = rng.uniform(0.0, 0.4, (5, len(FEATURES) - 1))  # cosines
        right = None if index % 4 == 0 else int(rng.integers(5))
        if right is not None:
            rows[right, FEATURES.index("asked")] = rng.uniform(0.6, 1.0)
        examples.append((rows, right))
    return examples


def accuracy(weights: Weights, examples: list[tuple[Rows, int | None]]) -> float:
    hits = 0
    for rows, right in examples:
        scores = [*weights.scores(rows), weights.none]
        best = int(np.argmax(scores))
        hits += (None if best == len(rows) else best) == right
    return hits / len(examples)


def test_the_fit_finds_the_feature_that_tells_and_where_none_begins() -> None:
    start = Weights(channel=1.0, card=0.0, text=0.0, asked=0.0, none=0.0)
    learned = fit(made_up(1), start)
    assert learned.fitted_on == 80
    assert accuracy(learned, made_up(2)) > 0.9 > 0.5 > accuracy(start, made_up(2))
    assert learned.asked > 5 * abs(learned.channel)
    assert learned == fit(made_up(1), start), "the same questions give the same weights"


def test_what_the_start_says_rightly_and_surely_changes_little() -> None:
    start = Weights(channel=1.0, card=2.0, text=10.0, asked=0.0, none=1.2)
    rows = np.zeros((2, len(FEATURES)))
    rows[0, [0, 2, 3]], rows[1, 0] = (4.0, 0.2, 0.4), -3.0
    one = fit([(rows, 0)], start)
    assert max(abs(getattr(one, name) - getattr(start, name)) for name in FEATURES) < 0.1
    assert fit([], start) == start


def test_probabilities_are_the_softmax() -> None:
    assert probability([0.0, 0.0], 0) == 0.5
    assert probability([1e4, 0.0, -1e4], 0) == 1.0
    assert sum(probability([1.0, 2.0, 3.0], i) for i in range(3)) == pytest.approx(1.0)


def classifier(tmp_path: Path) -> ChannelClassifier:
    return ChannelClassifier(Blocks(FakeEngine(), BlockStore(tmp_path)))


def test_a_question_is_not_compared_with_itself(tmp_path: Path) -> None:
    student = ChannelClassifier(classifier(tmp_path).blocks, labelled=by_label(ASKED))
    asked = FEATURES.index("asked")
    question = "a semicolon inside quotes"

    def nearest(leave_one_out: bool) -> float:
        known = student.features(question, LIBRARY, leave_one_out=leave_one_out)
        return float(known.rows[known.labels.index("csv"), asked])

    assert nearest(leave_one_out=False) == pytest.approx(1.0)
    assert 0.1 < nearest(leave_one_out=True) < 0.9


def test_labelled_questions_route_what_the_cards_do_not(tmp_path: Path) -> None:
    plain = classifier(tmp_path)
    learned = learn(plain, ASKED, LIBRARY, "ab" * 32)
    taught = ChannelClassifier(plain.blocks, weights=learned.weights, labelled=learned.labelled)
    result = taught.classify("a semicolon is the delimiter of a field", LIBRARY)
    assert result.raw_pick == "csv"
    assert result.confidence is not None
    assert 0.3 < result.confidence <= 1.0
    assert plain.classify("a semicolon is the delimiter of a field", LIBRARY).confidence is None
    assert learned.weights.fitted_on == len(ASKED)
    assert learned == learn(plain, ASKED, LIBRARY, "ab" * 32)


def test_labels_that_are_not_live_are_left_out(tmp_path: Path) -> None:
    learned = learn(classifier(tmp_path), [*ASKED, Labelled("x y z", "gone")], LIBRARY, "ab" * 32)
    assert set(learned.labelled) == set(LIBRARY)
    assert learned.weights.fitted_on == len(ASKED)
    nothing = learn(classifier(tmp_path), [Labelled("x y z", "gone")], LIBRARY, "ab" * 32)
    assert nothing.weights == default_weights("", with_embedder=False)


def test_what_is_evaluated_is_never_what_was_learned_from() -> None:
    assert apart([Labelled("A  night\nin lyon", "travel"), Labelled("new", "csv")], ASKED) == [Labelled("new", "csv")]


def test_the_file_is_for_one_fingerprint(tmp_path: Path) -> None:
    learned = learn(classifier(tmp_path / "s"), ASKED, LIBRARY, "ab" * 32)
    path = save(learned, tmp_path)
    assert load(tmp_path, "ab" * 32) == learned
    assert load(tmp_path, "cd" * 32) is None
    path.write_bytes(path.read_bytes()[:-5])
    with pytest.raises(CorruptBlock):
        load(tmp_path, "ab" * 32)


def test_a_memory_uses_what_was_learned_in_the_next_process_too(tmp_path: Path) -> None:
    memory = AgentMemory(tmp_path, FakeEngine())
    for label, known in LIBRARY.items():
        memory.deposit_text(label, f"The text of {label}.", known.description)
    learned = memory.learn(ASKED)
    assert isinstance(memory.classifier, ChannelClassifier)
    assert memory.classifier.weights == learned.weights
    again = AgentMemory(tmp_path, FakeEngine())
    question = "a semicolon is the delimiter of a field"
    assert again.route(question).scores == memory.route(question).scores
    assert again.route(question).pick == "csv"
    other = AgentMemory(tmp_path, FakeEngine(weights="changed"))
    assert isinstance(other.classifier, ChannelClassifier)
    assert other.classifier.weights == default_weights("", with_embedder=False)
    with pytest.raises(UsageError, match="does not learn"):
        AgentMemory(tmp_path, FakeEngine(), classifier=LexicalClassifier()).learn(ASKED)
    assert NONE in memory.route("zzz").scores


def wins_by(*scores: float, right: int | None = 0) -> list[tuple[Rows, int | None]]:
    """Questions with one candidate each, whose score is its feature ``card``."""
    column = FEATURES.index("card")
    examples: list[tuple[Rows, int | None]] = []
    for score in scores:
        rows = np.zeros((1, len(FEATURES)))
        rows[0, column] = score
        examples.append((rows, right))
    return examples


def test_none_costs_no_more_than_its_share() -> None:
    weights = Weights(channel=0.0, card=1.0, text=0.0, asked=0.0, none=1.5)
    examples = wins_by(*range(100))
    assert none_losing(examples, weights, 0.03) == 2.5
    assert none_losing(examples, weights, 0.10) == 9.5
    assert none_losing(examples, weights, 1.0) > 99
    assert none_losing(examples, weights, 0.0) == pytest.approx(-0.1), "0 itself is not to be lost"
    assert none_losing([*examples, *wins_by(*range(50, 99), right=None)], weights, 0.03) == 2.5
    assert none_losing(wins_by(5, 6, 7), weights, 0.03) == 1.5, "too few to tell"
    assert none_losing(wins_by(1, 6, 7), weights, 0.03) == pytest.approx(0.9)
    assert none_losing([], weights) == 1.5


def test_lessons_that_always_fit_do_not_make_none_rarer() -> None:
    start = Weights(channel=1.0, card=2.0, text=2.0, asked=4.0, none=0.5)
    lessons = [example for example in made_up(11, 200) if example[1] is not None]
    others = [example for example in made_up(12, 200) if example[1] is None]

    def says_none(weights: Weights) -> int:
        return sum(max(weights.scores(rows)) < weights.none for rows, _ in others)

    free, kept = fit(lessons, start), taught(lessons, start)
    assert kept.vector == pytest.approx(free.vector)
    assert says_none(kept) > says_none(free) + 10
    assert says_none(kept) >= says_none(start)
    lost = sum(
        max(scores := kept.scores(rows)) == scores[right] < kept.none for rows, right in lessons if right is not None
    )
    assert lost <= 0.03 * len(lessons)


def test_the_word_whether_it_fits_gets_weight_only_where_it_helps(tmp_path: Path) -> None:
    noise, loud = made_up(13, 60), [(rows.copy(), right) for rows, right in made_up(14, 60)]
    asked, fits = FEATURES.index("asked"), FEATURES.index("fits")
    for rows, right in loud:
        rows[:, fits], rows[:, asked] = -4.0, 0.1
        if right is not None:
            rows[right, fits] = 4.0
    start = Weights(channel=0.5, card=0.0, text=0.0, asked=4.0, none=1.0)
    assert chosen(noise, start).fits == 0.0
    assert chosen(loud, start).fits > 0.5
    assert chosen(noise, start.model_copy(update={"fits": 1.0})).fits > 0.0, "it had weight: it is always learned"


def chosen(examples: list[tuple[Rows, int | None]], start: Weights) -> Weights:
    return best_taught(examples, start, 0.03)[0]


def test_no_likeness_counts_against_a_candidate() -> None:
    examples = made_up(5, 40)
    signs = np.array([-1.0 if name == "asked" else 1.0 for name in FEATURES])
    against = [(rows * signs, right) for rows, right in examples]
    learned = fit(against, Weights(channel=1.0, card=1.0, text=1.0, asked=1.0, none=0.0))
    assert min(getattr(learned, name) for name in FEATURES) >= 0.0
    assert learned.asked == 0.0


def test_what_makes_held_out_questions_worse_is_not_kept(tmp_path: Path) -> None:
    start = Weights(channel=0.0, card=0.0, text=0.0, asked=10.0, none=5.0)
    right, wrong = made_up(6, 60), [(rows, None if index is None else (index + 1) % 5) for rows, index in made_up(7, 9)]
    before, after = held_out(right, start.model_copy(update={"channel": 2.0}))
    assert 20 < before < after <= 60
    nonsense_before, nonsense_after = held_out(wrong, start)
    assert nonsense_before <= 4
    assert nonsense_after <= 9
    plain = classifier(tmp_path)
    nonsense = [Labelled(question.query, label) for question, label in zip(ASKED, "", strict=False)]
    assert learn(plain, nonsense, LIBRARY, "ab" * 32).weights == default_weights("", with_embedder=False)
    swapped = [Labelled("giving money back", "travel"), Labelled("trains and hotels", "csv")]
    learned = learn(plain, swapped, LIBRARY, "ab" * 32)
    assert learned.right_after >= learned.right_before or learned.weights == default_weights("", with_embedder=False)


def test_learning_can_be_undone_and_its_file_may_be_damaged(tmp_path: Path) -> None:
    memory = AgentMemory(tmp_path, FakeEngine())
    for label, known in LIBRARY.items():
        memory.deposit_text(label, f"The text of {label}.", known.description)
    memory.learn(ASKED)
    (file,) = (tmp_path / "router").iterdir()
    good = file.read_bytes()
    file.write_bytes(b"junk")
    with pytest.warns(AgentKVWarning, match="route learn"):
        damaged = AgentMemory(tmp_path, FakeEngine())
    assert isinstance(damaged.classifier, ChannelClassifier)
    assert damaged.classifier.weights == default_weights("", with_embedder=False)
    damaged.learn(ASKED)
    assert file.read_bytes() == good
    assert damaged.routing.forget() is True
    assert isinstance(damaged.classifier, ChannelClassifier)
    assert damaged.classifier.labelled == {}
    assert not file.exists()
    assert damaged.routing.forget() is False
