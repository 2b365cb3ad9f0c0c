"""Records of a pack to bytes and back, and the one validator of its index; all limits.

FORMAT.md is its prose; a test compares the two. Whether a member is what the index says is checked by whoever reads it.
"""

from __future__ import annotations

import hashlib
import re
import unicodedata
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import pairwise
from typing import Annotated, Literal, TypeVar

import numpy as np
from pydantic import Field

from agentkv.errors import UsageError
from agentkv.io.fsio import Buffer
from agentkv.packs.tar import MAX_MEMBER_BYTES, MAX_NAME
from agentkv.records import NamedBlock, Record, SegmentRef, Sha256
from agentkv.router.base import NONE
from agentkv.signing.keys import Signature
from agentkv.store import codec as codecs
from agentkv.store import format as formats
from agentkv.store.codec import Bytes
from agentkv.store.format import (
    HEADER_BYTES,
    TRAILER_BYTES,
    Codec,
    Malformed,
    decode_record,
    encode_record,
    read_header,
)
from agentkv.store.segments import CODECS, segment_file

INDEX = "pack.json"
SIGNATURE = "signature.json"
INDEX_MAGIC = "agentkv-pack 1"
SIGNATURE_MAGIC = "agentkv-pack-signature 1"
SIGNED_CONTEXT = b"agentkv-pack-signature/1\0"

FOLDERS = {"manifests": ".json", "segments": ".seg", "sources": ".txt", "licenses": ".txt"}
"""Folders in the order in which their members come, and what a name in each ends with."""

_MEMBER = re.compile(r"([a-z]+)/([0-9a-f]{64})(\.[a-z]+)")
_SEGMENT_OVERHEAD = formats.HEADER_BYTES + formats.TRAILER_BYTES
R = TypeVar("R", bound=Record)


class BadMember(Malformed):
    """What is wrong with one member."""

    def __init__(self, member: str, reason: str) -> None:
        super().__init__(reason)
        self.member = member


@dataclass(frozen=True)
class PackLimits:
    """Caps of a pack, checked before anything of that size is allocated; the store's own limits hold besides.

    ``expansion``: all segments together may decode to so many times their stored bytes, and ``expansion_free``
    bytes more. For what a model computes the factor is under 8, for a decompression bomb over 10,000.
    """

    pack_bytes: int = 2**40
    index_bytes: int = 16 << 20
    signature_bytes: int = 4096
    members: int = 65_536
    segment_bytes: int = 2**30
    text_bytes: int = 16 << 20
    licenses: int = 16
    fingerprints: int = 64
    fingerprint_bytes: int = 64 << 10
    expansion: int = 32
    expansion_free: int = 16 << 20


class Member(Record):
    """A file of the pack: its size in bytes and the SHA-256 of its bytes."""

    name: Annotated[str, Field(max_length=MAX_NAME)]
    size: Annotated[int, Field(ge=0, le=MAX_MEMBER_BYTES)]
    sha256: Sha256


class PackIndex(Record):
    """``pack.json``: the blocks, parents first; the names; every member after the signature's place, in order."""

    format: Literal[1] = 1
    blocks: Annotated[tuple[Sha256, ...], Field(min_length=1)]
    names: tuple[NamedBlock, ...]
    members: tuple[Member, ...]


# --- sealed records -------------------------------------------------------------------------------


def encode_index(index: PackIndex, limits: PackLimits) -> bytes:
    """``pack.json``; Malformed if reading it back would be refused."""
    data = encode_record(INDEX_MAGIC, index)
    decode_index(data, limits)
    return data


def decode_index(data: bytes, limits: PackLimits) -> PackIndex:
    """The index in ``pack.json``; Malformed unless every check of FORMAT.md that needs no other member holds."""
    if len(data) > limits.index_bytes:
        raise Malformed(f"{len(data):,} bytes, more than the limit of {limits.index_bytes:,}")
    index = decode_record(INDEX_MAGIC, data, PackIndex)
    validate_index(index, limits)
    return index


def decode_signature(data: bytes) -> Signature:
    """The record in ``signature.json``; whether the signature is right is not looked at."""
    return decode_record(SIGNATURE_MAGIC, data, Signature)


# --- the validator of the index -------------------------------------------------------------------


def member_name(folder: str, digest: str) -> str:
    """``folder/<digest>`` with the folder's suffix."""
    return f"{folder}/{digest}{FOLDERS[folder]}"


def parse_member(name: str) -> tuple[str, str]:
    """Folder and digest of a member's name; BadMember for every other spelling."""
    found = _MEMBER.fullmatch(name)
    if found is None or FOLDERS.get(found[1]) != found[3]:
        raise BadMember(name, "not the name of a pack member")
    return found[1], found[2]


def validate_index(index: PackIndex, limits: PackLimits) -> None:
    """Raise Malformed unless blocks, names and members fit each other, come in their order, and are within limits."""
    if len(index.members) > limits.members:
        raise Malformed(f"{len(index.members):,} members, more than the limit of {limits.members:,}")
    held = _check_members(index.members, limits)
    if held["manifests"] != list(index.blocks) or len(set(index.blocks)) != len(index.blocks):
        raise Malformed("the manifests are not those of the blocks, in their order, each once")
    for folder in ("segments", "sources", "licenses"):
        if any(a >= b for a, b in pairwise(held[folder])):
            raise Malformed(f"the members in {folder}/ are not sorted, or one is there twice")
    if len(held["licenses"]) > limits.licenses:
        raise Malformed(f"{len(held['licenses']):,} licence texts, more than the limit of {limits.licenses}")
    _check_names(index)
    needed = {named.source_sha256 for named in index.names if named.source_sha256 is not None}
    if held["sources"] and set(held["sources"]) != needed:
        raise Malformed("there are source texts, and not exactly those of the names")


def _check_members(members: Iterable[Member], limits: PackLimits) -> dict[str, list[str]]:
    """Digests by folder. Raises BadMember for a name, an order or a size that may not be."""
    held: dict[str, list[str]] = {folder: [] for folder in FOLDERS}
    order, last = list(FOLDERS), 0
    caps = {"segments": limits.segment_bytes + _SEGMENT_OVERHEAD, "manifests": limits.pack_bytes}
    for member in members:
        folder, digest = parse_member(member.name)
        if order.index(folder) < last:
            raise BadMember(member.name, f"it comes after the members in {order[last]}/")
        last = order.index(folder)
        cap = caps.get(folder, limits.text_bytes)
        if member.size > cap:
            raise BadMember(member.name, f"{member.size:,} bytes, more than the limit of {cap:,}")
        if FOLDERS[folder] == ".txt" and member.sha256 != digest:
            raise BadMember(member.name, "a text is called by another digest than its own")
        held[folder].append(digest)
    return held


def name_order(named: NamedBlock) -> tuple[str, str, str]:
    """By what names are sorted in an index."""
    return named.kind, named.name, named.fingerprint_id


def folded(name: str) -> str:
    """A name without case and Unicode forms: two names that agree in it could be mistaken for each other."""
    return unicodedata.normalize("NFKC", unicodedata.normalize("NFKC", name).casefold())


def _check_names(index: PackIndex) -> None:
    blocks, seen = set(index.blocks), dict[tuple[str, str], str]()
    keys = [name_order(named) for named in index.names]
    if any(a >= b for a, b in pairwise(keys)):
        raise Malformed("the names are not sorted, or one is there twice")
    for named in index.names:
        if named.block_id not in blocks:
            raise Malformed(f"the name {named.name!r} points to a block that is not in the pack")
        if named.source:
            raise Malformed(f"the name {named.name!r} has a source path ({named.source[:40]!r}); in a pack none may")
        if named.name != named.name.strip() or named.name.casefold() == NONE:
            raise Malformed(f"{named.name!r} cannot be a name")
        first = seen.setdefault((folded(named.name), named.fingerprint_id), named.name)
        if first is not named.name:
            raise Malformed(f"the names {first!r} and {named.name!r} could be mistaken for each other")


LEVEL = 3


def encode_segment(raw: Bytes, ref: SegmentRef, codec: str) -> list[Buffer]:
    """The file in parts, valid until this thread encodes another. ``codec``: planes, zstd or raw."""
    if codec not in CODECS:
        raise UsageError(f"codec is {codec!r}, must be one of {', '.join(CODECS)}")
    return segment_file(raw, ref, CODECS[codec], LEVEL)


def check_segment_size(ref: SegmentRef, file_bytes: int) -> None:
    """Raise Malformed if no file of that size can hold ``ref``."""
    if not HEADER_BYTES + TRAILER_BYTES <= file_bytes <= HEADER_BYTES + ref.n_bytes + TRAILER_BYTES:
        raise Malformed(f"{file_bytes:,} bytes cannot hold a segment of {ref.n_bytes:,}")


def decode_segment(file: Bytes, ref: SegmentRef) -> Bytes:
    """The raw bytes, uint8 of shape (n_bytes,); Malformed unless header, trailer, frame and digest are ``ref``'s.

    Everything that can be checked without decoding is checked before the output is allocated.
    """
    header = read_header(file[:HEADER_BYTES].tobytes(), ref, file.size)
    payload = file[HEADER_BYTES : file.size - TRAILER_BYTES]
    if hashlib.sha256(file[: file.size - TRAILER_BYTES].data).digest() != file[file.size - TRAILER_BYTES :].tobytes():
        raise Malformed("the bytes do not have the SHA-256 in the trailer")
    if header.codec in (Codec.ZSTD, Codec.PLANES):
        codecs.check_frame(payload, ref.n_bytes)
    out = np.empty(ref.n_bytes, np.uint8)
    codecs.decode(payload, header.codec, header.element_bytes, out)
    if hashlib.sha256(out.data).hexdigest() != ref.sha256:
        raise Malformed("the decoded bytes have another SHA-256")
    return out
