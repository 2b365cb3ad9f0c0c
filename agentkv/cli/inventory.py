"""What a store holds, as a person asks for it: by name, by the start of an id, by model; counted in one pass.

Loads no model. Not guaranteed: that a model of the right digest has the settings that a block was made with; only the
engine's whole fingerprint says that, and it takes a loaded model.

Also what a command's deposits have made go for the store's budget. It is a failure if something that the command itself
has stored is gone at its end: a success would be untrue.
"""

from __future__ import annotations

import difflib
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from agentkv.cli.engines import expected, is_of_model, model_digest, model_of
from agentkv.cli.output import say
from agentkv.errors import CorruptBlock, MissingSegment, OverBudget, StoreError, UnknownBlock, UsageError

if TYPE_CHECKING:
    from agentkv.records import Fingerprint, Manifest, NamedBlock
    from agentkv.store.catalog import BlockStore
    from agentkv.store.format import Summary
    from agentkv.store.uses import Use


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


@dataclass(frozen=True)
class Facts:
    """One block in a listing. Bytes are those on disk; ``fault``: why it cannot be used, then the rest may be None."""

    model: str | None = None
    fingerprint: Fingerprint | None = None
    tokens: int | None = None
    exactness: str | None = None
    own_bytes: int | None = None
    shared_bytes: int | None = None
    fault: StoreError | None = None


@dataclass(frozen=True)
class Survey:
    """Every block of a store, by id. ``usage`` covers the valid ones, ``manifests`` is the bytes of their manifests.

    ``unneeded``: bytes by digest of segments that no valid block needs; a deposit under way has some for a moment.
    """

    blocks: dict[str, Facts]
    usage: Usage
    manifests: int
    unneeded: dict[str, int]


def survey(store: BlockStore) -> Survey:
    """Look at every block's manifest once and at no segment's content; a corrupt block is a fact, not an error.

    Raises StoreReadError if the folder of segments cannot be read.
    """
    sizes = dict(store.segments.all())
    seen: dict[str, int] = {}
    blocks, states, manifests = {}, 0, 0
    unread: list[StoreError] = []
    summaries = dict(store.files.summaries(unread.append))
    refused = set(store.files.refused.digests())
    for block_id in store.block_ids():
        try:
            summary = summaries.get(block_id) or store.files.summary(block_id)
            if summary is None:  # removed meanwhile
                continue
            blocks[block_id] = _facts(store, block_id, summary, sizes, summaries, block_id in refused)
        except StoreError as error:
            blocks[block_id] = Facts(fault=error)
            continue
        if blocks[block_id].fault is None:
            states, manifests = states + summary.raw_bytes, manifests + summary.file_bytes
            seen |= summary.segments
    stored = sum(sizes.pop(digest) for digest in seen)
    return Survey(blocks, Usage(states, sum(seen.values()), stored), manifests, sizes)


def _facts(
    store: BlockStore,
    block_id: str,
    summary: Summary,
    sizes: Mapping[str, int],
    others: Mapping[str, Summary],
    is_refused: bool,
) -> Facts:
    from agentkv.records import Fingerprint
    from agentkv.store.findings import refusal_of

    known: Any = {
        "model": model_of(summary.content, store),
        "tokens": summary.n_tokens,
        "exactness": summary.exactness,
    }
    known["fingerprint"] = Fingerprint.model_validate({"content": summary.content, "numerics": summary.numerics})
    lost = next((digest for digest in summary.segments if digest not in sizes), None)
    if lost is not None:
        return Facts(**known, fault=MissingSegment(block_id, lost, Path(store.segments.where(lost))))
    reason = refusal_of(store.files, block_id) if is_refused else None
    if reason is not None:
        return Facts(
            **known, fault=CorruptBlock(f"block {block_id[:12]}", store.files.manifests.path(block_id), reason)
        )
    inherited: Mapping[str, int] = {}
    if summary.parent_id is not None:
        parent = others.get(summary.parent_id)
        inherited = parent.segments if parent else {}
    own = sum(sizes[digest] for digest in summary.segments if digest not in inherited)
    return Facts(**known, own_bytes=own, shared_bytes=sum(sizes[digest] for digest in summary.segments) - own)


def find(store: BlockStore, key: str, model: str | None = None) -> str:
    """The block id that a name, or an id's first six digits or more, stands for.

    A name that several models have takes ``model`` to choose; of several settings of one model, those that it is opened
    with are meant. Raises UnknownBlock, UsageError.
    """
    skipped: list[StoreError] = []
    names = [n for n in store.names(on_error=skipped.append) if n.kind in ("skill", "text")]
    matches = [n for n in names if n.name == key]
    if len(matches) > 1 and model is not None:
        matches = _of_model(store, matches, model_digest(model)) or matches
        matches = _of_engine(store, matches, model) if len(matches) > 1 else matches
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


def _of_engine(store: BlockStore, names: list[NamedBlock], model: str) -> list[NamedBlock]:
    """Those of the engine that the model is opened as; all where none is."""

    meant = expected(store, model)
    return [named for named in names if not meant.of_block(named.block_id)] or names


def names_by_block(store: BlockStore) -> dict[str, str]:
    """Block id -> the names that point at it, joined; a corrupt name file is left out."""
    found: dict[str, str] = {}
    for named in store.names(on_error=lambda _: None):
        there = found.get(named.block_id)
        found[named.block_id] = f"{there}, {named.name}" if there and named.name != there else named.name
    return found


def find_all(store: BlockStore, keys: Sequence[str], model: str | None = None) -> list[str]:
    """The blocks that several names or ids stand for, each once, in order. Raises as :func:`find`."""
    return list(dict.fromkeys(find(store, key, model) for key in keys))


def called(names: Mapping[str, str], block_id: str) -> str:
    """A block as a person knows it: by its names, else by the start of its id."""
    return names.get(block_id) or f"block {block_id[:12]}"


# --- when ------------------------------------------------------------------------------------------


def last_use(use: Use | None) -> float | None:
    """Seconds since 1970 of a block's last use; None if it was never used."""
    return use.last if use is not None and use.hits else None


def iso(seconds: float | None) -> str | None:
    """A time for scripts: ISO 8601, UTC."""
    return None if seconds is None else datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def since(time_text: str | None) -> str:
    """A time of :func:`iso` for people."""
    return ago(datetime.fromisoformat(time_text).timestamp() if time_text else None)


def ago(seconds: float | None) -> str:
    """A time for people: ``3 min ago``, ``never``."""
    if seconds is None:
        return "never"
    passed = max(0.0, time.time() - seconds)
    for unit, length in (("y", 365 * 86400), ("mo", 30 * 86400), ("d", 86400), ("h", 3600), ("min", 60)):
        if passed >= length:
            return f"{int(passed // length)} {unit} ago"
    return "just now"


# --- what went for the store's budget -------------------------------------------------------------


def evicted(store: BlockStore) -> list[dict[str, Any]]:
    """The named blocks that went since the store was opened."""
    return [{"block_id": victim.block_id, "names": list(victim.names)} for victim in store.evicted if victim.names]


def gone(store: BlockStore, names: Iterable[str]) -> list[OverBudget]:
    """One error for each of ``names``, stored by this command, that is no longer there."""
    there = {entry.name for entry in store.names(on_error=lambda _: None)}
    sizes = {name: victim.bytes for victim in store.evicted for name in victim.names}
    return [OverBudget(sizes.get(name, 0), store.budget or 0, 0, name) for name in names if name not in there]


def say_evicted(record: Sequence[dict[str, Any]]) -> None:
    """The line on the screen, if anything went."""
    names = sorted({name for item in record for name in item["names"]})
    if names:
        say(f"evicted to stay within the budget: {', '.join(names)}")
