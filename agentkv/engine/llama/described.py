"""What llama.cpp knows of a loaded model, as a :class:`ModelInfo`. Knows native models, no context."""

from __future__ import annotations

import ctypes
from pathlib import Path
from typing import Any

import llama_cpp

from agentkv.engine.base import ModelInfo


def described(model: Any, path: Path, name: str, sha256: str) -> ModelInfo:
    """The model that was loaded from ``path``."""
    vocab = llama_cpp.llama_model_get_vocab(model)
    template = llama_cpp.llama_model_chat_template(model, None)
    bos, eos = llama_cpp.llama_vocab_bos(vocab), llama_cpp.llama_vocab_eos(vocab)
    return ModelInfo(
        name=name,
        architecture=_metadata(model, b"general.architecture") or path.stem,
        sha256=sha256,
        train_window=llama_cpp.llama_model_n_ctx_train(model),
        n_vocab=llama_cpp.llama_vocab_n_tokens(vocab),
        chat_template=template.decode("utf-8", "replace") if template else None,
        bos=bos if bos >= 0 else None,
        bos_text=piece_of(vocab, bos, special=True).decode("utf-8", "replace") if bos >= 0 else "",
        eos_text=piece_of(vocab, eos, special=True).decode("utf-8", "replace") if eos >= 0 else "",
        add_bos=bool(llama_cpp.llama_vocab_get_add_bos(vocab)),
        n_params=llama_cpp.llama_model_n_params(model),
        spec=str(path),
    )


def piece_of(vocab: Any, token: int, *, special: bool = False) -> bytes:
    """The bytes of a token, which must be one of the vocabulary; of a special one only if asked for."""
    buffer = ctypes.create_string_buffer(64)
    n = llama_cpp.llama_token_to_piece(vocab, token, buffer, len(buffer), 0, special)
    if n < 0:
        buffer = ctypes.create_string_buffer(-n)
        n = llama_cpp.llama_token_to_piece(vocab, token, buffer, len(buffer), 0, special)
    return buffer.raw[:n]


def _metadata(model: Any, key: bytes) -> str | None:
    buffer = ctypes.create_string_buffer(256)
    length = llama_cpp.llama_model_meta_val_str(model, key, buffer, len(buffer))
    return buffer.value.decode("utf-8", "replace") if length >= 0 else None
