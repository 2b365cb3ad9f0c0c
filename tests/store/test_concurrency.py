"""Several processes and threads on one store (B11)."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from pathlib import Path

import numpy as np
import pytest

from agentkv.store.catalog import BlockStore
from tests.store.blocks import block, named, temporaries

REPOSITORY = Path(__file__).resolve().parents[2]

WRITER = """
import sys
from agentkv.store.catalog import BlockStore
from tests.store.blocks import block, named
same = block(list(range(12)))
with BlockStore(sys.argv[1]) as store:
    print("ready", flush=True)
    sys.stdin.readline()
    for step in range(15):
        other = block([100 + step % 4])
        for manifest, segments in (same, other):
            store.put(manifest, segments)
            store.set_name(named(manifest, "one-name"))
            store.verify(manifest.block_id)
            assert store.name("skill", "one-name", manifest.fingerprint.id) is not None
        if step % 5 == 4:
            store.collect(min_age_s=3600.0)
"""


def test_four_processes_depositing_the_same_content(tmp_path: Path) -> None:
    command = [sys.executable, "-c", WRITER, str(tmp_path / "store")]
    processes = [
        subprocess.Popen(
            command,
            cwd=REPOSITORY,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for _ in range(4)
    ]
    for process in processes:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
    ends = [process.communicate("go\n", timeout=60) for process in processes]
    assert [process.returncode for process in processes] == [0] * 4, ends
    expected = {block(list(range(12)))[0].block_id} | {block([100 + step])[0].block_id for step in range(4)}
    with BlockStore(tmp_path / "store", create=False) as store:
        assert set(store.block_ids()) == expected
        for block_id in expected:
            store.verify(block_id)
        assert len(store.names()) == 1
        assert temporaries(store.root) == []
        assert store.collect(min_age_s=0.0).segments == 0


def test_threads_deposit_read_and_fail_beside_each_other(tmp_path: Path) -> None:
    store = BlockStore(tmp_path / "store")
    errors: list[BaseException] = []

    def work(offset: int) -> None:
        try:
            for step in range(12):
                manifest, segments = block([(step + offset) % 5, 1, 2, 3, 4, 5])
                store.put(manifest, segments)
                check = {ref.sha256: np.zeros(ref.n_bytes, np.uint8) for ref in manifest.segments}
                store.read_into(manifest, lambda ref, check=check: check[ref.sha256])  # type: ignore[misc]
                assert {key: raw.tobytes() for key, raw in check.items()} == segments
                with pytest.raises(ZeroDivisionError):
                    store.put(*failing(offset))
        except BaseException as error:
            errors.append(error)

    def failing(offset: int):  # type: ignore[no-untyped-def]
        manifest, segments = block([900 + offset, 1, 2, 3, 4])

        def source(ref):  # type: ignore[no-untyped-def]
            if ref.start == 4:
                raise ZeroDivisionError
            return segments[ref.sha256]

        return manifest, source

    threads = [threading.Thread(target=work, args=(offset,)) for offset in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert errors == []
    assert len(list(store.block_ids())) == 5
    assert store.collect(min_age_s=0.0).segments == 0, "failed deposits leave no segments"


def test_a_rename_refused_three_times_is_tried_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = BlockStore(tmp_path / "store")
    refused: list[object] = []
    real = os.replace

    def replace(source: object, target: object) -> None:
        if len(refused) < 3:
            refused.append(target)
            raise PermissionError(13, "Access is denied")
        real(source, target)  # type: ignore[arg-type]

    monkeypatch.setattr("os.replace", replace)
    manifest, segments = block([1])
    assert store.put(manifest, segments) is True
    store.set_name(named(manifest))
    assert store.verify(manifest.block_id) == manifest
    assert temporaries(store.root) == []
    assert len(refused) == 3
