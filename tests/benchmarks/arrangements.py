"""``arrangements``: a state's bytes under other reversible arrangements than a store's, and their order-0 bounds.

Planes at level 1 after a change of the elements; states of two-byte elements only. ``token-major``: the channels of
each token side by side; the others begin from it. ``channel-major``: the tokens of each channel side by side. ``xor``:
each element against the same channel's, one token before. ``rotated``: the sign moved from the top to the bottom, so
that the first byte is exponent and mantissa. ``table a channel`` is a bound only: the high plane with a table for each
channel over the whole state, tables not counted. No store writes any of them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from agentkv.bench.base import Benchmark, Column, ModelSettings, Row, Table, lengths_option, records
from agentkv.bench.bound import OVERHEAD, Segments, entropy, plane_entropies, planes_entropy
from agentkv.bench.measured import Raw
from agentkv.bench.texts import manual_texts, opened, states
from agentkv.engine import layout as blobs
from agentkv.records import Section, SegmentRef
from agentkv.store import codec as codecs
from agentkv.store.format import Codec

Elements = NDArray[np.uint16]


@dataclass(frozen=True, kw_only=True)
class Settings(ModelSettings):
    """Lengths of the states."""

    lengths: tuple[int, ...] = lengths_option((512, 1500, 3000), (512,))


class Variant(Row):
    """One arrangement; ``bytes`` is None where only a bound is known."""

    variant: str
    bytes: int | None
    bound_bytes: int


class Seen(Row):
    """The raw record of one state."""

    n: int
    raw_bytes: int
    variants: list[Variant]


class Share(Row):
    """One arrangement of one state, as shares of the raw bytes."""

    n: int
    variant: str
    of_raw: float | None
    bound_of_raw: float


class Arrangements(Benchmark[Settings]):
    """Bytes of states under other arrangements than a store's, measured only."""

    name = "arrangements"
    tables = (
        Table(
            lambda result: [Share.model_validate(row) for row in result["shares"]],
            (
                Column("tokens", lambda row: f"{row.n:,}"),
                Column("arrangement, planes 1", lambda row: row.variant, left=True),
                Column("of raw", lambda row: "" if row.of_raw is None else f"{row.of_raw:.4f}"),
                Column("bound, of raw", lambda row: f"{row.bound_of_raw:.4f}"),
            ),
        ),
    )

    def run(self) -> dict[str, Any]:
        """See the module's text."""
        texts, raw = manual_texts(), dict[str, Any]()
        options = {"threads": self.settings.threads, "window": -(-(max(self.settings.lengths) + 64) // 256) * 256}
        with opened(self.settings.model, options) as engine:
            name, digest = engine.info.name, engine.info.sha256
            for state in states(engine, texts, self.settings.lengths):
                n = len(state.tokens)
                cut = blobs.cut(state.blob, state.layout, n, blobs.cuts(0, n))
                segments = list({ref.sha256: (ref, data) for ref, data in cut}.values())
                rows = variants(state.layout.sections, segments)
                raw[f"state/{n}"] = Seen(n=n, raw_bytes=state.blob.nbytes, variants=rows).model_dump()
        return self.result(raw, model=name, model_sha256=digest, inputs=texts, settings=options)

    @staticmethod
    def figures(raw: Raw) -> dict[str, Any]:
        """``shares``: a row a state and arrangement."""
        rows = []
        for seen in records(Seen, raw):
            for one in seen.variants:
                of_raw = None if one.bytes is None else one.bytes / seen.raw_bytes
                bound = one.bound_bytes / seen.raw_bytes
                rows.append(Share(n=seen.n, variant=one.variant, of_raw=of_raw, bound_of_raw=bound).model_dump())
        return {"shares": rows}

    @staticmethod
    def check(result: Mapping[str, Any]) -> None:
        """Nothing is promised."""


CHANGES: dict[str, Callable[[Elements], Elements]] = {
    "token-major": lambda m: m,
    "channel-major": lambda m: m.T,
    "xor": lambda m: np.concatenate([m[:1], m[1:] ^ m[:-1]]),
    "rotated": lambda m: m << np.uint16(1) | m >> np.uint16(15),
}


def variants(sections: Sequence[Section], segments: Segments) -> list[Variant]:
    """Each arrangement's bytes and bound; nothing for elements of another size."""
    pieces = [_pieces(sections[ref.section], ref, data) for ref, data in segments]
    if any(not piece for piece in pieces):
        return []
    rows = []
    for name, change in CHANGES.items():
        bound, size = 0.0, 0
        for piece in pieces:
            data = np.concatenate([np.ascontiguousarray(change(m)).reshape(-1) for m in piece]).view(np.uint8)
            bound += planes_entropy(data, 2)
            size += memoryview(codecs.encode(data, 2, Codec.PLANES, 1)[1]).nbytes + OVERHEAD
        rows.append(Variant(variant=name, bytes=size, bound_bytes=round(bound)))
    low = sum(plane_entropies(data, 2)[1] for _, data in segments)
    bound = low + _by_channel(segments, pieces)
    return [*rows, Variant(variant="table a channel", bytes=None, bound_bytes=round(bound))]


def _by_channel(segments: Segments, pieces: list[list[Elements]]) -> float:
    """Entropy of the live rows' high bytes in bytes, a table for each layer's each channel."""
    total = 0.0
    for section in sorted({ref.section for ref, _ in segments}):
        mine = [piece for (ref, _), piece in zip(segments, pieces, strict=True) if ref.section == section]
        for layer in zip(*mine, strict=True):
            rows = np.concatenate(layer)
            high = rows[rows.any(axis=1)] >> 8  # masked rows are zero, and would need no table
            total += sum(entropy(high[:, channel]) for channel in range(high.shape[1]))
    return total


def _pieces(section: Section, ref: SegmentRef, data: NDArray[np.uint8]) -> list[Elements]:
    """A segment's layers as matrices (tokens, channels); none where they are not two-byte elements alone."""
    n, at, layers = ref.stop - ref.start, 0, list[Elements]()
    if ref.element_bytes != 2:
        return []
    for item in (*section.keys, *section.values):
        if item.ggml_type == blobs.CELLS:
            return []
        flat = data[at : at + n * item.row_bytes].view(np.uint16)
        layers.append(flat.reshape(n, -1) if item.token_major else flat.reshape(-1, n).T)
        at += n * item.row_bytes
    return layers
