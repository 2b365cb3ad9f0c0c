"""Pictures of results: one a result, and a typed error where they cannot be drawn."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from agentkv import AgentKVWarning
from agentkv.bench.results import Result, read_all
from agentkv.errors import InvalidResult
from tests.benchmarks import plots
from tests.benchmarks.errors import PlotsUnavailable
from tests.benchmarks.readme import FOLDER
from tests.conftest import REPOSITORY

pytest.importorskip("matplotlib")
RESULTS = read_all(REPOSITORY / FOLDER)


def of(kind: str) -> list[Result]:
    return [one for one in RESULTS if one.benchmark == kind]


@pytest.mark.parametrize(
    ("kind", "name", "label"),
    [
        ("subsidy", "restore", "restored from RAM"),
        ("restore", "files", "planes 1, cold first"),
        ("size", "bytes", "order-0 bound"),
        ("route", "accuracy", "among the five best"),
        ("route evaluate", "evaluated", "among the five best"),
        ("depth", "windows", "2,514 windows, cold"),
    ],
)
def test_a_picture_a_result(kind: str, name: str, label: str, tmp_path: Path) -> None:
    files = plots.plot(of(kind), tmp_path / "pictures")
    assert len(files) == len(set(files)) == len(of(kind)) > 0
    for path, one in zip(files, of(kind), strict=True):
        assert path.name.startswith(f"{name}-{one.model}-")
        text = path.read_text(encoding="utf-8")
        assert f"<!-- {label} -->" in text
        assert f"<!-- {one.model}, " in text
    again = plots.plot(of(kind), tmp_path / "again")
    assert [path.name for path in again] == [path.name for path in files]


def test_the_depth_of_a_conversation(tmp_path: Path) -> None:
    known = {"evaluated": 5, "generated": 1, "generate_ms": 0.0, "keep_ms": 0.0, "total_ms": 40.0, "answer": ""}
    rows = [{"prompt": 500 * turn, "first_ms": 40.0 * turn, **known} for turn in (1, 2, 3)]
    arms = {
        "agentkv": {"label": "ours", "rows": rows, "all_turns": True},
        "reread": {"label": "theirs", "rows": rows[::2], "all_turns": False},
        "absent": {"label": "none", "skipped": "not installed"},
    }
    machine = {"processor": "CPU", "cores": 2}
    head = {"format": 1, "benchmark": "agent", "run": "12345678", "model": "m", "machine": machine}
    (path,) = plots.plot([Result({**head, "arms": arms, "against": {}}, "a.json")], tmp_path, "png")
    assert path == tmp_path / "depth-m-12345678.png"
    assert path.read_bytes().startswith(b"\x89PNG")


def test_what_has_no_picture(tmp_path: Path) -> None:
    with pytest.raises(
        InvalidResult, match=r"\(catalogue\): no picture of such a result; pictures are there of subsidy"
    ):
        plots.plot(of("catalogue"), tmp_path)
    with pytest.warns(AgentKVWarning, match=r"no picture of .*catalogue.json \(catalogue\); pictures are there of"):
        (path,) = plots.plot([*of("catalogue"), of("size")[0]], tmp_path)
    assert path.name.startswith("bytes-")
    broken = Result({**of("size")[0].data, "codecs": [{"n": 5}]}, "s.json")
    with pytest.raises(InvalidResult, match=r"s\.json: a figure of the picture bytes is missing"):
        plots.plot([broken], tmp_path)


def test_without_matplotlib(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    with pytest.raises(PlotsUnavailable, match=r"agentkv-sdk\[plots\]"):
        plots.plot(of("size"), tmp_path)
