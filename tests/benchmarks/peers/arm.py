"""What the benchmark asks of an arm, and the list of arms.

An arm is one way to keep a block's state, opened in a process of its own. It knows its own engine, cache or server and
nothing of the other arms; what is measured, damaged and judged is the same for all and lies elsewhere.
"""

from __future__ import annotations

import importlib
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from agentkv.errors import UsageError

BITS = "bits"
"""Evidence of a step: SHA-256 of its float32 logits."""
PRINTED = "token and five log-probabilities"
"""Evidence of a step where an arm gives no logits: the token and its five likeliest with their printed numbers."""
FAKE = "fake"
WARM_UP = "Twelve ships left the harbour before the fog came down over the sea."
"""Read before every measured step, so that the model's pages are in memory and the context is not the block's."""


@dataclass
class Answer:
    """One turn behind a block.

    ``first_ms`` until the first token is known; ``evaluated`` prompt tokens, counted where they are decoded;
    ``evidence`` one digest a step, the first for what follows the turn.
    """

    first_ms: float
    evaluated: int
    evidence: list[str]


class Arm(Protocol):
    """One way to keep a block's state. Whatever a call raises counts as its refusal."""

    pids: tuple[int, ...]
    """Processes whose memory is the arm's."""

    def read(self) -> float:
        """Read the block into the live context, keeping nothing; milliseconds."""
        ...

    def store(self) -> dict[str, float]:
        """Read the block and keep it; milliseconds by step, ``read`` for the reading."""
        ...

    def restore(self) -> dict[str, float]:
        """Bring the kept state back; milliseconds by step. Arms that restore within a request do nothing here."""
        ...

    def ask(self, turn: int, steps: int) -> Answer:
        """Read turn number ``turn`` behind the block, then go on greedily for ``steps`` steps.

        With 0 steps the request is given up behind its first token.
        """
        ...

    def whole(self, turn: int, steps: int) -> Answer:
        """Read block and turn at once, whatever is kept."""
        ...

    def forget(self) -> None:
        """Put something else into the live context."""
        ...

    def digest(self) -> str | None:
        """SHA-256 of the state that is kept in memory; None where it lies in files."""
        ...

    def note(self) -> dict[str, Any]:
        """What a later process has to know, such as a reply that the prompt goes on from."""
        ...

    def close(self) -> None:
        """End it, with its processes."""
        ...


class ArmDied(RuntimeError):
    """A process that an arm depends on has ended by itself. No refusal: its user has lost the server.

    It never leaves the arm's process, so it is no leaf of the package's tree of errors.
    """


@dataclass(frozen=True)
class Spec:
    """An arm's entry: who it is, what it is compared with, and where its state lies.

    ``family``: arms whose uninterrupted run is the same computation. ``files``: globs of the files that are the state;
    none for arms in memory. ``packages``: what is installed for it into an environment of its own. ``keeps_turns``:
    each ask changes what is kept, so each is another turn, as in use: with the same one it would go on from that.
    ``state``: a function that says where in such a file the KV state lies; without one it is the whole file.
    """

    name: str
    label: str
    target: str
    family: str
    evidence: str
    files: tuple[str, ...] = ()
    packages: tuple[str, ...] = ()
    options: tuple[tuple[str, Any], ...] = ()
    keeps_turns: bool = False
    least_asks: int = 1
    state: str | None = None

    @property
    def resident(self) -> bool:
        """Whether the state lives in the memory of the process that read it."""
        return not self.files


SERVER = "xllamacpp==2026.10.11549"
"""The wheel that brings a llama-server."""
STILLWARM, HEARTH = "stillwarm==0.1.1", "hearth-llm==0.1.1"
OURS, RIVAL = "agentkv", "save-state"

SPECS = (
    Spec("agentkv-ram", "agentkv, RAM", "ours:FromRAM", "agentkv", BITS),
    Spec(OURS, "agentkv, disk", "ours:FromDisk", "agentkv", BITS, ("segments/**/*.seg", "manifests/**/*.json")),
    Spec(
        RIVAL,
        "Llama.save_state, pickle",
        "save_state:SaveState",
        "llama",
        BITS,
        ("state.pickle",),
        state="save_state:state_span",
    ),
    Spec("ram-cache", "LlamaRAMCache", "caches:InRAM", "llama", BITS, keeps_turns=True),
    Spec(
        "disk-cache",
        "LlamaDiskCache",
        "caches:OnDisk",
        "llama",
        BITS,
        ("**/*.val",),
        keeps_turns=True,
        least_asks=3,
        state="save_state:state_span",
    ),
    Spec("slots", "llama-server slots", "slots:Slots", "server", PRINTED, ("*.bin",), (SERVER,)),
    Spec("stillwarm", "stillwarm", "stillwarm:Stillwarm", "stillwarm", PRINTED, ("*.bin",), (SERVER, STILLWARM)),
    Spec(
        "stillwarm-verify",
        "stillwarm, verify",
        "stillwarm:Stillwarm",
        "stillwarm",
        PRINTED,
        ("*.bin",),
        (SERVER, STILLWARM),
        (("verify", True),),
    ),
    Spec("hearth", "hearth-llm", "hearth:Hearth", "hearth", PRINTED, ("*.kv",), (SERVER, HEARTH)),
)
ARMS = {spec.name: spec for spec in SPECS}


def open_arm(payload: dict[str, Any]) -> Arm:
    """The arm that the payload names, with its model loaded. Raises UsageError for one that there is not."""
    spec = ARMS.get(payload["arm"])
    target = payload.get("target") or (spec.target if spec else None)
    if target is None:
        raise UsageError(f"{payload['arm']!r} is no arm; there are: {', '.join(ARMS)}")
    opened: Arm = _named(target)(payload)
    return opened


def state_span(spec: Spec, file: Path) -> tuple[int, int]:
    """Where in ``file`` the KV state begins and ends, in bytes. What lies around it no restore depends on."""
    if spec.state is None:
        return 0, file.stat().st_size
    found: tuple[int, int] = _named(spec.state)(file)
    return found


def _named(target: str) -> Any:
    """What ``module:name`` names; a module without a dot is one of this package."""
    module, _, name = target.partition(":")
    return getattr(importlib.import_module(module if "." in module else f"{__package__}.{module}"), name)
