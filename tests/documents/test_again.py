"""Corpora of another engine: said with the field where they are missed, and cut again from the kept sources."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from agentkv import AgentMemory, FakeEngine
from agentkv.documents import Corpus
from agentkv.documents.again import deposit_again
from agentkv.engine.settings import EngineSettings
from agentkv.errors import StaleDocument, UnknownCorpus

FLASH = EngineSettings(flash_attention=True)


@pytest.fixture
def store(tmp_path: Path) -> Path:
    folder = tmp_path / "docs"
    folder.mkdir()
    (folder / "returns.md").write_text("# Returns\n\nReturns are accepted for 7 days.\n")
    (folder / "fees.md").write_text("# Fees\n\nThe fee is 12%.\n")
    with AgentMemory(tmp_path / "store", FakeEngine()) as memory:
        Corpus(memory, window=256, overlap=0).add([folder])
        Corpus(memory, "lazy", window=128, overlap=0, keep="lazy").add([folder / "fees.md"])
    return tmp_path / "store"


def test_a_corpus_of_another_engine_is_said_to_be_that(store: Path) -> None:
    with AgentMemory(store, FakeEngine(settings=FLASH)) as memory:
        for name in ("documents", "lazy"):
            with pytest.raises(UnknownCorpus, match="flash_attention = False, here True") as caught:
                Corpus(memory, name).find("returns")
            assert "agentkv deposit --again --store" in caught.value.message
            assert "agentkv.documents.deposit_again(memory)" in caught.value.message
        with pytest.raises(UnknownCorpus, match="There are: documents, lazy"):
            Corpus(memory, "nothing").find("returns")
    other = Corpus(AgentMemory(store, FakeEngine(weights="b")))
    with pytest.raises(UnknownCorpus, match="model_sha256 = fake, here fake:b"):
        other.find("returns")


def test_it_is_cut_again_as_it_was_wherever_the_files_are_now(store: Path) -> None:
    shutil.rmtree(store.parent / "docs")
    with AgentMemory(store, FakeEngine(settings=FLASH)) as memory:
        done = {one.name: one for one in deposit_again(memory)}
        assert (done["documents"].files, done["lazy"].files) == (2, 1)
        assert all(one.failed == () for one in done.values())
        corpus = Corpus(memory)
        assert (corpus.record.window, corpus.record.keep, Corpus(memory, "lazy").record.keep) == (256, "eager", "lazy")
        assert corpus.find("how many days for returns?", k=1)[0].path == "docs/returns.md"
        assert corpus.shelf.stored() == set(), "no window was read"
        assert memory.engine.counters.decoded == 0
        assert deposit_again(memory) == []


def test_a_lost_source_keeps_no_other_out(store: Path) -> None:
    with AgentMemory(store, FakeEngine(settings=FLASH)) as memory:
        corpus = Corpus(AgentMemory(memory.store, FakeEngine()))
        record = next(one for one in corpus.shelf.all().values() if one.path.endswith("returns.md"))
        corpus.shelf.sources.remove(record.sha256)
        done = {one.name: one for one in deposit_again(memory)}
        assert (done["documents"].files, done["lazy"].files) == (1, 1)
        ((path, error),) = done["documents"].failed
        assert (path, type(error)) == ("docs/returns.md", StaleDocument)
