"""The widening on the fake engine: runs add up, what is stopped goes on, what is stored is what is reported."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import orjson
import pytest

from agentkv import FakeEngine
from agentkv.bench import measured
from agentkv.engine.base import Cancellation, Logits
from agentkv.errors import GuaranteeViolated, UsageError
from agentkv.store.catalog import BlockStore
from tests.benchmarks.documents import widen
from tests.benchmarks.documents.prepared import Clocked, prepared
from tests.benchmarks.documents.widen import RUNS, RunLog, Settings, Widen, run_records


@pytest.fixture
def asked(folder: Path, engine: FakeEngine, tmp_path: Path) -> dict[str, Any]:
    return {"engine": engine, "work": tmp_path / "work", "window": 512, "needles": 5, "folder": folder}


def text_bytes(work: Path) -> int:
    """Bytes of the two documents whose text is their source; the fake's tokens are bytes."""
    return sum((work / "documents" / "manual" / name).stat().st_size for name in ("b.rst", "deep/c.txt"))


def test_everything_is_stored_and_counted_once(asked: dict[str, Any]) -> None:
    result, work = Widen(**asked).run(), asked["work"]
    with BlockStore(work / "store", create=False) as store:
        blocks = list(store.block_ids())
    assert result["complete"]
    assert result["blocks"] == result["corpus"]["windows"] == len(blocks) - 1  # the prefix is a block, too
    assert result["tokens"] == result["corpus"]["own_tokens"]
    with prepared(Settings(**asked)) as found:
        texts = ("manual/b.rst", "manual/deep/c.txt")
        own = sum(found.own_tokens[chunk.block_id] for record, chunk in found.chunks if record.path in texts)
    assert own == text_bytes(work)
    segments = sum(path.stat().st_size for path in (work / "store" / "segments").rglob("*") if path.is_file())
    assert result["bytes_by_folder"]["segments"] == segments
    assert result["bytes"] == sum(result["bytes_by_folder"].values()) > segments
    assert result["ratio"]["trained window"] == result["tokens"] / asked["engine"].info.train_window
    assert [row["ended"] for row in result["sittings"]] == ["all"]
    assert not result["aims"][0]["met"]
    Widen.check(result)
    assert measured.rescore(orjson.loads(orjson.dumps(result))) == []


def test_runs_add_up_to_the_same_store(asked: dict[str, Any], tmp_path: Path) -> None:
    whole = Widen(**{**asked, "work": tmp_path / "whole"}).run()
    first = Widen(**asked, minutes=0).run()
    assert (first["blocks"], first["sittings"]) == (0, [])
    second = Widen(**asked, enough=2000).run()
    third = Widen(**asked).run()
    assert 2000 <= second["tokens"] < 2512
    assert [row["ended"] for row in third["sittings"]] == ["enough", "all"]
    assert sum(row["own_tokens"] for row in third["sittings"]) == third["tokens"] == whole["tokens"]
    assert third["corpus"]["plan_sha256"] == whole["corpus"]["plan_sha256"]  # where it lies is in no block
    assert third["bytes_by_folder"]["segments"] == whole["bytes_by_folder"]["segments"]


class Impatient(FakeEngine):
    """Cancels its fourth long prefill, as Ctrl-C would."""

    n_long = 0

    def extend(self, tokens: Sequence[int], cancellation: Cancellation | None = None) -> Logits:
        if cancellation is not None and len(tokens) > 200:
            self.n_long += 1
            if self.n_long == 4:
                cancellation.cancel()
        return super().extend(tokens, cancellation)


def test_a_run_that_is_interrupted_is_on_record(asked: dict[str, Any]) -> None:
    with pytest.raises(KeyboardInterrupt):
        Widen(**{**asked, "engine": Impatient()}).run()
    (record,) = run_records(asked["work"] / RUNS).values()
    assert record.ended == "interrupted"
    assert 0 < record.windows < 4
    result = Widen(**asked).run()
    assert result["complete"]
    assert [row["windows"] for row in result["sittings"]] == [record.windows, result["blocks"] - record.windows]


def test_a_chunk_that_goes_on_otherwise_breaks_the_guarantee(
    asked: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("agentkv.documents.chunks.SAMPLED", 1)
    monkeypatch.setattr("agentkv.blocks.blocks.Blocks.reprove", lambda self, manifest: False)
    result = Widen(**asked).run()
    assert result["levels"] == {"exact": result["blocks"]}
    assert result["reproved"]["blocks"] == widen._REPROVED
    with pytest.raises(GuaranteeViolated, match="go on otherwise"):
        Widen.check(result)


def test_other_needles_in_the_same_work_are_refused(asked: dict[str, Any]) -> None:
    Widen(**asked, minutes=0).run()
    with pytest.raises(UsageError, match="made otherwise"):
        Widen(**{**asked, "needles": 6}).run()


def test_a_run_is_kept_now_and_then(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(widen, "_KEEP_S", -1.0)
    RunLog(tmp_path, Clocked(FakeEngine())).count(10, 8)  # and the process is killed
    (record,) = run_records(tmp_path).values()
    assert (record.ended, record.windows, record.tokens, record.own_tokens) == (None, 1, 10, 8)
    (tmp_path / "001.json").write_text("{")
    with pytest.raises(UsageError, match="cannot be read"):
        run_records(tmp_path)


def test_the_clock_tells_prefill_from_steps() -> None:
    engine = Clocked(FakeEngine())
    engine.extend([1, 2, 3])
    engine.extend([4])
    assert engine.decoded == {"prefill": 3, "steps": 1}
    assert engine.counters.decoded == 4
