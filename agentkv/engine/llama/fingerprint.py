"""What makes two states interchangeable, for llama.cpp.

The content half must match or a block is refused; the numerics half must match for ``exact``. Threads, window size
and batch split are in neither: with flash attention off on a CPU the bits were measured not to depend on them. With
flash attention on they depend on threads (from the first single token on) and on the batch split, so both are part
of the numerics there, and on a GPU, where neither was measured.
"""

from __future__ import annotations

import platform
import re
from typing import Any

import llama_cpp

from agentkv.engine.settings import EngineSettings
from agentkv.records import Fingerprint

STATE_FORMAT = 1
"""Revision of the state as agentkv stores it: shared cells, whole context, masked rows zeroed."""


def cpu_features() -> list[str]:
    """The instruction sets that this build of llama.cpp uses, as it reports them, sorted."""
    text = llama_cpp.llama_print_system_info().decode("utf-8", "replace")
    return sorted({name for name, on in re.findall(r"([A-Z0-9_]+) = (\d+)", text) if on != "0"})


def llama_fingerprint(model_sha256: str, settings: EngineSettings, lora: list[str], v_trans: bool) -> Fingerprint:
    """The fingerprint of one model under one set of settings. ``lora``: ``"<sha256>*<scale>"`` each, in order."""
    content: dict[str, Any] = {
        "engine": "llama.cpp",
        "model_sha256": model_sha256,
        "kv_type": settings.kv_type,
        "flash_attention": settings.flash_attention,
        "v_trans": v_trans,
        "swa_full": True,
        "rope_freq_base": settings.rope_freq_base,
        "rope_freq_scale": settings.rope_freq_scale,
        "lora": lora,
        "state_format": STATE_FORMAT,
    }
    pinned = settings.flash_attention or settings.gpu_layers
    numerics: dict[str, Any] = {
        "llama_cpp": llama_cpp.__version__,
        "machine": platform.machine(),
        "features": cpu_features(),
        "gpu_layers": settings.gpu_layers,
        "batch": settings.batch if pinned else None,
        "threads": settings.n_threads if pinned else None,
    }
    return Fingerprint(content=content, numerics=numerics)
