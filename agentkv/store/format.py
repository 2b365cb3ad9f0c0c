"""Bytes on disk to records and back, and the one validator: the same checks before a write and after a read.

It opens no file: it is given bytes and says what they are or why they are refused. FORMAT.md is its prose; a test
compares the two. That a state belongs to its tokens only recomputing it can show.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Iterable
from dataclasses import dataclass
from enum import IntEnum
from itertools import groupby
from typing import TypeVar

import orjson
from pydantic import ValidationError

from agentkv.io.hashing import block_id, canonical_json, sha256, tagged_digest
from agentkv.records import (
    Ancestor,
    Import,
    Manifest,
    ModelName,
    NamedBlock,
    Pin,
    Record,
    Refused,
    SegmentRef,
    SelfTest,
    StoreSettings,
    ThreadEntry,
)

STORE_FORMAT = 1
KNOWN_FORMATS = [1]
SEGMENT_MAGIC = b"AKVSEG\r\n"
SEGMENT_VERSION = 1
MANIFEST_MAGIC = "agentkv-manifest 1"
NAME_MAGIC = "agentkv-name 1"
TEXT_MAGIC = "agentkv-text 1"
PIN_MAGIC = "agentkv-pin 1"
IMPORT_MAGIC = "agentkv-import 1"
REFUSED_MAGIC = "agentkv-refused 1"
SETTINGS_MAGIC = "agentkv-settings 1"
ANCESTOR_MAGIC = "agentkv-ancestor 1"
SELFTEST_MAGIC = "agentkv-selftest 1"
MODEL_MAGIC = "agentkv-model 1"
THREAD_MAGIC = "agentkv-thread 1"
INTENT_MAGIC = "agentkv-intent 1"
TRAILER_BYTES = 32

# Offsets follow from the order; FORMAT.md's byte table is compared with this one by a test.
HEADER_FIELDS = (
    ("magic", "8s"),
    ("version", "H"),
    ("codec", "B"),
    ("element_bytes", "B"),
    ("reserved", "I"),
    ("raw_bytes", "Q"),
    ("stored_bytes", "Q"),
    ("raw_sha256", "32s"),
)
_HEADER = struct.Struct("<" + "".join(kind for _, kind in HEADER_FIELDS))
HEADER_BYTES = _HEADER.size

_DIGEST = re.compile(r"[0-9a-f]{64}")
R = TypeVar("R", bound=Record)


class Malformed(ValueError):
    """Bytes or a record that the format does not allow; whoever knows the file makes a typed error of it."""


class Codec(IntEnum):
    """How a segment's payload is stored."""

    RAW = 0
    ZSTD = 1
    PLANES = 2
    ZEROS = 3


@dataclass(frozen=True)
class Limits:
    """Caps that are checked before anything is allocated, in tokens, segments and bytes."""

    tokens: int = 2**22
    segments: int = 65_536
    raw_bytes: int = 2**38
    manifest_bytes: int = 64 << 20
    name_bytes: int = 64 << 10
    text_bytes: int = 64 << 20


@dataclass(frozen=True)
class SegmentHeader:
    """The fixed head of a segment file. ``raw_bytes`` before, ``stored_bytes`` after encoding."""

    codec: Codec
    element_bytes: int
    raw_bytes: int
    stored_bytes: int
    sha256: str

    @property
    def file_bytes(self) -> int:
        """The exact size of the file."""
        return HEADER_BYTES + self.stored_bytes + TRAILER_BYTES

    def pack(self) -> bytes:
        """The 64 bytes on disk."""
        return _HEADER.pack(
            SEGMENT_MAGIC,
            SEGMENT_VERSION,
            self.codec,
            self.element_bytes,
            0,
            self.raw_bytes,
            self.stored_bytes,
            bytes.fromhex(self.sha256),
        )


def is_digest(text: str) -> bool:
    """Whether ``text`` is 64 lower-case hex digits."""
    return _DIGEST.fullmatch(text) is not None


# --- segments -------------------------------------------------------------------------------------


def read_header(data: bytes, ref: SegmentRef, file_bytes: int) -> SegmentHeader:
    """The header of the file that should hold ``ref``; Malformed if a field, or the file's size, is another.

    The file's ``element_bytes`` may differ from the reference's: it says how *this file* was split, and two
    blocks of other widths may share the bytes (all zeros, say).
    """
    if len(data) != HEADER_BYTES:
        raise Malformed(f"{file_bytes:,} bytes, less than a header")
    magic, version, codec, element_bytes, reserved, raw, stored, digest = _HEADER.unpack(data)
    if magic != SEGMENT_MAGIC:
        raise Malformed("not a segment file")
    if version != SEGMENT_VERSION or reserved != 0:
        raise Malformed(f"segment version {version}, reserved field {reserved}; expected {SEGMENT_VERSION} and 0")
    if digest.hex() != ref.sha256 or raw != ref.n_bytes:
        raise Malformed(f"holds {raw:,} bytes of {digest.hex()[:12]}, not {ref.n_bytes:,} of {ref.sha256[:12]}")
    if codec not in Codec.__members__.values() or element_bytes not in (1, 2, 4):
        raise Malformed(f"codec {codec} with {element_bytes}-byte elements")
    header = SegmentHeader(Codec(codec), element_bytes, raw, stored, ref.sha256)
    if header.codec is Codec.PLANES and (element_bytes == 1 or raw % element_bytes):
        raise Malformed(f"byte planes of {raw:,} bytes in {element_bytes}-byte elements")
    fits = {Codec.RAW: stored == raw, Codec.ZEROS: stored == 0 < raw}.get(header.codec, stored < raw)
    if not fits:
        raise Malformed(f"{stored:,} stored for {raw:,} raw bytes with codec {header.codec.name.lower()}")
    if header.file_bytes != file_bytes:
        raise Malformed(f"{file_bytes:,} bytes, the header says {header.file_bytes:,}")
    return header


# --- sealed JSON records --------------------------------------------------------------------------


def seal(magic: str, body: bytes) -> bytes:
    """One line that names the format and the body's SHA-256, then the body."""
    return f"{magic} {sha256(body)}\n".encode() + body


def unseal(magic: str, data: bytes) -> bytes:
    """The body, if the first line is exactly the one that :func:`seal` would write."""
    line, _, body = data.partition(b"\n")
    if line != f"{magic} {sha256(body)}".encode():
        raise Malformed(f"the first line is not {magic!r} and the SHA-256 of what follows")
    return body


def encode_manifest(manifest: Manifest, limits: Limits) -> bytes:
    """The file's bytes; Malformed if reading them back would be refused."""
    data = encode_record(MANIFEST_MAGIC, manifest)
    if decode_manifest(data, manifest.block_id, limits) != manifest:
        raise Malformed("a value does not survive being written as JSON (NaN?)")
    return data


def decode_manifest(data: bytes, name: str, limits: Limits) -> Manifest:
    """The manifest in a file called ``name``; Malformed unless every check of FORMAT.md holds."""
    _check_size(data, limits.manifest_bytes)
    manifest = decode_record(MANIFEST_MAGIC, data, Manifest)
    if manifest.block_id != name:
        raise Malformed(f"it is the manifest of block {manifest.block_id[:12]}")
    validate_manifest(manifest, limits)
    return manifest


def encode_name(named: NamedBlock, limits: Limits) -> bytes:
    """The file's bytes; Malformed if reading them back would be refused."""
    data = encode_record(NAME_MAGIC, named)
    decode_name(data, name_key(named.kind, named.name, named.fingerprint_id), limits)
    return data


def decode_name(data: bytes, name: str, limits: Limits) -> NamedBlock:
    """The reference in a file called ``name``, which must be the digest of the reference's own key."""
    _check_size(data, limits.name_bytes)
    named = decode_record(NAME_MAGIC, data, NamedBlock)
    if name_key(named.kind, named.name, named.fingerprint_id) != name:
        raise Malformed(f"it is the name file of {named.kind} {named.name!r}")
    return named


def name_key(kind: str, name: str, fingerprint_id: str) -> str:
    """What a name's file is called: a digest, so that no two spellings meet on any file system."""
    return tagged_digest("name/1", kind, name, fingerprint_id)


def encode_text(text: str, limits: Limits) -> tuple[str, bytes]:
    """The SHA-256 of a text's UTF-8 bytes, by which it is called, and its file's bytes."""
    try:
        body = text.encode()
    except UnicodeEncodeError as error:
        raise Malformed(f"the text is not valid Unicode: {error}") from error
    if len(body) > limits.text_bytes:
        raise Malformed(f"a text of {len(body):,} bytes, more than the limit of {limits.text_bytes:,}")
    return sha256(body), seal(TEXT_MAGIC, body)


def decode_text(data: bytes, name: str) -> str:
    """The text in a file called ``name``, the SHA-256 of its UTF-8 bytes."""
    body = unseal(TEXT_MAGIC, data)
    if sha256(body) != name:
        raise Malformed(f"it is text {sha256(body)[:12]}")
    try:
        return body.decode()
    except UnicodeDecodeError as error:
        raise Malformed(f"not UTF-8: {error}") from error


def encode_ancestor(ancestor: Ancestor) -> bytes:
    """The file's bytes."""
    return encode_record(ANCESTOR_MAGIC, ancestor)


def decode_ancestor(data: bytes, name: str, limits: Limits) -> Ancestor:
    """The ids in a file that must be called by the block id that they give."""
    _check_size(data, limits.manifest_bytes)
    ancestor = decode_record(ANCESTOR_MAGIC, data, Ancestor)
    own = len(ancestor.tokens)
    if block_id(ancestor.fingerprint_id, ancestor.parent_id, ancestor.tokens) != name or ancestor.block_id != name:
        raise Malformed("its fingerprint, parent and tokens are those of another block")
    fits = own == ancestor.n_tokens if ancestor.parent_id is None else own < ancestor.n_tokens
    if ancestor.n_tokens > limits.tokens or not fits:
        raise Malformed(f"{own:,} tokens of its own cannot make {ancestor.n_tokens:,}")
    return ancestor


def encode_selftest(test: SelfTest) -> bytes:
    """The file's bytes."""
    return encode_record(SELFTEST_MAGIC, test)


def decode_selftest(data: bytes, name: str) -> SelfTest:
    """The self-test in a file that must be called by its fingerprint."""
    _check_size(data, Limits().name_bytes)
    test = decode_record(SELFTEST_MAGIC, data, SelfTest)
    if test.fingerprint_id != name:
        raise Malformed("it is that of another fingerprint")
    return test


def encode_model(model: ModelName) -> bytes:
    """The file's bytes."""
    return encode_record(MODEL_MAGIC, model)


def decode_model(data: bytes, name: str) -> ModelName:
    """The name in a file that must be called by the model's digest."""
    _check_size(data, Limits().name_bytes)
    model = decode_record(MODEL_MAGIC, data, ModelName)
    if model.model_sha256 != name:
        raise Malformed("it is that of another model")
    return model


def thread_key(thread_id: str) -> str:
    """What a thread's folder is called: a digest, as of names."""
    return tagged_digest("thread/1", thread_id)


def encode_entry(entry: ThreadEntry, limits: Limits) -> bytes:
    """The file's bytes; Malformed if reading them back would be refused."""
    data = encode_record(THREAD_MAGIC, entry)
    decode_entry(data, thread_key(entry.thread_id), entry.seq, limits)
    return data


def decode_entry(data: bytes, key: str, seq: int, limits: Limits) -> ThreadEntry:
    """The entry in the file of number ``seq`` in the folder ``key``."""
    _check_size(data, limits.text_bytes)
    entry = decode_record(THREAD_MAGIC, data, ThreadEntry)
    if thread_key(entry.thread_id) != key or entry.seq != seq:
        raise Malformed(f"it is entry {entry.seq} of thread {entry.thread_id!r}")
    if entry.after >= entry.seq:
        raise Malformed(f"entry {entry.seq} follows entry {entry.after}")
    if (entry.question is None) is not (entry.answer is None):
        raise Malformed("half a turn")
    return entry


def encode_mark(mark: Pin | Import | Refused | StoreSettings) -> bytes:
    """The bytes of a pin, an import, a refusal or the settings."""
    return encode_record(_MARKS[type(mark)], mark)


def decode_mark(kind: type[R], data: bytes, name: str | None = None) -> R:
    """The record in a file that must be called by the id of its block (``name``; None: it is the only one)."""
    _check_size(data, Limits().name_bytes)
    mark = decode_record(_MARKS[kind], data, kind)
    if name is not None and getattr(mark, "block_id", None) != name:
        raise Malformed("it is that of another block")
    return mark


_MARKS: dict[type[Record], str] = {
    Pin: PIN_MAGIC,
    Import: IMPORT_MAGIC,
    Refused: REFUSED_MAGIC,
    StoreSettings: SETTINGS_MAGIC,
}


def encode_intent(digests: Iterable[str]) -> bytes:
    """What a deposit under way is about to write: the digests of its segments."""
    return seal(INTENT_MAGIC, canonical_json(sorted(digests)))


def decode_intent(data: bytes) -> list[str]:
    """The digests that :func:`encode_intent` wrote."""
    try:
        digests = orjson.loads(unseal(INTENT_MAGIC, data))
    except orjson.JSONDecodeError as error:
        raise Malformed("an intent that is not JSON") from error
    if not isinstance(digests, list) or not all(isinstance(item, str) and is_digest(item) for item in digests):
        raise Malformed("an intent that is not a list of digests")
    return digests


@dataclass(frozen=True)
class Summary:
    """What counting and listing need of a manifest.

    ``segments``: raw bytes by digest; ``raw_bytes``: of the whole state; ``content``, ``numerics``: the halves of the
    fingerprint; ``file_bytes``: of the manifest itself.
    """

    parent_id: str | None
    segments: dict[str, int]
    raw_bytes: int
    n_tokens: int
    exactness: str
    content: dict[str, object]
    numerics: dict[str, object]
    file_bytes: int

    @property
    def fingerprint_id(self) -> str:
        """The id of the fingerprint that the block was made with."""
        return tagged_digest("fingerprint/1", self.content, self.numerics)


def summarise(data: bytes) -> Summary:
    """The summary of a manifest's file, from its seal and its JSON alone: ten times quicker than the record."""
    try:
        body = orjson.loads(unseal(MANIFEST_MAGIC, data))
        refs = [(ref["sha256"], ref["n_bytes"]) for ref in body["segments"]]
        return Summary(
            parent_id=body["parent_id"],
            segments=dict(refs),
            raw_bytes=sum(n_bytes for _, n_bytes in refs),
            n_tokens=body["n_tokens"],
            exactness=body["exactness"],
            content=body["fingerprint"]["content"],
            numerics=body["fingerprint"]["numerics"],
            file_bytes=len(data),
        )
    except (orjson.JSONDecodeError, KeyError, TypeError) as error:
        raise Malformed(f"not a manifest: {error}") from error


def encode_marker() -> bytes:
    """``agentkv-store.json``."""
    return canonical_json({"format": STORE_FORMAT}) + b"\n"


def decode_marker(data: bytes) -> object:
    """The store format that a marker names, whatever it is; None if it names none, or this one in other bytes."""
    try:
        marker = orjson.loads(data)
    except orjson.JSONDecodeError:
        return None
    found = marker.get("format") if isinstance(marker, dict) else None
    return None if found == STORE_FORMAT and data != encode_marker() else found


def _check_size(data: bytes, limit: int) -> None:
    if len(data) > limit:
        raise Malformed(f"{len(data):,} bytes, more than the limit of {limit:,}")


def encode_record(magic: str, record: Record) -> bytes:
    """A sealed file of canonical JSON. Raises Malformed for what JSON cannot hold."""
    try:
        return seal(magic, canonical_json(record.on_disk()))
    except (TypeError, ValueError) as error:  # integers over 64 bits, lone surrogates
        raise Malformed(f"cannot be written as JSON: {error}") from error


def decode_record(magic: str, data: bytes, kind: type[R]) -> R:
    """The record in a sealed file; Malformed unless these bytes are the canonical ones of the fields that it has.

    A file of an earlier version lacks fields that came later; they have their defaults.
    """
    body = unseal(magic, data)
    try:
        record = kind.model_validate_json(body, strict=True)
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        raise Malformed(f"{'.'.join(map(str, first['loc'])) or 'body'}: {first['msg']}") from error
    if seal(magic, canonical_json(record.model_dump(mode="json", by_alias=True, exclude_unset=True))) != data:
        raise Malformed("the body is not canonical JSON")
    return record


# --- the validator --------------------------------------------------------------------------------


def validate_manifest(manifest: Manifest, limits: Limits) -> None:
    """Raise Malformed unless the manifest is within ``limits``, whole, and called by its own identity."""
    _check_counts(manifest, limits)
    _check_tiling(manifest)
    expected = block_id(manifest.fingerprint.id, manifest.parent_id, manifest.tokens)
    if manifest.block_id != expected:
        raise Malformed(f"its fingerprint, parent and tokens are those of block {expected[:12]}")


def _check_counts(manifest: Manifest, limits: Limits) -> None:
    own = len(manifest.tokens)
    if manifest.n_tokens > limits.tokens:
        raise Malformed(f"{manifest.n_tokens:,} tokens, more than the limit of {limits.tokens:,}")
    if len(manifest.segments) > limits.segments:
        raise Malformed(f"{len(manifest.segments):,} segments, more than the limit of {limits.segments:,}")
    if own == 0:
        raise Malformed("no tokens of its own")
    if manifest.parent_id is None and own != manifest.n_tokens:
        raise Malformed(f"{own:,} tokens and no parent, but n_tokens is {manifest.n_tokens:,}")
    if manifest.parent_id is not None and own >= manifest.n_tokens:
        raise Malformed(f"{own:,} tokens after a parent, but n_tokens is {manifest.n_tokens:,}")
    raw = sum(ref.n_bytes for ref in manifest.segments)
    if raw > limits.raw_bytes:
        raise Malformed(f"{raw:,} bytes of state, more than the limit of {limits.raw_bytes:,}")


def _check_tiling(manifest: Manifest) -> None:
    sizes: dict[str, int] = {}
    for ref in manifest.segments:
        if sizes.setdefault(ref.sha256, ref.n_bytes) != ref.n_bytes:
            raise Malformed(f"segment {ref.sha256[:12]} is given two sizes")
    groups = [(section, list(refs)) for section, refs in groupby(manifest.segments, key=lambda r: r.section)]
    if [section for section, _ in groups] != list(range(len(manifest.layout.sections))):
        raise Malformed("the segments do not follow the layout's sections")
    for section, refs in groups:
        fixed = manifest.layout.sections[section].fixed_bytes
        if fixed and (len(refs) != 1 or refs[0].n_bytes != fixed):
            raise Malformed(f"section {section} is one segment of {fixed:,} bytes, which the manifest does not have")
        _check_run(section, refs, manifest.n_tokens)


def _check_run(section: int, refs: Iterable[SegmentRef], n_tokens: int) -> None:
    position = 0
    for ref in refs:
        if ref.start != position or ref.stop <= ref.start:
            raise Malformed(f"section {section}: a segment of {ref.start} to {ref.stop} at position {position}")
        position = ref.stop
    if position != n_tokens:
        raise Malformed(f"section {section} covers {position:,} of {n_tokens:,} positions")
