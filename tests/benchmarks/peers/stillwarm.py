"""The arm of ``stillwarm``, a library in front of llama-server's slots, by its public calls.

Kept by ``Session.ask`` with nothing to generate, which saves the slot, generates its probe of 64 tokens and writes its
sidecar; brought back by ``Session.restore``, with ``verify`` or without. It takes prompts as text.
"""

from __future__ import annotations

import json
from typing import Any

from tests.benchmarks.peers.arm import Answer, ArmDied, Task
from tests.benchmarks.peers.slots import DRIVERS, GREEDY, ServerRefusal, Slots


class Refused(ServerRefusal):
    """The library has raised an error; its type and message are in the text."""


class Stillwarm(Slots):
    """The server of :class:`Slots`, and the library in a process of its own."""

    def __init__(self, task: Task) -> None:
        super().__init__(task)
        self.block, self.turns = task.block_text, task.turn_texts
        settings = {
            "url": self.url,
            "folder": str(self.folder),
            "model_sha256": task.model_sha256,
            "window": task.window,
            "flash_attention": task.step.setup.flash_attention,
            "verify": bool(dict(task.spec.options).get("verify")),
        }
        driver = str(DRIVERS / "drive_stillwarm.py")
        self._driver = self.start([task.python, "-I", driver, json.dumps(settings)])

    def store(self) -> dict[str, float]:
        ms = self._do("store", text=self.block)["ms"]
        start = ms.pop("completion")
        # One number for two requests: prefill and probe. The prefill was measured in the uninterrupted run.
        return {"read and probe": start, **ms}

    def restore(self) -> dict[str, float]:
        ms: dict[str, float] = self._do("restore")["ms"]
        return ms

    def ask(self, turn: int, steps: int) -> Answer:
        reply = self._do("ask", text=self.block + self.turns[turn], steps=max(steps, 1), sampler=GREEDY)
        return self.answer(reply["wall_ms"], reply["answer"])

    def _do(self, what: str, **given: str | int | dict[str, Any]) -> dict[str, Any]:
        assert self._driver.stdin is not None
        assert self._driver.stdout is not None
        try:
            self._driver.stdin.write(json.dumps({"do": what, **given}) + "\n")
            self._driver.stdin.flush()
        except BrokenPipeError:
            pass  # it has ended, and its code says how
        line = self._driver.stdout.readline()
        if not line:
            raise ArmDied(f"the driver of stillwarm ended with code {self._driver.wait()}")
        reply: dict[str, Any] = json.loads(line)
        if "error" in reply:
            self.check_alive()
            raise Refused(reply["error"])
        return reply
