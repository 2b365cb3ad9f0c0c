from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from agentkv.blocks.blocks import Blocks
from agentkv.engine.fake import FakeEngine
from agentkv.engine.generate import first_difference, greedy_hashes
from agentkv.errors import (
    Cancelled,
    CorruptBlock,
    IncompatibleFingerprint,
    InexactBlock,
    UnknownBlock,
    UsageError,
    WindowOverflow,
)
from agentkv.io.hashing import file_sha256
from agentkv.records import Exactness
from agentkv.store.catalog import BlockStore

PREFIX, MANUAL = list(b"You help with shops. "), list(b"Returns are taken for 21 days. " * 12)


@pytest.fixture
def blocks(tmp_path: Path) -> Blocks:
    return Blocks(FakeEngine(), BlockStore(tmp_path / "store"))


def other(blocks: Blocks, **options: object) -> Blocks:
    """The same store, as a new process would see it."""
    return Blocks(FakeEngine(**options), BlockStore(blocks.store.root))  # type: ignore[arg-type]


def test_a_graft_by_another_engine_continues_bit_for_bit(blocks: Blocks) -> None:
    parent = blocks.deposit(PREFIX).manifest
    child = blocks.deposit(MANUAL, parent=parent).manifest
    assert child.exactness is Exactness.EXACT
    fresh = FakeEngine()
    fresh.extend(PREFIX + MANUAL)
    again = other(blocks)
    found = again.store.manifest(child.block_id)
    assert found is not None
    again.graft(found)
    assert again.engine.tokens == tuple(PREFIX + MANUAL)
    assert first_difference(greedy_hashes(fresh, 7, 48), greedy_hashes(again.engine, 7, 48)) is None
    assert again.reprove(found)


def test_identity_is_known_before_any_work_and_depends_on_everything(blocks: Blocks) -> None:
    parent = blocks.deposit(PREFIX).manifest
    identity = blocks.id_of(MANUAL, parent.block_id)
    decoded = blocks.engine.counters.decoded
    assert blocks.deposit(MANUAL, parent=parent).manifest.block_id == identity
    assert blocks.engine.counters.decoded > decoded
    assert len({identity, blocks.id_of(MANUAL), blocks.id_of(MANUAL[:-1], parent.block_id)}) == 3
    assert other(blocks, weights="b").id_of(MANUAL, parent.block_id) != identity


def test_a_second_deposit_costs_a_hash(blocks: Blocks) -> None:
    first = blocks.deposit(MANUAL)
    decoded = blocks.engine.counters.decoded
    second = blocks.deposit(MANUAL)
    assert (first.created, second.created) == (True, False)
    assert second.manifest == first.manifest
    assert blocks.engine.counters.decoded == decoded


def test_children_share_their_parents_segments(blocks: Blocks) -> None:
    parent = blocks.deposit(PREFIX * 20).manifest
    children = [blocks.deposit([*MANUAL, i], parent=parent).manifest for i in range(3)]
    full = {ref.sha256 for ref in parent.segments if ref.section == 0}
    for child in children:
        assert full <= {ref.sha256 for ref in child.segments}
        assert blocks.store.sizes(child).shared_raw > 0


@pytest.mark.parametrize(("after", "seen"), [(4, 5), (23, 24), (24, 25), (31, 32)])
def test_an_inexact_engine_is_refused_and_nothing_stored(tmp_path: Path, after: int, seen: int) -> None:
    blocks = Blocks(FakeEngine(diverge_after=after), BlockStore(tmp_path))
    with pytest.raises(InexactBlock) as caught:
        blocks.deposit(MANUAL)
    assert caught.value.step == seen
    assert list(blocks.store.block_ids()) == []
    allowed = blocks.deposit(MANUAL, allow_inexact=True)
    assert allowed.manifest.exactness is Exactness.INEXACT
    assert not blocks.reprove(allowed.manifest)


def test_a_block_of_other_weights_is_refused_by_field(blocks: Blocks) -> None:
    manifest = blocks.deposit(MANUAL).manifest
    foreign = other(blocks, weights="changed")
    with pytest.raises(IncompatibleFingerprint) as caught:
        foreign.graft(manifest)
    assert caught.value.field == "model_sha256"
    assert foreign.stored_chain([MANUAL]) == []


def test_damage_on_disk_is_found_before_the_engine_is_touched(blocks: Blocks) -> None:
    manifest = blocks.deposit(MANUAL).manifest
    for file in (blocks.store.root / "segments").rglob("*.seg"):
        data = bytearray(file.read_bytes())
        data[len(data) // 2] ^= 1
        file.write_bytes(data)
    again = other(blocks)
    again.engine.extend(PREFIX)
    before = greedy_hashes(again.engine, 5, 3)
    again.engine.clear()
    again.engine.extend(PREFIX)
    with pytest.raises(CorruptBlock):
        again.graft(manifest)
    assert greedy_hashes(again.engine, 5, 3) == before


def test_a_block_has_to_leave_room_and_to_have_tokens(blocks: Blocks) -> None:
    with pytest.raises(WindowOverflow):
        blocks.deposit([1] * (blocks.engine.window - 8))
    with pytest.raises(UsageError):
        blocks.deposit([])
    assert list(blocks.store.block_ids()) == []


def test_cancelled_and_interrupted_deposits_store_nothing(blocks: Blocks, monkeypatch: pytest.MonkeyPatch) -> None:
    from agentkv.engine.base import Cancellation

    cancellation = Cancellation()
    cancellation.cancel()
    with pytest.raises(Cancelled):
        blocks.deposit(MANUAL, cancellation=cancellation)

    def interrupt() -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(blocks.engine, "capture", interrupt)
        with pytest.raises(KeyboardInterrupt):
            blocks.deposit(MANUAL)
    assert list(blocks.store.block_ids()) == []
    assert blocks.engine.tokens == ()
    assert blocks.deposit(MANUAL).created


def test_a_missing_parent_is_named(blocks: Blocks) -> None:
    parent = blocks.deposit(PREFIX).manifest
    child = blocks.deposit(MANUAL, parent=parent).manifest
    blocks.store.remove_block(parent.block_id)
    blocks.store.cache.clear()
    with pytest.raises(UnknownBlock) as caught:
        blocks.graft(child)
    assert caught.value.key == parent.block_id


def test_one_id_has_one_state(blocks: Blocks, tmp_path: Path) -> None:
    elsewhere = Blocks(FakeEngine(), BlockStore(tmp_path / "elsewhere"))
    one, two = blocks.deposit(MANUAL).manifest, elsewhere.deposit(MANUAL).manifest
    assert one == two
    here, there = (sorted((b.store.root / "manifests").rglob("*.json")) for b in (blocks, elsewhere))
    assert [file_sha256(f) for f in here] == [file_sha256(f) for f in there]


def test_states_come_from_ram_the_second_time(blocks: Blocks) -> None:
    manifest = blocks.deposit(MANUAL).manifest
    again = other(blocks)
    first = again.state(manifest)
    assert again.state(manifest) is first
    assert np.array_equal(first.blob, blocks.state(manifest).blob)


def damage(blocks: Blocks, how: str) -> None:
    root = blocks.store.root
    segments = sorted((root / "segments").rglob("*.seg"))
    if how == "lost segment":
        segments[0].unlink()
    elif how == "flipped bit":
        data = bytearray(segments[-1].read_bytes())
        data[-40] ^= 1
        segments[-1].write_bytes(data)
    else:
        for manifest in (root / "manifests").rglob("*.json"):
            manifest.write_bytes(manifest.read_bytes() + b"x")


@pytest.mark.parametrize("how", ["lost segment", "flipped bit", "grown manifest"])
def test_a_repeated_deposit_mends_a_damaged_block(blocks: Blocks, how: str) -> None:
    manifest = blocks.deposit(MANUAL).manifest
    damage(blocks, how)
    again = other(blocks)
    again.deposit(MANUAL)
    mended = other(blocks)
    mended.store.verify(manifest.block_id)
    assert mended.reprove(manifest)


def test_an_inexact_block_is_not_handed_out_unasked(tmp_path: Path) -> None:
    blocks = Blocks(FakeEngine(diverge_after=4), BlockStore(tmp_path))
    blocks.deposit(MANUAL, allow_inexact=True)
    assert not blocks.deposit(MANUAL, allow_inexact=True).created
    with pytest.raises(InexactBlock):
        blocks.deposit(MANUAL)


def test_a_cancellation_during_the_proof_stores_nothing(blocks: Blocks, monkeypatch: pytest.MonkeyPatch) -> None:
    from agentkv.engine.base import Cancellation

    cancellation, capture = Cancellation(), blocks.engine.capture

    def capture_and_cancel() -> object:
        state = capture()
        cancellation.cancel()
        return state

    monkeypatch.setattr(blocks.engine, "capture", capture_and_cancel)
    with pytest.raises(Cancelled):
        blocks.deposit(MANUAL, cancellation=cancellation)
    assert list(blocks.store.block_ids()) == []
