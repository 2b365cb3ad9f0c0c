"""The widening on the fake engine: sittings add up, what is stopped goes on, what is stored is what is told."""

from __future__ import annotations

from pathlib import Path

import orjson
import pytest

from agentkv import FakeEngine
from agentkv.bench import measured
from agentkv.documents.records import ChunkRecord, DocumentRecord
from agentkv.errors import Cancelled, GuaranteeViolated, UsageError
from agentkv.store.catalog import BlockStore
from tests.benchmarks.documents import widen
from tests.benchmarks.documents.sitting import FOLDER, Clocked, Sitting, sittings


@pytest.fixture
def plan(folder: Path) -> widen.Plan:
    return widen.Plan(window=512, needles=5, folder=folder)


def text_bytes(work: Path) -> int:
    """Bytes of the two documents whose text is their source; the fake's tokens are bytes."""
    return sum((work / "documents" / "manual" / name).stat().st_size for name in ("b.rst", "deep/c.txt"))


def test_everything_is_stored_and_counted_once(engine: FakeEngine, plan: widen.Plan, tmp_path: Path) -> None:
    work = tmp_path / "work"
    result = widen.run(engine, work, plan)
    with BlockStore(work / "store", create=False) as store:
        blocks = list(store.block_ids())
    assert result["complete"]
    assert result["blocks"] == result["corpus"]["windows"] == len(blocks) - 1  # the prefix is a block, too
    assert result["tokens"] == result["corpus"]["own_tokens"]
    own = {
        record.path: sum(widen.own_tokens(found.corpus, record, window) for window in record.chunks)
        for found in [_scene(engine, work, plan)]
        for record, _ in found.windows
    }
    assert own["manual/b.rst"] + own["manual/deep/c.txt"] == text_bytes(work)
    segments = sum(path.stat().st_size for path in (work / "store" / "segments").rglob("*") if path.is_file())
    assert result["bytes_by_folder"]["segments"] == segments
    assert result["bytes"] == sum(result["bytes_by_folder"].values()) > segments
    assert result["ratio"]["trained window"] == result["tokens"] / engine.info.train_window
    assert [row["ended"] for row in result["sittings"]] == ["all"]
    assert not result["aims"][0]["met"]
    widen.check(result)
    assert measured.rescore(orjson.loads(orjson.dumps(result))) == []


def _scene(engine: FakeEngine, work: Path, plan: widen.Plan) -> widen.Scene:
    with widen.scene(engine, work, plan) as found:
        return found


def test_sittings_add_up_to_the_same_store(engine: FakeEngine, plan: widen.Plan, tmp_path: Path) -> None:
    whole = widen.run(engine, tmp_path / "whole", plan)
    work = tmp_path / "work"
    first = widen.run(engine, work, plan, minutes=0)
    assert (first["blocks"], first["sittings"]) == (0, [])

    def enough(tokens: int) -> widen.Plan:
        return widen.Plan(window=512, needles=5, folder=plan.folder, enough=tokens)

    second = widen.run(engine, work, enough(2000))
    third = widen.run(engine, work, plan)
    assert 2000 <= second["tokens"] < 2512
    assert [row["ended"] for row in third["sittings"]] == ["enough", "all"]
    assert sum(row["own_tokens"] for row in third["sittings"]) == third["tokens"] == whole["tokens"]
    assert third["corpus"]["plan_sha256"] == whole["corpus"]["plan_sha256"]  # where it lies is in no block
    assert third["bytes_by_folder"]["segments"] == whole["bytes_by_folder"]["segments"]


def test_a_sitting_that_is_interrupted_is_on_record(engine: FakeEngine, plan: widen.Plan, tmp_path: Path) -> None:
    work = tmp_path / "work"
    watch = widen.Watch()
    seen: list[ChunkRecord] = []

    def on_chunk(_: DocumentRecord, window: ChunkRecord) -> None:
        seen.append(window)
        if len(seen) == 4:
            watch.cancellation.cancel()

    watch.on_chunk = on_chunk
    with pytest.raises(Cancelled):
        widen.run(engine, work, plan, watch=watch)
    (record,) = sittings(work / FOLDER).values()
    assert (record["ended"], record["windows"]) == ("interrupted", 3)
    result = widen.run(engine, work, plan)
    assert result["complete"]
    assert [row["windows"] for row in result["sittings"]] == [3, result["blocks"] - 3]


def test_a_window_that_goes_on_otherwise_breaks_the_guarantee(
    engine: FakeEngine, plan: widen.Plan, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("agentkv.documents.chunks.SAMPLED", 1)
    monkeypatch.setattr("agentkv.blocks.blocks.Blocks.reprove", lambda self, manifest: False)
    result = widen.run(engine, tmp_path / "work", plan)
    assert result["levels"] == {"exact": result["blocks"]}
    assert result["reproved"]["blocks"] == widen._REPROVED
    with pytest.raises(GuaranteeViolated, match="go on otherwise"):
        widen.check(result)


def test_other_needles_in_the_same_work_are_refused(engine: FakeEngine, plan: widen.Plan, tmp_path: Path) -> None:
    widen.run(engine, tmp_path / "work", plan, minutes=0)
    with pytest.raises(UsageError, match="made otherwise"):
        widen.run(engine, tmp_path / "work", widen.Plan(window=512, needles=6, folder=plan.folder))


def test_a_sitting_is_kept_now_and_then(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tests.benchmarks.documents.sitting._KEEP_S", -1.0)
    sitting = Sitting(tmp_path, Clocked(FakeEngine()))
    sitting.count(10, 8)  # and the process is killed
    (record,) = sittings(tmp_path).values()
    assert (record["ended"], record["windows"], record["tokens"], record["own_tokens"]) == (None, 1, 10, 8)


def test_the_clock_tells_prefill_from_steps() -> None:
    engine = Clocked(FakeEngine())
    engine.extend([1, 2, 3])
    engine.extend([4])
    assert engine.decoded == {"prefill": 3, "steps": 1}
    assert engine.counters.decoded == 4
