"""Deposits that are really killed, on the fake engine; and that a store with another byte is found."""

from __future__ import annotations

import copy
import sqlite3
from pathlib import Path
from typing import Any

import pytest

from agentkv import AgentMemory, FakeEngine
from agentkv.bench import measured
from agentkv.documents import Corpus
from agentkv.errors import GuaranteeViolated, UsageError
from tests.benchmarks.documents import interrupt
from tests.benchmarks.documents.interrupt import Interrupt

from .conftest import paragraphs

TEXTS = [f"# File {i}\n\n" + "\n\n".join(paragraphs(100 * i, 9)) for i in range(4)]


def test_killed_deposits_end_in_the_undisturbed_store(tmp_path: Path) -> None:
    result = Interrupt(model="fake", texts=tuple(TEXTS[:3]), kills=2, folder=tmp_path).run()
    assert (result["kills"], result["kills_wanted"]) == (2, 2)
    assert result["windows"] > 12
    assert result["files_compared"] > 2 * result["windows"]
    assert result["identical"]["k"] == result["identical"]["n"] >= 1
    assert result["damaged_after_a_kill"] == 0
    assert measured.rescore(result) == []
    Interrupt.check(result)
    assert list(tmp_path.iterdir()) == []


@pytest.fixture
def store(tmp_path: Path) -> Path:
    (tmp_path / "a.md").write_text(TEXTS[0])
    with AgentMemory(tmp_path / "store", FakeEngine(window=1024)) as memory:
        Corpus(memory, chunk_tokens=256, overlap=0).add([tmp_path / "a.md"])
    return tmp_path / "store"


def test_every_file_counts_but_for_uses_and_logs(store: Path) -> None:
    files = interrupt._closed(store)["files"]
    kinds = {path.split("/")[0] for path in files}
    assert {"segments", "manifests", "documents", "selftests", "agentkv-store.json"} <= kinds
    assert not {"turns", "agentkv-uses.sqlite"} & kinds
    assert any(path.startswith("contents of documents/index/") for path in files)
    segment = next(path for path in store.rglob("*.seg"))
    segment.write_bytes(segment.read_bytes() + b"x")
    changed = interrupt._closed(store)
    assert [path for path in files if files[path] != changed["files"].get(path)] == [
        segment.relative_to(store).as_posix()
    ]
    assert changed["findings"]


def test_the_index_counts_by_what_it_says(store: Path) -> None:
    (path,) = (store / "documents" / "index").glob("*.sqlite")
    before = interrupt._index_digest(path)
    with sqlite3.connect(path) as connection:
        connection.execute("VACUUM")
    connection.close()
    assert interrupt._index_digest(path) == before
    with sqlite3.connect(path) as connection:
        connection.execute("UPDATE words SET body = 'other' WHERE rowid = 1")
    connection.close()
    assert interrupt._index_digest(path) != before


def test_what_does_not_hold_is_reported() -> None:
    times = {"median": 1.0, "min": 1.0, "max": 1.0}
    result: dict[str, Any] = {
        **dict.fromkeys(("windows", "seconds", "files_compared", "kills_with_left_overs"), 1),
        **dict.fromkeys(("delay_s", "blocks_at_a_kill", "runs_a_store"), times),
        "kills": 2,
        "kills_wanted": 2,
        "damaged_after_a_kill": 0,
        "identical": {"k": 1, "n": 1},
        "other": {},
    }
    Interrupt.check(result)
    for change, message in (
        ({"damaged_after_a_kill": 1}, "damage after 1"),
        ({"kills": 1}, "only 1 of 2 kills"),
        ({"identical": {"k": 0, "n": 1}}, "0 of 1 stores"),
        ({"identical": {"k": 0, "n": 0}}, "0 of 0 stores"),
    ):
        with pytest.raises(GuaranteeViolated, match=message):
            Interrupt.check({**copy.deepcopy(result), **change})


def test_nothing_to_deposit() -> None:
    with pytest.raises(UsageError):
        Interrupt(model="fake", texts=()).run()
