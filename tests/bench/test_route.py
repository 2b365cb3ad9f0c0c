"""``agentkv bench route`` on the fake engine: its data, its parts, and what its check refuses."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from agentkv import AgentMemory, FakeEmbedder, FakeEngine
from agentkv.bench import route as bench
from agentkv.bench.route import Picks, Route, SeenReading, SeenSize, Settings
from agentkv.bench.scores import KEPT_SCORES
from agentkv.errors import GuaranteeViolated
from agentkv.router.classifier import ChannelClassifier
from agentkv.router.evaluate import filler


@pytest.fixture
def router(tmp_path: Path) -> Iterator[ChannelClassifier]:
    with AgentMemory(tmp_path, FakeEngine(), embedder=FakeEmbedder()) as memory:
        yield memory.routing.plain_classifier()


def test_the_data_is_whole() -> None:
    tools, covered, uncovered = bench.library()
    assert (len(tools), len(covered), len(uncovered)) == (72, 432, 130)
    assert {question.label for question in covered} == set(tools)
    assert all(question.label is None for question in uncovered)
    queries = [question.query.casefold() for question in [*covered, *uncovered]]
    assert len(set(queries)) == len(queries)


def test_what_was_kept_out_is_apart_from_what_was_fitted_on() -> None:
    _, covered, _ = bench.library()
    out, fitted = bench.kept_out(covered), bench.fitted_on(covered)
    assert not {q.query for q in out} & {q.query for q in fitted}
    assert len(out) + len(fitted) == len(covered)
    assert {q.label for q in out} == {q.label for q in covered}, "each tool is asked for"


def test_the_order_of_the_catalogue_changes_nothing(router: ChannelClassifier) -> None:
    tools, covered, _ = bench.library()
    some = dict(list(tools.items())[:10])
    result = bench.order(**bench._order(router, covered[:5], some, 3))
    assert result["changed"]["k"] == 0
    assert result["changed"]["n"] == 15


def test_begging_is_counted_against_before(router: ChannelClassifier) -> None:
    tools, covered, _ = bench.library()
    seen = bench._begging(router, covered, tools, 1)
    result = bench.begging(seen["before"], [Picks.model_validate(one) for one in seen["after"]])
    (row,) = result["beggars"]
    assert row["name"] in tools
    assert result["questions"] >= 3


def test_sizes_use_real_tools_before_made_up_ones(router: ChannelClassifier) -> None:
    tools, covered, uncovered = bench.library()
    candidates = {**tools, **filler(8)}
    made = [bench._size(router, [covered[0], uncovered[0]], candidates, size, 72) for size in (8, 80)]
    small, large = (bench.size(SeenSize.model_validate(one)) for one in made)
    assert len(made[1]["decisions"][0]["decision"]["scores"]) <= KEPT_SCORES + 1
    assert (small["made_up"], large["made_up"]) == (0, 8)
    assert small["right"]["n"] == large["abstained_on_uncovered"]["n"] == 1
    assert large["tokens"]["median"] > 0


def test_accuracy_is_shown_against_what_is_read(router: ChannelClassifier) -> None:
    tools, covered, uncovered = bench.library()
    some = {name: tools[name] for name in sorted({question.label or "" for question in covered[:18]})}
    asked = [*covered[:2], uncovered[0]]
    bench.deposit_cards(router, some)
    rows = [bench.reading(SeenReading.model_validate(bench._reading(router, asked, some, n))) for n in (1, 3)]
    assert [row["read"] for row in rows] == [1, 3]
    assert rows[1]["tokens"]["median"] == 2 * rows[0]["tokens"]["median"], "one card of four is the empty one"
    assert [row["right"]["n"] for row in rows] == [2, 2]


def test_cost_is_a_ratio_of_one_run(tmp_path: Path) -> None:
    tools, covered, _ = bench.library()
    with AgentMemory(tmp_path, FakeEngine()) as memory:
        raw = bench._cost(memory, memory.routing.plain_classifier(), covered[:2], tools, Settings())
    cost = bench.cost(**raw)
    assert cost["answer_tokens"] == bench.ANSWER_TOKENS
    assert cost["share_of_answer"] == cost["decision_ms"]["median"] / cost["answer_ms"]["median"]


GOOD: dict[str, Any] = {
    "sizes": [{"invalid_picks": {"k": 0}}],
    "order": {"changed": {"share": 0.0}},
    "begging": {"times_as_often": 1.0},
    "cost": {"share_of_answer": 0.2},
    "settings": {"answer_model": "a larger one"},
}


@pytest.mark.parametrize(
    ("part", "words"),
    [
        ({"sizes": [{"invalid_picks": {"k": 1}}]}, "not a label"),
        ({"order": {"changed": {"share": 0.04}}}, "order"),
        ({"begging": {"times_as_often": 2.1}}, "begs"),
        ({"cost": {"share_of_answer": 0.26}}, "costs"),
    ],
)
def test_check_refuses_what_is_not_held(part: dict[str, Any], words: str) -> None:
    Route.check(GOOD)
    with pytest.raises(GuaranteeViolated, match=words):
        Route.check({**GOOD, **part})


def test_a_router_is_cheap_only_beside_a_larger_model() -> None:
    Route.check({**GOOD, "cost": {"share_of_answer": 0.9}, "settings": {"answer_model": None}})
