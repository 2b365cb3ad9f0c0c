"""``agentkv ask``: one question, one routed block, one answer; the answer on stdout, the turn's record on
stderr.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from agentkv.cli import options
from agentkv.cli.interrupt import cancelled_by_ctrl_c
from agentkv.cli.output import cut, duration, end_line, print_json, printable, tell, write
from agentkv.errors import InvalidGrammar, UsageError
from agentkv.notices import warn

if TYPE_CHECKING:
    from collections.abc import Iterator

    from agentkv.engine.base import Engine
    from agentkv.records import Decision, Turn

_SAMPLING = "Sampling"


def ask(
    question: Annotated[str, typer.Argument(metavar="QUESTION", help="What you want to know, in quotes.")],
    skill: Annotated[str | None, typer.Option(metavar="NAME", help="Use this block; the router is not asked.")] = None,
    no_skill: Annotated[bool, typer.Option("--no-skill", help="Use no block; the router is not asked.")] = False,
    no_graft: Annotated[
        bool, typer.Option("--no-graft", help="Prefill the manual instead of grafting its block, for comparison.")
    ] = False,
    max_new: options.MaxNew = None,
    stop: Annotated[
        list[str] | None, typer.Option(metavar="TEXT", help="End before this text; may be given again.")
    ] = None,
    temperature: Annotated[
        float, typer.Option(min=0, rich_help_panel=_SAMPLING, help="0 takes the likeliest token each time.")
    ] = 0.0,
    top_p: Annotated[float, typer.Option(min=0, max=1, rich_help_panel=_SAMPLING)] = 1.0,
    top_k: Annotated[int, typer.Option(min=0, rich_help_panel=_SAMPLING, help="0: all.")] = 0,
    min_p: Annotated[float, typer.Option(min=0, max=1, rich_help_panel=_SAMPLING)] = 0.0,
    seed: Annotated[int, typer.Option(min=0, rich_help_panel=_SAMPLING)] = 0,
    json_schema: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Answer with JSON of this JSON schema.")
    ] = None,
    grammar: Annotated[Path | None, typer.Option(metavar="FILE", help="Answer in this GBNF grammar.")] = None,
    strict: options.Strict = False,
    model: options.Model = None,
    embedder: options.Embedder = None,
    router_model: options.RouterModel = None,
    store: options.Store = None,
    window: options.Window = None,
    threads: options.Threads = None,
    kv_type: options.KvType = None,
    flash_attention: options.FlashAttention = None,
    gpu_layers: options.GpuLayers = None,
    as_json: options.Json = False,
) -> None:
    """Answer a question: route it, graft one block, read the question, generate."""
    from agentkv.engine.base import Sampling
    from agentkv.router.routing import ROUTE

    if skill is not None and no_skill:
        raise UsageError("--skill and --no-skill exclude each other")
    model, settings = options.chosen(store, model, window, threads, kv_type, flash_attention, gpu_layers)
    sampling = Sampling(temperature=temperature, top_p=top_p, top_k=top_k, min_p=min_p, seed=seed)
    if json_schema is not None and grammar is not None:
        raise UsageError("--json-schema and --grammar exclude each other")
    schema, gbnf = _read(json_schema), _read(grammar)
    with (
        options.open_memory(
            store, model, settings, embedder=embedder, router_model=router_model, strict=strict
        ) as memory,
        cancelled_by_ctrl_c() as cancellation,
    ):
        if schema is not None:
            gbnf = _schema_grammar(memory.engine, schema)
        pieces = memory.stream(
            question,
            skill=None if no_skill else ROUTE if skill is None else skill,
            graft=not no_graft,
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
    begun, held = False, ""
    try:
        for piece in pieces:
            if not isinstance(piece, str):
                return piece
            text = held + piece if begun else piece.lstrip()
            shown = text.rstrip()
            held, begun = text[len(shown) :], begun or bool(shown)
            write(printable(shown))
    finally:
        if begun:
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
