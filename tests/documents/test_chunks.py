"""Composition by sequential prefill."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from agentkv import FakeEngine
from agentkv.documents import Corpus
from agentkv.documents.chunks import chain
from agentkv.errors import UsageError, WindowOverflow


def test_a_chain_is_one_prefill_of_its_parts(corpus: Corpus, folder: Path) -> None:
    corpus.add([folder])
    hits = corpus.find("shop returns cutoff pump", k=3)
    links = corpus.chain(hits)
    assert [link.parent_id for link in links] == [None, *(link.block_id for link in links[:-1])]
    blocks = corpus.memory.blocks
    blocks.graft(links[-1])
    grafted = blocks.engine.extend([65])
    fresh = FakeEngine(window=2048)
    tokens = [token for link in links for token in link.tokens]
    assert np.array_equal(fresh.extend([*tokens, 65]), grafted)
    assert links[1].block_id == hits[0].chunk.block_id


def test_a_chain_shares_its_beginning(corpus: Corpus, folder: Path) -> None:
    corpus.add([folder])
    hits = corpus.find("shop returns cutoff pump", k=3)
    corpus.chain(hits)
    decoded = corpus.memory.engine.counters.decoded
    corpus.chain(hits[:2])
    assert corpus.memory.engine.counters.decoded == decoded


def test_what_cannot_be_chained(corpus: Corpus) -> None:
    blocks = corpus.memory.blocks
    for parts in ([], [[1], []]):
        with pytest.raises(UsageError):
            chain(blocks, parts)
    with pytest.raises(WindowOverflow):
        chain(blocks, [[1] * 2000, [2] * 200])
    assert list(corpus.memory.store.block_ids()) == []
