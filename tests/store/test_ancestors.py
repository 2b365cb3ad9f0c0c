"""Ids that stay when a block goes: written in time, read with its children, gone with the last of them."""

from __future__ import annotations

from pathlib import Path

import pytest

from agentkv.errors import StoreFull
from agentkv.records import Ancestor, Manifest
from agentkv.store.budget import stored_bytes
from agentkv.store.catalog import BlockStore
from agentkv.store.findings import Kind
from tests.store.blocks import STEP, block, contents, named, reference, state


def turn(number: int, parent: Manifest | None) -> tuple[Manifest, dict[str, bytes]]:
    """A block of 8 tokens whose rows all change with the next turn, as under a sliding window."""
    manifest, _ = block([number] * 2 * STEP, parent=parent)
    refs, raw = [], {}
    for start in range(0, manifest.n_tokens, STEP):
        data = state(1000 * number + start)
        refs.append(reference(data, start, start + STEP))
        raw[refs[-1].sha256] = data
    return manifest.model_copy(update={"segments": tuple(refs)}), raw


def fill(store: BlockStore, turns: int) -> list[Manifest]:
    """A root, a named block chained to it, and turns chained to that."""
    items = [turn(0, None)]
    for number in range(1, turns + 2):
        items.append(turn(number, items[-1][0]))
    for item in items:
        store.put(*item)
        store.used(item[0].block_id)
        if item is items[1]:
            store.set_name(named(item[0]))
    return [manifest for manifest, _ in items]


def ids(manifests: list[Manifest]) -> list[str]:
    return [manifest.block_id for manifest in manifests]


@pytest.fixture
def store(tmp_path: Path) -> BlockStore:
    return BlockStore(tmp_path / "store")


def test_older_checkpoints_go_before_the_newest_and_leave_their_ids(store: BlockStore) -> None:
    root, manual, *turns = fill(store, 5)
    planned = store.evict(stored_bytes(store.files) - 1, dry_run=True)
    assert [victim.block_id for victim in planned.victims] == [turns[0].block_id]
    everything = store.evict(0, dry_run=True)
    order = [victim.block_id for victim in everything.victims]
    assert order == [*ids(turns), manual.block_id, root.block_id]
    assert everything.left == 0
    some = store.evict(planned.left)
    assert (stored_bytes(store.files), some.left) == (planned.left, planned.left)
    assert store.manifest(turns[0].block_id) is None
    assert store.ancestor(turns[0].block_id) == Ancestor(
        block_id=turns[0].block_id,
        parent_id=manual.block_id,
        fingerprint_id=root.fingerprint.id,
        tokens=turns[0].tokens,
        n_tokens=turns[0].n_tokens,
    )
    for manifest in turns[1:]:
        store.verify(manifest.block_id)
    assert not store.check().findings


def test_the_budget_holds_while_a_chain_grows_and_the_newest_stays(tmp_path: Path) -> None:
    with BlockStore(tmp_path / "whole") as whole:
        size = stored_bytes(whole.files) if fill(whole, 12) else 0
    with BlockStore(tmp_path / "store", budget_bytes=size // 2) as store:
        manifests = fill(store, 12)
        assert stored_bytes(store.files) <= size // 2
        there = set(store.block_ids())
        assert {manifests[0].block_id, manifests[1].block_id, manifests[-1].block_id} <= there
        gone = [manifest.block_id for manifest in manifests if manifest.block_id not in there]
        assert gone == ids(manifests[2 : 2 + len(gone)])
        assert gone == [victim.block_id for victim in store.evicted]
        store.verify(manifests[-1].block_id)
        assert not store.check().findings


def test_a_parent_whose_segments_its_child_holds_frees_nothing_and_stays(store: BlockStore) -> None:
    first = block([1] * 2 * STEP)
    second = block([2] * 2 * STEP, parent=first[0])
    third = block([3] * 2 * STEP, parent=second[0])
    for item in (first, second, third):
        store.put(*item)
    planned = store.evict(0, dry_run=True)
    assert [victim.block_id for victim in planned.victims] == ids([third[0], second[0], first[0]])


def test_pinned_chains_stay_whole(store: BlockStore) -> None:
    manifests = fill(store, 4)
    store.pin(manifests[-1].block_id)
    assert store.evict(0, dry_run=True).victims == ()


def test_ids_go_with_the_last_block_behind_them(store: BlockStore) -> None:
    _, manual, *turns = fill(store, 4)
    fork = turn(77, turns[1])
    store.put(*fork)
    store.take_away(ids(turns[:2]))
    assert {item.block_id for item in store.files.ancestors.all()} == set(ids(turns[:2]))
    store.take_away(ids(turns[2:]))
    assert {item.block_id for item in store.files.ancestors.all()} == set(ids(turns[:2])), "a fork needs them"
    store.verify(fork[0].block_id)
    store.take_away([fork[0].block_id])
    assert list(store.files.ancestors.digests()) == []
    store.verify(manual.block_id)
    assert not store.check().findings


def test_a_block_that_comes_back_needs_no_ids_of_its_own(store: BlockStore) -> None:
    _, _, first, second = fill(store, 2)
    store.take_away([first.block_id])
    store.put(*turn(2, store.manifest(first.parent_id or "")))
    assert store.check(deep=False).of(Kind.ORPHAN)
    store.collect()
    assert list(store.files.ancestors.digests()) == []
    store.verify(second.block_id)


def test_parents_that_were_never_stored_leave_their_ids_with_the_child(store: BlockStore) -> None:
    first, second = turn(1, None)[0], turn(2, turn(1, None)[0])
    ancestor = Ancestor(
        block_id=first.block_id,
        parent_id=None,
        fingerprint_id=first.fingerprint.id,
        tokens=first.tokens,
        n_tokens=first.n_tokens,
    )
    store.put(*second, ancestors=[ancestor])
    assert store.ancestor(first.block_id) == ancestor
    assert not store.check().findings
    store.remove_block(second[0].block_id)
    assert [finding.kind for finding in store.check().findings if finding.path.suffix == ".json"] == [Kind.ORPHAN]
    store.collect()
    assert [path for path in contents(store.root) if path.startswith("ancestors")] == []


def test_damaged_ids_are_found_with_all_that_stands_behind_them_and_moved_aside(store: BlockStore) -> None:
    root, manual, *turns = fill(store, 4)
    store.take_away(ids(turns[:2]))
    path = store.files.ancestors.path(turns[0].block_id)
    data = bytearray(path.read_bytes())
    data[-9] ^= 1
    path.write_bytes(data)
    report = store.check()
    (finding,) = report.damage
    assert (finding.path, finding.kind) == (path, Kind.CORRUPT)
    assert set(finding.blocks) == set(ids(turns[2:]))
    store.repair(report)
    assert not store.check().damage
    store.collect()
    assert set(store.block_ids()) == {root.block_id, manual.block_id}
    assert list(store.files.ancestors.digests()) == []


def test_lost_ids_are_found_too(store: BlockStore) -> None:
    _, _, *turns = fill(store, 3)
    store.take_away(ids(turns[:1]))
    store.files.ancestors.path(turns[0].block_id).unlink()
    (finding,) = store.check().damage
    assert finding.kind is Kind.DANGLING
    assert set(finding.blocks) == set(ids(turns[1:]))
    store.repair(store.check())
    assert not store.check().damage


def test_a_manifest_above_evicted_checkpoints_takes_those_behind_them_along(store: BlockStore) -> None:
    _, manual, *turns = fill(store, 3)
    store.take_away(ids(turns[:2]))
    store.files.manifests.path(manual.block_id).write_bytes(b"no manifest")
    report = store.check()
    assert set(report.damage[0].blocks) == {manual.block_id, turns[2].block_id}
    lost = store.repair(report).blocks
    assert {block.block_id for block in lost} == {manual.block_id, turns[2].block_id}
    assert not store.check().damage


def test_without_room_for_its_ids_a_block_stays(store: BlockStore, monkeypatch: pytest.MonkeyPatch) -> None:
    _, _, *turns = fill(store, 3)

    def full(digest: str, data: bytes) -> None:
        raise StoreFull(store.root, len(data), 0)

    monkeypatch.setattr(store.files.ancestors, "write", full)
    store.take_away([turns[0].block_id])
    assert store.manifest(turns[0].block_id) == turns[0]
    store.take_away([turns[-1].block_id])
    assert not store.check().damage
