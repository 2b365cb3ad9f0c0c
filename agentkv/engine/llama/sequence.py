"""A state set as that of one sequence, which leaves the rest of the window as it is.

llama.cpp's setter of a whole context zeroes the window first, 13 to 17 ms for 8,192 tokens of a small model: most of
what a short block's restore took. The setter of one sequence does not, but wants the cell table in another form, so
the state is copied once. Into an empty cache both lay the same rows into the same cells.

Knows llama.cpp's state of one sequence (``layout.sequence_blob``). Refuses to know when this is the better way.
"""

from __future__ import annotations

import ctypes
from typing import Any

import llama_cpp

from agentkv.engine import layout as blobs
from agentkv.engine.base import State
from agentkv.engine.llama.native import pointer_to

_HEAD_BYTES = 8
"""A magic number and the sequence's id, here 0."""


class SequenceSetter:
    """Sets states into sequences of one context, which has to be empty when this is made."""

    def __init__(self, context: Any) -> None:
        self._context = context
        head = (ctypes.c_uint8 * 64)()
        llama_cpp.llama_state_seq_get_data(context, head, len(head), 0)
        self._head = bytes(head[:_HEAD_BYTES])

    def set(self, state: State, sequence: int) -> bool:
        """Set a checked state for which ``layout.is_sequence`` holds; False if llama.cpp refused."""
        blob = blobs.sequence_blob(state, self._head)
        read: int = llama_cpp.llama_state_seq_set_data(self._context, pointer_to(blob), blob.nbytes, sequence)
        return read == blob.nbytes
