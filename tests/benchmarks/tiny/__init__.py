"""Tiny GGUF models with random weights, at least one per kind of memory that llama.cpp has.

They say nothing, but each runs the same code as its big relatives: what is exact rests on the cache and the
kernels, not on the weights. A byte-level vocabulary of 288 ids, 2 to 4 layers of 64 channels.
The bytes depend on architecture, seed and numpy's normal generator only. Needs the package ``gguf``.
"""

from tests.benchmarks.tiny.models import ARCHITECTURES, SLIDING, TRAIN_WINDOW, Architecture
from tests.benchmarks.tiny.writer import write_tiny, write_tiny_lora

__all__ = ["ARCHITECTURES", "SLIDING", "TRAIN_WINDOW", "Architecture", "write_tiny", "write_tiny_lora"]
