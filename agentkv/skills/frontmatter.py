"""The frontmatter of a SKILL.md: the YAML that the format allows, and one narrow rule for what people write instead.

What the public validator (``skills-ref``) takes is read here with the same values: every scalar is text, whatever it
looks like; flow collections, tags, anchors and repeated keys are refused. So is what is larger than MAX_CHARS or nested
deeper than MAX_DEPTH: a parser's time is worth something. It knows no files.

**The narrow rule.** If the frontmatter is no YAML at all, each line ``key: value`` that is no YAML *by itself* is read
as if its value stood in quotes, and the whole is tried once more: a colon in a description, a value that begins with
``@``, a backtick, ``%`` or ``[draft``. Indented lines count only below ``metadata:``. Lines that are YAML by
themselves, and every frontmatter that is YAML, are never altered: `` #7`` in a plain value begins a comment, as YAML
says, so what follows is not part of the value. Both are noted, so that neither happens without a word.

Not guaranteed: the line breaks U+0085, U+2028 and U+2029, which YAML 1.1 and 1.2 take differently, are read as blanks.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import yaml

FIELDS = frozenset({"name", "description", "license", "compatibility", "metadata", "allowed-tools"})
MAX_CHARS, MAX_DEPTH = 256 * 1024, 16
_LINE = re.compile(r"^([ ]*)([A-Za-z][\w.-]*):[ \t]+(?![|>])(\S.*?)[ \t]*$")
_BREAKS = str.maketrans("\x85\u2028\u2029", "   ")
# Besides its own errors, yaml lets ValueError through, and RecursionError for deep nesting.
_YAML_ERRORS = (yaml.YAMLError, ValueError, RecursionError)


class Malformed(Exception):
    """What is wrong, and in which line of the file."""

    def __init__(self, reason: str, line: int | None = None) -> None:
        super().__init__(reason)
        self.reason, self.line = reason, line


@dataclass(frozen=True)
class Frontmatter:
    """``fields``: text, or lists and mappings of it. ``lines``: of each key, in the file. ``notes``: for a person."""

    fields: dict[str, Any]
    lines: dict[str, int]
    notes: tuple[str, ...]


def read(lines: Sequence[str], first_line: int) -> Frontmatter:
    """The frontmatter whose lines these are; ``first_line`` is the number of the first one. Raises Malformed."""
    if sum(map(len, lines)) > MAX_CHARS:
        raise Malformed(f"the frontmatter has more than {MAX_CHARS:,} characters", first_line)
    lines = [line.translate(_BREAKS) for line in lines]
    notes: list[str] = []
    try:
        events = _events(lines)
    except _YAML_ERRORS as strict:
        lines, quoted = _with_quotes(lines)
        try:
            events = _events(lines)
        except _YAML_ERRORS:
            raise _malformed(strict, first_line) from strict
        notes += [f"line {first_line + at}: no YAML; its value was taken as it stands" for at in quoted]
    _refuse_beyond_the_format(events, first_line)
    try:
        node = yaml.compose("\n".join(lines), Loader=yaml.BaseLoader)
    except _YAML_ERRORS as error:
        raise _malformed(error, first_line) from error
    if not isinstance(node, yaml.MappingNode):
        raise Malformed("the frontmatter has no fields", first_line)
    fields = _plain(node, first_line)
    keys = {key.value: key.start_mark.line + first_line for key, _ in node.value}
    unknown = sorted(set(fields) - FIELDS)
    if unknown:
        what = f"unknown frontmatter field {', '.join(unknown)}; put your own under `metadata`"
        raise Malformed(what, keys[unknown[0]])
    notes += _comments(node, lines, first_line)
    return Frontmatter(fields, keys, tuple(notes))


def flat(value: Any) -> str:
    """A value as one text: lists with blanks between, mappings as ``key: value`` with commas."""
    match value:
        case str():
            return value
        case list():
            return " ".join(map(flat, value))
        case _:
            return ", ".join(f"{key}: {flat(item)}" for key, item in value.items())


def _events(lines: Sequence[str]) -> list[Any]:
    """All of YAML's events; ends early for what is nested absurdly, which would take the parser minutes."""
    events, depth = [], 0
    for event in yaml.parse("\n".join(lines), Loader=yaml.BaseLoader):
        depth += isinstance(event, yaml.CollectionStartEvent) - isinstance(event, yaml.CollectionEndEvent)
        if depth > MAX_DEPTH:
            raise yaml.YAMLError(f"nested more than {MAX_DEPTH} deep")
        events.append(event)
    return events


def _malformed(error: Exception, first_line: int) -> Malformed:
    mark = getattr(error, "problem_mark", None)
    reason = f"frontmatter: {getattr(error, 'problem', None) or str(error) or type(error).__name__}"
    return Malformed(reason, mark.line + first_line if mark is not None else None)


def _refuse_beyond_the_format(events: Sequence[Any], first_line: int) -> None:
    for event in events:
        what = None
        if isinstance(event, yaml.AliasEvent) or getattr(event, "anchor", None) is not None:
            what = "an anchor or alias (`&`, `*`)"
        elif isinstance(event, yaml.NodeEvent) and getattr(event, "tag", None) is not None:
            what = "a tag (`!`)"
        elif isinstance(event, yaml.CollectionStartEvent) and event.flow_style:
            what = "a list or mapping in brackets"
        if what is not None:
            line = event.start_mark.line + first_line
            raise Malformed(f"frontmatter: {what} is not part of the format; put the value in quotes", line)


def _plain(node: Any, first_line: int) -> Any:
    if isinstance(node, yaml.ScalarNode):
        return node.value
    if isinstance(node, yaml.SequenceNode):
        return [_plain(item, first_line) for item in node.value]
    found: dict[str, Any] = {}
    for key, value in node.value:
        line = key.start_mark.line + first_line
        if not isinstance(key, yaml.ScalarNode):
            raise Malformed("frontmatter: a key is no text", line)
        if key.value in found:
            raise Malformed(f"frontmatter: the key {key.value!r} appears twice", line)
        found[key.value] = _plain(value, first_line)
    return found


def _with_quotes(lines: Sequence[str]) -> tuple[list[str], list[int]]:
    """The lines, with the values quoted of those that are no YAML by themselves, and which these are."""
    out, quoted, section = [], [], ""
    for at, line in enumerate(lines):
        if line[:1].strip():
            section = line.rstrip()
        match = _LINE.match(line)
        if match and (not match[1] or section == "metadata:") and not _is_yaml(line.strip()):
            line = f"{match[1]}{match[2]}: '{match[3].replace(chr(39), chr(39) * 2)}'"
            quoted.append(at)
        out.append(line)
    return out, quoted


def _is_yaml(line: str) -> bool:
    try:
        _events([line])
    except _YAML_ERRORS:
        return False
    return True


def _comments(node: yaml.MappingNode, lines: Sequence[str], first_line: int) -> list[str]:
    """A note for each plain value behind which the line goes on with a comment, or that the validator cannot read."""
    notes = []
    for key, value in node.value:
        if not isinstance(value, yaml.ScalarNode) or value.style is not None or value.end_mark.line >= len(lines):
            continue
        rest = lines[value.end_mark.line][value.end_mark.column :].lstrip()
        if value.value == "=":
            notes.append(f"line {value.end_mark.line + first_line}: `{key.value}` is `=`, which the validator refuses")
        if rest.startswith("#"):
            line = value.end_mark.line + first_line
            notes.append(
                f"line {line}: `{key.value}` ends before {rest[:20]!r}, a comment in YAML; quote it to keep it"
            )
    return notes
