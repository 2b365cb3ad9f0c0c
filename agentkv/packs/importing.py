"""Packs into stores. Everything is checked before anything is written; then parents first, names last.

    1. trust         signature and policy                      store untouched if refused
    2. check         the whole file (check.py)                 the same
    3. fit           fingerprint, names                        the same
    4. blocks        put, then the import's record, each       a crash leaves whole blocks without new names;
                                                               an error takes them back
    5. names         each with its text                        a crash leaves the names set so far; run again

In step 4 members are read from the same open file and compared with the index once more.
Whether a state belongs to its text is for ``proof.py``.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from agentkv.errors import IncompatibleFingerprint, NameConflict, StoreError, UsageError
from agentkv.packs.check import Contents, check
from agentkv.packs.format import folded
from agentkv.packs.reader import Pack, Progress, open_pack
from agentkv.records import Fingerprint, Import, Manifest, NamedBlock
from agentkv.signing.trust import Trust, Verdict
from agentkv.store.catalog import BlockStore
from agentkv.store.files import children_of, with_descendants
from agentkv.store.gc import remove_unneeded

REPLACE_HINT = "Add --replace (replace=True) to point them to the pack's blocks; what they point to now stays stored."
ALIKE_HINT = "Rename or remove the first one; a name must not be taken for another."


@dataclass(frozen=True)
class ImportedPack:
    """What an import did. ``kept``: blocks that the store has with another state, which stays; ids, in order.

    ``names`` are those set now; ``known_names`` pointed to the same blocks before.
    """

    path: Path
    sha256: str
    verdict: Verdict
    created: tuple[str, ...] = ()
    known: tuple[str, ...] = ()
    kept: tuple[str, ...] = ()
    names: tuple[str, ...] = ()
    known_names: tuple[str, ...] = ()


@dataclass
class _Done:
    created: list[str] = field(default_factory=list)
    known: list[str] = field(default_factory=list)
    kept: list[str] = field(default_factory=list)


def import_pack(
    pack: Path | str | Pack,
    store: BlockStore,
    *,
    fingerprint: Fingerprint | None,
    trust: Trust | None = None,
    allow_unsigned: bool = False,
    replace: bool = False,
    progress: Progress | None = None,
) -> ImportedPack:
    """Check all of a pack and store its blocks, texts and names.

    ``fingerprint``: the engine's that is to use them (``engine.fingerprint()``), or None to store them for whatever
    engine they are of. ``trust``: the key store, by default the user's. ``replace``: point names that other blocks
    have to the pack's. A block that is there stays as it is, unless it came in a
    pack without a trusted signature and this one has it. Raises InvalidPack, BadSignature, UntrustedPack,
    IncompatibleFingerprint, NameConflict, OverBudget, StoreFull, StoreReadError, each with the store as it was: blocks
    and names that came before the error are taken back.
    """
    with contextlib.ExitStack() as stack:
        opened = pack if isinstance(pack, Pack) else stack.enter_context(open_pack(pack, store_limits=store.limits))
        verdict, contents = admit(opened, trust=trust, allow_unsigned=allow_unsigned, progress=progress)
        return store_pack(opened, contents, verdict, store, fingerprint=fingerprint, replace=replace, progress=progress)


def admit(
    pack: Pack, *, trust: Trust | None = None, allow_unsigned: bool = False, progress: Progress | None = None
) -> tuple[Verdict, Contents]:
    """Steps 1 and 2, which need no store. Raises UntrustedPack, InvalidPack."""
    verdict = (trust or Trust()).decide(pack.path, pack.signed_by, allow_unsigned=allow_unsigned)
    return verdict, check(pack, progress=progress)


def store_pack(
    pack: Pack,
    contents: Contents,
    verdict: Verdict,
    store: BlockStore,
    *,
    fingerprint: Fingerprint | None,
    replace: bool = False,
    progress: Progress | None = None,
) -> ImportedPack:
    """Steps 3 to 5, for a pack that :func:`admit` let in."""
    if fingerprint is not None:
        require_fingerprint(contents, fingerprint)
    new_names, known_names, obsolete = plan_names(pack.path, contents.names, store, replace=replace)
    texts = {named.source_sha256: pack.text(named.source_sha256) for named in new_names if named.source_sha256}
    store.require_room(_missing_bytes(pack, store))
    done = _Done()
    with _undone_on_error(store, new_names, contents.blocks), store.holding(whole=True):
        _put_blocks(pack, contents, verdict, store, done, progress)
        for named in new_names:
            store.set_name(named, texts.get(named.source_sha256 or ""))
    for named in obsolete:
        store.remove_name(named.kind, named.name, named.fingerprint_id)
    return ImportedPack(
        path=pack.path,
        sha256=pack.sha256,
        verdict=verdict,
        created=tuple(done.created),
        known=tuple(done.known),
        kept=tuple(done.kept),
        names=tuple(named.name for named in new_names),
        known_names=tuple(known_names),
    )


def require_fingerprint(contents: Contents, fingerprint: Fingerprint) -> None:
    """Raise IncompatibleFingerprint unless every block has this one."""
    for other in contents.fingerprints.values():
        difference = other.first_difference(fingerprint)
        if difference is not None:
            raise IncompatibleFingerprint(*difference)


# --- names ----------------------------------------------------------------------------------------


def plan_names(
    path: Path, names: tuple[NamedBlock, ...], store: BlockStore, *, replace: bool
) -> tuple[list[NamedBlock], list[str], list[NamedBlock]]:
    """Which names to set, which are right already, which go because their kind changes. Raises NameConflict."""
    there: dict[tuple[str, str], list[NamedBlock]] = {}
    for old in store.names(on_error=lambda _: None):  # a corrupt one is mended by being set
        there.setdefault((folded(old.name), old.fingerprint_id), []).append(old)
    changed, known, obsolete, taken, alike = [], [], [], [], []
    for named in names:
        like = there.get((folded(named.name), named.fingerprint_id), [])
        exact = [old for old in like if old.name == named.name]
        same = [old for old in exact if old.model_copy(update={"source": ""}) == named]
        if like and not exact:
            alike.append(f"its name {named.name!r} could be mistaken for {like[0].name!r}, which the store has")
        elif same:
            known.append(named.name)
            if named.source_sha256 is not None and store.text(named.source_sha256) is None:
                changed.append(same[0])  # set again, for its text
        else:
            changed.append(named)
            taken += [f"the name {named.name!r} {_difference(old, named)}" for old in exact]
            obsolete += [old for old in exact if old.kind != named.kind]
    if alike:
        raise NameConflict(path, alike, ALIKE_HINT)
    if taken and not replace:
        raise NameConflict(path, taken, REPLACE_HINT)
    return changed, known, obsolete


def _difference(old: NamedBlock, new: NamedBlock) -> str:
    if old.block_id != new.block_id:
        return f"points to block {old.block_id[:12]} in the store and to {new.block_id[:12]} in the pack"
    fields = [
        key for key in ("kind", "description", "license", "source_sha256") if getattr(old, key) != getattr(new, key)
    ]
    return f"has another {' and '.join(fields)} in the store"


# --- blocks ---------------------------------------------------------------------------------------


def _missing_bytes(pack: Pack, store: BlockStore) -> int:
    """What the pack's segments and manifests will add to the store, about: its codec may be another."""
    is_there = {"segments": store.segments.has, "manifests": store.exists}
    total = 0
    for member in pack.index.members:
        folder, _, name = member.name.partition("/")
        if folder in is_there and not is_there[folder](name.partition(".")[0]):
            total += member.size
    return total


def _put_blocks(
    pack: Pack, contents: Contents, verdict: Verdict, store: BlockStore, done: _Done, progress: Progress | None
) -> None:
    total = sum(info.raw_bytes for info in contents.blocks.values())
    stored = 0
    for block_id, info in contents.blocks.items():
        manifest = pack.manifest(block_id)
        created = _put_block(store, manifest, pack, verdict)
        same = created or store.manifest(block_id) == manifest
        (done.created if created else done.known if same else done.kept).append(block_id)
        stored += info.raw_bytes
        if progress is not None:
            progress(stored, total, "storing")


def _put_block(store: BlockStore, manifest: Manifest, pack: Pack, verdict: Verdict) -> bool:
    """Store a block and say where it came from; False if it was there.

    The record of a new block comes before it: a crash in between leaves a record of nothing, never a block of unknown
    origin. So a block that is there without one was computed here, and stays so if the pack has the same bytes. A
    trusted record is never replaced by a weaker one.
    """
    identity = manifest.block_id
    record = Import(block_id=identity, pack_sha256=pack.sha256, signed_by=verdict.signed_by, decision=verdict.decision)
    earlier, is_new = store.files.imports.valid(identity), not store.has(identity)
    if is_new:
        store.set_import(record, before=True)
    is_refused = _is_refused(store, identity)
    created = store.put(manifest, pack.segment, replace=is_refused or _outranks(verdict, earlier))
    if is_refused:
        store.forget_refusal(identity)
    if created and not is_new:
        store.set_import(record)
    elif not created and earlier not in (None, record) and store.manifest(identity) == manifest:
        _update(store, earlier, record)
    return created


def _is_refused(store: BlockStore, block_id: str) -> bool:
    """Whether the block is there and could not be restored, so that the pack's state takes its place."""
    known = store.manifest(block_id) if store.has(block_id) else None
    return known is not None and store.refusal(known) is not None


def _update(store: BlockStore, earlier: Import | None, record: Import) -> None:
    if earlier is not None and (earlier.decision != "trusted" or record.decision == "trusted"):
        store.set_import(record)


def _outranks(verdict: Verdict, earlier: Import | None) -> bool:
    """A trusted pack's state takes the place of one that came in without a trusted signature."""
    return verdict.decision == "trusted" and earlier is not None and earlier.decision != "trusted"


@contextlib.contextmanager
def _undone_on_error(store: BlockStore, names: Sequence[NamedBlock], block_ids: Iterable[str]) -> Iterator[None]:
    """If the body raises, these names point where they did, and texts and records that only it needs are gone.

    The blocks themselves are taken back by whoever holds them together.
    """
    before: dict[NamedBlock, NamedBlock | None] = {}
    for named in names:
        before[named] = None
        with contextlib.suppress(StoreError):  # a corrupt one is replaced
            before[named] = store.name(named.kind, named.name, named.fingerprint_id)
    try:
        yield
    except BaseException:
        with contextlib.suppress(StoreError):
            for named, old in before.items():
                if old is not None:
                    store.set_name(old)
                else:
                    store.remove_name(named.kind, named.name, named.fingerprint_id)
            for block_id in block_ids:
                if not store.has(block_id):
                    store.forget_import(block_id)
            with store.files.lock.exclusive():
                remove_unneeded(store.files, {named.source_sha256 for named in names if named.source_sha256})
        raise


# --- texts only -----------------------------------------------------------------------------------


def sources_of(pack: Pack, contents: Contents) -> list[tuple[NamedBlock, Callable[[], str]]]:
    """The names of a pack with their texts, each name once, to be prefilled by another model.

    Raises UsageError if there are no texts, or if one name has several.
    """
    found: dict[tuple[str, str], NamedBlock] = {}
    for named in contents.names:
        if named.source_sha256 is None or pack.text(named.source_sha256) is None:
            raise UsageError(f"the pack holds no source text of {named.name!r}; it can be imported as it is only")
        first = found.setdefault((named.kind, named.name), named)
        if first.source_sha256 != named.source_sha256:
            raise UsageError(f"the pack holds several texts of {named.name!r}, one a model")
    return [(named, lambda digest=named.source_sha256: pack.text(digest) or "") for named in found.values()]  # type: ignore[misc]


def plan_sources(
    path: Path, names: Sequence[NamedBlock], there: Sequence[NamedBlock], *, replace: bool = False
) -> None:
    """Raise NameConflict if texts may not be deposited under ``names``; ``there`` are the names of that model."""
    alike, taken = [], []
    for named in names:
        like = [old for old in there if folded(old.name) == folded(named.name)]
        exact = [old for old in like if old.name == named.name]
        if like and not exact:
            alike.append(f"its name {named.name!r} could be mistaken for {like[0].name!r}, which the store has")
        taken += [
            f"the name {named.name!r} has another text in the store" for old in exact if not _same_text(old, named)
        ]
    if alike:
        raise NameConflict(path, alike, ALIKE_HINT)
    if taken and not replace:
        raise NameConflict(path, taken, REPLACE_HINT)


def _same_text(old: NamedBlock, new: NamedBlock) -> bool:
    return all(getattr(old, key) == getattr(new, key) for key in ("kind", "description", "license", "source_sha256"))


def signers(store: BlockStore) -> dict[str, str]:
    """The key that signed the pack of each imported block, by block id. Warns of a corrupt record."""
    records = store.files.imports.all(store.tell_once)
    return {record.block_id: record.signed_by for record in records if record.signed_by is not None}


def blocks_of(store: BlockStore, keys: Collection[str]) -> list[str]:
    """The ids of blocks signed by one of ``keys``, and of all that are chained to them, children first.

    A block that is chained to a forged state holds it too, whoever deposited it. Raises CorruptBlock, StoreReadError.
    """
    signed = sorted(block_id for block_id, key in signers(store).items() if key in keys)
    there = set(store.block_ids())
    chained = with_descendants(children_of(store.files.parents()), signed)
    return [block_id for block_id in chained if block_id in there]


def names_of(store: BlockStore, block_ids: Collection[str]) -> list[str]:
    """The names that point at these blocks, sorted, each once."""
    return sorted({named.name for named in store.names(on_error=lambda _: None) if named.block_id in block_ids})
