"""Is the right text first, in the world's languages? Run it: ``python -m tests.benchmarks.languages``.

``languages.jsonl`` holds, for each language, five paragraphs of a manual and questions of three kinds: the ``same``
words, another ``form`` of them (inflected, other spelling or encoding, capitals), and the asker's ``own`` words. All
paragraphs of all languages are put into one corpus, one store and one router; a question is right where its paragraph
comes first of all. Without ``--embedder`` words alone decide and no model is needed.

An English embedder has to lose nothing where it is at home: the store is also asked the 432 questions of
``agentkv/bench/data/routing``, in the askers' own words, about 72 tools' descriptions, and again by cosine alone.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
from langchain_agentkv import AgentKVStore
from langgraph.store.base import PutOp

from agentkv import AgentMemory, FakeEngine
from agentkv.bench import route
from agentkv.documents import Corpus
from agentkv.engine.embed import Embedder, FakeEmbedder, opened_embedder
from agentkv.router.base import Candidate
from agentkv.router.lexical import LexicalClassifier
from agentkv.router.similarity import Similarity
from agentkv.router.vectors import Vectors
from agentkv.router.weights import NARROWING_BY_EMBEDDING

DATA = Path(__file__).with_name("languages.jsonl")
KINDS = ("same", "form", "own")
ARMS = ("documents", "store", "router")

Ask = Callable[[str], str | None]
"""The paragraph that comes first for a question, as ``language/topic``."""


@dataclass(frozen=True)
class Question:
    """``right``: the paragraph that answers it."""

    language: str
    kind: str
    text: str
    right: str


@dataclass(frozen=True)
class Asked:
    """What one arm put first for a question."""

    arm: str
    question: Question
    first: str | None

    @property
    def is_right(self) -> bool:
        return self.first == self.question.right


def load(data: bytes) -> tuple[dict[str, dict[str, Any]], dict[str, str], list[Question]]:
    """The languages by code, all paragraphs by ``language/topic``, and the questions."""
    languages = {entry["language"]: entry for entry in map(json.loads, data.decode().splitlines())}
    paragraphs = {
        f"{code}/{topic}": text for code, entry in languages.items() for topic, text in entry["documents"].items()
    }
    questions = [
        Question(code, kind, text, f"{code}/{topic}")
        for code, entry in languages.items()
        for kind in KINDS
        for text, topic in entry[kind]
    ]
    return languages, paragraphs, questions


def documents(paragraphs: dict[str, str], folder: Path, embedder: Embedder | None, closing: ExitStack) -> Ask:
    """A corpus of one file for each paragraph, whose names say nothing."""
    home = folder / "files"
    home.mkdir()
    keys = {f"{number:03}.txt": key for number, key in enumerate(sorted(paragraphs))}
    for name, key in keys.items():
        (home / name).write_text(paragraphs[key], encoding="utf-8")
    memory = closing.enter_context(AgentMemory(folder / "memory", FakeEngine(window=4096)))
    corpus = Corpus(memory, chunk_tokens=2048, overlap=0, keep="lazy")
    corpus.add([home])
    if embedder is not None:
        corpus.embed(embedder)

    def ask(question: str) -> str | None:
        hits = corpus.find(question, 1, embed=embedder)
        return keys[Path(hits[0].path).name] if hits else None

    return ask


def store(
    paragraphs: dict[str, str], folder: Path, embedder: Embedder | None, closing: ExitStack, *, hybrid: bool = True
) -> Ask:
    """A LangGraph store with an item for each paragraph."""
    index: Any = None
    if embedder is not None:
        index = {"dims": embedder.dimensions, "embed": lambda texts: embedder.embed(list(texts)).tolist()}
    opened = AgentKVStore(folder / "store", index=index, hybrid=hybrid)
    opened.batch([PutOp(("manual",), key, {"text": text}) for key, text in paragraphs.items()])

    def ask(question: str) -> str | None:
        (item,) = opened.search(("manual",), query=question, limit=1)
        return None if item.score is None else item.key

    return ask


def router(paragraphs: dict[str, str], folder: Path, embedder: Embedder | None, closing: ExitStack) -> Ask:
    """Skills whose description is a paragraph's title: by words, or as the router makes its shortlist with vectors."""
    titles = {key: text.partition(".")[0] for key, text in paragraphs.items()}
    labels = {f"skill-{number:03}": key for number, key in enumerate(sorted(paragraphs))}
    candidates = {label: Candidate(titles[key], paragraphs[key]) for label, key in labels.items()}
    if embedder is None:
        classifier = LexicalClassifier()
        return lambda question: labels.get(classifier.classify(question, candidates).raw_pick)
    similarity = Similarity(candidates, {}, Vectors(embedder))

    def ask(question: str) -> str | None:
        near = similarity.of(question) @ NARROWING_BY_EMBEDDING.vector[2:]
        return labels[similarity.labels[int(np.argmax(near))]]

    return ask


def run(data: bytes, embedder: Embedder | None) -> Iterator[Asked]:
    """Every question to every arm."""
    _, paragraphs, questions = load(data)
    for arm, make in zip(ARMS, (documents, store, router), strict=True):
        with tempfile.TemporaryDirectory() as folder, ExitStack() as closing:
            ask = make(paragraphs, Path(folder), embedder, closing)
            for question in questions:
                yield Asked(arm, question, ask(question.text))


def at_home(embedder: Embedder | None, *, hybrid: bool = True) -> dict[str, int]:
    """English questions about tools to the store: how many, and of how many the right description comes first."""
    tools, questions, _ = route.library()
    with tempfile.TemporaryDirectory() as folder, ExitStack() as closing:
        descriptions = {label: tool.description for label, tool in tools.items()}
        ask = store(descriptions, Path(folder), embedder, closing, hybrid=hybrid)
        return {"right": sum(ask(asked.query) == asked.label for asked in questions), "of": len(questions)}


def table(languages: dict[str, dict[str, Any]], rows: list[Asked]) -> str:
    """Right ones of all, by language and script, arm and kind."""
    cells = [(arm, kind) for arm in ARMS for kind in KINDS]
    lines = [
        f"{'':24}" + "".join(f"{arm:^21}" for arm in ARMS),
        f"{'language (script)':24}" + "".join(f"{kind:^7}" for _, kind in cells),
    ]
    named = [(code, f"{entry['name']} ({entry['script']})") for code, entry in languages.items()]
    for code, name in [*named, (None, "all")]:
        line = f"{name:24}"
        for arm, kind in cells:
            found = [
                row.is_right
                for row in rows
                if (row.arm, row.question.kind) == (arm, kind) and code in (None, row.question.language)
            ]
            line += f"{f'{sum(found)}/{len(found)}':^7}"
        lines.append(line)
    return "\n".join(line.rstrip() for line in lines)


def main(arguments: list[str]) -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.benchmarks.languages", description=__doc__)
    parser.add_argument("--embedder", metavar="MODEL", help="an embedding model's name or path, or `fake`")
    parser.add_argument("--json", action="store_true", help="print every answer")
    parser.add_argument("--misses", action="store_true", help="list what did not come first")
    given = parser.parse_args(arguments)
    data = DATA.read_bytes()
    languages, paragraphs, _ = load(data)
    with opened_embedder(FakeEmbedder() if given.embedder == "fake" else given.embedder) as embedder:
        rows = list(run(data, embedder))
        english = {"fused": at_home(embedder), "cosine": at_home(embedder, hybrid=False)} if embedder else {}
        name = None if embedder is None else embedder.name
    digest = hashlib.sha256(data).hexdigest()
    if given.json:
        answers = [{**asdict(row), "right": row.is_right} for row in rows]
        record = {"sha256": digest, "embedder": name, "english": english, "rows": answers}
        sys.stdout.write(json.dumps(record, ensure_ascii=False) + "\n")
        return
    head = f"{len(paragraphs)} paragraphs, data {digest}, embedder {name or 'none'}: right paragraph first"
    sys.stdout.write(f"{head}\n\n{table(languages, rows)}\n")
    for how, found in english.items():
        sys.stdout.write(f"English tools, store, {how}: {found['right']}/{found['of']}\n")
    if given.misses:
        for row in rows:
            if not row.is_right:
                asked = row.question
                sys.stdout.write(f"{row.arm:10}{asked.kind:5} {asked.text}  {asked.right}: {row.first}\n")


if __name__ == "__main__":
    main(sys.argv[1:])
