"""A sentence-transformers BERT -> one GGUF, so that llama.cpp runs the embedding model too.

Input is the zip that a package carries (``model.safetensors``, ``config.json``, ``tokenizer.json``), checked by its
SHA-256 before. Output is the same bytes on every machine: matrices as f16, vectors and the position and type tables as
f32, which is how llama.cpp's own converter writes them. The writer is here, in thirty lines, because the catalogue pins
the digest of the result: another version of the ``gguf`` package could lay the same model out in other bytes.

Covers BERT with mean pooling and a WordPiece vocabulary; raises KeyError or ValueError for anything else.
"""

from __future__ import annotations

import json
import struct
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

_ALIGNMENT = 32
_MEAN_POOLING = 1
_NORMAL, _UNKNOWN, _CONTROL = 1, 2, 3
_WORD_START = "\u2581"

_EMBEDDINGS = {
    "word_embeddings.weight": "token_embd.weight",
    "position_embeddings.weight": "position_embd.weight",
    "token_type_embeddings.weight": "token_types.weight",
    "LayerNorm.weight": "token_embd_norm.weight",
    "LayerNorm.bias": "token_embd_norm.bias",
}
_LAYER = {
    "attention.self.query": "attn_q",
    "attention.self.key": "attn_k",
    "attention.self.value": "attn_v",
    "attention.output.dense": "attn_output",
    "attention.output.LayerNorm": "attn_output_norm",
    "intermediate.dense": "ffn_up",
    "output.dense": "ffn_down",
    "output.LayerNorm": "layer_output_norm",
}

Tensor = NDArray[np.float32] | NDArray[np.float16]


def convert(source: Path, target: Path, name: str) -> None:
    """Write the model in the zip ``source`` to ``target``, a GGUF called ``name``."""
    with zipfile.ZipFile(source) as archive:
        config = json.loads(archive.read("config.json"))
        vocabulary = json.loads(archive.read("tokenizer.json"))["model"]["vocab"]
        weights = _safetensors(archive.read("model.safetensors"))
    _write(target, _metadata(config, vocabulary, name), _tensors(weights, config["num_hidden_layers"]))


def _safetensors(data: bytes) -> dict[str, NDArray[np.float32]]:
    size = struct.unpack_from("<Q", data)[0]
    start = 8 + size
    found = {}
    for name, entry in json.loads(data[8:start]).items():
        if name != "__metadata__" and entry["dtype"] == "F32":
            first, last = entry["data_offsets"]
            found[name] = np.frombuffer(data[start + first : start + last], np.float32).reshape(entry["shape"])
    return found


def _tensors(weights: Mapping[str, NDArray[np.float32]], layers: int) -> dict[str, Tensor]:
    names = {f"embeddings.{theirs}": ours for theirs, ours in _EMBEDDINGS.items()}
    for layer in range(layers):
        for theirs, ours in _LAYER.items():
            for part in ("weight", "bias"):
                names[f"encoder.layer.{layer}.{theirs}.{part}"] = f"blk.{layer}.{ours}.{part}"
    return {
        ours: weights[theirs].astype(np.float16)
        if weights[theirs].ndim == 2 and ours not in ("position_embd.weight", "token_types.weight")
        else weights[theirs]
        for theirs, ours in names.items()
    }


def _metadata(config: Mapping[str, Any], vocabulary: Mapping[str, int], name: str) -> dict[str, Any]:
    tokens = sorted(vocabulary, key=lambda token: vocabulary[token])
    if [vocabulary[token] for token in tokens] != list(range(len(tokens))):
        raise ValueError("the vocabulary's ids have gaps")
    return {
        "general.architecture": "bert",
        "general.name": name,
        "bert.context_length": config["max_position_embeddings"],
        "bert.embedding_length": config["hidden_size"],
        "bert.feed_forward_length": config["intermediate_size"],
        "bert.block_count": config["num_hidden_layers"],
        "bert.attention.head_count": config["num_attention_heads"],
        "bert.attention.layer_norm_epsilon": float(config["layer_norm_eps"]),
        "bert.attention.causal": False,
        "bert.pooling_type": _MEAN_POOLING,
        "tokenizer.ggml.model": "bert",
        "tokenizer.ggml.pre": "default",
        "tokenizer.ggml.tokens": [_piece(token) for token in tokens],
        "tokenizer.ggml.token_type": [_kind(token) for token in tokens],
        "tokenizer.ggml.token_type_count": config["type_vocab_size"],
        "tokenizer.ggml.bos_token_id": vocabulary["[CLS]"],
        "tokenizer.ggml.eos_token_id": vocabulary["[SEP]"],
        "tokenizer.ggml.cls_token_id": vocabulary["[CLS]"],
        "tokenizer.ggml.seperator_token_id": vocabulary["[SEP]"],
        "tokenizer.ggml.unknown_token_id": vocabulary["[UNK]"],
        "tokenizer.ggml.padding_token_id": vocabulary["[PAD]"],
        "tokenizer.ggml.mask_token_id": vocabulary["[MASK]"],
    }


def _is_special(token: str) -> bool:
    return token.startswith("[") and token.endswith("]") and len(token) > 2


def _piece(token: str) -> str:
    """llama.cpp marks the start of a word, WordPiece its continuation."""
    if _is_special(token):
        return token
    return token[2:] if token.startswith("##") else _WORD_START + token


def _kind(token: str) -> int:
    if not _is_special(token):
        return _NORMAL
    return _UNKNOWN if token == "[UNK]" else _CONTROL


# --- GGUF, version 3 ------------------------------------------------------------------------------


def _write(target: Path, metadata: Mapping[str, Any], tensors: Mapping[str, Tensor]) -> None:
    head = [b"GGUF", struct.pack("<IQQ", 3, len(tensors), len(metadata))]
    head += [_string(key) + _value(value) for key, value in metadata.items()]
    offset = 0
    for name, tensor in tensors.items():
        dimensions = tensor.shape[::-1]
        kind = 1 if tensor.dtype == np.float16 else 0
        head.append(_string(name) + struct.pack(f"<I{len(dimensions)}QIQ", len(dimensions), *dimensions, kind, offset))
        offset += tensor.nbytes + -tensor.nbytes % _ALIGNMENT
    header = b"".join(head)
    with target.open("wb") as file:
        file.write(header + bytes(-len(header) % _ALIGNMENT))
        for tensor in tensors.values():
            file.write(np.ascontiguousarray(tensor).tobytes() + bytes(-tensor.nbytes % _ALIGNMENT))


def _string(text: str) -> bytes:
    data = text.encode()
    return struct.pack("<Q", len(data)) + data


def _value(value: Any) -> bytes:
    """Type number and value; integers are u32, or i32 in arrays, as llama.cpp's converter has them."""
    if isinstance(value, bool):
        return struct.pack("<I?", 7, value)
    if isinstance(value, int):
        return struct.pack("<II", 4, value)
    if isinstance(value, float):
        return struct.pack("<If", 6, value)
    if isinstance(value, str):
        return struct.pack("<I", 8) + _string(value)
    if isinstance(value[0], int):
        return struct.pack("<IIQ", 9, 5, len(value)) + struct.pack(f"<{len(value)}i", *value)
    return struct.pack("<IIQ", 9, 8, len(value)) + b"".join(map(_string, value))
