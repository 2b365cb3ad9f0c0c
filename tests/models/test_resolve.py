"""Names, paths and hub specs."""

from __future__ import annotations

import hashlib
import sys
import types
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from agentkv import models
from agentkv.errors import (
    ModelUnreadable,
    PullFailed,
    UnknownModel,
    UsageError,
)
from tests.models.packages import (
    MODEL,
    NAME,
    Index,
    left_in,
    tiny_gguf,
)


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
