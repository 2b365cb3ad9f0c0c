"""One sandbox a session; what it reaches here decides which tests of strong isolation can be run."""

from __future__ import annotations

import pytest

from agentkv.errors import SandboxUnavailable
from agentkv.sandbox.base import Level
from agentkv.sandbox.sandbox import Sandbox


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
