"""Ctrl-C while llama.cpp loads: kept until the native call is over, whatever Python function it logs through."""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Iterator

import llama_cpp
import pytest

from agentkv.engine.llama.engine import LlamaEngine
from agentkv.engine.llama.native import interrupts_kept
from agentkv.engine.settings import EngineSettings


@pytest.fixture(autouse=True)
def ctrl_c() -> Iterator[None]:
    """The handler that a terminal's process has; a shell that runs tests in the background has it ignored."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


def test_ctrl_c_in_a_callback_is_raised_after_the_native_call() -> None:
    called = []

    @llama_cpp.llama_log_callback  # type: ignore[untyped-decorator]
    def log(level: int, text: bytes, user: object) -> None:
        signal.raise_signal(signal.SIGINT)
        called.append(level)

    def load() -> None:
        with interrupts_kept() as interrupts:
            log(3, b"a line", None)  # as llama.cpp calls it, through ctypes
            called.append(len(interrupts))

    with pytest.raises(KeyboardInterrupt):
        load()
    assert called == [3, 1]
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_the_interrupt_comes_instead_of_an_error_of_the_body() -> None:
    def load() -> None:
        with interrupts_kept():
            signal.raise_signal(signal.SIGINT)
            raise ValueError("the load was broken off")

    with pytest.raises(KeyboardInterrupt):
        load()


def test_a_handler_of_ones_own_is_called_and_an_ignored_signal_stays_ignored() -> None:
    caught: list[int] = []
    signal.signal(signal.SIGINT, lambda number, frame: caught.append(number))
    with interrupts_kept():
        signal.raise_signal(signal.SIGINT)
        assert not caught
    assert caught == [signal.SIGINT]
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    with interrupts_kept() as interrupts:
        signal.raise_signal(signal.SIGINT)
    assert not interrupts
    assert signal.getsignal(signal.SIGINT) is signal.SIG_IGN


def test_another_thread_leaves_the_handler_alone() -> None:
    seen: list[object] = []

    def body() -> None:
        with interrupts_kept():
            seen.append(signal.getsignal(signal.SIGINT))

    thread = threading.Thread(target=body)
    thread.start()
    thread.join()
    assert seen == [signal.default_int_handler]


def load(times: int) -> None:
    for _ in range(times):
        LlamaEngine.open("smollm2-135m", EngineSettings(window=256)).close()


@pytest.mark.model
def test_ctrl_c_ends_a_load_at_any_moment() -> None:
    start = time.monotonic()
    load(1)
    whole = time.monotonic() - start
    for share in (0.02, 0.1, 0.3, 0.5, 0.8):
        timer = threading.Timer(whole * share, signal.raise_signal, [signal.SIGINT])
        timer.start()
        with pytest.raises(KeyboardInterrupt):
            load(100)  # the timer may be late: some load is under way when it comes
        timer.join()
