"""``AgentKVStore`` against LangGraph's own stores, operation by operation; its search, TTL, damage and durability."""

from __future__ import annotations

import asyncio
import sqlite3
import threading
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path
from typing import Any, cast

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from langchain_agentkv import AgentKVStore
from langchain_agentkv.items import decode_namespace, encode_namespace
from langgraph.store.base import (
    GetOp,
    IndexConfig,
    InvalidNamespaceError,
    Item,
    ListNamespacesOp,
    MatchCondition,
    Op,
    PutOp,
    SearchOp,
)
from langgraph.store.memory import InMemoryStore
from langgraph.store.sqlite import SqliteStore

from agentkv import BlockStore
from agentkv.errors import CorruptDatabase, UsageError
from tests.io.test_forks import in_child


@pytest.fixture
def store(tmp_path: Path) -> AgentKVStore:
    return AgentKVStore(tmp_path / "store")


def unsynced(path: Path, index: Any = None) -> AgentKVStore:
    """A store that waits for no disk: thousands of transactions are compared, none has to outlive a power failure."""
    store = AgentKVStore(path, index=index)
    store._database._durable = False
    return store


# --- the same as LangGraph's ----------------------------------------------------------------------

labels = st.sampled_from(["a", "b", "aa", "é", "a b", "日"])
namespaces = st.lists(labels, min_size=1, max_size=3).map(tuple)
keys = st.sampled_from(["k", "K", "k2", "", "a.b", "ключ"])
numbers = st.integers(-3, 3) | st.sampled_from([0.5, -1.5])
words = st.sampled_from(["tea", "milk", "tea with milk", "", "日本の茶", "it's"])
values = st.fixed_dictionaries(
    {"n": numbers, "text": words},
    optional={
        "flag": st.booleans(),
        "none": st.none(),
        "deep": st.fixed_dictionaries({"n": numbers, "l": st.lists(words)}),
    },
)
conditions = st.fixed_dictionaries(
    {},
    optional={
        "n": numbers
        | st.dictionaries(
            st.sampled_from(["$eq", "$ne", "$gt", "$gte", "$lt", "$lte"]), numbers, min_size=1, max_size=2
        ),
        "text": words | st.fixed_dictionaries({"$ne": words}),
        "none": st.none(),
        "missing": st.none() | words,
        "deep": st.fixed_dictionaries({}, optional={"n": numbers, "l": st.lists(words)}),
    },
)
paths = st.lists(labels | st.just("*"), max_size=3).map(tuple)
matches = st.builds(MatchCondition, match_type=st.sampled_from(["prefix", "suffix"]), path=paths)
puts = st.builds(PutOp, namespace=namespaces, key=keys, value=values | st.none(), index=st.none(), ttl=st.none())
reads = (
    st.builds(GetOp, namespace=namespaces, key=keys, refresh_ttl=st.booleans())
    | st.builds(
        SearchOp,
        namespace_prefix=st.lists(labels, max_size=2).map(tuple),
        filter=conditions | st.none(),
        query=words | st.none(),
        limit=st.just(1000),
        offset=st.just(0),
        refresh_ttl=st.booleans(),
    )
    | st.builds(
        ListNamespacesOp,
        match_conditions=st.lists(matches, max_size=2).map(tuple),
        max_depth=st.none(),
        limit=st.just(1000),
        offset=st.just(0),
    )
)
histories = st.lists(st.lists(puts | reads, max_size=6), max_size=8)


def plain(result: Any) -> Any:
    """A result without times, scores and the order of a search."""
    if isinstance(result, Item):
        return result.namespace, result.key, result.value
    if isinstance(result, list):
        if all(isinstance(one, tuple) for one in result):
            return sorted(result)  # SqliteStore sorts them as dotted texts, InMemoryStore and ours as tuples
        return sorted(map(plain, result), key=lambda item: item[:2])
    return result


@settings(max_examples=50, deadline=None)
@given(histories)
def test_the_same_operations_give_the_same_as_the_in_memory_store(
    tmp_path_factory: pytest.TempPathFactory, history: list[list[Op]]
) -> None:
    ours, theirs = unsynced(tmp_path_factory.mktemp("items") / "store"), InMemoryStore()
    for ops in history:
        # The in-memory store lists namespaces from which all was deleted; SqliteStore, below, does not.
        ops = [op for op in ops if not isinstance(op, ListNamespacesOp)]
        assert list(map(plain, ours.batch(ops))) == list(map(plain, theirs.batch(ops)))


@settings(max_examples=50, deadline=None)
@given(histories, st.integers(1, 3))
def test_namespaces_are_listed_as_by_the_sqlite_store(
    tmp_path_factory: pytest.TempPathFactory, history: list[list[Op]], depth: int
) -> None:
    ours = unsynced(tmp_path_factory.mktemp("items") / "store")
    with closing(sqlite3.connect(":memory:", isolation_level=None)) as connection:
        theirs = SqliteStore(connection)
        for ops in history:
            ops = [op for op in ops if isinstance(op, PutOp | GetOp | ListNamespacesOp)]
            ops.append(ListNamespacesOp(max_depth=depth, limit=1000))
            assert list(map(plain, ours.batch(ops))) == list(map(plain, theirs.batch(ops)))


@settings(max_examples=20, deadline=None)
@given(
    st.lists(puts, max_size=12),
    conditions | st.none(),
    words | st.none(),
    st.integers(1, 4),
    st.integers(0, 3),
    st.booleans(),
)
def test_pages_of_a_search_put_together_are_the_search(
    tmp_path_factory: pytest.TempPathFactory,
    ops: list[PutOp],
    condition: Any,
    query: Any,
    size: int,
    first: int,
    has_vectors: bool,
) -> None:
    index: Any = {"dims": 3, "embed": embed} if has_vectors else None
    store = unsynced(tmp_path_factory.mktemp("items") / "store", index)
    store.batch(ops)

    def search(limit: int, offset: int) -> list[Item]:
        return store.search((), query=query, filter=condition, limit=limit, offset=offset)  # type: ignore[return-value]

    whole = search(1000, 0)
    pages = [item for offset in range(first, len(whole), size) for item in search(size, offset)]
    assert pages == whole[first:]
    assert search(size, len(whole)) == []


@given(st.lists(namespaces, max_size=6))
def test_namespaces_sort_as_tuples_do(found: list[tuple[str, ...]]) -> None:
    encoded = sorted(map(encode_namespace, found))
    assert [decode_namespace(data) for data in encoded] == sorted(found)


# --- what a put does ------------------------------------------------------------------------------


def test_times_are_of_creation_and_of_the_last_update(store: AgentKVStore) -> None:
    store.put(("a",), "k", {"n": 1})
    first = store.get(("a",), "k")
    store.put(("a",), "k", {"n": 2})
    second = store.get(("a",), "k")
    assert first is not None
    assert second is not None
    assert first.created_at == second.created_at == first.updated_at < second.updated_at
    assert first.created_at.tzinfo is not None


@pytest.mark.parametrize("value", [{"a": {1}}, {"a": b"x"}, {1: "a"}, {"a": {2: 1}}, [1], "text"])
def test_what_is_no_json_keeps_nothing_of_its_batch(store: AgentKVStore, value: Any) -> None:
    with pytest.raises(UsageError):
        store.batch([PutOp(("a",), "good", {"n": 1}), PutOp(("a",), "bad", value)])
    assert store.get(("a",), "good") is None


def test_json_of_all_kinds_comes_back(store: AgentKVStore) -> None:
    value = {
        "big": 10**40,
        "inf": float("inf"),
        "text": "\ud800 \x00 日",
        "nested": {"l": [1, [None, True, 0.1]]},
        "": "",
    }
    store.put(("a",), "k", value)
    found = store.get(("a",), "k")
    assert found is not None
    assert found.value == value
    assert store.search((), query="日")[0].key == "k"


def test_bad_requests_have_a_typed_error(store: AgentKVStore) -> None:
    store.put(("a",), "k", {"n": "x"})
    for op in (SearchOp((), limit=-1), SearchOp((), offset=-1), ListNamespacesOp(limit=-1)):
        with pytest.raises(UsageError):
            store.batch([op])
    with pytest.raises(UsageError, match=r"\$in"):
        store.search((), filter={"n": {"$in": [1]}})
    with pytest.raises(InvalidNamespaceError):
        store.batch([PutOp(("a.b",), "k", {})])
    with pytest.raises(UsageError):
        store.batch([PutOp(("a",), 3, {})])  # type: ignore[arg-type]
    assert store.search((), filter={"n": {"$gt": 1}}) == []
    assert [item.key for item in store.search((), filter={"n": {"$gt": "w"}})] == ["k"]


# --- search ---------------------------------------------------------------------------------------

NOTES: dict[str, dict[str, Any]] = {
    "tea": {"text": "Ada drinks her tea without milk, every morning."},
    "cat": {"text": "The cat is called Byron; it sleeps on the engine."},
    "trip": {"text": "In May she travels to Turin, by train.", "tags": ["Café", "train"]},
    "jp": {"text": "彼女は京都で緑茶を飲む"},
}


@pytest.fixture
def notes(store: AgentKVStore) -> AgentKVStore:
    for key, value in NOTES.items():
        store.put(("users", "ada"), key, value)
    store.put(("users", "bob"), "cat", {"text": "cat cat cat"})
    return store


@pytest.mark.parametrize(
    ("query", "best"),
    [
        ("What is the CAT called?", "cat"),
        ("cafe", "trip"),
        ("緑茶", "jp"),
        ('tea" OR (NEAR', "tea"),
        ("tea AND -x*", "tea"),
    ],
)
def test_the_item_that_shares_words_comes_first(notes: AgentKVStore, query: str, best: str) -> None:
    found = notes.search(("users", "ada"), query=query)
    assert found[0].key == best
    assert found[0].score is not None
    assert found[0].score > 0
    assert {item.key for item in found} == set(NOTES)
    assert [item.score for item in found[1:] if item.score is None] == [None] * sum(i.score is None for i in found)


@settings(max_examples=50, deadline=None)
@given(st.text(max_size=30))
def test_any_query_is_a_query(tmp_path_factory: pytest.TempPathFactory, query: str) -> None:
    store = unsynced(tmp_path_factory.getbasetemp() / "any-query")
    store.put(("a",), "k", {"text": "tea"})
    assert [item.key for item in store.search((), query=query)] == ["k"]


def test_field_names_are_no_words_and_index_says_what_is(tmp_path: Path, notes: AgentKVStore) -> None:
    assert all(item.score is None for item in notes.search((), query="text tags"))
    store = AgentKVStore(tmp_path / "other", index={"fields": ["title", "parts[*].body"]})
    store.put(("a",), "one", {"title": "tea", "parts": [{"body": "milk"}, {"body": "sugar"}], "note": "lemon"})
    store.put(("a",), "two", {"title": "tea", "note": "lemon"}, index=False)
    store.put(("a",), "three", {"title": "coffee", "note": "lemon"}, index=["note"])

    def ranked(query: str) -> list[str]:
        return [item.key for item in store.search((), query=query) if item.score is not None]

    assert (ranked("tea"), ranked("sugar"), ranked("lemon"), ranked("coffee")) == (["one"], ["one"], ["three"], [])


def test_what_was_replaced_or_deleted_is_not_found(notes: AgentKVStore) -> None:
    notes.put(("users", "ada"), "cat", {"text": "a dog"})
    notes.delete(("users", "ada"), "tea")
    found = notes.search(("users", "ada"), query="cat tea")
    assert [item.score for item in found] == [None] * 3


def embed(texts: Sequence[str]) -> list[list[float]]:
    return [[float(text.count(letter)) for letter in "abc"] for text in texts]


@pytest.mark.parametrize("is_async", [False, True])
@pytest.mark.parametrize("hybrid", [False, True])
def test_an_embedding_ranks_as_in_the_in_memory_store(tmp_path: Path, is_async: bool, hybrid: bool) -> None:
    """In its order where no word of the query is there, and not hybrid by its scores."""

    async def aembed(texts: list[str]) -> list[list[float]]:
        return embed(texts)

    index: Any = {"dims": 3, "embed": aembed if is_async else embed, "fields": ["text", "more[*]"]}
    ours = AgentKVStore(tmp_path / "store", index=index, hybrid=hybrid)
    theirs = InMemoryStore(index=cast(IndexConfig, {**index, "embed": embed}))
    ops: list[Op] = [
        PutOp(("n",), "1", {"text": "aab"}),
        PutOp(("n",), "2", {"text": "abbb", "more": ["c", "ccca"]}),
        PutOp(("n",), "3", {"text": "xyz"}),
        PutOp(("n",), "4", {"text": "aaa"}, index=False),
    ]
    asked: list[Op] = [SearchOp(("n",), query=query, limit=3) for query in ("a", "bb", "cca")]
    theirs.batch(ops)
    if is_async:

        async def main() -> list[Any]:
            await ours.abatch(ops)
            return await ours.abatch(asked)

        found = asyncio.run(main())
    else:
        ours.batch(ops)
        found = ours.batch(asked)
    for result, expected in zip(found, theirs.batch(asked), strict=True):
        assert [item.key for item in result] == [item.key for item in expected]  # type: ignore[union-attr]
        if not hybrid:
            scores = [item.score for item in expected]  # type: ignore[union-attr]
            assert [item.score for item in result] == pytest.approx(scores)


MEMORIES = {
    "train": ("The night train to Turin leaves at nine.", [0.0, 1.0]),
    "food": ("She eats neither meat nor fish.", [0.9, 0.5]),
    "cat": ("The cat Byron has a basket.", [-0.2, 1.0]),
    "tea": ("Ada prefers tea.", [0.1, 1.0]),
}
ASKED = {
    "When does the night train to Turin leave?": [1.0, 0.0],
    "What may I put in her picnic basket?": [1.0, 0.5],
    "Diet?": [1.0, 0.5],
    "Byron": [-0.2, 1.0],
}


def embed_known(texts: Sequence[str]) -> list[list[float]]:
    return [dict([*MEMORIES.values(), *ASKED.items()]).get(text, [-1.0, 0.0]) for text in texts]


KNOWN: Any = {"dims": 2, "embed": embed_known, "fields": ["text", "more[*]"]}


@pytest.fixture
def memories(tmp_path: Path) -> AgentKVStore:
    store = AgentKVStore(tmp_path / "store", index=KNOWN)
    for key, (text, _) in MEMORIES.items():
        store.put(("ada",), key, {"text": text})
    return store


def found(store: AgentKVStore, query: str, **options: Any) -> list[tuple[str, float | None]]:
    return [(item.key, item.score) for item in store.search((), query=query, **options)]


def test_words_are_found_that_an_embedding_does_not_know(memories: AgentKVStore, tmp_path: Path) -> None:
    asked = "When does the night train to Turin leave?"
    assert found(memories, asked)[0][0] == "train"
    by_vector = found(AgentKVStore(tmp_path / "store", index=KNOWN, hybrid=False), asked)
    assert [key for key, _ in by_vector] == ["food", "tea", "train", "cat"]


def test_a_word_by_chance_does_not_beat_what_is_meant(memories: AgentKVStore) -> None:
    assert found(memories, "What may I put in her picnic basket?")[0][0] == "food"


def test_the_score_is_of_the_fused_order(memories: AgentKVStore) -> None:
    for asked in ASKED:
        scores = [score for _, score in found(memories, asked)]
        assert scores == sorted(scores, key=lambda score: -(score or 0))
        assert all(score is not None and 0 < score <= 1 for score in scores)
    for query, first, best in (("Byron", "cat", 1.0), ("Diet?", "food", 0.5)):
        key, score = found(memories, query)[0]
        assert key == first
        assert score == pytest.approx(best)


def test_what_has_no_vector_is_found_by_its_words_and_what_has_neither_is_last(
    memories: AgentKVStore, tmp_path: Path
) -> None:
    AgentKVStore(tmp_path / "store").put(("ada",), "old", {"text": "The umbrella is blue."})
    memories.put(("ada",), "hidden", {"text": "The umbrella is green."}, index=False)
    order = found(memories, "umbrella")
    assert order[0][0] == "old"
    assert order[-1] == ("hidden", None)
    assert len(order) == len(MEMORIES) + 2
    assert dict(found(memories, "zzz"))["old"] is None


def test_the_nearest_of_several_vectors_and_the_words_of_all_count(memories: AgentKVStore) -> None:
    texts = [MEMORIES["tea"][0], MEMORIES["food"][0]]
    memories.put(("bob",), "both", {"text": "unknown", "more": texts})
    assert {key for key, _ in found(memories, "Diet?", limit=2)} == {"both", "food"}
    assert found(memories, "meat tea fish", limit=1)[0][0] == "both"


def test_ranks_are_among_what_is_searched(memories: AgentKVStore) -> None:
    alone = found(memories, "What may I put in her picnic basket?")
    for number in range(5):
        memories.put(("bob",), f"basket{number}", {"text": "picnic basket"})
    (first, *_) = memories.search(("bob",), query="Byron's basket")
    assert first.key.startswith("basket")
    among = memories.search(("ada",), query="What may I put in her picnic basket?")
    assert [item.key for item in among] == [key for key, _ in alone]
    filtered = found(memories, "night train", filter={"text": MEMORIES["cat"][0]})
    assert [key for key, _ in filtered] == ["cat"]


def test_an_embedding_of_other_dims_is_refused_and_keeps_nothing(tmp_path: Path) -> None:
    store = AgentKVStore(tmp_path / "store", index=IndexConfig(dims=4, embed=embed))
    with pytest.raises(UsageError, match="dims = 4"):
        store.put(("a",), "k", {"text": "a"})
    assert AgentKVStore(tmp_path / "store").get(("a",), "k") is None


def test_a_store_written_without_an_embedding_can_be_opened_with_one(notes: AgentKVStore, tmp_path: Path) -> None:
    again = AgentKVStore(tmp_path / "store", index=IndexConfig(dims=3, embed=embed))
    assert [item.score for item in again.search(("users", "ada"), query="abc")] == [None] * len(NOTES)
    assert notes.search(("users", "ada"), query="cat")[0].key == "cat"


# --- TTL ------------------------------------------------------------------------------------------


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    now = [1_000_000.0]
    monkeypatch.setattr("langchain_agentkv.langgraph_store.time.time", lambda: now[0])
    return now


def test_what_has_expired_is_gone_for_every_read(store: AgentKVStore, clock: list[float]) -> None:
    store.put(("a",), "short", {"text": "tea"}, ttl=1)
    store.put(("b",), "long", {"text": "tea"})
    clock[0] += 61
    assert store.get(("a",), "short") is None
    assert [item.key for item in store.search((), query="tea")] == ["long"]
    assert store.list_namespaces() == [("b",)]
    store.put(("b",), "other", {"n": 1})
    with closing(sqlite3.connect(store.path)) as connection:
        assert connection.execute("SELECT count(*) FROM items").fetchone() == (2,)
        assert connection.execute("SELECT count(*) FROM words").fetchone() == (2,)


def test_a_read_begins_the_time_anew_unless_told_not_to(tmp_path: Path, clock: list[float]) -> None:
    store = AgentKVStore(tmp_path / "store", ttl={"default_ttl": 1, "refresh_on_read": True})
    for key in ("read", "searched", "left"):
        store.put((key,), key, {"n": 1})
    clock[0] += 40
    assert store.get(("read",), "read") is not None
    assert len(store.search(("searched",))) == 1
    assert store.get(("left",), "left", refresh_ttl=False) is not None
    clock[0] += 40
    assert [item.namespace for item in store.search((), refresh_ttl=False)] == [("searched",), ("read",)]


# --- durability, threads, damage ------------------------------------------------------------------


def test_it_outlives_the_object_and_is_no_stranger_in_the_store(notes: AgentKVStore, tmp_path: Path) -> None:
    again = AgentKVStore(tmp_path / "store")
    assert {item.key: item.value for item in again.search(("users", "ada"))} == NOTES
    with BlockStore(tmp_path / "store") as blocks:
        assert blocks.check().findings == ()


def test_threads_and_loops_write_at_once(store: AgentKVStore) -> None:
    def write(n: int) -> None:
        async def main() -> None:
            for i in range(15):
                await store.aput((str(n),), str(i), {"n": i, "text": f"word{n}"})

        asyncio.run(main())

    threads = [threading.Thread(target=write, args=(n,)) for n in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(store.search((), limit=100)) == 45
    assert len([item for item in store.search((), query="word1", limit=100) if item.score]) == 15


def test_a_failed_batch_keeps_nothing(store: AgentKVStore, monkeypatch: pytest.MonkeyPatch) -> None:
    store.put(("a",), "k", {"n": 1})
    real = store._ranking.index

    def fail(connection: Any, item: int, words: str, vectors: Any) -> bool:
        if "poison" in words:
            raise KeyboardInterrupt
        return real(connection, item, words, vectors)

    monkeypatch.setattr(store._ranking, "index", fail)
    with pytest.raises(KeyboardInterrupt):
        store.batch([PutOp(("a",), "k", {"n": 2}), PutOp(("a",), "l", {"text": "poison"})])
    found = store.get(("a",), "k")
    assert found is not None
    assert found.value == {"n": 1}
    assert store.get(("a",), "l") is None


@pytest.mark.parametrize("how", ["delete", "overwrite", "expire"])
def test_what_is_deleted_or_overwritten_cannot_be_read_in_the_file(
    store: AgentKVStore, how: str, clock: list[float]
) -> None:
    for number in range(60):
        store.put(("users", "ada"), f"k{number}", {"text": f"Note {number} about trains"})
    store.put(("users", "ada"), "secret", {"text": "The password is Zebraquartz"}, ttl=1 if how == "expire" else None)
    assert b"zebraquartz" in store.path.read_bytes().lower()
    if how == "delete":
        store.delete(("users", "ada"), "secret")
    elif how == "overwrite":
        store.put(("users", "ada"), "secret", {"text": "There is none"})
    else:
        clock[0] += 120
        store.put(("users", "ada"), "other", {"text": "Something else"})
    assert b"zebraquartz" not in store.path.read_bytes().lower()
    assert len(store.search(("users",), query="trains", limit=100)) == (61 if how != "delete" else 60)
    assert not store.search(("users",), query="password", limit=1)[0].score


def test_a_store_that_was_opened_before_a_fork_works_in_the_child(store: AgentKVStore) -> None:
    store.put(("a",), "k", {"text": "tea"})

    def in_the_child() -> str:
        store.put(("a",), "child", {"text": "milk"})
        item = store.get(("a",), "k")
        return item.value["text"] if item else ""

    assert in_child(in_the_child) == "tea"
    assert store.search(("a",), query="milk", limit=1)[0].key == "child"


def test_a_damaged_row_is_an_error_and_can_be_put_again(store: AgentKVStore) -> None:
    store.put(("a",), "k", {"n": 1})
    with closing(sqlite3.connect(store.path)) as connection, connection:
        connection.execute("UPDATE items SET value = ?", (b'{"n":2}',))
    with pytest.raises(CorruptDatabase):
        store.get(("a",), "k")
    with pytest.raises(CorruptDatabase):
        store.search(())
    store.put(("a",), "k", {"n": 3})
    found = store.get(("a",), "k")
    assert found is not None
    assert found.value == {"n": 3}
