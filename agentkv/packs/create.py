"""Making a pack of a store's blocks: deterministic, streamed, atomic.

The same blocks, names, texts and codec give the same bytes, from any store, on any machine with the same zstd.
Every segment is encoded twice, once to know its size and digest for the index and once to write it, so that
neither the pack nor a copy of it is ever in memory or twice on disk.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import shlex
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from agentkv.errors import MissingSegment, StoreReadError, UnknownBlock, UsageError
from agentkv.io import fsio
from agentkv.io.fsio import Buffer
from agentkv.io.hashing import sha256
from agentkv.packs import format as formats
from agentkv.packs import tar
from agentkv.packs.format import (
    INDEX,
    SIGNATURE,
    SIGNATURE_MAGIC,
    SIGNED_CONTEXT,
    BadMember,
    Member,
    PackIndex,
    PackLimits,
    encode_segment,
    folded,
    member_name,
    name_order,
)
from agentkv.packs.reader import Progress
from agentkv.records import Manifest, NamedBlock, SegmentRef
from agentkv.signing.keys import SigningKey
from agentkv.store.catalog import BlockStore
from agentkv.store.format import Malformed, encode_manifest, encode_record
from agentkv.store.segments import CODECS

Parts = Sequence[Buffer]


@dataclass(frozen=True)
class CreatedPack:
    """What was written. ``sha256`` is over the index and names the content; ``n_bytes`` is the file's size."""

    path: Path
    sha256: str
    n_bytes: int
    names: tuple[str, ...]
    blocks: int
    segments: int
    sources: int
    signed_by: str | None


def create_pack(
    store: BlockStore,
    path: Path | str,
    *,
    names: Sequence[NamedBlock] | None = None,
    block_ids: Sequence[str] = (),
    sources: bool = True,
    licenses: Sequence[str] = (),
    codec: str = "planes",
    signer: SigningKey | None = None,
    replace: bool = False,
    progress: Progress | None = None,
    limits: PackLimits | None = None,
) -> CreatedPack:
    """Write the blocks of ``names`` (None: all names, unless ``block_ids`` are given) and their parents to ``path``.

    ``sources=False`` leaves the source texts out; ``licenses`` are texts for the whole pack; ``codec`` is planes,
    zstd or raw. Places where texts came from are never written. Raises UsageError, UnknownBlock, CorruptBlock,
    MissingSegment, StoreFull, StoreReadError; then ``path`` is as it was.
    """
    target = Path(path)
    refuse_target(target, replace=replace)
    if codec not in CODECS:
        raise UsageError(f"codec is {codec!r}, must be one of {', '.join(CODECS)}")
    if names is None:
        names = [] if block_ids else store.names()
    making = _Making(store, select(store, names, block_ids), sources, licenses, codec)
    total = 2 * sum(ref.n_bytes for ref in making.selection.segments.values())
    # 1. Sizes and digests of all members.
    members = making.measure(_Steps(progress, total))
    index = PackIndex(blocks=making.selection.block_ids, names=making.selection.names, members=tuple(members))
    try:
        head = formats.encode_index(index, limits or PackLimits())
    except Malformed as error:
        at = f"{error.member}: " if isinstance(error, BadMember) else ""
        raise UsageError(f"this cannot be one pack: {at}{error}") from error
    # 2. The file.
    with writing(target, replace=replace) as write:
        n_bytes = _write_member(write, INDEX, [head])
        if signer is not None:
            signature = encode_record(SIGNATURE_MAGIC, signer.sign(head, SIGNED_CONTEXT))
            n_bytes += _write_member(write, SIGNATURE, [signature])
        n_bytes += making.write(write, members, _Steps(progress, total, total // 2))
        write(tar.END)
    return CreatedPack(
        path=target,
        sha256=sha256(head),
        n_bytes=n_bytes + len(tar.END),
        names=tuple(named.name for named in index.names),
        blocks=len(index.blocks),
        segments=len(making.selection.segments),
        sources=len(making.sources),
        signed_by=signer.public if signer else None,
    )


class _Making:
    """The members of one pack, made again each time."""

    def __init__(
        self, store: BlockStore, selection: Selection, sources: bool, licenses: Sequence[str], codec: str
    ) -> None:
        self.store, self.selection, self._codec = store, selection, codec
        self.sources = self._sources() if sources else []
        self._licenses = {sha256(text.encode()): text for text in licenses}

    def _sources(self) -> list[str]:
        found = {}
        for named in self.selection.names:
            if named.source_sha256 is not None and named.source_sha256 not in found:
                if self.store.text(named.source_sha256) is None:
                    raise UsageError(self._no_text(named))
                found[named.source_sha256] = named
        return sorted(found)

    def _no_text(self, packed: NamedBlock) -> str:
        """Why there is no pack with that name's text, and what makes one possible."""
        named = self.store.name(packed.kind, packed.name, packed.fingerprint_id) or packed
        why = "it was lost"
        if self.store.imported(named.block_id) is not None:
            why = "it was lost, or the block came with a pack that had no texts"
        called = f" --name {shlex.quote(named.name)}" if named.kind == "text" else ""
        return (
            f"the store does not have the source text of {named.name!r}: {why}. Run `agentkv deposit"
            f"{called} {shlex.quote(named.source) or 'PATH'}` (`agentkv check --repair` has the whole command), or "
            "leave all texts out with --no-sources (sources=False)."
        )

    def members(self, step: _Steps) -> Iterator[tuple[str, Parts]]:
        for block_id in self.selection.block_ids:
            manifest = self.store.manifest(block_id)
            if manifest is None:
                raise UnknownBlock(block_id, "It was removed while it was packed.")
            yield member_name("manifests", block_id), [encode_manifest(manifest, self.store.limits)]
        for digest, ref in self.selection.segments.items():
            raw = self.store.segments.get(ref, deep=True)
            if raw is None:
                raise MissingSegment(self._holder(digest), digest, Path(self.store.segments.where(digest)))
            yield member_name("segments", digest), encode_segment(raw, ref, self._codec)
            step.add(ref.n_bytes)
        for digest in self.sources:
            yield member_name("sources", digest), [(self.store.text(digest) or "").encode()]
        for digest, text in sorted(self._licenses.items()):
            yield member_name("licenses", digest), [text.encode()]

    def _holder(self, digest: str) -> str:
        for block_id in self.selection.block_ids:
            manifest = self.store.manifest(block_id)
            if manifest is not None and any(ref.sha256 == digest for ref in manifest.segments):
                return block_id
        return digest

    def measure(self, step: _Steps) -> list[Member]:
        return [_measured(name, parts) for name, parts in self.members(step)]

    def write(self, write: Write, members: Sequence[Member], step: _Steps) -> int:
        n_bytes = 0
        for member, (name, parts) in zip(members, self.members(step), strict=True):
            if _measured(name, parts) != member:
                raise StoreReadError(self.store.root, f"{name} changed while it was packed; run the command again")
            n_bytes += _write_member(write, name, parts)
        return n_bytes


def _measured(name: str, parts: Parts) -> Member:
    digest = hashlib.sha256()
    for part in parts:
        digest.update(part)
    return Member(name=name, size=sum(memoryview(part).nbytes for part in parts), sha256=digest.hexdigest())


def _write_member(write: Write, name: str, parts: Parts) -> int:
    size = sum(memoryview(part).nbytes for part in parts)
    write(tar.header(name, size))
    for part in parts:
        write(part)
    write(bytes(tar.padding(size)))
    return tar.span(size)


class _Steps:
    """Progress by raw bytes; each is encoded twice."""

    def __init__(self, progress: Progress | None, total: int, done: int = 0) -> None:
        self._progress, self._total, self._done = progress, total, done

    def add(self, n_bytes: int) -> None:
        self._done += n_bytes
        if self._progress is not None:
            self._progress(self._done, self._total, "packing")


@dataclass(frozen=True)
class Selection:
    """Blocks by depth, then by id; names as a pack has them; one reference for each segment, by digest."""

    block_ids: tuple[str, ...]
    names: tuple[NamedBlock, ...]
    segments: dict[str, SegmentRef]


def select(store: BlockStore, names: Sequence[NamedBlock], block_ids: Sequence[str] = ()) -> Selection:
    """The closure of ``names`` and ``block_ids`` over parents. Raises UsageError, UnknownBlock, CorruptBlock."""
    depth: dict[str, int] = {}
    for block_id in [*(named.block_id for named in names), *block_ids]:
        _add_chain(store, block_id, depth)
    if not depth:
        raise UsageError("there is nothing to pack: the store has no such names. Run `agentkv list`.")
    order = sorted(depth, key=lambda block_id: (depth[block_id], block_id))
    refs: dict[str, SegmentRef] = {}
    for block_id in order:
        for ref in _manifest(store, block_id).segments:
            refs.setdefault(ref.sha256, ref)
    return Selection(tuple(order), _packed(names), dict(sorted(refs.items())))


def _manifest(store: BlockStore, block_id: str) -> Manifest:
    manifest = store.manifest(block_id)
    if manifest is None:
        raise UnknownBlock(block_id, "A name points to it, or it is a block's parent; deposit the text again.")
    return manifest


def _add_chain(store: BlockStore, block_id: str, depth: dict[str, int]) -> None:
    """Enter a block and its parents; ``depth`` counts the links above a block."""
    chain = [block_id]
    while chain[-1] not in depth and (parent := _manifest(store, chain[-1]).parent_id) is not None:
        chain.append(parent)
    for parent, link in zip([None, *reversed(chain)], reversed(chain), strict=False):
        depth.setdefault(link, 0 if parent is None else depth[parent] + 1)


def _packed(names: Sequence[NamedBlock]) -> tuple[NamedBlock, ...]:
    """The names without their places, sorted. Raises UsageError for two that a person would take for one."""
    found: dict[tuple[str, str], NamedBlock] = {}
    for named in names:
        first = found.setdefault((folded(named.name), named.fingerprint_id), named)
        if (first.kind, first.name) != (named.kind, named.name):
            raise UsageError(
                f"the names {first.name!r} ({first.kind}) and {named.name!r} ({named.kind}) could be mistaken for each "
                "other in one pack. Name the ones that you want."
            )
    return tuple(sorted((named.model_copy(update={"source": ""}) for named in found.values()), key=name_order))


Write = Callable[[fsio.Buffer], None]


@contextlib.contextmanager
def writing(target: Path, *, replace: bool) -> Iterator[Write]:
    """A function that appends bytes to what becomes ``target`` when the ``with`` ends without an error.

    Raises UsageError if something is there and ``replace`` is not asked for, StoreFull, StoreReadError.
    """
    refuse_target(target, replace=replace)
    temporary = fsio.temporary_beside(target)
    written = 0

    def write(data: fsio.Buffer) -> None:
        nonlocal written
        view = memoryview(data).cast("B")
        written += view.nbytes
        while view:
            view = view[os.write(fd, view) :]

    try:
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_BINARY", 0) | getattr(os, "O_NOFOLLOW", 0)
        fd = os.open(temporary, flags, 0o644)
        with fsio.removed_on_error(temporary):
            try:
                yield write
                os.fsync(fd)
            finally:
                os.close(fd)
            fsio.replace(temporary, target)
            fsio.sync_directory(target.parent)
    except OSError as error:
        raise fsio.translated(error, target, written) from error


def refuse_target(target: Path, *, replace: bool) -> None:
    """Raise UsageError unless a file may be written at ``target``."""
    if not target.parent.is_dir():
        raise UsageError(f"there is no folder {target.parent}")
    if not os.path.lexists(target):
        return
    if target.is_symlink() or not target.is_file():
        raise UsageError(f"{target} is not a plain file; choose another path")
    if not replace:
        raise UsageError(f"{target} is there already. Choose another path, or add --force (replace=True).")
