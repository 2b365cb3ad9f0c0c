"""No test here can cut the power, so none waits for the disk: fsync is noted and failed, not carried out."""

from __future__ import annotations

import pytest


@pytest.fixture(autouse=True)
def _no_waiting_for_the_disk(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.fsync", lambda fd: None)
