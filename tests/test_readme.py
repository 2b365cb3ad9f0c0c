"""Every Python block of the README runs; its commands exist; its claims about the tree are true."""

from __future__ import annotations

import re
import subprocess
import sys

import pytest

from tests.conftest import REPOSITORY

README = (REPOSITORY / "README.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"```python\n(.*?)```", README, re.S)


def run(code: str) -> str:
    done = subprocess.run([sys.executable, "-c", code], cwd=REPOSITORY, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_there_are_blocks() -> None:
    assert len(BLOCKS) == 3
    assert README.count("FIGURES-") == 0


@pytest.mark.model
def test_the_block_with_a_model_runs() -> None:
    out = run(BLOCKS[0])
    assert "on-call-handover -> on-call-handover" in out
    assert "20 minutes" in out
    assert re.search(r"restored=[1-9]", out)


def test_the_blocks_with_the_fake_run() -> None:
    run(BLOCKS[1])
    assert run(BLOCKS[2]) == "10 skills read\n"


def test_the_commands_of_the_table_exist() -> None:
    from typer.main import get_command

    from agentkv.cli import app

    commands = get_command(app).commands  # type: ignore[attr-defined]
    table = README[README.index("## Commands") : README.index("## The guarantee")]
    named = {
        word for cell in re.findall(r"^\| (.*?) \|", table, re.M) for word in re.findall(r"`(?:agentkv )?(\w+)", cell)
    }
    assert named - {"command"} == {name for name in commands if not name.startswith("_")}
    for group in ("models", "bench", "pack", "skills"):
        listed = re.search(rf"`agentkv {group} ([\w\\|]+)`", table)
        assert listed is not None
        assert set(listed[1].replace("\\", "").split("|")) == set(commands[group].commands)


def test_the_tests_command_is_the_one_that_ci_takes() -> None:
    assert len(re.findall(r"# the tests$", README, re.M)) == 1
