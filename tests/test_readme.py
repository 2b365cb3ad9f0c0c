"""Every Python block of every README runs; the commands exist; links lead somewhere; claims about the tree are true."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.conftest import REPOSITORY

README = (REPOSITORY / "README.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"```python\n(.*?)```", README, re.S)


def run(code: str) -> str:
    done = subprocess.run([sys.executable, "-c", code], cwd=REPOSITORY, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_there_are_blocks_and_a_newcomer_gets_to_the_end() -> None:
    assert len(BLOCKS) == 3
    assert len(README.splitlines()) <= 150


@pytest.mark.model
def test_the_block_with_a_model_runs() -> None:
    out = run(BLOCKS[1])
    assert "on-call-handover -> on-call-handover" in out
    assert "20 minutes" in out
    assert re.search(r"restored=[1-9]", out)


def test_the_blocks_with_the_fake_run() -> None:
    run(BLOCKS[0])
    assert run(BLOCKS[2]) == "10 skills read\nRF-DUP\n"


def readmes() -> list[Path]:
    listed = subprocess.run(["git", "ls-files", "*.md"], cwd=REPOSITORY, capture_output=True, text=True, check=False)
    found = [REPOSITORY / name for name in listed.stdout.split()] or [REPOSITORY / "README.md"]
    return [path for path in found if "tests/data" not in path.as_posix() and path.name != "SKILL.md"]


@pytest.mark.parametrize("file", readmes(), ids=lambda path: path.relative_to(REPOSITORY).as_posix())
def test_links_lead_somewhere(file: Path) -> None:
    links = re.findall(r"\]\(([^)#:\s]+)\)", file.read_text(encoding="utf-8"))
    assert [link for link in links if not (file.parent / link).exists()] == []


@pytest.mark.parametrize(
    ("name", "printed"),
    [("skills/README.md", "10 skills read\n"), ("integrations/langchain_agentkv/README.md", "RF-DUP True\n")],
)
def test_the_blocks_of_other_readmes_run(name: str, printed: str) -> None:
    blocks = re.findall(r"```python\n(.*?)```", (REPOSITORY / name).read_text(encoding="utf-8"), re.S)
    assert [run(block) for block in blocks] == [printed]


def test_the_headline_figures_stand_in_the_results() -> None:
    results = (REPOSITORY / "agentkv/bench/RESULTS.md").read_text(encoding="utf-8")
    for ours, theirs in {
        "1,141 ×": "| 1,141 × |",
        "449 ×": "| 449 × |",
        "252 s": "| 252.1 s |",
        "148 of 148": "148/148 = 1.000",
        "131 of 148": "131/148",
        "34 of 148": "34/148",
        "0.27 (3,000": "| gemma-3-270m | 3,000 | 18,464 | 5,726 (0.310) | 5,309 (0.288) | 4,955 (0.268)",
    }.items():
        assert ours in README
        assert theirs in results


def test_the_commands_of_the_table_exist() -> None:
    from typer.main import get_command

    from agentkv.cli import app

    commands = get_command(app).commands  # type: ignore[attr-defined]
    table = README[README.index("## Commands") : README.index("`agentkv COMMAND --help`")]
    named = re.findall(r"`(\w+)`", table)
    assert sorted(named) == sorted(name for name in commands if not name.startswith("_"))


def test_the_tests_command_is_the_one_that_ci_takes() -> None:
    assert len(re.findall(r"# the tests$", README, re.M)) == 1
