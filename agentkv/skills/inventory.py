"""What lies in the folders of a library, kept up to date place by place: files and text, no store and no model.

A file is read again when its place is named; whether it has changed is decided by what it holds. ``places_changed`` is
the net below that: it compares device, inode, size and mtime of every file with those of the last reading, and reads
nothing. Not guaranteed: that it sees a change which leaves all four as they were.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from agentkv.errors import InvalidManual, UsageError
from agentkv.io import fsio
from agentkv.skills.discovery import (
    FILE_NAMES,
    Found,
    find_manuals,
    find_resources,
    is_hidden,
    is_reference,
    is_set_aside,
)
from agentkv.skills.manual import Manual, load_manual, taken_by, told_apart

Signature = tuple[tuple[str, fsio.Identity], ...]


class Inventory:
    """The manuals below ``roots``.

    Raises UsageError for a root that is not a directory now; later it may come and go.
    """

    def __init__(self, roots: Sequence[Path]) -> None:
        for root in roots:
            if not root.is_dir():
                raise UsageError(f"{root} is not a directory")
        self.roots = tuple(dict.fromkeys(root.absolute() for root in roots))
        self._files: dict[Path, Manual | InvalidManual] = {}
        self._unreadable: dict[Path, InvalidManual] = {}
        self._signatures: dict[Path, Signature] = {}
        self._notices: dict[Path, tuple[str, ...]] = {}

    def read(self, places: Iterable[Path] | None = None) -> bool:
        """Read what is at or below ``places`` (None: everything) again; whether there was or is anything."""
        found = False
        for place in _outermost(self.roots if places is None else places):
            there = self._find(place)
            known = [path for path in self._files if path.is_relative_to(place)]
            self._unreadable = {p: e for p, e in self._unreadable.items() if not p.is_relative_to(place)}
            self._unreadable |= {error.path: error for error in there.unreadable}
            self._notices = {p: n for p, n in self._notices.items() if not p.is_relative_to(place)}
            self._notices[place] = tuple(there.notices)
            for path in known:
                del self._files[path]
                self._signatures.pop(path, None)
            for path in there.files:
                self._signatures[path] = _signature(path)  # before it is read: a change in between is seen next time
                try:
                    self._files[path] = load_manual(path)
                except InvalidManual as error:
                    self._files[path] = error
            found = found or bool(known or there.files or there.unreadable)
        return found

    def _find(self, place: Path) -> Found:
        """What lies at or below a place, by the walks of all roots that come there or begin there."""
        found = Found()
        for root in self.roots:
            if place.is_relative_to(root) or root.is_relative_to(place):
                more = find_manuals(place if place.is_relative_to(root) else root, root)
                known = set(found.files)
                found.files += [path for path in more.files if path not in known]
                found.unreadable += more.unreadable
                found.notices += more.notices
        return found

    def places_changed(self) -> list[Path]:
        """The folders whose files are not as they were when read last."""
        now = {path: _signature(path) for root in self.roots for path in find_manuals(root).files}
        paths = sorted({*now, *self._signatures})
        return [path.parent for path in paths if now.get(path) != self._signatures.get(path)]

    def forget(self, place: Path) -> None:
        """Make the next :meth:`places_changed` name this place."""
        for path in self._signatures:
            if path.is_relative_to(place):
                self._signatures[path] = ()

    def resolved(self, reserved: Mapping[str, Path]) -> tuple[tuple[Manual, ...], tuple[InvalidManual, ...]]:
        """Manuals with a name of their own, and what is broken, by root and path.

        Which of several with one name is taken, :func:`told_apart` says. ``reserved``: names (as keys) that belong to a
        folder although nothing is loaded from it now.
        """
        ordered = sorted(self._files, key=self._rank)
        manuals = [entry for entry in map(self._files.__getitem__, ordered) if isinstance(entry, Manual)]
        broken = [entry for entry in map(self._files.__getitem__, ordered) if isinstance(entry, InvalidManual)]
        free = []
        for manual in manuals:
            keeper = reserved.get(manual.key, manual.path)
            if keeper == manual.path:
                free.append(manual)
            else:
                broken.append(taken_by(manual, keeper))
        unique, clashes = told_apart(free, self.roots)
        return unique, (*broken, *clashes, *self._unreadable.values())

    @property
    def notices(self) -> list[str]:
        """What was not looked at, for a person: what lies too deep, or is too much."""
        return [notice for notices in self._notices.values() for notice in notices]

    def broken_folders(self) -> set[Path]:
        """Folders of manuals that cannot be loaded."""
        return {path.parent for path, entry in self._files.items() if isinstance(entry, InvalidManual)}

    def is_unreadable(self, path: Path) -> bool:
        """Whether what is at ``path`` is not known, since a folder above it cannot be read."""
        return any(path.is_relative_to(folder) for folder in self._unreadable)

    def root_of(self, path: Path) -> Path:
        """The first root that ``path`` lies below."""
        return next(root for root in self.roots if path.is_relative_to(root))

    def _rank(self, path: Path) -> tuple[int, Path]:
        return self.roots.index(self.root_of(path)), path


def place_of(path: Path, root: Path, is_directory: bool) -> Path | None:
    """What has to be read again after something happened at ``path``; None if it does not concern a library.

    A manual's file stands for its folder, and so does any text in ``references/``; of other files only their folders
    matter, as they come and go. So an editor's ``SKILL.md~``, ``.SKILL.md.swp`` or ``4913`` is never anything; nor is
    what happens in folders that are not gone into.
    """
    folders = path.relative_to(root).parts if is_directory else path.relative_to(root).parts[:-1]
    if any(map(is_hidden, folders)) or any(map(is_set_aside, folders[:-1])):
        return None
    if path.name in FILE_NAMES and not is_directory:
        return path.parent
    inside = path.relative_to(root).parts
    if "references" in inside:
        at = len(inside) - 1 - inside[::-1].index("references")
        return root.joinpath(*inside[:at]) if is_directory or is_reference("/".join(inside[at:])) else None
    return path if is_directory else None


def _outermost(places: Iterable[Path]) -> list[Path]:
    found: list[Path] = []
    for place in sorted(set(places)):
        if not any(place.is_relative_to(above) for above in found):
            found.append(place)
    return found


def _signature(file: Path) -> Signature:
    names = [file.name, *filter(is_reference, find_resources(file.parent))]
    found = []
    for name in names:
        try:
            found.append((name, fsio.identity_of((file.parent / name).stat())))
        except OSError:
            continue
    return tuple(found)
