"""Anchors: published, signed or kept elsewhere, so that a cut or rewritten end of a ledger shows.

An anchor is trusted for where it was kept, or for the key that signed it; whose key that is, people have to know.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from agentkv.errors import LedgerDamaged, UsageError
from agentkv.evidence.records import ANCHOR_MAGIC, ANCHOR_PREFIX, Anchor, SignedAnchor
from agentkv.io import fsio
from agentkv.io.hashing import canonical_json
from agentkv.signing.keys import SigningKey, is_signed
from agentkv.signing.trust import is_weak
from agentkv.store.format import Malformed, decode_record, encode_record

FOLDER = "anchors"
SIGNED_CONTEXT = b"agentkv-ledger-anchor/1\0"
_LIMIT = 64 << 10
_TEXT = re.compile(re.escape(ANCHOR_PREFIX) + r"([0-9a-f]{32}):(\d{1,15}):([0-9a-f]{64})")


@dataclass(frozen=True)
class Given:
    """An anchor, its source, and the key whose signature over it is valid, or None."""

    source: str
    anchor: Anchor
    signed_by: str | None


def sign(anchor: Anchor, key: SigningKey) -> SignedAnchor:
    """The anchor with a signature by ``key``."""
    return SignedAnchor(anchor=anchor, signature=key.sign(_bytes(anchor), SIGNED_CONTEXT))


def write(anchor: SignedAnchor, path: Path) -> None:
    """Write an anchor to a file. Raises StoreFull, StoreReadError."""
    fsio.write_durably(path, [encode_record(ANCHOR_MAGIC, anchor)])


def place_of(folder: Path, anchor: Anchor) -> Path:
    """The path of a ledger's own copy of a signed anchor."""
    return folder / FOLDER / f"{anchor.count:09}-{anchor.head[:16]}.json"


def read(path: Path) -> Given:
    """The anchor in a file, its signature checked. Raises LedgerDamaged, UsageError if the file does not exist."""
    data = fsio.read_regular(path, _LIMIT)
    if data is None:
        raise UsageError(f"there is no anchor {path}")
    try:
        found = decode_record(ANCHOR_MAGIC, data, SignedAnchor)
    except Malformed as error:
        raise LedgerDamaged(path, [f"the anchor was changed, or is not one: {error}"]) from error
    signature = found.signature
    if signature is None:
        return Given(path.name, found.anchor, None)
    if is_weak(signature.key) or not is_signed(_bytes(found.anchor), signature, SIGNED_CONTEXT):
        raise LedgerDamaged(path, [f"the signature of the anchor is not one of {signature.key}"])
    return Given(path.name, found.anchor, signature.key)


def parse(text: str) -> Given:
    """An anchor given as the line that ``agentkv evidence head`` prints, or as a file; see :func:`read`."""
    found = _TEXT.fullmatch(text.strip())
    if found is None:
        if text.startswith(ANCHOR_PREFIX):
            raise UsageError(f"{text[:120]!r} is not an anchor: {ANCHOR_PREFIX}<32 hex>:<number of records>:<64 hex>")
        return read(Path(text))
    ledger, count, head = found.groups()
    return Given("the given anchor", Anchor(ledger=ledger, count=int(count), head=head, time=""), None)


def kept_anchors(folder: Path) -> list[Given]:
    """The signed anchors that the ledger in ``folder`` keeps. Raises LedgerDamaged for one that was changed."""
    return [read(path) for path, _ in fsio.files_in(folder / FOLDER) if path.suffix == ".json"]


def require_signed(given: Sequence[Given], key: str) -> None:
    """Raise UsageError unless one of the anchors is signed by ``key``."""
    if all(known.signed_by != key for known in given):
        raise UsageError(
            f"none of {len(given)} anchors is signed by {key}; make one with `agentkv evidence head --sign`"
        )


def _bytes(anchor: Anchor) -> bytes:
    return canonical_json(anchor.model_dump(mode="json"))
