"""Drives the library ``stillwarm``: a line of JSON in, a line of JSON out. Run by path in its own environment.

``drive_stillwarm.py SETTINGS``: JSON with url, folder, model_sha256, window, flash_attention, verify. Requests:
``{"do": "store", "text": …}``, ``{"do": "restore"}``, ``{"do": "ask", "text": …, "steps": …, "sampler": …}``.
Whatever it raises is answered as ``{"error": …}``.
"""

from __future__ import annotations

import importlib
import json
import sys
import time
from typing import Any

_SESSION = "block"


class Driver:
    """One session, with the time of each request to the server noted."""

    def __init__(self, settings: dict[str, Any]) -> None:
        library = importlib.import_module("stillwarm")
        self._ms: dict[str, float] = {}
        self._server = library.LlamaServer(settings["url"])
        profile = library.ServerProfile(
            model_sha256=settings["model_sha256"],
            flash_attn="on" if settings["flash_attention"] else "off",
            cache_type_k="f16",
            cache_type_v="f16",
            swa_full=False,
            ctx_size=settings["window"],
        )
        self._session = library.Session(self._server, profile, settings["folder"], verify=settings["verify"])
        self._verify = settings["verify"]
        for name in ("slot_erase", "slot_restore", "slot_save", "completion"):
            setattr(self._server, name, self._timed(name, getattr(self._server, name)))

    def _timed(self, name: str, call: Any) -> Any:
        def timing(*args: Any, **given: Any) -> Any:
            start = time.perf_counter()
            try:
                return call(*args, **given)
            finally:
                self._ms[name] = self._ms.get(name, 0.0) + (time.perf_counter() - start) * 1e3

        return timing

    def store(self, text: str) -> dict[str, Any]:
        start = time.perf_counter()
        self._session.ask(_SESSION, text, n_predict=0)
        return {"ms": self._steps(start)}

    def restore(self) -> dict[str, Any]:
        start = time.perf_counter()
        self._session.restore(_SESSION, verify=self._verify)
        return {"ms": self._steps(start)}

    def ask(self, text: str, steps: int, sampler: dict[str, Any]) -> dict[str, Any]:
        start = time.perf_counter()
        answer = self._server.completion(text, steps, sampler=sampler)
        return {"wall_ms": (time.perf_counter() - start) * 1e3, "answer": answer}

    def _steps(self, start: float) -> dict[str, float]:
        whole, ms = (time.perf_counter() - start) * 1e3, dict(self._ms)
        self._ms.clear()
        return {**ms, "the library itself": whole - sum(ms.values())}


def main() -> int:
    out, sys.stdout = sys.stdout, sys.stderr
    driver = Driver(json.loads(sys.argv[1]))
    for line in sys.stdin:
        request = json.loads(line)
        try:
            reply = getattr(driver, request.pop("do"))(**request)
        except Exception as error:
            reply = {"error": f"{type(error).__name__}: {error}"}
        out.write(json.dumps(reply) + "\n")
        out.flush()
    return 0


if __name__ == "__main__":
    sys.exit(main())
