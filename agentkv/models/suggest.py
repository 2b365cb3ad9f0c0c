"""Models of the Hugging Face hub that are good defaults, with size and licence, chosen by the memory that is there.

A list in the code: nothing is asked of the hub before a model is pulled. Sizes are of the files as they were published;
one that is ``about`` was not compared with the hub. Not guaranteed: that a repository still has the file.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

_QWEN, _GEMMA, _LLAMA = "Apache-2.0", "Gemma terms", "Llama 3.2 Community License"
_SLOW_FROM = 3_000_000_000
"""Bytes of a file from which on a CPU alone is too slow to be suggested one unasked."""


@dataclass(frozen=True)
class Suggestion:
    """A model of the hub. ``size``: of the file in bytes, ``about`` where that is not certain."""

    label: str
    repository: str
    file: str
    size: int
    licence: str
    about: bool = True

    @property
    def spec(self) -> str:
        """What ``--model`` and ``agentkv models pull`` take."""
        return f"hf:{self.repository}/{self.file}"

    @property
    def need(self) -> int:
        """Bytes of memory: the weights, the state of a context of 8,192 tokens and buffers; an estimate."""
        return memory_need(self.size)


def memory_need(size: int) -> int:
    """Bytes of memory that a model file of ``size`` bytes takes with a context of 8,192 tokens; an estimate."""
    return int(size * 1.25) + 300_000_000


SUGGESTIONS = (
    Suggestion("Qwen3 0.6B, Q8_0", "Qwen/Qwen3-0.6B-GGUF", "Qwen3-0.6B-Q8_0.gguf", 639_446_688, _QWEN, False),
    Suggestion("Gemma 3 1B, Q4_K_M", "ggml-org/gemma-3-1b-it-GGUF", "gemma-3-1b-it-Q4_K_M.gguf", 806_000_000, _GEMMA),
    Suggestion(
        "Llama 3.2 1B, Q4_K_M",
        "bartowski/Llama-3.2-1B-Instruct-GGUF",
        "Llama-3.2-1B-Instruct-Q4_K_M.gguf",
        808_000_000,
        _LLAMA,
    ),
    Suggestion("Qwen3 1.7B, Q8_0", "Qwen/Qwen3-1.7B-GGUF", "Qwen3-1.7B-Q8_0.gguf", 1_834_000_000, _QWEN),
    Suggestion("SmolLM3 3B, Q4_K_M", "ggml-org/SmolLM3-3B-GGUF", "SmolLM3-Q4_K_M.gguf", 1_915_305_312, _QWEN, False),
    Suggestion(
        "Llama 3.2 3B, Q4_K_M",
        "bartowski/Llama-3.2-3B-Instruct-GGUF",
        "Llama-3.2-3B-Instruct-Q4_K_M.gguf",
        2_019_000_000,
        _LLAMA,
    ),
    Suggestion("Gemma 3 4B, Q4_K_M", "ggml-org/gemma-3-4b-it-GGUF", "gemma-3-4b-it-Q4_K_M.gguf", 2_490_000_000, _GEMMA),
    Suggestion("Qwen3 4B, Q4_K_M", "Qwen/Qwen3-4B-GGUF", "Qwen3-4B-Q4_K_M.gguf", 2_497_000_000, _QWEN),
    Suggestion("Qwen3 8B, Q4_K_M", "Qwen/Qwen3-8B-GGUF", "Qwen3-8B-Q4_K_M.gguf", 5_028_000_000, _QWEN),
)
"""By size. Every family's instruct models; the quantisation that its makers, or the most used repository, publish."""


def best(memory: int | None, *, gpu: bool = False, among: Sequence[Suggestion] = SUGGESTIONS) -> Suggestion | None:
    """The largest that fits into ``memory`` bytes (None: not known; then the smallest); None if none does.

    Without a ``gpu`` none over 3 GB: it would fit, and every prefill would be waited for.
    """
    if memory is None:
        return among[0]
    fitting = [one for one in among if one.need <= memory and (gpu or one.size < _SLOW_FROM)]
    return max(fitting, key=lambda one: one.size, default=None)
