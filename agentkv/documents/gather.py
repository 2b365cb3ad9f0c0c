"""Which files some paths mean: a folder's files of a known kind, or a file given by its own path."""

from __future__ import annotations

import fnmatch
import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from agentkv.documents.readers import kind_of
from agentkv.documents.records import Kind
from agentkv.errors import UsageError

SKIPPED_FOLDERS = frozenset({"__pycache__", "node_modules", "_static", "_sources", "_images"})
"""Skipped, like folders whose names begin with a dot."""


@dataclass(frozen=True)
class Found:
    """A file to add. ``path``: its name in the corpus; ``root``: the absolute path by which it was found."""

    file: Path
    path: str
    root: str
    kind: Kind

    @property
    def origin(self) -> bytes:
        """The absolute path's bytes."""
        return os.fsencode(self.file)


def gather(
    paths: Sequence[Path], include: Sequence[str] = (), exclude: Sequence[str] = ()
) -> tuple[list[Found], list[Path]]:
    """The files below ``paths``, by path, and those of an unknown kind, which are passed over.

    ``include`` and ``exclude`` are patterns such as ``*.md`` or ``guide/*``, for a file's name or its path within the
    folder. In a folder links are not followed. Raises UsageError for a path that does not exist.
    """
    found: dict[bytes, Found] = {}
    passed_over: list[Path] = []
    for path in paths:
        place = absolute(path)
        if place.is_dir():
            for item, kind in _below(place, include, exclude):
                if kind is None:
                    passed_over.append(item)
                    continue
                called = f"{place.name}/{item.relative_to(place).as_posix()}".lstrip("/")
                _add(found, Found(item, _text(called), root_of(place), kind))
        elif place.exists():
            _add(found, Found(place, _text(place.name), root_of(place), kind_of(place) or "text"))
        else:
            raise UsageError(f"there is no file or folder {path}. Name the files or folders to add.")
    return sorted(found.values(), key=lambda item: (item.path, item.origin)), passed_over


def absolute(path: Path) -> Path:
    """The absolute path, links not resolved."""
    return Path(os.path.abspath(path))  # noqa: PTH100 - resolve() would follow links


def root_of(path: Path) -> str:
    """The absolute path, as text, that the files found by ``path`` are recorded under."""
    return _text(str(absolute(path)))


def is_below(origin: str, folder: str) -> bool:
    """Whether a file is below a folder, by their absolute paths alone."""
    return origin.startswith(folder.rstrip(os.sep) + os.sep)


def _add(found: dict[bytes, Found], item: Found) -> None:
    found.setdefault(item.origin, item)


def _below(folder: Path, include: Sequence[str], exclude: Sequence[str]) -> list[tuple[Path, Kind | None]]:
    items: list[tuple[Path, Kind | None]] = []
    for place, folders, names in os.walk(folder):
        folders[:] = sorted(name for name in folders if not name.startswith(".") and name not in SKIPPED_FOLDERS)
        for name in sorted(names):
            item = Path(place) / name
            within = item.relative_to(folder).as_posix()
            if name.startswith(".") or item.is_symlink() or not item.is_file():
                continue
            if _matches(name, within, exclude) or (include and not _matches(name, within, include)):
                continue
            kind = kind_of(item)
            items.append((item, "text" if kind is None and include else kind))
    return items


def _matches(name: str, within: str, patterns: Sequence[str]) -> bool:
    return any(fnmatch.fnmatch(name, pattern) or fnmatch.fnmatch(within, pattern) for pattern in patterns)


def _text(path: str) -> str:
    """A path for a record and a prompt: bytes that are not UTF-8, and line ends, are replaced."""
    return " ".join(path.encode("utf-8", "replace").decode().split("\n"))
