"""The arm of ``hearth-llm``, a proxy in front of llama-server that saves its slot after each chat request.

It keys snapshots by messages, so here the block is a user's message, the reply one token, and the turn the next
message: a few more tokens than the other arms' prompts, those of the chat template. It restores within a request; a
snapshot that the server refuses it drops, and prefills again. ``forget`` goes to the server itself, past the proxy.
"""

from __future__ import annotations

import socket
import subprocess
import time
from pathlib import Path
from typing import Any

from tests.benchmarks.peers.arm import Answer, ArmDied, Note, Task
from tests.benchmarks.peers.slots import Slots, evidence_of

_CHAT = "/v1/chat/completions"
_SAMPLER: dict[str, Any] = {"temperature": 0, "top_k": 1, "seed": 42, "ignore_eos": True}
_START_S, _SAVE_S = 30.0, 60.0


class Hearth(Slots):
    """The server of :class:`Slots`, and the proxy in a process of its own."""

    def __init__(self, task: Task) -> None:
        super().__init__(task)
        self.block, self.turns = task.block_text, task.turn_texts
        self._reply: str | None = task.note.reply
        self._stats: dict[str, Any] = {}
        self._past_the_proxy = False
        port = _free_port()
        self._proxy = f"http://127.0.0.1:{port}"
        command = [str(Path(task.python).with_name("hearth")), "serve", "--upstream", self.url]
        where = ["--port", str(port), "--cache-dir", str(self.folder)]
        self.start([*command, *where], stderr=subprocess.DEVNULL)
        self._until(lambda: self.request("/hearth/stats", None, self._proxy), _START_S, "the proxy did not start")

    def read(self) -> float:
        return self._timed(lambda: self._open(self.url))

    def store(self) -> dict[str, float]:
        read = self._timed(lambda: self._open(self._proxy))
        self._until(lambda: self._proxy_stats()["last_save_ms"], _SAVE_S, "the snapshot was not saved")
        return {"read": read, "save": float(self._stats["last_save_ms"])}

    def restore(self) -> dict[str, float]:
        return {}

    def ask(self, turn: int, steps: int) -> Answer:
        """Through the proxy, unless this process has read the block past it: that is the uninterrupted run."""
        known, self._past_the_proxy = self._past_the_proxy, False
        start = time.perf_counter()
        answer = self._chat(self.url if known else self._proxy, self._messages(turn), max(steps, 1))
        wall_ms = (time.perf_counter() - start) * 1e3
        if not known:
            self._proxy_stats()
        timings = answer["timings"]
        evidence = [evidence_of(step, "top_logprobs") for step in answer["choices"][0]["logprobs"]["content"]]
        first_ms, evaluated = wall_ms - float(timings["predicted_ms"]), int(timings["prompt_n"])
        return Answer(first_ms=first_ms, evaluated=evaluated, evidence=evidence)

    def note(self) -> Note:
        restored = self._stats.get("last_restore_ms")
        steps = {} if restored is None else {"restore": float(restored)}
        return Note(reply=self._reply, steps=steps, keep_ms=float(self._stats.get("last_save_ms") or 0.0))

    def _open(self, url: str) -> None:
        answer = self._chat(url, [{"role": "user", "content": self.block}], 1)
        self._reply = str(answer["choices"][0]["message"]["content"])
        self._past_the_proxy = url == self.url

    def _messages(self, turn: int) -> list[dict[str, str]]:
        reply = self._reply or ""
        texts = (("user", self.block), ("assistant", reply), ("user", self.turns[turn]))
        return [{"role": role, "content": text} for role, text in texts]

    def _chat(self, url: str, messages: list[dict[str, str]], steps: int) -> dict[str, Any]:
        body = {"messages": messages, "max_tokens": steps, "logprobs": True, "top_logprobs": 5, **_SAMPLER}
        if url == self.url:
            body |= {"id_slot": 0, "cache_prompt": True}
        answer: dict[str, Any] = self.request(_CHAT, body, url)
        return answer

    def _proxy_stats(self) -> dict[str, Any]:
        """The proxy's figures; it answers them while a snapshot is being saved."""
        stats: dict[str, Any] = self.request("/hearth/stats", None, self._proxy)
        self._stats |= stats
        return self._stats

    def _until(self, look: Any, limit_s: float, otherwise: str) -> None:
        end = time.monotonic() + limit_s
        while True:
            self.check_alive()
            try:
                look()
                return
            except ArmDied:
                raise
            except Exception as error:  # not up yet, or not saved yet
                if time.monotonic() > end:
                    raise ArmDied(f"{otherwise}: {error}") from error
            time.sleep(0.02)


def _free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        port: int = found.getsockname()[1]
    return port
