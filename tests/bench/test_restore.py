"""The restore benchmark without a model: its yardsticks, its page cache, its recommendation."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from agentkv import FakeEngine
from agentkv.bench import pagecache, restore, texts
from agentkv.bench.restore import Restore, recommend
from agentkv.bench.texts import default_setting
from agentkv.cli.bench import show_tables
from agentkv.errors import GuaranteeViolated, UsageError
from agentkv.io.hashing import sha256

TEXTS = ["The release train leaves on Tuesday.\n\nThe cutoff is on Monday."]


@pytest.fixture(scope="module")
def synthetic(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    return Restore(synthetic=True, lengths=(64, 300), repeats=2, folder=tmp_path_factory.mktemp("disk")).run()


class TestRun:
    def test_every_setting_at_every_length(self, synthetic: dict[str, Any]) -> None:
        assert [row["n"] for row in synthetic["lengths"]] == [64, 300]
        for row in synthetic["lengths"]:
            assert [way["setting"] for way in row["settings"]] == list(Restore.settings_type.codecs)
            assert row["native_ms"] is row["ram_of_memcpy"] is None
            for way in row["settings"]:
                assert way["equal"]
                assert {"warm first", "warm again"} <= set(way["modes"])
                assert all(mode["ms"]["repeats"] == 2 for mode in way["modes"].values())
        Restore.check(synthetic)

    def test_sizes_are_those_of_the_state(self, synthetic: dict[str, Any]) -> None:
        row = synthetic["lengths"][-1]
        sizes = {way["setting"]: way["of_raw"] for way in row["settings"]}
        # The cell table, 16 bytes a token, is structure: it is not stored.
        assert 0.99 < sizes["raw"] <= 1.01
        assert sizes["planes 1"] < sizes["zstd 1"] < sizes["raw"]
        assert row["state_bytes"] > 300 * 2 * 2 * texts.LAYERS * texts.CHANNELS

    def test_what_the_terminal_shows(self, synthetic: dict[str, Any], capsys: pytest.CaptureFixture[str]) -> None:
        show_tables(Restore.tables, synthetic)
        out = capsys.readouterr().out + "\n".join(Restore.notes(synthetic))
        assert "300 tokens, 7 MB; memcpy" in out
        assert "recommended: " in out
        assert "warm again" in out

    def test_with_an_engine(self, tmp_path: Path) -> None:
        engine = FakeEngine(window=600)
        result = Restore(
            engine=engine, texts=tuple(TEXTS), lengths=(100, 500, 5000), codecs=("raw",), repeats=2, folder=tmp_path
        ).run()
        assert [row["n"] for row in result["lengths"]] == [100, 500]
        assert result["left_out"] == {"5000": "over the window"}
        assert all(row["ram_of_memcpy"] > 0 and row["native_ms"]["median"] > 0 for row in result["lengths"])
        assert {aim["aim"] for aim in result["aims"]} >= {"from RAM, of memcpy"}
        assert list(tmp_path.iterdir()) == []

    def test_other_bytes_are_a_violation(self, synthetic: dict[str, Any]) -> None:
        row = synthetic["lengths"][0]
        worse = {**row, "settings": [{**row["settings"][0], "equal": False}]}
        with pytest.raises(GuaranteeViolated, match="planes 1"):
            Restore.check({**synthetic, "lengths": [worse]})

    def test_a_change_in_a_state_is_seen(self, tmp_path: Path) -> None:
        state = texts.synthetic_state(64, 0)
        manifest, segments = restore.manifest_of(FakeEngine(window=64).fingerprint(), state)
        state.blob[-1] ^= 1
        row = restore._measure_setting(FakeEngine(window=64), state, manifest, segments, "raw", 1, 1, tmp_path / "s")
        assert sha256(state.blob.data) not in row["read_sha256"]

    @pytest.mark.parametrize("text", ["lz4", "planes fast", ""])
    def test_unknown_setting(self, text: str) -> None:
        with pytest.raises(UsageError):
            Restore(synthetic=True, lengths=(64,), codecs=(text,)).run()

    def test_no_length_fits(self) -> None:
        with pytest.raises(UsageError, match="fits"):
            Restore(engine=FakeEngine(window=64), texts=tuple(TEXTS), lengths=(64,)).run()


class TestPageCache:
    def test_pages_go_and_come_back(self, tmp_path: Path) -> None:
        path = tmp_path / "file"
        path.write_bytes(os.urandom(1 << 20))
        assert pagecache.resident_pages(path) == ((1 << 20) / 4096, (1 << 20) // 4096)
        if pagecache.evict([path]) > 0:
            pytest.skip("this file system keeps pages")
        assert pagecache.resident_pages(path)[0] == 0
        path.read_bytes()
        assert pagecache.resident_pages(path)[0] == (1 << 20) / 4096

    def test_where_pages_stay_cold_is_left_out(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(os, "posix_fadvise", lambda *_: None)
        result = Restore(synthetic=True, lengths=(64,), codecs=("raw",), repeats=1, folder=tmp_path).run()
        way = result["lengths"][0]["settings"][0]
        assert set(way["modes"]) == {"warm first", "warm again"}
        assert way["cold"].startswith("left out: 100% of the pages")
        assert way["device_share"] is None
        assert result["lengths"][0]["disk_ms"]["cold"] is None
        assert all(aim["aim"] != "cold raw assembly, of disk" for aim in result["aims"])

    def test_without_the_call_nothing_is_taken_for_cold(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        (tmp_path / "file").write_bytes(b"x")
        monkeypatch.delattr(os, "posix_fadvise")
        assert pagecache.evict([tmp_path / "file"]) == 1.0


def test_times_leave_out_what_frames_the_work() -> None:
    calls: list[str] = []

    def before() -> None:
        calls.append("before")
        time.sleep(0.05)

    stats = pagecache.times(lambda: calls.append("work"), 2, before, lambda: calls.append("end"))
    assert calls == ["before", "work", "end"] * 2
    assert max(stats) < 50


def length(native: float | None = None, **settings: tuple[float, float, int]) -> dict[str, Any]:
    """A row: milliseconds cold first, warm again, and stored bytes, by setting."""
    ways = [
        {
            "setting": name.replace("_", " "),
            "stored_bytes": n_bytes,
            "modes": {"cold first": {"ms": {"median": cold}}, "warm again": {"ms": {"median": warm}}},
        }
        for name, (cold, warm, n_bytes) in settings.items()
    ]
    return {"native_ms": None if native is None else {"median": native}, "settings": ways}


class TestRecommendation:
    def test_equal_times_smaller_wins(self) -> None:
        best = recommend([length(planes_1=(10, 10, 80), raw=(10, 10, 100))], "planes 1")
        assert best["setting"] == "planes 1"
        by_mode = {"cold first": pytest.approx(1.25), "warm again": pytest.approx(1.25)}
        assert best["scores"]["raw"] == {"time": 1.0, "bytes": 1.25, "time × bytes": 1.25, "by_mode": by_mode}

    def test_which_way_of_reading_decides_is_seen(self) -> None:
        best = recommend([length(planes_1=(10, 20, 80), raw=(10, 10, 100))], "planes 1")
        assert best["setting"] == "raw"
        modes = {name: score["by_mode"] for name, score in best["scores"].items()}
        assert modes["planes 1"]["cold first"] < modes["raw"]["cold first"]
        assert modes["planes 1"]["warm again"] > modes["raw"]["warm again"]

    def test_a_tenth_slower_has_to_save_a_tenth(self) -> None:
        assert recommend([length(planes_1=(11, 11, 95), raw=(10, 10, 100))], "planes 1")["setting"] == "raw"
        assert recommend([length(planes_1=(11, 11, 90), raw=(10, 10, 100))], "planes 1")["setting"] == "planes 1"

    def test_the_native_set_counts(self) -> None:
        ways = {"planes_1": (20.0, 20.0, 80), "raw": (10.0, 10.0, 100)}
        assert recommend([length(None, **ways)], "planes 1")["setting"] == "raw"
        assert recommend([length(100, **ways)], "planes 1")["setting"] == "planes 1"

    def test_whether_it_is_the_default(self, synthetic: dict[str, Any]) -> None:
        rows = [length(planes_1=(10, 10, 80), raw=(10, 10, 100))]
        assert [recommend(rows, default)["agrees"] for default in ("planes 1", "raw")] == [True, False]
        assert synthetic["recommended"]["default"] == default_setting()


def test_synthetic_state_has_the_exponents_of_half_floats() -> None:
    state = texts.synthetic_state(256, 1)
    assert np.array_equal(state.blob, texts.synthetic_state(256, 1).blob)
    values = state.blob[-2 * 256 * texts.CHANNELS :].view("<f2")
    assert np.isfinite(values).all()
    assert len(np.unique(values)) > 1000
