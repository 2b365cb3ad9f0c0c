"""Documents with a real model: the windows fit, are restored exactly, and are quoted."""

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
    corpus = Corpus(memory, window=128, overlap=16)
    report = corpus.add([docs])
    windows = [window for record in corpus.shelf.all().values() for window in record.windows]
    assert report.read == len({window.block_id for window in windows}) >= 6, "the same text is one block"
    assert len(windows) > 8
    for window in windows:
        manifest = memory.store.manifest(window.block_id)
        assert manifest is not None
        assert manifest.exactness in (Exactness.EXACT, Exactness.EXACT_BY_CONFIG)
        assert window.n_tokens <= len(manifest.tokens) <= 128

    hit = corpus.find("What is the restocking fee?", k=1)[0]
    reply = corpus.ask("What is the restocking fee?", k=1)
    (attempt,) = reply.attempts
    assert attempt.hit.window == hit.window
    assert reply.evidence is not None
    window_tokens = sum(map(len, corpus.reader.window_prompt(hit.document, hit.window).blocks))
    examples, _, _ = corpus.reader.brief._prompt("What is the restocking fee?", reply.evidence.quote)
    assert attempt.tokens.restored == window_tokens + len(examples)
    assert reply.evidence.verified
    assert reply.evidence.quote in " ".join(hit.text.split())


def test_a_window_restored_is_the_window_read(tmp_path: Path, smollm2: Engine) -> None:
    (tmp_path / "guide.md").write_text(GUIDE)
    memory = AgentMemory(tmp_path / "store", smollm2)
    corpus = Corpus(memory, window=128, overlap=0)
    corpus.add([tmp_path / "guide.md"])
    hit = corpus.find("restocking fee", k=1)[0]
    prompt = corpus.reader.window_prompt(hit.document, hit.window, "What is the restocking fee?")
    with corpus.reader.live(hit.document, hit.window, "What is the restocking fee?"):
        restored = smollm2.extend(prompt.turn).tobytes()
    smollm2.clear()
    for part in prompt.blocks:
        smollm2.extend(part)
    assert smollm2.extend(prompt.turn).tobytes() == restored
    smollm2.clear()
