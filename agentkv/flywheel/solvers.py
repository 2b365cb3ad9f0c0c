"""Solvers: who proposes candidates for a task: the local model, a file, an endpoint.

A solver is asked for its next attempt and shown what became of the earlier ones; it keeps no state itself, so a run can
be interrupted and resumed anywhere. It sees the task's text, its parameters, and how its own attempts failed, never
the check's expected answers.

:class:`Endpoint` is a stronger teacher: any OpenAI-compatible ``POST …/chat/completions``. Nothing is sent but what a
solver sees. The key is sent as a bearer token and is in no record and no error; redirects are not followed, since they
would take the key elsewhere.
"""

from __future__ import annotations

import json
import re
import urllib.error
import urllib.request
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from http.client import HTTPException
from pathlib import Path
from typing import Any, Protocol
from urllib.parse import urlsplit

from pydantic import ValidationError

from agentkv.engine.base import Cancellation, Sampling
from agentkv.engine.generate import MAX_NEW
from agentkv.errors import Cancelled, EndpointFailed, InvalidTask, UsageError
from agentkv.flywheel import values
from agentkv.flywheel.solution import Program, Provenance, Text
from agentkv.flywheel.source import candidate_in
from agentkv.flywheel.task import Task, first_fault, read_file
from agentkv.memory.memory import AgentMemory

INSTRUCTION = (
    "Write a Python program that computes the answer. Put the task's values into PARAMETERS and define a function "
    "solve that takes them by name and returns the answer. Do not print. Use only the standard library.\n"
    "For example, for 'What do 4 pens at 3 dollars each cost?':\n"
    '```python\nPARAMETERS = {"price": 3, "pieces": 4}\n\ndef solve(price, pieces):\n    return price * pieces\n```'
)
_FILE_BYTES = 64 << 20
_SHOWN = 1500


@dataclass(frozen=True)
class Attempt:
    """What a solver proposes. ``candidate``: None if the reply ``generated`` holds none.

    ``prompt``: what the model was asked; ``provenance.tokens``: how many tokens it generated.
    """

    candidate: Program | Text | None
    provenance: Provenance
    prompt: str
    generated: str


@dataclass(frozen=True)
class Tried:
    """An attempt and its result; ``traceback`` is the program's own."""

    attempt: Attempt
    verdict: str
    reason: str
    traceback: str = ""


class Solver(Protocol):
    """Proposes candidates."""

    @property
    def name(self) -> str:
        """By which its attempts are known in records."""
        ...

    def attempt(self, task: Task, earlier: Sequence[Tried], cancellation: Cancellation | None = None) -> Attempt | None:
        """The next attempt after its own ``earlier`` ones; None if it has no more. Raises what its source raises."""
        ...


class _Bounded(Protocol):
    @property
    def n(self) -> int: ...
    @property
    def budget(self) -> int: ...
    @property
    def max_new(self) -> int: ...


def _room(solver: _Bounded, earlier: Sequence[Tried]) -> int:
    """Tokens that a solver's next attempt may generate; 0 if it has no more attempts or no budget."""
    left = solver.budget - sum(tried.attempt.provenance.tokens for tried in earlier)
    return max(0, min(left, solver.max_new)) if len(earlier) < solver.n else 0


def task_message(task: Task) -> str:
    """The task as a solver reads it."""
    given = ""
    if task.parameters:
        given = f"\nsolve is called with these values: {json.dumps(task.parameters, ensure_ascii=False)}"
    return f"{INSTRUCTION}\n\nTask: {task.prompt.strip()}{given}"


def repair_message(task: Task, tried: Tried) -> str:
    """The task with a program that failed and how it failed."""
    error = (tried.traceback.strip() or tried.reason)[-_SHOWN:]
    source = tried.attempt.candidate.source if isinstance(tried.attempt.candidate, Program) else tried.attempt.generated
    shown = source.strip()[:4000]
    fence = "`" * max([3, *(len(run) + 1 for run in re.findall(r"`{3,}", shown))])
    return (
        f"{task_message(task)}\n\nThis program is wrong:\n{fence}python\n{shown}\n{fence}\n"
        f"What happened: {error}\nWrite the whole corrected program."
    )


@dataclass(frozen=True)
class BestOfN:
    """The local model writes ``n`` programs at most, within ``budget`` generated tokens in all, ``max_new`` tokens
    each.

    The first is greedy, the others are drawn at ``temperature`` and ``top_p`` (as in :class:`~agentkv.Sampling`) with
    the seeds ``seed`` + 1, + 2, …
    """

    memory: AgentMemory
    n: int = 5
    budget: int = 4096
    max_new: int = MAX_NEW
    temperature: float = 0.8
    top_p: float = 0.95
    seed: int = 0

    @property
    def name(self) -> str:
        """See :class:`Solver`."""
        return f"best-of-{self.n} {self.memory.engine.info.name}"

    def attempt(self, task: Task, earlier: Sequence[Tried], cancellation: Cancellation | None = None) -> Attempt | None:
        """See :class:`Solver`."""
        max_new = _room(self, earlier)
        return self._ask(self._message(task, earlier), len(earlier), max_new, cancellation) if max_new else None

    def _message(self, task: Task, earlier: Sequence[Tried]) -> str:
        return task_message(task)

    def _ask(self, message: str, number: int, max_new: int, cancellation: Cancellation | None) -> Attempt:
        seed = self.seed + number
        sampling = Sampling(temperature=self.temperature, top_p=self.top_p, seed=seed) if number else Sampling()
        turn = self.memory.ask(message, skill=None, max_new=max_new, sampling=sampling, cancellation=cancellation)
        return Attempt(
            candidate_in(turn.text),
            Provenance(
                solver=self.name,
                fingerprint_id=self.memory.blocks.fingerprint.id,
                seeds=(seed,),
                tokens=turn.tokens.generated,
            ),
            message,
            turn.text,
        )


@dataclass(frozen=True)
class SelfRepair(BestOfN):
    """The local model writes a program, is shown how it failed, and corrects it, ``n`` attempts in all."""

    @property
    def name(self) -> str:
        """See :class:`Solver`."""
        return f"self-repair-{self.n} {self.memory.engine.info.name}"

    def _message(self, task: Task, earlier: Sequence[Tried]) -> str:
        return repair_message(task, earlier[-1]) if earlier else task_message(task)


@dataclass(frozen=True)
class FromFile:
    """Solutions that a person or another program has written, in a file of JSON lines.

    Each line has ``id`` (the task's), ``program`` or ``text``, and optionally ``parameters`` and ``by`` (who wrote it).
    """

    path: Path
    entries: Mapping[str, tuple[Attempt, ...]] = field(default_factory=dict)

    @classmethod
    def read(cls, path: Path) -> FromFile:
        """Read the file. Raises InvalidTask with the line."""
        data = read_file(path, _FILE_BYTES)
        entries: dict[str, tuple[Attempt, ...]] = {}
        for number, line in enumerate(data.split(b"\n"), 1):
            if line.strip():
                identity, attempt = _entry(path, number, line)
                entries[identity] = (*entries.get(identity, ()), attempt)
        return cls(path, entries)

    @property
    def name(self) -> str:
        """See :class:`Solver`."""
        return f"file {self.path.name}"

    def attempt(self, task: Task, earlier: Sequence[Tried], cancellation: Cancellation | None = None) -> Attempt | None:
        """See :class:`Solver`."""
        known = self.entries.get(task.id, ())
        return known[len(earlier)] if len(earlier) < len(known) else None


def _entry(path: Path, number: int, line: bytes) -> tuple[str, Attempt]:
    try:
        found: Any = values.decode(line)
        if not isinstance(found, dict) or not isinstance(found.get("id"), str):
            raise ValueError("an object with a text `id` is wanted")
        unknown = sorted(found.keys() - {"id", "program", "text", "parameters", "by"})
        if unknown or ("program" in found) == ("text" in found):
            raise ValueError(f"it has to hold `program` or `text`{f', and not {unknown[0]}' if unknown else ''}")
        candidate: Program | Text
        if "program" in found:
            candidate = Program(source=found["program"], parameters=found.get("parameters", {}))
        else:
            candidate = Text(text=found["text"])
        by = Provenance(solver=f"file {path.name}", note=str(found.get("by", "")))
    except ValidationError as error:
        raise InvalidTask(path, first_fault(error), number) from error
    except ValueError as error:
        raise InvalidTask(path, str(error), number) from error
    return found["id"], Attempt(candidate, by, "", "")


# --- an endpoint ----------------------------------------------------------------------------------

_MAX_BYTES = 8 << 20


class _NoRedirect(urllib.request.HTTPRedirectHandler):
    def redirect_request(self, *_: Any) -> None:
        return None


@dataclass(frozen=True)
class Endpoint:
    """The model ``model`` at ``url`` (as ``https://host/v1``): ``n`` attempts a task, each shown the previous one.

    ``budget``: generated tokens a task, as the endpoint counts them; ``timeout_s``: of one request, in seconds. Raises
    UsageError for a URL that is not http or https.
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
            raise UsageError(f"{self.url!r} is not an http or https address")

    @property
    def name(self) -> str:
        """See :class:`agentkv.flywheel.solvers.Solver`."""
        return f"endpoint {self.model} at {urlsplit(self.url).hostname}"

    def attempt(self, task: Task, earlier: Sequence[Tried], cancellation: Cancellation | None = None) -> Attempt | None:
        """See :class:`Solver`. A running request cannot be cancelled. Raises EndpointFailed, Cancelled."""
        max_new = _room(self, earlier)
        if not max_new:
            return None
        if cancellation is not None and cancellation.requested:
            raise Cancelled("a request to an endpoint")
        message = repair_message(task, earlier[-1]) if earlier else task_message(task)
        seed = self.seed + len(earlier)
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
            raise EndpointFailed(self.url, "the answer is not a chat completion") from error
        if not isinstance(text, str):
            raise EndpointFailed(self.url, "the answer holds no text")
        text = text.encode("utf-8", "replace").decode()
        return text, tokens if isinstance(tokens, int) and tokens >= 0 else max(1, len(text) // 3)
