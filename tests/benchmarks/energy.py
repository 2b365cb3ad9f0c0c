"""Joules between two moments, from the processor's own counters where the system shows them (Linux powercap, RAPL).

The counters are of whole packages, so what else runs there is counted too. Where there are none, or they may not be
read, as in most virtual machines, the answer is None and the reader gets "not measured".
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

FOLDER = Path("/sys/class/powercap")
NOT_MEASURED = "not measured: no counter"


@dataclass
class Energy:
    """``joules``: None until the work is done, and where nothing counts."""

    joules: float | None = None


@contextmanager
def metered(folder: Path = FOLDER) -> Iterator[Energy]:
    """Fills ``joules`` when the work under it ends."""
    found, before = Energy(), _read(folder)
    yield found
    after = _read(folder)
    if before and before.keys() == after.keys():
        used = [(after[name][0] - before[name][0]) % after[name][1] for name in before]
        found.joules = round(sum(used) / 1e6, 3)


def written(joules: float | None) -> str:
    """As text."""
    return NOT_MEASURED if joules is None else f"{joules:,.1f} J"


def _read(folder: Path) -> dict[str, tuple[int, int]]:
    """Microjoules so far and where the count begins again, by package; empty where there is no counter."""
    found = {}
    try:
        for package in sorted(folder.glob("intel-rapl:*")):
            if package.name.count(":") == 1:  # the others are parts of it
                most = int((package / "max_energy_range_uj").read_text())
                found[package.name] = (int((package / "energy_uj").read_text()), most + 1)
    except (OSError, ValueError):
        return {}
    return found
