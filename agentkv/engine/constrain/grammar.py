"""Grammars (GBNF) for answers that call tools or are JSON: the one path from a JSON schema to a grammar.

An answer that *may* call is one grammar too, not a lazy one: free text in which the mark that opens a call cannot
stand, or calls, or text and then calls. The model decides at each token, and a call once opened has to be completed.
Text that begins as a bare call does (see :mod:`agentkv.engine.constrain.calls`) is bound likewise from where its
arguments open.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from agentkv.engine.base import Engine
from agentkv.engine.constrain.calls import FENCE, WHITE, Node, automaton, can_be_bare
from agentkv.engine.constrain.schema import Json, gbnf, literal, schema_rules
from agentkv.engine.template import GENERIC, CallForm
from agentkv.errors import InvalidGrammar


@dataclass(frozen=True)
class AnswerForm:
    """What an answer may be.

    ``tools`` are those that may be called, by name with the JSON schema of their arguments. ``must_call``: no answer
    without a call. ``many``: several calls. ``schema``: what is not a call is JSON of this schema, else free text.
    """

    tools: Mapping[str, Json]
    must_call: bool = False
    many: bool = True
    schema: Json | None = None


def grammar_for(engine: Engine, form: CallForm, answer: AnswerForm) -> str | None:
    """The grammar of such answers, as strict as this engine takes it; None where any text is one.

    Raises InvalidGrammar from an engine that has no grammars.
    """
    if not answer.tools and answer.schema is None:
        return None
    lines: dict[str, str] = {}
    for index, (name, schema) in enumerate(answer.tools.items()):
        lines |= schema_rules(engine, schema, f"t{index}-")
        lines[f"call-{index}"] = f"{literal(name)} {literal(form.middle)} t{index}-root {literal(form.close)}"
    if answer.schema is not None:
        lines |= schema_rules(engine, answer.schema, "answer-")
    if answer.tools:
        again = f" ({literal(form.between + form.open)} call)*" if answer.many else ""
        lines["call"] = " | ".join(f"call-{index}" for index in range(len(answer.tools)))
        lines["calls"] = f"call{again}"
    lines["root"] = _root(form, answer, lines)
    return gbnf(lines)


def json_grammar(engine: Engine, schema: str) -> str:
    """The grammar of JSON that fits ``schema``, a JSON schema as JSON text. Raises InvalidGrammar.

    :func:`~agentkv.engine.constrain.schema.unexpressed` names what it does not hold an answer to.
    """
    try:
        parsed = json.loads(schema)
    except (ValueError, RecursionError) as error:
        raise InvalidGrammar(f"the JSON schema is not JSON: {error}") from error
    if not isinstance(parsed, dict):
        raise InvalidGrammar("the JSON schema is not a JSON object")
    return grammar_for(engine, GENERIC, AnswerForm({}, schema=parsed)) or ""


def no_calls(form: CallForm) -> str:
    """The grammar of free text without a call, which is not empty."""
    mark = form.mark
    first = f"[^{_in_class(WHITE + mark[0])}] text-0"
    if len(mark) > 1:
        first = f"({first} | {literal(mark[0])} text-1)"
    return gbnf({"root": f"[{_in_class(WHITE)}]{{0,20}} {first}", **_FreeText(mark).rules()})


def _root(form: CallForm, answer: AnswerForm, lines: dict[str, str]) -> str:
    calls = f"{literal(form.open)} calls"
    if answer.must_call:
        return calls
    if answer.schema is not None:
        return f"answer-root | {calls}" if answer.tools else "answer-root"
    mark, names = form.mark, list(answer.tools)
    lines["begun"] = f"{literal(form.open.removeprefix(mark))} calls"
    lines |= _bare_rules(names, answer.many)
    text = _FreeText(mark, "begun", {name: f"bare-{index}" for index, name in enumerate(names)})
    text.name_of((0, automaton(names)[0]))
    lines |= text.rules()
    lines["lead-0"] = lines["lead-0"].removeprefix(" | ")  # not empty: an agent's last message would be
    return "lead-0"


# --- free text without a mark in it -------------------------------------------------------------------

_State = tuple[int, Node | None]
"""How many characters of the mark have just been read, and the state of a bare call; None once it cannot be one."""


@dataclass
class _FreeText:
    """Text up to ``mark`` and then rule ``then``, or to its end: rule ``text-n`` has read n characters of the mark.

    Rule ``lead-n`` is text that may begin as a bare call; where its arguments open it goes on with the rule that
    ``bare`` has for the tool. Written as right recursion, for which llama.cpp needs no deeper stack.
    """

    mark: str
    then: str = ""
    bare: Mapping[str, str] = field(default_factory=dict)
    names: dict[_State, str] = field(init=False)

    def __post_init__(self) -> None:
        self.names = {(n, None): f"text-{n}" for n in range(len(self.mark))}

    def name_of(self, state: _State) -> str:
        """The rule of a state, which is given a name the first time."""
        if state not in self.names:
            self.names[state] = f"lead-{len(self.names) - len(self.mark)}"
        return self.names[state]

    def rules(self) -> dict[str, str]:
        """The rules of every state that was named, and of all that can be reached from it."""
        rules: dict[str, str] = {}
        states = list(self.names)
        for state in states:
            rules[self.names[state]] = self._rule(*state)
            states += list(self.names)[len(states) :]
        return rules

    def _rule(self, n_read: int, node: Node | None) -> str:
        opens = "{" if node and node.opens else ""
        chars = self._chars_by_target(n_read, node)
        chars.pop("text-0", None)
        others = "".join([opens, *("".join(some) for some in chars.values())])
        options = ["", f"[^{_in_class(others)}] text-0"]
        options += [f"[{_in_class(''.join(some))}] {target}" for target, some in chars.items() if target]
        if node and node.opens:
            options.append(self.bare[node.name or ""])
        return " | ".join(options)

    def _chars_by_target(self, n_read: int, node: Node | None) -> dict[str, list[str]]:
        """Which rule follows each character that matters to the mark or to a bare call; none where text has to end."""
        follows = node.next if node else {}
        opens = {"{"} if node and node.opens else set()
        chars: dict[str, list[str]] = {}
        for char in sorted({*self.mark, *follows} - opens):
            n_after = _overlap(self.mark, self.mark[:n_read] + char)
            is_whole = n_after == len(self.mark)
            target = self.then if is_whole else self.name_of((n_after, follows.get(char)))
            chars.setdefault(target, []).append(char)
        return chars


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
