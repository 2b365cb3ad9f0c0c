"""``agentkv ask``: one question, one routed block, one answer; the answer on stdout, the turn's record on stderr.
``agentkv chat``: a conversation in the terminal that the next process goes on with.
"""

from __future__ import annotations

import json
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from agentkv.cli import options
from agentkv.cli.options import EngineOptions, RouterOptions, StoreOptions
from agentkv.cli.output import count, cut, duration, end_line, print_json, printable, tell, write
from agentkv.cli.progress import cancelled_by_ctrl_c
from agentkv.errors import InvalidGrammar, ThreadChanged, UsageError
from agentkv.notices import warn

if TYPE_CHECKING:
    from collections.abc import Iterator

    from agentkv.engine.base import Engine
    from agentkv.memory.options import TurnOptions, WhenFull
    from agentkv.memory.threads import Thread
    from agentkv.records import Decision, Turn


_SAMPLING = "Sampling"

Skill = Annotated[
    str | None,
    typer.Option("--skill", metavar="NAME", show_default="as before, or the router's pick", help="Graft this block."),
]
NoSkill = Annotated[bool, typer.Option("--no-skill", help="Graft no block; the router is not asked.")]


@dataclass(frozen=True)
class SamplingOptions:
    """How the next token is drawn."""

    temperature: Annotated[
        float, typer.Option(min=0, rich_help_panel=_SAMPLING, help="0 takes the likeliest token each time.")
    ] = 0.0
    top_p: Annotated[
        float,
        typer.Option(min=0, max=1, rich_help_panel=_SAMPLING, help="Likeliest tokens of this probability; 1: all."),
    ] = 1.0
    top_k: Annotated[int, typer.Option(min=0, rich_help_panel=_SAMPLING, help="So many likeliest tokens; 0: all.")] = 0
    min_p: Annotated[
        float,
        typer.Option(min=0, max=1, rich_help_panel=_SAMPLING, help="Least share of the likeliest one's probability."),
    ] = 0.0
    seed: Annotated[
        int, typer.Option("--seed", metavar="N", min=0, rich_help_panel=_SAMPLING, help=options.SEED_HELP)
    ] = 0


def ask(
    *,
    question: Annotated[str, typer.Argument(metavar="QUESTION", help="What you want to know, in quotes.")],
    skill: Skill = None,
    no_skill: NoSkill = False,
    no_graft: Annotated[
        bool, typer.Option("--no-graft", help="Answer by a cold prefill of the manual, for comparison.")
    ] = False,
    old_no_graft: Annotated[bool, typer.Option("--reread", hidden=True)] = False,
    max_new: options.MaxNew = None,
    stop: Annotated[
        list[str] | None, typer.Option(metavar="TEXT", help="End before this text; may be given again.")
    ] = None,
    drawing: SamplingOptions,
    json_schema: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Answer with JSON of this JSON schema.")
    ] = None,
    grammar: Annotated[Path | None, typer.Option(metavar="FILE", help="Answer in this GBNF grammar.")] = None,
    strict: options.Strict = False,
    as_json: bool,
    engine: EngineOptions,
    router: RouterOptions,
    store: StoreOptions,
) -> None:
    """Answer a question: route it, graft one block, prefill the question, generate."""
    from agentkv.engine.base import Sampling
    from agentkv.router.routing import ROUTE

    if skill is not None and no_skill:
        raise UsageError("--skill and --no-skill exclude each other")
    sampling = Sampling(**vars(drawing))
    if json_schema is not None and grammar is not None:
        raise UsageError("--json-schema and --grammar exclude each other")
    schema, gbnf = _read(json_schema), _read(grammar)
    with (
        options.open_memory(store, *engine.chosen(store), router=router, strict=strict) as memory,
        cancelled_by_ctrl_c() as cancellation,
    ):
        if schema is not None:
            gbnf = _schema_grammar(memory.engine, schema)
        pieces = memory.stream(
            question,
            skill=None if no_skill else ROUTE if skill is None else skill,
            graft=not (no_graft or old_no_graft),
            max_new=max_new,
            sampling=sampling,
            stop=stop or (),
            grammar=gbnf,
            cancellation=cancellation,
        )
        turn = collect(pieces) if as_json else show(pieces)
    if as_json:
        print_json(turn.model_dump(mode="json"))
    else:
        tell_cut(turn)
        tell(about(turn), dim=True)


def _schema_grammar(engine: Engine, schema: str) -> str:
    """The grammar of a JSON schema, with a warning for what it does not hold an answer to. Raises InvalidGrammar."""
    from agentkv.engine.constrain.grammar import json_grammar
    from agentkv.engine.constrain.schema import unexpressed

    grammar = json_grammar(engine, schema)
    if left_out := unexpressed(json.loads(schema)):
        warn(f"the grammar of the JSON schema cannot hold an answer to {', '.join(left_out)}: check that yourself")
    return grammar


def _read(path: Path | None) -> str | None:
    if path is None:
        return None
    try:
        return path.read_text(encoding="utf-8-sig")
    except OSError as error:
        raise UsageError(f"cannot read {path}: {error.strerror or error}") from error
    except UnicodeDecodeError as error:
        raise InvalidGrammar(f"{path} is not UTF-8 at byte {error.start}") from error


def collect(pieces: Iterator[str | Turn]) -> Turn:
    """The record at the end of a stream."""
    *_, turn = pieces
    assert not isinstance(turn, str)
    return turn


def show(pieces: Iterator[str | Turn]) -> Turn:
    """Write the answer as it comes, without the white space around it."""
    started, held = False, ""
    try:
        for piece in pieces:
            if not isinstance(piece, str):
                return piece
            text = held + piece if started else piece.lstrip()
            shown = text.rstrip()
            held, started = text[len(shown) :], started or bool(shown)
            write(printable(shown))
    finally:
        if started:
            end_line()
        elif sys.exception() is None:
            write("\n")
    raise AssertionError("a stream ends with its record")


def tell_cut(turn: Turn) -> None:
    """Say that the answer is not whole, where that is so."""
    if turn.finish == "length":
        tell(cut(turn.tokens.generated))


def about(turn: Turn) -> str:
    """A turn in one line: what was picked, tokens each way, and milliseconds by stage."""
    tokens, ms = turn.tokens, turn.ms
    stages: list[tuple[str, Any]] = [("route", ms.route), ("restore", ms.restore), ("prefill", ms.prefill)]
    times = ", ".join(f"{name} {duration(value)}" for name, value in [*stages, ("generate", ms.generate)])
    exactness = f", {turn.exactness.value}" if turn.exactness else ""
    return (
        f"[{picked(turn.decision)}{exactness} | tokens: {tokens.restored:,} restored, "
        f"{tokens.prefilled:,} prefilled, {tokens.generated:,} generated | {times}]"
    )


def picked(decision: Decision) -> str:
    """``raw pick → pick``, with the reason where the fallback was taken."""
    text = f"{decision.raw_pick} → {decision.pick or 'no block'}"
    return f"{text} (fallback: {decision.fallback})" if decision.fallback else text


# --- chat -----------------------------------------------------------------------------------------


def chat(
    *,
    thread: Annotated[str, typer.Option(metavar="NAME", help="A conversation, by its name.")] = "chat",
    skill: Skill = None,
    no_skill: NoSkill = False,
    max_new: options.MaxNew = None,
    when_full: Annotated[
        str,
        typer.Option(
            metavar="POLICY",
            help="When the context window is full: refuse, keep-last (the model sees the last turns) or summarise.",
        ),
    ] = "keep-last",
    strict: options.Strict = False,
    as_json: bool,
    engine: EngineOptions,
    router: RouterOptions,
    store: StoreOptions,
) -> None:
    """Talk, a line a question, until the end of the input (Ctrl-D); every turn is kept."""
    if skill is not None and no_skill:
        raise UsageError("--skill and --no-skill exclude each other")
    policy = _policy(when_full)
    turns: list[Turn] = []
    with options.open_memory(store, *engine.chosen(store), create=True, router=router, strict=strict) as memory:
        talk = memory.thread(thread, when_full=policy)
        if talk.turns and not as_json:
            tell(f"{thread}: {count(len(talk.turns), 'turn')} so far", dim=True)
        choice: TurnOptions = {"skill": skill} if no_skill or skill is not None else {}  # else as before
        for question in _questions(prompted=not as_json):
            with cancelled_by_ctrl_c() as cancellation:
                turn_options: TurnOptions = {"max_new": max_new, "cancellation": cancellation, **choice}
                try:
                    turns.append(_answered(talk, question, turn_options, as_json))
                    choice = {}
                except ThreadChanged as changed:
                    talk = memory.thread(thread, when_full=policy)
                    turns.append(_after(changed, talk) or _answered(talk, question, turn_options, as_json))
            if not as_json:
                tell_cut(turns[-1])
                tell(about(turns[-1]), dim=True)
                if turns[-1].not_kept is not None:
                    tell(f"the next turn takes a cold prefill of the conversation: {turns[-1].not_kept}")
    if as_json:
        print_json({"thread": thread, "turns": [turn.model_dump(mode="json") for turn in turns]})


def _policy(when_full: str) -> WhenFull:
    from agentkv.memory.options import POLICIES

    for policy in POLICIES:
        if policy == when_full:
            return policy
    raise UsageError(f"--when-full {when_full}: it takes {', '.join(POLICIES)}")


def _answered(talk: Thread, question: str, turn_options: TurnOptions, as_json: bool) -> Turn:
    pieces = talk.stream(question, **turn_options)
    return collect(pieces) if as_json else show(pieces)


def _after(changed: ThreadChanged, talk: Thread) -> Turn | None:
    """Say that the conversation, opened again as ``talk``, has gone on elsewhere; the answer that is not kept in it."""
    there = f"the conversation has gone on elsewhere and has {count(len(talk.turns), 'turn')} now"
    if changed.turn is None:
        warn(f"{there}; the question is asked after them.")
        return None
    note = f"{there}; this answer was given without the newest and is not kept. Ask again to have it kept."
    warn(note)
    return changed.turn.model_copy(update={"notes": (*changed.turn.notes, note)})


def _questions(*, prompted: bool) -> Iterator[str]:
    """Lines of stdin that are not blank, with a prompt if a person types them."""
    is_typed = prompted and sys.stdin.isatty()
    while True:
        if is_typed:
            sys.stderr.write("> ")
            sys.stderr.flush()
        line = sys.stdin.readline()
        if not line:
            return
        if line.strip():
            yield line.strip()
