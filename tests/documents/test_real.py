"""Documents with a real model: the chunks fit, are restored exactly, and are quoted."""

from __future__ import annotations

from pathlib import Path

import pytest

from agentkv import AgentMemory
from agentkv.documents import Corpus
from agentkv.engine.base import Engine
from agentkv.records import Exactness

from .conftest import GUIDE, PAGE, TRAINS

pytestmark = pytest.mark.model


def test_documents_end_to_end(tmp_path: Path, smollm2: Engine) -> None:
    docs = tmp_path / "docs"
    docs.mkdir()
    (docs / "guide.md").write_text(GUIDE + "\n" + "ä🙂日本 " * 200)
    (docs / "trains.rst").write_text(TRAINS)
    (docs / "page.html").write_text(PAGE)
    memory = AgentMemory(tmp_path / "store", smollm2)
    corpus = Corpus(memory, chunk_tokens=128, overlap=16)
    report = corpus.add([docs])
    chunks = [chunk for record in corpus.shelf.all().values() for chunk in record.chunks]
    assert report.prefilled == len({chunk.block_id for chunk in chunks}) >= 6, "the same text is one block"
    assert len(chunks) > 8
    for chunk in chunks:
        manifest = memory.store.manifest(chunk.block_id)
        assert manifest is not None
        assert manifest.exactness in (Exactness.EXACT, Exactness.EXACT_BY_CONFIG)
        assert chunk.n_tokens <= len(manifest.tokens) <= 128

    hit = corpus.find("What is the restocking fee?", k=1)[0]
    reply = corpus.ask("What is the restocking fee?", k=1)
    (attempt,) = reply.attempts
    assert attempt.hit.chunk == hit.chunk
    assert reply.evidence is not None
    chunk_tokens = sum(map(len, corpus.chunks.chunk_prompt(hit.document, hit.chunk).blocks))
    examples, _, _ = corpus.chunks.short_answers._prompt("What is the restocking fee?", reply.evidence.quote)
    assert attempt.tokens.restored == chunk_tokens + len(examples)
    assert reply.evidence.verified
    assert reply.evidence.quote in " ".join(hit.text.split())


def test_a_chunk_restored_is_the_chunk_read(tmp_path: Path, smollm2: Engine) -> None:
    (tmp_path / "guide.md").write_text(GUIDE)
    memory = AgentMemory(tmp_path / "store", smollm2)
    corpus = Corpus(memory, chunk_tokens=128, overlap=0)
    corpus.add([tmp_path / "guide.md"])
    hit = corpus.find("restocking fee", k=1)[0]
    prompt = corpus.chunks.chunk_prompt(hit.document, hit.chunk, "What is the restocking fee?")
    with corpus.chunks.live(hit.document, hit.chunk, "What is the restocking fee?"):
        restored = smollm2.extend(prompt.turn).tobytes()
    smollm2.clear()
    for part in prompt.blocks:
        smollm2.extend(part)
    assert smollm2.extend(prompt.turn).tobytes() == restored
    smollm2.clear()
