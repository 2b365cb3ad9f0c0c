"""``questions``: asks for the benchmark and shows its result."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from agentkv.cli import options
from agentkv.cli.output import duration, say, table
from tests.benchmarks.commands import common

_ROWS = {
    "window_first": "right window first",
    "window_in_5": "… among five",
    "words_window_first": "by words alone: right window first",
    "words_window_in_5": "… among five",
    "plain_window_first": "plain BM25: right window first",
    "plain_window_in_5": "… among five",
    "quote": "quote right",
    "answer": "answer right",
    "plain_answer": "plain BM25 and prompt: answer right",
    "quote_when_first": "quote right, where the window is first",
    "answer_when_first": "answer right, where the window is first",
    "not_stated_wrongly": "“not stated”, though it is",
    "not_stated_rightly": "“not stated”, rightly",
    "plain_not_stated_rightly": "plain: “not stated”, rightly",
}


def questions(
    model: options.BenchModel = "qwen2.5-coder-1.5b",
    work: Annotated[
        Path, typer.Option("--work", metavar="DIR", help="Packages, documents, store, and what was seen so far.")
    ] = Path("bench-questions"),
    embedder: options.Embedder = None,
    k: Annotated[int, typer.Option("--k", "-k", min=1, metavar="N", help="Windows to try at most.")] = 3,
    window: Annotated[int, typer.Option(min=64, metavar="N", help="Tokens of a window.")] = 1024,
    plain: Annotated[bool, typer.Option(help="Also answer plainly, from the window as text.")] = True,
    small: common.Small = False,
    threads: options.Threads = None,
    out: common.Out = None,
    as_json: options.Json = False,
) -> None:
    """Questions about PostgreSQL's and git's manuals: window, quote and answer, beside plain search and prompt."""
    from tests.benchmarks.documents import questions as bench

    for name in (model, embedder):
        if name is not None:
            options.fetch_model(name)
    result = bench.run(
        model,
        work=work,
        window=window,
        overlap=min(bench.OVERLAP, window // 8),
        k=k,
        embedder=embedder,
        plain=plain,
        small=small,
        settings={"threads": threads},
    )
    common.end(result, out, as_json, _show, bench.check)


def _show(result: dict[str, Any]) -> None:
    halves = result["halves"]
    rows = [(label, *(_share(half[key]) for half in halves.values())) for key, label in _ROWS.items()]
    table(("", *halves), rows, right=tuple(halves))
    tokens, ms = result["tokens"], result["ms"]
    prefilled, met = tokens["prefilled_a_window"], "met" if tokens["prefilled_aim_met"] else "NOT MET"
    say(
        f"\ntokens read for a question and window: {prefilled['median']:.0f}, at most {prefilled['max']:.0f} "
        f"(aim 60: {met}); a question {tokens['prefilled_a_question']['median']:.0f}, over "
        f"{tokens['windows_tried']['median']:.0f} windows; restored {tokens['restored_a_window']['median']:,.0f}; "
        f"plainly read {tokens['plain_prefilled']['median']:,.0f}"
    )
    say(
        f"a question takes {duration(ms['question']['median'])} (finding {duration(ms['find']['median'])}, restoring "
        f"{duration(ms['restore']['median'])} and answering {duration(ms['answer_a_window']['median'])} a window); "
        f"plainly {duration(ms['plain_question']['median'])}; medians"
    )


def _share(found: dict[str, Any]) -> str:
    low, high = found["wilson_95"]
    return f"{found['k']}/{found['n']} ({low:.2f}–{high:.2f})" if found["n"] else ""
