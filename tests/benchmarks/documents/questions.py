"""``questions``: real questions about PostgreSQL's and git's manuals, in users' words, and their answers.

The questions come along (``data/documents/questions.jsonl``): each with the files and short anchors of the
passages that answer it, and the answers that count as right; some have no passage, for the manuals do not say. Half of
them, by number, are kept out of any tuning, and told apart. The manuals are fetched by package and checked by hash.

Each question is put twice. By documents: found, its window grafted, quoted and answered (``Corpus.ask``). Windows that
were not stored are read first; that time is no part of what is told. Plainly, for comparison: the window that plain
full-text search puts first (BM25 of whole windows), as text in a prompt of the same model, read and answered. With an
embedder every window's vectors are made first; what words alone find is told beside it.

Told: whether a window that holds a passage is found first, or among five; whether the quote stands in the source and
touches a passage; whether the answer has one of the accepted strings; how often "not stated" is said, rightly and not.
Enforced: every quote stands in the source. Tokens are counted at the decode call.

A run in the same ``work`` folder goes on where an earlier one with the same settings was broken off.
"""

from __future__ import annotations

import re
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import orjson

from agentkv.bench import measured
from agentkv.bench.results import now, origin, say
from agentkv.documents import Corpus
from agentkv.documents.answer import Attempt, Reply
from agentkv.documents.index import Index
from agentkv.documents.locate import Hit, locate
from agentkv.documents.quote import NOT_STATED, generate_line
from agentkv.documents.readers.document import Readable
from agentkv.engine.base import Engine
from agentkv.engine.embed import Embedder, opened_embedder
from agentkv.engine.prompt import Message, PromptBuilder
from agentkv.errors import GuaranteeViolated, UsageError
from agentkv.io import fsio
from agentkv.io.hashing import canonical_json, sha256
from agentkv.memory.memory import AgentMemory
from tests.benchmarks.documents import recipe

FILE = Path(__file__).parents[1] / "data" / "documents" / "questions.jsonl"
MODEL = "qwen2.5-coder-1.5b"
WINDOW, OVERLAP, K = 1024, 96, 3
TOP = 5
MAX_NEW = 48
CORPUS = "questions"

_ROOM = 704
_PLAIN = "Answer the question from the text, in a few words. If the text does not answer it, say: not stated."


@dataclass(frozen=True)
class Question:
    """``passages``: file and anchor, the words by which a passage that answers is found; none: nothing answers it.

    ``answers``: an answer that holds one of them is right.
    """

    key: str
    text: str
    passages: tuple[tuple[str, str], ...]
    answers: tuple[str, ...]
    kept_out: bool


def load() -> list[Question]:
    """The questions that come along."""
    return [_question(orjson.loads(line)) for line in FILE.read_bytes().splitlines()]


def _question(record: dict[str, Any]) -> Question:
    passages = tuple((passage["file"], passage["anchor"]) for passage in record["passages"])
    return Question(record["id"], record["question"], passages, tuple(record["answers"]), record["kept_out"])


def places(document: Readable, anchor: str) -> Iterator[tuple[int, int]]:
    """The source bytes of each place where the anchor's words stand, whatever white space is between them."""
    pattern = r"\s+".join(map(re.escape, anchor.split()))
    for match in re.finditer(pattern, document.text):
        yield document.byte_range(match.start(), match.end())


# --- the run --------------------------------------------------------------------------------------


def run(
    model: str | Engine = MODEL,
    *,
    work: Path,
    questions: Sequence[Question] | None = None,
    packages: Sequence[recipe.Package] = (recipe.GIT, recipe.POSTGRESQL),
    source: Path | None = None,
    window: int = WINDOW,
    overlap: int = OVERLAP,
    k: int = K,
    embedder: str | None = None,
    plain: bool = True,
    small: bool = False,
    settings: dict[str, Any] | None = None,
) -> dict[str, Any]:
    """The whole benchmark. ``work``: for packages, documents, store, and what was seen so far.

    ``source``: a folder in place of the packages; ``embedder``: fuse the order by meaning with that by words; ``plain``
    False leaves the comparison out; ``small``: one question in twenty. Raises UsageError where a passage is not found.
    """
    started = now()
    asked = list(questions if questions is not None else load())[:: 20 if small else 1]
    laid = recipe.lay(work, packages, source=source, on_step=say)
    options: dict[str, Any] = {**(settings or {}), "window": window + _ROOM} if isinstance(model, str) else {}
    told = {**options, "block": window, "overlap": overlap, "k": k, "embedder": embedder, "plain": plain}
    with AgentMemory(work / "store", model, **options) as memory, opened_embedder(embedder) as opened:
        corpus = Corpus(memory, CORPUS, chunk_tokens=window, overlap=overlap, keep="lazy")
        say("cutting and indexing")
        corpus.add([laid.folder])
        if opened is not None:
            say("embedding windows")
            corpus.embed(opened, on_chunk=_every_hundredth)
        inputs = canonical_json([laid.sha256, [_told(question) for question in asked]])
        header = origin(
            "questions", memory.engine.info.name, memory.engine.info.sha256, inputs, started=started, **told
        )
        header["packages"] = list(laid.packages)
        seen = _Seen(work, sha256(canonical_json([header["model_sha256"], header["inputs_sha256"], told])))
        bench = _Bench(memory, corpus, k, plain, opened)
        for number, question in enumerate(asked, 1):
            if question.key not in seen.records:
                seen.add(question.key, bench.put(question))
            say(f"{number} of {len(asked)}: {question.text}")
    raw: dict[str, Any] = {question.key: seen.records[question.key] for question in asked}
    return measured.result(header, raw)


def check(result: dict[str, Any]) -> None:
    """Raise GuaranteeViolated where a quote does not stand in the source at the bytes that it names."""
    unverified = result["quotes_not_in_the_source"]
    if unverified:
        raise GuaranteeViolated(f"{len(unverified)} quotes do not stand in their source: {', '.join(unverified)}")


def _every_hundredth(done: int, total: int, path: str) -> None:
    if done % 100 == 0:
        say(f"{done:,} of {total:,}: {path}")


def _told(question: Question) -> list[Any]:
    return [question.key, question.text, [list(p) for p in question.passages], list(question.answers)]


class _Seen:
    """The records so far, one a line in a file called by what they are of; half a line at its end is not taken."""

    def __init__(self, work: Path, digest: str) -> None:
        self._path = work / f"questions-{digest[:16]}.jsonl"
        self.records: dict[str, Any] = {}
        if self._path.exists():
            whole, newline, _ = self._path.read_bytes().rpartition(b"\n")
            self.records = dict(orjson.loads(line) for line in whole.splitlines())
            fsio.write_durably(self._path, [whole + newline])

    def add(self, key: str, record: dict[str, Any]) -> None:
        """One more, on disk before it counts."""
        with self._path.open("ab") as file:
            file.write(orjson.dumps([key, record]) + b"\n")
            file.flush()
        self.records[key] = record


class _Bench:
    """Puts questions to one corpus."""

    def __init__(self, memory: AgentMemory, corpus: Corpus, k: int, plain: bool, embed: Embedder | None) -> None:
        self._memory, self._corpus, self._k, self._plain, self._embed = memory, corpus, k, plain, embed
        self._documents = {record.path: record for record in corpus.shelf.all().values()}
        self._folder = next(iter(self._documents)).split("/")[0]

    def put(self, question: Question) -> dict[str, Any]:
        """What was seen of one question."""
        passages = self._passages(question)
        start = time.perf_counter()
        hits = self._corpus.find(question.text, TOP, embed=self._embed)
        find_ms = (time.perf_counter() - start) * 1e3
        by_words = hits if self._embed is None else self._corpus.find(question.text, TOP)
        plain_hits = self._plainly_found(question.text)
        reply = self._corpus.ask(
            question.text, self._k, embed=self._embed, max_new=MAX_NEW, on_attempt=self._have_stored
        )
        first = plain_hits[0] if plain_hits else None
        return {
            "kept_out": question.kept_out,
            "answers": list(question.answers),
            "passages": passages,
            "found": [[hit.path, hit.start, hit.stop] for hit in hits],
            "plainly_found": [[hit.path, hit.start, hit.stop] for hit in plain_hits],
            "found_by_words": [[hit.path, hit.start, hit.stop] for hit in by_words],
            "find_ms": find_ms,
            "asked": _reply_record(reply),
            "plain": self._answered_plainly(question.text, first) if self._plain and first is not None else None,
        }

    def _passages(self, question: Question) -> list[list[Any]]:
        found: list[list[Any]] = []
        for file, anchor in question.passages:
            path = f"{self._folder}/{file}"
            record = self._documents.get(path)
            here = [] if record is None else list(places(self._corpus.shelf.readable(record), anchor))
            if not here:
                raise UsageError(f"the passage of {question.key} is not in {path}: {anchor!r}")
            found += [[path, start, stop] for start, stop in here]
        return found

    def _have_stored(self, hit: Hit) -> None:
        self._corpus.chunks.deposit(hit.document, hit.chunk)

    def _plainly_found(self, text: str) -> list[Hit]:
        """What full-text search of whole windows alone would give."""
        with Index(self._corpus.shelf) as index:
            return locate(self._corpus.shelf, index, text, TOP, passages=False)

    def _answered_plainly(self, text: str, hit: Hit) -> dict[str, Any]:
        engine = self._memory.engine
        asked = f"{_PLAIN}\n\n{self._corpus.chunks.text(hit.document, hit.chunk)}\nQuestion: {text}"
        prompt = PromptBuilder(engine).build("", "", [Message("user", asked)])
        with self._memory.blocks.exclusive():
            engine.clear()
            before, start = engine.counters.decoded, time.perf_counter()
            logits = engine.extend(prompt.tokens)
            read_ms, n_read = (time.perf_counter() - start) * 1e3, engine.counters.decoded - before
            start = time.perf_counter()
            said, generated, _ = generate_line(engine, logits, prompt.stops, MAX_NEW)
            answer_ms = (time.perf_counter() - start) * 1e3
        return {
            "answer": None if said.strip(" .\"'").casefold().startswith(NOT_STATED) else said,
            "prefilled": n_read,
            "generated": generated,
            "read_ms": read_ms,
            "answer_ms": answer_ms,
        }


def _reply_record(reply: Reply) -> dict[str, Any]:
    evidence = reply.evidence
    quote = None
    if evidence is not None:
        names = ("path", "start", "stop", "verified")
        quote = {name: getattr(evidence, name) for name in names}
    return {
        "answer": reply.answer,
        "quote": quote,
        "attempts": [_attempt_record(attempt) for attempt in reply.attempts],
    }


def _attempt_record(attempt: Attempt) -> dict[str, Any]:
    return {
        "window": [attempt.hit.path, attempt.hit.start, attempt.hit.stop],
        "answer": attempt.answer,
        "draft": attempt.draft,
        "confidence": attempt.confidence,
        "tokens": attempt.tokens.model_dump(),
        "restore_ms": attempt.restore_ms,
        "answer_ms": attempt.answer_ms,
    }
