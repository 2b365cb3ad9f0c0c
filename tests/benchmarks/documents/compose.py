"""``compose``: two pieces of text in one context, by sequential prefill and by stitching states.

For each sample of real text: the reference is one prefill of both pieces and a turn. ``chain`` is what agentkv does
(:func:`agentkv.documents.chunks.chain`): piece deposited on top of piece, the last block restored, the turn
prefilled; it has to give the same logits, bit for bit. ``stitched as they stand`` and ``stitched in place`` were
prefilled apart and put together (:mod:`tests.benchmarks.documents.stitch`); the first has to differ, or this benchmark
could show nothing.

Compared are the logits after the turn's last token: KL(reference ‖ variant) in nats, and whether the top-1 token
changed.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from agentkv.bench.base import Benchmark, Column, ModelSettings, Row, Table, interval, option, records
from agentkv.bench.exactness import Variant, kl_divergence
from agentkv.bench.measured import Raw
from agentkv.bench.results import say
from agentkv.bench.texts import manual_texts, opened
from agentkv.blocks.blocks import Blocks
from agentkv.documents.chunks import chain
from agentkv.engine.base import Engine, Logits
from agentkv.errors import GuaranteeViolated, UsageError
from agentkv.figures import share, spread
from agentkv.io.hashing import sha256
from agentkv.store.catalog import BlockStore
from tests.benchmarks.documents.stitch import can_read_in_place, read_alone, read_in_place, stitched

PIECE_TOKENS, TURN_TOKENS = 160, 13
"""A piece's length is a multiple of every engine's alignment; together they stay within gemma-3's window of 512."""

CHAIN, AS_THEY_STAND, IN_PLACE = "chain", "stitched as they stand", "stitched in place"
PAPER = {"kl": 13.85, "flips": "50 of 50"}
"""arXiv 2607.14431, of stitched states."""


@dataclass(frozen=True, kw_only=True)
class Settings(ModelSettings):
    """``samples``: pairs of pieces of ``texts``, wherever they stand there."""

    samples: int = option(50, "Pairs of pieces.", metavar="N", least=1, small=5)
    texts: tuple[str, ...] | None = None
    engine: Engine | None = None


class Seen(Row):
    """The raw record of one sample; KL is recorded, not computed again."""

    sha256: str
    variants: dict[str, Variant]


class Way(Row):
    """Over all samples: how many are equal to one prefill, KL in nats, how often the top-1 token changed."""

    name: str = ""
    equal: dict[str, Any]
    kl: dict[str, float]
    flips: dict[str, Any]

    @classmethod
    def of(cls, name: str, samples: Sequence[Seen]) -> Way:
        """Of one variant."""
        pairs = [(sample.sha256, sample.variants[name]) for sample in samples]
        kls = [one.kl for _, one in pairs]
        return cls(
            equal=share(sum(one.sha256 == digest for digest, one in pairs), len(pairs)),
            kl={**spread(kls), "mean": sum(kls) / len(kls)},
            flips=share(sum(one.flipped for _, one in pairs), len(pairs)),
        )


class Compose(Benchmark[Settings]):
    """Two texts in one context: prefilled one after the other, against states that are stitched together."""

    name = "compose"
    tables = (
        Table(
            lambda result: [Way(name=name, **way) for name, way in result["variants"].items()],
            (
                Column[Way]("two pieces of text", lambda row: row.name, left=True),
                Column("logits equal to one prefill", lambda row: interval(row.equal)),
                Column("KL mean (nats)", lambda row: f"{row.kl['mean']:.2g}"),
                Column("most", lambda row: f"{row.kl['max']:.2g}"),
                Column("top-1 token changed", lambda row: interval(row.flips)),
            ),
            name="compose",
        ),
    )

    def run(self) -> dict[str, Any]:
        """See the module's text."""
        asked = self.settings
        texts = list(asked.texts or manual_texts())
        options = {"window": 2 * PIECE_TOKENS + 128, "threads": asked.threads}
        with (
            opened(asked.engine or asked.model, options) as engine,
            tempfile.TemporaryDirectory(prefix="agentkv-compose-") as folder,
            BlockStore(folder) as store,
        ):
            blocks, raw = Blocks(engine, store), {}
            for number, (first, second, turn) in enumerate(_samples(engine, texts, asked.samples)):
                raw[f"sample/{number}"] = _sample(blocks, first, second, turn)
                if (number + 1) % 10 == 0:
                    say(f"{number + 1} of {asked.samples} samples")
            name, digest = engine.info.name, engine.info.sha256
        return self.result(raw, model=name, model_sha256=digest, inputs=[texts, asked.samples], settings=options)

    @staticmethod
    def figures(raw: Raw) -> dict[str, Any]:
        """``variants``: of each how many samples are equal to one prefill, the KL divergence, top-1 changes."""
        samples = records(Seen, raw)
        names = dict.fromkeys(name for sample in samples for name in sample.variants)
        return {"variants": {name: Way.of(name, samples).model_dump(exclude={"name"}) for name in names}}

    @staticmethod
    def check(result: dict[str, Any]) -> None:
        """Every chain is one prefill, bit for bit, and stitching shows a difference."""
        chained = result["variants"][CHAIN]
        if chained["equal"]["k"] != chained["equal"]["n"] or chained["kl"]["max"] != 0:
            equal = chained["equal"]
            raise GuaranteeViolated(f"chains are not one prefill: {equal['k']} of {equal['n']} equal")
        if result["variants"][AS_THEY_STAND]["equal"]["k"]:
            raise GuaranteeViolated("stitched states gave a prefill's logits: this benchmark can show nothing")

    @staticmethod
    def notes(result: dict[str, Any]) -> Iterable[str]:
        """For comparison."""
        yield f"the paper, stitched: KL {PAPER['kl']}, flips {PAPER['flips']}"


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
        from agentkv.engine.llama.engine import LlamaEngine

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
