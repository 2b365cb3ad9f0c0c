"""The arm of llama-server's slots: ``POST /slots/0?action=save`` and ``restore``; and the server for the others.

The server gives no logits, so its evidence of a step is the token and the five likeliest with their log-probabilities
as it prints them. ``first_ms`` is the request's time less what the server says it took to generate, after the first
token was known.
"""

from __future__ import annotations

import json
import subprocess
import time
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any

from agentkv.io.hashing import canonical_json, sha256
from tests.benchmarks.peers.arm import WARM_UP, Answer, ArmDied, Note, Task

DRIVERS = Path(__file__).parent / "drivers"
GREEDY: dict[str, Any] = {"temperature": 0, "top_k": 1, "seed": 42, "ignore_eos": True, "n_probs": 5}
_TIMEOUT_S = 900.0
_FILE = "block.bin"


class ServerRefusal(RuntimeError):
    """The server has answered with an error; it never leaves the arm's process."""


class Slots:
    """A server of its own, one slot; the block is a list of token ids."""

    def __init__(self, task: Task) -> None:
        self.folder = task.folder
        self.folder.mkdir(parents=True, exist_ok=True)
        self.block: Any = task.block
        self.turns: list[Any] = task.turns
        self._processes: list[subprocess.Popen[str]] = []
        settings = task.model_dump(include={"model", "window", "threads"}) | task.step.setup.model_dump()
        settings["folder"] = str(self.folder)
        self.server = self.start([task.python, "-I", str(DRIVERS / "serve.py"), json.dumps(settings)])
        assert self.server.stdout is not None
        self.url = self.server.stdout.readline().strip()
        if not self.url:
            raise ArmDied(f"llama-server did not start (code {self.server.wait()}); its log is above")

    @property
    def pids(self) -> tuple[int, ...]:
        return tuple(process.pid for process in self._processes)

    def start(self, command: list[str], stderr: int | None = None) -> subprocess.Popen[str]:
        """A process that ends with this arm."""
        pipe = subprocess.PIPE
        process = subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=stderr, text=True)
        self._processes.append(process)
        return process

    def request(self, path: str, body: dict[str, Any] | None, url: str | None = None) -> Any:
        """The answer's JSON. Raises ServerRefusal, and ArmDied if the server is gone."""
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request((url or self.url) + path, data, {"Content-Type": "application/json"})
        try:
            with urllib.request.urlopen(request, timeout=_TIMEOUT_S) as reply:
                return json.loads(reply.read())
        except urllib.error.HTTPError as error:
            text = error.read().decode("utf-8", "replace")
            raise ServerRefusal(f"HTTP {error.code}: {_message(text)}") from None
        except (OSError, ValueError) as error:
            time.sleep(0.2)  # a process that has just crashed is not waited for yet
            self.check_alive()
            raise ServerRefusal(f"no answer: {error}") from error

    def check_alive(self) -> None:
        """Raises ArmDied if a process of this arm has ended."""
        for process in self._processes:
            code = process.poll()
            if code is not None:
                raise ArmDied(f"the server ended with {_ending(code)}")

    def completion(self, prompt: Any, steps: int) -> dict[str, Any]:
        """A greedy request to the slot, which goes on from the longest common beginning of it and the prompt."""
        body = {"prompt": prompt, "n_predict": steps, "cache_prompt": True, "id_slot": 0, "return_tokens": True}
        answer: dict[str, Any] = self.request("/completion", {**body, **GREEDY})
        return answer

    def read(self) -> float:
        return self._timed(lambda: self.completion(self.block, 0))

    def store(self) -> dict[str, float]:
        return {"read": self.read(), "save": self._timed(lambda: self._slot("save"))}

    def restore(self) -> dict[str, float]:
        return {"restore": self._timed(lambda: self._slot("restore"))}

    def ask(self, turn: int, steps: int) -> Answer:
        start = time.perf_counter()
        answer = self.completion(self.block + self.turns[turn], max(steps, 1))
        return self.answer((time.perf_counter() - start) * 1e3, answer)

    def whole(self, turn: int, steps: int) -> Answer:
        self.forget()
        return self.ask(turn, steps)

    def answer(self, wall_ms: float, answer: dict[str, Any]) -> Answer:
        """An answer of ``/completion``."""
        timings = answer["timings"]
        evidence = [evidence_of(step, "top_logprobs") for step in answer["completion_probabilities"]]
        first_ms, evaluated = wall_ms - float(timings["predicted_ms"]), int(timings["prompt_n"])
        return Answer(first_ms=first_ms, evaluated=evaluated, evidence=evidence)

    def forget(self) -> None:
        self.completion(WARM_UP, 1)

    def digest(self) -> str | None:
        return None

    def note(self) -> Note:
        return Note()

    def close(self) -> None:
        for process in reversed(self._processes):
            process.kill()
            process.wait()
            for pipe in (process.stdin, process.stdout):
                if pipe is not None:
                    pipe.close()

    def _slot(self, action: str) -> Any:
        return self.request(f"/slots/0?action={action}", {"filename": _FILE})

    def _timed(self, work: Any) -> float:
        start = time.perf_counter()
        work()
        return (time.perf_counter() - start) * 1e3


def evidence_of(step: dict[str, Any], likeliest: str) -> str:
    """The digest of one generated token: its text, and the likeliest tokens with their printed log-probabilities."""
    others = [[one.get("token"), repr(one.get("logprob"))] for one in step.get(likeliest, [])]
    return sha256(canonical_json([step.get("token"), repr(step.get("logprob")), others]))


def _message(text: str) -> str:
    try:
        found = json.loads(text)
        return str(found["error"]["message"])
    except (ValueError, KeyError, TypeError):
        return text[:200]


def _ending(code: int) -> str:
    return f"signal {-code}" if code < 0 else f"code {code}"
