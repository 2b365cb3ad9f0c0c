"""Other arrangements of a state's bytes keep its elements."""

from __future__ import annotations

from agentkv import FakeEngine
from agentkv.bench.texts import states
from agentkv.engine import layout as blobs
from tests.benchmarks import arrangements

TEXTS = [f"Paragraph {i} says that rule {i * 7} holds on day {i}.\n\n" * 2 for i in range(20)]


def test_variants_keep_the_elements() -> None:
    state = next(states(FakeEngine(window=4096), TEXTS, [300]))
    cut = blobs.cut(state.blob, state.layout, 300, blobs.cuts(0, 300))
    seen = arrangements.variants(state.layout.sections, cut)
    rows = {row.variant: row for row in seen}
    assert rows["token-major"].bound_bytes == rows["channel-major"].bound_bytes
    table, plain = rows["table a channel"].bound_bytes, rows["token-major"].bound_bytes
    assert table is not None
    assert plain is not None
    assert table < plain
    raw = {"state/300": {"n": 300, "raw_bytes": state.blob.nbytes, "variants": [row.model_dump() for row in seen]}}
    shares = arrangements.Arrangements.figures(raw)["shares"]
    assert [one["variant"] for one in shares] == list(rows)
    stored = rows["token-major"].bytes
    assert stored is not None
    assert shares[0]["of_raw"] == stored / state.blob.nbytes
