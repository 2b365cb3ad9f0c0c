"""Suggested models: chosen by memory, listed by the command, and pulled from a hub that this test serves itself."""

from __future__ import annotations

import hashlib
import http.server
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import orjson
import pytest
from typer.testing import CliRunner

from agentkv.cli import app
from agentkv.models.suggest import SUGGESTIONS, best
from tests.models.packages import MODEL

GB = 10**9


@pytest.mark.parametrize(
    ("memory", "gpu", "label"),
    [
        (None, True, "Qwen3 0.6B, Q8_0"),
        (GB // 2, True, None),
        (3 * GB // 2, False, "Llama 3.2 1B, Q4_K_M"),
        (3 * GB, False, "Llama 3.2 3B, Q4_K_M"),
        (64 * GB, False, "Qwen3 4B, Q4_K_M"),
        (64 * GB, True, "Qwen3 8B, Q4_K_M"),
    ],
)
def test_the_largest_that_fits(memory: int | None, gpu: bool, label: str | None) -> None:
    chosen = best(memory, gpu=gpu)
    assert (chosen.label if chosen else None) == label


def test_the_list_is_by_size_with_a_licence_and_a_file_each() -> None:
    assert [one.size for one in SUGGESTIONS] == sorted(one.size for one in SUGGESTIONS)
    assert all(one.licence and one.file.endswith(".gguf") and one.repository.count("/") == 1 for one in SUGGESTIONS)
    assert len({one.spec for one in SUGGESTIONS}) == len(SUGGESTIONS)


@pytest.fixture
def hub() -> Iterator[str]:
    """A hub on loopback that has the small test model under every name; its address."""
    etag, commit = hashlib.sha256(MODEL).hexdigest(), "a" * 40

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_HEAD(self) -> None:
            self._answer(b"")

        def do_GET(self) -> None:
            self._answer(MODEL)

        def _answer(self, body: bytes) -> None:
            is_file = "/resolve/" in self.path
            self.send_response(200 if is_file else 404)
            self.send_header("ETag", f'"{etag}"')
            self.send_header("X-Repo-Commit", commit)
            self.send_header("Content-Length", str(len(MODEL) if is_file else 0))
            self.end_headers()
            self.wfile.write(body if is_file else b"")

        def log_message(self, format: str, *args: object) -> None:
            pass

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    thread.join()
    server.server_close()


def test_what_is_suggested_can_be_pulled(hub: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("huggingface_hub", reason="the extra `hf` is not installed")
    monkeypatch.setattr("agentkv.io.ram.available_memory", lambda: 4 * GB)
    found = orjson.loads(CliRunner().invoke(app, ["models", "suggest", "--json"]).stdout)
    (spec,) = [one["spec"] for one in found["models"] if one["suggested"]]
    screen = CliRunner().invoke(app, ["models", "suggest"]).stdout
    assert f"agentkv models pull {spec}" in screen
    assert screen.count("too much") == 1
    environment = os.environ | {"HF_ENDPOINT": hub, "HF_HOME": str(tmp_path), "HF_HUB_DISABLE_XET": "1"}
    environment |= {"no_proxy": "127.0.0.1", "NO_PROXY": "127.0.0.1"}
    command = [sys.executable, "-m", "agentkv", "models", "pull", spec, "--json"]
    done = subprocess.run(command, env=environment, capture_output=True)
    assert done.returncode == 0, done.stderr.decode()
    pulled = orjson.loads(done.stdout)
    assert (pulled["name"], pulled["sha256"]) == (spec, hashlib.sha256(MODEL).hexdigest())
    assert Path(pulled["path"]).read_bytes() == MODEL
