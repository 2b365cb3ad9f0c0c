"""A folder of small documents in place of the packages, and the fake engine in place of a model."""

from __future__ import annotations

from pathlib import Path

import pytest

from agentkv import FakeEngine

WORDS = "table column index query server backup restore replica schema vacuum".split()  # noqa: SIM905


def paragraphs(first: int, count: int) -> list[str]:
    """Paragraphs that differ from one another."""
    return [
        f"Rule {first + i}: the {WORDS[i % 10]} of step {first + i} is read before the {WORDS[(3 * i + 1) % 10]} is "
        f"written, and a {WORDS[(7 * i + 2) % 10]} is kept for {i + 2} turns of the clock."
        for i in range(count)
    ]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Three documents: HTML, reStructuredText and text."""
    home = tmp_path / "manual"
    (home / "deep").mkdir(parents=True)
    body = "\n".join(f"<p>{text}</p>" for text in paragraphs(0, 12))
    (home / "a.html").write_text(f"<html><head><title>A</title></head><body><h1>First</h1>\n{body}\n</body></html>\n")
    (home / "b.rst").write_text("Second\n======\n\n" + "\n\n".join(paragraphs(100, 12)) + "\n")
    (home / "deep" / "c.txt").write_text("\n\n".join(paragraphs(200, 12)) + "\n")
    return home


@pytest.fixture
def engine() -> FakeEngine:
    return FakeEngine(window=4096)
