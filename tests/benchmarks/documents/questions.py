"""``questions``: real questions about PostgreSQL's and git's manuals, in users' own words, and their answers.

The questions come along (``data/documents/questions.jsonl``): each with the files and short anchors of the passages
that answer it, and the answers that count as right; some have no passage, for the manuals do not say. Half of them, by
number, are kept out of any tuning, and reported apart. The manuals are fetched by package and checked by hash.

Each question is put twice. By documents: found, its chunk grafted, quoted and answered (``Corpus.ask``). Chunks that
were not stored are prefilled first; no time here contains that. Plainly, for comparison: the chunk that plain full-text
search puts first (BM25 of whole chunks), as text in a prompt of the same model. With an embedder every chunk's vectors
are made first; what lexical search alone finds is reported beside it.

A window is right if it holds a passage whole; a quote if it stands in the source and shares a byte with a passage; an
answer if it holds an accepted string as a word of its own. Enforced: every quote stands in the source. Tokens are
counted at the decode call.

A run in the same ``work`` folder goes on where an earlier one with the same settings was broken off.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import orjson

from agentkv.bench.base import Benchmark, Column, ModelSettings, Row, Table, duration, interval, option, small_option
from agentkv.bench.measured import Raw
from agentkv.bench.results import say
from agentkv.cli.output import picked
from agentkv.documents import Corpus
from agentkv.documents.answer import Attempt
from agentkv.documents.index import Index
from agentkv.documents.locate import Hit, locate
from agentkv.documents.quote import NOT_STATED, generate_line
from agentkv.documents.readers.document import Readable
from agentkv.engine.base import Engine
from agentkv.engine.embed import Embedder, opened_embedder
from agentkv.engine.prompt import Message, PromptBuilder
from agentkv.errors import GuaranteeViolated, UsageError
from agentkv.figures import share, spread
from agentkv.io import fsio
from agentkv.io.hashing import canonical_json, sha256
from agentkv.memory.memory import AgentMemory
from agentkv.records import TokenCounts
from agentkv.skills.questions import contains_answer
from tests.benchmarks.documents import recipe

FILE = Path(__file__).parents[1] / "data" / "documents" / "questions.jsonl"
CORPUS = "questions"
OVERLAP, TOP, MAX_NEW = 96, 5, 48
PREFILL_AIM = 60
"""Tokens prefilled a question and chunk that was tried, at most."""

_ROOM = 704
_PLAIN = "Answer the question from the text, in a few words. If the text does not answer it, say: not stated."

Place = tuple[str, int, int]
"""Path, first byte, and the one after the last."""


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


@dataclass(frozen=True, kw_only=True)
class Settings(ModelSettings):
    """``source``: a folder in place of the packages. With ``small``, one question in twenty."""

    model: str = "qwen2.5-coder-1.5b"
    work: Path = option(Path("bench-questions"), "Packages, documents, store, and what was seen so far.", metavar="DIR")
    embedder: str | None = None
    k: int = option(3, "Chunks to try at most.", short="-k", metavar="N", least=1)
    window: int = option(1024, "Tokens of a chunk.", metavar="N", least=64)
    plain: bool = option(True, "Also answer plainly, from the chunk as text.")
    small: bool = small_option()
    questions: tuple[Question, ...] | None = None
    source: Path | None = None
    engine: Engine | None = None


# --- records --------------------------------------------------------------------------------------


class Tried(Row):
    """One chunk that was asked. ``draft``: the answer before it was written again from the quote alone."""

    window: Place
    answer: str | None
    draft: str | None
    confidence: float
    tokens: TokenCounts
    restore_ms: float
    answer_ms: float


class Quote(Row):
    """Bytes ``start`` to ``stop`` of the source. ``verified``: the quote was found there again."""

    path: str
    start: int
    stop: int
    verified: bool


class Asked(Row):
    """What documents gave."""

    answer: str | None
    quote: Quote | None
    attempts: list[Tried]


class Plain(Row):
    """What a plain prompt gave; ``read_ms``: its prefill."""

    answer: str | None
    prefilled: int
    generated: int
    read_ms: float
    answer_ms: float


class Seen(Row):
    """The raw record of one question; ``found``, …: the first chunks of each way to search."""

    kept_out: bool
    answers: list[str]
    passages: list[Place]
    found: list[Place]
    plainly_found: list[Place]
    found_by_words: list[Place]
    find_ms: float
    asked: Asked
    plain: Plain | None

    def is_found(self, way: str, top: int) -> bool:
        """Whether one of the first ``top`` chunks holds a passage whole."""
        return any(
            path == found and start <= first and last <= stop
            for path, start, stop in getattr(self, way)[:top]
            for found, first, last in self.passages
        )

    def is_quoted(self) -> bool:
        """Whether the quote was found again in the source and touches a passage."""
        quote = self.asked.quote
        if quote is None or not quote.verified:
            return False
        return any(quote.path == p and quote.start < last and first < quote.stop for p, first, last in self.passages)

    def is_answered(self) -> bool:
        """Whether the answer is right."""
        return is_right(self.asked.answer, self.answers)

    def draft(self) -> str | None:
        """The answer as it stood before it was written again from the quote alone; None where none was given."""
        drafts = [attempt.draft for attempt in self.asked.attempts if attempt.answer is not None]
        return None if self.asked.answer is None else drafts[-1]

    def ms(self) -> float:
        """The whole of it."""
        return self.find_ms + sum(attempt.restore_ms + attempt.answer_ms for attempt in self.asked.attempts)


def is_right(answer: str | None, accepted: Sequence[str]) -> bool:
    """Whether an answer holds an accepted string that is not a part of a longer word or number.

    >>> is_right("It uses jsonb.", ["jsonb"]), is_right("jsonbx", ["jsonb"]), is_right(None, ["jsonb"])
    (True, False, False)
    """
    if answer is None:
        return False
    flat = " ".join(answer.split())
    return any(
        contains_answer(flat, [text]) and re.search(rf"(?<!\w){re.escape(text)}(?!\w)", flat, re.I) is not None
        for text in accepted
    )


# --- figures --------------------------------------------------------------------------------------


def _half(seen: Sequence[Seen]) -> dict[str, Any]:
    def of(group: Sequence[Seen], holds: Callable[[Seen], bool]) -> dict[str, Any]:
        return share(sum(map(holds, group)), len(group))

    covered, uncovered = [one for one in seen if one.passages], [one for one in seen if not one.passages]
    plain = [(one, one.plain) for one in seen if one.plain is not None]
    first = [one for one in covered if one.is_found("found", 1)]
    ways = {"": "found", "words_": "found_by_words", "plain_": "plainly_found"}
    shares = {
        f"{label}window_{name}": share(sum(one.is_found(way, top) for one in covered), len(covered))
        for label, way in ways.items()
        for name, top in (("first", 1), ("in_5", 5))
    }
    right = [is_right(answered.answer, one.answers) for one, answered in plain if one.passages]
    silent = [answered.answer is None for one, answered in plain if not one.passages]
    return {
        **shares,
        "quote": of(covered, Seen.is_quoted),
        "answer": of(covered, Seen.is_answered),
        "draft": of(covered, lambda one: is_right(one.draft(), one.answers)),
        "plain_answer": share(sum(right), len(right)),
        "quote_when_first": of(first, Seen.is_quoted),
        "answer_when_first": of(first, Seen.is_answered),
        "not_stated_wrongly": of(covered, lambda one: one.asked.answer is None),
        "not_stated_rightly": of(uncovered, lambda one: one.asked.answer is None),
        "plain_not_stated_rightly": share(sum(silent), len(silent)),
    }


def _tokens(seen: Sequence[Seen]) -> dict[str, Any]:
    attempts = [attempt.tokens for one in seen for attempt in one.asked.attempts]
    prefilled = spread([tokens.prefilled for tokens in attempts])
    return {
        "windows_tried": spread([len(one.asked.attempts) for one in seen]),
        "prefilled_a_window": prefilled,
        "prefilled_aim_met": prefilled["max"] <= PREFILL_AIM,
        "prefilled_a_question": spread([sum(tried.tokens.prefilled for tried in one.asked.attempts) for one in seen]),
        "restored_a_window": spread([tokens.restored for tokens in attempts]),
        "generated_a_window": spread([tokens.generated for tokens in attempts]),
        "plain_prefilled": spread([one.plain.prefilled for one in seen if one.plain is not None]),
    }


def _times(seen: Sequence[Seen]) -> dict[str, Any]:
    attempts = [attempt for one in seen for attempt in one.asked.attempts]
    plain = [(one.find_ms, one.plain) for one in seen if one.plain is not None]
    return {
        "find": spread([one.find_ms for one in seen]),
        "restore": spread([attempt.restore_ms for attempt in attempts]),
        "answer_a_window": spread([attempt.answer_ms for attempt in attempts]),
        "question": spread([one.ms() for one in seen]),
        "plain_read": spread([answered.read_ms for _, answered in plain]),
        "plain_question": spread([find_ms + answered.read_ms + answered.answer_ms for find_ms, answered in plain]),
    }


# --- tables ---------------------------------------------------------------------------------------


def _lines(result: Mapping[str, Any]) -> Iterator[tuple[str, ...]]:
    """Each half of the questions, put both ways; times of all questions alone."""
    found_by = "words and meaning" if result["settings"].get("embedder") else "words"
    for half in ("tuned", "kept out", "all"):
        for way, label in ((f"by {found_by}", ""), ("plain search and prompt", "plain_")):
            names = ("window_first", "window_in_5", "answer", "not_stated_rightly")
            first, among, answer, silent = (interval(result["halves"][half][f"{label}{name}"]) for name in names)
            quote = "" if label else interval(result["halves"][half]["quote"])
            ms = result["ms"][f"{label}question"]
            taken = f"{duration(ms['median'])} (at most {duration(ms['max'])})" if half == "all" else ""
            yield f"{result['model']}, {way}", half, first, among, quote, answer, taken, silent


_HEADINGS = ("right window first", "among five", "quote right", "answer right", "time a question")
_REST = {
    "lexical search alone: right window first": "words_window_first",
    "lexical search alone: among five": "words_window_in_5",
    "quote right, where the window is first": "quote_when_first",
    "answer right, where the window is first": "answer_when_first",
    "“not stated”, though it is": "not_stated_wrongly",
}


class Questions(Benchmark[Settings]):
    """Questions about PostgreSQL's and git's manuals: window, quote and answer, beside plain search and prompt."""

    name = "questions"
    tables = (
        Table(
            _lines,
            (
                *(Column[str](heading, str, left=True) for heading in ("", "questions")),
                *(Column[str](heading, str) for heading in (*_HEADINGS, "“not stated” where nothing is")),
            ),
            name="questions",
            by_model=False,
        ),
    )

    def run(self) -> dict[str, Any]:
        """See the module's text. Raises UsageError where a passage is not found."""
        asked = self.settings
        questions = list(asked.questions or load())[:: 20 if asked.small else 1]
        packages = (recipe.GIT, recipe.POSTGRESQL)
        laid = recipe.lay(asked.work, packages, source=asked.source, on_step=say)
        options: dict[str, Any] = (
            {"threads": asked.threads, "window": asked.window + _ROOM} if asked.engine is None else {}
        )
        cut = {"block": asked.window, "overlap": min(OVERLAP, asked.window // 8)}
        settings = {**options, **cut, "k": asked.k, "embedder": asked.embedder, "plain": asked.plain}
        with (
            AgentMemory(asked.work / "store", asked.engine or asked.model, **options) as memory,
            opened_embedder(asked.embedder) as embed,
        ):
            corpus = Corpus(memory, CORPUS, chunk_tokens=asked.window, overlap=cut["overlap"], keep="lazy")
            say("cutting and indexing")
            corpus.add([laid.folder])
            if embed is not None:
                say("embedding chunks")
                corpus.embed(embed, on_chunk=_every_hundredth)
            info, inputs = memory.engine.info, [laid.sha256, [_as_input(question) for question in questions]]
            digest = sha256(canonical_json([info.sha256, sha256(canonical_json(inputs)), settings]))
            log = _Log(asked.work / f"questions-{digest[:16]}.jsonl")
            asking = _Asking(memory, corpus, asked, embed)
            for number, question in enumerate(questions, 1):
                if question.key not in log.records:
                    log.add(question.key, asking.put(question))
                say(f"{number} of {len(questions)}: {question.text}")
        return self.result(
            {question.key: log.records[question.key] for question in questions},
            model=info.name,
            model_sha256=info.sha256,
            inputs=inputs,
            settings=settings,
            packages=list(laid.packages),
        )

    @staticmethod
    def figures(raw: Raw) -> dict[str, Any]:
        """``halves``: shares; ``tokens`` of all, ``ms`` of the questions that have an answer."""
        seen = {key: Seen.model_validate(record) for key, record in raw.items()}
        every = list(seen.values())
        quotes = {key: one.asked.quote for key, one in seen.items()}
        return {
            "halves": {
                "tuned": _half([one for one in every if not one.kept_out]),
                "kept out": _half([one for one in every if one.kept_out]),
                "all": _half(every),
            },
            "tokens": _tokens(every),
            "ms": _times([one for one in every if one.passages]),
            "quotes_not_in_the_source": [key for key, quote in quotes.items() if quote and not quote.verified],
        }

    @staticmethod
    def check(result: dict[str, Any]) -> None:
        """Every quote stands in the source at the bytes that it names."""
        unverified = result["quotes_not_in_the_source"]
        if unverified:
            raise GuaranteeViolated(f"{len(unverified)} quotes do not stand in their source: {', '.join(unverified)}")

    @staticmethod
    def notes(result: dict[str, Any]) -> Iterable[str]:
        """What the table does not have: lexical search alone, where the window is first, tokens and times."""
        every, tokens, ms = result["halves"]["all"], result["tokens"], result["ms"]
        yield from (f"{label}: {interval(every[key])}" for label, key in _REST.items())
        prefilled, met = tokens["prefilled_a_window"], "met" if tokens["prefilled_aim_met"] else "NOT MET"
        yield (
            f"tokens prefilled a question and window: {prefilled['median']:.0f}, at most {prefilled['max']:.0f} "
            f"(aim {PREFILL_AIM}: {met}); restored {tokens['restored_a_window']['median']:,.0f}; "
            f"in a plain prompt {tokens['plain_prefilled']['median']:,.0f}"
        )
        yield "medians: " + ", ".join(f"{step} {duration(part['median'])}" for step, part in ms.items())


def _every_hundredth(done: int, total: int, path: str) -> None:
    if done % 100 == 0:
        say(f"{done:,} of {total:,}: {path}")


def _as_input(question: Question) -> list[Any]:
    return [question.key, question.text, [list(p) for p in question.passages], list(question.answers)]


# --- one question ---------------------------------------------------------------------------------


class _Log:
    """The records so far, one a line in a file named by what they are of; half a line at its end is not taken."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self.records: dict[str, Any] = {}
        if path.exists():
            whole, newline, _ = path.read_bytes().rpartition(b"\n")
            self.records = dict(orjson.loads(line) for line in whole.splitlines())
            fsio.write_durably(path, [whole + newline])

    def add(self, key: str, seen: Seen) -> None:
        """One more, on disk before it counts."""
        self.records[key] = seen.model_dump(mode="json")
        with self._path.open("ab") as file:
            file.write(orjson.dumps([key, self.records[key]]) + b"\n")
            file.flush()


class _Asking:
    """Puts questions to one corpus."""

    def __init__(self, memory: AgentMemory, corpus: Corpus, asked: Settings, embed: Embedder | None) -> None:
        self._memory, self._corpus, self._settings, self._embed = memory, corpus, asked, embed
        self._documents = {record.path: record for record in corpus.shelf.all().values()}
        self._folder = next(iter(self._documents)).split("/")[0]

    def put(self, question: Question) -> Seen:
        """What was seen of one question."""
        corpus, passages = self._corpus, self._passages(question)
        start = time.perf_counter()
        hits = corpus.find(question.text, TOP, embed=self._embed)
        find_ms = (time.perf_counter() - start) * 1e3
        by_words = hits if self._embed is None else corpus.find(question.text, TOP)
        with Index(corpus.shelf) as index:  # what full-text search of whole chunks alone gives
            plainly = locate(corpus.shelf, index, question.text, TOP, passages=False)
        reply = corpus.ask(
            question.text, self._settings.k, embed=self._embed, max_new=MAX_NEW, on_attempt=self._have_stored
        )
        quote = reply.evidence and Quote(**picked(reply.evidence, *Quote.model_fields))
        return Seen(
            kept_out=question.kept_out,
            answers=list(question.answers),
            passages=passages,
            found=[_place(hit) for hit in hits],
            plainly_found=[_place(hit) for hit in plainly],
            found_by_words=[_place(hit) for hit in by_words],
            find_ms=find_ms,
            asked=Asked(answer=reply.answer, quote=quote, attempts=[_tried(attempt) for attempt in reply.attempts]),
            plain=self._answered_plainly(question.text, plainly[0]) if self._settings.plain and plainly else None,
        )

    def _passages(self, question: Question) -> list[Place]:
        found: list[Place] = []
        for file, anchor in question.passages:
            path = f"{self._folder}/{file}"
            record = self._documents.get(path)
            here = [] if record is None else list(places(self._corpus.shelf.readable(record), anchor))
            if not here:
                raise UsageError(f"the passage of {question.key} is not in {path}: {anchor!r}")
            found += [(path, start, stop) for start, stop in here]
        return found

    def _have_stored(self, hit: Hit) -> None:
        self._corpus.chunks.deposit(hit.document, hit.chunk)

    def _answered_plainly(self, text: str, hit: Hit) -> Plain:
        engine = self._memory.engine
        asked = f"{_PLAIN}\n\n{self._corpus.chunks.text(hit.document, hit.chunk)}\nQuestion: {text}"
        prompt = PromptBuilder(engine).build("", "", [Message("user", asked)])
        with self._memory.blocks.exclusive():
            engine.clear()
            before, start = engine.counters.decoded, time.perf_counter()
            logits = engine.extend(prompt.tokens)
            prefilled, prefill_ms = engine.counters.decoded - before, (time.perf_counter() - start) * 1e3
            start = time.perf_counter()
            answer, generated, _ = generate_line(engine, logits, prompt.stops, MAX_NEW)
            answer_ms = (time.perf_counter() - start) * 1e3
        stated = None if answer.strip(" .\"'").casefold().startswith(NOT_STATED) else answer
        return Plain(answer=stated, prefilled=prefilled, generated=generated, read_ms=prefill_ms, answer_ms=answer_ms)


def _place(hit: Hit) -> Place:
    return hit.path, hit.start, hit.stop


def _tried(attempt: Attempt) -> Tried:
    names = Tried.model_fields.keys() - {"window"}
    return Tried(window=_place(attempt.hit), **picked(attempt, *names))
