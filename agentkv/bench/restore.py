"""``agentkv bench restore``: how fast a stored state comes back, against copying and reading as many bytes.

Three homes of a state: the RAM cache, files that the page cache holds (*warm*), files that it does not (*cold*). Two
steps, told apart: *assembly*, from files to a whole blob in fresh memory (``Blocks.state``: read, check, decode, lay in
place), and *native set*, from the blob into the model's context (``Engine.restore``). From RAM only the second is left.
``first`` checks every file's hash, as a process does when it meets a file; ``again`` is a later read with
``verify="once"``.

Yardsticks, in the same run and for as many bytes as the raw state has: *memcpy*, one thread's ``numpy.copyto`` into
touched memory; *disk*, a file written, synced, and read by one thread in 4 MB pieces, unbuffered, into touched memory,
warm and cold. A share is yardstick time / time, so 1 is as fast; compressed states and parallel reads may exceed it.

Cold means: fsync, ``posix_fadvise(DONTNEED)``, and then ``mincore`` says that no page is left. If pages stay (some
file systems ignore the call) the cold figures are left out and the result says why. ``device_share`` is what the kernel
then fetched for this process, of the files' bytes. Not guaranteed: that a hypervisor or the disk itself holds
nothing; cold is cold for this kernel only.

The recommended setting has the least *time × bytes*. Time: the geometric mean, over all sizes, of what a graft takes
(assembly + native set) cold with all hashes, as after a restart, and warm again, as in a running process; each against
the fastest setting there. Bytes: the geometric mean of stored bytes against the smallest. So a setting that is 10 %
slower has to save 10 % of the disk. Without cold figures, warm with all hashes stands in. ``by_mode`` is the same
product for each way of reading alone, so that it can be seen which of them decides.

Enforced: what comes back is the same, byte for byte. Aims, reported: ``scorers.restore.AIMS``. ``synthetic`` needs no
model: random half floats whose exponents are spread as a real model's; then there is no native set.
"""

from __future__ import annotations

import ctypes
import functools
import math
import mmap
import os
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from agentkv.bench import measured
from agentkv.bench.report import now, origin, say
from agentkv.bench.size import default_setting, opened, states
from agentkv.blocks.blocks import Blocks
from agentkv.engine import layout as blobs
from agentkv.engine.base import Engine, State
from agentkv.engine.fake import FakeEngine
from agentkv.errors import GuaranteeViolated, UsageError
from agentkv.io.hashing import block_id, canonical_json, sha256
from agentkv.records import Exactness, Fingerprint, Manifest, Planes, Section, StateLayout
from agentkv.store.catalog import BlockStore

LENGTHS = (512, 2048, 5569, 11994)
SETTINGS = ("planes 1", "zstd 1", "raw")
LAYERS, CHANNELS = 30, 192
"""Of the synthetic state: smollm2-135m's."""

_REPEATS = 5
_PIECE = 4 << 20
_ROOM = 64
SETTLE_S = 0.15
"""A file younger than 100 ms is checked at every read; see ``fsio.is_settled``."""


def run(
    model: str | Engine | None,
    texts: Sequence[str] = (),
    *,
    lengths: Sequence[int] = LENGTHS,
    codecs: Sequence[str] = SETTINGS,
    repeats: int = _REPEATS,
    settings: dict[str, Any] | None = None,
    folder: Path | None = None,
) -> dict[str, Any]:
    """The whole benchmark; ``model`` None is the synthetic state. ``folder``: on the disk to be measured.

    ``texts`` is read once up to the longest length. Lengths over the model's trained window are left out.
    """
    started, ways = now(), [_parsed(codec) for codec in codecs]
    if model is None:
        engine: Engine = FakeEngine(window=_ROOM)
        made = (synthetic_state(n, seed=n) for n in sorted(lengths))
        inputs, asked = canonical_json(list(lengths)), list(lengths)
        header = origin("restore", "synthetic", "", inputs, started=started, lengths=asked) | {"left_out": {}}
        return measured.result(header, _measure_all(engine, None, made, ways, repeats, folder))
    options = dict(settings or {})
    fit = _fitting(model, lengths, options)
    options["window"] = -(-(max(fit) + _ROOM) // 256) * 256
    if isinstance(model, str):
        options["window"] = min(options["window"], _train_window(model, options))
    with opened(model, options) as engine:
        inputs = canonical_json([list(fit), list(texts)])
        name, digest = engine.info.name, engine.info.sha256
        header = origin("restore", name, digest, inputs, started=started, **options, lengths=list(fit))
        raw = _measure_all(engine, engine, states(engine, texts, fit), ways, repeats, folder)
    left_out = {str(n): "over the window" for n in lengths if n not in fit}
    return measured.result({**header, "left_out": left_out}, raw)


def check(result: dict[str, Any]) -> None:
    """Raise GuaranteeViolated if a state came back as other bytes."""
    for row in result["lengths"]:
        for way in row["settings"]:
            if not way["equal"]:
                raise GuaranteeViolated(f"n = {row['n']}, {way['setting']}: the state that came back is another")


def _parsed(text: str) -> tuple[str, int]:
    codec, _, level = text.partition(" ")
    if codec not in ("planes", "zstd", "raw") or not (level or "1").isdecimal():
        raise UsageError(f"{text!r} is no setting such as 'planes 1', 'zstd 3' or 'raw'")
    return codec, int(level or 1)


def _train_window(model: str, options: dict[str, Any]) -> int:
    with opened(model, {**options, "window": 512}) as engine:
        return engine.info.train_window


def _fitting(model: str | Engine, lengths: Sequence[int], options: dict[str, Any]) -> list[int]:
    window = _train_window(model, options) if isinstance(model, str) else model.window
    fit = sorted(n for n in lengths if n + _ROOM <= window)
    if not fit:
        raise UsageError(f"no length fits the window of {window:,} tokens")
    return fit


def _measure_all(
    engine: Engine,
    native: Engine | None,
    made: Iterator[State],
    ways: Sequence[tuple[str, int]],
    repeats: int,
    folder: Path | None,
) -> dict[str, Any]:
    raw: dict[str, Any] = {"default": default_setting()}
    for state in made:
        with tempfile.TemporaryDirectory(prefix="agentkv-restore-", dir=folder) as temporary:
            raw[f"length/{len(state.tokens)}"] = _measure(engine, native, state, ways, repeats, Path(temporary))
    return raw


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
    files = _Files(sorted(path for path in (folder / "segments").rglob("*") if path.is_file()), stored)
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


def synthetic_state(n_tokens: int, seed: int) -> State:
    """Half floats, normal within a channel, whose scales differ by channel; shape and size of smollm2-135m's."""
    rng = np.random.default_rng(seed)
    keys = tuple(Planes(ggml_type=1, token_major=True, row_bytes=2 * CHANNELS) for _ in range(LAYERS))
    value = Planes(ggml_type=1, token_major=False, row_bytes=2 * CHANNELS, channels=CHANNELS)
    section = Section(kind="attention", v_trans=True, keys=keys, values=(value,) * LAYERS)
    layout = StateLayout(architecture="synthetic", sections=(section,))
    assembly = blobs.Assembly(layout, n_tokens)
    scales = np.exp(rng.normal(0.0, 1.0, (2 * LAYERS, 1, CHANNELS))).astype(np.float32)
    for start, stop in blobs.cuts(0, n_tokens):
        rows = rng.standard_normal((2 * LAYERS, stop - start, CHANNELS), np.float32) * scales
        half = rows.astype("<f2")
        piece = np.concatenate([half[:LAYERS].reshape(-1), half[LAYERS:].swapaxes(1, 2).reshape(-1)]).view(np.uint8)
        assembly.place(blobs.reference(0, start, stop, piece, 2), piece)
    return State(tuple(i % 250 for i in range(n_tokens)), layout, assembly.blob)


# --- clocks, page cache, yardsticks -----------------------------------------------------------------


def times(
    work: Callable[[], object],
    repeats: int,
    before: Callable[[], object] | None = None,
    after: Callable[[], object] | None = None,
) -> list[float]:
    """Milliseconds of each repeat; ``before`` and ``after`` each are not timed.

    One run goes first untimed, unless ``before`` sets the scene. What ``work`` gives is freed outside the clock.
    """
    if before is None:
        work()
    taken = []
    for _ in range(repeats):
        if before is not None:
            before()
        start = time.perf_counter()
        kept = work()
        taken.append((time.perf_counter() - start) * 1e3)
        del kept
        if after is not None:
            after()
    return taken


def disk_speed(path: Path, data: NDArray[np.uint8], repeats: int) -> dict[str, list[float] | None]:
    """Milliseconds to read a file of ``data`` sequentially, ``warm`` and ``cold``; None where it does not get cold."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("wb") as file:
        file.write(data.data)
        file.flush()
        os.fsync(file.fileno())
    target = np.zeros(data.size, np.uint8)

    def read() -> None:
        with path.open("rb", buffering=0) as file:
            for at in range(0, target.size, _PIECE):
                file.readinto(target[at : at + _PIECE].data)

    warm = times(read, repeats)
    cold = times(read, repeats, lambda: evict([path])) if evict([path]) == 0 else None
    path.unlink()
    return {"warm": warm, "cold": cold}


def evict(paths: Sequence[Path]) -> float:
    """Put files out of the page cache; the share of their pages that is still there, 1 if it cannot be known."""
    if not hasattr(os, "posix_fadvise"):
        return 1.0
    for path in paths:
        fd = os.open(path, os.O_RDONLY)
        try:
            os.fsync(fd)
            os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
        finally:
            os.close(fd)
    resident, pages = map(sum, zip(*(resident_pages(path) for path in paths), strict=True))
    return resident / pages if resident >= 0 else 1.0


def resident_pages(path: Path) -> tuple[float, int]:
    """How many pages of a file the page cache holds, and how many it has; minus infinity where nobody says."""
    with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as view:
        data = np.frombuffer(view, np.uint8)
        pages = -(-data.size // mmap.PAGESIZE)
        flags = np.zeros(pages, np.uint8)
        try:
            mincore = ctypes.CDLL(None).mincore
        except (AttributeError, OSError):
            mincore = None
        place, size, into = map(ctypes.c_void_p, (data.ctypes.data, data.size, flags.ctypes.data))
        failed = mincore is None or mincore(place, size, into) != 0
        del data, place  # the mapping cannot be closed while an array lies over it
    return (-math.inf if failed else float((flags & 1).sum())), pages


class _Files:
    """A state's files: put out of the page cache before a read, and what was then fetched, as a share of them."""

    def __init__(self, paths: Sequence[Path], n_bytes: int) -> None:
        self.paths, self.left, self.shares = paths, 0.0, list[float]()
        self._n_bytes, self._seen = n_bytes, 0

    def evict(self) -> float:
        """The share of pages that stayed in spite of it; ``left`` keeps the largest."""
        left = evict(self.paths)
        self.left, self._seen = max(self.left, left), _fetched()
        return left

    def note(self) -> None:
        """After a read: what the kernel fetched for it."""
        self.shares.append((_fetched() - self._seen) / self._n_bytes)


def _fetched() -> int:
    """Bytes that storage was asked for on behalf of this process; 0 where the system does not say."""
    try:
        lines = Path("/proc/self/io").read_text(encoding="ascii").splitlines()
    except OSError:
        return 0
    return next((int(line.split()[1]) for line in lines if line.startswith("read_bytes")), 0)
