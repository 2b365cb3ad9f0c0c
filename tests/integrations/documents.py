"""A small corpus for the tests of the retriever and the tool: a dozen windows on the fake engine."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from agentkv import AgentMemory
from agentkv.documents import Corpus
from tests.integrations.chatting import SlowEngine

SHOP = """# Shop

## Returns

Returns are accepted for 7 days. The restocking fee of an opened reader is 12%.

## Hours

The shop opens at nine. On Sundays the shop is closed.

## Parking

The shop has places for eleven cars behind the house.
"""
TRAINS = "# Trains\n\nThe release train leaves the shop on Tuesday.\n"
ANSWER = '7 days\n"Returns are accepted for 7 days."'
NOT_STATED = "not stated"


def made_corpus(home: Path, replies: Callable[[str], str] | None = None) -> Corpus:
    """Two files in four windows; each window's text is about as long as its section."""
    folder = home / "docs"
    folder.mkdir()
    (folder / "shop.md").write_text(SHOP)
    (folder / "trains.md").write_text(TRAINS)
    memory = AgentMemory(home / "store", SlowEngine(window=2048, replies=replies))
    corpus = Corpus(memory, chunk_tokens=130, overlap=0)
    corpus.add([folder])
    return corpus
