"""A small pack, a store to import it into, a key store of one's own; nobody waits for the disk."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from agentkv.packs import Trust
from agentkv.store.catalog import BlockStore

from .packing import small_pack


@pytest.fixture(autouse=True)
def _of_ones_own(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("AGENTKV_TRUST", str(tmp_path / "trust.json"))
    monkeypatch.setattr("os.fsync", lambda fd: None)


@pytest.fixture
def pack(tmp_path: Path) -> Path:
    """Two blocks, a chain; two names, one text, a licence."""
    return small_pack(tmp_path)


@pytest.fixture
def store(tmp_path: Path) -> Iterator[BlockStore]:
    with BlockStore(tmp_path / "target") as opened:
        yield opened


@pytest.fixture
def trust(tmp_path: Path) -> Trust:
    found = Trust(tmp_path / "open-trust.json")
    found.set_policy("allow-unsigned")
    return found
