"""``compose``: two pieces of text in one context, by sequential prefill and by stitching states.

For each sample of real text: the reference is one prefill of both pieces and a turn. ``chain`` is what agentkv does
(:func:`agentkv.documents.chunks.chain`): piece deposited behind piece, the last block grafted, the turn read; it has
to give the same logits, bit for bit. ``stitched as they stand`` and ``stitched in place`` were read apart and put
together (:mod:`tests.benchmarks.documents.stitch`); the first has to differ, or this benchmark could show nothing.

Compared are the logits behind the turn's last token: KL(reference ‖ variant) in nats and whether the largest moved.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Sequence
from typing import Any

from agentkv.bench import measured
from agentkv.bench.exactness import kl_divergence
from agentkv.bench.report import now, origin, say
from agentkv.bench.size import opened
from agentkv.blocks.blocks import Blocks
from agentkv.documents.chunks import chain
from agentkv.engine.base import Engine, Logits
from agentkv.engine.llama.engine import LlamaEngine
from agentkv.errors import GuaranteeViolated, UsageError
from agentkv.io.hashing import canonical_json, sha256
from agentkv.store.catalog import BlockStore
from tests.benchmarks.documents.stitch import can_read_in_place, read_alone, read_in_place, stitched

SAMPLES = 50
PIECE_TOKENS, TURN_TOKENS = 160, 13
"""A piece's length is a multiple of every engine's alignment; together they stay within gemma-3's window of 512."""

CHAIN, AS_THEY_STAND, IN_PLACE = "chain", "stitched as they stand", "stitched in place"
PAPER = {"kl": 13.85, "flips": "50 of 50"}
"""arXiv 2607.14431, of stitched states."""


def run(
    model: str | Engine,
    texts: Sequence[str],
    *,
    samples: int = SAMPLES,
    settings: dict[str, Any] | None = None,
) -> dict[str, Any]:
    """The whole benchmark over ``samples`` pairs of pieces of ``texts``, wherever they stand there."""
    started = now()
    options = {"window": 2 * PIECE_TOKENS + 128, **(settings or {})}
    with opened(model, options) as engine, tempfile.TemporaryDirectory(prefix="agentkv-compose-") as folder:
        with BlockStore(folder) as store:
            blocks = Blocks(engine, store)
            raw = {}
            for number, (first, second, turn) in enumerate(_samples(engine, texts, samples)):
                raw[f"sample/{number}"] = _sample(blocks, first, second, turn)
                if (number + 1) % 10 == 0:
                    say(f"{number + 1} of {samples} samples")
        inputs = canonical_json([list(texts), samples])
        header = origin("compose", engine.info.name, engine.info.sha256, inputs, started=started, **options)
    return measured.result(header, raw)


def check(result: dict[str, Any]) -> None:
    """Raise GuaranteeViolated unless every chain is one prefill, bit for bit, and stitching shows a difference."""
    chained = result["variants"][CHAIN]
    if chained["equal"]["k"] != chained["equal"]["n"] or chained["kl"]["max"] != 0:
        raise GuaranteeViolated(f"chains are not one prefill: {chained['equal']['k']} of {chained['equal']['n']} equal")
    if result["variants"][AS_THEY_STAND]["equal"]["k"]:
        raise GuaranteeViolated("stitched states gave a prefill's logits: this benchmark can show nothing")


def _samples(engine: Engine, texts: Sequence[str], samples: int) -> Iterator[tuple[list[int], list[int], list[int]]]:
    """Pairs of pieces from different places, and a turn from a third."""
    tokens = [token for text in texts for token in engine.tokenize(text, special=False)]
    need = 2 * PIECE_TOKENS + TURN_TOKENS
    if len(tokens) < 2 * need:
        raise UsageError(f"the texts have {len(tokens):,} tokens; {2 * need:,} or more are needed")
    stride = max(1, (len(tokens) - need) // max(1, samples))
    for number in range(samples):
        starts = [(number * stride + part * len(tokens) // 3) % (len(tokens) - need) for part in range(3)]
        lengths = (PIECE_TOKENS, PIECE_TOKENS, TURN_TOKENS)
        first, second, turn = (tokens[at : at + n] for at, n in zip(starts, lengths, strict=True))
        yield first, second, turn


def _sample(blocks: Blocks, first: list[int], second: list[int], turn: list[int]) -> dict[str, Any]:
    engine = blocks.engine
    # 1. One prefill.
    engine.clear()
    reference = engine.extend([*first, *second, *turn])
    engine.clear()
    # 2. The chain, from the store.
    blocks.graft(chain(blocks, [first, second])[-1])
    variants = {CHAIN: _compared(reference, engine.extend(turn))}
    # 3. Stitched.
    alone = read_alone(engine, first)
    engine.restore(stitched(alone, read_alone(engine, second)))
    variants[AS_THEY_STAND] = _compared(reference, engine.extend(turn))
    if can_read_in_place(engine):
        assert isinstance(engine, LlamaEngine)
        engine.restore(stitched(alone, read_in_place(engine, second, len(first))))
        variants[IN_PLACE] = _compared(reference, engine.extend(turn))
    engine.clear()
    return {"sha256": sha256(reference.tobytes()), "variants": variants}


def _compared(reference: Logits, logits: Logits) -> dict[str, Any]:
    return {
        "sha256": sha256(logits.tobytes()),
        "kl": kl_divergence(reference, logits),
        "flipped": bool(reference.argmax() != logits.argmax()),
    }
