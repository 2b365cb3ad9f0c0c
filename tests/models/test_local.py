"""The model folder, and digests that are remembered."""

from __future__ import annotations

import os
from pathlib import Path

import orjson
import pytest

from agentkv import models
from agentkv.errors import (
    ModelHashMismatch,
    ModelUnreadable,
    UnknownModel,
)
from agentkv.models import local
from tests.models.packages import (
    MODEL,
    NAME,
    Index,
    flip,
)


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
