"""``agentkv bench restore``: how fast a stored state comes back, against copying and reading as many bytes.

Three homes of a state: the RAM cache, files that the page cache holds (*warm*), files that it does not (*cold*, see
:mod:`agentkv.bench.pagecache`). Two steps: *assembly*, from files to a whole blob in fresh memory
(``Blocks.state``: read, check, decode, lay in place), and *native set*, from the blob into the model's context
(``Engine.restore``). From RAM only the second is left. ``first`` checks every file's hash, as a process does when it
meets a file; ``again`` is a later read with ``verify="once"``.

Yardsticks, in the same run and for as many bytes as the raw state has: *memcpy*, one thread's ``numpy.copyto`` into
touched memory; *disk*, a file written, synced, and read by one thread in 4 MB pieces, unbuffered, into touched memory,
warm and cold. A share is yardstick time / time, so 1 is as fast; compressed states and parallel reads may exceed it.
If pages stay in the page cache (some file systems ignore the call) the cold figures are left out and the result says
why. ``device_share`` is what the kernel then fetched for this process, of the files' bytes.

The recommended setting has the least *time × bytes*. Time: the geometric mean, over all sizes, of what a restore takes
(assembly + native set) cold with all hashes, as after a restart, and warm again, as in a running process; each against
the fastest setting there. Bytes: the geometric mean of stored bytes against the smallest. So a setting that is 10 %
slower has to save 10 % of the disk. Without cold figures, warm with all hashes stands in. ``by_mode`` is the same
product for each way of reading alone, so that it can be seen which of them decides.

Enforced: what comes back is the same, byte for byte. Aims, reported: :data:`AIMS`. ``synthetic`` needs no model: random
half floats whose exponents are spread as a real model's; then there is no native set.
"""

from __future__ import annotations

import functools
import math
import statistics
import tempfile
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from agentkv.bench.base import (
    Benchmark,
    Column,
    ModelSettings,
    Row,
    Table,
    Timing,
    aims,
    left_out,
    lengths_option,
    milliseconds,
    option,
    records,
    rows_of,
)
from agentkv.bench.measured import Raw
from agentkv.bench.pagecache import SETTLE_S, Files, disk_speed, times
from agentkv.bench.results import say
from agentkv.bench.texts import default_setting, manual_texts, opened, states, synthetic_state
from agentkv.blocks.blocks import Blocks
from agentkv.engine import layout as blobs
from agentkv.engine.base import Engine, State
from agentkv.engine.fake import FakeEngine
from agentkv.errors import GuaranteeViolated, UsageError
from agentkv.io.hashing import block_id, sha256
from agentkv.records import Exactness, Fingerprint, Manifest
from agentkv.store.catalog import BlockStore

AIMS = {"from RAM, of memcpy": 0.8, "cold raw assembly, of disk": 0.6}

_ROOM = 64


@dataclass(frozen=True, kw_only=True)
class Settings(ModelSettings):
    """Lengths over the model's trained window are left out. ``engine``: an open one, instead of a model's name."""

    synthetic: bool = option(False, "No model: random states, the disk only.")
    lengths: tuple[int, ...] = lengths_option((512, 2048, 5569, 11994), (512, 2048))
    codecs: tuple[str, ...] = option(
        ("planes 1", "zstd 1", "raw"), "Settings to compare: codec and level.", metavar="S,S,…"
    )
    folder: Path | None = option(
        None, "A folder on the disk that is meant.", metavar="DIR", shown="the system's temporary folder"
    )
    texts: tuple[str, ...] | None = None
    repeats: int = 5
    engine: Engine | None = None


class SeenSetting(Row):
    """One codec and level: milliseconds by mode, and SHA-256 of the state as it came back."""

    setting: str
    stored_bytes: int
    put_ms: float
    modes: dict[str, list[float]]
    touched_ms: list[float]
    pages_left: float
    device_shares: list[float]
    read_sha256: list[str]


class Seen(Row):
    """The raw record of one length. ``disk_ms``: before and after; ``native_ms``: None without a model."""

    n: int
    state_bytes: int
    state_sha256: str
    segments: int
    memcpy_ms: list[float]
    disk_ms: dict[str, tuple[list[float] | None, list[float] | None]]
    native_ms: list[float] | None
    settings: list[SeenSetting]


class Mode(Row):
    """One way of reading. ``of_*``: the yardstick's time as a share of this one's."""

    ms: Timing
    of_memcpy: float
    of_disk: float | None
    with_native_of_disk: float | None = None

    def cell(self) -> str:
        """Milliseconds, and the share of the disk's speed."""
        share = "" if self.of_disk is None else f" ({self.of_disk:.2f})"
        return f"{milliseconds(self.ms.median)}{share}"


class Setting(Row):
    """One codec and level at one length. ``cold``: why it is left out, if it is."""

    setting: str
    stored_bytes: int
    of_raw: float
    put_ms: float
    modes: dict[str, Mode]
    warm_again_into_touched_memory_ms: Timing
    cold: str
    device_share: float | None
    equal: bool

    def cells(self) -> str:
        """Cold first / warm first / warm again."""
        cold = self.modes["cold first"].cell() if "cold first" in self.modes else "not measured"
        rest = (milliseconds(self.modes[name].ms.median) for name in ("warm first", "warm again"))
        return " / ".join([cold, *rest])


class Length(Row):
    """The figures of one length."""

    n: int
    state_bytes: int
    segments: int
    memcpy_ms: Timing
    disk_ms: dict[str, Timing | None]
    native_ms: Timing | None
    ram_of_memcpy: float | None
    settings: list[Setting]

    def of(self, setting: str) -> str:
        """The times of one setting, if it was measured."""
        return next((one.cells() for one in self.settings if one.setting == setting), "")

    def ram(self) -> str:
        """The native set alone, and its share of memcpy."""
        return "" if self.native_ms is None else f"{self.native_ms.median:.1f} ({self.ram_of_memcpy:.2f})"


def _length(seen: Seen) -> dict[str, Any]:
    memcpy = Timing.of(seen.memcpy_ms).median
    ram = None if seen.native_ms is None else Timing.of(seen.native_ms)
    disk = {key: _pooled(*pair) for key, pair in seen.disk_ms.items()}
    return {
        **seen.model_dump(include={"n", "state_bytes", "segments"}),
        "memcpy_ms": Timing.of(seen.memcpy_ms).model_dump(),
        "disk_ms": {key: one and one.model_dump() for key, one in disk.items()},
        "native_ms": ram and ram.model_dump(),
        "ram_of_memcpy": memcpy / ram.median if ram else None,
        "settings": [_setting(way, seen, memcpy, ram, disk) for way in seen.settings],
    }


def _setting(
    way: SeenSetting, seen: Seen, memcpy: float, ram: Timing | None, disk: dict[str, Timing | None]
) -> dict[str, Any]:
    left = way.pages_left
    modes = {}
    for name, taken in way.modes.items():
        if left and name.startswith("cold"):
            continue
        read, ms = disk[name.split()[0]], Timing.of(taken)
        shares: dict[str, Any] = {
            "of_memcpy": memcpy / ms.median,
            "of_disk": read.median / ms.median if read else None,
        }
        if ram and read:
            shares["with_native_of_disk"] = read.median / (ms.median + ram.median)
        modes[name] = {"ms": ms.model_dump(), **shares}
    return {
        **way.model_dump(include={"setting", "stored_bytes", "put_ms"}),
        "of_raw": way.stored_bytes / seen.state_bytes,
        "modes": modes,
        "warm_again_into_touched_memory_ms": Timing.of(way.touched_ms).model_dump(),
        "cold": f"left out: {left:.0%} of the pages stay in the page cache" if left else "no page was left",
        "device_share": statistics.median(way.device_shares) if way.device_shares and not left else None,
        "equal": set(way.read_sha256) == {seen.state_sha256},
    }


def _pooled(first: list[float] | None, second: list[float] | None) -> Timing | None:
    """Both lists as one; its median is the middle between theirs, for disks do not keep one speed."""
    if first is None or second is None:
        return None
    middle = (statistics.median(first) + statistics.median(second)) / 2
    return Timing.of([*first, *second]).model_copy(update={"median": middle})


def recommend(rows: Sequence[Any], default: str) -> dict[str, Any]:
    """The setting of the least time × bytes, by the rule in the module's text, and whether it is the default.

    ``rows``: of ``lengths`` in a result. Raises UsageError for none.
    """
    names = [way["setting"] for way in rows[0]["settings"]] if rows else []
    if not names:
        raise UsageError("nothing was measured")
    time_of: dict[str, dict[str, list[float]]] = {}
    bytes_of: dict[str, list[float]] = {name: [] for name in names}
    for row in rows:
        native = row["native_ms"]["median"] if row["native_ms"] else 0.0
        ways = {way["setting"]: way for way in row["settings"]}
        for mode in ways[names[0]]["modes"]:
            modes = {name: ways[name]["modes"][mode] for name in names if mode in ways[name]["modes"]}
            taken = {name: one["ms"]["median"] + native for name, one in modes.items()}
            for name, ms in taken.items():
                time_of.setdefault(mode, {}).setdefault(name, []).append(ms / min(taken.values()))
        least = min(way["stored_bytes"] for way in ways.values())
        for name in names:
            bytes_of[name].append(ways[name]["stored_bytes"] / least)
    whole = [mode for mode, by in time_of.items() if all(len(by.get(name, ())) == len(rows) for name in names)]
    cold = "cold first" if "cold first" in whole else "warm first"
    sizes = {name: _mean(values) for name, values in bytes_of.items()}
    slower = {name: _mean([*time_of[cold][name], *time_of["warm again"][name]]) for name in names}
    best = min(names, key=lambda name: slower[name] * sizes[name])
    scores = {
        name: {
            "time": slower[name],
            "bytes": sizes[name],
            "time × bytes": slower[name] * sizes[name],
            "by_mode": {mode: _mean(time_of[mode][name]) * sizes[name] for mode in whole},
        }
        for name in names
    }
    return {"setting": best, "default": default, "agrees": best == default, "scores": scores}


def _mean(values: Sequence[float]) -> float:
    """Geometric mean."""
    return math.exp(statistics.fmean(map(math.log, values)))


def _aims(rows: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    found = []
    for row in rows:
        values = {"from RAM, of memcpy": row["ram_of_memcpy"]}
        for way in row["settings"]:
            if way["setting"] == "raw" and "cold first" in way["modes"]:
                values["cold raw assembly, of disk"] = way["modes"]["cold first"]["of_disk"]
        for name, value in values.items():
            if value is not None:
                found.append({"aim": name, "n": row["n"], "least": AIMS[name], "value": value})
    return [{**one, "met": one["value"] >= one["least"]} for one in found]


_MODES = "cold first / warm first / warm again"


class Restore(Benchmark[Settings]):
    """From RAM, warm and cold disk: how fast states come back, against copying and reading as many bytes."""

    name = "restore"
    tables = (
        Table(
            rows_of(Length, "lengths"),
            (
                Column("tokens", lambda row: f"{row.n:,}"),
                Column("state", lambda row: f"{row.state_bytes / 1e6:.0f} MB"),
                Column("from RAM, native set (of memcpy)", Length.ram),
                Column(f"planes 1: {_MODES}", lambda row: row.of("planes 1")),
                Column(f"raw: {_MODES}", lambda row: row.of("raw")),
            ),
            name="restore",
            published=lambda row: row.native_ms is not None,
        ),
        Table(
            lambda result: result["recommended"]["scores"].items(),
            (
                Column("time × bytes", lambda score: score[0], left=True),
                Column("in all", lambda score: f"{score[1]['time × bytes']:.2f}"),
                Column("by way of reading", lambda score: _by_mode(score[1]), left=True),
            ),
        ),
    )

    def run(self) -> dict[str, Any]:
        """See the module's text; the text is prefilled once up to the longest length."""
        asked, ways = self.settings, [_parsed(codec) for codec in self.settings.codecs]
        if asked.synthetic:
            made = (synthetic_state(n, seed=n) for n in sorted(asked.lengths))
            raw = self._measure_all(FakeEngine(window=_ROOM), None, made, ways)
            every = list(asked.lengths)
            return self.result(raw, model="synthetic", inputs=every, settings={"lengths": every}, left_out={})
        texts, model = list(asked.texts or manual_texts()), asked.engine or asked.model
        options: dict[str, Any] = {"threads": asked.threads}
        with opened(model, {**options, "window": 512}) as engine:
            limit = engine.window if asked.engine else engine.info.train_window
        fit = sorted(n for n in asked.lengths if n + _ROOM <= limit)
        if not fit:
            raise UsageError(f"no length fits the window of {limit:,} tokens")
        options["window"] = -(-(max(fit) + _ROOM) // 256) * 256
        if not asked.engine:
            options["window"] = min(options["window"], limit)
        with opened(model, options) as engine:
            name, digest = engine.info.name, engine.info.sha256
            raw = self._measure_all(engine, engine, states(engine, texts, fit), ways)
        return self.result(
            raw,
            model=name,
            model_sha256=digest,
            inputs=[fit, texts],
            settings={**options, "lengths": fit},
            left_out={str(n): "over the window" for n in asked.lengths if n not in fit},
        )

    def _measure_all(
        self, engine: Engine, native: Engine | None, made: Iterator[State], ways: Sequence[tuple[str, int]]
    ) -> dict[str, Any]:
        raw: dict[str, Any] = {"default": default_setting()}
        for state in made:
            with tempfile.TemporaryDirectory(prefix="agentkv-restore-", dir=self.settings.folder) as folder:
                seen = _measure(engine, native, state, ways, self.settings.repeats, Path(folder))
                raw[f"length/{len(state.tokens)}"] = seen
        return raw

    def models(self) -> list[str]:
        """None for synthetic states."""
        return [] if self.settings.synthetic else super().models()

    def recorded(self) -> dict[str, Any]:
        """As asked for; ``model`` is None for synthetic states."""
        known = super().recorded()
        model = None if known.pop("synthetic") else known["model"]
        return {**known, "model": model}

    @staticmethod
    def figures(raw: Raw) -> dict[str, Any]:
        """``lengths``, ``aims`` and ``recommended``."""
        rows = [_length(seen) for seen in records(Seen, raw, "length/")]
        return {"lengths": rows, "aims": _aims(rows), "recommended": recommend(rows, raw["default"])}

    @staticmethod
    def check(result: dict[str, Any]) -> None:
        """Every state came back as the same bytes."""
        for row in rows_of(Length, "lengths")(result):
            for way in row.settings:
                if not way.equal:
                    raise GuaranteeViolated(f"n = {row.n}, {way.setting}: the state that came back is another")

    @staticmethod
    def notes(result: dict[str, Any]) -> Iterable[str]:
        """Yardsticks, the recommended setting, aims."""
        rows = rows_of(Length, "lengths")(result)
        for row in rows:
            speeds = {"memcpy": row.memcpy_ms, **{f"{name} disk": one for name, one in row.disk_ms.items() if one}}
            shown = (f"{name} {row.state_bytes / 1e6 / one.median:.1f} GB/s" for name, one in speeds.items())
            yield f"{row.n:,} tokens, {row.state_bytes / 1e6:,.0f} MB; {', '.join(shown)}"
        yield from sorted({f"cold {way.cold}" for row in rows for way in row.settings if "left out" in way.cold})
        best = result["recommended"]
        agrees = "the default" if best["agrees"] else f"NOT the default, which is {best['default']}"
        yield f"recommended: {best['setting']}, {agrees}"
        yield from [*aims(result), *left_out(result)]


def _by_mode(score: dict[str, Any]) -> str:
    return ", ".join(f"{mode} {value:.2f}" for mode, value in score["by_mode"].items())


def _parsed(text: str) -> tuple[str, int]:
    codec, _, level = text.partition(" ")
    if codec not in ("planes", "zstd", "raw") or not (level or "1").isdecimal():
        raise UsageError(f"{text!r} is not a setting such as 'planes 1', 'zstd 3' or 'raw'")
    return codec, int(level or 1)


def _measure(
    engine: Engine,
    native: Engine | None,
    state: State,
    ways: Sequence[tuple[str, int]],
    repeats: int,
    folder: Path,
) -> dict[str, Any]:
    n, size = len(state.tokens), state.blob.nbytes
    # 1. Yardsticks: memory and disk; the disk once more at the end, for disks do not keep one speed.
    target = np.zeros_like(state.blob)
    memcpy = times(lambda: np.copyto(target, state.blob), repeats + 2)
    before = disk_speed(folder / "yardstick", state.blob, repeats)
    # 2. From RAM: the native set alone.
    ram = times(lambda: native.restore(state), repeats + 2) if native else None
    # 3. From files, by setting.
    manifest, segments = manifest_of(engine.fingerprint(), state)
    rows = []
    for codec, level in ways:
        row = _measure_setting(engine, state, manifest, segments, codec, level, repeats, folder / f"{codec}-{level}")
        rows.append(row)
        shown = ", ".join(f"{name} {statistics.median(taken):.0f}" for name, taken in row["modes"].items())
        say(f"n = {n:,} ({size / 1e6:.0f} MB), {row['setting']}: ms of assembly: {shown}")
    after = disk_speed(folder / "yardstick", state.blob, repeats)
    return {
        "n": n,
        "state_bytes": size,
        "state_sha256": manifest.state_sha256,
        "segments": len(manifest.segments),
        "memcpy_ms": memcpy,
        "disk_ms": {key: [before[key], after[key]] for key in ("warm", "cold")},
        "native_ms": ram,
        "settings": rows,
    }


def _measure_setting(
    engine: Engine,
    state: State,
    manifest: Manifest,
    segments: dict[str, NDArray[np.uint8]],
    codec: str,
    level: int,
    repeats: int,
    folder: Path,
) -> dict[str, Any]:
    with BlockStore(folder, codec=codec, level=level) as store:
        start = time.perf_counter()
        store.put(manifest, segments)
        put_ms = (time.perf_counter() - start) * 1e3
        stored = store.sizes(manifest).stored
    time.sleep(SETTLE_S)
    files = Files(sorted(path for path in (folder / "segments").rglob("*") if path.is_file()), stored)
    modes: dict[str, list[float]] = {}
    digests = []
    for name, verify in (("first", "always"), ("again", "once")):
        with BlockStore(folder, verify=verify, cache_bytes=0, create=False) as store:
            work = functools.partial(Blocks(engine, store).state, manifest)
            digests.append(sha256(work().blob.data))
            modes[f"warm {name}"] = times(work, repeats)
            if files.evict() == 0:
                modes[f"cold {name}"] = times(work, repeats, files.evict, files.note)
            assembly = blobs.Assembly(manifest.layout, manifest.n_tokens)
            into = functools.partial(store.read, manifest, assembly.place)
            touched = times(into, repeats)
    return {
        "setting": "raw" if codec == "raw" else f"{codec} {level}",
        "stored_bytes": stored,
        "put_ms": put_ms,
        "modes": modes,
        "touched_ms": touched,
        "pages_left": files.left,
        "device_shares": files.shares,
        "read_sha256": digests,
    }


def manifest_of(fingerprint: Fingerprint, state: State) -> tuple[Manifest, dict[str, NDArray[np.uint8]]]:
    """A manifest for a captured state, without a proof, and its segments by SHA-256."""
    n = len(state.tokens)
    cut = blobs.cut(state.blob, state.layout, n, blobs.cuts(0, n))
    manifest = Manifest(
        block_id=block_id(fingerprint.id, None, state.tokens),
        parent_id=None,
        fingerprint=fingerprint,
        tokens=state.tokens,
        n_tokens=n,
        layout=state.layout,
        segments=tuple(ref for ref, _ in cut),
        state_sha256=sha256(state.blob.data),
        exactness=Exactness.INEXACT,
        probe=None,
    )
    return manifest, {ref.sha256: data for ref, data in cut}
