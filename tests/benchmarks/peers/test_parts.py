"""The parts of the benchmark of peers: processes and kills, environments, the other model, drivers and servers."""

from __future__ import annotations

import io
import json
import subprocess
import sys
import types
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from threading import Thread
from typing import Any

import pytest

from agentkv.errors import ModelUnreadable
from tests.benchmarks.peers import altered, environments
from tests.benchmarks.peers.altered import TENSOR, altered_copy
from tests.benchmarks.peers.arm import ARMS, ArmDied, Note, Report, Spec, Step, Task
from tests.benchmarks.peers.drivers import drive_stillwarm
from tests.benchmarks.peers.launch import folder_bytes, launch
from tests.benchmarks.peers.material import material
from tests.benchmarks.peers.slots import ServerRefusal, Slots, evidence_of
from tests.benchmarks.peers.standins import spec as standin

ROOT = Path(__file__).parents[3]


def task(step: Step, folder: Path, spec: Spec = ARMS["agentkv"]) -> Task:
    given = material("fake", ["Refunds take 7 days.\n" * 30], [128], 2, None)
    return Task(spec=spec, step=step, python=sys.executable, folder=folder, steps=4, note=Note(), **given.task(128))


# --- processes ----------------------------------------------------------------------------------------


def test_a_save_is_killed_at_a_number_of_bytes(tmp_path: Path) -> None:
    outcome = launch(task(Step("store", kill_at=1), tmp_path))
    assert outcome.result is None
    assert outcome.code == -9
    assert outcome.killed_at is not None
    assert outcome.killed_at >= 1
    after, undisturbed = (launch(task(Step(phase), tmp_path)).result for phase in ("ask", "uninterrupted"))
    assert after is not None
    assert undisturbed is not None
    assert after.refused is None or after.refused.split(":")[0] in ("UnknownBlock", "StoreUnusable")
    assert after.evidence == undisturbed.evidence != []


def test_a_process_that_ends_itself_is_a_crash(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)
    outcome = launch(task(Step("ask"), tmp_path, standin("aborting", "Aborting")))
    assert outcome.result is None
    assert outcome.code == -6


def test_a_turn_that_is_broken_off_closes_nothing(tmp_path: Path) -> None:
    stored = launch(task(Step("store"), tmp_path)).result
    assert stored is not None
    assert stored.ms["read"] > 0
    assert launch(task(Step("broken"), tmp_path)).result == Report(refused=None)
    assert folder_bytes(tmp_path) > 0


# --- material -----------------------------------------------------------------------------------------


def test_turns_share_no_beginning_and_blocks_are_of_their_length() -> None:
    given = material("fake", ["abc\n"], [64, 300], 20, None)
    assert {n: len(ids) for n, ids in given.blocks.items()} == {64: 64, 300: 300}
    assert len({ids[0] for ids in given.turns}) == 20
    assert given.texts[64].encode() == bytes(given.blocks[64])


# --- environments -------------------------------------------------------------------------------------


def test_no_packages_are_agentkvs_own_interpreter(tmp_path: Path) -> None:
    made = environments.environment((), tmp_path)
    assert made.python == sys.executable
    assert made.record()["shared"]
    assert {one["name"] for one in made.packages} >= {"llama-cpp-python", "diskcache"}


def test_what_pip_says_is_the_reason(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def failing(command: list[str], **_: Any) -> None:
        if "pip" in command:
            raise subprocess.CalledProcessError(1, command, stderr="noise\nERROR: No matching distribution\n")

    monkeypatch.setattr(subprocess, "run", failing)
    made = environments.environment(("nowhere==1",), tmp_path)
    assert made.python is None
    assert made.unavailable == "pip cannot install nowhere==1: ERROR: No matching distribution"


def test_versions_and_hashes_are_those_that_pip_took(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    taken = {"metadata": {"name": "x", "version": "1"}, "download_info": {"archive_info": {"hashes": {"sha256": "ab"}}}}

    def installing(command: list[str], **_: Any) -> None:
        if "--report" in command:
            Path(command[command.index("--report") + 1]).write_text(json.dumps({"install": [taken]}))
        else:
            Path(command[-1]).mkdir(parents=True)

    monkeypatch.setattr(subprocess, "run", installing)
    assert environments.environment(("x==1",), tmp_path).packages == [{"name": "x", "version": "1", "sha256": "ab"}]
    monkeypatch.setattr(subprocess, "run", None)  # found again without pip
    assert environments.environment(("x==1",), tmp_path).packages[0]["sha256"] == "ab"


# --- the other model ----------------------------------------------------------------------------------


def test_the_other_model_differs_in_one_tensor_only(tmp_path: Path) -> None:
    gguf = pytest.importorskip("gguf")
    from tests.benchmarks.tiny import write_tiny

    model = write_tiny(tmp_path / "m.gguf", "llama")
    copy = altered_copy(model, tmp_path / "other")
    assert copy.name == model.name
    assert copy.stat().st_size == model.stat().st_size
    before, after = (
        {tensor.name: bytes(tensor.data.tobytes()) for tensor in gguf.GGUFReader(path).tensors}
        for path in (model, copy)
    )
    assert [name for name in before if before[name] != after[name]] == [TENSOR]
    assert altered_copy(model, tmp_path / "other") == copy


@pytest.mark.parametrize("tensor", ["blk.0.none.weight", "blk.0.attn_q.weight"])
def test_a_model_without_that_vector_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, tensor: str) -> None:
    pytest.importorskip("gguf")
    from tests.benchmarks.tiny import write_tiny

    model = write_tiny(tmp_path / "m.gguf", "llama")
    monkeypatch.setattr(altered, "TENSOR", tensor)
    with pytest.raises(ModelUnreadable, match="tensor"):
        altered_copy(model, tmp_path / "other")
    assert not (tmp_path / "other").exists()


# --- servers and drivers ------------------------------------------------------------------------------


class _Replies(BaseHTTPRequestHandler):
    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["Content-Length"]))
        good = self.path == "/completion"
        data = json.dumps(_COMPLETION if good else {"error": {"message": "no such file"}}).encode()
        self.send_response(200 if good else 400)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, *_: Any) -> None:
        pass


_STEP = {"token": "a", "logprob": -0.25, "top_logprobs": [{"token": "a", "logprob": -0.25}]}
_COMPLETION = {"timings": {"predicted_ms": 0.0, "prompt_n": 7}, "completion_probabilities": [_STEP, _STEP]}


@pytest.fixture
def slots(tmp_path: Path) -> Iterator[Slots]:
    server = HTTPServer(("127.0.0.1", 0), _Replies)
    Thread(target=server.serve_forever, daemon=True).start()
    arm = Slots.__new__(Slots)
    arm.url, arm._processes = f"http://127.0.0.1:{server.server_port}", []
    arm.block, arm.turns, arm.folder = [1, 2], [[3]], tmp_path
    yield arm
    server.shutdown()
    server.server_close()


def test_a_servers_answer_and_its_refusal(slots: Slots) -> None:
    answer = slots.ask(0, 2)
    assert answer.evaluated == 7
    assert answer.first_ms > 0
    assert len(answer.evidence) == 2
    with pytest.raises(ServerRefusal, match="HTTP 400: no such file"):
        slots.restore()


def test_a_server_that_is_gone_does_not_refuse(slots: Slots) -> None:
    slots.url = "http://127.0.0.1:1"
    with pytest.raises(ServerRefusal, match="no answer"):
        slots.restore()
    ended = slots.start([sys.executable, "-c", "raise SystemExit(3)"])
    ended.wait()
    with pytest.raises(ArmDied, match="code 3"):
        slots.restore()
    slots.close()


def test_evidence_is_the_token_and_its_printed_numbers() -> None:
    other = {**_STEP, "top_logprobs": [{"token": "a", "logprob": -0.25000001}]}
    assert evidence_of(_STEP, "top_logprobs") == evidence_of(dict(_STEP), "top_logprobs")
    assert evidence_of(_STEP, "top_logprobs") != evidence_of(other, "top_logprobs")
    assert evidence_of(_STEP, "top_logprobs") != evidence_of({**_STEP, "token": "b"}, "top_logprobs")


class _Server:
    def __init__(self, url: str) -> None:
        self.url = url

    def completion(self, text: str, steps: int, **_: Any) -> dict[str, Any]:
        return {"content": text, "steps": steps}

    def slot_erase(self) -> None: ...

    def slot_restore(self) -> None:
        raise ValueError("damaged")

    def slot_save(self) -> None: ...


class _Session:
    def __init__(self, server: Any, profile: Any, folder: str, *, verify: bool) -> None:
        self.server, self.folder = server, folder

    def ask(self, name: str, text: str, n_predict: int) -> None:
        self.server.completion(text, n_predict)
        self.server.slot_save()

    def restore(self, name: str, *, verify: bool) -> None:
        self.server.slot_restore()


def test_stillwarms_driver_times_its_requests_and_tells_its_errors(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    library = types.ModuleType("stillwarm")
    library.__dict__.update(LlamaServer=_Server, Session=_Session, ServerProfile=dict)
    monkeypatch.setitem(sys.modules, "stillwarm", library)
    settings = {"url": "u", "folder": "f", "model_sha256": "", "window": 64, "flash_attention": False, "verify": False}
    asked = [{"do": "store", "text": "t"}, {"do": "restore"}, {"do": "ask", "text": "t", "steps": 2, "sampler": {}}]
    monkeypatch.setattr(sys, "argv", ["drive", json.dumps(settings)])
    monkeypatch.setattr(sys, "stdin", io.StringIO("".join(json.dumps(one) + "\n" for one in asked)))
    monkeypatch.setattr(sys, "stdout", sys.stdout)
    assert drive_stillwarm.main() == 0
    stored, restored, answered = map(json.loads, capsys.readouterr().out.splitlines())
    assert set(stored["ms"]) == {"completion", "slot_save", "the library itself"}
    assert restored == {"error": "ValueError: damaged"}
    assert answered["answer"] == {"content": "t", "steps": 2}
