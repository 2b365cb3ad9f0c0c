"""``agentkv bench size``: what blocks take up on disk; bytes only, so the figures do not depend on the machine.

Three parts, each on real text (the skills' manuals, their paragraphs in shuffled order):

1. *Shared prefix.* Skills behind one agent prefix. ``ratio`` is the bytes of all files, or of all segment files, over
   (own rows + one prefix). *Own rows* of a skill: the bytes of the segment files of its block that begin at or after
   the end of its parent, each skill counted by itself. *One prefix*: the bytes of the prefix block's segment files.
   So what a skill stores of its prefix once more, or a segment that straddles the seam, counts against the store.
2. *Thread.* A checkpoint after every turn, each a block behind the one before, over the same tokens stored as one
   block in an empty store. What exceeds that is told apart: ``small_segments``, the last checkpoint's segments against
   the one block's; ``superseded``, segments that only earlier checkpoints need; ``manifests``.
3. *Codecs.* One state at several lengths, its segments encoded in several ways, against llama.cpp's own blob
   (``raw``: every row, also those that a sliding window masks) and against an *order-0 bound*: for each segment and
   each byte plane (the first bytes of all elements, the second bytes, …) the empirical entropy of its byte values
   times their number, summed. It is what an ideal coder of single bytes with one table a plane could reach, tables
   not counted; a coder that sees more, or changes tables inside a plane, may go below it. ``variants`` are other
   arrangements of the same bytes, measured only; no store writes them.

Enforced (exit code 60): part 1 at most ``MAX_SHARED``; part 2 at most ``MAX_THREAD`` where no layer has a sliding
window (there every checkpoint keeps windowed rows that the final state has dropped, see ``superseded``); the default
codec at most ``MAX_OVER_BOUND`` of the bound. Reported as an aim, not enforced: a share of raw for one model.
Not guaranteed: that other texts give the same shares.
"""

from __future__ import annotations

import contextlib
import inspect
import random
import stat
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from agentkv.bench import measured
from agentkv.bench.report import now, origin, say
from agentkv.bench.scorers.size import MAX_OVER_BOUND, MAX_SHARED, MAX_THREAD
from agentkv.blocks.blocks import Blocks
from agentkv.engine import layout as blobs
from agentkv.engine.base import Engine, State
from agentkv.errors import GuaranteeViolated, UsageError
from agentkv.io.hashing import canonical_json
from agentkv.records import Manifest, Section, SegmentRef
from agentkv.store import codec as codecs
from agentkv.store.catalog import BlockStore
from agentkv.store.format import HEADER_BYTES, TRAILER_BYTES, Codec

LENGTHS = (512, 1500, 3000)
SKILLS, TURNS = 50, 40
PREFIX_TOKENS = SKILL_TOKENS = 1500
TURN_TOKENS = (60, 100)
"""A turn's length in tokens, from and to."""
CODECS = ((Codec.ZSTD, 1), (Codec.ZSTD, 19), (Codec.PLANES, 1), (Codec.PLANES, 3), (Codec.PLANES, 9))

_OVERHEAD = HEADER_BYTES + TRAILER_BYTES
_REPEATS = 3
_ROOM = 64

Segments = list[tuple[SegmentRef, NDArray[np.uint8]]]
Elements = NDArray[np.uint16]


@dataclass(frozen=True)
class Plan:
    """How much of everything; ``skills`` or ``turns`` 0 leaves that part out."""

    skills: int = SKILLS
    prefix_tokens: int = PREFIX_TOKENS
    skill_tokens: int = SKILL_TOKENS
    turns: int = TURNS
    lengths: tuple[int, ...] = LENGTHS
    codecs: tuple[tuple[Codec, int], ...] = CODECS

    @property
    def window(self) -> int:
        """Tokens that the context has to hold, a multiple of 256."""
        skill = self.prefix_tokens + self.skill_tokens if self.skills else 0
        return -(-(max(skill, self.turns * TURN_TOKENS[1], *self.lengths) + _ROOM) // 256) * 256


SMALL = Plan(skills=2, turns=4, lengths=(512,))


def run(
    model: str | Engine, texts: Sequence[str], plan: Plan = Plan(), *, settings: dict[str, Any] | None = None
) -> dict[str, Any]:
    """The whole benchmark; ``texts`` is the real text. An open engine must have ``plan.window``. See :func:`check`."""
    started = now()
    options: dict[str, Any] = {**(settings or {}), "window": plan.window}
    with opened(model, options) as engine, tempfile.TemporaryDirectory(prefix="agentkv-size-") as temporary:
        # A list of settings, not the plan itself: enumerations and tuples are not JSON.
        shown = {**asdict(plan), "codecs": [label(*pair) for pair in plan.codecs], "lengths": list(plan.lengths)}
        name, inputs = engine.info.name, canonical_json(list(texts))
        header = origin("size", name, engine.info.sha256, inputs, started=started, **options, plan=shown)
        raw: dict[str, Any] = {"store": {"model": name, "default": default_setting(), "sliding_window": 0}}
        if plan.skills:
            raw["shared_prefix"] = shared_prefix(engine, texts, plan, Path(temporary) / "shared")
        if plan.turns:
            raw["thread"] = thread(engine, texts, plan, Path(temporary))
        for state in states(engine, texts, plan.lengths):
            raw[f"codecs/{len(state.tokens)}"] = measure_codecs(state, plan.codecs)
            raw["store"]["sliding_window"] = max(section.window for section in state.layout.sections)
    return measured.result(header, raw)


def check(result: dict[str, Any]) -> None:
    """Raise GuaranteeViolated unless what the module's text calls enforced holds."""
    shared, talk = result.get("shared_prefix"), result.get("thread")
    if shared and shared["ratio"] > MAX_SHARED:
        raise GuaranteeViolated(f"{shared['skills']} skills take {shared['ratio']:.3f} of own rows + one prefix")
    if talk and not result["sliding_window"] and talk["ratio"] > MAX_THREAD:
        raise GuaranteeViolated(f"{talk['turns']} checkpoints take {talk['ratio']:.3f} of their final state")
    for row in result["codecs"]:
        over = next((c["over_bound"] for c in row["codecs"] if c["codec"] == default_setting()), 0.0)
        if over > MAX_OVER_BOUND:
            raise GuaranteeViolated(f"n = {row['n']}: the default codec takes {over:.3f} of the order-0 bound")


def label(codec: Codec, level: int) -> str:
    """How a codec and its level are called in results: ``planes 1``."""
    return "raw" if codec is Codec.RAW else f"{codec.name.lower()} {level}"


def default_setting() -> str:
    """The label of what a store uses when it is not told otherwise."""
    defaults = {name: item.default for name, item in inspect.signature(BlockStore).parameters.items()}
    return "raw" if defaults["codec"] == "raw" else f"{defaults['codec']} {defaults['level']}"


# --- engines, text, states --------------------------------------------------------------------------


@contextlib.contextmanager
def opened(model: str | Engine, settings: dict[str, Any]) -> Iterator[Engine]:
    """An engine for the time of a benchmark; one that was given stays open."""
    if not isinstance(model, str):
        yield model
        return
    from agentkv.engine.llama.engine import LlamaEngine
    from agentkv.engine.settings import EngineSettings

    with LlamaEngine.open(model, EngineSettings(**settings)) as engine:
        yield engine


def shuffled(texts: Sequence[str], seed: int) -> Iterator[str]:
    """The texts' paragraphs in an order that ``seed`` gives, over and over, each time in another one."""
    paragraphs = [part.strip() for text in texts for part in text.split("\n\n") if part.strip()]
    if not paragraphs:
        raise UsageError("there is no text to read")
    rng = random.Random(seed)

    def endless() -> Iterator[str]:
        while True:
            rng.shuffle(paragraphs)
            yield from paragraphs

    return endless()


def running_text(engine: Engine, texts: Sequence[str], n_tokens: int, seed: int) -> list[int]:
    """``n_tokens`` ids of ``texts``' paragraphs in an order that ``seed`` gives, repeated if they are too few."""
    paragraphs, ids = shuffled(texts, seed), list[int]()
    while len(ids) < n_tokens:
        ids += engine.tokenize(next(paragraphs) + "\n\n", special=False)
    return ids[:n_tokens]


def beginning(engine: Engine, texts: Sequence[str], n_tokens: int, seed: int) -> list[int]:
    """Like :func:`running_text`, as the beginning of a context: behind BOS where the model wants one."""
    head = [engine.info.bos] if engine.info.add_bos and engine.info.bos is not None else []
    return [*head, *running_text(engine, texts, n_tokens - len(head), seed)]


def states(engine: Engine, texts: Sequence[str], lengths: Sequence[int]) -> Iterator[State]:
    """The state after each length of one text, shortest first; read once."""
    ids = beginning(engine, texts, max(lengths), seed=0)
    engine.clear()
    done = 0
    for n in sorted(lengths):
        start = time.perf_counter()
        engine.extend(ids[done:n])
        say(f"read {n:,} tokens, the last {n - done:,} in {time.perf_counter() - start:.1f} s")
        done = n
        yield engine.capture()


def bytes_below(root: Path) -> dict[str, int]:
    """Bytes of all files below ``root``, by the first folder; ``.`` for files in it."""
    found: Counter[str] = Counter()
    for path in root.rglob("*"):
        with contextlib.suppress(FileNotFoundError):  # a temporary file of a moment ago
            info = path.lstat()
            parts = path.relative_to(root).parts
            if stat.S_ISREG(info.st_mode):
                found[parts[0] if len(parts) > 1 else "."] += info.st_size
    return dict(sorted(found.items()))


def disk_usage(root: Path) -> dict[str, int]:
    """Bytes of all files below a store: ``segments``, ``manifests``, ``other`` and ``total``."""
    found = bytes_below(root)
    usage = {name: found.pop(name, 0) for name in ("segments", "manifests")}
    usage["other"] = sum(found.values())
    return {**usage, "total": sum(usage.values())}


def _stored(store: BlockStore, digests: set[str]) -> int:
    sizes = {digest: store.segments.stored_bytes(digest) for digest in digests}
    if None in sizes.values():
        raise GuaranteeViolated("a segment of a block that was just stored is not there")
    return sum(filter(None, sizes.values()))


def _digests(manifest: Manifest, start: int = 0) -> set[str]:
    return {ref.sha256 for ref in manifest.segments if ref.start >= start}


# --- 1. many skills behind one prefix ---------------------------------------------------------------


def shared_prefix(
    engine: Engine, texts: Sequence[str], plan: Plan, folder: Path, make: Callable[..., Blocks] = Blocks
) -> dict[str, Any]:
    """Deposit one prefix and ``plan.skills`` skills behind it, and see what the store takes up."""
    with BlockStore(folder) as store:
        blocks = make(engine, store)
        prefix = blocks.deposit(beginning(engine, texts, plan.prefix_tokens, seed=-1), allow_inexact=True).manifest
        skills = []
        for seed in range(1, plan.skills + 1):
            start = time.perf_counter()
            ids = running_text(engine, texts, plan.skill_tokens, seed)
            skills.append(blocks.deposit(ids, parent=prefix, allow_inexact=True).manifest)
            say(f"skill {seed} of {plan.skills}: {time.perf_counter() - start:.1f} s")
        own = sum(_stored(store, _digests(skill, prefix.n_tokens)) for skill in skills)
        one = _stored(store, _digests(prefix))
        unshared = sum(_stored(store, _digests(skill)) for skill in skills)
    usage = disk_usage(folder)  # closed: with whatever a store leaves behind
    return {
        "skills": plan.skills,
        "prefix_tokens": prefix.n_tokens,
        "skill_tokens": plan.skill_tokens,
        "bytes": usage,
        "own_rows_bytes": own,
        "prefix_bytes": one,
        "unshared_bytes": unshared,
    }


# --- 2. a thread with a checkpoint after every turn -------------------------------------------------


def thread(engine: Engine, texts: Sequence[str], plan: Plan, folder: Path) -> dict[str, Any]:
    """Deposit a chain of turns, then the same tokens as one block in an empty store, and compare."""
    rng, step = random.Random(0), max(1, engine.alignment)
    sizes = [rng.randrange(TURN_TOKENS[0], TURN_TOKENS[1] + 1) // step * step for _ in range(plan.turns)]
    ids = beginning(engine, texts, sum(sizes), seed=-2)
    with BlockStore(folder / "thread") as store, BlockStore(folder / "alone") as empty:
        blocks, last, at = Blocks(engine, store), None, 0
        manifests: list[Manifest] = []
        for i, size in enumerate(sizes, 1):
            start = time.perf_counter()
            last = blocks.deposit(ids[at : at + size], parent=last, allow_inexact=True).manifest
            manifests.append(last)
            at += size
            say(f"checkpoint {i} of {plan.turns} at {at:,} tokens: {time.perf_counter() - start:.1f} s")
        alone = Blocks(engine, empty).deposit(ids, allow_inexact=True).manifest
        every, final = set[str]().union(*map(_digests, manifests)), _digests(manifests[-1])
        last_segments, superseded = _stored(store, final), _stored(store, every - final)
        one_segments = _stored(empty, _digests(alone))
    here, there = disk_usage(folder / "thread"), disk_usage(folder / "alone")
    return {
        "turns": plan.turns,
        "tokens": at,
        "bytes": here,
        "final_alone_bytes": there,
        "last_segments_bytes": last_segments,
        "one_block_segments_bytes": one_segments,
        "superseded_bytes": superseded,
        "manifest_parts": _manifest_parts(manifests),
    }


def _manifest_parts(manifests: Sequence[Manifest]) -> dict[str, int]:
    """Bytes of JSON that the manifests' larger fields take up, over all of them."""
    fields = ("tokens", "layout", "segments", "fingerprint")
    dumped = [manifest.model_dump(mode="json") for manifest in manifests]
    return {field: sum(len(canonical_json(one[field])) for one in dumped) for field in fields}


# --- 3. codecs and the bound ------------------------------------------------------------------------


def measure_codecs(state: State, settings: Sequence[tuple[Codec, int]]) -> dict[str, Any]:
    """One state's segments under each codec, the order-0 bound, and other arrangements of the bytes."""
    n, raw = len(state.tokens), state.blob.nbytes
    cut = blobs.cut(state.blob, state.layout, n, blobs.cuts(0, n))
    segments = list({ref.sha256: (ref, data) for ref, data in cut}.values())
    bound = sum(planes_entropy(data, ref.element_bytes) for ref, data in segments)
    live = raw - masked_bytes(state)
    rows = []
    for codec, level in settings:
        rows.append({"codec": label(codec, level), **_encode_all(segments, codec, level)})
        say(f"n = {n:,}, {label(codec, level)}: {rows[-1]['bytes'] / raw:.4f} of raw")
    return {
        "n": n,
        "raw_bytes": raw,
        "live_bytes": live,
        "bound_bytes": bound,
        "segments": len(segments),
        "codecs": rows,
        "variants": variants(state.layout.sections, segments),
    }


def masked_bytes(state: State) -> int:
    """Bytes of rows that a sliding window masks from every later token; they are zero in the state."""
    n, total = len(state.tokens), 0
    for section in state.layout.sections:
        planes = [item for item in (*section.keys, *section.values) if item.ggml_type != blobs.CELLS]
        dead = max(0, n - section.window) if section.window else 0
        total += dead * sum(item.row_bytes for item in planes)
    return total


def plane_entropies(raw: NDArray[np.uint8], width: int) -> list[float]:
    """Bytes that an ideal order-0 coder needs for each byte plane of ``raw``, highest plane first."""
    elements = raw.reshape(-1, width) if raw.size % width == 0 else raw.reshape(-1, 1)
    return [_entropy(elements[:, plane]) for plane in reversed(range(elements.shape[1]))]


def planes_entropy(raw: NDArray[np.uint8], width: int) -> float:
    """The order-0 bound of one segment, in bytes."""
    return sum(plane_entropies(raw, width))


def _entropy(values: NDArray[Any]) -> float:
    counts = np.bincount(values, minlength=256)
    shares = counts[counts > 0] / values.size
    return float(-(shares * np.log2(shares)).sum() * values.size / 8)


def _encode_all(segments: Segments, codec: Codec, level: int) -> dict[str, Any]:
    """Bytes of the files, and milliseconds on one thread of each repeat: three, one for slow levels."""
    repeats = _REPEATS if level < 9 else 1
    encode, decode, size = list[float](), list[float](), 0
    out = np.empty(max(data.size for _, data in segments), np.uint8)
    for _ in range(repeats):
        size, spent, back = 0, 0.0, 0.0
        for ref, data in segments:
            start = time.perf_counter()
            used, payload = codecs.encode(data, ref.element_bytes, codec, level)
            spent += time.perf_counter() - start
            kept = np.frombuffer(payload, np.uint8)
            size += kept.size + _OVERHEAD
            start = time.perf_counter()
            codecs.decode(kept, used, ref.element_bytes, out[: data.size])
            back += time.perf_counter() - start
            if not np.array_equal(out[: data.size], data):
                raise GuaranteeViolated(f"{label(codec, level)} gave other bytes back than it was given")
        encode.append(spent * 1e3)
        decode.append(back * 1e3)
    return {"bytes": size, "encode_ms": encode, "decode_ms": decode}


# --- other arrangements, measured only --------------------------------------------------------------


def variants(sections: Sequence[Section], segments: Segments) -> list[dict[str, Any]]:
    """Planes at level 1 after a reversible change of the elements, and the bound; two-byte elements only.

    ``token-major``: the channels of each token side by side; the others begin from it. ``channel-major``: the tokens
    of each channel side by side. ``xor``: each element against the same channel's, one token before. ``rotated``: the
    sign moved from the top to the bottom, so that the first byte is exponent and mantissa. ``table a channel`` is a
    bound only: the high plane with a table of its own for each channel over the whole state, tables not counted.
    """
    pieces = [_pieces(sections[ref.section], ref, data) for ref, data in segments]
    if any(not piece for piece in pieces):
        return []
    changes: dict[str, Callable[[Elements], Elements]] = {
        "token-major": lambda m: m,
        "channel-major": lambda m: m.T,
        "xor": lambda m: np.concatenate([m[:1], m[1:] ^ m[:-1]]),
        "rotated": lambda m: m << np.uint16(1) | m >> np.uint16(15),
    }
    rows: list[dict[str, Any]] = []
    for name, change in changes.items():
        bound, size = 0.0, 0
        for piece in pieces:
            data = np.concatenate([np.ascontiguousarray(change(m)).reshape(-1) for m in piece]).view(np.uint8)
            bound += planes_entropy(data, 2)
            size += memoryview(codecs.encode(data, 2, Codec.PLANES, 1)[1]).nbytes + _OVERHEAD
        rows.append({"variant": name, "bytes": size, "bound_bytes": round(bound)})
    low = sum(plane_entropies(data, 2)[1] for _, data in segments)
    rows.append(
        {"variant": "table a channel", "bytes": None, "bound_bytes": round(low + _by_channel(segments, pieces))}
    )
    return rows


def _by_channel(segments: Segments, pieces: list[list[Elements]]) -> float:
    """Entropy of the live rows' high bytes in bytes, a table for each layer's each channel."""
    total = 0.0
    for section in sorted({ref.section for ref, _ in segments}):
        mine = [piece for (ref, _), piece in zip(segments, pieces, strict=True) if ref.section == section]
        for layer in zip(*mine, strict=True):
            rows = np.concatenate(layer)
            high = rows[rows.any(axis=1)] >> 8  # masked rows are zero, and would need no table
            total += sum(_entropy(high[:, channel]) for channel in range(high.shape[1]))
    return total


def _pieces(section: Section, ref: SegmentRef, data: NDArray[np.uint8]) -> list[Elements]:
    """A segment's layers as matrices (tokens, channels); none where they are not two-byte elements alone."""
    n, at, found = ref.stop - ref.start, 0, list[Elements]()
    if ref.element_bytes != 2:
        return []
    for item in (*section.keys, *section.values):
        if item.ggml_type == blobs.CELLS:
            return []
        flat = data[at : at + n * item.row_bytes].view(np.uint16)
        found.append(flat.reshape(n, -1) if item.token_major else flat.reshape(-1, n).T)
        at += n * item.row_bytes
    return found
