"""``AgentKVByteStore``: LangChain's suites, order, atomicity, crashes, damage; what ``agentkv check`` makes of it."""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
import sqlite3
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from langchain_agentkv import AgentKVByteStore
from langchain_agentkv.byte_store import after_all
from langchain_core.stores import BaseStore
from langchain_tests.integration_tests import BaseStoreAsyncTests, BaseStoreSyncTests

from agentkv import AgentKVWarning, BlockStore
from agentkv.errors import CorruptDatabase, StoreFormatError, StoreReadError, StoreUnusable, UsageError
from agentkv.store.findings import Kind


@pytest.fixture
def store(tmp_path: Path) -> AgentKVByteStore:
    return AgentKVByteStore(tmp_path / "store")


class TestStandard(BaseStoreSyncTests[bytes]):
    """LangChain's own suite."""

    @pytest.fixture
    def kv_store(self, tmp_path: Path) -> BaseStore[str, bytes]:
        return AgentKVByteStore(tmp_path / "store")

    @pytest.fixture
    def three_values(self) -> tuple[bytes, bytes, bytes]:
        return b"foo", b"bar", b"buzz"


class TestStandardAsync(BaseStoreAsyncTests[bytes]):
    """LangChain's own suite, its async half."""

    @pytest.fixture
    async def kv_store(self, tmp_path: Path) -> BaseStore[str, bytes]:
        return AgentKVByteStore(tmp_path / "store")

    @pytest.fixture
    def three_values(self) -> tuple[bytes, bytes, bytes]:
        return b"foo", b"bar", b"buzz"


def execute(store: AgentKVByteStore, statement: str, *values: Any) -> None:
    with sqlite3.connect(store.path) as connection:
        connection.execute(statement, values)
    connection.close()


# --- what is kept ---------------------------------------------------------------------------------


def test_it_outlives_the_object_and_lies_in_the_stores_folder(tmp_path: Path) -> None:
    with BlockStore(tmp_path / "store") as blocks:
        AgentKVByteStore(blocks).mset([("a", b""), ("b", bytes(range(256)))])
    assert AgentKVByteStore(tmp_path / "store").mget(["b", "a", "c"]) == [bytes(range(256)), b"", None]


texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=6)


@settings(max_examples=25, deadline=None)
@given(pairs=st.dictionaries(texts, st.binary(max_size=20), max_size=12), prefix=texts)
def test_keys_of_any_text_come_back_in_order(
    tmp_path_factory: pytest.TempPathFactory, pairs: dict[str, bytes], prefix: str
) -> None:
    store = AgentKVByteStore(tmp_path_factory.mktemp("bytes") / "store")
    store.mset(list(pairs.items()))
    assert list(store.yield_keys()) == sorted(pairs)
    assert list(store.yield_keys(prefix=prefix)) == sorted(key for key in pairs if key.startswith(prefix))
    assert dict(zip(pairs, store.mget(list(pairs)), strict=True)) == pairs


def test_more_keys_than_a_page_and_changes_meanwhile(store: AgentKVByteStore) -> None:
    names = [f"k/{i:05}" for i in range(2500)]
    store.mset([(name, b"x") for name in names] + [("l", b"y")])
    seen = []
    for key in store.yield_keys(prefix="k/"):
        seen.append(key)
        if len(seen) == 10:
            store.mdelete(names[1500:])
    assert seen == names[:1500]
    assert asyncio.run(_all(store)) == [*names[:1500], "l"]


async def _all(store: AgentKVByteStore) -> list[str]:
    return [key async for key in store.ayield_keys()]


def test_the_end_of_a_range_of_bytes() -> None:
    assert (after_all(b"ab"), after_all(b"a\xff"), after_all(b"\xff"), after_all(b"")) == (b"ac", b"b", None, None)


# --- all or nothing -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "pairs", [[("a", b"new"), ("b", "text")], [("a", b"new"), (3, b"x")], [("a", b"new"), ("\ud800", b"x")]]
)
def test_a_bad_pair_keeps_none(store: AgentKVByteStore, pairs: list[Any]) -> None:
    store.mset([("a", b"old")])
    with pytest.raises(UsageError):
        store.mset(pairs)
    assert store.mget(["a", "b"]) == [b"old", None]
    with pytest.raises(UsageError):
        store.mget([None])  # type: ignore[list-item]


CRASH = """
import os, sys
from langchain_agentkv import AgentKVByteStore
store = AgentKVByteStore(sys.argv[1])
n = 0
while True:
    n += 1
    store.mset([(f"{i}", n.to_bytes(4, "little") * 3000) for i in range(20)])
    print(n, flush=True)
"""


def test_a_kill_in_the_middle_leaves_a_whole_mset(tmp_path: Path) -> None:
    store = AgentKVByteStore(tmp_path / "store")
    for _ in range(3):
        with subprocess.Popen(
            [sys.executable, "-c", CRASH, str(tmp_path / "store")], stdout=subprocess.PIPE, text=True
        ) as worker:
            assert worker.stdout is not None
            last = [int(worker.stdout.readline()) for _ in range(3)][-1]
            os.kill(worker.pid, signal.SIGKILL)
        values = set(store.mget([str(i) for i in range(20)]))
        assert len(values) == 1
        value = values.pop()
        assert value is not None
        assert int.from_bytes(value[:4], "little") >= last
        with BlockStore(tmp_path / "store") as blocks:
            assert blocks.check().findings == ()


def test_two_writers_and_a_reader(store: AgentKVByteStore, tmp_path: Path) -> None:
    store.mset([("a", b"0" * 5000), ("b", b"0" * 5000)])
    code = (
        "import sys; from langchain_agentkv import AgentKVByteStore; s = AgentKVByteStore(sys.argv[1])\n"
        "for i in range(40): s.mset([('a', sys.argv[2].encode() * 5000), ('b', sys.argv[2].encode() * 5000)])"
    )
    command = [sys.executable, "-c", code, str(tmp_path / "store")]
    workers = [subprocess.Popen([*command, name]) for name in "12"]
    while any(worker.poll() is None for worker in workers):
        first, second = store.mget(["a", "b"])
        assert first == second
    assert [worker.returncode for worker in workers] == [0, 0]


# --- damage ---------------------------------------------------------------------------------------


def test_a_damaged_value_is_an_error_until_it_is_put_again(store: AgentKVByteStore) -> None:
    store.mset([("a", b"one"), ("b", b"two")])
    execute(store, "UPDATE entries SET value = ? WHERE key = ?", b"onf", b"a")
    with pytest.raises(CorruptDatabase, match="'a'"):
        store.mget(["a"])
    assert store.mget(["b"]) == [b"two"]
    store.mset([("a", b"again")])
    assert store.mget(["a"]) == [b"again"]


def test_a_damaged_file_is_told_by_check_and_moved_aside_by_repair(store: AgentKVByteStore, tmp_path: Path) -> None:
    store.mset([(f"{i}", b"x" * 900) for i in range(50)])
    data = bytearray(store.path.read_bytes())
    data[4096:12288] = bytes(8192)
    store.path.write_bytes(data)
    with pytest.raises(CorruptDatabase, match="--repair"):
        store.mget([str(i) for i in range(50)])
    with BlockStore(tmp_path / "store") as blocks:
        report = blocks.check()
        assert [(finding.kind, finding.path) for finding in report.findings] == [(Kind.CORRUPT, store.path)]
        repaired = blocks.repair(report)
        assert [source for source, _ in repaired.moved] == [store.path]
        assert blocks.check().findings == ()
    store.mset([("a", b"b")])
    assert list(store.yield_keys()) == ["a"]


def test_what_is_no_file_of_an_adapter_is_foreign(store: AgentKVByteStore, tmp_path: Path) -> None:
    store.mset([("a", b"b")])
    (store.path.parent / "folder").mkdir()
    with BlockStore(tmp_path / "store") as blocks:
        assert [finding.kind for finding in blocks.check().findings] == [Kind.FOREIGN]


def test_links_other_versions_and_removed_stores_are_refused(store: AgentKVByteStore, tmp_path: Path) -> None:
    store.mset([("a", b"b")])
    execute(store, "PRAGMA user_version = 7")
    with pytest.raises(StoreFormatError):
        store.mget(["a"])
    store.path.unlink()
    store.path.parent.rename(tmp_path / "elsewhere")
    store.path.parent.symlink_to(tmp_path / "elsewhere", target_is_directory=True)
    with pytest.raises(StoreReadError):
        store.mset([("a", b"b")])
    store.path.parent.unlink()
    shutil.rmtree(tmp_path / "store")
    with pytest.warns(AgentKVWarning, match="was removed while it was open; it was made again"):
        store.mset([("a", b"b")])
    assert store.mget(["a"]) == [b"b"]
    shutil.rmtree(tmp_path / "store")
    (tmp_path / "store").mkdir()
    (tmp_path / "store" / "letter.txt").write_text("x")
    with pytest.raises(StoreUnusable):
        store.mset([("a", b"b")])
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "letter.txt").write_text("x")
    with pytest.raises(StoreUnusable):
        AgentKVByteStore(tmp_path / "mine")


def test_reading_makes_no_file(store: AgentKVByteStore) -> None:
    assert store.mget(["a"]) == [None]
    assert list(store.yield_keys()) == []
    assert not store.path.exists()
