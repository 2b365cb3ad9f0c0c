"""``agentkv bench``: ledgers and files of results, scores, ratios."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import orjson
import pytest

from agentkv.evidence import Ledger
from tests.conftest import REPOSITORY

from .conftest import Run, error_of, record

FOLDER = "tests/data/results"
CATALOGUE = ("bench", "catalogue", "--blocks", "8", "--processes", "1")


@pytest.fixture
def measured(run: Run, tmp_path: Path) -> Path:
    """A result of the catalogue benchmark, recorded in a ledger too."""
    done = run(*CATALOGUE, "--out", tmp_path / "c.json", "--ledger", tmp_path / "ledger", "--json")
    assert done.exit_code == 0, done.stderr
    shown = record(done)
    assert "raw" not in shown
    saved = orjson.loads((tmp_path / "c.json").read_bytes())
    assert [item["key"] for item in saved.pop("raw")] == ["8", "8/disk"]
    assert saved == shown
    return tmp_path / "c.json"


def test_a_benchmark_is_recorded_and_scored_again(run: Run, measured: Path, tmp_path: Path) -> None:
    ledger = Ledger(tmp_path / "ledger")
    known = ledger.find("last")
    assert (known.kind, known.status, known.body.settings) == ("catalogue", "finished", {"blocks": [8], "processes": 1})
    assert [verdict.passed for verdict in known.verdicts] == [True]
    header = ledger.items(known)[0].raw
    assert header["machine"]["cores"] >= 1
    found = record(run("evidence", "score", "last", "--ledger", ledger.folder, "--json"))
    assert found["equal"] is True
    assert found["run"] == orjson.loads(measured.read_bytes())["ledger_run"]
    assert set(found["computed"]) == {"counts", "disk", "growth"}


def test_a_benchmark_that_breaks_off_is_on_record(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from agentkv.bench.catalogue import Catalogue

    def broken(*_: Any, **__: Any) -> Any:
        raise OSError("the disk is gone")

    monkeypatch.setattr(Catalogue, "run", broken)
    with pytest.raises(OSError, match="the disk is gone"):
        run(*CATALOGUE, "--ledger", tmp_path / "ledger")
    (known,) = Ledger(tmp_path / "ledger").runs()
    assert (known.kind, known.status) == ("catalogue", "unfinished")


def test_score_tells_a_bent_file(run: Run, measured: Path) -> None:
    assert "every figure is equal" in run("bench", "score", measured).stdout
    text = measured.read_text()
    measured.write_text(text.replace('"blocks": 8,', '"blocks": 9,', 1))
    refused = run("bench", "score", measured, "--json")
    assert error_of(refused)["exit_code"] == 103
    assert record(refused)["results"][0]["differences"] == ["counts[0].blocks: reported 9, computed 8"]
    measured.write_text("[]")
    assert error_of(run("bench", "score", measured, "--json"))["exit_code"] == 62


def test_a_ratio_is_taken_within_one_run(run: Run, tmp_path: Path) -> None:
    gemma, smol = (REPOSITORY / FOLDER / f"subsidy-{name}.json" for name in ("gemma-3-270m", "smollm2-135m"))
    cold, warm = f"{gemma}:lengths.0.cold_prefill_ms", f"{gemma}:lengths.0.restore_ram_ms.median"
    found = record(run("bench", "ratio", cold, warm, "--json"))
    assert found["ratio"] == found["figure"] / found["over"] > 10
    refused = error_of(run("bench", "ratio", cold, f"{smol}:lengths.0.restore_ram_ms.median", "--json"))
    assert (refused["type"], refused["exit_code"]) == ("DifferentRuns", 63)
    assert error_of(run("bench", "ratio", cold, f"{gemma}:nothing", "--json"))["exit_code"] == 62
    assert error_of(run("bench", "ratio", cold, "nothing", "--json"))["exit_code"] == 2
    (tmp_path / "zero.json").write_text('{"format": 1, "benchmark": "x", "run": "1", "a": 1, "b": 0}')
    zero = run("bench", "ratio", f"{tmp_path / 'zero.json'}:a", f"{tmp_path / 'zero.json'}:b", "--json")
    assert error_of(zero)["exit_code"] == 62


def test_the_group_itself(run: Run) -> None:
    shown = run("bench")
    assert shown.exit_code == 2
    assert "exactness" in shown.output
