"""Ed25519 keys and signatures. The one module that knows the library for them, loaded when first needed.

A public key is written ``ed25519:<64 hex digits>``; a private one is a PEM file (PKCS #8) that only its owner may
read, under a passphrase if one was given. Whom a key belongs to is for people to settle.
"""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

from pydantic import Field

from agentkv.errors import InvalidKey, StoreReadError, UsageError
from agentkv.io import fsio
from agentkv.records import Record

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

_PREFIX = "ed25519:"
_PUBLIC = re.compile(r"ed25519:[0-9a-f]{64}")
_FILE_LIMIT = 64 << 10


PublicKey = Annotated[str, Field(pattern=r"^ed25519:[0-9a-f]{64}$")]


class Signature(Record):
    """An Ed25519 signature over a context and the signed bytes; ``signature`` is 128 hex digits."""

    format: Literal[1] = 1
    key: PublicKey
    signature: Annotated[str, Field(pattern=r"^[0-9a-f]{128}$")]


class SigningKey:
    """A private key. ``public`` is its other half, as ``ed25519:<64 hex digits>``."""

    def __init__(self, key: Ed25519PrivateKey) -> None:
        self._key = key
        self.public = _PREFIX + key.public_key().public_bytes_raw().hex()

    def sign(self, data: bytes, context: bytes) -> Signature:
        """The signature over ``context`` and ``data``; the same bytes always get the same one.

        ``context`` says what is signed, so that a signature for one purpose is not valid for another.
        """
        return Signature(key=self.public, signature=self._key.sign(context + data).hex())


def is_signed(data: bytes, signature: Signature, context: bytes) -> bool:
    """Whether the signature is that of these bytes, under that context, by the key that it names."""
    from cryptography.exceptions import InvalidSignature
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

    try:
        key = Ed25519PublicKey.from_public_bytes(bytes.fromhex(signature.key.removeprefix(_PREFIX)))
        key.verify(bytes.fromhex(signature.signature), context + data)
    except (InvalidSignature, ValueError):
        return False
    return True


def parse_public_key(text: str) -> str:
    """A public key as typed by a person: the text itself, or a file that holds nothing else. Raises InvalidKey."""
    given = text.strip()
    if not given.startswith(_PREFIX):
        data = None
        with contextlib.suppress(StoreReadError):  # a folder, or too long for a path
            data = fsio.read_regular(Path(os.path.realpath(given)), _FILE_LIMIT) if "\0" not in given else None
        if data is None:
            raise InvalidKey(repr(text[:80]), "it is neither ed25519:<64 hex digits> nor a file that holds that")
        given = data.decode("utf-8", "replace").strip()
    if not _PUBLIC.fullmatch(given.lower()):
        raise InvalidKey(repr(text[:80]), "a public key is ed25519:<64 hex digits>")
    return given.lower()


def generate_key(path: Path, passphrase: str = "") -> SigningKey:
    """Make a key pair and write its private half to ``path``, mode 0600, never over a file that is there.

    With a ``passphrase`` the file is encrypted. Raises UsageError if there is something at ``path``, StoreFull,
    StoreReadError.
    """
    from cryptography.hazmat.primitives import serialization
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

    key = Ed25519PrivateKey.generate()
    lock: serialization.KeySerializationEncryption = serialization.NoEncryption()
    if passphrase:
        lock = serialization.BestAvailableEncryption(passphrase.encode())
    pem = key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, lock)
    try:
        fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_NOFOLLOW", 0), 0o600)
    except FileExistsError:
        raise UsageError(f"{path} is there already; a key is never overwritten. Choose another file.") from None
    except OSError as error:
        raise fsio.translated(error, path, len(pem)) from error
    try:
        with os.fdopen(fd, "wb") as file:
            file.write(pem)
            file.flush()
            os.fsync(fd)
    except OSError as error:
        path.unlink(missing_ok=True)  # ours: it was created above
        raise fsio.translated(error, path, len(pem)) from error
    return SigningKey(key)


def load_key(path: Path, passphrase: Callable[[], str]) -> SigningKey:
    """The private key in a PEM file; ``passphrase`` is asked only if the file is encrypted. Raises InvalidKey."""
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
    from cryptography.hazmat.primitives.serialization import load_pem_private_key

    data = fsio.read_regular(Path(os.path.realpath(path)), _FILE_LIMIT)
    if data is None:
        raise InvalidKey(str(path), "there is no such file")
    secret = passphrase().encode() if b"ENCRYPTED" in data else b""
    try:
        key = load_pem_private_key(data, secret or None)
    except (ValueError, TypeError) as error:
        reason = "another passphrase is needed" if b"ENCRYPTED" in data else "it is not a PEM file of a private key"
        raise InvalidKey(str(path), reason) from error
    except Exception as error:  # the library has no common base for what a strange file does
        raise InvalidKey(str(path), f"it cannot be read ({type(error).__name__})") from error
    if not isinstance(key, Ed25519PrivateKey):
        raise InvalidKey(str(path), "it holds a key of another kind than Ed25519")
    return SigningKey(key)
