"""Reads SKILL.md folders in the open Agent Skills format.

Line ends are normalised to ``\\n`` and a UTF-8 byte-order mark is dropped before anything is hashed, so the same manual
written on another system is the same block. Nothing is written, ever.

**What loads.** Everything that the public validator (``skills-ref``) accepts, if it is UTF-8, a regular file, within
MAX_FILE_BYTES and the bounds of ``frontmatter.py``, and its name is not taken. Beyond that: a byte-order mark, and
frontmatters by the narrow rule there. Whatever the validator refuses or a reader might not expect is in the manual's
``notes``. Nothing is silently absent: every SKILL.md under a root is loaded or listed with file, line and reason.

The frontmatter ends at the first line ``---``. The validator cuts at the first ``---`` anywhere; only where the line
gives no valid frontmatter is it read that way too, with a note.

Not guaranteed: that the optional fields are right for another client; their values are kept as they stand.
"""

from __future__ import annotations

import os
import re
import unicodedata
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from agentkv.errors import InvalidManual
from agentkv.hashing import sha256
from agentkv.skills import frontmatter
from agentkv.skills.frontmatter import Frontmatter, Malformed, flat
from agentkv.skills.resources import find_resources
from agentkv.store.marker import MARKER

FILE_NAME = "SKILL.md"
FILE_NAMES = (FILE_NAME, "skill.md")
"""The second counts where the first is absent, as for the validator."""
MAX_FILE_BYTES = 10 * 1024 * 1024
MAX_NAME, MAX_DESCRIPTION, MAX_COMPATIBILITY = 64, 1024, 500
_CONTROL = re.compile(rb"[\x00-\x08\x0e-\x1a\x1c-\x1f]")


@dataclass(frozen=True)
class Manual:
    """One skill: ``text`` is the body without frontmatter, ``sha256`` is over name, description and body.

    ``resources``: files beside it, relative to ``path``, its folder. ``notes``: what a person should know about how
    it was read; empty for a manual that the public validator accepts and that holds no surprise.
    """

    name: str
    description: str
    text: str
    path: Path
    license: str | None = None
    allowed_tools: str | None = None
    compatibility: str | None = None
    metadata: Mapping[str, str] = field(default_factory=dict, hash=False)
    resources: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()

    @property
    def sha256(self) -> str:
        """Digest of what a block is made from."""
        return sha256("\0".join((self.name, self.description, self.text)).encode())

    @property
    def block_text(self) -> str:
        """What is read into the block: the body under its name."""
        return f"# Manual: {self.name}\n\n{self.text}\n"

    @property
    def key(self) -> str:
        """By which names are told apart: two that differ in case or composition only are one."""
        return name_key(self.name)


@dataclass(frozen=True)
class LoadReport:
    """Every manual found under a root: loaded or broken, nothing absent."""

    loaded: tuple[Manual, ...]
    broken: tuple[InvalidManual, ...]


def name_key(name: str) -> str:
    """See :attr:`Manual.key`."""
    return unicodedata.normalize("NFKC", name).casefold()


# --- one manual -----------------------------------------------------------------------------------


def load_manual(folder: Path) -> Manual:
    """The manual of a skill folder (or of a SKILL.md path). Raises InvalidManual with file, line and reason."""
    file = folder if folder.name in FILE_NAMES else manual_file(folder)
    data = _read_bytes(file)
    try:
        manual = parse_manual(file, data)
    except InvalidManual as error:
        control = _CONTROL.search(data)
        if control is None or "UTF-16" in error.reason or "binary" in error.reason:
            raise
        raise _binary(file, data, control.start()) from error
    return replace(manual, resources=find_resources(file.parent))


def manual_file(folder: Path) -> Path:
    """The SKILL.md of a folder, or ``skill.md`` where only that one is there."""
    return next((folder / name for name in FILE_NAMES if (folder / name).exists()), folder / FILE_NAME)


def parse_manual(file: Path, data: bytes) -> Manual:
    """The manual whose file has this content; its folder's name is checked, nothing is opened."""
    text = _decoded(file, data)
    problems: list[InvalidManual] = []
    for reading in (_by_lines, _as_the_validator):
        try:
            header, first_line, body, notes = reading(text)
            front = frontmatter.read(header, first_line)
            return _manual(file, front, body.strip("\n"), (*_surprises(data, body), *notes, *front.notes))
        except Malformed as error:
            problems.append(InvalidManual(file, error.reason, error.line))
    raise problems[0]


_Reading = tuple[list[str], int, str, tuple[str, ...]]


def _by_lines(text: str) -> _Reading:
    """Header, the number of its first line, body, notes."""
    lines = text.split("\n")
    if lines[0].rstrip() != "---":
        raise Malformed("it does not begin with a frontmatter (a line `---`)", 1)
    end = next((i for i, line in enumerate(lines[1:], 1) if line.rstrip() == "---"), None)
    if end is None:
        raise Malformed("the frontmatter is not closed by a line `---`", 1)
    held = [at for at, line in enumerate(lines[1:end], 2) if "---" in line]
    notes = tuple(f"line {at}: it holds `---`, where the public validator cuts" for at in held)
    return lines[1:end], 2, "\n".join(lines[end + 1 :]), notes


def _as_the_validator(text: str) -> _Reading:
    """The same, cut at the first ``---`` whatever is around it; the body still never holds the frontmatter."""
    parts = text.split("---", 2)
    if parts[0] or len(parts) < 3:
        raise Malformed("the frontmatter is not closed", 1)
    try:
        body = _by_lines(text)[2]
    except Malformed:
        body = parts[2]
    note = "the frontmatter is not closed by a line `---` of its own; it was cut at the first `---`"
    return parts[1].split("\n"), 1, body, (note,)


def _surprises(data: bytes, body: str) -> Iterator[str]:
    if data.startswith(b"\xef\xbb\xbf"):
        yield "it begins with a byte-order mark, which was dropped; the public validator refuses that"
    if not body.strip():
        yield "it has no text after its frontmatter"
    if _CONTROL.search(body.encode()):
        yield "its text holds control characters"


def _manual(file: Path, front: Frontmatter, text: str, notes: tuple[str, ...]) -> Manual:
    fields = front.fields
    name = _required(front, "name", MAX_NAME)
    _check_name(file, name, front.lines["name"])
    description = _required(front, "description", MAX_DESCRIPTION)
    compatibility = fields.get("compatibility")
    if "compatibility" in fields and not isinstance(compatibility, str):
        raise Malformed("`compatibility` is no text", front.lines["compatibility"])
    if compatibility and len(compatibility) > MAX_COMPATIBILITY:
        what = f"`compatibility` has {len(compatibility)} characters, the limit is {MAX_COMPATIBILITY}"
        raise Malformed(what, front.lines["compatibility"])
    metadata = fields.get("metadata", {})
    return Manual(
        name=name,
        description=description,
        text=text,
        path=file.parent,
        license=_optional(fields.get("license")),
        allowed_tools=_optional(fields.get("allowed-tools")),
        compatibility=compatibility,
        metadata={key: flat(value) for key, value in metadata.items()} if isinstance(metadata, dict) else {},
        notes=(*notes, *_odd_forms(front)),
    )


def _required(front: Frontmatter, key: str, limit: int) -> str:
    value = front.fields.get(key)
    line = front.lines.get(key, 2)
    if not isinstance(value, str) or not value.strip():
        raise Malformed(f"the frontmatter has no `{key}` text", line)
    length = len(unicodedata.normalize("NFKC", value.strip())) if key == "name" else len(value)
    if length > limit:
        raise Malformed(f"`{key}` has {length} characters, the limit is {limit}", line)
    return value.strip()


def _optional(value: object) -> str | None:
    return None if value is None else flat(value)


def _odd_forms(front: Frontmatter) -> Iterator[str]:
    """Notes on optional fields in a form that the format does not have, though the validator lets it pass."""
    for key in ("license", "allowed-tools"):
        if not isinstance(front.fields.get(key, ""), str):
            yield f"line {front.lines[key]}: `{key}` is no text; its items were joined"
    metadata = front.fields.get("metadata", {})
    if not isinstance(metadata, dict) and metadata:
        yield f"line {front.lines['metadata']}: `metadata` is no mapping and was left out"
    if isinstance(metadata, dict) and not all(isinstance(value, str) for value in metadata.values()):
        yield f"line {front.lines['metadata']}: `metadata` holds more than text; it was made text"


def _check_name(file: Path, name: str, line: int) -> None:
    normal = unicodedata.normalize("NFKC", name)
    plain = all(char.isalnum() or char == "-" for char in normal) and normal == normal.lower()
    if not plain or normal.startswith("-") or normal.endswith("-") or "--" in normal:
        what = f"`name` {name!r} must be lower-case letters, digits and single hyphens, not at either end"
        raise Malformed(what, line)
    folder = file.parent.absolute().name
    folder = file.parent.resolve().name if folder in ("", "..") else folder
    if normal != unicodedata.normalize("NFKC", folder):
        raise Malformed(f"`name` is {name!r}, but its folder is {folder!r}", line)


# --- bytes ----------------------------------------------------------------------------------------


def _read_bytes(file: Path) -> bytes:
    try:
        if not file.is_file():
            raise InvalidManual(file, "no such file" if not file.exists() else "not a file")
        if file.stat().st_size > MAX_FILE_BYTES:
            raise InvalidManual(file, f"larger than {MAX_FILE_BYTES:,} bytes")
        return file.read_bytes()
    except OSError as error:
        raise InvalidManual(file, error.strerror or str(error)) from error


def decode_text(file: Path, data: bytes) -> str:
    """UTF-8 text with ``\\n`` line ends. Raises InvalidManual for UTF-16, binary, empty or mis-encoded content."""
    text = _decoded(file, data)
    control = _CONTROL.search(data)
    if control:
        raise _binary(file, data, control.start())
    return text


def _binary(file: Path, data: bytes, at: int) -> InvalidManual:
    return InvalidManual(file, "the file is binary, not text", data[:at].count(b"\n") + 1)


def _decoded(file: Path, data: bytes) -> str:
    if not data.strip():
        raise InvalidManual(file, "the file is empty")
    if data[:2] in (b"\xff\xfe", b"\xfe\xff") or (len(data) > 3 and data[1::2].count(0) > len(data) // 4):
        raise InvalidManual(file, "the file is in UTF-16; save it as UTF-8")
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        control = _CONTROL.search(data)
        if control is not None:
            raise _binary(file, data, control.start()) from error
        line = data[: error.start].count(b"\n") + 1
        raise InvalidManual(file, f"not UTF-8 at byte {error.start}; save it as UTF-8", line) from error
    return text.replace("\r\n", "\n").replace("\r", "\n")


# --- many manuals ---------------------------------------------------------------------------------


def load_manuals(roots: Sequence[Path]) -> LoadReport:
    """All manuals at or below ``roots``, sorted by path; a name that appears twice is broken the second time."""
    files: dict[Path, None] = {}
    broken: list[InvalidManual] = []
    for root in roots:
        found, unreadable = ([root], []) if root.name in FILE_NAMES and not root.is_dir() else find_manuals(root)
        if not found and not unreadable:
            raise InvalidManual(root, f"there is no {FILE_NAME} at or below it")
        files |= dict.fromkeys(found)
        broken += unreadable
    loaded: list[Manual] = []
    for file in files:
        try:
            loaded.append(load_manual(file))
        except InvalidManual as error:
            broken.append(error)
    unique, clashes = told_apart(loaded)
    return LoadReport(unique, (*broken, *clashes))


def find_manuals(root: Path) -> tuple[list[Path], list[InvalidManual]]:
    """Every SKILL.md at or below ``root``, sorted, and the folders that could not be read.

    Stores are not looked into. A link to a folder counts if that folder is a skill itself, and is not gone down.
    """
    found: list[Path] = []
    unreadable: list[InvalidManual] = []
    waiting = [root]
    while waiting:
        folder = waiting.pop()
        try:
            with os.scandir(folder) as listing:
                entries = list(listing)
        except (FileNotFoundError, NotADirectoryError):
            continue
        except OSError as error:
            unreadable.append(InvalidManual(folder, f"the folder cannot be read: {error.strerror or error}"))
            continue
        names = {entry.name for entry in entries}
        if MARKER in names:
            continue
        found += [folder / name for name in FILE_NAMES if name in names][:1]
        for entry in entries:
            if entry.name in FILE_NAMES:
                continue
            if entry.is_dir(follow_symlinks=False):
                waiting.append(folder / entry.name)
            elif entry.is_symlink():
                found += [path for path in [manual_file(folder / entry.name)] if path.is_file()]
    return sorted(found), sorted(unreadable, key=lambda error: error.path)


def told_apart(manuals: Iterable[Manual]) -> tuple[tuple[Manual, ...], tuple[InvalidManual, ...]]:
    """The manuals with a name of their own; those whose name an earlier one has are broken, with both paths."""
    first: dict[str, Manual] = {}
    clashes = []
    for manual in manuals:
        taken = first.setdefault(manual.key, manual)
        if taken is not manual:
            where = f"the name {manual.name!r} is taken by {taken.path}"
            clashes.append(InvalidManual(manual_file(manual.path), where))
    return tuple(first.values()), tuple(clashes)
