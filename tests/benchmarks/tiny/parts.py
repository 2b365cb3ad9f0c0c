"""The parts of tiny models: random tensors of one layer each, under the names that llama.cpp looks for."""

from __future__ import annotations

import zlib

import numpy as np
from numpy.typing import NDArray

N_VOCAB = 288
WIDTH, HEADS, KV_HEADS, HEAD, FEED, EXPERTS = 64, 4, 2, 16, 128, 4
INNER, STATE, CONV, RANK, SSM_HEADS = 2 * WIDTH, 16, 4, 8, 4


class Net:
    """Collects the tensors of a model; shapes are given as ggml has them, innermost first."""

    def __init__(self, seed: int) -> None:
        self.seed = seed
        self.tensors: dict[str, NDArray[np.float32]] = {}

    def normal(self, name: str, *shape: int, gain: float = 1.0, mean: float = 0.0) -> None:
        """Normal weights of variance gain² / fan-in; the generator is the name's own."""
        generator = np.random.default_rng([self.seed, zlib.crc32(name.encode())])
        values = generator.standard_normal(shape[::-1]) * gain / np.sqrt(shape[0]) + mean
        self.tensors[name] = values.astype(np.float32)

    def flat(self, name: str, *shape: int, gain: float = 0.1, mean: float = 1.0) -> None:
        """Norms, biases and scales: around ``mean``, with the spread ``gain`` whatever the shape."""
        self.normal(name, *shape, gain=gain * float(np.sqrt(shape[0])), mean=mean)

    # --- parts of a layer --------------------------------------------------------------------------------

    def ends(self, norm: str = "output_norm") -> None:
        self.normal("token_embd.weight", WIDTH, N_VOCAB, gain=8.0)
        self.flat(f"{norm}.weight", WIDTH)
        self.normal("output.weight", WIDTH, N_VOCAB, gain=3.0)

    def attention(self, blk: str, *, norms: bool = False, bias: bool = False, gated: bool = False) -> None:
        """Grouped-query attention; gain 2 on queries and keys makes it peaked enough to see single tokens."""
        self.normal(f"{blk}.attn_q.weight", WIDTH, HEADS * HEAD * (2 if gated else 1), gain=2.0)
        self.normal(f"{blk}.attn_k.weight", WIDTH, KV_HEADS * HEAD, gain=2.0)
        self.normal(f"{blk}.attn_v.weight", WIDTH, KV_HEADS * HEAD)
        self.normal(f"{blk}.attn_output.weight", HEADS * HEAD, WIDTH)
        if norms:
            self.flat(f"{blk}.attn_q_norm.weight", HEAD, mean=2.0)
            self.flat(f"{blk}.attn_k_norm.weight", HEAD, mean=2.0)
        if bias:
            for part, size in (("q", HEADS * HEAD), ("k", KV_HEADS * HEAD), ("v", KV_HEADS * HEAD)):
                self.flat(f"{blk}.attn_{part}.bias", size, mean=0.0)

    def latent_attention(self, blk: str) -> None:
        """MLA as of DeepSeek: keys and values from one row of 32 + 16 channels."""
        self.normal(f"{blk}.attn_q_a.weight", WIDTH, 32)
        self.flat(f"{blk}.attn_q_a_norm.weight", 32)
        self.normal(f"{blk}.attn_q_b.weight", 32, HEADS * 2 * HEAD, gain=2.0)
        self.normal(f"{blk}.attn_kv_a_mqa.weight", WIDTH, 32 + HEAD, gain=2.0)
        self.flat(f"{blk}.attn_kv_a_norm.weight", 32)
        self.normal(f"{blk}.attn_k_b.weight", HEAD, 32, HEADS)
        self.normal(f"{blk}.attn_v_b.weight", 32, HEAD, HEADS)
        self.normal(f"{blk}.attn_output.weight", HEADS * HEAD, WIDTH)

    def feed_forward(self, blk: str, suffix: str = "") -> None:
        self.normal(f"{blk}.ffn_gate{suffix}.weight", WIDTH, FEED)
        self.normal(f"{blk}.ffn_up{suffix}.weight", WIDTH, FEED)
        self.normal(f"{blk}.ffn_down{suffix}.weight", FEED, WIDTH)

    def experts(self, blk: str, *, shared: bool = False, gate: bool = False, bias: bool = False) -> None:
        self.normal(f"{blk}.ffn_gate_inp.weight", WIDTH, EXPERTS, gain=2.0)
        self.normal(f"{blk}.ffn_gate_exps.weight", WIDTH, FEED, EXPERTS)
        self.normal(f"{blk}.ffn_up_exps.weight", WIDTH, FEED, EXPERTS)
        self.normal(f"{blk}.ffn_down_exps.weight", FEED, WIDTH, EXPERTS)
        if shared:
            self.feed_forward(blk, "_shexp")
        if gate:
            self.flat(f"{blk}.ffn_gate_inp_shexp.weight", WIDTH, mean=0.0)
        if bias:
            self.flat(f"{blk}.ffn_gate_inp.bias", EXPERTS, mean=0.0)
            self.flat(f"{blk}.ffn_gate_exps.bias", FEED, EXPERTS, mean=0.0)
            self.flat(f"{blk}.ffn_up_exps.bias", FEED, EXPERTS, mean=0.0)
            self.flat(f"{blk}.ffn_down_exps.bias", WIDTH, EXPERTS, mean=0.0)

    def mamba(self, blk: str, *, norms: bool = False) -> None:
        self.normal(f"{blk}.ssm_in.weight", WIDTH, 2 * INNER)
        self.normal(f"{blk}.ssm_conv1d.weight", CONV, INNER)
        self.flat(f"{blk}.ssm_conv1d.bias", INNER, mean=0.0)
        self.normal(f"{blk}.ssm_x.weight", INNER, RANK + 2 * STATE)
        self.normal(f"{blk}.ssm_dt.weight", RANK, INNER)
        self.flat(f"{blk}.ssm_dt.bias", INNER, mean=-4.0)
        self.flat(f"{blk}.ssm_a", STATE, INNER, gain=0.02, mean=-0.1)
        self.flat(f"{blk}.ssm_d", INNER)
        self.normal(f"{blk}.ssm_out.weight", INNER, WIDTH)
        if norms:
            for part, size in (("dt", RANK), ("b", STATE), ("c", STATE)):
                self.flat(f"{blk}.ssm_{part}_norm.weight", size)

    def mamba2(self, blk: str) -> None:
        channels = INNER + 2 * STATE
        self.normal(f"{blk}.ssm_in.weight", WIDTH, INNER + channels + SSM_HEADS)
        self.normal(f"{blk}.ssm_conv1d.weight", CONV, channels)
        self.flat(f"{blk}.ssm_conv1d.bias", channels, mean=0.0)
        self.flat(f"{blk}.ssm_dt.bias", SSM_HEADS, mean=-4.0)
        self.flat(f"{blk}.ssm_a", 1, SSM_HEADS, gain=0.02, mean=-0.1)
        self.flat(f"{blk}.ssm_d", 1, SSM_HEADS)
        self.flat(f"{blk}.ssm_norm.weight", INNER, 1)
        self.normal(f"{blk}.ssm_out.weight", INNER, WIDTH)

    def delta_net(self, blk: str) -> None:
        """Gated delta net as of Qwen3.5: two key heads, four value heads."""
        keys, values = 2 * STATE, SSM_HEADS * STATE
        self.normal(f"{blk}.attn_qkv.weight", WIDTH, 2 * keys + values)
        self.normal(f"{blk}.attn_gate.weight", WIDTH, values)
        self.normal(f"{blk}.ssm_conv1d.weight", CONV, 2 * keys + values)
        self.flat(f"{blk}.ssm_dt.bias", SSM_HEADS, mean=-4.0)
        self.flat(f"{blk}.ssm_a", SSM_HEADS, gain=0.02, mean=-0.1)
        self.normal(f"{blk}.ssm_beta.weight", WIDTH, SSM_HEADS)
        self.normal(f"{blk}.ssm_alpha.weight", WIDTH, SSM_HEADS)
        self.flat(f"{blk}.ssm_norm.weight", STATE)
        self.normal(f"{blk}.ssm_out.weight", values, WIDTH)

    def short_convolution(self, blk: str) -> None:
        self.normal(f"{blk}.shortconv.conv.weight", 3, WIDTH)
        self.normal(f"{blk}.shortconv.in_proj.weight", WIDTH, 3 * WIDTH)
        self.normal(f"{blk}.shortconv.out_proj.weight", WIDTH, WIDTH)

    def rwkv7(self, blk: str) -> None:
        for part in ("attn_norm", "attn_norm_2", "time_mix_ln"):
            self.flat(f"{blk}.{part}.weight", WIDTH)
            self.flat(f"{blk}.{part}.bias", WIDTH, mean=0.0)
        for part, mean in (("w", -7.0), ("a", 0.0), ("v", 0.0)):
            self.flat(f"{blk}.time_mix_{part}0.weight", WIDTH, mean=mean)
        for part in ("w", "a", "v", "g"):
            self.normal(f"{blk}.time_mix_{part}1.weight", WIDTH, RANK)
            self.normal(f"{blk}.time_mix_{part}2.weight", RANK, WIDTH)
        self.flat(f"{blk}.time_mix_lerp_fused.weight", WIDTH, 1, 1, 6, mean=0.5)
        for part, mean in (("k_k", 0.8), ("k_a", 1.0), ("r_k", 0.0)):
            self.flat(f"{blk}.time_mix_{part}.weight", WIDTH, mean=mean)
        for part in ("key", "value", "receptance", "output"):
            self.normal(f"{blk}.time_mix_{part}.weight", WIDTH, WIDTH)
        self.flat(f"{blk}.channel_mix_lerp_k.weight", WIDTH, 1, 1, mean=0.5)
        self.normal(f"{blk}.channel_mix_key.weight", WIDTH, FEED)
        self.normal(f"{blk}.channel_mix_value.weight", FEED, WIDTH)
