"""Models and engines, and a block that this engine cannot use."""

from __future__ import annotations

from pathlib import Path

from agentkv.errors.base import AgentKVError


class ModelError(AgentKVError):
    """A model file is missing, is another one than was named, or cannot be read."""


class UnknownModel(ModelError):
    """Neither a catalogue name nor a file."""

    exit_code = 10

    def __init__(self, name: str, known: list[str], message: str | None = None) -> None:
        super().__init__(
            message
            or f"no model {name!r}: neither a file nor one of {', '.join(known)}. "
            "Run `agentkv models list`, or pass the path of a .gguf file."
        )
        self.name, self.known = name, known


class ModelHashMismatch(ModelError):
    """A file's SHA-256 is not the one that its name stands for."""

    exit_code = 11

    def __init__(self, path: Path, expected: str, actual: str) -> None:
        super().__init__(
            f"{path} has SHA-256 {actual[:16]}…, expected {expected[:16]}…: it is corrupt or another model. "
            "It was not used; delete it and run `agentkv models pull` again."
        )
        self.path, self.expected, self.actual = path, expected, actual


class ModelUnreadable(ModelError):
    """The file is not a complete GGUF model."""

    exit_code = 12

    def __init__(self, path: Path, reason: str) -> None:
        remedy = f"Check it with `agentkv models verify {path}`."
        if "truncated" in reason:
            remedy = "Its download was not finished: delete it and fetch it again, as by `agentkv models pull NAME`."
        super().__init__(f"cannot load {path}: {reason}. {remedy}")
        self.path, self.reason = path, reason


class PullFailed(ModelError):
    """The model's packages could not be downloaded."""

    exit_code = 13

    def __init__(self, name: str, reason: str) -> None:
        super().__init__(
            f"could not pull {name}: {reason}. Nothing was changed; check the network and pip's index settings "
            "and run the same command again, or pass the path of a .gguf file that you have."
        )
        self.name, self.reason = name, reason


class EngineError(AgentKVError):
    """Something between token ids and logits."""


class WindowOverflow(EngineError):
    """``n_block + n_turn + max_new`` is more than the context window; raised before anything is decoded."""

    exit_code = 20

    def __init__(self, n_block: int, n_turn: int, max_new: int, window: int) -> None:
        super().__init__(
            f"{n_block} block + {n_turn} turn + {max_new} new tokens = {n_block + n_turn + max_new}, "
            f"over the context window of {window}. Shorten the text, lower max_new, or open a larger window."
        )
        self.n_block, self.n_turn, self.max_new, self.window = n_block, n_turn, max_new, window


class InvalidState(EngineError):
    """A state blob that is not well formed; found in Python, before native code saw it."""

    exit_code = 21

    def __init__(self, reason: str, offset: int | None = None) -> None:
        where = "" if offset is None else f" at byte {offset}"
        super().__init__(f"state refused{where}: {reason}. Deposit the block again.")
        self.reason, self.offset = reason, offset


class NativeRefusal(EngineError):
    """llama.cpp refused a call; the context was thrown away and rebuilt."""

    exit_code = 22

    def __init__(self, call: str, detail: str) -> None:
        super().__init__(f"{call} failed: {detail}. The context was rebuilt; the next call starts clean.")
        self.call, self.detail = call, detail


class InvalidGrammar(EngineError):
    """A GBNF grammar or JSON schema that cannot be compiled, or a decoding that it cannot bind."""

    exit_code = 23

    def __init__(self, reason: str) -> None:
        super().__init__(f"the grammar cannot be used: {reason}")
        self.reason = reason


class Cancelled(EngineError):
    """The caller's cancellation took effect; the context was cleared."""

    exit_code = 24

    def __init__(self, during: str) -> None:
        super().__init__(f"cancelled during {during}; the context was cleared and the next call starts clean")
        self.during = during


class UnsupportedTemplate(EngineError):
    """The model's chat template cannot be cut into template pieces and content."""

    exit_code = 25

    def __init__(self, reason: str) -> None:
        super().__init__(f"the model's chat template cannot be used: {reason}")
        self.reason = reason


class EngineClosed(EngineError):
    """The engine was used after ``close()``."""

    exit_code = 26

    def __init__(self) -> None:
        super().__init__("the engine is closed; open it again")


class IncompatibleFingerprint(AgentKVError):
    """A block made with other model bytes, KV settings or runtime; names the first field that differs."""

    exit_code = 30

    def __init__(self, field: str, block: object, engine: object) -> None:
        super().__init__(
            f"the block was made with {field} = {block}, this engine has {field} = {engine}: its state would be "
            "another computation. Open the store with the matching model and settings, or deposit the text again."
        )
        self.field, self.block, self.engine = field, block, engine


class InexactBlock(AgentKVError):
    """A restored block did not give the logits of the cold prefill."""

    exit_code = 31

    def __init__(self, block_id: str, step: int, steps: int, message: str | None = None) -> None:
        super().__init__(
            message
            or f"block {block_id[:12]} diverged at step {step} of {steps} after restoring: this model and setting are "
            "not exact. Nothing was stored. Pass allow_inexact=True (--allow-inexact) to store it as `inexact`."
        )
        self.block_id, self.step, self.steps = block_id, step, steps


class EngineUnavailable(EngineError):
    """llama-cpp-python is not there, or its library cannot be loaded on this machine."""

    exit_code = 16

    def __init__(self, reason: str) -> None:
        super().__init__(f"llama-cpp-python cannot be used: {reason}. Run `agentkv doctor`, which says what to do.")
        self.reason = reason


class NoGpu(EngineError):
    """Layers were to be put on a GPU, and the build of llama.cpp uses none: it would ignore that without a word.

    What it computed would then be stored under a setting that had no effect, apart from what the CPU stored before.
    """

    exit_code = 15

    def __init__(self, gpu_layers: int) -> None:
        super().__init__(
            f"gpu_layers = {gpu_layers:,}, but this build of llama.cpp uses no GPU and would ignore that. Leave it out "
            "(gpu_layers=0, --gpu-layers 0, unset AGENTKV_GPU_LAYERS, `agentkv settings --unset gpu-layers`), or "
            "install llama-cpp-python built for the GPU."
        )
        self.gpu_layers = gpu_layers
