"""The first hour: ten likely mistakes, each with a message that says what to do; and answers that were cut show it."""

from __future__ import annotations

import errno
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from typer.testing import CliRunner

from agentkv import AgentMemory, FakeEngine
from agentkv.cli import app
from agentkv.engine.fake import quote
from agentkv.errors import ThreadChanged
from tests.cli.conftest import FEES, manual, record
from tests.models.packages import MODEL
from tests.store.faults import refused

QUESTION = "what is the restocking fee?"
Wrong = Callable[[Path, pytest.MonkeyPatch], tuple[int, str]]
"""Makes one mistake in a folder with a store; the exit code and what is message."""


def command(*arguments: object) -> tuple[int, str]:
    result = CliRunner().invoke(app, [str(argument) for argument in arguments], catch_exceptions=False)
    return result.exit_code, result.stderr


def wrong_path(home: Path, _: pytest.MonkeyPatch) -> tuple[int, str]:
    return command("deposit", home / "skils")


def wrong_store(home: Path, _: pytest.MonkeyPatch) -> tuple[int, str]:
    return command("ask", QUESTION, "--store", home / "stoer")


def no_runtime(home: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[int, str]:
    """What an installation whose compile failed looks like."""
    for name in [name for name in sys.modules if name.startswith("agentkv.engine.llama.")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "llama_cpp", None)
    (home / "model.gguf").write_bytes(MODEL)
    return command("ask", QUESTION, "--model", home / "model.gguf")


def no_compiler(home: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[int, str]:
    monkeypatch.setitem(sys.modules, "llama_cpp", None)
    monkeypatch.setenv("PATH", "")
    monkeypatch.delenv("CC", raising=False)
    result = CliRunner().invoke(app, ["doctor"], catch_exceptions=False)
    return result.exit_code, result.stdout


def half_a_model(home: Path, _: pytest.MonkeyPatch) -> tuple[int, str]:
    (home / "half.gguf").write_bytes(MODEL[: len(MODEL) // 2])
    return command("ask", QUESTION, "--model", home / "half.gguf")


def model_not_fetched(home: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[int, str]:
    monkeypatch.setenv("AGENTKV_MODELS", str(home / "models"))
    return command("models", "path", "qwen2.5-coder-0.5b")


def newer_store(home: Path, _: pytest.MonkeyPatch) -> tuple[int, str]:
    (home / "store" / "agentkv-store.json").write_bytes(b'{"format":2}\n')
    return command("ask", QUESTION)


def other_engine(home: Path, _: pytest.MonkeyPatch) -> tuple[int, str]:
    return command("ask", QUESTION, "--model", "fake:upgraded", "--skill", "fees")


def no_disk(home: Path, _: pytest.MonkeyPatch) -> tuple[int, str]:
    other = manual(home / "more", "release", "The train leaves on Tuesday.")
    with refused(errno.ENOSPC, str(home / "store" / "tmp")):
        return command("deposit", other)


def small_window(home: Path, _: pytest.MonkeyPatch) -> tuple[int, str]:
    return command("ask", QUESTION, "--skill", "fees", "--window", 200)


def wrong_skill(home: Path, _: pytest.MonkeyPatch) -> tuple[int, str]:
    return command("ask", QUESTION, "--skill", "fee")


def no_gpu(home: Path, _: pytest.MonkeyPatch) -> tuple[int, str]:
    return command("ask", QUESTION, "--gpu-layers", 99)


def two_processes(home: Path, _: pytest.MonkeyPatch) -> tuple[int, str]:
    """One conversation, gone on with in another process."""
    with AgentMemory(home / "store", FakeEngine(replies=quote)) as memory:
        thread = memory.thread("me")
        thread.ask("I am Ann.", skill=None)
        code = (
            "import sys; from agentkv import AgentMemory, FakeEngine\n"
            "AgentMemory(sys.argv[1], FakeEngine()).thread('me').ask('And I am Bob.', max_new=2)"
        )
        subprocess.run([sys.executable, "-c", code, str(home / "store")], check=True)
        with pytest.raises(ThreadChanged) as caught:
            thread.ask("Who am I?")
        return caught.value.exit_code, caught.value.message


MISTAKES: list[tuple[Wrong, int, str, str]] = [
    (wrong_path, 2, "is not a file or directory", "Name a folder that holds a SKILL.md"),
    (wrong_store, 40, "there is no store here", "Check the path, or deposit something first"),
    (no_runtime, 16, "llama-cpp-python cannot be used", "Run `agentkv doctor`"),
    (no_compiler, 1, "cannot be used", "next: install a C++ compiler (`apt install build-essential`"),
    (half_a_model, 12, "is truncated", "delete it and fetch it again, as by `agentkv models pull"),
    (model_not_fetched, 10, "is not on this machine", "Run `agentkv models pull qwen2.5-coder-0.5b`"),
    (newer_store, 41, "has store format 2", "Use the agentkv version that wrote it"),
    (other_engine, 30, "is stored for another engine", "`agentkv migrate --store"),
    (no_disk, 45, "Nothing was stored and nothing was lost", "free some space and repeat the command"),
    (small_window, 20, "over the context window of 200", "open a larger window"),
    (wrong_skill, 51, "no skill 'fee'", "Did you mean fees?"),
    (no_gpu, 15, "uses no GPU", "install llama-cpp-python built for the GPU"),
    (two_processes, 91, "has gone on elsewhere", "open it again, or fork it"),
]
"""The mistake, its exit code, what is message to be wrong, and what to do."""


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with a store that has one skill; the fake model is the default."""
    monkeypatch.setenv("AGENTKV_STORE", str(tmp_path / "store"))
    monkeypatch.setenv("AGENTKV_MODEL", "fake")
    monkeypatch.setattr(os, "fsync", lambda _: None)
    manual(tmp_path / "skills", "fees", FEES)
    assert command("deposit", tmp_path / "skills") == (0, "")
    return tmp_path


@pytest.mark.parametrize(("mistake", "code", "wrong", "remedy"), MISTAKES, ids=[one[0].__name__ for one in MISTAKES])
def test_the_message_says_what_is_wrong_and_what_to_do(
    mistake: Wrong, code: int, wrong: str, remedy: str, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    exit_code, message = mistake(home, monkeypatch)
    assert exit_code == code
    assert wrong in message
    assert remedy in message
    assert "Traceback" not in message


@pytest.mark.skip(reason="nothing listens: there is no server yet, so no port can be taken")
def test_a_port_that_is_taken() -> None:
    raise AssertionError


def test_an_answer_that_was_cut_shows_it_everywhere(home: Path) -> None:
    cut = CliRunner().invoke(app, ["ask", QUESTION, "--max-new", "4"])
    assert "… cut at 4 tokens (--max-new)" in cut.stderr
    found = record(CliRunner().invoke(app, ["ask", QUESTION, "--max-new", "4", "--json"]))
    assert (found["finish"], "the answer was cut at 4 tokens" in found["notes"][-1]) == ("length", True)
    whole = CliRunner().invoke(app, ["ask", QUESTION])
    assert "cut at" not in whole.stderr
    with AgentMemory(home / "store", FakeEngine(replies=quote)) as memory:
        thread = memory.thread("me")
        thread.ask(QUESTION, max_new=4)
        thread.ask(QUESTION)
    shown = CliRunner().invoke(app, ["threads", "show", "me"]).stdout
    assert shown.count("[… cut]") == 1


def test_a_chat_model_says_that_its_answer_was_cut(home: Path) -> None:
    pytest.importorskip("langchain_core")
    from langchain_agentkv import ChatAgentKV

    with AgentMemory(home / "store", FakeEngine(replies=quote)) as memory:
        chat = ChatAgentKV(memory=memory)
        reasons = [chat.invoke(QUESTION, max_tokens=n).response_metadata["finish_reason"] for n in (4, 200)]
    assert reasons == ["length", "stop"]
