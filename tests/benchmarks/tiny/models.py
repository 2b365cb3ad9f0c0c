"""The tiny models: what each architecture's memory is, its metadata, and which parts layer ``i`` is made of.

Every layer function has the shape ``layer(net, blk, i)`` and adds the tensors of ``blk``, which is ``blk.i``.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from tests.benchmarks.tiny.parts import (
    CONV,
    EXPERTS,
    FEED,
    HEAD,
    HEADS,
    INNER,
    KV_HEADS,
    RANK,
    SSM_HEADS,
    STATE,
    WIDTH,
    Net,
)

TRAIN_WINDOW = 4096
SLIDING = 64
"""Sliding window, in tokens, of the windowed architectures."""


def _norms(net: Net, blk: str, *names: str) -> None:
    for name in names:
        net.flat(f"{blk}.{name}.weight", WIDTH)


def dense(net: Net, blk: str, _: int) -> None:
    _norms(net, blk, "attn_norm", "ffn_norm")
    net.attention(blk)
    net.feed_forward(blk)


def dense_with_bias(net: Net, blk: str, _: int) -> None:
    _norms(net, blk, "attn_norm", "ffn_norm")
    net.attention(blk, bias=True)
    net.feed_forward(blk)


def experts(net: Net, blk: str, _: int) -> None:
    _norms(net, blk, "attn_norm", "ffn_norm")
    net.attention(blk)
    net.experts(blk)


def experts_shared(net: Net, blk: str, _: int) -> None:
    _norms(net, blk, "attn_norm", "ffn_norm")
    net.attention(blk)
    net.experts(blk, shared=True, gate=True)


def gemma3(net: Net, blk: str, _: int) -> None:
    _norms(net, blk, "attn_norm", "post_attention_norm", "ffn_norm", "post_ffw_norm")
    net.attention(blk, norms=True)
    net.feed_forward(blk)


def gpt_oss(net: Net, blk: str, _: int) -> None:
    _norms(net, blk, "attn_norm", "post_attention_norm")
    net.attention(blk, bias=True)
    net.flat(f"{blk}.attn_output.bias", WIDTH, mean=0.0)
    net.flat(f"{blk}.attn_sinks.weight", HEADS, mean=0.0)
    net.experts(blk, bias=True)


def llama4(net: Net, blk: str, _: int) -> None:
    _norms(net, blk, "attn_norm", "ffn_norm")
    net.attention(blk)
    net.experts(blk, shared=True)


def deepseek2(net: Net, blk: str, i: int) -> None:
    _norms(net, blk, "attn_norm", "ffn_norm")
    net.latent_attention(blk)
    if i == 0:
        net.feed_forward(blk)
    else:
        net.experts(blk, shared=True)


def mamba(net: Net, blk: str, _: int) -> None:
    _norms(net, blk, "attn_norm")
    net.mamba(blk)


def mamba2(net: Net, blk: str, _: int) -> None:
    _norms(net, blk, "attn_norm")
    net.mamba2(blk)


def rwkv7(net: Net, blk: str, i: int) -> None:
    if i == 0:
        net.flat("token_embd_norm.weight", WIDTH)
        net.flat("token_embd_norm.bias", WIDTH, mean=0.0)
        net.flat("output_norm.bias", WIDTH, mean=0.0)
    net.rwkv7(blk)


def is_attention(i: int) -> bool:
    """Hybrids alternate: the even layers are recurrent, the odd ones attend."""
    return i % 2 == 1


def jamba(net: Net, blk: str, i: int) -> None:
    _norms(net, blk, "attn_norm", "ffn_norm")
    net.attention(blk) if is_attention(i) else net.mamba(blk, norms=True)
    net.feed_forward(blk)


def granite_hybrid(net: Net, blk: str, i: int) -> None:
    _norms(net, blk, "attn_norm", "ffn_norm")
    net.attention(blk) if is_attention(i) else net.mamba2(blk)
    net.feed_forward(blk)


def falcon_h1(net: Net, blk: str, _: int) -> None:
    _norms(net, blk, "attn_norm")
    net.flat(f"{blk}.ffn_norm", WIDTH)
    net.mamba2(blk)
    net.attention(blk)
    net.feed_forward(blk)


def lfm2(net: Net, blk: str, i: int) -> None:
    _norms(net, blk, "attn_norm", "ffn_norm")
    net.attention(blk, norms=True) if is_attention(i) else net.short_convolution(blk)
    net.feed_forward(blk)


def qwen35(net: Net, blk: str, i: int) -> None:
    _norms(net, blk, "attn_norm", "post_attention_norm")
    net.attention(blk, norms=True, gated=True) if is_attention(i) else net.delta_net(blk)
    net.feed_forward(blk)


@dataclass(frozen=True)
class Architecture:
    """One row of the table: llama.cpp's name of it, what its memory is, its own metadata, its

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
    "llama": Architecture("llama", "attention", dense),
    "llama-q8_0": Architecture("llama", "attention, weights in Q8_0", dense, quantised=True),
    "llama-moe": Architecture("llama", "attention, experts", experts, metadata=_MOE),
    "qwen2moe": Architecture("qwen2moe", "attention, experts and a shared one", experts_shared, metadata=_MOE),
    "gemma3": Architecture("gemma3", "full and windowed attention", gemma3, layers=4, metadata=_WINDOWED),
    "gpt-oss": Architecture(
        "gpt-oss",
        "full and windowed attention with sinks, experts",
        gpt_oss,
        layers=4,
        metadata={**_MOE, **_WINDOWED},
    ),
    "llama4": Architecture(
        "llama4",
        "full and chunked attention (chunks of 8,192, fixed in llama.cpp), experts",
        llama4,
        layers=4,
        metadata={**_MOE, "interleave_moe_layer_step": 1},
        train_window=16384,
    ),
    "deepseek2": Architecture(
        "deepseek2",
        "latent attention (keys only), experts",
        deepseek2,
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
    "qwen2vl": Architecture("qwen2vl", "attention with M-RoPE cells", dense_with_bias, metadata=_SECTIONS),
    "dream": Architecture("dream", "none: a diffusion model, which keeps no state", dense),
    "mamba": Architecture("mamba", "recurrent", mamba, metadata={**_MAMBA, **_NO_ATTENTION}),
    "mamba2": Architecture("mamba2", "recurrent", mamba2, metadata={**_MAMBA2, **_NO_ATTENTION}),
    "rwkv7": Architecture(
        "rwkv7",
        "recurrent",
        rwkv7,
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
    "jamba": Architecture("jamba", "hybrid", jamba, layers=4, metadata={**_MAMBA, **_ALTERNATE}),
    "granitehybrid": Architecture(
        "granitehybrid", "hybrid", granite_hybrid, layers=4, metadata={**_MAMBA2, **_ALTERNATE}
    ),
    "falcon-h1": Architecture("falcon-h1", "hybrid, both in each layer", falcon_h1, metadata=_MAMBA2),
    "lfm2": Architecture(
        "lfm2",
        "hybrid, short convolutions",
        lfm2,
        layers=4,
        metadata={**_ALTERNATE, "shortconv.l_cache": 3},
        output_norm="token_embd_norm",
    ),
    "lfm2-windowed": Architecture(
        "lfm2",
        "hybrid, short convolutions and windowed attention only",
        lfm2,
        layers=4,
        metadata={**_ALTERNATE, "shortconv.l_cache": 3, "attention.sliding_window": SLIDING},
        output_norm="token_embd_norm",
    ),
    "qwen35": Architecture(
        "qwen35",
        "hybrid, gated delta net and attention with M-RoPE cells",
        qwen35,
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
