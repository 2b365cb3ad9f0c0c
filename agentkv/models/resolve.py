"""A name, a path or an ``hf:`` spec -> a model file that may be given to llama.cpp.

Every way ends in the same two checks: the header shows a complete file, and its SHA-256 is known (and the right one,
where a catalogue name was given). Files of the Hugging Face hub are downloaded and cached by ``huggingface_hub``.
"""

from __future__ import annotations

import contextlib
import importlib
import sys
from dataclasses import dataclass
from pathlib import Path

from agentkv.errors import ModelHashMismatch, ModelUnreadable, PullFailed, UnknownModel, UsageError
from agentkv.models import local
from agentkv.models.catalogue import CATALOGUE, ModelEntry
from agentkv.models.gguf import gguf_check
from agentkv.models.local import Progress
from agentkv.models.pull import pull as pull_entry


@dataclass(frozen=True)
class ModelFile:
    """A checked model file; ``name`` is the catalogue name, the ``hf:`` spec, or the file's stem."""

    path: Path
    name: str
    sha256: str


def resolve(spec: str | Path, *, progress: Progress | None = None, pull: bool = True) -> ModelFile:
    """The model file that ``spec`` names; a catalogue or ``hf:`` model is fetched if absent and ``pull``.

    ``spec``: a catalogue name, the path of a .gguf, or ``hf:OWNER/REPO/FILE``. A catalogue name wins over a
    file of that name; write ``./name`` for the file. Raises UnknownModel, ModelUnreadable, ModelHashMismatch,
    PullFailed, StoreFull, StoreReadError; UsageError for ``hf:`` without the extra.
    """
    if isinstance(spec, str) and spec in CATALOGUE:
        return _from_catalogue(CATALOGUE[spec], progress, pull)
    if isinstance(spec, str) and spec.startswith("hf:"):
        return _from_hub(spec, progress, pull)
    return _from_path(spec, progress)


def verify(name_or_path: str | Path, *, progress: Progress | None = None) -> ModelFile:
    """Check a local model by reading all of it. Raises UnknownModel, ModelUnreadable, ModelHashMismatch.

    A path is compared with the catalogue only if it is a catalogue model in the cache folder; of any other
    file there is nothing to compare, and its digest is what you get.
    """
    entry = _entry_of(name_or_path)
    if entry is None:
        path = _existing(name_or_path)
        gguf_check(path)
        return ModelFile(path, path.stem, local.fresh_sha256(path, progress))
    path = local.model_path(entry.name)
    if not path.exists():
        raise _absent(entry)
    _check_size(entry, path)
    digest = local.fresh_sha256(path, progress)
    _check_digest(entry, path, digest)
    gguf_check(path)
    local.remember(path, digest)
    return ModelFile(path, entry.name, digest)


def _from_catalogue(entry: ModelEntry, progress: Progress | None, pull: bool) -> ModelFile:
    path = local.model_path(entry.name)
    if not path.exists():
        if not pull:
            raise _absent(entry)
        pull_entry(entry, progress)
    _check_size(entry, path)
    digest = local.known_sha256(path, progress)
    # The digest before the header: a corrupt header under a known name is first of all another file.
    _check_digest(entry, path, digest)
    gguf_check(path)
    return ModelFile(path, entry.name, digest)


def _from_path(spec: str | Path, progress: Progress | None) -> ModelFile:
    entry = _entry_of(spec)
    if entry is not None and local.model_path(entry.name).exists():
        return _from_catalogue(entry, progress, pull=False)
    path = _existing(spec)
    gguf_check(path)
    return ModelFile(path, path.stem, local.plain_sha256(path, progress))


def _from_hub(spec: str, progress: Progress | None, pull: bool) -> ModelFile:
    owner, _, rest = spec.removeprefix("hf:").partition("/")
    repository, _, file = rest.partition("/")
    if not (owner and repository and file):
        raise UsageError(f"{spec!r} names no file: write hf:OWNER/REPO/FILE.gguf")
    path = _hub_download(spec, f"{owner}/{repository}", file, pull)
    gguf_check(path)
    return ModelFile(path, spec, local.plain_sha256(path, progress))


def _hub_download(spec: str, repository: str, file: str, pull: bool) -> Path:
    """The one place that calls huggingface_hub, and where its errors become ours."""
    try:
        hub = importlib.import_module("huggingface_hub")
        foreign = [importlib.import_module("huggingface_hub.errors").HfHubHTTPError]
    except ImportError as error:
        raise UsageError(f"{spec!r} needs huggingface_hub: pip install 'agentkv-sdk[hf]'") from error
    # Its HTTP client is httpx or requests, by version; the latter's errors are OSErrors.
    if client := sys.modules.get("httpx"):
        foreign.append(client.HTTPError)
    try:
        return Path(hub.hf_hub_download(repo_id=repository, filename=file, local_files_only=not pull))
    except (OSError, ValueError, *foreign) as error:
        lines = str(error).strip().splitlines()
        raise PullFailed(spec, lines[0].rstrip(".") if lines else type(error).__name__) from error


def _entry_of(spec: str | Path) -> ModelEntry | None:
    """The catalogue entry that a name, or the path of its file in the cache folder, stands for."""
    if isinstance(spec, str) and spec in CATALOGUE:
        return CATALOGUE[spec]
    with contextlib.suppress(OSError, RuntimeError):
        path = Path(spec).expanduser().absolute()
        return next((entry for entry in CATALOGUE.values() if path == local.model_path(entry.name)), None)
    return None


def _existing(spec: str | Path) -> Path:
    path = Path(spec)
    # A text that cannot be a path at all (too long, `~nobody`) is only an unknown name.
    with contextlib.suppress(OSError, RuntimeError):
        path = path.expanduser()
        if str(spec) and path.exists():
            return path
    if isinstance(spec, Path) or path.suffix.lower() == ".gguf" or len(path.parts) > 1:
        hint = "Check the path, or run `agentkv models list`."
        raise UnknownModel(str(spec), list(CATALOGUE), f"there is no file {path.absolute()}. {hint}")
    raise UnknownModel(str(spec), list(CATALOGUE))


def _absent(entry: ModelEntry) -> UnknownModel:
    where, command = local.model_path(entry.name), f"agentkv models pull {entry.name}"
    message = f"{entry.name} is not on this machine ({where}). Run `{command}`."
    return UnknownModel(entry.name, list(CATALOGUE), message)


def _check_size(entry: ModelEntry, path: Path) -> None:
    """Find a truncated file without reading it."""
    if not path.is_file():
        raise ModelUnreadable(path, "it is not a regular file")
    if (size := path.stat().st_size) < entry.size:
        raise ModelUnreadable(path, f"it is truncated: {size:,} of {entry.size:,} bytes")


def _check_digest(entry: ModelEntry, path: Path, digest: str) -> None:
    if digest != entry.sha256:
        local.forget(path)
        raise ModelHashMismatch(path, entry.sha256, digest)
