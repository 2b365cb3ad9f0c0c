"""The table of tiny models: what each architecture's memory is, and its metadata and layers."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from agentkv.bench.tiny import layers
from agentkv.bench.tiny.parts import CONV, EXPERTS, FEED, HEAD, INNER, KV_HEADS, RANK, SSM_HEADS, STATE, Net

TRAIN_WINDOW = 4096
SLIDING = 64
"""Sliding window, in tokens, of the windowed architectures."""


@dataclass(frozen=True)
class Architecture:
    """One row of the table: llama.cpp's name of it, what its memory is, its own metadata, its layers.

    ``layer(net, blk, i)`` adds the tensors of layer ``i``; ``metadata`` keys lack the architecture's prefix.
    """

    name: str
    memory: str
    layer: Callable[[Net, str, int], None]
    layers: int = 2
    metadata: dict[str, Any] = field(default_factory=dict)
    train_window: int = TRAIN_WINDOW
    output_norm: str = "output_norm"
    quantised: bool = False


_MOE = {"expert_count": EXPERTS, "expert_used_count": 2, "expert_feed_forward_length": FEED}
_SSM = {"ssm.conv_kernel": CONV, "ssm.inner_size": INNER, "ssm.state_size": STATE}
_MAMBA = {**_SSM, "ssm.time_step_rank": RANK}
_MAMBA2 = {**_SSM, "ssm.time_step_rank": SSM_HEADS, "ssm.group_count": 1}
_NO_ATTENTION = {"attention.head_count": 0, "attention.head_count_kv": 0}
_ALTERNATE = {"attention.head_count_kv": [0, KV_HEADS, 0, KV_HEADS]}
_WINDOWED = {"attention.sliding_window": SLIDING, "attention.sliding_window_pattern": 2}
_SECTIONS = {"rope.dimension_sections": [2, 3, 3, 0]}

ARCHITECTURES: dict[str, Architecture] = {
    "llama": Architecture("llama", "attention", layers.dense),
    "llama-q8_0": Architecture("llama", "attention, weights in Q8_0", layers.dense, quantised=True),
    "llama-moe": Architecture("llama", "attention, experts", layers.experts, metadata=_MOE),
    "qwen2moe": Architecture("qwen2moe", "attention, experts and a shared one", layers.experts_shared, metadata=_MOE),
    "gemma3": Architecture("gemma3", "full and windowed attention", layers.gemma3, layers=4, metadata=_WINDOWED),
    "gpt-oss": Architecture(
        "gpt-oss",
        "full and windowed attention with sinks, experts",
        layers.gpt_oss,
        layers=4,
        metadata={**_MOE, **_WINDOWED},
    ),
    "llama4": Architecture(
        "llama4",
        "full and chunked attention (chunks of 8,192, fixed in llama.cpp), experts",
        layers.llama4,
        layers=4,
        metadata={**_MOE, "interleave_moe_layer_step": 1},
        train_window=16384,
    ),
    "deepseek2": Architecture(
        "deepseek2",
        "latent attention (keys only), experts",
        layers.deepseek2,
        metadata={
            **_MOE,
            "attention.head_count_kv": 1,
            "attention.q_lora_rank": 32,
            "attention.kv_lora_rank": 32,
            "attention.key_length": 32 + HEAD,
            "attention.value_length": 32,
            "attention.key_length_mla": 2 * HEAD,
            "attention.value_length_mla": HEAD,
            "rope.dimension_count": HEAD,
            "leading_dense_block_count": 1,
            "expert_shared_count": 1,
        },
    ),
    "qwen2vl": Architecture("qwen2vl", "attention with M-RoPE cells", layers.dense_with_bias, metadata=_SECTIONS),
    "dream": Architecture("dream", "none: a diffusion model, which keeps no state", layers.dense),
    "mamba": Architecture("mamba", "recurrent", layers.mamba, metadata={**_MAMBA, **_NO_ATTENTION}),
    "mamba2": Architecture("mamba2", "recurrent", layers.mamba2, metadata={**_MAMBA2, **_NO_ATTENTION}),
    "rwkv7": Architecture(
        "rwkv7",
        "recurrent",
        layers.rwkv7,
        metadata={
            **_NO_ATTENTION,
            "attention.layer_norm_epsilon": 1e-5,
            "wkv.head_size": 64,
            "token_shift_count": 2,
            "attention.decay_lora_rank": RANK,
            "attention.iclr_lora_rank": RANK,
            "attention.value_residual_mix_lora_rank": RANK,
            "attention.gate_lora_rank": RANK,
        },
    ),
    "jamba": Architecture("jamba", "hybrid", layers.jamba, layers=4, metadata={**_MAMBA, **_ALTERNATE}),
    "granitehybrid": Architecture(
        "granitehybrid", "hybrid", layers.granite_hybrid, layers=4, metadata={**_MAMBA2, **_ALTERNATE}
    ),
    "falcon-h1": Architecture("falcon-h1", "hybrid, both in each layer", layers.falcon_h1, metadata=_MAMBA2),
    "lfm2": Architecture(
        "lfm2",
        "hybrid, short convolutions",
        layers.lfm2,
        layers=4,
        metadata={**_ALTERNATE, "shortconv.l_cache": 3},
        output_norm="token_embd_norm",
    ),
    "lfm2-windowed": Architecture(
        "lfm2",
        "hybrid, short convolutions and windowed attention only",
        layers.lfm2,
        layers=4,
        metadata={**_ALTERNATE, "shortconv.l_cache": 3, "attention.sliding_window": SLIDING},
        output_norm="token_embd_norm",
    ),
    "qwen35": Architecture(
        "qwen35",
        "hybrid, gated delta net and attention with M-RoPE cells",
        layers.qwen35,
        layers=4,
        metadata={
            **_SSM,
            **_SECTIONS,
            "ssm.inner_size": SSM_HEADS * STATE,
            "ssm.time_step_rank": SSM_HEADS,
            "ssm.group_count": 2,
            "full_attention_interval": 2,
        },
    ),
}
"""Name → architecture; a name is llama.cpp's own, with a suffix where there are several."""
