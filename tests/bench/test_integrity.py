"""The integrity benchmark finds what a broken store does wrong, and nothing in the real one."""

from __future__ import annotations

import json
import os
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from agentkv.bench.faults import Call, Step, Watch, breaking, watched
from agentkv.bench.integrity import Integrity, concurrency, corruption, faults, power
from agentkv.bench.integrity.concurrency import Together
from agentkv.bench.integrity.material import bytes_of, look
from agentkv.cli.bench import app
from agentkv.errors import GuaranteeViolated, UsageError
from agentkv.io.hashing import sha256
from agentkv.records import Manifest
from agentkv.store import deposit, gc
from agentkv.store import format as formats
from agentkv.store.catalog import BlockStore
from agentkv.store.format import HEADER_BYTES, HEADER_FIELDS

DEPOSIT = faults.OPERATIONS[:1]
RECORDS = ("marker", "settings", "name", "text", "pin", "import", "selftest")
PLAN = corruption.Plan(flips=20, cuts=10, every=29)


@pytest.fixture(autouse=True)
def _no_waiting_for_the_disk(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.fsync", lambda fd: None)


# --- faults ---------------------------------------------------------------------------------------


def test_every_step_of_a_deposit_may_fail_or_be_the_last(tmp_path: Path) -> None:
    rows = faults.figures(faults.cases(tmp_path, DEPOSIT, every=6))
    faults.check(rows)
    assert {row.mode for row in rows} == {
        "EIO", "ENOSPC", "EIO for ever", "Ctrl-C before", "Ctrl-C after", "SIGKILL before", "SIGKILL after",
    }  # fmt: skip
    steps = rows[0].steps
    assert steps > 30
    for row in rows:
        assert row.cases == len(range(0, steps, 6))
        if row.mode.startswith("SIGKILL"):
            assert row.ends == {"killed": row.cases}
    ends = {row.mode: set(row.ends) for row in rows}
    assert ends["EIO"] == {"StoreReadError"}
    assert ends["ENOSPC"] == {"StoreFull"}
    assert ends["Ctrl-C after"] == {"KeyboardInterrupt"}


@pytest.mark.parametrize("name", ["pin", "settings", "deposit that evicts", "remove and collect"])
def test_every_step_of_other_operations_may_fail_or_be_the_last(tmp_path: Path, name: str) -> None:
    rows = faults.figures(faults.cases(tmp_path, [one for one in faults.OPERATIONS if one.name == name], every=9))
    faults.check(rows)
    assert sum(row.cases for row in rows) >= len(rows)


def test_it_shows_a_deposit_that_cleans_nothing_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gc.Intent, "roll_back", lambda self: None)
    monkeypatch.setattr(gc, "recover", lambda files: None)
    rows = faults.figures(faults.cases(tmp_path, DEPOSIT, every=8))
    assert sum(row.leftovers for row in rows) > 0
    assert sum(row.leftovers_at_once for row in rows) > 0
    with pytest.raises(GuaranteeViolated, match="deposit"):
        faults.check(rows)


def test_it_shows_a_manifest_that_comes_before_its_segments(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real = deposit.Deposit._commit

    def commit(self: Any, manifest: Manifest, data: bytes, source: Any, replace: bool) -> bool:
        self._files.manifests.write(manifest.block_id, data)
        return real(self, manifest, data, source, replace)

    monkeypatch.setattr(deposit.Deposit, "_commit", commit)
    rows = faults.figures(faults.cases(tmp_path, DEPOSIT, every=8))
    assert sum(row.half for row in rows) > 0
    with pytest.raises(GuaranteeViolated):
        faults.check(rows)


def test_a_failed_write_with_no_space_leaves_half_of_it(tmp_path: Path) -> None:
    watch = Watch(tmp_path, breaking("ENOSPC", 1))
    with watched(watch):
        fd = os.open(tmp_path / "file", os.O_CREAT | os.O_WRONLY)
        with pytest.raises(OSError, match="No space left"):
            os.write(fd, b"12345678")
        os.close(fd)
    assert (tmp_path / "file").read_bytes() == b"1234"
    assert [step.call for step in watch.journal] == ["create"]


# --- power ----------------------------------------------------------------------------------------


def test_no_state_after_a_power_failure_lacks_anything(tmp_path: Path) -> None:
    rows = power.figures(power.cases(tmp_path, DEPOSIT, sample=30))
    power.check(rows)
    assert rows[0].states == 30
    assert rows[0].possible > 200
    assert rows[0].waited_for_collect > 0


@pytest.mark.parametrize("found", ["half", "not_durable"])
def test_it_shows_what_is_not_synced(tmp_path: Path, found: str) -> None:
    without: tuple[Call, ...] = ("fsync",)
    rows = power.figures(power.cases(tmp_path, DEPOSIT, sample=40, without=without))
    assert getattr(rows[0], found) > 0
    with pytest.raises(GuaranteeViolated):
        power.check(rows)


def test_the_model_of_a_disk_keeps_what_was_synced_and_may_lose_the_rest() -> None:
    disk, folder = power._Disk(), Path("/store/names")
    steps = [
        Step("create", folder / "x.tmp"),
        Step("write", folder / "x.tmp", b"ab"),
        Step("write", folder / "x.tmp", b"cd"),
        Step("fsync", folder / "x.tmp"),
        Step("rename", folder / "x.tmp", target=folder / "x"),
    ]
    for step in steps:
        disk.apply(step)
    states = {_names(disk, kept) for kept in map(frozenset, disk.subsets(random.Random(0)))}
    assert states == {(), ("x.tmp",), ("x",)}
    disk.apply(Step("fsync", folder, directory=True))
    assert [_names(disk, kept) for kept in map(frozenset, disk.subsets(random.Random(0)))] == [("x",)]
    assert disk.live[folder / "x"].data == b"abcd"


def _names(disk: power._Disk, kept: frozenset[int]) -> tuple[str, ...]:
    files, _ = disk.survived(set(kept))
    return tuple(sorted(path.name for path, file in files.items() if file is not None))


# --- concurrency ----------------------------------------------------------------------------------


def test_processes_beside_each_other(tmp_path: Path) -> None:
    result = concurrency.run(tmp_path, concurrency.SMALL)
    concurrency.check(Together.model_validate(result))
    assert result["processes"] == 6
    assert result["rounds"]["write"] == 16
    assert result["blocks"] == len([name for name in bytes_of(tmp_path / "store") if name.startswith("manifests/")])


@pytest.mark.parametrize(
    "change",
    [
        lambda result: result.update(errors=1, examples={"errors": ["x"]}),
        lambda result: result.update(missing=1, examples={"missing": ["x"]}),
        lambda result: result["rounds"].update(collect=0),
        lambda result: result["longest_ms"].update(read=31_000.0),
    ],
)
def test_a_result_with_a_fault_does_not_pass(change: Callable[[dict[str, Any]], None]) -> None:
    kinds = ("errors", "missing", "unexpected", "temporaries", "leftovers", "wrong_names")
    roles = ("write", "read", "collect", "remove", "check")
    result: dict[str, Any] = dict.fromkeys(kinds, 0)
    result |= {"rounds": dict.fromkeys(roles, 5), "longest_ms": dict.fromkeys(roles, 5.0), "examples": {}}
    counts = ("processes", "writers", "deposits", "blocks", "misses", "collected_segments")
    result |= dict.fromkeys(counts, 1)
    concurrency.check(Together.model_validate(result))
    change(result)
    with pytest.raises(GuaranteeViolated):
        concurrency.check(Together.model_validate(result))


# --- corruption -----------------------------------------------------------------------------------


def test_damage_of_every_kind_is_refused(tmp_path: Path) -> None:
    result = corruption.figures(corruption.cases(tmp_path, PLAN))
    corruption.check(result)
    assert set(result.files) == {*RECORDS, "segment", "manifest", "model"}
    for row in result.damages.values():
        assert row.cases == sum(row.refused.values()) > 0


def test_it_shows_a_seal_that_nobody_checks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    bench = corruption._Bench(tmp_path)
    monkeypatch.setattr(formats, "unseal", lambda magic, data: data.partition(b"\n")[2])
    tallies = [
        bench.try_one(name, f"{name}: digest", {name: data.replace(b"agentkv-text 1 ", b"agentkv-text 1 0")})
        for name, data in bench.files.items()
        if name.startswith("texts/")
    ]
    assert sum(len(tally.accepted) for tally in tallies) == len(tallies) > 0


def test_it_shows_an_engine_that_was_called_too_early(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    bench = corruption._Bench(tmp_path)
    name, data = next((name, data) for name, data in bench.files.items() if name.endswith(".seg"))
    read = bench.readers[name]
    bench.readers[name] = lambda: (bench.engine.extend([1]), read())
    tally = bench.try_one(name, "a flip", {name: data[:70] + bytes([data[70] ^ 1]) + data[71:]})
    assert (len(tally.engine_called), tally.refused) == (1, "CorruptBlock")


def test_the_regions_of_a_file_cover_it_without_a_gap(tmp_path: Path) -> None:
    bench = corruption._Bench(tmp_path)
    for name, data in bench.files.items():
        at = 0
        for region in corruption.regions(name, data):
            assert region.start == at < region.stop
            at = region.stop
        assert at == len(data)
        if name.endswith(".seg"):
            fields = corruption.regions(name, data)[: len(HEADER_FIELDS)]
            assert [region.name for region in fields] == [f"header: {field}" for field, _ in HEADER_FIELDS]
            assert fields[-1].stop == HEADER_BYTES
        elif b"\n" in data[:-1]:
            seal = next(region for region in corruption.regions(name, data) if region.name == "seal: digest")
            assert data[seal.start : seal.stop].decode() == sha256(data[seal.stop + 1 :])


# --- all of it ------------------------------------------------------------------------------------


def test_parts_and_totals(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real = power.cases
    monkeypatch.setattr(power, "cases", lambda place, operations, sample: real(place, operations[1:], sample=3))
    result = Integrity(small=True, parts=("power",), folder=tmp_path).run()
    Integrity.check(result)
    assert set(result) >= {"benchmark", "machine", "power", "totals"}
    assert "faults" not in result
    assert result["totals"]["power_states"] == sum(row["states"] for row in result["power"])
    assert list(tmp_path.iterdir()) == []


def test_the_command_shows_ends_with_60_and_refuses_other_parts(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    states: list[list[Any]] = [[0, "whole", True, {}], *([1, "empty", False, {}] for _ in range(4))]
    row = {"operation": "deposit", "prefixes": 3, "possible": 9, "cases": states}
    monkeypatch.setattr(power, "cases", lambda *_, **__: [row])
    command = ["integrity", "--small", "--only", "power", "--folder", str(tmp_path)]
    done = CliRunner().invoke(app, command)
    assert done.exit_code == 0, done.output
    assert "power failures at 3 moments" in done.stdout
    assert "in 1 of them something waited" in done.stdout
    states[2][3] = {"lost": ["state 3"]}
    done = CliRunner().invoke(app, [*command, "--json"])
    assert done.exit_code == 60
    assert json.loads(done.stdout)["error"]["type"] == "GuaranteeViolated"
    done = CliRunner().invoke(app, ["integrity", "--only", "luck"])
    assert isinstance(done.exception, UsageError)


def test_a_look_tells_other_bytes_from_these(tmp_path: Path) -> None:
    with BlockStore(tmp_path / "store", codec="raw") as store:
        made = faults.ROOT
        store.put(made.manifest, made.segments)
        assert look(store, [made], [made.id]).half == []
        assert look(store, [made], [faults.NEW.id]).lost == [faults.NEW.id]
        (store.root / "tmp" / "x.1.0123456789ab.tmp").write_bytes(b"")
        assert look(store, [made], []).leftovers == ["tmp/x.1.0123456789ab.tmp"]
        segment = Path(store.segments.where(made.manifest.segments[0].sha256))
        data = segment.read_bytes()
        segment.write_bytes(data[:-1] + bytes([data[-1] ^ 1]))
        seen = look(store, [made], [made.id])
        assert (len(seen.half), seen.lost) == (1, [made.id])
