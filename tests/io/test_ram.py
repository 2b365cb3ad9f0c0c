"""Free memory: a number on this machine, and the least of what is known."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from agentkv.io import ram


def test_the_least_of_what_the_system_tells_counts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "meminfo").write_text("MemTotal: 100 kB\nMemAvailable:   50 kB\n")
    (tmp_path / "memory.max").write_text("40000\n")
    (tmp_path / "memory.current").write_text("10000\n")
    monkeypatch.setattr(ram, "_MEMINFO", tmp_path / "meminfo")
    monkeypatch.setattr(ram, "_GROUP", tmp_path)
    monkeypatch.setattr(ram, "_of_process", lambda: None)
    assert ram.available_memory() == 30_000
    (tmp_path / "memory.max").write_text("max\n")
    assert ram.available_memory() == 50 << 10
    for text in ("", "MemAvailable: much\n", "MemAvailable:"):
        (tmp_path / "meminfo").write_text(text)
        assert ram.available_memory() is None


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux tells")
def test_here_it_is_a_number() -> None:
    found = ram.available_memory()
    assert found is not None
    assert 1 << 20 < found < 1 << 50
