"""The part of ``BlockStore`` that keeps marks of blocks: pinned, imported from a pack, refused when restored; and what
is known of models and configurations.

A mark is a small sealed file of its own, called by the block's id. A corrupt one counts as the safe case (pinned,
untrusted), or as none where it is written again.
"""

from __future__ import annotations

import contextlib

from agentkv.errors import CorruptBlock, StoreError, UnknownBlock, UsageError
from agentkv.records import Import, Manifest, ModelName, Pin, Refused, SelfTest
from agentkv.store import format as formats
from agentkv.store.files import StoreFiles
from agentkv.store.marker import require_marker

_REASON = 4096


def require_digest(block_id: str) -> None:
    """Raise UsageError unless it has the form of a block id."""
    if not formats.is_digest(block_id):
        raise UsageError(f"{block_id!r} is not a block id (64 hex digits); resolve() takes shorter ones")


class Marked:
    """The marks of the store in ``files``."""

    files: StoreFiles
    _refused: dict[str, str]
    """State digests by block id, of refusals that could not be written down."""

    def pin(self, block_id: str) -> bool:
        """Keep a block, and its parents, from eviction; False if it was pinned. Raises UnknownBlock."""
        with self.files.lock.shared():
            self._require_there(block_id)
            if self.files.pins.valid(block_id) is not None:
                return False
            self.files.pins.write(block_id, formats.encode_mark(Pin(block_id=block_id)))
            return True

    def unpin(self, block_id: str) -> bool:
        """Allow eviction again; False if it was not pinned."""
        require_digest(block_id)
        return self.files.pins.remove(block_id)

    def pinned(self) -> set[str]:
        """The ids of pinned blocks."""
        return set(self.files.pins.digests())

    def set_import(self, record: Import, *, before: bool = False) -> None:
        """Record which pack a block came from, or is about to (``before``). Raises UnknownBlock if it is not there."""
        with self.files.lock.shared():
            if not before:
                self._require_there(record.block_id)
            self.files.imports.write(record.block_id, formats.encode_mark(record))

    def forget_import(self, block_id: str) -> bool:
        """Drop that record: the block was computed here. False if there was none."""
        require_digest(block_id)
        return self.files.imports.remove(block_id)

    def imported(self, block_id: str) -> Import | None:
        """Which pack the block came from; None if it was deposited here. Raises CorruptBlock, StoreReadError."""
        require_digest(block_id)
        return self.files.imports.read(block_id)

    # --- blocks whose files are whole and that could not be restored ---

    def refuse(self, manifest: Manifest, reason: str) -> None:
        """Note that this state could not be restored, so that it is not tried again and a deposit replaces it.

        Where the store cannot be written, only this object remembers it.
        """
        self._refused[manifest.block_id] = manifest.state_sha256
        record = Refused(block_id=manifest.block_id, state_sha256=manifest.state_sha256, reason=reason[:_REASON])
        with contextlib.suppress(StoreError), self.files.lock.shared():
            self.files.refused.write(manifest.block_id, formats.encode_mark(record))

    def refusal(self, manifest: Manifest) -> str | None:
        """Why this state could not be restored here; None if it could, or was never tried."""
        record = None
        with contextlib.suppress(StoreError):
            record = self.files.refused.read(manifest.block_id)
        if record is not None and record.state_sha256 == manifest.state_sha256:
            return record.reason
        is_noted = self._refused.get(manifest.block_id) == manifest.state_sha256
        return "it could not be restored a moment ago" if is_noted else None

    def require_not_refused(self, manifest: Manifest) -> None:
        """Raise CorruptBlock if this state could not be restored before."""
        reason = self.refusal(manifest)
        if reason is not None:
            raise CorruptBlock(f"block {manifest.block_id[:12]}", self.files.manifests.path(manifest.block_id), reason)

    def forget_refusal(self, block_id: str) -> None:
        """The block was computed again. Raises StoreReadError."""
        self._refused.pop(block_id, None)
        self.files.refused.remove(block_id)

    # --- what a configuration was seen to do ---

    def selftest(self, fingerprint_id: str) -> SelfTest | None:
        """The recorded self-test of a configuration; a corrupt record counts as none."""
        require_digest(fingerprint_id)
        return self.files.selftests.valid(fingerprint_id)

    def set_selftest(self, test: SelfTest) -> None:
        """Record that a configuration passed. Raises StoreFull, StoreReadError."""
        require_marker(self.files.root)
        with self.files.lock.shared():
            self.files.selftests.write(test.fingerprint_id, formats.encode_selftest(test))

    def model_name(self, model_sha256: str) -> str | None:
        """What the model of that digest was called when something was deposited for it; None if that is not known."""
        found = self.files.models.valid(model_sha256) if formats.is_digest(model_sha256) else None
        return None if found is None else found.name

    def set_model_name(self, model_sha256: str, name: str) -> None:
        """Record what people call a model, for listings. Raises StoreFull, StoreReadError."""
        if self.model_name(model_sha256) != name:
            record = ModelName(model_sha256=model_sha256, name=name.encode("utf-8", "replace").decode()[:512])
            with self.files.lock.shared():
                self.files.models.write(model_sha256, formats.encode_model(record))

    def _require_there(self, block_id: str) -> None:
        require_digest(block_id)
        if self.files.manifests.read(block_id) is None:
            raise UnknownBlock(block_id)
