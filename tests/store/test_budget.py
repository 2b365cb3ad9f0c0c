"""Eviction: who goes first, who never goes, what goes with them; and a budget that holds after each deposit."""

from __future__ import annotations

import errno
import time
from pathlib import Path

import pytest

from agentkv.errors import OverBudget, UsageError
from agentkv.io.hashing import sha256
from agentkv.notices import AgentKVWarning
from agentkv.records import Manifest
from agentkv.store.budget import stored_bytes
from agentkv.store.catalog import BlockStore
from tests.store.blocks import block, contents, named
from tests.store.faults import refused

A, B, C = (block([number, 1, 2]) for number in range(3))
PARENT = block(list(range(50, 58)))
CHILD = block([60, 61], parent=PARENT[0])


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """What ``time.time`` says; uses are noted far in the future, so that they are later than any file."""
    now = [time.time() + 1000.0]
    monkeypatch.setattr("agentkv.store.uses.time.time", lambda: now[0])
    return now


@pytest.fixture
def store(tmp_path: Path, clock: list[float]) -> BlockStore:
    """A, B, C, used in the order C, A, B; then a chain, the child used last but for its parent, never used."""
    store = BlockStore(tmp_path / "store")
    for item in (A, B, C, PARENT, CHILD):
        store.put(*item)
        store.set_name(named(item[0], f"name-{item[0].tokens[0]}"))
    for item in (C, A, B, CHILD):
        store.used(item[0].block_id)
        clock[0] += 10
    return store


def victims(store: BlockStore, budget: int) -> list[str]:
    return [victim.block_id for victim in store.evict(budget, dry_run=True).victims]


def but_uses(store: BlockStore) -> dict[str, bytes]:
    """Every file of the store but the one that counts uses."""
    return {name: data for name, data in contents(store.root).items() if "uses" not in name}


def ids(*items: tuple[Manifest, dict[str, bytes]]) -> list[str]:
    return [manifest.block_id for manifest, _ in items]


def test_the_least_recently_used_go_first_and_parents_after_their_children(store: BlockStore) -> None:
    assert victims(store, 0) == ids(C, A, B, CHILD, PARENT)
    store.used(C[0].block_id)
    assert victims(store, 0) == ids(A, B, CHILD, PARENT, C)
    assert victims(store, stored_bytes(store.files)) == []
    assert victims(store, stored_bytes(store.files) - 1) == ids(A)


def test_a_block_never_used_counts_from_its_deposit(store: BlockStore) -> None:
    new = block([9, 9])
    store.put(*new)
    assert victims(store, 0)[0] == new[0].block_id, "the file's time is before the uses, which are in the future"


def test_pinned_blocks_and_what_they_are_read_behind_stay(store: BlockStore) -> None:
    store.pin(CHILD[0].block_id)
    store.pin(C[0].block_id)
    eviction = store.evict(0, dry_run=True)
    assert [victim.block_id for victim in eviction.victims] == ids(A, B)
    assert not eviction.fits
    assert eviction.left == eviction.kept > 0
    assert store.unpin(CHILD[0].block_id)
    assert victims(store, 0) == ids(A, B, CHILD, PARENT)


def test_shared_segments_are_freed_with_their_last_block(store: BlockStore) -> None:
    eviction = store.evict(0, dry_run=True)
    freed = {victim.block_id: victim.bytes for victim in eviction.victims}
    sizes = dict(store.segments.all())
    child = store.files.manifests.stored_bytes(CHILD[0].block_id) or 0
    assert freed[CHILD[0].block_id] == child + sizes[CHILD[0].segments[-1].sha256]
    assert sum(freed.values()) == eviction.stored == stored_bytes(store.files)
    assert eviction.left == 0


def test_a_dry_run_changes_nothing_and_says_what_a_real_one_does(store: BlockStore) -> None:
    before = but_uses(store)
    planned = store.evict(stored_bytes(store.files) // 2, dry_run=True)
    assert but_uses(store) == before
    assert len(planned.victims) > 1
    assert store.evict(stored_bytes(store.files) // 2) == planned
    assert stored_bytes(store.files) == planned.left
    gone = {victim.block_id for victim in planned.victims}
    assert gone.isdisjoint(store.block_ids())
    assert gone.isdisjoint(entry.block_id for entry in store.names())
    assert gone.isdisjoint(store.uses())
    assert store.collect(dry_run=True).segments == 0
    for block_id in store.block_ids():
        store.verify(block_id)


def test_leftovers_go_before_any_block_does(store: BlockStore) -> None:
    fits = stored_bytes(store.files)
    orphan = Path(store.segments.where("ab" * 32))
    orphan.parent.mkdir(exist_ok=True)
    orphan.write_bytes(bytes(5000))
    assert store.evict(fits, dry_run=True).victims == ()
    with BlockStore(store.root, budget_bytes=fits + 2000) as other:
        assert other.put(*block([9, 9]))
    assert set(store.block_ids()) == {*ids(A, B, C, PARENT, CHILD), block([9, 9])[0].block_id}
    assert not orphan.exists()


def test_the_budget_holds_after_each_deposit(tmp_path: Path) -> None:
    one = block([0], n_bytes=2000)
    with BlockStore(tmp_path / "one") as measured:
        measured.put(*one)
        budget = int(stored_bytes(measured.files) * 3.5)
    with BlockStore(tmp_path / "store", budget_bytes=budget) as store:
        for number in range(8):
            item = block([number], n_bytes=2000)
            assert store.put(*item)
            store.set_name(named(item[0], f"name-{number}"))
            assert stored_bytes(store.files) <= budget
            assert store.verify(item[0].block_id)
        assert len(list(store.block_ids())) == 3
        assert {entry.block_id for entry in store.names()} == set(store.block_ids())


def test_a_stores_own_budget_is_everybodys(store: BlockStore) -> None:
    in_use = stored_bytes(store.files)
    store.set_budget(in_use)
    with BlockStore(store.root) as other:
        assert other.budget == in_use
        assert other.put(*block([9, 9]))
        assert stored_bytes(other.files) <= in_use
    assert len(list(store.block_ids())) < 6
    store.set_budget(None)
    assert store.budget is None
    with pytest.raises(UsageError):
        store.evict()


def test_what_cannot_fit_is_refused_and_the_store_is_as_before(store: BlockStore) -> None:
    large = block([7] * 4, n_bytes=100_000)
    before = but_uses(store)
    with (
        BlockStore(store.root, budget_bytes=stored_bytes(store.files)) as other,
        pytest.raises(OverBudget) as caught,
    ):
        other.put(*large)
    assert caught.value.needed > 50_000
    assert (caught.value.budget, caught.value.kept) == (stored_bytes(store.files), 0)
    assert but_uses(store) == before


def test_pinned_bytes_are_named_where_nothing_fits(store: BlockStore) -> None:
    for block_id in list(store.block_ids()):
        store.pin(block_id)
    full = stored_bytes(store.files)
    with BlockStore(store.root, budget_bytes=full) as other, pytest.raises(OverBudget) as caught:
        other.put(*block([9, 9]))
    assert caught.value.kept == full
    assert stored_bytes(store.files) == full


def test_texts_of_evicted_names_are_left_for_the_collection(store: BlockStore) -> None:
    entry = named(C[0], "with-text").model_copy(update={"source_sha256": sha256(b"text")})
    store.set_name(entry, "text")
    assert store.collect(dry_run=True).texts == 0
    store.evict(stored_bytes(store.files) - 1)
    assert not store.has(C[0].block_id)
    assert store.collect().texts == 1


def test_a_damaged_manifest_stays_with_what_it_may_need_and_the_others_go(store: BlockStore) -> None:
    path = store.files.manifests.path(A[0].block_id)
    path.write_bytes(path.read_bytes()[:-1])
    with pytest.warns(AgentKVWarning, match="passed over: manifest"):
        eviction = store.evict(0)
    assert [victim.block_id for victim in eviction.victims] == ids(C, B, CHILD, PARENT)
    assert not eviction.fits
    assert path.exists()
    assert all(store.segments.has(ref.sha256) for ref in A[0].segments)


def test_a_damaged_block_counts_for_the_budget_of_a_deposit(tmp_path: Path) -> None:
    damaged, new = block([1, 2, 3]), block([7, 8, 9])
    with BlockStore(tmp_path) as store:
        store.put(*damaged)
    path = tmp_path / "manifests" / damaged[0].block_id[:2] / f"{damaged[0].block_id}.json"
    path.write_bytes(path.read_bytes()[:-1])
    size = stored_bytes(BlockStore(tmp_path).files)
    with (
        BlockStore(tmp_path, budget_bytes=size) as store,
        pytest.warns(AgentKVWarning, match="passed over: manifest"),
        pytest.raises(OverBudget) as caught,
    ):
        store.put(*new)
    assert caught.value.kept == size
    assert not store.has(new[0].block_id)


def folder_of(store: BlockStore, item: tuple[Manifest, dict[str, bytes]], kind: str) -> str:
    path = store.files.manifests.path(item[0].block_id)
    return str(path) if kind == "manifest" else str(store.segments.where(item[0].segments[0].sha256))


@pytest.mark.parametrize("kind", ["manifest", "segment"])
@pytest.mark.parametrize("number", [errno.EACCES, errno.EPERM, errno.EIO])
def test_what_cannot_be_removed_is_told_and_the_next_goes(store: BlockStore, kind: str, number: int) -> None:
    budget = stored_bytes(store.files)
    names = {entry.name for entry in store.names() if entry.block_id == A[0].block_id}
    with BlockStore(store.root, budget_bytes=budget) as other:
        with (
            refused(number, folder_of(store, A, kind), calls=("unlink",)) as seen,
            pytest.warns(AgentKVWarning, match="cannot be removed, so others go"),
        ):
            assert other.put(*block([9, 9]))
        assert seen
        gone = [victim.block_id for victim in other.evicted]
        assert gone[: 1 if kind == "manifest" else 2] == ids(*([B] if kind == "manifest" else [A, B]))
        assert stored_bytes(other.files) <= budget
    if kind == "manifest":
        assert {entry.name for entry in store.names() if entry.block_id == A[0].block_id} == names
        assert store.verify(A[0].block_id) == A[0]


def test_a_folder_of_which_nothing_can_be_removed_refuses_what_does_not_fit(store: BlockStore) -> None:
    budget = stored_bytes(store.files)
    before = but_uses(store)
    new = block([9, 9])
    with BlockStore(store.root, budget_bytes=budget) as other:
        places = [folder_of(store, item, "manifest") for item in (A, B, C, PARENT, CHILD)]
        with (
            refused(errno.EACCES, *places, calls=("unlink",)),
            pytest.warns(AgentKVWarning, match="cannot be removed"),
            pytest.raises(OverBudget) as caught,
        ):
            other.put(*new)
        assert caught.value.kept == budget
    assert but_uses(store) == before


@pytest.mark.parametrize("folder", ["tmp", "quarantine"])
def test_unfinished_files_and_the_quarantine_count(store: BlockStore, folder: str) -> None:
    budget = stored_bytes(store.files)
    (store.root / folder).mkdir(exist_ok=True)
    (store.root / folder / "x").write_bytes(bytes(1000))
    assert stored_bytes(store.files) == budget + 1000
    eviction = store.evict(budget, dry_run=True)
    assert eviction.stored == budget + 1000
    assert eviction.victims
    assert store.evict(0, dry_run=True).kept == 1000


def test_a_group_that_cannot_fit_makes_nothing_go(store: BlockStore) -> None:
    small, large = block([9, 9]), block([7] * 4, n_bytes=100_000)
    before = but_uses(store)
    with BlockStore(store.root, budget_bytes=stored_bytes(store.files)) as other:
        with pytest.raises(OverBudget), other.holding():  # noqa: PT012 - the second of two steps raises
            other.put(*small)
            other.put(*large)
        assert other.evicted == []
    assert but_uses(store) == before


def test_damaged_settings_are_no_budget_and_said(store: BlockStore) -> None:
    store.set_budget(1)
    (store.root / "agentkv-settings.json").write_bytes(bytes(40))
    with pytest.warns(AgentKVWarning, match="the store's settings"):
        assert store.budget is None
    store.set_budget(10**9)
    assert BlockStore(store.root).budget == 10**9


def test_a_repeated_deposit_gets_an_overfull_store_within_its_budget(tmp_path: Path) -> None:
    old, new = block([1, 2, 3]), block([7, 8, 9])
    with BlockStore(tmp_path) as store:
        store.put(*old)
        time.sleep(0.02)
        store.put(*new)
        whole = store.evict(10**9, dry_run=True).stored
    with BlockStore(tmp_path, budget_bytes=whole - 1) as store:
        assert store.put(*new) is False
        assert list(store.block_ids()) == [new[0].block_id]


def test_blocks_held_together_do_not_make_each_other_go(tmp_path: Path) -> None:
    own, first, second = block([1, 2, 3]), block([4, 5, 6]), block([7, 8, 9])
    with BlockStore(tmp_path) as store:
        store.put(*own)
        each = stored_bytes(store.files)
    with BlockStore(tmp_path, budget_bytes=2 * each + 100) as store:
        with store.holding():
            store.put(*first)
            store.put(*second)
        assert set(store.block_ids()) == {first[0].block_id, second[0].block_id}
        assert [victim.block_id for victim in store.evicted] == [own[0].block_id]


def test_what_is_held_together_and_does_not_fit_is_all_taken_back(tmp_path: Path) -> None:
    pinned, first, second = block([1, 2, 3]), block([4, 5, 6]), block([7, 8, 9])
    with BlockStore(tmp_path) as store:
        store.put(*pinned)
        store.pin(pinned[0].block_id)
        each = stored_bytes(store.files)
    before = contents(tmp_path)
    with BlockStore(tmp_path, budget_bytes=2 * each + 100) as store:
        with pytest.raises(OverBudget), store.holding():  # noqa: PT012 - the third of three steps raises
            store.put(*first)
            store.set_name(named(first[0]))
            store.put(*second)
        assert store.names() == []
        with pytest.raises(OverBudget) as caught:
            store.require_room(2 * each)
        assert (caught.value.needed, caught.value.budget, caught.value.kept) == (2 * each, 2 * each + 100, each)
        store.require_room(each)
    assert contents(tmp_path) == before


@pytest.mark.parametrize("budget", ["20GB", -1, 1.5, True])
def test_a_budget_is_a_whole_number_of_bytes(tmp_path: Path, budget: int) -> None:
    with pytest.raises(UsageError, match="whole number"):
        BlockStore(tmp_path / "store", budget_bytes=budget)
    assert not (tmp_path / "store").exists()
    with pytest.raises(UsageError, match="whole number"):
        BlockStore(tmp_path / "other").set_budget(budget)
