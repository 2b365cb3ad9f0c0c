"""Reads SKILL.md folders in the open Agent Skills format.

Line ends are normalised to ``\\n`` and a UTF-8 byte-order mark is dropped before anything is hashed, so the same manual
written on another system is the same block. A frontmatter that strict YAML refuses is read once more with its plain
one-line values quoted, which is how people write a colon in a description; YAML that is valid is never altered.

Nothing is silently absent: every SKILL.md under a root is either loaded or listed with file, line and reason.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from agentkv.errors import InvalidManual
from agentkv.hashing import sha256

FILE_NAME = "SKILL.md"
MAX_FILE_BYTES = 10 * 1024 * 1024
MAX_NAME, MAX_DESCRIPTION = 64, 1024
_FIELDS = {"name", "description", "license", "compatibility", "metadata", "allowed-tools"}
_CONTROL = re.compile(rb"[\x00-\x08\x0e-\x1a\x1c-\x1f]")
_PLAIN_VALUE = re.compile(
    r"^([A-Za-z][\w-]*):[ \t]+(?![\"'|>\[{&*!])(.*\S)[ \t]*$|^([A-Za-z][\w-]*):[ \t]+(\[.*[^\]\s])[ \t]*$"
)


@dataclass(frozen=True)
class Manual:
    """One skill: ``text`` is the body without frontmatter, ``sha256`` is over name, description and body."""

    name: str
    description: str
    text: str
    path: Path
    license: str | None = None
    allowed_tools: str | None = None

    @property
    def sha256(self) -> str:
        """Digest of what a block is made from."""
        return sha256("\0".join((self.name, self.description, self.text)).encode())


@dataclass(frozen=True)
class LoadReport:
    """Every manual found under a root: loaded or broken, nothing absent."""

    loaded: tuple[Manual, ...]
    broken: tuple[InvalidManual, ...]


def load_manual(folder: Path) -> Manual:
    """The manual of a skill folder (or of a SKILL.md path). Raises InvalidManual with file, line and reason."""
    file = folder if folder.name == FILE_NAME else folder / FILE_NAME
    text = _read_text(file)
    header, body, first_line = _split(file, text)
    fields = _parse_header(file, header)
    name = _field(file, fields, "name", MAX_NAME)
    _check_name(file, name)
    description = _field(file, fields, "description", MAX_DESCRIPTION)
    if not body.strip():
        raise InvalidManual(file, "the manual has no text after its frontmatter", first_line)
    return Manual(
        name=name,
        description=description,
        text=body.strip("\n"),
        path=file.parent,
        license=_optional(fields, "license"),
        allowed_tools=_optional(fields, "allowed-tools"),
    )


def load_manuals(roots: Sequence[Path]) -> LoadReport:
    """All manuals at or below ``roots``, sorted by path; a name that appears twice is broken the second time."""
    files: list[Path] = []
    for root in roots:
        here = [root] if root.name == FILE_NAME else sorted(root.rglob(FILE_NAME))
        if not here:
            raise InvalidManual(root, f"there is no {FILE_NAME} at or below it")
        files += [file for file in here if file not in files]
    loaded: dict[str, Manual] = {}
    broken: list[InvalidManual] = []
    for file in files:
        try:
            manual = load_manual(file)
        except InvalidManual as error:
            broken.append(error)
            continue
        key = unicodedata.normalize("NFKC", manual.name).casefold()
        if key in loaded:
            broken.append(InvalidManual(file, f"the name {manual.name!r} is taken by {loaded[key].path}"))
        else:
            loaded[key] = manual
    return LoadReport(tuple(loaded.values()), tuple(broken))


def _read_text(file: Path) -> str:
    try:
        if not file.is_file():
            raise InvalidManual(file, "no such file" if not file.exists() else "not a file")
        if file.stat().st_size > MAX_FILE_BYTES:
            raise InvalidManual(file, f"larger than {MAX_FILE_BYTES:,} bytes")
        data = file.read_bytes()
    except OSError as error:
        raise InvalidManual(file, error.strerror or str(error)) from error
    return decode_text(file, data)


def decode_text(file: Path, data: bytes) -> str:
    """UTF-8 text with ``\\n`` line ends. Raises InvalidManual for UTF-16, binary, empty or mis-encoded content."""
    if not data.strip():
        raise InvalidManual(file, "the file is empty")
    if data[:2] in (b"\xff\xfe", b"\xfe\xff") or (len(data) > 3 and data[1::2].count(0) > len(data) // 4):
        raise InvalidManual(file, "the file is in UTF-16; save it as UTF-8")
    control = _CONTROL.search(data)
    if control:
        raise InvalidManual(file, "the file is binary, not text", data[: control.start()].count(b"\n") + 1)
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise InvalidManual(
            file, f"not UTF-8 at byte {error.start}; save it as UTF-8", data[: error.start].count(b"\n") + 1
        ) from error
    return text.replace("\r\n", "\n").replace("\r", "\n")


def _split(file: Path, text: str) -> tuple[list[str], str, int]:
    lines = text.split("\n")
    if lines[0].rstrip() != "---":
        raise InvalidManual(file, "it does not begin with a frontmatter (a line `---`)", 1)
    end = next((i for i, line in enumerate(lines[1:], 1) if line.rstrip() == "---"), None)
    if end is None:
        raise InvalidManual(file, "the frontmatter is not closed by a line `---`", 1)
    return lines[1:end], "\n".join(lines[end + 1 :]), end + 2


def _parse_header(file: Path, header: list[str]) -> dict[str, Any]:
    # Besides its own errors, yaml lets through ValueError for impossible dates and numbers, and RecursionError.
    try:
        fields = yaml.safe_load("\n".join(header))
    except (yaml.YAMLError, ValueError, RecursionError) as strict:
        try:
            fields = yaml.safe_load("\n".join(_quoted(line) for line in header))
        except (yaml.YAMLError, ValueError, RecursionError):
            mark = getattr(strict, "problem_mark", None)
            line = mark.line + 2 if mark is not None else None
            raise InvalidManual(file, f"frontmatter: {getattr(strict, 'problem', None) or strict}", line) from strict
    if not isinstance(fields, dict):
        raise InvalidManual(file, "the frontmatter has no fields", 2)
    unknown = sorted(str(key) for key in fields if key not in _FIELDS)
    if unknown:
        raise InvalidManual(file, f"unknown frontmatter field {', '.join(unknown)}; put your own under `metadata`", 2)
    return fields


def _quoted(line: str) -> str:
    """A plain one-line ``key: value`` with the value in quotes; any other line unchanged."""
    match = _PLAIN_VALUE.match(line)
    if not match:
        return line
    key, value = match[1] or match[3], match[2] or match[4]
    return f"{key}: '{value.replace(chr(39), chr(39) * 2)}'"


def _field(file: Path, fields: dict[str, Any], key: str, limit: int) -> str:
    value = fields.get(key)
    if not isinstance(value, str) or not value.strip():
        raise InvalidManual(file, f"the frontmatter has no `{key}` text", 2)
    if len(value.strip()) > limit:
        raise InvalidManual(file, f"`{key}` has {len(value.strip())} characters, the limit is {limit}", 2)
    return value.strip()


def _optional(fields: dict[str, Any], key: str) -> str | None:
    value = fields.get(key)
    return value if isinstance(value, str) else None


def _check_name(file: Path, name: str) -> None:
    normal = unicodedata.normalize("NFKC", name)
    plain = all(char.isalnum() or char == "-" for char in normal) and normal == normal.lower()
    if not plain or normal.startswith("-") or normal.endswith("-") or "--" in normal:
        raise InvalidManual(
            file, f"`name` {name!r} must be lower-case letters, digits and single hyphens, not at either end", 2
        )
    if normal != unicodedata.normalize("NFKC", file.parent.resolve().name):
        raise InvalidManual(file, f"`name` is {name!r}, but its folder is {file.parent.resolve().name!r}", 2)
