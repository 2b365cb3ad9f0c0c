"""A stronger teacher: any OpenAI-compatible endpoint that answers ``POST …/chat/completions``.

Asked over the standard library's HTTP client; nothing is sent but the task's text, its parameters and the teacher's own
failed programs. What comes back is a proposal like any other: it is run and checked here. The key is sent as a bearer
token and is in no record and no error. Refuses to follow a redirect, which would take the key elsewhere.
"""

from __future__ import annotations

import json
import urllib.error
import urllib.request
from collections.abc import Sequence
from dataclasses import dataclass, field
from http.client import HTTPException
from typing import Any
from urllib.parse import urlsplit

from agentkv.engine.base import Cancellation
from agentkv.errors import Cancelled, EndpointFailed, UsageError
from agentkv.flywheel.solution import Provenance
from agentkv.flywheel.solvers import Attempt, Tried, repair_message, task_message
from agentkv.flywheel.source import candidate_in
from agentkv.flywheel.task import Task

_MAX_BYTES = 8 << 20


class _NoRedirect(urllib.request.HTTPRedirectHandler):
    def redirect_request(self, *_: Any) -> None:
        return None


@dataclass(frozen=True)
class Endpoint:
    """The model ``model`` at ``url`` (as ``https://host/v1``), ``n`` attempts a task, each shown the one before.

    ``budget``: generated tokens a task, as the endpoint counts them; ``timeout_s`` of one request. Raises UsageError
    for a URL that is not http or https.
    """

    url: str
    model: str
    key: str = field(default="", repr=False)
    n: int = 2
    budget: int = 8192
    max_new: int = 2048
    seed: int = 0
    timeout_s: float = 120.0

    def __post_init__(self) -> None:
        parts = urlsplit(self.url)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise UsageError(f"{self.url!r} is no http or https address of an endpoint")

    @property
    def name(self) -> str:
        """See :class:`agentkv.flywheel.solvers.Solver`."""
        return f"endpoint {self.model} at {urlsplit(self.url).hostname}"

    def attempt(self, task: Task, earlier: Sequence[Tried], cancellation: Cancellation | None = None) -> Attempt | None:
        """See :class:`agentkv.flywheel.solvers.Solver`; a request under way is waited for. Raises EndpointFailed."""
        left = self.budget - sum(tried.attempt.provenance.tokens for tried in earlier)
        if len(earlier) >= self.n or left <= 0:
            return None
        if cancellation is not None and cancellation.requested:
            raise Cancelled("a request to an endpoint")
        message = repair_message(task, earlier[-1]) if earlier else task_message(task)
        seed, max_new = self.seed + len(earlier), min(left, self.max_new)
        text, tokens = self._ask(message, seed, max_new)
        provenance = Provenance(solver=self.name, seeds=(seed,), tokens=tokens)
        return Attempt(candidate_in(text), provenance, message, text)

    def _ask(self, message: str, seed: int, max_new: int) -> tuple[str, int]:
        body = {
            "model": self.model,
            "messages": [{"role": "user", "content": message}],
            "max_tokens": max_new,
            "temperature": 0,
            "seed": seed,
        }
        headers = {"Content-Type": "application/json", **({"Authorization": f"Bearer {self.key}"} if self.key else {})}
        request = urllib.request.Request(
            f"{self.url.rstrip('/')}/chat/completions", json.dumps(body).encode(), headers, method="POST"
        )
        try:
            with urllib.request.build_opener(_NoRedirect).open(request, timeout=self.timeout_s) as response:
                data = response.read(_MAX_BYTES + 1)
        except urllib.error.HTTPError as error:
            with error:
                raise EndpointFailed(self.url, f"HTTP {error.code} {error.reason}", error.code) from error
        except (OSError, HTTPException) as error:
            reason = getattr(error, "reason", None) or error
            raise EndpointFailed(self.url, str(reason) or type(error).__name__) from error
        return self._reply(data)

    def _reply(self, data: bytes) -> tuple[str, int]:
        if len(data) > _MAX_BYTES:
            raise EndpointFailed(self.url, f"the answer is larger than {_MAX_BYTES:,} bytes")
        try:
            reply = json.loads(data)
            text = reply["choices"][0]["message"]["content"]
            tokens = reply.get("usage", {}).get("completion_tokens")
        except (ValueError, LookupError, TypeError, AttributeError, RecursionError) as error:
            raise EndpointFailed(self.url, "the answer is no chat completion") from error
        if not isinstance(text, str):
            raise EndpointFailed(self.url, "the answer holds no text")
        text = text.encode("utf-8", "replace").decode()
        return text, tokens if isinstance(tokens, int) and tokens >= 0 else max(1, len(text) // 3)
