"""What the commands print of results: the figures that the result has, and no more."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from agentkv import FakeEngine
from agentkv.cli import output
from agentkv.cli.bench import show_tables
from tests.benchmarks.documents.chunk_sizes import ChunkSizes
from tests.benchmarks.documents.compose import Compose
from tests.benchmarks.documents.interrupt import Interrupt
from tests.benchmarks.documents.questions import Questions
from tests.cli.conftest import Run

from .conftest import paragraphs
from .test_questions import a_question

TEXTS = tuple("\n\n".join(paragraphs(start, 12)) for start in (0, 100))


@pytest.fixture
def shown(monkeypatch: pytest.MonkeyPatch) -> io.StringIO:
    written = io.StringIO()
    monkeypatch.setattr(output, "console", lambda: Console(file=written, width=200, color_system=None))
    return written


def test_compose(shown: io.StringIO) -> None:
    show_tables(Compose.tables, Compose(engine=FakeEngine(window=1024), texts=TEXTS, samples=2).run())
    lines = shown.getvalue().splitlines()
    chain = next(number for number, line in enumerate(lines) if line.startswith("chain"))  # after a folded heading
    assert lines[chain].split()[:3] == ["chain", "2/2", "="]
    assert lines[chain + 1].startswith("stitched as they stand")
    assert "0/2" in lines[chain + 1]


def test_chunk_sizes(shown: io.StringIO, tmp_path: Path) -> None:
    asked = ChunkSizes(engine=FakeEngine(window=1024), texts=TEXTS, windows=(128, 256), per_size=1, folder=tmp_path)
    result = asked.run()
    show_tables(ChunkSizes.tables, result)
    rows = [line.split() for line in shown.getvalue().splitlines()[1:3]]
    assert [row[0] for row in rows] == [f"{size['tokens']:,.0f}" for size in result["sizes"]]
    assert [row[-1] for row in rows] == ["yes", "yes"]
    assert "reread" in next(iter(ChunkSizes.notes(result)))


def test_interrupt(shown: io.StringIO) -> None:
    undisturbed = {"windows": 9, "seconds": 3.0, "files": {"a": "1", "b": "2"}}
    kill: dict[str, Any] = {"store": 0, "delay_s": 0.5, "blocks": 4, "left_over": 1, "damage": []}
    store = {"runs": 2, "files": {"a": "1", "b": "3"}, "findings": []}
    raw = {"undisturbed": undisturbed, "kill/0": kill, "store/0": store, "wanted": {"kills": 1}}
    found = Interrupt.figures(raw)
    show_tables(Interrupt.tables, found)
    text = shown.getvalue() + "\n".join(Interrupt.notes(found))
    assert "0/1 = 0.000" in text
    assert "store/0: b" in text
    with pytest.raises(Exception, match="0 of 1 stores are the undisturbed one"):
        Interrupt.check(found)


def test_the_commands_over_one_store(bench: Run, folder: Path, tmp_path: Path) -> None:
    options = ("--model", "fake", "--small", "--folder", folder, "--work", tmp_path / "work", "--window", "512")
    assert bench("widen", "--model", "fake").exit_code == 2, "--work has to be given"
    assert bench("widen", *options[:-4], "--work", tmp_path / "b", "--folder", tmp_path / "none").exit_code == 2
    filled = bench("widen", *options)
    assert filled.exit_code == 0, filled.output
    assert [line.split()[:2] for line in filled.stdout.splitlines() if "paper" in line] == [["the", "paper"]]
    assert "aim: tokens 2,854,766, is 4," in filled.stdout
    asked = bench("needles", *options)
    assert asked.exit_code == 0, asked.output
    assert "8 needles over" in asked.stdout
    measured = bench("depth", *options, "--points", "2", "--repeats", "1")
    assert measured.exit_code == 0, measured.output
    assert "largest / median of all" in measured.stdout
    assert "peak memory: " in measured.stdout


def test_questions(shown: io.StringIO, folder: Path, tmp_path: Path) -> None:
    asked = a_question(folder, passages=((f"{folder.name}/a.html", "of step 2 is read before"),))
    how: dict[str, Any] = {"questions": (asked,), "source": folder, "window": 512, "work": tmp_path / "work"}
    result = Questions(engine=FakeEngine(window=4096), **how).run()
    show_tables(Questions.tables, result)
    lines = shown.getvalue().splitlines()
    assert sum(line.startswith("fake, plain search and prompt") for line in lines) == 3
    assert any("though it is: 0/1" in line for line in Questions.notes(result))
