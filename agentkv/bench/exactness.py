"""``agentkv bench exactness``: is a graft, in a new process, the same computation as reading?

Two processes. The first reads each block, goes on greedily and writes down the SHA-256 of every step's logits; it
also deposits the blocks. The second opens the store, grafts, goes on, and the two lists are compared. Beside it:
the KL divergence over real text, the same after the block was *moved*, and, on sliding-window models, a control with
llama.cpp's plain per-sequence state, which has to fail past the window.
"""

from __future__ import annotations

import random
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from agentkv.bench import measured
from agentkv.bench.process import in_new_process
from agentkv.bench.report import now, origin, say
from agentkv.blocks.blocks import Blocks
from agentkv.engine.base import Logits
from agentkv.engine.generate import greedy_hashes
from agentkv.engine.llama.engine import LlamaEngine
from agentkv.engine.settings import EngineSettings
from agentkv.errors import GuaranteeViolated
from agentkv.io.hashing import canonical_json, sha256
from agentkv.store.catalog import BlockStore

LENGTHS = (1, 2, 255, 256, 257, 511, 512, 513, 600, 1024, 1500, 1900, 3000)
STEPS = 48
SAMPLES = 50
SAMPLE_TOKENS, TURN_TOKENS = 160, 13
UNALIGNED = 158
"""A block length that is no multiple of four: cut there, one pass and two are two computations."""
DISTANCES = (8, 128, 1024)


def run(
    model: str,
    texts: Sequence[str],
    *,
    lengths: Sequence[int] = LENGTHS,
    samples: int = SAMPLES,
    settings: dict[str, Any] | None = None,
) -> dict[str, Any]:
    """The whole benchmark; ``texts`` is the real text that samples are cut from. See :func:`check`."""
    started = now()
    with tempfile.TemporaryDirectory(prefix="agentkv-exactness-") as folder:
        payload: dict[str, Any] = {
            "model": model,
            "lengths": list(lengths),
            "samples": samples,
            "texts": list(texts),
            "folder": folder,
            "settings": {"window": max([*lengths, 512]) + 1200, **(settings or {})},
        }
        fresh = in_new_process(f"{__name__}:fresh_side", payload)
        graft = in_new_process(f"{__name__}:graft_side", {**payload, "fresh": fresh})
    inputs = canonical_json([payload["lengths"], samples, payload["texts"]])
    header = origin(
        "exactness", model, fresh["model_sha256"], inputs, started=started, **payload["settings"], steps=STEPS
    )
    header |= {"fingerprint": fresh["fingerprint"], "sliding_window": fresh["sliding_window"]}
    return measured.result(header, graft)


def check(result: dict[str, Any]) -> None:
    """Raise GuaranteeViolated unless every graft was exact and the control could fail where it must."""
    for row in result["lengths"]:
        if row["equal_steps"] != STEPS:
            raise GuaranteeViolated(f"n = {row['n']}: only {row['equal_steps']} of {STEPS} steps are equal")
    own = result["samples"]["0"]
    if not all(row["recaptured_equal"] for row in result["lengths"]):
        raise GuaranteeViolated("a restored state was not captured again as the same bytes")
    if own["equal"] != own["n"]:
        raise GuaranteeViolated(f"own-position grafts differ from fresh readings: {own}")
    window = result["sliding_window"]
    past = [row for row in result["lengths"] if window and row["n"] > window + 100]
    if past and all(row["control_equal_steps"] == STEPS for row in past):
        raise GuaranteeViolated("the control did not fail past the sliding window: this benchmark proves nothing")


# --- the first process ----------------------------------------------------------------------------


def fresh_side(payload: dict[str, Any]) -> dict[str, Any]:
    """Read, go on, note every step; then deposit the same blocks."""
    folder = Path(payload["folder"])
    with LlamaEngine.open(payload["model"], EngineSettings(**payload["settings"])) as engine:
        blocks = Blocks(engine, BlockStore(folder / "store", cache_bytes=0))
        rows = []
        window = max(section.window for section in engine.layout.sections)
        for n in payload["lengths"]:
            tokens = _random_tokens(engine, n)
            engine.clear()
            engine.extend(tokens)
            hashes = greedy_hashes(engine, tokens[n // 2], STEPS)
            control = _control(engine, tokens) if window else None
            block = blocks.deposit(tokens).manifest.block_id
            rows.append({"n": n, "block": block, "hashes": hashes, "control": control})
            say(f"read {n} tokens")
        engine.clear()
        sampled = _read_samples(engine, blocks, payload, folder)
        return {
            "rows": rows,
            "samples": sampled,
            "model_sha256": engine.info.sha256,
            "fingerprint": engine.fingerprint().model_dump(),
            "sliding_window": window,
        }


def _random_tokens(engine: LlamaEngine, n: int) -> list[int]:
    rng, known = random.Random(n), usual_tokens(engine)
    head = engine.info.bos if engine.info.bos is not None else known[0]
    return [head, *(rng.choice(known) for _ in range(n - 1))]


def usual_tokens(engine: LlamaEngine) -> range:
    """Ids past the control tokens, of which random blocks are made."""
    high = min(40_000, engine.info.n_vocab)
    return range(1000 if high > 2000 else 3, high)


def _control(engine: LlamaEngine, tokens: Sequence[int]) -> tuple[list[str], list[str]]:
    from agentkv.bench.controls import plain_hashes

    return plain_hashes(engine, tokens, tokens[len(tokens) // 2], STEPS)


def _sample_tokens(engine: LlamaEngine, payload: dict[str, Any]) -> list[tuple[list[int], list[int]]]:
    """Block and turn ids of each sample, cut evenly from the real text."""
    ids = [token for text in payload["texts"] for token in engine.tokenize(text, special=False)]
    count, size = payload["samples"], SAMPLE_TOKENS + TURN_TOKENS
    starts = [round(i * (len(ids) - size) / max(1, count - 1)) for i in range(count)]
    return [(ids[s : s + SAMPLE_TOKENS], ids[s + SAMPLE_TOKENS : s + size]) for s in starts]


def _read_samples(engine: LlamaEngine, blocks: Blocks, payload: dict[str, Any], folder: Path) -> list[dict[str, Any]]:
    sampled: list[dict[str, Any]] = []
    rows: list[Logits] = []
    one_pass: list[Logits] = []
    unaligned: list[Logits] = []
    for block, turn in _sample_tokens(engine, payload):
        whole = block + turn
        for cut, into in ((0, one_pass), (UNALIGNED, unaligned), (SAMPLE_TOKENS, rows)):
            engine.clear()
            if cut:
                engine.extend(whole[:cut])
            into.append(engine.extend(whole[cut:]))
        sampled.append({"block": blocks.deposit(block).manifest.block_id, "turn": turn})
    if rows:
        np.save(folder / "fresh.npy", np.stack(rows))
        np.save(folder / "one_pass.npy", np.stack(one_pass))
        np.save(folder / "unaligned.npy", np.stack(unaligned))
    say(f"read {len(rows)} samples of real text")
    return sampled


# --- the second process ---------------------------------------------------------------------------


def graft_side(payload: dict[str, Any]) -> dict[str, Any]:
    """Graft what the first process stored, go on, and put what was seen beside what it noted: the raw records."""
    folder, fresh = Path(payload["folder"]), payload["fresh"]
    with LlamaEngine.open(payload["model"], EngineSettings(**payload["settings"])) as engine:
        blocks = Blocks(engine, BlockStore(folder / "store", cache_bytes=0, create=False))
        raw: dict[str, Any] = {}
        for row in fresh["rows"]:
            manifest = blocks.store.manifest(row["block"])
            assert manifest is not None
            blocks.graft(manifest)
            again = blocks.engine.capture()
            blocks.graft(manifest)
            hashes = greedy_hashes(engine, manifest.tokens[len(manifest.tokens) // 2], STEPS)
            raw[f"length/{row['n']}"] = {
                "n": row["n"],
                "fresh": row["hashes"],
                "graft": hashes,
                "state_sha256": manifest.state_sha256,
                "recaptured_sha256": sha256(again.blob.data),
                "control": row["control"],
            }
            equal = sum(a == b for a, b in zip(row["hashes"], hashes, strict=True))
            say(f"grafted {row['n']} tokens: {equal}/{STEPS} equal")
        return raw | _compare_samples(engine, blocks, fresh["samples"], folder)


def _compare_samples(
    engine: LlamaEngine, blocks: Blocks, samples: list[dict[str, Any]], folder: Path
) -> dict[str, Any]:
    if not samples:
        return {}
    reference: Logits = np.load(folder / "fresh.npy", mmap_mode="r")
    raw: dict[str, Any] = {
        f"sample/{i}": {"sha256": sha256(row.tobytes()), "variants": {}} for i, row in enumerate(reference)
    }
    others = {"one pass": "one_pass.npy", "one pass, cut unaligned": "unaligned.npy"}
    for name, file in others.items():
        _note(raw, name, reference, list(np.load(folder / file, mmap_mode="r")))
    from agentkv.bench.controls import can_move, move

    for distance in (0, *(DISTANCES if can_move(engine) else ())):
        logits = []
        for sample in samples:
            manifest = blocks.store.manifest(sample["block"])
            assert manifest is not None
            blocks.graft(manifest)
            if distance:
                move(engine, distance)
            logits.append(engine.extend(sample["turn"]))
        _note(raw, str(distance), reference, logits)
        say(f"{len(samples)} samples moved by {distance}")
    return raw


def _note(raw: dict[str, Any], name: str, reference: Logits, others: list[Logits]) -> None:
    """A variant of each sample: its digest, KL(reference ‖ variant) in nats, and whether its largest logit moved."""
    for i, (a, b) in enumerate(zip(reference, others, strict=True)):
        flipped = bool(a.argmax() != b.argmax())
        raw[f"sample/{i}"]["variants"][name] = {
            "sha256": sha256(b.tobytes()),
            "kl": kl_divergence(a, b),
            "flipped": flipped,
        }


def kl_divergence(a: Logits, b: Logits) -> float:
    """KL(softmax(a) ‖ softmax(b)) in nats, in float64; exactly 0 for equal logits."""
    first, second = (x.astype(np.float64) - x.max() for x in (a, b))
    first -= np.log(np.exp(first).sum())
    second -= np.log(np.exp(second).sum())
    return max(0.0, float((np.exp(first) * (first - second)).sum()))
