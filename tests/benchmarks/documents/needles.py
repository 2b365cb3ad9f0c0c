"""``needles``: unique values in a store of documents, found and said; and what is said without finding.

Over the store that ``widen`` filled (the same ``work``): each needle's question is searched for, its best
window is grafted, and the model answers as ``agentkv docs ask`` does: it quotes a sentence of the window, then says the
answer in its own words. Right is the value alone, letters' case, white space and marks at the ends aside; an answer
with anything else in it is wrong, so no echoed haystack counts.

Two controls a needle, both with the question alone behind a grafted window and the answer free, without search, quote
or grammar: behind the needle's own window (``own``), and behind another one, far away (``other``), which must not say
the value: what is not grafted is not in attention. The value must not be in any of these answers (exit code 60).

Knows the documents' API, no commands. Windows that are not stored are left out and counted.
"""

from __future__ import annotations

import time
from collections.abc import Set
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from agentkv.bench import measured
from agentkv.bench.results import now, origin
from agentkv.documents.answer import Attempt, ask_chunk
from agentkv.documents.locate import Hit
from agentkv.documents.quote import generate_line
from agentkv.documents.records import document_key
from agentkv.engine.base import Cancellation, Engine
from agentkv.errors import Cancelled, GuaranteeViolated, UsageError
from agentkv.io.hashing import canonical_json
from tests.benchmarks.documents.planting import Needle
from tests.benchmarks.documents.widen import Plan, Scene, Watch, scene, told

K = 5

_MAX_NEW = 24


@dataclass(frozen=True)
class Placed:
    """A needle and the windows that hold it whole; ``depth``: index of the first of them among all windows."""

    needle: Needle
    depth: int
    windows: frozenset[int]


def run(
    model: str | Engine,
    work: Path,
    plan: Plan | None = None,
    *,
    settings: dict[str, Any] | None = None,
    watch: Watch | None = None,
) -> dict[str, Any]:
    """Ask for every needle whose window is stored. Raises UsageError where none is."""
    started, plan, watch = now(), plan or Plan(), watch or Watch()
    with scene(model, work, plan, settings=settings, watch=watch) as found:
        everywhere = placed(found) if found.corpus.exists else []
        stored = _stored(found)
        asked = [item for item in everywhere if item.depth in stored]
        if not asked:
            raise UsageError(
                f"no window with a needle is stored in {work}; `python -m tests.benchmarks widen` comes first"
            )
        raw: dict[str, Any] = {
            "corpus": {
                "windows": len(found.windows),
                "stored": len(stored),
                "needles": len(found.needles),
                "placed": len(everywhere),
                "documents_sha256": found.laid.sha256,
                "plan_sha256": found.plan_sha256,
            }
        }
        for number, item in enumerate(asked):
            if watch.cancellation.requested:
                raise Cancelled("asking for needles")
            watch.on_item(number, len(asked), item.needle.question)
            raw[f"needle/{number:03}"] = _ask(found, item, stored, watch.cancellation)
        info = found.corpus.memory.engine.info
        inputs = canonical_json([found.laid.sha256, found.plan_sha256, [item.needle.record() for item in everywhere]])
        header = origin("needles", info.name, info.sha256, inputs, started=started, **told(plan), **(settings or {}))
    return measured.result(header, raw)


def check(result: dict[str, Any]) -> None:
    """Raise GuaranteeViolated if a value was said while its window was not in the context."""
    if result["leaked"]:
        raise GuaranteeViolated(f"said without its window in the context: {', '.join(result['leaked'])}")


# --- where the needles are ------------------------------------------------------------------------


def placed(found: Scene) -> list[Placed]:
    """The needles that stand whole in a window, in order of depth."""
    by_path: dict[str, list[int]] = {}
    for index, (record, _) in enumerate(found.windows):
        by_path.setdefault(record.path, []).append(index)
    items = []
    for needle in found.needles:
        holding = [index for index in by_path.get(needle.path, []) if needle.sentence in _flat(hit(found, index).text)]
        if holding:
            items.append(Placed(needle, holding[0], frozenset(holding)))
    return sorted(items, key=lambda item: item.depth)


def hit(found: Scene, index: int) -> Hit:
    """Window ``index`` of all, as if it had been found."""
    record, window = found.windows[index]
    document = found.corpus.shelf.readable(record)
    start, stop = document.characters(window.start, window.stop)
    key = document_key(record.origin.encode("utf-8", "surrogateescape"))
    return Hit(key, record, record.chunks.index(window), 0.0, "given", document.text[start:stop])


def _flat(text: str) -> str:
    return " ".join(text.split())


def _stored(found: Scene) -> set[int]:
    """The windows whose blocks are in the store."""
    store = found.corpus.memory.store
    return {index for index, (_, window) in enumerate(found.windows) if store.exists(window.block_id)}


def farthest(depth: int, count: int) -> int:
    """The window farthest from ``depth`` of ``count``, wrapped around."""
    return (depth + count // 2) % count


# --- one needle -----------------------------------------------------------------------------------


def _ask(found: Scene, item: Placed, stored: Set[int], cancellation: Cancellation) -> dict[str, Any]:
    corpus, needle = found.corpus, item.needle
    begun = time.perf_counter()
    hits = corpus.find(needle.question, K, cancellation=cancellation)
    find_ms = (time.perf_counter() - begun) * 1e3
    numbers = {(record.path, window.block_id): index for index, (record, window) in enumerate(found.windows)}
    ranked = [numbers.get((one.path, one.chunk.block_id)) for one in hits]
    attempt = ask_chunk(corpus.chunks, hits[0], needle.question, max_new=_MAX_NEW, cancellation=cancellation)
    other = _other(item, stored)
    return {
        "question": needle.question,
        "sentence": needle.sentence,
        "value": needle.value,
        "path": needle.path,
        "depth": item.depth,
        "holding": sorted(item.windows),
        "ranked": ranked,
        "find_ms": find_ms,
        **_told(attempt),
        "own": {"depth": item.depth, "text": free(found, item.depth, needle.question, cancellation)},
        "other": {"depth": other, "text": free(found, other, needle.question, cancellation)},
    }


def _other(item: Placed, stored: Set[int]) -> int:
    """Of the windows that are ``stored``, one far from the needle's."""
    others = sorted(stored - item.windows)
    if not others:
        raise UsageError("the control takes a second window that is stored")
    at = next((number for number, index in enumerate(others) if index >= item.depth), 0)
    return others[farthest(at, len(others))]


def _told(attempt: Attempt) -> dict[str, Any]:
    evidence = attempt.evidence
    return {
        "answer": attempt.answer,
        "quote": None if evidence is None else evidence.quote,
        "verified": None if evidence is None else evidence.verified,
        "confidence": attempt.confidence,
        "tokens": attempt.tokens.model_dump(),
        "restore_ms": attempt.restore_ms,
        "answer_ms": attempt.answer_ms,
        "read_now": attempt.prefilled_now,
    }


def free(found: Scene, index: int, question: str, cancellation: Cancellation) -> str:
    """What the model says to the question behind window ``index``: one line, no search, no quote, no grammar."""
    corpus, (record, window) = found.corpus, found.windows[index]
    engine = corpus.memory.engine
    with corpus.chunks.live(record, window, question, cancellation) as live:
        logits = engine.extend(live.prompt.turn, cancellation)
        text, *_ = generate_line(engine, logits, live.prompt.stops, _MAX_NEW, cancellation)
        return text
