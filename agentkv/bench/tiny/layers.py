"""The layers of the tiny models: for each architecture, which parts layer ``i`` is made of.

Every function has the shape ``layer(net, blk, i)`` and adds the tensors of ``blk``, which is ``blk.i``.
"""

from __future__ import annotations

from agentkv.bench.tiny.parts import HEADS, WIDTH, Net


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
