"""What holds for every command: help, version, errors as one line and one code, quiet pipes."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import orjson
import pytest

from agentkv import __version__
from agentkv.cli import ask

from .conftest import Run, error_of

COMMANDS = [
    "demo", "deposit", "ask", "route", "list", "show", "verify", "check", "gc", "rm", "pin", "unpin", "stats", "models",
    "pack", "bench", "_demo-ask",
]  # fmt: skip


def agentkv(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "agentkv", *arguments]
    return subprocess.run(command, env=os.environ | environment, capture_output=True, text=True, check=False)


def test_version(run: Run) -> None:
    result = run("--version")
    assert (result.exit_code, result.stdout) == (0, f"agentkv {__version__}\n")


def test_help_names_every_command(run: Run) -> None:
    text = run("--help").stdout
    assert all(f" {command} " in text for command in COMMANDS if command != "_demo-ask")
    assert "_demo-ask" not in text


@pytest.mark.parametrize("command", COMMANDS)
def test_help_of_each(run: Run, command: str) -> None:
    result = run(command, "--help")
    assert result.exit_code == 0
    assert "Usage:" in result.stdout


def test_help_loads_neither_model_nor_numpy() -> None:
    code = (
        "import sys; from typer.testing import CliRunner; from agentkv.cli import app; "
        "assert CliRunner().invoke(app, ['--help']).exit_code == 0; "
        "assert not {'llama_cpp', 'numpy', 'pydantic'} & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


@pytest.mark.parametrize(
    "arguments", [["nonsense"], ["ask"], ["ask", "q", "--max-new", "0"], ["deposit"], ["ask", "q", "--nonsense"]]
)
def test_usage_errors_end_with_2(run: Run, arguments: list[str]) -> None:
    result = run(*arguments)
    assert (result.exit_code, result.stdout) == (2, "")
    assert result.stderr


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["nonsense", "--json"], "No such command 'nonsense'."),
        (["ask", "--json"], "Missing argument 'QUESTION'."),
        (["ask", "q", "--json", "--max-new", "0"], "Invalid value for '--max-new'"),
        (["ask", "q", "--json", "--nonsense"], "No such option: --nonsense"),
        (["docs", "ask", "--json"], "Missing argument 'QUESTION'."),
    ],
)
def test_usage_errors_are_json_for_a_script(run: Run, arguments: list[str], message: str) -> None:
    result = run(*arguments)
    error = orjson.loads(result.stdout)["error"]
    assert (result.exit_code, error["exit_code"], error["type"]) == (2, 2, "UsageError")
    assert error["message"].startswith(message)
    assert result.stderr


def test_an_error_is_one_line_and_its_code(run: Run) -> None:
    result = run("list")
    assert (result.exit_code, result.stdout) == (40, "")
    assert result.stderr.startswith("error: ")
    assert result.stderr.count("\n") == 1


def test_an_error_as_json(run: Run, store: Path) -> None:
    error = error_of(run("list", "--json"))
    assert (error["type"], error["exit_code"], error["path"]) == ("StoreUnusable", 40, str(store))


def test_json_behind_two_dashes_is_text(run: Run) -> None:
    result = run("ask", "--", "--json")
    assert (result.exit_code, result.stdout) == (40, "")


def test_a_file_is_no_store(run: Run, store: Path) -> None:
    store.write_text("something else")
    for arguments in (["list"], ["ask", "q"], ["deposit", store], ["verify"], ["show", "x"]):
        assert run(*arguments).exit_code == 40
    assert store.read_text() == "something else"


def test_a_folder_with_other_files_is_no_store(run: Run, store: Path, skills: Path) -> None:
    store.mkdir()
    (store / "letter.txt").write_text("dear")
    assert run("deposit", skills).exit_code == 40
    assert [path.name for path in store.iterdir()] == ["letter.txt"]


def test_unknown_model(run: Run, store: Path) -> None:
    run("deposit", __file__)
    error = error_of(run("ask", "q", "--model", "smolm", "--json"))
    assert error["exit_code"] == 10
    assert "agentkv models list" in error["message"]


def test_settings_out_of_range(run: Run) -> None:
    assert run("ask", "q", "--window", "1").exit_code == 2
    assert run("ask", "q", "--kv-type", "q8_0").exit_code == 2


def test_ctrl_c_ends_with_130(filled: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(ask, "show", interrupted)
    result = filled("ask", "q")
    assert (result.exit_code, result.stdout) == (130, "")
    assert result.stderr.startswith("error: interrupted")


def test_a_defect_keeps_its_traceback(filled: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    def defect(*_: object) -> None:
        raise ZeroDivisionError

    monkeypatch.setattr(ask, "show", defect)
    with pytest.raises(ZeroDivisionError):
        filled("ask", "q")


class TestProcess:
    def test_error(self, store: Path) -> None:
        result = agentkv("list", "--json")
        assert result.returncode == 40
        assert orjson.loads(result.stdout)["error"]["type"] == "StoreUnusable"
        assert result.stderr.startswith("error: ")

    def test_a_reader_that_has_gone(self, filled: Run) -> None:
        command = [sys.executable, "-m", "agentkv", "list"]
        with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
            assert process.stdout is not None
            assert process.stderr is not None
            process.stdout.close()
            assert process.stderr.read() == b""

    def test_a_terminal_of_ascii(self, filled: Run) -> None:
        result = agentkv("show", "fees", PYTHONIOENCODING="ascii", PYTHONUTF8="0")
        assert (result.returncode, result.stderr) == (0, "")
