"""Grammars (GBNF) for answers that call tools or are JSON.

A tool's arguments follow its JSON schema. What a converter cannot say in GBNF is left out step by step: first
patterns, lengths and formats, at last the schema itself, so that any JSON object will do; what the arguments then
hold is for their reader to check. No schema is refused.

An answer that *may* call is one grammar too, not a lazy one: free text in which the mark that opens a call cannot
stand, or calls, or text and then calls. The model decides at each token, and a call once begun has to be whole. Text
that begins as a bare call does (``bare.py``) is bound likewise from where its arguments open.

Knows JSON schemas and GBNF. Knows nothing of templates; loads the native library for its converter only when asked.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

from agentkv.engine.base import Engine, Sampling
from agentkv.engine.constrain.bare import FENCE, WHITE, Node, automaton, can_be_bare
from agentkv.engine.tools import CallForm
from agentkv.errors import InvalidGrammar

Json = Mapping[str, Any]

MOST_REPEATS = 64
"""Longer lengths are not put into a grammar: they are written out there, one group in the other."""
_ANY: dict[str, Any] = {"type": ["object", "array", "string", "number", "boolean", "null"]}
_CONVERTER_FAULTS = (
    ValueError,
    LookupError,
    TypeError,
    AttributeError,
    AssertionError,
    NameError,
    RecursionError,
)
_LITERALS = re.compile(r'("(?:\\.|[^"\\])*"|\[(?:\\.|[^\]\\])*\])', re.S)
_NAMES = re.compile(r"[a-zA-Z0-9-]+")


@dataclass(frozen=True)
class Wanted:
    """What an answer may be.

    ``tools`` are those that may be called, by name with the JSON schema of their arguments. ``must_call``: no answer
    without a call. ``many``: several calls. ``schema``: what is not a call is JSON of this schema, else free text.
    """

    tools: Mapping[str, Json]
    must_call: bool = False
    many: bool = True
    schema: Json | None = None


def grammar_for(engine: Engine, form: CallForm, wanted: Wanted) -> str | None:
    """The grammar of what is wanted, as strict as this engine takes it; None where anything goes.

    Raises InvalidGrammar from an engine that has no grammars.
    """
    if not wanted.tools and wanted.schema is None:
        return None
    lines: dict[str, str] = {}
    for index, (name, schema) in enumerate(wanted.tools.items()):
        lines |= _usable(engine, schema, f"t{index}-")
        lines[f"call-{index}"] = f"{literal(name)} {literal(form.middle)} t{index}-root {literal(form.close)}"
    if wanted.schema is not None:
        lines |= _usable(engine, wanted.schema, "answer-")
    if wanted.tools:
        again = f" ({literal(form.between + form.open)} call)*" if wanted.many else ""
        lines["call"] = " | ".join(f"call-{index}" for index in range(len(wanted.tools)))
        lines["calls"] = f"call{again}"
    lines["root"] = _root(form, wanted, lines)
    return "\n".join(f"{name} ::= {rule}" for name, rule in lines.items())


def no_calls(form: CallForm) -> str:
    """The grammar of free text without a call, which is not empty."""
    begun = mark(form)
    rules = _text_rules(begun, None)
    first = f"[^{_in_class(WHITE + begun[0])}] text-0"
    if len(begun) > 1:
        first = f"({first} | {literal(begun[0])} text-1)"
    root = f"[{_in_class(WHITE)}]{{0,20}} {first}"
    return "\n".join(f"{name} ::= {rule}" for name, rule in {"root": root, **rules}.items())


def _root(form: CallForm, wanted: Wanted, lines: dict[str, str]) -> str:
    calls = f"{literal(form.open)} calls"
    if wanted.must_call:
        return calls
    if wanted.schema is not None:
        return f"answer-root | {calls}" if wanted.tools else "answer-root"
    begun, names = mark(form), list(wanted.tools)
    lines["begun"] = f"{literal(form.open.removeprefix(begun))} calls"
    lines |= _bare_rules(names, wanted.many)
    bare = {name: f"bare-{index}" for index, name in enumerate(names)}
    lines |= _text_rules(begun, "begun", automaton(names)[0], bare)
    lines["lead-0"] = lines["lead-0"].removeprefix(" | ")  # not empty: an agent's last message would be
    return "lead-0"


def mark(form: CallForm) -> str:
    """What tells a call from text: the beginning of a call, up to its JSON."""
    return form.open.split("{")[0].rstrip() or form.open


def literal(text: str) -> str:
    """A GBNF literal."""
    escaped = text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n").replace("\r", "\\r")
    return f'"{escaped}"'


# --- free text without a mark in it -------------------------------------------------------------------


def _text_rules(
    begun: str, then: str | None, lead: Node | None = None, bare: Mapping[str, str] | None = None
) -> dict[str, str]:
    """Text up to ``begun`` and ``then``, or to the end: rule ``text-n`` has read the first n characters of it.

    With ``lead``, rule ``lead-0`` is text that may begin as a bare call; where arguments open it goes on with the rule
    that ``bare`` has for the tool. Written as right recursion, for which llama.cpp needs no deeper stack.
    """
    states: list[tuple[int, Node | None]] = [(n, None) for n in range(len(begun))]
    names = {state: f"text-{n}" for n, state in enumerate(states)}

    def named(state: tuple[int, Node | None]) -> str:
        if state not in names:
            names[state] = f"lead-{len(names) - len(begun)}"
            states.append(state)
        return names[state]

    if lead is not None:
        named((0, lead))
    rules: dict[str, str] = {}
    for read, node in states:
        follows = node.next if node else {}
        opens = "{" if node and node.opens else ""
        chars: dict[str, list[str]] = {}
        for char in sorted({*begun, *follows} - {opens}):
            after = _overlap(begun, begun[:read] + char)
            target = then or "" if after == len(begun) else named((after, follows.get(char)))
            chars.setdefault(target, []).append(char)
        chars.pop("text-0", None)
        others = "".join([opens, *(char for some in chars.values() for char in some)])
        options = ["", f"[^{_in_class(others)}] text-0"]
        options += [f"[{_in_class(''.join(some))}] {target}" for target, some in chars.items() if target]
        if node and node.opens:
            options.append((bare or {})[node.name or ""])
        rules[names[read, node]] = " | ".join(options)
    return rules


def _overlap(pattern: str, text: str) -> int:
    """How much of the beginning of ``pattern`` stands at the end of ``text``."""
    return next(n for n in range(min(len(pattern), len(text)), -1, -1) if text.endswith(pattern[:n]))


def _in_class(chars: str) -> str:
    return "".join(char if char.isalnum() and char.isascii() else f"\\U{ord(char):08X}" for char in chars)


def _bare_rules(names: Sequence[str], many: bool) -> dict[str, str]:
    """Rule ``bare-n`` is the nth tool's arguments, the end of its bare call, and more such calls if ``many``."""
    usable = {index: name for index, name in enumerate(names) if can_be_bare(name)}
    again = f' (({literal(FENCE)} "json"? "\\n" bare-ws)? bare)?' if many and usable else ""
    rules = {
        "bare-ws": f"[{_in_class(WHITE)}]{{0,20}}",
        "bare-end": f'bare-ws "}}" "}}"{{0,3}} bare-ws ({literal(FENCE)} bare-ws)?{again}',
        **{f"bare-{index}": f"t{index}-root bare-end" for index in usable},
    }
    if again:
        name, colon, quote, comma, arguments = map(literal, ('"name"', ":", '"', ",", '"arguments"'))
        written = (
            f"{literal(text + chr(34))} bare-ws {comma} bare-ws {arguments} bare-ws {colon} bare-ws bare-{index}"
            for index, text in usable.items()
        )
        rules["bare"] = f'"{{" "{{"? bare-ws {name} bare-ws {colon} bare-ws {quote} ({" | ".join(written)})'
    return rules


# --- JSON schemas -------------------------------------------------------------------------------------


def _usable(engine: Engine, schema: Json, prefix: str) -> dict[str, str]:
    """The rules of the strictest grammar for ``schema`` that the engine takes, named behind ``prefix``."""
    fault: InvalidGrammar | None = None
    for rules in _ladder(json.dumps(schema, default=str)):
        try:
            engine.sampler(Sampling(), _text(rules)).close()
        except InvalidGrammar as error:
            fault = error
            continue
        return {prefix + name: _renamed(rule, prefix) for name, rule in rules}
    raise fault or InvalidGrammar("no grammar for any JSON object")


def _text(rules: Sequence[tuple[str, str]]) -> str:
    return "\n".join(f"{name} ::= {rule}" for name, rule in rules)


def _renamed(rule: str, prefix: str) -> str:
    parts = _LITERALS.split(rule)
    parts[::2] = [_NAMES.sub(lambda name: prefix + name.group(), part) for part in parts[::2]]
    return "".join(parts)


@cache
def _ladder(schema: str) -> tuple[tuple[tuple[str, str], ...], ...]:
    """Rules for a schema, given as JSON text, strictest first; the last are those of any JSON object."""
    return tuple(_converted(json.loads(schema)))


def _converted(schema: Json) -> Iterator[tuple[tuple[str, str], ...]]:
    for detail in (True, False):
        try:
            yield _convert(_root_schema(schema, detail))
        except _CONVERTER_FAULTS:
            continue
    yield _convert({"type": "object"})


def _convert(schema: Json) -> tuple[tuple[str, str], ...]:
    from llama_cpp.llama_grammar import SchemaConverter

    class Converter(SchemaConverter):  # type: ignore[misc]
        """Llama.cpp's, which leaves backslashes as they are and writes é as an escape."""

        def _format_literal(self, text: str) -> str:
            return literal(json.dumps(json.loads(text), ensure_ascii=False))

    converter = Converter(prop_order={}, allow_fetch=False, dotall=False, raw_pattern=False)
    converter.visit(converter.resolve_refs(json.loads(json.dumps(schema)), "schema"), "")
    rules = converter._rules
    if "root" not in rules:
        raise ValueError("the converter gave no root")
    return tuple(sorted(rules.items()))


def _root_schema(schema: Json, detail: bool) -> dict[str, Any]:
    """The schema in the words that the converter knows; its definitions stay where they are."""
    out = _in_words(schema, detail)
    for key in ("$defs", "definitions"):
        if isinstance(schema.get(key), Mapping):
            out[key] = {name: _in_words(part, detail) for name, part in schema[key].items()}
    return out


def _in_words(schema: Any, detail: bool) -> dict[str, Any]:
    if not isinstance(schema, Mapping):
        return _ANY
    if schema.get("nullable") is True:
        return {"anyOf": [_in_words({**schema, "nullable": False}, detail), {"type": "null"}]}
    if "$ref" in schema:
        return {"$ref": schema["$ref"]}
    for key in ("anyOf", "oneOf"):
        if schema.get(key):
            return {"anyOf": [_in_words(part, detail) for part in schema[key]]}
    if schema.get("enum"):
        return {"enum": list(schema["enum"])}
    if "const" in schema:
        return {"const": schema["const"]}
    if schema.get("allOf"):
        return _all_of(schema["allOf"], detail)
    kind = schema.get("type")
    if isinstance(kind, list):
        return {"anyOf": [_in_words({**schema, "type": one}, detail) for one in kind]}
    if kind == "object" or (kind is None and ("properties" in schema or "additionalProperties" in schema)):
        return _object(schema, detail)
    if kind == "array":
        return _array(schema, detail)
    if kind == "string":
        return {"type": "string", **(_text_limits(schema) if detail else {})}
    return {"type": kind} if kind in ("number", "integer", "boolean", "null") else _ANY


def _all_of(parts: Sequence[Any], detail: bool) -> dict[str, Any]:
    if len(parts) == 1:
        return _in_words(parts[0], detail)
    if all(isinstance(part, Mapping) and ("$ref" in part or "properties" in part) for part in parts):
        return {"allOf": [_in_words(part, detail) for part in parts]}
    merged: dict[str, Any] = {}
    for part in parts:
        merged |= part if isinstance(part, Mapping) else {}
    merged.pop("allOf", None)
    return _in_words(merged, detail)


def _object(schema: Json, detail: bool) -> dict[str, Any]:
    properties = {name: _in_words(part, detail) for name, part in schema.get("properties", {}).items()}
    more = schema.get("additionalProperties")
    if not properties and ("properties" not in schema or more is True):
        return {"type": "object", **({"additionalProperties": _in_words(more, detail)} if more else {})}
    required = [name for name in schema.get("required", ()) if name in properties]
    return {"type": "object", "properties": properties, "required": required}


def _array(schema: Json, detail: bool) -> dict[str, Any]:
    items = schema.get("prefixItems") or schema.get("items")
    if isinstance(items, Sequence) and not isinstance(items, str):
        return {"type": "array", "items": [_in_words(part, detail) for part in items]}
    if items is None or items is True:
        return {"type": "array"}
    return {"type": "array", "items": _in_words(items, detail), **_counts(schema, "minItems", "maxItems")}


def _text_limits(schema: Json) -> dict[str, Any]:
    """Lengths, format and pattern; the converter copies escapes and groups with a ``?`` as they are."""
    limits: dict[str, Any] = {**_counts(schema, "minLength", "maxLength")}
    if is_plain_pattern(schema.get("pattern")):
        limits["pattern"] = schema["pattern"]
    if isinstance(schema.get("format"), str):
        limits["format"] = schema["format"]
    return limits


def is_plain_pattern(pattern: Any) -> bool:
    """Whether the converter can say a pattern: anchored, without escapes and groups with a ``?``."""
    return isinstance(pattern, str) and bool(re.fullmatch(r"\^[^\\]+\$", pattern)) and "(?" not in pattern


def _counts(schema: Json, least: str, most: str) -> dict[str, int]:
    counts = {key: schema.get(key) for key in (least, most)}
    return {key: n for key, n in counts.items() if isinstance(n, int) and 0 <= n <= MOST_REPEATS}
