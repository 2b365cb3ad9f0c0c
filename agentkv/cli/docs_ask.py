"""``agentkv docs find``: the chunks that fit a question; a language model is loaded only to rerank.
``agentkv docs ask``: an answer on stdout with the quote that it rests on and where that stands.

What was tried, token counts and times go to stderr. No chunk that holds the answer is a result, not an error.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, Any

import typer

from agentkv.cli import options
from agentkv.cli.command import Result
from agentkv.cli.docs import DEFAULT, Corpus, hit_record, open_shelf, place
from agentkv.cli.options import EngineOptions, StoreOptions
from agentkv.cli.output import count, cut, duration, is_terminal, one_line, picked, say, tell
from agentkv.cli.progress import cancelled_by_ctrl_c, status
from agentkv.errors import UsageError

if TYPE_CHECKING:
    from agentkv.documents import Hit, Reply
    from agentkv.documents.answer import Attempt, Evidence
    from agentkv.engine.settings import EngineSettings


_WIDTH = 300
K_HELP = "Chunks to show, or to try at most."


def find(
    *,
    question: Annotated[str, typer.Argument(metavar="QUESTION", help="What you look for, in quotes.")],
    k: Annotated[int, typer.Option("--k", "-k", metavar="N", min=1, help=K_HELP)] = 5,
    rerank: Annotated[
        int,
        typer.Option(
            metavar="N", min=0, help="Let the model order the first N; a prefill for each that is not stored yet."
        ),
    ] = 0,
    corpus: Corpus = DEFAULT,
    embedder: options.Embedder = None,
    engine: EngineOptions,
    store: StoreOptions,
) -> Result:
    """Find the chunks that fit a question best, by full-text search and, with an embedder, by embedding similarity."""
    from agentkv.documents.corpus import find as find_chunks

    if not question.strip():
        raise UsageError("the question is empty")
    opened_as, settings = engine.chosen(store)
    if rerank:
        hits = _reranked(store, opened_as, settings, corpus, question, k, rerank, embedder)
    else:
        with open_shelf(store, corpus, engine.model) as (_, shelf, _), options.open_embedder(embedder) as opened:
            hits = find_chunks(shelf, question, k, embed=opened)
    record: dict[str, Any] = {"corpus": corpus, "question": question, "hits": [hit_record(hit) for hit in hits]}
    return Result(record, lambda: _show_find(question, hits))


def _reranked(
    store: StoreOptions,
    model: str,
    settings: EngineSettings,
    corpus: str,
    question: str,
    k: int,
    rerank: int,
    embedder: str | None,
) -> list[Hit]:
    from agentkv.documents import Corpus as Opened

    with (
        options.open_memory(store, model, settings, embedder=embedder) as memory,
        cancelled_by_ctrl_c() as cancellation,
    ):
        return Opened(memory, corpus).find(
            question, k, rerank_from=rerank, embed=memory.embedder, cancellation=cancellation
        )


def _show_find(question: str, hits: list[Hit]) -> None:
    if not hits:
        from agentkv.documents.locate import nothing_found

        say(nothing_found(question))
    for rank, hit in enumerate(hits, 1):
        say(f"{rank}. {place(hit.path, hit.start, hit.stop, hit.heading)}  {hit.score:.1f}")
        say(f"   {one_line(f'{hit.columns} … {hit.text}' if hit.columns else hit.text, _WIDTH)}", dim=True)


# --- ask ------------------------------------------------------------------------------------------


class AnswerFrom(StrEnum):
    """What an answer is said from."""

    CHUNK = "chunk"
    QUOTE = "quote"


_ORIGIN = {
    "changed": "the file has changed since: this is quoted from the version that was added",
    "gone": "the file is no longer there",
}


def ask(
    *,
    question: Annotated[str, typer.Argument(metavar="QUESTION", help="What you want to know, in quotes.")],
    k: Annotated[int, typer.Option("--k", "-k", metavar="N", min=1, help=K_HELP)] = 3,
    votes: Annotated[bool, typer.Option("--votes", help="Ask all k chunks and take what most of them say.")] = False,
    together: Annotated[
        bool, typer.Option("--together", help="Put the k chunks one after the other and answer from all of them.")
    ] = False,
    rerank: Annotated[
        int,
        typer.Option(
            metavar="N", min=0, help="Let the model order the first N; a prefill for each that is not stored yet."
        ),
    ] = 0,
    max_new: options.MaxNew = None,
    answer_from: Annotated[
        AnswerFrom | None,
        typer.Option(show_default="by the model's size", help="Answer after the whole chunk, or from the quote alone."),
    ] = None,
    refresh: Annotated[
        bool | None,
        typer.Option(
            "--refresh/--no-refresh",
            show_default="asks on a terminal",
            help="First add again the files that have changed since they were added.",
        ),
    ] = None,
    corpus: Corpus = DEFAULT,
    embedder: options.Embedder = None,
    as_json: bool,
    engine: EngineOptions,
    store: StoreOptions,
) -> Result:
    """Answer a question from documents: find a chunk, graft it, quote it, answer."""
    from agentkv.documents import Corpus as Opened

    model, settings = engine.chosen(store)
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
            with status("adding what has changed"):
                reply = opened.ask(question, k, refresh=True, **how)
    return Result(_record(corpus, reply), lambda: _show_ask(reply))


def _wants_them_read(moved_on: Sequence[str]) -> bool:
    """Whether changed files are to be added again: asked where there is a terminal."""
    question = f"{', '.join(moved_on)} changed: add again and ask once more?"
    return is_terminal() and typer.confirm(question, default=True, err=True)


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
        **picked(attempt, "answer", "draft", "cut_at", "confidence", "kept"),
        "read_now": attempt.prefilled_now,
        "evidence": asdict(attempt.evidence) if attempt.evidence else None,
        "tokens": attempt.tokens.model_dump(),
        "ms": {"restore": attempt.restore_ms, "answer": attempt.answer_ms},
    }


def _show_ask(reply: Reply) -> None:
    if reply.answer is None or reply.evidence is None:
        from agentkv.documents.locate import nothing_found

        say("not stated in any chunk that was tried" if reply.attempts else nothing_found(reply.question))
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
    how = "prefilled now" if attempt.prefilled_now else "grafted" if attempt.kept else "prefilled, not kept"
    stated = "" if attempt.answer is not None else ", not stated"
    return (
        f"[{attempt.hit.path} chunk {attempt.hit.number + 1} of {count(len(attempt.hit.document.chunks), 'chunk')}, "
        f"{how} in {duration(attempt.restore_ms)}{stated} | tokens: {tokens.restored:,} restored, {tokens.prefilled:,} "
        f"prefilled, {tokens.generated:,} generated | answer {duration(attempt.answer_ms)}]"
    )
