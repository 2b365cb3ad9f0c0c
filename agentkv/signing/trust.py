"""Whose packs are let in: the key store ``trust.json`` and the decision about one pack.

The file is checksummed JSON, replaced atomically; a corrupt one is an error, never an empty key store. Trust says
nothing about honesty: ``agentkv pack verify --recompute`` checks a pack without trusting anybody.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

import platformdirs
from pydantic import Field, ValidationError

from agentkv.errors import InvalidKey, StoreReadError, UntrustedPack, UsageError
from agentkv.io import fsio
from agentkv.records import Record
from agentkv.signing.keys import PublicKey
from agentkv.store.format import Malformed, decode_record, encode_record

Policy = Literal["require-signature", "allow-unsigned"]
Decision = Literal["trusted", "unknown-key", "unsigned"]

POLICIES: tuple[Policy, ...] = ("require-signature", "allow-unsigned")
ENVIRONMENT = "AGENTKV_TRUST"
_MAGIC = "agentkv-trust 1"
_FILE_LIMIT = 1 << 20
_LOCK_WAIT_S = 10.0
_FIELD = 2**255 - 19
_OCTIC = 0x7A03AC9277FDC74EC6CC392CFA53202A0F67100D760B3CBA4FD84D3D706A17C7
_SMALL_ORDER = {0, 1, _FIELD - 1, _OCTIC, _FIELD - _OCTIC}  # orders 4, 1, 2, 8, 8


class TrustedKey(Record):
    """A public key under a name of the user's choice."""

    name: Annotated[str, Field(min_length=1, max_length=128, pattern=r"^[^\s\x00-\x1f\x7f]+$")]
    key: PublicKey


class TrustRecord(Record):
    """``trust.json``. ``keys`` are sorted by name; a key is there once, a name once for each key of its owner."""

    format: Literal[1] = 1
    policy: Policy = "require-signature"
    keys: tuple[TrustedKey, ...] = ()


@dataclass(frozen=True)
class Verdict:
    """What was decided about a pack: ``name`` is the trusted key's, None where there is none."""

    decision: Decision
    signed_by: str | None
    name: str | None = None


def default_path() -> Path:
    """``$AGENTKV_TRUST``, or trust.json in the user's configuration folder."""
    given = os.environ.get(ENVIRONMENT)
    return Path(given) if given else platformdirs.user_config_path("agentkv") / "trust.json"


def is_weak(key: str) -> bool:
    """Whether an Ed25519 public key is a point of small order, or not the canonical encoding of a point.

    For such a point signatures verify that nobody's private key made. All eight have one of five y coordinates,
    whatever the sign of x; encodings of 2**255 - 19 and more stand for small numbers once more.
    """
    y = int.from_bytes(bytes.fromhex(key.removeprefix("ed25519:")), "little") & ((1 << 255) - 1)
    return y >= _FIELD or y in _SMALL_ORDER


class Trust:
    """The key store in a file, read at each call; a file that is not there trusts nobody.

    Raises UsageError for a corrupt file, StoreReadError for one that cannot be read.
    """

    def __init__(self, path: Path | None = None) -> None:
        self.path = default_path() if path is None else path

    def read(self) -> TrustRecord:
        """What the file says, or the default: no keys, ``require-signature``."""
        data = fsio.read_regular(self.path, _FILE_LIMIT)
        if data is None:
            return TrustRecord()
        try:
            return decode_record(_MAGIC, data, TrustRecord)
        except Malformed as error:
            raise UsageError(
                f"the key store {self.path} is corrupt: {error}. Nobody is trusted by it; move it away and add "
                "the keys again with `agentkv pack trust add`."
            ) from error

    def name_of(self, key: str) -> str | None:
        """The name under which a key is trusted."""
        return next((entry.name for entry in self.read().keys if entry.key == key), None)

    def add(self, name: str, key: str) -> bool:
        """Trust ``key`` as ``name``, beside other keys of that name; False if it was so already.

        Raises UsageError if the key has another name, InvalidKey for a key that anybody can sign for.
        """
        if is_weak(key):
            raise InvalidKey(repr(key[:80]), "it is nobody's: signatures for it can be made without a private key")
        with self._changing() as found:
            for entry in found.keys:
                if (entry.name, entry.key) == (name, key):
                    return False
                if entry.key == key:
                    raise UsageError(f"{entry.key} is trusted as {entry.name!r} already. Remove that first.")
            try:
                added = TrustedKey(name=name, key=key)
            except ValidationError as error:
                raise UsageError(f"{name[:40]!r} cannot be a key's name: 1 to 128 characters, no blanks") from error
            keys = sorted((*found.keys, added), key=lambda entry: (entry.name, entry.key))
            self._write(found.model_copy(update={"keys": tuple(keys)}))
        return True

    def of(self, name_or_key: str) -> tuple[TrustedKey, ...]:
        """The keys that are trusted under a name, or the one that is that key. Raises UsageError if there is none."""
        found = tuple(entry for entry in self.read().keys if name_or_key in (entry.name, entry.key))
        if not found:
            raise UsageError(f"no trusted key {name_or_key!r}. Run `agentkv pack trust list`.")
        return found

    def remove(self, name_or_key: str) -> tuple[TrustedKey, ...]:
        """Stop trusting a key, or all keys of a name, and return them. Blocks that came with them stay.

        Raises UsageError if there is none.
        """
        with self._changing() as found:
            gone = self.of(name_or_key)
            left = tuple(other for other in found.keys if other not in gone)
            self._write(found.model_copy(update={"keys": left}))
        return gone

    def set_policy(self, policy: Policy) -> None:
        """What holds for packs without a trusted signature."""
        with self._changing() as found:
            self._write(found.model_copy(update={"policy": policy}))

    def decide(self, path: Path, signed_by: str | None, *, allow_unsigned: bool = False) -> Verdict:
        """Whether a pack whose signature, if any, was checked is let in. Raises UntrustedPack with what would help.

        With ``allow_unsigned`` a key store that cannot be read trusts nobody, which only makes the verdict less: the
        caller has answered the question that the policy asks. Without, it raises as :meth:`read` does.
        """
        try:
            found = self.read()
        except (UsageError, StoreReadError):
            if not allow_unsigned:
                raise
            found = TrustRecord()
        name = next((entry.name for entry in found.keys if entry.key == signed_by and not is_weak(entry.key)), None)
        if name is not None:
            return Verdict("trusted", signed_by, name)
        if found.policy == "allow-unsigned" or allow_unsigned:
            return Verdict("unsigned" if signed_by is None else "unknown-key", signed_by)
        if signed_by is None:
            raise UntrustedPack(
                path,
                "it is not signed. If you know where it comes from, add --allow-unsigned for this once (in Python: "
                "allow_unsigned=True)",
            )
        raise UntrustedPack(
            path,
            f"it is signed by the unknown key {signed_by}. If its owner confirms that key to you, run "
            f"`agentkv pack trust add NAME {signed_by}`; or add --allow-unsigned for this once (in Python: "
            "allow_unsigned=True)",
            signed_by,
        )

    @contextlib.contextmanager
    def _changing(self) -> Iterator[TrustRecord]:
        try:
            fsio.make_directory(self.path.parent)
        except OSError as error:
            raise fsio.translated(error, self.path) from error
        lock = self.path.with_name(self.path.name + ".lock")
        with fsio.file_lock(lock, exclusive=True, wait_s=_LOCK_WAIT_S) as held:
            if held is False:
                raise StoreReadError(self.path, "another command is changing it; try again")
            yield self.read()

    def _write(self, record: TrustRecord) -> None:
        fsio.write_durably(self.path, [encode_record(_MAGIC, record)])
