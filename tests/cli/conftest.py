"""The command line on the fake engine: a store of one's own, small manuals, and a way to run a command."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import orjson
import pytest
from typer.testing import CliRunner

from agentkv import BlockStore
from agentkv.cli import app

Run = Callable[..., Any]

FEES = "The restocking fee of an opened reader is 12%.\nA faulty reader is returned free of charge."
RELEASE = "The release train leaves on Tuesday at 10:30.\nThe cutoff is on Monday at 16:00."


def manual(folder: Path, name: str, text: str, routes: str = "") -> Path:
    """A skill folder."""
    home = folder / name
    home.mkdir(parents=True)
    head = f"---\nname: {name}\ndescription: All about {name}.\n---\n"
    (home / "SKILL.md").write_text(f"{head}# {name}\n\n{text}\n")
    if routes:
        (home / "routes.jsonl").write_text(routes)
    return home


@pytest.fixture
def skills(tmp_path: Path) -> Path:
    """A folder of two skills with a labelled question each."""
    folder = tmp_path / "skills"
    manual(folder, "fees", FEES, '{"query": "what is the restocking fee", "skill": "fees", "answer": ["12%"]}\n')
    route = '{"query": "when does the release train leave", "skill": "release", "answer": ["10:30"]}\n'
    manual(folder, "release", RELEASE, route)
    return folder


@pytest.fixture
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The default store of the commands, not made yet; the default model is the fake one."""
    monkeypatch.setenv("AGENTKV_STORE", str(tmp_path / "store"))
    monkeypatch.setenv("AGENTKV_MODEL", "fake")
    return tmp_path / "store"


@pytest.fixture
def run(store: Path) -> Run:
    """Run a command in this process; what is not an AgentKVError is raised here."""

    def invoke(*arguments: object) -> Any:
        return CliRunner().invoke(app, [str(argument) for argument in arguments], catch_exceptions=False)

    return invoke


@pytest.fixture
def filled(run: Run, skills: Path) -> Run:
    """``run``, with both skills deposited."""
    assert run("deposit", skills).exit_code == 0
    return run


def record(result: Any) -> Any:
    """The one JSON document of a command's stdout."""
    return orjson.loads(result.stdout)


def error_of(result: Any) -> Any:
    """The error record of a command that failed; its message is on stderr too."""
    error = record(result)["error"]
    assert result.exit_code == error["exit_code"] != 0
    assert f"error: {error['message']}" in result.stderr
    return error


def manifest_files(store: Path) -> list[Path]:
    return sorted(path for path in (store / "manifests").rglob("*") if path.is_file())


def damage(store: Path, block_id: str) -> None:
    """Flip one bit in the middle of the last segment of a block, which no other block has."""
    with BlockStore(store) as opened:
        manifest = opened.manifest(block_id)
        assert manifest is not None
        file = Path(opened.segments.where(manifest.segments[-1].sha256))
    data = bytearray(file.read_bytes())
    data[len(data) // 2] ^= 1
    file.chmod(0o644)
    file.write_bytes(data)
