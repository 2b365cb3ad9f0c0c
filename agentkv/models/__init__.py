"""Where model files come from: a catalogue, any .gguf path, or the Hugging Face hub.

    catalogue.py   what each name stands for: packages, size, SHA-256, licence
    gguf.py        is this file a complete GGUF? (header only; llama.cpp never sees a truncated file)
    local.py       the cache folder, what lies in it, and digests that need not be computed again
    pull.py        packages from the user's own index -> one verified file, resumable
    sentence.py    the embedding model's weights -> GGUF
    suggest.py     good models of the hub, by the memory that is there
    resolve.py     a name, path or hf: spec -> ModelFile; verify

No model is loaded here. Not guaranteed: that a complete GGUF of another origin is a model that llama.cpp supports.
"""

from __future__ import annotations

from agentkv.models.catalogue import CATALOGUE, DEFAULT, ModelEntry, Part
from agentkv.models.gguf import GgufHeader, gguf_check
from agentkv.models.local import LocalModel, Progress, list_models, models_dir
from agentkv.models.resolve import ModelFile, resolve, verify

__all__ = [
    "CATALOGUE",
    "DEFAULT",
    "GgufHeader",
    "LocalModel",
    "ModelEntry",
    "ModelFile",
    "Part",
    "Progress",
    "gguf_check",
    "list_models",
    "models_dir",
    "resolve",
    "verify",
]
