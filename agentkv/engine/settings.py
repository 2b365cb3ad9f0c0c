"""Settings of an engine, with defaults that are exact on a CPU."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from agentkv.errors import NoGpu, UsageError

KV_TYPES = {"f32": 0, "f16": 1, "q8_0": 8}
"""Supported KV types and their ggml type numbers."""


def require_gpu(settings: EngineSettings, is_there: bool) -> None:
    """Raise NoGpu for layers on a GPU where there is no GPU."""
    if settings.gpu_layers and not is_there:
        raise NoGpu(settings.gpu_layers)


@dataclass(frozen=True)
class EngineSettings:
    """How a model is opened.

    ``window``: tokens in the context, None for the model's own, at most 8,192. ``flash_attention`` off is what makes
    a CPU's bits independent of the batch split. ``kv_type`` ``q8_0`` halves the state and needs flash attention.
    ``batch``: tokens a decode call; a multiple of 32, because llama.cpp's kernels compute the rows of a batch in
    groups of four and the rows left over by another kernel: a batch of 101 gave other bits. ``gpu_layers``: layers on
    a GPU. ``lora``: adapter files with their scales. ``rope_freq_base`` and ``rope_freq_scale``: factors
    of the rotary position encoding, 0 for the model's own. Raises UsageError.

    >>> EngineSettings(window=4096, threads=2).n_threads
    2
    """

    window: int | None = None
    kv_type: Literal["f32", "f16", "q8_0"] = "f16"
    flash_attention: bool = False
    threads: int | None = None
    batch: int = 512
    gpu_layers: int = 0
    lora: tuple[tuple[Path, float], ...] = ()
    rope_freq_base: float = 0.0
    rope_freq_scale: float = 0.0

    def __post_init__(self) -> None:
        if self.kv_type not in KV_TYPES:
            raise UsageError(f"kv_type must be one of {', '.join(KV_TYPES)}, not {self.kv_type!r}")
        if self.kv_type == "q8_0" and not self.flash_attention:
            raise UsageError("kv_type q8_0 needs flash_attention=True: llama.cpp has no other kernel for it")
        if self.window is not None and not 64 <= self.window <= 2**22:
            raise UsageError(f"window must be 64 to {2**22:,} tokens, not {self.window:,}")
        if not 32 <= self.batch <= 8192 or self.batch % 32:
            raise UsageError(f"batch must be a multiple of 32 from 32 to 8,192, not {self.batch:,}")
        if self.gpu_layers < 0:
            raise UsageError(f"gpu_layers must be 0 or more, not {self.gpu_layers}")
        if self.threads is not None and self.threads < 1:
            raise UsageError(f"threads must be at least 1, not {self.threads}")

    @property
    def n_threads(self) -> int:
        """Threads to use: as set, or as many as this process may run on."""
        if self.threads is not None:
            return self.threads
        return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
