"""Another model of the same shape: a copy of a GGUF file in which one layer's norm is scaled.

Same name, same size, same metadata, same tensors but one; other weights, so another computation.
"""

from __future__ import annotations

import shutil
import struct
from pathlib import Path

import numpy as np

from agentkv.errors import ModelUnreadable
from agentkv.models import gguf_check

TENSOR = "blk.0.attn_norm.weight"
FACTOR = 1.25
_F32 = 0


def altered_copy(model: Path, folder: Path) -> Path:
    """Copy ``model`` into ``folder`` under its own name, with every second weight of ``TENSOR`` times ``FACTOR``.

    A copy that is there already is taken as it is. Raises ModelUnreadable if the tensor is not there as float32.
    """
    target = folder / model.name
    if target.exists():
        return target
    start, count = _place(model)
    folder.mkdir(parents=True, exist_ok=True)
    unfinished = target.with_suffix(".part")
    shutil.copyfile(model, unfinished)
    with unfinished.open("r+b") as file:
        file.seek(start)
        weights = np.frombuffer(file.read(4 * count), "<f4").copy()
        weights[::2] *= np.float32(FACTOR)
        file.seek(start)
        file.write(weights.tobytes())
    return unfinished.replace(target)


def _place(model: Path) -> tuple[int, int]:
    """Where the tensor's data begins in the file, and how many weights it has."""
    data_start = gguf_check(model).data_start
    with model.open("rb") as file:
        head = file.read(data_start)
    name = TENSOR.encode()
    at = head.find(struct.pack("<Q", len(name)) + name)
    if at < 0:
        raise ModelUnreadable(model, f"it has no tensor {TENSOR}")
    at += 8 + len(name)
    (dimensions,) = struct.unpack_from("<I", head, at)
    sizes = struct.unpack_from(f"<{dimensions}Q", head, at + 4)
    kind, offset = struct.unpack_from("<IQ", head, at + 4 + 8 * dimensions)
    if dimensions != 1 or kind != _F32:
        raise ModelUnreadable(model, f"its tensor {TENSOR} is not a vector of float32")
    return data_start + offset, int(sizes[0])
