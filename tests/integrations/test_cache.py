"""``AgentKVCache``: LangChain's suites, recurrence of ``ChatAgentKV``, damage, hostile rows, bounds, processes."""

from __future__ import annotations

import json
import os
import pickle
import sqlite3
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from langchain_agentkv import AgentKVCache, ChatAgentKV
from langchain_agentkv.cache import _key
from langchain_agentkv.database import seal
from langchain_core.caches import BaseCache
from langchain_core.messages import AIMessage
from langchain_core.outputs import ChatGeneration, Generation
from langchain_tests.integration_tests import AsyncCacheTestSuite, SyncCacheTestSuite

from agentkv import AgentMemory, BlockStore, FakeEngine
from agentkv.errors import StoreReadError, UsageError


@pytest.fixture
def cache(tmp_path: Path) -> AgentKVCache:
    return AgentKVCache(tmp_path / "store")


class TestStandard(SyncCacheTestSuite):
    """LangChain's own suite."""

    @pytest.fixture
    def cache(self, tmp_path: Path) -> BaseCache:
        return AgentKVCache(tmp_path / "store")


class TestStandardAsync(AsyncCacheTestSuite):
    """LangChain's own suite, its async half."""

    @pytest.fixture
    async def cache(self, tmp_path: Path) -> BaseCache:
        return AgentKVCache(tmp_path / "store")


def rows(cache: AgentKVCache) -> list[Any]:
    with sqlite3.connect(cache.path) as connection:
        found = connection.execute("SELECT key, value, seal FROM answers ORDER BY used").fetchall()
    connection.close()
    return found


def execute(cache: AgentKVCache, statement: str, *values: Any) -> None:
    with sqlite3.connect(cache.path) as connection:
        connection.execute(statement, values)
    connection.close()


# --- exact recurrence -----------------------------------------------------------------------------


def test_a_call_made_before_decodes_nothing_and_gives_the_same_message(tmp_path: Path) -> None:
    engine = FakeEngine(replies=lambda prompt: "7001" if "7001" in prompt else "none")
    memory = AgentMemory(tmp_path / "store", engine)
    memory.deposit_text("north", "The code of the vault is 7001.", "The north vault.")
    first = ChatAgentKV(memory=memory, cache=AgentKVCache(memory.store), skill="north").invoke("The code?")
    decoded = engine.counters.decoded
    again = ChatAgentKV(memory=memory, cache=AgentKVCache(memory.store), skill="north").invoke("The code?")
    assert engine.counters.decoded == decoded
    assert (again.content, again.response_metadata) == (first.content, first.response_metadata) != ("", {})


@pytest.mark.parametrize("change", ["settings", "manual", "prefix", "question"])
def test_another_call_is_not_answered_by_it(tmp_path: Path, change: str) -> None:
    engine = FakeEngine(replies=lambda prompt: prompt[-20:])
    memory = AgentMemory(tmp_path / "store", engine)
    memory.deposit_text("north", "The code of the vault is 7001.", "The north vault.")
    chat = ChatAgentKV(memory=memory, cache=AgentKVCache(memory.store), skill="north")
    chat.invoke("The code?")
    if change == "manual":
        memory.deposit_text("north", "The code of the vault is 8002.", "The north vault.")
    other = AgentMemory(memory.store, engine, prefix="Be kind.") if change == "prefix" else memory
    chat = ChatAgentKV(memory=other, cache=AgentKVCache(memory.store), skill="north")
    decoded = engine.counters.decoded
    settings: dict[str, Any] = {"seed": 1} if change == "settings" else {}
    chat.invoke("Which code?" if change == "question" else "The code?", **settings)
    assert engine.counters.decoded > decoded


def test_the_key_tells_where_the_prompt_ends(cache: AgentKVCache) -> None:
    cache.update("ab", "c", [Generation(text="1")])
    assert cache.lookup("a", "bc") is None
    cache.update("\ud800", "", [Generation(text="2")])
    assert cache.lookup("\ud800", "") == [Generation(text="2")]


def test_chat_generations_come_back_whole(cache: AgentKVCache) -> None:
    message = AIMessage(
        content=[{"type": "text", "text": "hi"}],
        tool_calls=[{"name": "add", "args": {"lc": 1, "n": 1.5}, "id": "x", "type": "tool_call"}],
        response_metadata={"agentkv": {"ms": 0.1, "none": None}, "lc": 1},
    )
    answer = [ChatGeneration(message=message, generation_info={"reason": "stop"})]
    cache.update("p", "l", answer)
    assert cache.lookup("p", "l") == answer


def test_what_has_no_json_form_is_not_kept(cache: AgentKVCache) -> None:
    cache.update("p", "l", [Generation(text="x", generation_info={"at": {1, 2}})])
    assert cache.lookup("p", "l") is None
    assert cache.lost == 1


# --- damage and hostile rows ----------------------------------------------------------------------


@pytest.mark.parametrize("column", ["value", "seal"])
def test_a_damaged_row_is_a_miss_and_goes(cache: AgentKVCache, column: str) -> None:
    cache.update("p", "l", [Generation(text="x")])
    _, value, sealed = rows(cache)[0]
    bad = bytearray(value if column == "value" else sealed)
    bad[len(bad) // 2] ^= 1
    execute(cache, f"UPDATE answers SET {column} = ?", bytes(bad))
    assert cache.lookup("p", "l") is None
    assert rows(cache) == []
    assert "corrupt" in cache.reason


def test_a_row_moved_to_another_key_is_a_miss(cache: AgentKVCache) -> None:
    cache.update("p", "l", [Generation(text="x")])
    execute(cache, "UPDATE answers SET key = ?", _key("q", "l"))
    assert cache.lookup("q", "l") is None


class Pwned:
    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> tuple[Any, ...]:
        return os.mkdir, (str(self.path),)


def hostile(tmp_path: Path) -> list[bytes]:
    def constructor(*path: str, **kwargs: Any) -> bytes:
        return json.dumps([{"lc": 1, "type": "constructor", "id": list(path), "kwargs": kwargs}]).encode()

    return [
        pickle.dumps(Pwned(tmp_path / "pwned")),
        constructor(
            "langchain_core", "prompts", "prompt", "PromptTemplate", template="{{1}}", template_format="jinja2"
        ),
        constructor("subprocess", "Popen", args=["mkdir", str(tmp_path / "pwned")]),
        constructor("langchain_core", "messages", "human", "HumanMessage", content="x"),
        json.dumps([{"lc": 1, "type": "secret", "id": ["PATH"]}]).encode(),
        b"[" * 5000,
        b'{"a": 1}',
        b"\xff\xfe",
    ]


@pytest.mark.parametrize("which", range(8))
def test_a_row_that_somebody_else_made_is_a_miss_and_runs_nothing(
    cache: AgentKVCache, tmp_path: Path, which: int
) -> None:
    cache.update("p", "l", [Generation(text="x")])
    value = hostile(tmp_path)[which]
    execute(cache, "UPDATE answers SET value = ?, seal = ?", value, seal(_key("p", "l"), value))
    assert cache.lookup("p", "l") is None
    assert not (tmp_path / "pwned").exists()


@pytest.mark.parametrize("at", [0, 40, 4096, 8200])
def test_a_damaged_file_is_a_miss_and_is_begun_anew(cache: AgentKVCache, at: int) -> None:
    for i in range(40):
        cache.update(str(i), "l", [Generation(text="x" * 500)])
    data = bytearray(cache.path.read_bytes())
    data[at : at + 64] = b"\xa5" * 64
    cache.path.write_bytes(data)
    for i in range(40):
        found = cache.lookup(str(i), "l")
        assert found is None or found == [Generation(text="x" * 500)]
    cache.clear()
    cache.update("p", "l", [Generation(text="y")])
    assert cache.lookup("p", "l") == [Generation(text="y")]


def test_a_link_in_its_place_is_not_followed(cache: AgentKVCache, tmp_path: Path) -> None:
    target = tmp_path / "other"
    target.write_bytes(b"")
    cache.path.parent.mkdir()
    cache.path.symlink_to(target)
    cache.update("p", "l", [Generation(text="x")])
    assert cache.lookup("p", "l") is None
    assert target.read_bytes() == b""
    assert "not a regular file" in cache.reason
    with pytest.raises(StoreReadError):
        cache.clear()


# --- bounds ---------------------------------------------------------------------------------------


def test_the_least_recently_used_go_first_and_the_file_shrinks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    now = [1000.0]
    monkeypatch.setattr("langchain_agentkv.cache.time.time", lambda: now[0])
    cache = AgentKVCache(tmp_path / "store", max_bytes=100_000)
    for i in range(200):
        now[0] += 100
        cache.update(str(i), "l", [Generation(text="x" * 1000)])
        assert cache.lookup("0", "l") is not None
    kept = [i for i in range(200) if cache.lookup(str(i), "l") is not None]
    assert kept[1:] == list(range(kept[1], 200))
    assert 50 < len(kept) < 90
    assert cache.path.stat().st_size < 2 * 100_000


def test_an_answer_over_the_bound_is_not_kept_and_evicts_nothing(tmp_path: Path) -> None:
    cache = AgentKVCache(tmp_path / "store", max_bytes=4000)
    cache.update("small", "l", [Generation(text="x")])
    cache.update("large", "l", [Generation(text="x" * 5000)])
    assert cache.lookup("large", "l") is None
    assert cache.lookup("small", "l") == [Generation(text="x")]
    with pytest.raises(UsageError):
        AgentKVCache(tmp_path / "store", max_bytes=0)


def test_what_cannot_be_written_is_lost_not_raised(cache: AgentKVCache) -> None:
    cache.path.parent.mkdir()
    cache.path.mkdir()
    cache.update("p", "l", [Generation(text="x")])
    assert cache.lookup("p", "l") is None
    assert cache.lost == 2


WORKER = """
import sys
from langchain_agentkv import AgentKVCache
from langchain_core.outputs import Generation
cache = AgentKVCache(sys.argv[1])
for i in range(30):
    cache.update(f"{sys.argv[2]}-{i}", "l", [Generation(text=f"{sys.argv[2]}-{i}")])
    found = cache.lookup(f"shared-{i}", "l")
    assert found in (None, [Generation(text="same")])
    cache.update(f"shared-{i}", "l", [Generation(text="same")])
assert cache.lost == 0, cache.reason
"""


def test_processes_share_it(tmp_path: Path) -> None:
    BlockStore(tmp_path / "store").close()
    workers = [subprocess.Popen([sys.executable, "-c", WORKER, str(tmp_path / "store"), str(n)]) for n in range(3)]
    assert [worker.wait(120) for worker in workers] == [0, 0, 0]
    cache = AgentKVCache(tmp_path / "store")
    assert all(cache.lookup(f"{n}-{i}", "l") == [Generation(text=f"{n}-{i}")] for n in range(3) for i in range(30))


def test_a_store_with_a_cache_is_whole(cache: AgentKVCache, tmp_path: Path) -> None:
    cache.update("p", "l", [Generation(text="x")])
    with BlockStore(tmp_path / "store") as store:
        assert store.check().findings == ()
