"""Composition on the fake engine: a chain is one prefill, and stitching is not, in the figures too."""

from __future__ import annotations

import copy
from typing import Any

import numpy as np
import pytest

from agentkv import FakeEngine
from agentkv.bench import measured
from agentkv.bench.exactness import kl_divergence
from agentkv.engine.layout import check
from agentkv.errors import GuaranteeViolated, InexactBlock, UsageError
from tests.benchmarks.documents import compose
from tests.benchmarks.documents.compose import Compose
from tests.benchmarks.documents.stitch import can_read_in_place, read_alone, read_in_place, stitched

from .conftest import paragraphs

TEXTS = tuple("\n\n".join(paragraphs(start, 12)) for start in (0, 100))


def run(engine: FakeEngine | None = None, texts: tuple[str, ...] = TEXTS, *, samples: int) -> dict[str, Any]:
    return Compose(engine=engine or FakeEngine(window=1024), texts=texts, samples=samples).run()


def test_a_chain_is_one_prefill_and_stitched_states_are_not() -> None:
    result = run(samples=4)
    chained, stitched_row = (result["variants"][name] for name in (compose.CHAIN, compose.AS_THEY_STAND))
    assert (chained["equal"]["k"], chained["equal"]["n"], chained["kl"]["max"]) == (4, 4, 0.0)
    assert chained["flips"]["k"] == 0
    assert stitched_row["equal"]["k"] == 0
    assert stitched_row["kl"]["min"] > 0
    assert compose.IN_PLACE not in result["variants"]
    assert measured.rescore(result) == []
    Compose.check(result)


def test_what_breaks_the_promise_is_reported() -> None:
    result = run(samples=2)
    for name, part, value, message in (
        (compose.CHAIN, "equal", {"k": 1, "n": 2}, "not one prefill: 1 of 2"),
        (compose.CHAIN, "kl", {"max": 1e-9}, "not one prefill"),
        (compose.AS_THEY_STAND, "equal", {"k": 1, "n": 2}, "can show nothing"),
    ):
        broken = copy.deepcopy(result)
        broken["variants"][name][part] = value
        with pytest.raises(GuaranteeViolated, match=message):
            Compose.check(broken)


def test_an_engine_that_diverges_after_a_restore_is_found_out() -> None:
    with pytest.raises(InexactBlock):
        run(FakeEngine(window=1024, diverge_after=12), samples=1)


def test_a_stitched_state_has_both_states_rows() -> None:
    engine = FakeEngine(window=64)
    first, second = read_alone(engine, range(5)), read_alone(engine, range(5, 12))
    joined = stitched(first, second)
    assert joined.tokens == tuple(range(12))
    check(joined.blob, joined.layout, 12)
    whole = read_alone(engine, range(12))
    assert not np.array_equal(joined.blob, whole.blob)
    engine.restore(joined)
    assert engine.tokens == tuple(range(12))


def test_too_little_text() -> None:
    with pytest.raises(UsageError, match="are needed"):
        run(texts=("short",), samples=1)


@pytest.mark.model
def test_stitching_differs_also_where_the_keys_are_right() -> None:
    from agentkv.engine.llama.engine import LlamaEngine
    from agentkv.engine.settings import EngineSettings

    with LlamaEngine.open("smollm2-135m", EngineSettings(window=512)) as engine:
        tokens = engine.tokenize(TEXTS[0], special=False)[:96]
        assert can_read_in_place(engine)
        at_zero, alone = read_in_place(engine, tokens, 0), read_alone(engine, tokens)
        assert at_zero.blob.tobytes() == alone.blob.tobytes()
        engine.clear()
        reference = engine.extend([*tokens, *tokens[:8]])
        engine.restore(stitched(read_alone(engine, tokens[:48]), read_in_place(engine, tokens[48:], 48)))
        assert kl_divergence(reference, engine.extend(tokens[:8])) > 0
