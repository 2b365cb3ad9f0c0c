"""The LRU: bounded in bytes, least recently used first out."""

from __future__ import annotations

import threading

import pytest

from agentkv.store.recordfiles import StateCache


def test_drops_the_least_recently_used_until_it_fits() -> None:
    cache: StateCache[str] = StateCache(10)
    for key, size in (("a", 4), ("b", 4)):
        assert cache.put(key, key.upper(), size)
    assert cache.get("a") == "A"
    assert cache.put("c", "C", 4)
    assert [cache.get(key) for key in "abc"] == ["A", None, "C"]
    assert cache.bytes == 8


def test_what_is_larger_than_the_bound_is_not_kept_and_evicts_nothing() -> None:
    cache: StateCache[str] = StateCache(10)
    cache.put("a", "A", 10)
    assert cache.put("b", "B", 11) is False
    assert (cache.get("a"), cache.get("b")) == ("A", None)
    assert cache.put("a", "A2", 11) is False
    assert cache.get("a") is None


def test_putting_again_counts_once_and_drop_forgets() -> None:
    cache: StateCache[str] = StateCache(10)
    cache.put("a", "A", 6)
    cache.put("a", "B", 7)
    assert (cache.get("a"), cache.bytes) == ("B", 7)
    assert (cache.drop("a"), cache.drop("a"), cache.bytes) == (True, False, 0)


def test_a_bound_of_zero_keeps_nothing_and_a_negative_one_is_refused() -> None:
    cache: StateCache[str] = StateCache(0)
    assert cache.put("a", "A", 1) is False
    with pytest.raises(ValueError, match="-1"):
        StateCache(-1)


def test_threads_never_exceed_the_bound() -> None:
    cache: StateCache[int] = StateCache(50)
    seen = []

    def work(seed: int) -> None:
        for step in range(500):
            cache.put((seed * step) % 17, step, 1 + step % 20)
            cache.get(step % 17)
            seen.append(cache.bytes)

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(1, 5)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert max(seen) <= 50
    cache.clear()
    assert cache.bytes == 0
