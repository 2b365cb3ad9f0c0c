"""What the benchmark asks of an arm, and the list of arms.

An arm is one way to keep a block's state, opened in a process of its own. What is measured, damaged and judged is the
same for all and lies elsewhere.
"""

from __future__ import annotations

import importlib
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from pydantic import Field

from agentkv.bench.base import Row

BITS = "bits"
"""Evidence of a step: SHA-256 of its float32 logits."""
PRINTED = "token and five log-probabilities"
"""Evidence of a step where an arm gives no logits: the token and its five likeliest with their printed numbers."""
FAKE = "fake"
WARM_UP = "Twelve ships left the harbour before the fog came down over the sea."
"""Read before every measured step, so that the model's pages are in memory and the context is not the block's."""

# --- between the benchmark and an arm's process -------------------------------------------------------


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


class Setup(Row):
    """Settings of an engine that faults change."""

    rope_freq_base: float = 0.0
    flash_attention: bool = False


OWN, ALTERED, ROPE, FLASH = "own", "altered", "rope base", "flash attention"
_SETUPS = {ROPE: Setup(rope_freq_base=54_321.0), FLASH: Setup(flash_attention=True)}


@dataclass(frozen=True)
class Step:
    """What is done in a process: a phase, with a turn, or several of a resident arm.

    ``variant``: its own model and settings or others; ``home``: ``cold`` puts the files out of the page cache first;
    ``kill_at``: bytes in the folder at which it is killed.
    """

    phase: str = "ask"
    variant: str = OWN
    turn: int = 0
    home: str | None = None
    asked: tuple[int, ...] = ()
    kill_at: int | None = None

    @property
    def setup(self) -> Setup:
        """Of the variant."""
        return _SETUPS.get(self.variant, Setup())


class Note(Row):
    """What an arm reports beside its answers, or a later process has to know.

    ``reply``: that the prompt goes on from; ``steps``: milliseconds within a request; ``keep_ms``: after it.
    """

    reply: str | None = None
    steps: dict[str, float] = Field(default_factory=dict)
    keep_ms: float = 0.0


class Task(Row):
    """One step of an arm, for a process of its own. ``steps``: compared in a turn; ``turns``: ids."""

    spec: Spec
    step: Step
    python: str
    folder: Path
    steps: int
    note: Note
    model: str
    model_sha256: str
    threads: int
    window: int
    block: list[int]
    turns: list[list[int]]
    block_text: str
    turn_texts: list[str]


class Answer(Row):
    """One turn after a block.

    ``first_ms`` until the first token is known; ``evaluated`` prompt tokens, counted where they are decoded;
    ``evidence`` one digest a step, the first for what follows the turn.
    """

    first_ms: float = 0.0
    evaluated: int = 0
    evidence: list[str] = Field(default_factory=list)


class Report(Answer):
    """What a phase came to; which fields are there depends on the phase.

    ``died``: a process that the arm depends on has ended. ``refused``: what it raised; then the answer is of the same
    process after a cold prefill, or ``after`` says why there is none. ``ms``: by step; ``left``: the share of pages
    that stayed in the page cache; ``store``, ``asks``: of a resident arm.
    """

    died: str | None = None
    refused: str | None = None
    after: str | None = None
    ms: dict[str, float] = Field(default_factory=dict)
    read_ms: float | None = None
    note: Note = Field(default_factory=Note)
    memory: dict[str, int] = Field(default_factory=dict)
    left: float | None = None
    digests: list[str | None] = Field(default_factory=list)
    store: Report | None = None
    asks: list[Report] = Field(default_factory=list)


class Outcome(Row):
    """How a process ended: ``result``, or ``code`` and ``stderr``. ``killed_at``: bytes that were there then."""

    result: Report | None
    code: int = 0
    stderr: str = ""
    killed_at: int | None = None
    resumed: bool = False

    def trouble(self) -> str | None:
        """Why it is not a result, or None."""
        if self.result is None:
            how = f"signal {-self.code}" if self.code < 0 else f"code {self.code}"
            lines = self.stderr.strip().splitlines()
            return f"the process ended with {how}" + (f": {lines[-1][:200]}" if lines else "")
        if self.result.died is not None:
            return self.result.died
        return f"refused: {self.result.refused}" if self.result.refused else None


# --- an arm -------------------------------------------------------------------------------------------


class Arm(Protocol):
    """One way to keep a block's state. Whatever a call raises counts as its refusal."""

    pids: tuple[int, ...]
    """Processes whose memory is the arm's."""

    def read(self) -> float:
        """Read the block into the live context, keeping nothing; milliseconds."""
        ...

    def store(self) -> dict[str, float]:
        """Read the block and keep it; milliseconds by step, ``read`` for the prefill."""
        ...

    def restore(self) -> dict[str, float]:
        """Bring the kept state back; milliseconds by step. Arms that restore within a request do nothing here."""
        ...

    def ask(self, turn: int, steps: int) -> Answer:
        """Read turn number ``turn`` after the block, then go on greedily for ``steps`` steps.

        With 0 steps the request is given up after its first token.
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

    def note(self) -> Note:
        """What it reports, and a later process has to know."""
        ...

    def close(self) -> None:
        """End it, with its processes."""
        ...


class ArmDied(RuntimeError):
    """A process that an arm depends on has ended by itself: not a refusal, for its user has lost the server.

    It never leaves the arm's process, so it is not in the package's tree of errors.
    """


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


def open_arm(task: Task) -> Arm:
    """The arm of the task, with its model loaded."""
    opened: Arm = _named(task.spec.target)(task)
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
