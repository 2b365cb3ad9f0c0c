"""The form of results: written, read, computed again; figures of different runs are kept apart."""

from __future__ import annotations

import contextlib
import copy
from pathlib import Path
from typing import Any

import orjson
import pytest

from agentkv.bench import measured, results
from agentkv.bench.results import Result, read, read_all, require_one_run
from agentkv.errors import DifferentRuns, InvalidResult
from agentkv.evidence import Item
from agentkv.evidence.scoring import scorer
from tests.conftest import REPOSITORY

COMMITTED = REPOSITORY / "tests" / "data" / "results"


@measured.measured("a test of results")
def figures(raw: measured.Raw) -> dict[str, Any]:
    """Three times the sum, and the names."""
    return {"triple": 3 * sum(raw.values()), "names": list(raw)}


@scorer("a test of summaries", 1)
def summary(items: Any) -> dict[str, Any]:
    """How many were expected."""
    return {"right": sum(item.raw == item.expected for item in items)}


def made(**raw: float) -> dict[str, Any]:
    return measured.result(results.origin("a test of results", "m", "ab" * 32, b"inputs", seed=7), raw)


def test_the_header_says_where_a_result_comes_from() -> None:
    header = results.origin("x", "m", "cd" * 32, b"inputs", started="2026-01-02T03:04:05Z", seed=7)
    assert header["settings"] == {"seed": 7}
    assert header["started"] == "2026-01-02T03:04:05Z"
    assert header["machine"]["memory_bytes"] > 1 << 28
    assert header["machine"]["cores"] >= 1
    assert len(header["versions"]["llama_cpp_sha256"]) == 64
    assert header["run"] != results.origin("x", "m", "", b"")["run"]
    assert set(header) | {"finished"} == set(measured.HEADER)


def test_a_result_survives_its_file_and_is_computed_again(tmp_path: Path) -> None:
    whole = made(a=1.5, b=2.25)
    results.save(whole, tmp_path / "deep" / "r.json")
    found = read(tmp_path / "deep" / "r.json")
    assert found.data.pop("finished") >= found.data["started"]
    assert found.data == whole
    assert (found.data["triple"], found.data["names"]) == (11.25, ["a", "b"])
    assert measured.rescore(found.data) == []
    lines = (tmp_path / "deep" / "r.json").read_text().splitlines()
    assert '    {"key":"a","raw":1.5},' in lines


def test_a_bent_figure_and_a_bent_record_are_found() -> None:
    whole = made(a=1.0)
    assert measured.rescore({**whole, "triple": 4.0}) == ["triple: reported 4.0, computed 3.0"]
    assert measured.rescore({**whole, "raw": [{"key": "a", "raw": 2.0}]}) == ["triple: reported 3.0, computed 6.0"]
    without = {key: value for key, value in whole.items() if key != "triple"}
    assert measured.rescore(without) == ["triple: reported None, computed 3.0"]


def test_a_summary_is_compared_with_the_summary() -> None:
    header = results.origin("a test of summaries", "m", "", b"")
    items = [Item("1", "yes", "yes", {"generated": 1}), Item("2", "no", "yes", figures={"ms": 2})]
    whole = measured.result(header, items, under="summary")
    assert whole["summary"] == {"right": 1}
    assert whole["raw"][0] == {"key": "1", "raw": "yes", "expected": "yes", "tokens": {"generated": 1}}
    assert measured.rescore(whole) == []
    assert measured.rescore({**whole, "summary": {"right": 2}}) == ["right: reported 2, computed 1"]


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"raw": None}, "raw records are malformed"),
        ({"raw": [{"raw": 1}]}, "raw records are malformed"),
        ({"raw": [{"key": "a", "raw": "text"}]}, "not those of it"),
        ({"version": 9}, "no scorer of its version 9"),
    ],
)
def test_what_cannot_be_computed_again_is_an_error(change: dict[str, Any], why: str) -> None:
    with pytest.raises(InvalidResult, match=why):
        measured.rescore({**made(a=1.0), **change})
    with pytest.raises(InvalidResult, match="has no raw records"):
        measured.rescore({key: value for key, value in made(a=1.0).items() if key != "raw"})


@pytest.mark.parametrize("data", [b"", b"[1]", b'{"format": 2, "benchmark": "x", "run": "1"}', b'{"format": 1}'])
def test_a_file_that_is_no_result(tmp_path: Path, data: bytes) -> None:
    (tmp_path / "r.json").write_bytes(data)
    with pytest.raises(InvalidResult):
        read(tmp_path / "r.json")
    with pytest.raises(InvalidResult, match="no such file"):
        read(tmp_path / "absent.json")


def result(run: str, **figures: Any) -> Result:
    return Result({"format": 1, "benchmark": "x", "run": run, **figures}, f"{run}.json")


def test_ratios_are_taken_within_one_run() -> None:
    one, other = result("1", rows=[{"cold": 9.0, "warm": 3}]), result("2", warm=3.0)
    assert one.figure("rows.0.cold").over(one.figure("rows.0.warm")) == 3.0
    with pytest.raises(DifferentRuns, match=r"1\.json: rows\.0\.cold and 2\.json: warm are of different runs"):
        one.figure("rows.0.cold").over(other.figure("warm"))
    require_one_run([one.figure("rows.0.cold"), one.figure("rows.0.warm")])
    with pytest.raises(DifferentRuns):
        require_one_run([one.figure("rows.0.cold"), other.figure("warm")])


@pytest.mark.parametrize("path", ["rows.1.cold", "rows.x", "rows.0.warm", "rows.0.flag", "rows"])
def test_a_path_that_leads_to_no_number(path: str) -> None:
    with pytest.raises(InvalidResult):
        result("1", rows=[{"cold": 9.0, "flag": True}]).figure(path)


def test_every_committed_result_is_computed_again_and_equal() -> None:
    for one in read_all(COMMITTED):
        assert measured.rescore(one.data) == [], one.where
        bent = copy.deepcopy(one.data)
        bent["raw"] = bent["raw"][1:]
        with contextlib.suppress(InvalidResult):  # some figures need every record
            assert measured.rescore(bent) != [], f"{one.where}: a record that is gone changes nothing"


def test_no_committed_result_holds_a_path_of_a_machine() -> None:
    for path in COMMITTED.glob("*.json"):
        text = path.read_text(encoding="utf-8")
        assert "/home/" not in text
        assert "/root/" not in text
        assert orjson.loads(text)["machine"]["cores"] >= 1
