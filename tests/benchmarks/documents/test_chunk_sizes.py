"""A cold prefill against restoring, on the fake engine: every way is timed, and all give the same logits."""

from __future__ import annotations

import copy
from pathlib import Path

import pytest

from agentkv import FakeEngine
from agentkv.bench import measured
from agentkv.documents.chunks import PREFIX
from agentkv.engine.prompt import Message, PromptBuilder
from agentkv.errors import GuaranteeViolated, UsageError
from tests.benchmarks.documents.chunk_sizes import ChunkSizes

from .conftest import paragraphs

TEXTS = tuple("\n\n".join(paragraphs(start, 12)) for start in (0, 100))


def test_each_size_is_prefilled_and_restored(tmp_path: Path) -> None:
    result = ChunkSizes(
        engine=FakeEngine(window=2048), texts=TEXTS, windows=(512, 128), per_size=2, restores=3, folder=tmp_path
    ).run()
    assert [row["window"] for row in result["sizes"]] == [128, 512]
    n_prefix = len(PromptBuilder(FakeEngine()).build(PREFIX, "x", [Message("user", "?")]).prefix)
    for row, record in zip(result["sizes"], result["raw"], strict=True):
        assert row["windows"] == 2
        assert row["window"] * 0.7 < row["tokens"] - n_prefix <= row["window"]
        assert len(record["raw"]["reread_ms"]) == 2 * 2
        assert len(record["raw"]["warm_ms"]) == 2 * 3
        assert row["logits_equal"]
        assert row["stored_bytes"] > 0
    assert result["range"] > 1.5
    assert measured.rescore(result) == []
    ChunkSizes.check(result)
    assert list(tmp_path.iterdir()) == []


def test_other_logits_are_reported(tmp_path: Path) -> None:
    result = ChunkSizes(
        engine=FakeEngine(window=1024), texts=TEXTS, windows=(128,), per_size=1, restores=1, folder=tmp_path
    ).run()
    broken = copy.deepcopy(result)
    broken["raw"][0]["raw"]["logits_sha256"][0]["warm"] = "0" * 64
    assert any("logits_equal" in line for line in measured.rescore(broken))
    broken["sizes"][0]["logits_equal"] = False
    with pytest.raises(GuaranteeViolated, match="chunk of 128"):
        ChunkSizes.check(broken)


@pytest.mark.parametrize(("texts", "windows"), [((), (128,)), ((" ",), (128,)), (TEXTS, ())])
def test_nothing_to_measure(texts: tuple[str, ...], windows: tuple[int, ...]) -> None:
    with pytest.raises(UsageError, match="at least one chunk size and some text"):
        ChunkSizes(engine=FakeEngine(), texts=texts, windows=windows).run()
