"""Shared fixtures. Tests marked ``model`` open a real model; one engine a session and model, one at a time."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from agentkv.engine.base import Engine
from agentkv.errors import SandboxUnavailable
from agentkv.sandbox.base import Level
from agentkv.sandbox.sandbox import Sandbox

REPOSITORY = Path(__file__).resolve().parent.parent


@pytest.fixture(autouse=True)
def no_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    """Results are as wide as into a pipe; pytest-xdist sets a width for its workers."""
    monkeypatch.delenv("COLUMNS", raising=False)


@pytest.fixture(scope="session")
def smollm2() -> Iterator[Engine]:
    from agentkv.engine.llama.engine import LlamaEngine
    from agentkv.engine.settings import EngineSettings

    with LlamaEngine.open("smollm2-135m", EngineSettings(window=4096)) as engine:
        yield engine


@pytest.fixture(scope="session")
def gemma() -> Iterator[Engine]:
    from agentkv.engine.llama.engine import LlamaEngine
    from agentkv.engine.settings import EngineSettings

    with LlamaEngine.open("gemma-3-270m", EngineSettings(window=2048)) as engine:
        yield engine


@pytest.fixture(scope="session")
def box() -> Sandbox:
    """A sandbox at whatever level this system has."""
    made = Sandbox()
    try:
        made.isolation()
    except SandboxUnavailable as error:
        pytest.skip(error.message)
    return made


@pytest.fixture(scope="session")
def strong(box: Sandbox) -> Sandbox:
    """A sandbox that reaches the level that a deposit needs."""
    reached = box.isolation()
    if reached.level.rank < Level.NAMESPACES.rank:
        pytest.skip(f"only {reached.level} here: {reached.not_reached}")
    return box
