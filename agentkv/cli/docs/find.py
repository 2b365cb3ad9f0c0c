"""``agentkv docs find``: the windows that fit a question. Loads a language model only to rerank."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from agentkv.cli import options
from agentkv.cli.docs.common import DEFAULT, Corpus, hit_record, open_shelf, place
from agentkv.cli.interrupt import cancelled_by_ctrl_c
from agentkv.cli.output import finish, one_line, say
from agentkv.errors import UsageError

if TYPE_CHECKING:
    from agentkv.documents import Hit
    from agentkv.engine.settings import EngineSettings

_WIDTH = 300


def find(
    question: Annotated[str, typer.Argument(metavar="QUESTION", help="What you look for, in quotes.")],
    k: Annotated[int, typer.Option("--k", "-k", metavar="N", min=1, help="Windows to show.")] = 5,
    rerank: Annotated[
        int, typer.Option(metavar="N", min=0, help="Let the model order the first N; it reads those not stored yet.")
    ] = 0,
    corpus: Corpus = DEFAULT,
    model: options.ModelFilter = None,
    embedder: options.Embedder = None,
    store: options.Store = None,
    window: options.Window = None,
    threads: options.Threads = None,
    kv_type: options.KvType = None,
    flash_attention: options.FlashAttention = None,
    gpu_layers: options.GpuLayers = None,
    as_json: options.Json = False,
) -> None:
    """Find the windows that fit a question best, by full-text search and, with an embedder, by meaning."""
    from agentkv.documents.corpus import find as find_windows

    if not question.strip():
        raise UsageError("the question is empty")
    opened_as, settings = options.chosen(store, model, window, threads, kv_type, flash_attention, gpu_layers)
    if rerank:
        hits = _reranked(store, opened_as, settings, corpus, question, k, rerank, embedder)
    else:
        with open_shelf(store, corpus, model) as (_, shelf, _), options.open_embedder(embedder) as opened:
            hits = find_windows(shelf, question, k, embed=opened)
    record: dict[str, Any] = {"corpus": corpus, "question": question, "hits": [hit_record(hit) for hit in hits]}
    finish(record, as_json, lambda: _show(question, hits))


def _reranked(
    store: Path | None,
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


def _show(question: str, hits: list[Hit]) -> None:
    if not hits:
        from agentkv.documents.locate import nothing_found

        say(nothing_found(question))
    for rank, hit in enumerate(hits, 1):
        say(f"{rank}. {place(hit.path, hit.start, hit.stop, hit.heading)}  {hit.score:.1f}")
        say(f"   {one_line(f'{hit.columns} … {hit.text}' if hit.columns else hit.text, _WIDTH)}", dim=True)
