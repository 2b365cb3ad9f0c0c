"""The catalogue benchmark on few blocks: real processes, right answers, and wrong ones noticed."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import orjson
import pytest

from agentkv import BlockStore
from agentkv.bench import catalogue, manyblocks
from agentkv.bench.catalogue import Catalogue, Count, growth
from agentkv.cli.bench import show_tables
from agentkv.errors import GuaranteeViolated
from tests.store.blocks import contents


@pytest.fixture
def fsyncs(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Notes every fsync; restores it after ``fill`` has put its own in place."""
    calls: list[int] = []
    real = os.fsync

    def noted(fd: int) -> None:
        calls.append(fd)
        real(fd)

    monkeypatch.setattr(os, "fsync", noted)
    return calls


@pytest.fixture
def root(tmp_path: Path, fsyncs: list[int]) -> str:
    """A store of 12 blocks."""
    catalogue.fill({"root": str(tmp_path / "store"), "start": 0, "stop": 12, "synced": True})
    return str(tmp_path / "store")


def asked(root: str, question: str, blocks: int = 12) -> dict[str, Any]:
    return catalogue.ask({"root": root, "blocks": blocks, "question": question, "seed": 3})


def test_the_whole_in_new_processes(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    result = Catalogue(blocks=(30, 10), processes=1, synced=5, folder=tmp_path).run()
    show_tables(Catalogue.tables, result)
    assert "candidates" in capsys.readouterr().out
    assert list(Catalogue.notes(result))[-1].startswith("created 20 blocks without fsync")
    Catalogue.check(result)
    assert [row["blocks"] for row in result["counts"]] == [10, 30]
    assert [(part["blocks"], part["synced"]) for part in result["created"]] == [(5, True), (5, False), (20, False)]
    for row in result["counts"]:
        assert set(row["questions"]) == {*catalogue.QUESTIONS, *catalogue.MORE}
        assert all(one["first_ms"]["median"] > 0 for one in row["questions"].values())
    assert set(result["growth"]) == {*catalogue.QUESTIONS, *catalogue.MORE}
    assert [(one["blocks"], one["files"] > 3 * one["blocks"]) for one in result["disk"]] == [(10, True), (30, True)]
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("question", [*catalogue.QUESTIONS, *catalogue.MORE])
def test_right_answers(root: str, question: str) -> None:
    assert asked(root, question)["right"]


@pytest.mark.parametrize("question", ["deposit", "evict"])
def test_a_question_that_changes_the_store_undoes_it(root: str, question: str) -> None:
    with BlockStore(root) as store:
        before = store.names(), list(store.block_ids()), store.files.referenced()
    asked(root, question)
    with BlockStore(root) as store:
        assert (store.names(), list(store.block_ids()), store.files.referenced()) == before


def test_files_that_are_written_for_a_large_store_are_those_of_deposits(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(manyblocks, "DESCRIBED", 2)
    made = {}
    for how in (manyblocks.deposit, manyblocks.write):
        with BlockStore(tmp_path / how.__name__) as store:
            prefix, data = manyblocks.block(None, -1)
            store.put(prefix, data)
            for number in (2, 3):
                how(store, prefix, number)
            made[how.__name__] = contents(store.root)
            assert len(store.names()) == 2
            assert not store.check().findings
    assert made["deposit"] == made["write"]


def test_a_result_of_version_1_scores_as_it_did() -> None:
    known = orjson.loads((Path(__file__).parents[1] / "data" / "results" / "catalogue.json").read_bytes())
    found = Catalogue.figures({record["key"]: record["raw"] for record in known["raw"]})
    assert known["version"] == 1
    assert found == {"counts": known["counts"], "growth": known["growth"]}


@pytest.mark.parametrize("question", ["names", "route", "list", "page"])
def test_a_block_that_is_not_there_is_noticed(root: str, question: str) -> None:
    assert not asked(root, question, blocks=13)["right"]


def test_a_name_that_points_elsewhere_is_noticed(root: str) -> None:
    with BlockStore(root) as store:
        first, other = (n for n in store.names() if n.name in ("skill-000000", "skill-000007"))
        picked = next(n for n in (first, other))
        for named in store.names():
            store.set_name(named.model_copy(update={"block_id": picked.block_id}))
    assert not asked(root, "name")["right"]


def test_unsynced_creation_makes_the_same_files_without_fsync(tmp_path: Path, root: str, fsyncs: list[int]) -> None:
    assert len(fsyncs) > 12
    fsyncs.clear()
    catalogue.fill({"root": str(tmp_path / "other"), "start": 0, "stop": 12, "synced": False})
    assert fsyncs == []

    def files(folder: Path) -> dict[str, bytes]:
        kinds = ("segments", "manifests", "names")
        return {str(p.relative_to(folder)): p.read_bytes() for kind in kinds for p in (folder / kind).rglob("*.json")}

    assert files(tmp_path / "other") == files(Path(root))
    assert len(files(Path(root))) == 25


def test_growth_is_the_exponent() -> None:
    def row(blocks: int, ms: float) -> Count:
        once, again = ({"median": value, "min": value, "max": value} for value in (ms, 1.0))
        times = {"open_ms": again, "first_ms": once, "again_ms": again, "right": True}
        return Count.model_validate({"blocks": blocks, "questions": {"names": times}})

    found = growth([row(1000, 3.0), row(5000, 7.0), row(10_000, 300.0)])
    assert found["names"] == {"first_ms": pytest.approx(2.0), "again_ms": 0.0}
    assert growth([row(1000, 3.0)]) == {}


def test_a_wrong_answer_is_a_violation() -> None:
    result = {"counts": [{"blocks": 5, "questions": {"names": {"right": True}, "route": {"right": False}}}]}
    with pytest.raises(GuaranteeViolated, match="route"):
        Catalogue.check(result)
