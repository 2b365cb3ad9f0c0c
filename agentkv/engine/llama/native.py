"""What a process has once of llama.cpp: its log, its backend, the function that stops a decode, pointers to arrays."""

from __future__ import annotations

import contextlib
import ctypes
import signal
import sys
import threading
from collections import deque
from collections.abc import Iterator
from types import FrameType
from typing import Any

import llama_cpp
import numpy as np
from numpy.typing import NDArray

from agentkv.io.forks import Owner

_log_lines: deque[str] = deque(maxlen=20)


@llama_cpp.llama_log_callback  # type: ignore[untyped-decorator]
def _keep_log(level: int, text: bytes, _user: object) -> None:
    if level >= 3:  # warnings and errors
        _log_lines.append(text.decode("utf-8", "replace").strip())


_owners: list[Owner] = []


def claim() -> None:
    """Note that this process computes with llama.cpp. Raises OpenedBeforeFork if one that it was forked from has.

    The threads of OpenMP, which llama.cpp may be built with, stay in the parent, and the library waits for them in the
    child for ever, whatever model is opened there.
    """
    if not _owners:
        _owners.append(Owner("llama.cpp library"))
    _owners[0].require()


def start_backend() -> None:
    """Start llama.cpp; its warnings and errors are kept instead of printed. May be called again.

    Raises OpenedBeforeFork.
    """
    claim()
    llama_cpp.llama_log_set(_keep_log, ctypes.c_void_p(0))
    llama_cpp.llama_backend_init()


@contextlib.contextmanager
def interrupts_kept() -> Iterator[list[int]]:
    """Ctrl-C while the body loads something takes effect at its end; the list has an entry once it was pressed.

    llama.cpp logs through a Python function, often while it loads, and an exception that a signal handler raises in
    there is printed and dropped by ctypes: the KeyboardInterrupt would be lost. In another thread than the main one,
    where handlers do not run, the body just runs.
    """
    kept: list[int] = []
    handler = signal.getsignal(signal.SIGINT)
    if threading.current_thread() is not threading.main_thread() or not callable(handler):
        yield kept
        return

    def keep(number: int, frame: FrameType | None) -> None:
        kept.append(number)

    signal.signal(signal.SIGINT, keep)
    try:
        yield kept
    finally:
        signal.signal(signal.SIGINT, handler)
        if kept:
            handler(kept[0], None)


def clear_log() -> None:
    """Forget what has been logged, so that :func:`last_log` reports what comes."""
    _log_lines.clear()


def last_log() -> str:
    """The last warning or error that llama.cpp logged."""
    return next((line for line in reversed(_log_lines) if line), "no reason given")


# llama.cpp asks this function at every node of the graph whether to stop. A Python callback would take the GIL a
# thousand times a token. libc's strlen does the same work without Python: it is 0 for an empty string and 1 once
# the flag's first byte is set.
_libc = ctypes.CDLL("msvcrt") if sys.platform == "win32" else ctypes.CDLL(None)
is_flag_set = llama_cpp.ggml_abort_callback(ctypes.cast(_libc.strlen, ctypes.c_void_p).value)


def pointer_to(array: NDArray[np.uint8]) -> Any:
    """A ``uint8_t *`` to the first byte of a flat array, which has to outlive it."""
    return array.ctypes.data_as(ctypes.POINTER(ctypes.c_uint8))
