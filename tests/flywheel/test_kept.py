"""Kept tasks: found by identity, a changed file is an error, and a check of the store knows them."""

from __future__ import annotations

from pathlib import Path

import pytest

from agentkv import BlockStore
from agentkv.errors import CorruptBlock
from agentkv.flywheel.files import entries
from agentkv.flywheel.kept import Kept, KeptTasks
from agentkv.store.check import check

from .scripted import crates


def test_a_task_is_kept_by_its_identity(tmp_path: Path) -> None:
    kept = Kept(task=crates(), parameters={"crates": 37, "kg": 46})
    KeptTasks(tmp_path).keep(kept)
    again = KeptTasks(tmp_path)
    assert again.find(crates().task_id) == kept
    assert again.find(crates(prompt="another").task_id) is None
    assert list(again.all()) == [kept]
    again.keep(Kept(task=crates(check=None), parameters={}))
    assert [one.task.check for one in again.all()] == [None]


def test_a_changed_file_is_found_and_not_used(tmp_path: Path) -> None:
    with BlockStore(tmp_path / "store") as store:
        KeptTasks(store.root).keep(Kept(task=crates(), parameters={}))
        ((path, _, own),) = entries(store.root)
        assert own
        assert not check(store.files).findings
        data = bytearray(path.read_bytes())
        for at in (10, 40, len(data) - 3):
            changed = bytearray(data)
            changed[at] ^= 1
            path.write_bytes(changed)
            with pytest.raises(CorruptBlock):
                KeptTasks(store.root).find(crates().task_id)
            assert len(check(store.files).findings) == 1
        path.write_bytes(data)
        other = path.parent.parent / "00" / ("0" * 64 + ".json")
        other.parent.mkdir()
        other.write_bytes(data)
        with pytest.raises(CorruptBlock):
            KeptTasks(store.root).find("0" * 64)
