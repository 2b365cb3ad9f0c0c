"""Packs for tests: small ones, and ones put together from parts so that only the wanted thing is wrong."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import orjson

from agentkv.io.hashing import canonical_json, sha256
from agentkv.packs import create_pack, tar
from agentkv.packs.format import INDEX, INDEX_MAGIC, SIGNATURE, SIGNATURE_MAGIC, SIGNED_CONTEXT
from agentkv.records import Manifest, NamedBlock
from agentkv.signing.keys import SigningKey
from agentkv.store.catalog import BlockStore
from agentkv.store.format import encode_record, seal
from tests.store.blocks import block, named

Members = list[tuple[str, bytes]]
TEXT = "Readers are returned within 30 days.\n"


def key(seed: int = 1) -> SigningKey:
    """The same key pair for the same seed."""
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

    return SigningKey(Ed25519PrivateKey.from_private_bytes(bytes([seed]) * 32))


def small_blocks() -> list[tuple[Manifest, dict[str, bytes]]]:
    parent = block([1, 2, 3, 4], n_bytes=64)
    return [parent, block([5, 6, 7], parent=parent[0], n_bytes=64)]


def small_names(parent: Manifest, child: Manifest) -> list[NamedBlock]:
    returns = named(child, "returns").model_copy(update={"source_sha256": sha256(TEXT.encode()), "license": "MIT"})
    return [named(parent, "prefix", "text"), returns]


def fill(store: BlockStore) -> None:
    """Two blocks and their names."""
    blocks = small_blocks()
    for manifest, segments in blocks:
        store.put(manifest, segments)
    for entry in small_names(*(manifest for manifest, _ in blocks)):
        store.set_name(entry, TEXT if entry.source_sha256 else None)


def small_pack(folder: Path, **how: Any) -> Path:
    with BlockStore(folder / "origin") as store:
        fill(store)
        return create_pack(store, folder / "small.akvpack", licenses=["Do as you like.\n"], **how).path


def members_of(data: bytes) -> Members:
    """The files in a pack, read without the package's reader."""
    found, at = [], 0
    while data[at : at + 1] not in (b"\0", b""):
        name = data[at : at + 100].rstrip(b"\0").decode()
        size = int(data[at + 124 : at + 135], 8)
        found.append((name, data[at + 512 : at + 512 + size]))
        at += 512 + size + -size % 512
    return found


def archive(members: Sequence[tuple[str, bytes]]) -> bytes:
    """Members as they are, with valid headers and end."""
    return b"".join(tar.header(n, len(d)) + d + bytes(-len(d) % 512) for n, d in members) + tar.END


def json_bytes(value: Any) -> bytes:
    """Canonical JSON, also of what orjson will not write: integers over 64 bits."""
    try:
        return canonical_json(value)
    except TypeError:
        return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False).encode()


def body_of(data: bytes) -> Any:
    """The JSON of a sealed file."""
    return orjson.loads(data.split(b"\n", 1)[1])


def rebuilt(
    data: bytes,
    change: Callable[[Members], Members | None] = lambda _: None,
    index: Callable[[dict[str, Any]], object] = lambda _: None,
    signer: SigningKey | None = None,
) -> bytes:
    """A pack whose members were changed by ``change`` and whose index, made again for them, by ``index``."""
    (_, head), *rest = members_of(data)
    rest = [(name, body) for name, body in rest if name != SIGNATURE]
    rest = change(rest) or rest
    body = body_of(head)
    body["members"] = [{"name": name, "sha256": sha256(data), "size": len(data)} for name, data in rest]
    index(body)
    sealed = seal(INDEX_MAGIC, json_bytes(body))
    front = [(INDEX, sealed)]
    if signer is not None:
        front.append((SIGNATURE, encode_record(SIGNATURE_MAGIC, signer.sign(sealed, SIGNED_CONTEXT))))
    return archive(front + rest)


def resealed_manifest(data: bytes, change: Callable[[dict[str, Any]], None]) -> bytes:
    """A manifest file with another body and the right seal."""
    body = body_of(data)
    change(body)
    return seal("agentkv-manifest 1", json_bytes(body))
