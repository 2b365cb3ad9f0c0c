"""Where a generation's text is: in its line, in a file of its own, or nowhere but with whoever has it.

``inline``: the value is in the ledger. ``files``: in ``payloads/ab/ab12….json``, called by the SHA-256 of its bytes;
the ledger has only that digest, so that it can be published while the folder stays at home. Each file has a random
salt inside, so that a short answer cannot be guessed from its digest. ``digests``: not kept at all; the digest is of
the value's canonical JSON without salt, by which whoever has the text can show that it is the one, and short ones can
be guessed. A file that is not there is told as absent; one whose bytes are others is damage.
"""

from __future__ import annotations

import secrets
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import orjson

from agentkv.evidence.records import Inline, Kept
from agentkv.io import fsio
from agentkv.io.hashing import canonical_json, sha256
from agentkv.store.format import Malformed

Payloads = Literal["inline", "files", "digests"]
MODES: tuple[Payloads, ...] = ("inline", "files", "digests")
FOLDER = "payloads"
LIMIT = 256 << 20


@dataclass(frozen=True)
class Absent:
    """A value that is not here; ``sha256`` is what it would have to have. ``kept``: whether there was a file."""

    sha256: str
    kept: bool


class PayloadFiles:
    """The payloads of the ledger in ``folder``."""

    def __init__(self, folder: Path) -> None:
        self._base = folder
        self.root = folder / FOLDER

    def put(self, value: Any, mode: Payloads) -> Inline | Kept:
        """What the ledger's line says instead of, or with, the value. Raises StoreFull, StoreReadError."""
        if mode == "inline" or value is None:
            return Inline(value=value)
        if mode == "digests":
            data = canonical_json(value)
            return Kept(sha256=sha256(data), bytes=len(data), kept=False)
        data = canonical_json({"salt": secrets.token_hex(16), "value": value})
        digest = sha256(data)
        path = self.path(digest)
        fsio.refuse_links(self._base, path)
        fsio.write_durably(path, [data])
        return Kept(sha256=digest, bytes=len(data), kept=True)

    def get(self, reference: Inline | Kept) -> Any:
        """The value, or :class:`Absent`. Raises Malformed for a file with other bytes, StoreReadError."""
        if isinstance(reference, Inline):
            return reference.value
        if not reference.kept:
            return Absent(reference.sha256, kept=False)
        path = self.path(reference.sha256)
        fsio.refuse_links(self._base, path)
        data = fsio.read_regular(path, LIMIT)
        if data is None:
            return Absent(reference.sha256, kept=True)
        if sha256(data) != reference.sha256:
            raise Malformed("its bytes are not those of its name")
        return orjson.loads(data)["value"]

    def path(self, digest: str) -> Path:
        """Where the payload of that digest is, or would be."""
        return self.root / digest[:2] / f"{digest}.json"
