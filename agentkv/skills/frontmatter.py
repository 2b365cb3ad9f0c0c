"""The frontmatter of a SKILL.md: the YAML that the format allows, and what people write instead.

What the public validator (``skills-ref``) takes is read here with the same values: every scalar is text, whatever it
looks like. What is YAML but not of the format is read too and is in ``violations``: collections in brackets, tags,
anchors, fields of other clients, repeated keys (the last one counts). Refused is what is not YAML, larger than
MAX_CHARS, or nested deeper or expanded further than MAX_DEPTH and MAX_NODES: a parser's time is worth something. It
knows no files.

**The narrow rules.** If the frontmatter is not YAML at all, tabs at the beginnings of lines are read as blanks, and
each line ``key: value`` that is not YAML *by itself* is read as if its value stood in quotes: a colon in a description,
a value that begins with ``@``, a backtick, ``%`` or ``[draft``. Indented lines count only below ``metadata:``. Lines
that are YAML by themselves, and every frontmatter that is YAML, are never altered: `` #7`` in a plain value begins a
comment, as YAML says, so what follows is not part of the value. All of it is noted, so that nothing happens without a
word.

Not guaranteed: the line breaks U+0085, U+2028 and U+2029, which YAML 1.1 and 1.2 take differently, are read as blanks.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import yaml

FIELDS = frozenset({"name", "description", "license", "compatibility", "metadata", "allowed-tools"})
MAX_CHARS, MAX_DEPTH, MAX_NODES = 256 * 1024, 16, 10_000
_NAMED = 8
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
class Violation:
    """Something that the public validator refuses, in which line of the file."""

    reason: str
    line: int | None = None

    def __str__(self) -> str:
        return self.reason if self.line is None else f"line {self.line}: {self.reason}"


@dataclass(frozen=True)
class Frontmatter:
    """``fields``: text, or lists and mappings of it. ``lines``: of each key, in the file.

    ``violations``: what the public validator refuses; ``notes``: what else a person should know.
    """

    fields: dict[str, Any]
    lines: dict[str, int]
    notes: tuple[str, ...]
    violations: tuple[Violation, ...]


def read(lines: Sequence[str], first_line: int) -> Frontmatter:
    """The frontmatter whose lines these are; ``first_line`` is the number of the first one. Raises Malformed."""
    if sum(map(len, lines)) > MAX_CHARS:
        raise Malformed(f"the frontmatter has more than {MAX_CHARS:,} characters", first_line)
    lines, events, violations = _parsed([line.translate(_BREAKS) for line in lines], first_line)
    violations += _beyond_the_format(events, first_line)
    try:
        node = yaml.compose("\n".join(lines), Loader=yaml.BaseLoader)
    except _YAML_ERRORS as error:
        raise _malformed(error, first_line) from error
    if not isinstance(node, yaml.MappingNode):
        raise Malformed("the frontmatter has no fields", first_line)
    values = _Values(first_line)
    fields = values.mapping(node, 0)
    keys = {flat(values.plain(key, 1)): key.start_mark.line + first_line for key, _ in node.value}
    violations += values.violations
    unknown = [key for key in fields if key not in FIELDS]
    if unknown:
        named = ", ".join(unknown[:_NAMED]) + (f" and {len(unknown) - _NAMED} more" if len(unknown) > _NAMED else "")
        what = f"unknown frontmatter field {named}; put your own under `metadata`"
        violations.append(Violation(what, keys[unknown[0]]))
    violations += [Violation("a value `=`, which the validator cannot read", at) for at in _equals(node, first_line)]
    return Frontmatter(fields, keys, tuple(_comments(node, lines, first_line)), tuple(violations))


def flat(value: Any) -> str:
    """A value as one text: lists with blanks between, mappings as ``key: value`` with commas."""
    match value:
        case str():
            return value
        case list():
            return " ".join(map(flat, value))
        case _:
            return ", ".join(f"{key}: {flat(item)}" for key, item in value.items())


def _parsed(lines: list[str], first_line: int) -> tuple[list[str], list[Any], list[Violation]]:
    """The lines as YAML, by the narrow rules if need be, its events, and what was mended. Raises Malformed."""
    refusal: Exception | None = None
    for rules in _RULES:
        mended, notes = lines, list[Violation]()
        for rule, what in rules:
            mended, at = rule(mended)
            notes += [Violation(what, first_line + i) for i in at]
        if refusal is None or mended != lines:
            try:
                return mended, _events(mended), notes
            except _YAML_ERRORS as error:
                refusal = refusal or error
    assert refusal is not None
    raise _malformed(refusal, first_line) from refusal


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


def _beyond_the_format(events: Sequence[Any], first_line: int) -> Iterator[Violation]:
    """What is YAML and not of the format, each kind once."""
    seen = set[str]()
    for event in events:
        what = None
        if isinstance(event, yaml.AliasEvent) or getattr(event, "anchor", None) is not None:
            what = "an anchor or alias (`&`, `*`)"
        elif isinstance(event, yaml.NodeEvent) and getattr(event, "tag", None) is not None:
            what = "a tag (`!`)"
        elif isinstance(event, yaml.CollectionStartEvent) and event.flow_style:
            what = "a list or mapping in brackets"
        if what is not None and what not in seen:
            seen.add(what)
            line = event.start_mark.line + first_line
            yield Violation(f"frontmatter: {what} is not part of the format; put the value in quotes", line)


class _Values:
    """Nodes as text, lists and mappings; what an alias repeats is repeated, within the bounds. Raises Malformed."""

    def __init__(self, first_line: int) -> None:
        self._first_line, self._nodes = first_line, 0
        self.violations: list[Violation] = []

    def plain(self, node: Any, depth: int) -> Any:
        self._nodes += 1
        if self._nodes > MAX_NODES or depth > MAX_DEPTH:
            raise Malformed("frontmatter: its aliases expand without end", node.start_mark.line + self._first_line)
        if isinstance(node, yaml.ScalarNode):
            return node.value
        if isinstance(node, yaml.SequenceNode):
            return [self.plain(item, depth + 1) for item in node.value]
        return self.mapping(node, depth)

    def mapping(self, node: Any, depth: int) -> dict[str, Any]:
        found: dict[str, Any] = {}
        for key, value in node.value:
            line = key.start_mark.line + self._first_line
            name = flat(self.plain(key, depth + 1))
            if not isinstance(key, yaml.ScalarNode):
                self.violations.append(Violation("frontmatter: a key is not text", line))
            if name in found:
                what = f"frontmatter: the key {name!r} appears twice; the last one counts"
                self.violations.append(Violation(what, line))
            found[name] = self.plain(value, depth + 1)
        return found


_Rule = Callable[[list[str]], tuple[list[str], list[int]]]


def _without_tabs(lines: list[str]) -> tuple[list[str], list[int]]:
    """The lines with two blanks for each tab in their indentation, and which these are."""
    indents = [line[: len(line) - len(line.lstrip(" \t"))] for line in lines]
    mended = [i.replace("\t", "  ") + line[len(i) :] for i, line in zip(indents, lines, strict=True)]
    return mended, [at for at, indent in enumerate(indents) if "\t" in indent]


def _with_quotes(lines: list[str]) -> tuple[list[str], list[int]]:
    """The lines, with the values quoted of those that are not YAML by themselves, and which these are."""
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


_TABS: tuple[_Rule, str] = (_without_tabs, "YAML allows no tabs there; they were read as blanks")
_QUOTES: tuple[_Rule, str] = (_with_quotes, "no YAML; its value was taken as it stands")
_RULES: tuple[tuple[tuple[_Rule, str], ...], ...] = ((), (_TABS,), (_QUOTES,), (_TABS, _QUOTES))


def _is_yaml(line: str) -> bool:
    try:
        _events([line])
    except _YAML_ERRORS:
        return False
    return True


def _equals(node: yaml.MappingNode, first_line: int) -> Iterator[int]:
    """The lines of plain values ``=``, for which YAML 1.1 has a type that nobody reads."""
    for _, value in node.value:
        if isinstance(value, yaml.ScalarNode) and value.style is None and value.value == "=":
            yield value.end_mark.line + first_line


def _comments(node: yaml.MappingNode, lines: Sequence[str], first_line: int) -> Iterator[str]:
    """A note for each plain value after which the line goes on with a comment."""
    for key, value in node.value:
        if not isinstance(value, yaml.ScalarNode) or value.style is not None or value.end_mark.line >= len(lines):
            continue
        rest = lines[value.end_mark.line][value.end_mark.column :].lstrip()
        if rest.startswith("#"):
            line = value.end_mark.line + first_line
            yield f"line {line}: `{key.value}` ends before {rest[:20]!r}, a comment in YAML; quote it to keep it"
