"""Joules: packages only, a counter that wraps, and no counter."""

from __future__ import annotations

from pathlib import Path

from tests.benchmarks.energy import metered, written


def counter(folder: Path, name: str, value: int) -> None:
    (folder / name).mkdir(parents=True, exist_ok=True)
    (folder / name / "energy_uj").write_text(f"{value}\n")
    (folder / name / "max_energy_range_uj").write_text("9999999\n")


def test_packages_are_added_up_and_their_parts_are_not(tmp_path: Path) -> None:
    for name in ("intel-rapl:0", "intel-rapl:0:0", "intel-rapl:1"):
        counter(tmp_path, name, 1_000_000)
    with metered(tmp_path) as energy:
        counter(tmp_path, "intel-rapl:0", 3_500_000)
        counter(tmp_path, "intel-rapl:0:0", 2_000_000)
        counter(tmp_path, "intel-rapl:1", 500_000)  # begun again: 9 + 0.5 of ten
    assert energy.joules == 2.5 + 9.5
    assert written(energy.joules) == "12.0 J"


def test_where_nothing_counts_nothing_is_written(tmp_path: Path) -> None:
    for folder in (tmp_path, tmp_path / "none"):
        with metered(folder) as energy:
            pass
        assert energy.joules is None
    counter(tmp_path, "intel-rapl:0", 1)
    (tmp_path / "intel-rapl:0" / "energy_uj").write_text("no")
    with metered(tmp_path) as energy:
        pass
    assert written(energy.joules) == "not measured: no counter"
