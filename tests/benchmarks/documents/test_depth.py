"""Depth on the fake engine: the smaller stores are the same blocks, and the figures tell flat from steep."""

from __future__ import annotations

import signal
from pathlib import Path
from typing import Any

import orjson
import pytest

from agentkv import FakeEngine
from agentkv.bench import measured
from tests.benchmarks.documents import depth
from tests.benchmarks.documents.depth import Depth, Place, Settings
from tests.benchmarks.documents.prepared import prepared
from tests.benchmarks.documents.widen import Widen


@pytest.fixture
def asked(folder: Path, engine: FakeEngine, tmp_path: Path) -> dict[str, Any]:
    """With a store that is filled."""
    made: dict[str, Any] = {"work": tmp_path / "work", "window": 512, "needles": 4, "folder": folder, "engine": engine}
    Widen(**made).run()
    return made


def test_every_store_is_measured_at_several_depths(asked: dict[str, Any]) -> None:
    result = Depth(**asked, sizes=(6, 12), points=3, repeats=2).run()
    counts = [store["windows"] for store in result["stores"]]
    assert counts == sorted(set(counts))
    assert len(counts) >= 2
    assert [store["points"] for store in result["stores"]] == [3] * len(counts)
    for store in result["stores"]:
        assert 0 <= store["depths"][0] < store["depths"][1] < store["windows"]
    assert all(len(record["raw"]["find"]) == 2 for record in result["raw"] if record["key"].startswith("point/"))
    assert result["memory"] is None
    assert not list(asked["work"].glob("smaller-*"))
    assert measured.rescore(orjson.loads(orjson.dumps(result))) == []


def test_a_smaller_store_has_the_same_bytes_and_is_asked_without_the_large_one(
    asked: dict[str, Any], tmp_path: Path
) -> None:
    with prepared(Settings(**asked)) as found:
        records = depth.documents(found)[:1]
        with depth.smaller(found, records, tmp_path / "small") as small:
            ids = {chunk.block_id for chunk in records[0].chunks}
            assert small.shelf.stored() == ids
            for block_id in ids:
                assert small.memory.store.manifest(block_id) == found.corpus.memory.store.manifest(block_id)
                small.memory.store.verify(block_id)
            before = small.memory.engine.counters.decoded
            (place,) = depth.places_in(small, records, 512, 1)
            depth.ask(small, place)
            decoded = small.memory.engine.counters.decoded - before
            assert decoded == depth._unseen(small, place).prefilled  # nothing else was prefilled


def test_one_process_asks_as_often_for_one_chunk_as_for_many(
    asked: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    payloads: list[list[Any]] = []

    def here(target: str, payload: dict[str, Any]) -> dict[str, Any]:
        assert target == "tests.benchmarks.documents.depth:peak"
        payloads.append(payload["windows"])
        with monkeypatch.context() as patched:
            patched.setattr(depth, "opened", lambda *_: FakeEngine(window=4096))
            return depth.peak(payload)

    monkeypatch.setattr(depth, "in_new_process", here)
    with prepared(Settings(**asked)) as found:
        places: list[Place] = depth.places_in(found.corpus, depth.documents(found), 512, 5)
    peaks = depth._memory("some", asked["work"] / "store", places, {"window": 1024})
    assert [len(chunks) for chunks in payloads] == [5] * 4
    assert [len({tuple(chunk) for chunk in chunks}) for chunks in payloads] == [1, 5, 1, 5]
    assert all(size > 1 << 20 for size in (*peaks.one, *peaks.many))


def test_ctrl_c_ends_it_and_leaves_no_store_in_the_folder(
    asked: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(depth, "evict", lambda _: signal.raise_signal(signal.SIGINT))
    # A shell that runs this in the background has the signal ignored.
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        with pytest.raises(KeyboardInterrupt):
            Depth(**asked, sizes=(6,), points=2, repeats=2).run()
    finally:
        signal.signal(signal.SIGINT, before)
    assert not list(asked["work"].glob("smaller-*"))


class TestFigures:
    def point(self, windows: int, at: int, restore: list[float], **changes: Any) -> dict[str, Any]:
        times = {"restore": restore, "first": [1.0] * len(restore)}
        record = {"windows": windows, "depth": at, "of": windows, "tokens": 500, "bytes": 9, "find": [1.0]}
        return {**record, "prefilled": 20, "cold_pages_left": 0.0, "ms": {"cold": times, "warm": times}, **changes}

    def figures(self, *points: dict[str, Any], **raw: Any) -> dict[str, Any]:
        keyed = {f"point/{one['windows']}/{one['depth']}": one for one in points}
        found: dict[str, Any] = Depth.figures({"windows": sorted({one["windows"] for one in points}), **keyed, **raw})
        return found

    def test_one_slow_repeat_is_not_steep_and_a_slow_point_is(self) -> None:
        even = [self.point(10, at, [10.0, 10.0, 90.0]) for at in range(4)]
        assert self.figures(*even)["flat"]["warm restore"]["max_of_median"] == 1.0
        steep = self.figures(*even, self.point(1000, 9, [20.0, 20.0, 20.0]))
        assert steep["flat"]["warm restore"]["max_of_median"] == 2.0
        assert not {aim["aim"]: aim["met"] for aim in steep["aims"]}["warm restore"]

    def test_cold_is_left_out_where_pages_stay(self) -> None:
        result = self.figures(self.point(10, 0, [1.0], cold_pages_left=0.5), self.point(10, 1, [1.0]))
        assert set(result["flat"]) == {"warm restore", "warm first", "warm both"}

    def test_memory_is_a_ratio_of_medians(self) -> None:
        memory = {"windows": 5, "one": [100, 100], "many": [104, 104]}
        result = self.figures(self.point(10, 0, [1.0]), memory=memory)
        assert result["memory"]["ratio"] == 1.04
        assert not {aim["aim"]: aim["met"] for aim in result["aims"]}["memory of many windows, of one"]
