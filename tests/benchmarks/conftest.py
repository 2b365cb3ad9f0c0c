"""The command line of the benchmarks, on the fake engine."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from tests.benchmarks.commands import app
from tests.cli.conftest import Run


@pytest.fixture
def bench(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Run:
    """Run ``python -m tests.benchmarks`` in this process, with a store of its own and the fake model."""
    monkeypatch.setenv("AGENTKV_STORE", str(tmp_path / "store"))
    monkeypatch.setenv("AGENTKV_MODEL", "fake")

    def invoke(*arguments: object) -> Any:
        return CliRunner().invoke(app, [str(argument) for argument in arguments], catch_exceptions=False)

    return invoke
