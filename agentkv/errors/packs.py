"""Packs, signatures and keys."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from agentkv.errors.base import AgentKVError


class PackError(AgentKVError):
    """Something about a pack, a signature or a key; nothing was imported."""


class InvalidPack(PackError):
    """The file is not exactly what a pack of this format is; ``member`` is the first part at fault."""

    exit_code = 70

    def __init__(self, path: Path, reason: str, member: str | None = None) -> None:
        at = f", member {member}" if member else ""
        super().__init__(f"{path}{at}: {reason}. The whole pack was refused and nothing was imported.")
        self.path, self.reason, self.member = path, reason, member


class UntrustedPack(PackError):
    """The policy asks for a signature by a trusted key."""

    exit_code = 71

    def __init__(self, path: Path, reason: str, key: str | None = None) -> None:
        super().__init__(f"{path} is not trusted: {reason}. Nothing was imported.")
        self.path, self.reason, self.key = path, reason, key


class BadSignature(PackError):
    """There is a signature, and it is not one of this pack by the key that it names."""

    exit_code = 72

    def __init__(self, path: Path, key: str) -> None:
        super().__init__(
            f"{path} carries a signature that the key {key} did not make for these bytes: the pack was changed after "
            "signing, or the signature belongs to another pack. Nothing was imported; get the pack again."
        )
        self.path, self.key = path, key


class InvalidKey(PackError):
    """Not an Ed25519 key, or a private key that needs another passphrase."""

    exit_code = 73

    def __init__(self, where: str, reason: str) -> None:
        super().__init__(f"no key in {where}: {reason}. `agentkv pack keygen FILE` makes a pair.")
        self.where, self.reason = where, reason


class ForgedBlock(PackError):
    """Every digest of the pack is right, and yet the model computes another state for this block."""

    exit_code = 74

    def __init__(self, path: Path, block_id: str, names: Sequence[str], reason: str) -> None:
        called = f" ({', '.join(names)})" if names else ""
        super().__init__(
            f"{path}, block {block_id[:12]}{called}: {reason}. Do not import it as it is; `agentkv pack import "
            "--source-only` prefills its texts instead."
        )
        self.path, self.block_id, self.names, self.reason = path, block_id, list(names), reason


class NameConflict(PackError):
    """Names of the pack are taken by other blocks of the store, or could be mistaken for its names."""

    exit_code = 75

    def __init__(self, path: Path, conflicts: Sequence[str], hint: str) -> None:
        more = f", and {len(conflicts) - 1:,} more" if len(conflicts) > 1 else ""
        super().__init__(f"{path}: {conflicts[0]}{more}. Nothing was imported. {hint}")
        self.path, self.conflicts = path, list(conflicts)
