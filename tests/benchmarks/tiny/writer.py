"""Writes tiny models and LoRA adapters as GGUF files; imports ``gguf``, which is not a dependency, on use."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from agentkv.errors import UsageError
from tests.benchmarks.tiny.models import ARCHITECTURES
from tests.benchmarks.tiny.parts import FEED, HEAD, HEADS, KV_HEADS, N_VOCAB, WIDTH, Net

_CONTROL = ("<|begin|>", "<|end|>", "<|turn|>")
_TEMPLATE = (
    "{{ bos_token }}{% for m in messages %}<|turn|>{{ m.role }}\n{{ m.content }}<|end|>{% endfor %}"
    "{% if add_generation_prompt %}<|turn|>assistant\n{% endif %}"
)


def write_tiny(path: Path, architecture: str, seed: int = 0) -> Path:
    """Write a tiny model of one of :data:`ARCHITECTURES`; same arguments, same bytes. Raises UsageError."""
    spec = ARCHITECTURES.get(architecture)
    if spec is None:
        raise UsageError(f"no tiny model {architecture!r}: one of {', '.join(ARCHITECTURES)}")
    gguf = _gguf()
    net = Net(seed)
    net.ends(spec.output_norm)
    for i in range(spec.layers):
        spec.layer(net, f"blk.{i}", i)
    writer = gguf.GGUFWriter(path, spec.name)
    metadata: dict[str, Any] = {
        "vocab_size": N_VOCAB,
        "context_length": spec.train_window,
        "embedding_length": WIDTH,
        "block_count": spec.layers,
        "feed_forward_length": FEED,
        "attention.head_count": HEADS,
        "attention.head_count_kv": KV_HEADS,
        "attention.layer_norm_rms_epsilon": 1e-5,
        "rope.freq_base": 10000.0,
    }
    writer.add_name(f"tiny {architecture} {seed}")
    _add_metadata(writer, f"{spec.name}.", {**metadata, **spec.metadata})
    _add_vocabulary(writer)
    kind = gguf.GGMLQuantizationType.Q8_0
    for name, values in net.tensors.items():
        if spec.quantised and values.ndim == 2 and "norm" not in name:
            writer.add_tensor(name, gguf.quants.quantize(values, kind), raw_dtype=kind)
        else:
            writer.add_tensor(name, values)
    return _finish(writer, path)


def write_tiny_lora(path: Path, seed: int = 1, rank: int = 4) -> Path:
    """Write a LoRA adapter for the tiny ``llama``: queries and values of every layer. Raises UsageError."""
    writer = _gguf().GGUFWriter(path, "llama")
    writer.add_string("general.type", "adapter")
    writer.add_string("adapter.type", "lora")
    writer.add_float32("adapter.lora.alpha", 2.0 * rank)
    net = Net(seed)
    for i in range(ARCHITECTURES["llama"].layers):
        for part, size in (("q", HEADS * HEAD), ("v", KV_HEADS * HEAD)):
            net.normal(f"blk.{i}.attn_{part}.weight.lora_a", WIDTH, rank)
            net.normal(f"blk.{i}.attn_{part}.weight.lora_b", rank, size)
    for name, values in net.tensors.items():
        writer.add_tensor(name, values)
    return _finish(writer, path)


def _gguf() -> Any:
    try:
        import gguf
    except ImportError as error:
        raise UsageError("tiny models need the package gguf: pip install 'agentkv-sdk[dev]'") from error
    return gguf


def _finish(writer: Any, path: Path) -> Path:
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def _add_metadata(writer: Any, prefix: str, values: dict[str, Any]) -> None:
    for key, value in values.items():
        if isinstance(value, list):
            writer.add_array(prefix + key, value)
        elif isinstance(value, float):
            writer.add_float32(prefix + key, value)
        else:
            writer.add_uint32(prefix + key, value)


def _add_vocabulary(writer: Any) -> None:
    """GPT-2's 256 byte letters, one merge (llama.cpp insists on it), control tokens, fillers up to 288."""
    plain = [*range(33, 127), *range(161, 173), *range(174, 256)]
    others = [byte for byte in range(256) if byte not in plain]
    letters = [chr(byte if byte in plain else 256 + others.index(byte)) for byte in range(256)]
    words = [*letters, "th", *_CONTROL]
    words += [f"<|unused{i}|>" for i in range(N_VOCAB - len(words))]
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("gpt-2")
    writer.add_token_list(words)
    writer.add_token_types([1] * 257 + [3] * (N_VOCAB - 257))
    writer.add_token_merges(["t h"])
    writer.add_bos_token_id(words.index(_CONTROL[0]))
    writer.add_eos_token_id(words.index(_CONTROL[1]))
    writer.add_add_bos_token(True)
    writer.add_chat_template(_TEMPLATE)
