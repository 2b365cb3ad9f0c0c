"""What a store holds, as a person asks for it: by name, by the start of an id, by model. Loads no model.

Not guaranteed: that a model of the right digest has the settings that a block was made with; only the
engine's whole fingerprint says that, and it takes a loaded model.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from agentkv.errors import MissingSegment, StoreError, UnknownBlock, UsageError

if TYPE_CHECKING:
    from agentkv.records import Fingerprint, Manifest, NamedBlock
    from agentkv.store.catalog import BlockStore


@dataclass(frozen=True)
class Usage:
    """Bytes of several blocks together, each segment once: ``raw`` as states, ``stored`` as files.

    ``states`` is what the blocks take as whole states, each by itself: nothing shared or compressed.
    """

    states: int
    raw: int
    stored: int


def usage(store: BlockStore, manifests: Iterable[Manifest]) -> Usage:
    """What blocks take up. Raises MissingSegment."""
    states, segments = 0, {}
    for manifest in manifests:
        for ref in manifest.segments:
            states += ref.n_bytes
            segments[ref.sha256] = (ref, manifest.block_id)
    stored = 0
    for ref, block_id in segments.values():
        found = store.segments.stored_bytes(ref.sha256)
        if found is None:
            raise MissingSegment(block_id, ref.sha256, store.root)
        stored += found
    return Usage(states, sum(ref.n_bytes for ref, _ in segments.values()), stored)


def model_name(fingerprint: Fingerprint) -> str:
    """The catalogue's name of the model that a fingerprint holds, else the start of its digest."""
    from agentkv.engine.models import CATALOGUE

    digest = str(fingerprint.content.get("model_sha256", ""))
    if fingerprint.content.get("engine") == "fake":
        return "fake"
    return next((entry.name for entry in CATALOGUE.values() if entry.sha256 == digest), digest[:12] or "?")


def model_digest(model: str) -> str:
    """SHA-256 of the model that ``model`` names; nothing is fetched or loaded. Raises ModelError's."""
    from agentkv.cli.options import FAKE
    from agentkv.engine.models import CATALOGUE, resolve

    if model == FAKE:
        from agentkv.engine.fake import FakeEngine

        return FakeEngine(window=64).info.sha256
    return CATALOGUE[model].sha256 if model in CATALOGUE else resolve(model, pull=False).sha256


def is_of_model(manifest: Manifest, digest: str) -> bool:
    """Whether a block was made with the model of that digest."""
    return manifest.fingerprint.content.get("model_sha256") == digest


def find(store: BlockStore, key: str, model: str | None = None) -> str:
    """The block id that a name, or an id's first six digits or more, stands for.

    A name that several models have takes ``model`` to choose. Raises UnknownBlock, UsageError.
    """
    skipped: list[StoreError] = []
    names = [n for n in store.names(on_error=skipped.append) if n.kind in ("skill", "text")]
    matches = [n for n in names if n.name == key]
    if len(matches) > 1 and model is not None:
        matches = _of_model(store, matches, model_digest(model)) or matches
    if len(matches) > 1:
        ids = ", ".join(f"{n.block_id[:12]} ({n.kind})" for n in matches)
        raise UsageError(f"{key!r} is the name of {len(matches)} blocks: {ids}. Pass one of the ids, or --model NAME.")
    if matches:
        return matches[0].block_id
    try:
        return store.resolve(key)
    except UnknownBlock:
        near = difflib.get_close_matches(key, {n.name for n in names}, n=3, cutoff=0.5)
        if near:
            raise UnknownBlock(key, f"Did you mean {', '.join(near)}?") from None
        raise


def _of_model(store: BlockStore, names: list[NamedBlock], digest: str) -> list[NamedBlock]:
    found = [(named, store.manifest(named.block_id)) for named in names]
    return [named for named, manifest in found if manifest is not None and is_of_model(manifest, digest)]


def names_by_block(store: BlockStore) -> dict[str, str]:
    """Block id -> the names that point at it, joined; a damaged name file is left out."""
    found: dict[str, str] = {}
    for named in store.names(on_error=lambda _: None):
        there = found.get(named.block_id)
        found[named.block_id] = f"{there}, {named.name}" if there and named.name != there else named.name
    return found
