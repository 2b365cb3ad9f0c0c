"""Packs from files: ``open_pack`` reads the index and says where each member is; members are read on demand.

The file is opened once, and what is read of it later is compared with the index again: a file that changes meanwhile
is refused. That the members fit each other is checked by :func:`agentkv.packs.check.check`.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import BinaryIO

import numpy as np

from agentkv.errors import BadSignature, InvalidPack, UsageError
from agentkv.io import fsio
from agentkv.io.forks import OwnedLock
from agentkv.io.hashing import sha256
from agentkv.packs import format as formats
from agentkv.packs import tar
from agentkv.packs.format import (
    INDEX,
    SIGNATURE,
    SIGNED_CONTEXT,
    BadMember,
    Member,
    PackIndex,
    PackLimits,
    decode_segment,
)
from agentkv.records import Manifest, SegmentRef
from agentkv.signing.keys import Signature, is_signed
from agentkv.store.codec import Bytes
from agentkv.store.findings import other_kind_at
from agentkv.store.format import Limits, Malformed, decode_manifest

Progress = Callable[[int, int, str], None]
"""Called with bytes done, bytes in all, and a label."""

_CHUNK = 1 << 20


@contextlib.contextmanager
def open_pack(
    path: Path | str, *, limits: PackLimits | None = None, store_limits: Limits | None = None
) -> Iterator[Pack]:
    """The pack at ``path``: index, sizes and signature are checked, members are not read yet.

    Raises UsageError if there is no such file, InvalidPack, BadSignature, StoreReadError.
    """
    given = Path(path)
    place = Path(os.path.realpath(given))
    other = other_kind_at(place)
    if other is not None:
        raise UsageError(f"{given} is {other}; a pack is one file")
    with fsio.open_regular(place) as opened:
        if opened is None:
            raise UsageError(f"there is no pack {given}")
        yield Pack(given, opened[0], opened[1].st_size, limits or PackLimits(), store_limits or Limits())


class Pack:
    """An open pack. Its methods may be called from several threads; each reads at most one member into memory.

    ``sha256`` is over the bytes of ``pack.json`` and names the content; ``signed_by`` is the key of a signature that
    was checked, or None.
    """

    def __init__(self, path: Path, file: BinaryIO, n_bytes: int, limits: PackLimits, store_limits: Limits) -> None:
        self.path, self.n_bytes, self.limits, self.store_limits = path, n_bytes, limits, store_limits
        self._file, self._lock = file, OwnedLock("pack")
        with self.blaming():
            if n_bytes > limits.pack_bytes:
                raise Malformed(f"{n_bytes:,} bytes, more than the limit of {limits.pack_bytes:,}")
            index, after = self._head_member(0, INDEX, limits.index_bytes)
            with self.blaming(INDEX):
                self.index: PackIndex = formats.decode_index(index, limits)
            signature = None
            second = self._second(after)
            with self.blaming(second):
                if tar.read_header(self._at(after, tar.BLOCK))[0] == SIGNATURE:
                    data, after = self._head_member(after, SIGNATURE, limits.signature_bytes)
                    signature = formats.decode_signature(data)
            self.sha256 = sha256(index)
            self.signed_by = self._checked(index, signature)
            self._places = self._locate(after)

    @contextlib.contextmanager
    def blaming(self, member: str | None = None) -> Iterator[None]:
        """The one place where Malformed becomes InvalidPack, with the member at fault."""
        try:
            yield
        except BadMember as error:
            raise InvalidPack(self.path, str(error), error.member) from error
        except Malformed as error:
            raise InvalidPack(self.path, str(error), member) from error

    def _checked(self, index: bytes, signature: Signature | None) -> str | None:
        if signature is None:
            return None
        if not is_signed(index, signature, SIGNED_CONTEXT):
            raise BadSignature(self.path, signature.key)
        return signature.key

    def _second(self, at: int) -> str | None:
        """What comes after the index, for a message: the signature if its name begins there, else what the index says.

        None where the file ends before that.
        """
        start = self._at(at, max(0, min(tar.MAX_NAME, self.n_bytes - at))).split(b"\0", 1)[0]
        if start and SIGNATURE.encode().startswith(start):
            return SIGNATURE
        return self.index.members[0].name if start and self.index.members else None

    def _head_member(self, at: int, name: str, limit: int) -> tuple[bytes, int]:
        """A member whose size is in its header only, and where the next one starts."""
        head = self._at(at, min(tar.BLOCK, max(0, self.n_bytes - at)))
        if at == 0 and not head.startswith(name.encode() + b"\0"):
            raise Malformed(f"it is not a pack: a pack begins with {name}")
        found, size = tar.read_header(self._at(at, tar.BLOCK))
        if found != name:
            raise Malformed(f"{found!r} is where {name} has to be")
        if size > limit:
            raise BadMember(name, f"{size:,} bytes, more than the limit of {limit:,}")
        data = self._at(at + tar.BLOCK, size)
        self._check_padding(name, at + tar.BLOCK + size, tar.padding(size))
        return data, at + tar.span(size)

    def _locate(self, at: int) -> dict[str, tuple[Member, int]]:
        """Where each member's bytes start. Only sizes are compared: the file's has to be their sum."""
        places = {}
        for member in self.index.members:
            places[member.name] = (member, at + tar.BLOCK)
            at += tar.span(member.size)
        if at + len(tar.END) != self.n_bytes:
            raise Malformed(f"{self.n_bytes:,} bytes; with the members of its index it has {at + len(tar.END):,}")
        return places

    # --- members ---

    def check_frames(self) -> None:
        """Compare every header, every padding and the end with what follows from the index. Raises InvalidPack."""
        end = self.n_bytes - len(tar.END)
        for member, at in self._places.values():
            with self.blaming(member.name):
                if self._at(at - tar.BLOCK, tar.BLOCK) != tar.header(member.name, member.size):
                    tar.read_header(self._at(at - tar.BLOCK, tar.BLOCK))
                    raise Malformed("its header has another name or size than the index")
                self._check_padding(member.name, at + member.size, tar.padding(member.size))
        with self.blaming():
            if self._at(end, len(tar.END)) != tar.END:
                raise Malformed("it does not end in two zero blocks")

    def member(self, name: str) -> Member:
        """What the index says of a member that is there."""
        return self._places[name][0]

    def has(self, name: str) -> bool:
        """Whether there is such a member."""
        return name in self._places

    def read(self, name: str) -> Bytes:
        """A member's bytes, uint8 of shape (size,), with the SHA-256 of the index. Raises InvalidPack."""
        member, at = self._places[name]
        with self.blaming(name):
            data = np.empty(member.size, np.uint8)
            self._fill(at, data)
            if hashlib.sha256(data.data).hexdigest() != member.sha256:
                raise Malformed("its bytes do not have the SHA-256 of the index")
        return data

    def check_digest(self, name: str) -> None:
        """Like :meth:`read`, a chunk at a time: for members of any size."""
        member, at = self._places[name]
        digest, piece = hashlib.sha256(), np.empty(min(member.size, _CHUNK), np.uint8)
        with self.blaming(name):
            for start in range(0, member.size, _CHUNK):
                part = piece[: min(_CHUNK, member.size - start)]
                self._fill(at + start, part)
                digest.update(part.data)
            if digest.hexdigest() != member.sha256:
                raise Malformed("its bytes do not have the SHA-256 of the index")

    def manifest(self, block_id: str) -> Manifest:
        """A block's manifest. Raises InvalidPack."""
        name = formats.member_name("manifests", block_id)
        with self.blaming(name):
            limit = self.store_limits.manifest_bytes
            if self._places[name][0].size > limit:
                raise Malformed(f"{self._places[name][0].size:,} bytes, more than the limit of {limit:,}")
            return decode_manifest(self.read(name).tobytes(), block_id, self.store_limits)

    def segment(self, ref: SegmentRef) -> Bytes:
        """A segment's raw bytes, uint8 of shape (n_bytes,), checked wholly. Raises InvalidPack."""
        name = formats.member_name("segments", ref.sha256)
        with self.blaming(name):
            return decode_segment(self.read(name), ref)

    def text(self, digest: str, folder: str = "sources") -> str | None:
        """A source or licence text; None if the pack has none of that digest. Raises InvalidPack."""
        name = formats.member_name(folder, digest)
        if name not in self._places:
            return None
        with self.blaming(name):
            try:
                return self.read(name).tobytes().decode()
            except UnicodeDecodeError as error:
                raise Malformed(f"it is not UTF-8: {error}") from error

    def texts(self, folder: str) -> list[str]:
        """The digests of the texts in ``sources`` or ``licenses``."""
        found = map(formats.parse_member, self._places)
        return [digest for home, digest in found if home == folder]

    # --- bytes ---

    def _at(self, at: int, n_bytes: int) -> bytes:
        if at + n_bytes > self.n_bytes:  # before anything is allocated
            raise Malformed(f"cut short at byte {self.n_bytes:,}")
        data = np.empty(n_bytes, np.uint8)
        self._fill(at, data)
        return data.tobytes()

    def _fill(self, at: int, into: Bytes) -> None:
        with self._lock:
            self._file.seek(at)
            got = fsio.read_fully(self._file, into.data) if into.size else 0
        if got != into.size:
            raise Malformed(f"cut short at byte {at + got:,} while it was read")

    def _check_padding(self, name: str, at: int, n_bytes: int) -> None:
        if self._at(at, n_bytes) != bytes(n_bytes):
            raise BadMember(name, "the bytes that fill its last block are not zero")
