"""Ctrl-C reaches native code that does not return to Python for a while."""

from __future__ import annotations

import os
import signal
import threading
import time

import pytest

from agentkv.cli.progress import cancelled_by_ctrl_c
from agentkv.errors import Cancelled


def test_the_flag_is_set_beside_the_signal_handler() -> None:
    caught: list[int] = []
    before = signal.signal(signal.SIGINT, lambda *_: caught.append(1))
    try:
        with cancelled_by_ctrl_c() as cancellation:
            threading.Timer(0.05, os.kill, (os.getpid(), signal.SIGINT)).start()
            start = time.monotonic()
            while not cancellation.requested and time.monotonic() < start + 5:
                time.sleep(0.01)
            assert cancellation.requested
    finally:
        signal.signal(signal.SIGINT, before)
    assert signal.set_wakeup_fd(-1) == -1


def interrupted() -> None:
    with cancelled_by_ctrl_c():
        raise Cancelled("decoding")


def test_what_the_flag_ended_ends_as_ctrl_c() -> None:
    with pytest.raises(KeyboardInterrupt):
        interrupted()


def test_other_threads_get_an_inert_one() -> None:
    seen: list[bool] = []

    def work() -> None:
        with cancelled_by_ctrl_c() as cancellation:
            seen.append(cancellation.requested)

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert seen == [False]
