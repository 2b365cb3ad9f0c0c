"""Where skills lie below a folder: which folders are gone into, how deep, and how many. Opens no file.

Not gone into: stores, hidden folders, folders whose name says that they hold copies or other people's work (VENDORED),
virtual environments, and the ``references/``, ``scripts/`` and ``assets/`` of a skill. The folder that is asked for is
gone into whatever it is called, and so is a skill whose own folder has a name of VENDORED, if no skill is above it.

A link to a folder is followed, but no folder is gone into twice, and none that the way came through: so a circle ends,
and what lies below the root is found by its own path. Bounds: MAX_DEPTH folders deep, MAX_FOLDERS and MAX_MANUALS in
all; what they leave out is in the ``notices``.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from agentkv.errors import InvalidManual
from agentkv.store.marker import MARKER

FILE_NAME = "SKILL.md"
FILE_NAMES = (FILE_NAME, "skill.md")
"""The second counts where the first is absent, as for the validator."""
MAX_DEPTH, MAX_FOLDERS, MAX_MANUALS = 16, 50_000, 10_000

VENDORED = frozenset(
    {"node_modules", "bower_components", "site-packages", "vendor", "venv", "__pycache__", "build", "dist", "__macosx"}
    | {"archive", "archives", "archived", "backup", "backups", "trash"}
)
NOTHING_THERE = f"there is no {FILE_NAME} at or below it; hidden and vendored folders are only looked into by name"
_COPIES = (".bak", ".old", ".orig", "~")
_OF_COPIES = frozenset(
    {"archive", "archived", "backup", "backups", "bak", "copies", "copy", "deprecated", "disabled", "kopie", "legacy"}
    | {"obsolete", "old", "orig", "outdated", "snapshot", "snapshots", "temp", "tmp", "trash", "unused"}
)
_WORD, _NUMBERED = re.compile(r"[^\W_]+"), re.compile(r"\(\d+\)$")
_VENV = "pyvenv.cfg"


@dataclass
class Found:
    """``files``: each SKILL.md, sorted; ``unreadable``: folders that could not be read; ``notices``: for a person."""

    files: list[Path] = field(default_factory=list)
    unreadable: list[InvalidManual] = field(default_factory=list)
    notices: list[str] = field(default_factory=list)


def manual_file(folder: Path) -> Path:
    """The SKILL.md of a folder, or ``skill.md`` where only that one is there."""
    return next((folder / name for name in FILE_NAMES if (folder / name).exists()), folder / FILE_NAME)


def find_manuals(place: Path, root: Path | None = None) -> Found:
    """Every SKILL.md at or below ``place``, which is ``root`` or a folder below it that a walk of it would come to."""
    root = root or place
    return _Walk(root).go(place) if is_walked(place, root) else Found()


def is_walked(place: Path, root: Path) -> bool:
    """Whether a walk of ``root`` comes to the folder ``place``, by this path; what is not there any more counts."""
    inside = False
    for folder in _between(place, root):
        inside = inside or _is_skill(folder.parent)
        if not _is_entered(folder, inside):
            return False
    real, below = place.resolve(), root.resolve()
    if not real.is_relative_to(below) or real.relative_to(below) == place.relative_to(root):
        return True
    return not is_walked(root / real.relative_to(below), root)  # else it is found there


def is_set_aside(name: str) -> bool:
    """Whether a folder's name says that what is in it is hidden, a copy, or somebody else's."""
    plain = name.casefold()
    return is_hidden(name) or not VENDORED.isdisjoint((plain, plain.strip("_"))) or plain.endswith(_COPIES)


def is_like_a_copy(path: Path) -> bool:
    """Whether a word of a relative path says that an older or spare copy may lie there: of two, the other is meant."""
    words = {word for part in path.parts for word in _WORD.findall(part.casefold())}
    return not words.isdisjoint(_OF_COPIES) or any(_NUMBERED.search(part) for part in path.parts)


def is_hidden(name: str) -> bool:
    """Whether a file or folder of that name is hidden."""
    return name.startswith(".")


def _between(place: Path, root: Path) -> Iterator[Path]:
    """The folders from below ``root`` to ``place``, in order."""
    folder = root
    for part in place.relative_to(root).parts:
        folder = folder / part
        yield folder


def _is_skill(folder: Path) -> bool:
    return any((folder / name).is_file() for name in FILE_NAMES)


def _is_entered(folder: Path, inside: bool) -> bool:
    """Whether a folder is gone into; ``inside``: there is a skill above it."""
    if folder.name in FOLDERS and _is_skill(folder.parent):
        return False
    if is_set_aside(folder.name):
        return not is_hidden(folder.name) and not inside and _is_skill(folder)
    return True


@dataclass(frozen=True)
class _Folder:
    """``inside``: there is a skill above it. ``deeper``: whether the folders in it are looked at."""

    path: Path
    inside: bool
    deeper: bool = True


class _Walk:
    """One walk: the real folders level by level, then those that links lead to, in the same way."""

    def __init__(self, root: Path) -> None:
        self._root = root
        self._found = Found()
        self._seen: set[tuple[int, int]] = set()
        self._links: list[_Folder] = []
        self._too_deep: list[Path] = []
        self._looked = 0
        self._bound = ""

    def go(self, place: Path) -> Found:
        inside = any(_is_skill(folder.parent) for folder in _between(place, self._root))
        for above in [*place.absolute().parents, *place.resolve().parents]:
            self._is_new(above)
        self._is_new(place)
        self._levels([_Folder(place, inside, place == self._root or not is_set_aside(place.name))])
        while self._links and not self._bound:
            links, self._links = self._links, []
            self._levels([link for link in links if self._is_new(link.path)])
        self._found.files.sort()
        self._found.unreadable.sort(key=lambda error: error.path)
        self._note()
        return self._found

    def _levels(self, level: list[_Folder]) -> None:
        while level and not self._bound:
            below: list[_Folder] = []
            for folder in level:
                below += self._look(folder)
                if len(self._found.files) >= MAX_MANUALS:
                    self._bound = f"{MAX_MANUALS:,} skills"
                elif self._looked >= MAX_FOLDERS:
                    self._bound = f"{MAX_FOLDERS:,} folders"
                if self._bound:
                    return
            level = below

    def _look(self, folder: _Folder) -> list[_Folder]:
        """Note the folder's manual and links; the real folders in it that are to be gone into."""
        self._looked += 1
        try:
            with os.scandir(folder.path) as listing:
                entries = sorted(listing, key=lambda entry: entry.name)
        except (FileNotFoundError, NotADirectoryError):
            return []
        except OSError as error:
            reason = f"the folder cannot be read: {error.strerror or error}"
            self._found.unreadable.append(InvalidManual(folder.path, reason))
            return []
        names = {entry.name for entry in entries}
        if MARKER in names or (_VENV in names and folder.path != self._root):
            return []
        self._found.files += [folder.path / name for name in FILE_NAMES if name in names][:1]
        inside = folder.inside or not names.isdisjoint(FILE_NAMES)
        if not folder.deeper:
            return []
        below = []
        for entry in entries:
            path = folder.path / entry.name
            if entry.name in FILE_NAMES or not _is_folder(entry) or not _is_entered(path, inside):
                continue
            if len(path.relative_to(self._root).parts) > MAX_DEPTH:
                self._too_deep.append(path)
                continue
            item = _Folder(path, inside, not is_set_aside(entry.name))
            if entry.is_symlink():
                self._links.append(item)
            elif self._is_new(path):
                below.append(item)
        return below

    def _is_new(self, folder: Path) -> bool:
        try:
            status = folder.stat()
        except OSError:
            return True  # reading it will say what is wrong
        identity = (status.st_dev, status.st_ino)
        if identity in self._seen:
            return False
        self._seen.add(identity)
        return True

    def _note(self) -> None:
        if self._bound:
            self._found.notices.append(
                f"{self._root}: only the first {self._bound} were looked at; pass folders that hold fewer"
            )
        if self._too_deep:
            first, more = self._too_deep[0], len(self._too_deep) - 1
            also = f" and {more:,} more" if more else ""
            self._found.notices.append(
                f"{first}{also}: more than {MAX_DEPTH} folders below {self._root}, not looked into; pass it by itself"
            )


def _is_folder(entry: os.DirEntry[str]) -> bool:
    try:
        return entry.is_dir()
    except OSError:  # a circle of links
        return False


# --- resources -------------------------------------------------------------------------------------

FOLDERS = ("references", "scripts", "assets")
MAX_RESOURCES = 10_000
_MENTION = re.compile(rf"(?<![\w./-])(?:\./)?((?:{'|'.join(FOLDERS)})/[\w./-]*\w)")


def find_resources(folder: Path) -> tuple[str, ...]:
    """Paths of the resources, relative to the skill's folder and with ``/``, sorted; at most MAX_RESOURCES."""
    inside = folder.resolve()
    found: list[str] = []
    for name in FOLDERS:
        for path in _files(folder / name):
            if path.is_file() and path.resolve().is_relative_to(inside):
                found.append(path.relative_to(folder).as_posix())
            if len(found) == MAX_RESOURCES:
                return tuple(sorted(found))
    return tuple(sorted(found))


def _files(folder: Path) -> Iterator[Path]:
    if folder.is_symlink():
        return
    for place, _, names in os.walk(folder):
        for name in names:
            yield Path(place) / name


def is_reference(resource: str) -> bool:
    """Whether a resource is a text that can be deposited on top of its manual: ``references/….md``."""
    return resource.startswith("references/") and resource.lower().endswith(".md")


def missing_resources(text: str, resources: tuple[str, ...], folder: Path) -> list[str]:
    """Resources that a manual's text names and that are not there, each once, in order."""
    named = dict.fromkeys(match[1] for match in _MENTION.finditer(text))
    return [path for path in named if path not in resources and not (folder / path).is_dir()]
