"""``agentkv doctor``: what it finds on this machine, and that the one next step is the most urgent one."""

from __future__ import annotations

import copy
import sys
from pathlib import Path
from typing import Any

import pytest

from agentkv.cli.doctor import next_step
from tests.cli.conftest import Run, record

FINE: dict[str, Any] = {
    "compiler": {"path": "/usr/bin/cc", "cmake": None},
    "llama_cpp": {"usable": True, "version": "0.3.36", "gpu": False, "features": [], "reason": ""},
    "store": {
        "path": "s",
        "there": True,
        "names": 2,
        "blocks": 5,
        "of_others": 0,
        "fault": "",
        "migrate": "agentkv migrate",
    },
    "disk": {"path": "/", "free": 10**11},
    "model": {"name": "m", "here": True, "need": 10**9, "memory": 10**10, "fault": ""},
}


@pytest.mark.parametrize(
    ("changes", "step", "prevents"),
    [
        ({}, 'agentkv ask "…"', False),
        ({"store.names": 0}, "agentkv demo", False),
        ({"model.here": False}, "agentkv models pull m", False),
        ({"store.of_others": 2, "model.here": False}, "agentkv migrate`: 2 names", False),
        ({"model.memory": 10**8, "store.of_others": 2}, "agentkv models suggest", False),
        ({"model.fault": "a fault", "model.memory": 10**8}, "a fault", False),
        ({"disk.free": 10**8, "model.fault": "a fault"}, "make room: 100 MB are free", False),
        ({"store.fault": "not a store", "disk.free": 10**8}, "replace the store: not a store", True),
        ({"llama_cpp.usable": False, "store.fault": "x"}, "pip install 'llama-cpp-python", True),
        ({"llama_cpp.usable": False, "compiler.path": None}, "apt install build-essential", True),
    ],
)
def test_the_most_urgent_step_comes_first(changes: dict[str, Any], step: str, prevents: bool) -> None:
    found = copy.deepcopy(FINE)
    for name, value in changes.items():
        section, key = name.split(".")
        found[section][key] = value
    text, stops = next_step(found)
    assert step in text
    assert stops is prevents


def test_before_and_after_the_first_deposit(run: Run, skills: Path) -> None:
    first = run("doctor", "--json")
    found = record(first)
    assert (first.exit_code, found["usable"], found["store"]["there"]) == (0, True, False)
    assert "agentkv demo" in found["next"]
    assert found["disk"]["free"] > 0
    assert found["cpu"]["threads"] > 0
    assert run("deposit", skills).exit_code == 0
    assert (record(run("doctor", "--json"))["store"]["names"], "agentkv ask" in run("doctor").stdout) == (2, True)
    run("settings", "flash-attention=on")
    screen = run("doctor")
    assert "`agentkv migrate --store" in screen.stdout
    assert "`: 2 names of the store are of another engine" in screen.stdout
    assert "2 of another engine" in screen.stdout


def test_the_store_is_compared_with_the_model_that_is_named(filled: Run, store: Path) -> None:
    assert record(filled("doctor", "--model", "fake", "--json"))["store"]["of_others"] == 0
    other = filled("doctor", "--model", "smollm2-135m", "--store", store)
    assert "2 of another engine" in other.stdout
    assert f"`agentkv migrate --store {store} --model smollm2-135m`: 2 names" in " ".join(other.stdout.split())
    absent = record(filled("doctor", "--model", store.parent / "absent.gguf", "--json"))
    assert (absent["store"]["fault"], absent["usable"]) == ("", True)
    assert "absent.gguf" in absent["next"]


def test_a_folder_that_is_not_a_store_prevents_use(run: Run, store: Path) -> None:
    store.mkdir()
    (store / "notes.txt").write_text("mine")
    result = run("doctor", "--json")
    assert result.exit_code == 1
    assert record(result)["usable"] is False
    assert "replace the store" in record(result)["next"]


def test_a_llama_cpp_that_cannot_be_loaded_prevents_use(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "llama_cpp", None)
    result = run("doctor")
    assert result.exit_code == 1
    assert "cannot be used" in result.stdout
    assert "next: `pip install 'llama-cpp-python" in result.stdout
