"""Documents on the fake engine: one byte is one token, and it quotes the line that shares most words."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from agentkv import AgentMemory, FakeEngine
from agentkv.documents import Corpus

GUIDE = """# Shop

Everything about the shop.

## Returns

Returns are accepted for 7 days. The restocking fee of an opened reader is 12%.

## Hours

We open at nine. On Sundays the shop is closed.
"""
TRAINS = """Trains
======

The release train leaves on Tuesday.

Cutoff
------

The cutoff is on Monday at four.
"""
PAGE = (
    "<html><head><title>Manual</title><style>p{}</style></head><body><nav><a>Home</a></nav><h1>Pumps</h1>"
    "<p>The <b>pump</b> holds&nbsp;40&thinsp;litres &amp; more.</p><ul><li>red</li><li>blue</li></ul></body></html>"
)


def script(answer: str) -> Callable[[str], str]:
    """An engine that says ``answer``."""
    return lambda prompt: answer


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Three small files."""
    home = tmp_path / "docs"
    (home / "deep").mkdir(parents=True)
    (home / "guide.md").write_text(GUIDE)
    (home / "deep" / "trains.rst").write_text(TRAINS)
    (home / "page.html").write_text(PAGE)
    return home


@pytest.fixture
def memory(tmp_path: Path) -> Iterator[AgentMemory]:
    with AgentMemory(tmp_path / "store", FakeEngine(window=2048)) as opened:
        yield opened


@pytest.fixture
def corpus(memory: AgentMemory) -> Corpus:
    return Corpus(memory, chunk_tokens=160, overlap=16)
