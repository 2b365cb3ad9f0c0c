"""``agentkv docs ask``: an answer on stdout with the quote that it rests on and where that stands.

What was tried, token counts and times go to stderr. No window that holds the answer is a result, not an error.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import asdict
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, Any

import typer

from agentkv.cli import options
from agentkv.cli.docs.common import DEFAULT, Corpus, hit_record, place
from agentkv.cli.interrupt import cancelled_by_ctrl_c
from agentkv.cli.output import count, cut, duration, finish, say, tell
from agentkv.cli.progress import status

if TYPE_CHECKING:
    from agentkv.documents import Reply
    from agentkv.documents.answer import Attempt, Evidence


class AnswerFrom(StrEnum):
    """What an answer is said from."""

    WINDOW = "window"
    QUOTE = "quote"


_ORIGIN = {
    "changed": "the file has changed since: this is quoted from the version that was added",
    "gone": "the file is no longer there",
}


def ask(
    question: Annotated[str, typer.Argument(metavar="QUESTION", help="What you want to know, in quotes.")],
    k: Annotated[int, typer.Option("--k", "-k", metavar="N", min=1, help="Windows to try at most.")] = 3,
    votes: Annotated[bool, typer.Option("--votes", help="Ask all k windows and take what most of them say.")] = False,
    together: Annotated[
        bool, typer.Option("--together", help="Read the k windows one behind the other and answer from all of them.")
    ] = False,
    rerank: Annotated[
        int, typer.Option(metavar="N", min=0, help="Let the model order the first N; it reads those not stored yet.")
    ] = 0,
    max_new: options.MaxNew = None,
    answer_from: Annotated[
        AnswerFrom | None,
        typer.Option(show_default="by the model's size", help="Say it behind the window, or from the quote alone."),
    ] = None,
    refresh: Annotated[
        bool | None,
        typer.Option(
            "--refresh/--no-refresh",
            show_default="asks on a terminal",
            help="Read anew the files that have changed since they were added.",
        ),
    ] = None,
    corpus: Corpus = DEFAULT,
    model: options.Model = None,
    embedder: options.Embedder = None,
    store: options.Store = None,
    window: options.Window = None,
    threads: options.Threads = None,
    kv_type: options.KvType = None,
    flash_attention: options.FlashAttention = None,
    gpu_layers: options.GpuLayers = None,
    as_json: options.Json = False,
) -> None:
    """Answer a question from documents: find a window, graft it, quote it, answer."""
    from agentkv.documents import Corpus as Opened

    model, settings = options.chosen(store, model, window, threads, kv_type, flash_attention, gpu_layers)
    with (
        options.open_memory(store, model, settings, embedder=embedder) as memory,
        cancelled_by_ctrl_c() as cancellation,
    ):
        opened = Opened(memory, corpus)
        how: Any = {
            "votes": votes,
            "together": together,
            "rerank_from": rerank,
            "embed": memory.embedder,
            "max_new": max_new,
            "answer_from": None if answer_from is None else answer_from.value,
            "cancellation": cancellation,
        }
        with status("asking"):
            reply = opened.ask(question, k, refresh=bool(refresh), **how)
        if reply.moved_on and refresh is None and not as_json and _wants_them_read(reply.moved_on):
            with status("reading what has changed"):
                reply = opened.ask(question, k, refresh=True, **how)
    finish(_record(corpus, reply), as_json, lambda: _show(reply))


def _wants_them_read(moved_on: Sequence[str]) -> bool:
    """Whether changed files are to be read anew: asked where there is a terminal."""
    question = f"Read {', '.join(moved_on)} anew and ask again?"
    return _is_terminal() and typer.confirm(question, default=True, err=True)


def _is_terminal() -> bool:
    return sys.stdin.isatty() and sys.stderr.isatty()


def _record(corpus: str, reply: Reply) -> dict[str, Any]:
    return {
        "corpus": corpus,
        "question": reply.question,
        "answer": reply.answer,
        "evidence": asdict(reply.evidence) if reply.evidence else None,
        "votes": reply.votes,
        "notes": list(reply.notes),
        "moved_on": list(reply.moved_on),
        "attempts": [_attempt(attempt) for attempt in reply.attempts],
    }


def _attempt(attempt: Attempt) -> dict[str, Any]:
    return {
        **{key: value for key, value in hit_record(attempt.hit).items() if key not in {"text", "columns"}},
        "answer": attempt.answer,
        "draft": attempt.draft,
        "cut_at": attempt.cut_at,
        "evidence": asdict(attempt.evidence) if attempt.evidence else None,
        "confidence": attempt.confidence,
        "tokens": attempt.tokens.model_dump(),
        "ms": {"restore": attempt.restore_ms, "answer": attempt.answer_ms},
        "read_now": attempt.read_now,
        "kept": attempt.kept,
    }


def _show(reply: Reply) -> None:
    if reply.answer is None or reply.evidence is None:
        from agentkv.documents.locate import nothing_found

        say("not stated in any window that was tried" if reply.attempts else nothing_found(reply.question))
    else:
        say(reply.answer)
        say()
        if reply.evidence.columns:
            say(f"{reply.evidence.columns}:", dim=True)
        say(f'"{reply.evidence.quote}"')
        say(_place(reply.evidence))
    if reply.cut_at:
        tell(cut(reply.cut_at))
    for attempt in reply.attempts:
        tell(_about(attempt), dim=True)


def _place(evidence: Evidence) -> str:
    checked = "" if evidence.verified or evidence.origin == "changed" else "; NOT found there when read again"
    origin = f"; {_ORIGIN[evidence.origin]}" if evidence.origin in _ORIGIN else ""
    return f"{place(evidence.path, evidence.start, evidence.stop, evidence.heading)}{checked}{origin}"


def _about(attempt: Attempt) -> str:
    tokens = attempt.tokens
    how = "read now" if attempt.read_now else "grafted" if attempt.kept else "read, not kept"
    said = "" if attempt.answer is not None else ", not stated"
    return (
        f"[{attempt.hit.path} window {attempt.hit.number + 1} of {count(len(attempt.hit.document.windows), 'window')}, "
        f"{how} in {duration(attempt.restore_ms)}{said} | tokens: {tokens.restored:,} restored, {tokens.prefilled:,} "
        f"prefilled, {tokens.generated:,} generated | answer {duration(attempt.answer_ms)}]"
    )
