"""Reads SKILL.md folders in the open Agent Skills format.

Line ends are normalised to ``\\n`` and a UTF-8 byte-order mark is dropped before anything is hashed, so the same manual
written on another system is the same block. Nothing is written, ever.

**What loads.** Every file that has a description, in a frontmatter that is YAML or becomes it by the narrow rules of
``frontmatter.py``, if it is UTF-8, a regular file, within MAX_FILE_BYTES and the bounds there, and its name is safe and
not taken. That is more than the public validator (``skills-ref``) accepts: fields of other clients, lists in brackets,
a name with capitals, too long, unlike its folder or not there at all (then it is the folder's), a long description. All
of that is in the manual's ``violations``, so that ``agentkv skills validate --strict`` keeps the validator's view. What
else a reader might not expect is in its ``notes``. Nothing is silently absent: every SKILL.md under a root is loaded or
listed with file, line and reason.

**Safe** is a name without slashes, backslashes, control and direction characters, that does not begin with a dot and
has at most MAX_SAFE_NAME characters. Blanks in it are single ones.

The frontmatter ends at the first line ``---``, and may have blank lines before it. The validator cuts at the first
``---`` anywhere; only where the line gives no valid frontmatter is it read that way too, with a note.

Not guaranteed: that the optional fields are right for another client; their values are kept as they stand.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from agentkv.errors import InvalidManual
from agentkv.io.hashing import sha256
from agentkv.skills import frontmatter
from agentkv.skills.discovery import (
    FILE_NAMES,
    NOTHING_THERE,
    Found,
    find_manuals,
    find_resources,
    is_like_a_copy,
    manual_file,
)
from agentkv.skills.frontmatter import Frontmatter, Malformed, Violation, flat

MAX_FILE_BYTES = 10 * 1024 * 1024
MAX_NAME, MAX_DESCRIPTION, MAX_COMPATIBILITY = 64, 1024, 500
MAX_SAFE_NAME = 200
MAX_KEPT = 3500
"""Characters of a description, and of a licence, that are kept: they have to fit into a name's record."""
_TRUE, _FALSE = ("true", "yes", "on", "1"), ("false", "no", "off", "0", "")
_DISABLED = "disable-model-invocation"
_UNSAFE = re.compile("[/\\\\\u202a-\u202e\u2066-\u2069\ud800-\udfff]")
_CONTROL = re.compile(rb"[\x00-\x08\x0e-\x1a\x1c-\x1f]")


@dataclass(frozen=True)
class Manual:
    """One skill: ``text`` is the body without frontmatter, ``sha256`` is over name, description and body.

    ``resources``: files beside it, relative to ``path``, its folder. ``routed``: whether questions may be routed to it;
    not with ``disable-model-invocation: true``, and then it is used by its name only. ``notes``: what a person should
    know about how it was read; empty for a manual that the public validator accepts and that holds no surprise.
    ``violations``: what of it the validator refuses, which is among the notes.
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
    violations: tuple[Violation, ...] = ()
    routed: bool = True

    @property
    def warning(self) -> str:
        """The notes in one line for a person, with where to look; empty if there are none."""
        if not self.notes:
            return ""
        check = "; `agentkv skills validate --strict` checks the format" if self.violations else ""
        return f"the skill {self.name!r} of {self.path} was loaded, but: {'; '.join(self.notes)}{check}"

    @property
    def card(self) -> str:
        """The description to route by; empty where no question is to be routed to it."""
        return self.description if self.routed else ""

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
        """By which names are distinguished: two that differ in case or composition only are one."""
        return name_key(self.name)


@dataclass(frozen=True)
class LoadReport:
    """Every manual found under a root: loaded or broken, nothing absent. ``notices``: what was not looked at."""

    loaded: tuple[Manual, ...]
    broken: tuple[InvalidManual, ...]
    notices: tuple[str, ...] = ()


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


def parse_manual(file: Path, data: bytes) -> Manual:
    """The manual whose file has this content; its folder's name is looked at, nothing is opened."""
    text = _decoded(file, data)
    problems: list[InvalidManual] = []
    for reading in (_by_lines, _as_the_validator):
        try:
            cut = reading(text)
            front = frontmatter.read(cut.header, cut.first_line)
            manual, violations = _manual(file, front, cut.body.strip("\n"))
        except Malformed as error:
            problems.append(InvalidManual(file, error.reason, error.line))
            continue
        refused = (*_refused_marks(data), *_refused_cut(file, text, cut, (*front.violations, *violations)))
        notes = (*map(str, refused), *_surprises(cut.body), *cut.notes, *front.notes, *_odd_forms(front))
        return replace(manual, violations=refused, notes=notes)
    raise problems[0]


@dataclass(frozen=True)
class _Cut:
    """A file in frontmatter and body. ``first_line``: the number of the header's first one."""

    header: list[str]
    first_line: int
    body: str
    notes: tuple[str, ...] = ()


def _by_lines(text: str) -> _Cut:
    lines = text.split("\n")
    begin = next((i for i, line in enumerate(lines) if line.strip()), 0)
    if lines[begin].rstrip() != "---":
        raise Malformed("it does not begin with a frontmatter (a line `---`)", 1)
    end = next((i for i, line in enumerate(lines[begin + 1 :], begin + 1) if line.rstrip() == "---"), None)
    if end is None:
        raise Malformed("the frontmatter is not closed by a line `---`", begin + 1)
    held = [at for at, line in enumerate(lines[begin + 1 : end], begin + 2) if "---" in line]
    notes = tuple(f"line {at}: it holds `---`, where the public validator cuts" for at in held)
    return _Cut(lines[begin + 1 : end], begin + 2, "\n".join(lines[end + 1 :]), notes)


def _as_the_validator(text: str) -> _Cut:
    """The same, cut at the first ``---`` whatever is around it; the body still never holds the frontmatter."""
    parts = text.split("---", 2)
    if parts[0] or len(parts) < 3:
        raise Malformed("the frontmatter is not closed", 1)
    try:
        body = _by_lines(text).body
    except Malformed:
        body = parts[2]
    note = "the frontmatter is not closed by a line `---` of its own; it was cut at the first `---`"
    return _Cut(parts[1].split("\n"), 1, body, (note,))


def _refused_marks(data: bytes) -> Iterator[Violation]:
    if data.startswith(b"\xef\xbb\xbf"):
        yield Violation("it begins with a byte-order mark, which was dropped; the public validator refuses that")


def _refused_cut(file: Path, text: str, cut: _Cut, violations: tuple[Violation, ...]) -> tuple[Violation, ...]:
    """What the validator refuses in the frontmatter as it cuts it; ``violations`` are those as it was cut here."""
    try:
        theirs = _as_the_validator(text)
        if "\n".join(theirs.header).strip("\n") == "\n".join(cut.header).strip("\n"):
            return violations
        front = frontmatter.read(theirs.header, theirs.first_line)
        return (*front.violations, *_manual(file, front, "")[1])
    except Malformed as error:
        return (Violation(f"the public validator refuses it: {error.reason}", error.line),)


def _surprises(body: str) -> Iterator[str]:
    if not body.strip():
        yield "it has no text after its frontmatter"
    if _CONTROL.search(body.encode()):
        yield "its text holds control characters"


# --- fields ---------------------------------------------------------------------------------------


def _manual(file: Path, front: Frontmatter, text: str) -> tuple[Manual, tuple[Violation, ...]]:
    """The manual, and what of its fields the public validator refuses. Raises Malformed."""
    fields = front.fields
    name, bad_name = _name(file, front)
    description, bad_description = _description(front)
    metadata = fields.get("metadata", {})
    manual = Manual(
        name=name,
        description=description,
        text=text,
        path=file.parent,
        license=_optional(fields.get("license")),
        allowed_tools=_optional(fields.get("allowed-tools")),
        compatibility=_optional(fields.get("compatibility")),
        metadata={key: flat(value) for key, value in metadata.items()} if isinstance(metadata, dict) else {},
        routed=flat(fields.get(_DISABLED, "")).strip().casefold() not in _TRUE,
    )
    return manual, (*bad_name, *bad_description, *_bad_compatibility(front))


def _name(file: Path, front: Frontmatter) -> tuple[str, list[Violation]]:
    """The skill's name, its folder's where it has none, and what is wrong with it. Raises Malformed if it is unsafe."""
    value, line = front.fields.get("name"), front.lines.get("name", 2)
    folder = file.parent.absolute().name
    folder = file.parent.resolve().name if folder in ("", "..") else folder
    if not isinstance(value, str) or not value.strip():
        if not is_safe(folder):
            raise Malformed("the frontmatter has no `name` text, and its folder's name is none", line)
        return folder, [
            Violation(f"the frontmatter has no `name` text; it is called {folder!r}, like its folder", line)
        ]
    name = " ".join(value.split())
    if not is_safe(name):
        what = f"no slash, control character or dot at its beginning, and at most {MAX_SAFE_NAME} characters"
        raise Malformed(f"`name` {name[:MAX_SAFE_NAME]!r} is not safe; a name has {what}", line)
    normal = unicodedata.normalize("NFKC", value.strip())
    return name, [Violation(what, line) for what in _bad_name(normal, folder)]


def _bad_name(normal: str, folder: str) -> Iterator[str]:
    plain = all(char.isalnum() or char == "-" for char in normal) and normal == normal.lower()
    if not plain or normal.startswith("-") or normal.endswith("-") or "--" in normal:
        yield f"`name` {normal!r} must be lower-case letters, digits and single hyphens, not at either end"
    if len(normal) > MAX_NAME:
        yield f"`name` has {len(normal)} characters, the limit is {MAX_NAME}"
    if normal != unicodedata.normalize("NFKC", folder):
        yield f"`name` is {normal!r}, but its folder is {folder!r}"


def is_safe(name: str) -> bool:
    """Whether a name can be shown, typed and put before ``/part``: see the module's text."""
    shown = unicodedata.normalize("NFKC", name)
    controls = any(unicodedata.category(char) in ("Cc", "Zl", "Zp") for char in shown)
    return 0 < len(shown) <= MAX_SAFE_NAME and not shown.startswith(".") and not _UNSAFE.search(shown) and not controls


def _description(front: Frontmatter) -> tuple[str, list[Violation]]:
    value, line, bad = front.fields.get("description", ""), front.lines.get("description", 2), list[Violation]()
    if not isinstance(value, str):
        bad.append(Violation("`description` is not text; its items were joined", line))
    text = flat(value)
    if not text.strip():
        raise Malformed("the frontmatter has no `description` text", line)
    if len(text) > MAX_DESCRIPTION:
        kept = f"; the first {MAX_KEPT:,} are kept" if len(text.strip()) > MAX_KEPT else ""
        what = f"`description` has {len(text)} characters, the limit is {MAX_DESCRIPTION}{kept}"
        bad.append(Violation(what, line))
    return text.strip()[:MAX_KEPT].rstrip(), bad


def _bad_compatibility(front: Frontmatter) -> Iterator[Violation]:
    value, line = front.fields.get("compatibility", ""), front.lines.get("compatibility")
    if not isinstance(value, str):
        yield Violation("`compatibility` is not text; its items were joined", line)
    elif len(value) > MAX_COMPATIBILITY:
        yield Violation(f"`compatibility` has {len(value)} characters, the limit is {MAX_COMPATIBILITY}", line)


def _optional(value: object) -> str | None:
    return None if value is None else flat(value)[:MAX_KEPT]


def _odd_forms(front: Frontmatter) -> Iterator[str]:
    """Notes on optional fields in a form that the format does not have, though the validator lets it pass."""
    for key in ("license", "allowed-tools"):
        if not isinstance(front.fields.get(key, ""), str):
            yield f"line {front.lines[key]}: `{key}` is not text; its items were joined"
    metadata = front.fields.get("metadata", {})
    if not isinstance(metadata, dict) and metadata:
        yield f"line {front.lines['metadata']}: `metadata` is not a mapping and was left out"
    if isinstance(metadata, dict) and not all(isinstance(value, str) for value in metadata.values()):
        yield f"line {front.lines['metadata']}: `metadata` holds more than text; it was made text"
    if _DISABLED in front.fields:
        line, value = front.lines[_DISABLED], flat(front.fields[_DISABLED]).strip().casefold()
        if value in _TRUE:
            yield f"line {line}: `{_DISABLED}`: no question is routed to it; it is used by its name"
        elif value not in _FALSE:
            yield f"line {line}: `{_DISABLED}` is neither true nor false; it was taken as false"


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
    """All manuals at or below ``roots``, sorted by path; of one name only one is loaded, see :func:`told_apart`."""
    files: dict[Path, None] = {}
    broken: list[InvalidManual] = []
    notices: list[str] = []
    for root in roots:
        found = Found(files=[root]) if root.name in FILE_NAMES and not root.is_dir() else find_manuals(root)
        if not found.files and not found.unreadable:
            raise InvalidManual(root, "; ".join([NOTHING_THERE, *found.notices]))
        files |= dict.fromkeys(found.files)
        broken += found.unreadable
        notices += found.notices
    loaded: list[Manual] = []
    for file in files:
        try:
            loaded.append(load_manual(file))
        except InvalidManual as error:
            broken.append(error)
    unique, clashes = told_apart(loaded, roots)
    return LoadReport(unique, (*broken, *clashes), tuple(notices))


def told_apart(
    manuals: Iterable[Manual], roots: Sequence[Path] = ()
) -> tuple[tuple[Manual, ...], tuple[InvalidManual, ...]]:
    """The manuals with a name of their own, in order; those whose name another one has are broken, with both paths.

    The first root's is taken, then one whose path does not speak of copies, then the one nearest to its root, then one
    that is named like its folder. A file that is reached by several links is one manual.
    """
    manuals = list(manuals)
    keeper: dict[str, Manual] = {}
    for manual in sorted(manuals, key=lambda manual: _precedence(manual, roots)):
        keeper.setdefault(manual.key, manual)
    unique = tuple(manual for manual in manuals if keeper[manual.key] is manual)
    others = [manual for manual in manuals if not _is_same_file(manual, keeper[manual.key])]
    return unique, tuple(taken_by(manual, keeper[manual.key].path) for manual in others)


def taken_by(manual: Manual, keeper: Path) -> InvalidManual:
    """That a manual cannot be loaded since its name is that of the skill in the folder ``keeper``."""
    reason = f"the name {manual.name!r} is taken by {keeper}; rename or remove one of them"
    return InvalidManual(manual_file(manual.path), reason, keeper=keeper)


def _precedence(manual: Manual, roots: Sequence[Path]) -> tuple[int, bool, int, bool, Path]:
    path = manual.path
    at = next((i for i, root in enumerate(roots) if path.is_relative_to(root)), len(roots))
    below = path.relative_to(roots[at]) if at < len(roots) else path
    is_misnamed = name_key(manual.name) != name_key(path.name)
    return at, is_like_a_copy(below), len(path.parts), is_misnamed, path


def _is_same_file(manual: Manual, other: Manual) -> bool:
    try:
        return manual is other or manual_file(manual.path).samefile(manual_file(other.path))
    except OSError:
        return False
