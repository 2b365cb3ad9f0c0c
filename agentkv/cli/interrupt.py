"""Ctrl-C that takes effect within a token, also while llama.cpp is in the middle of a batch.

Python runs a signal handler only between its own instructions, so a batch of 512 tokens on a large model would go
on for seconds. The interpreter writes the signal's number to a wake-up socket at once, though; a thread that waits
there sets the flag that native code looks at.
"""

from __future__ import annotations

import contextlib
import signal
import socket
import threading
from collections.abc import Iterator
from typing import TYPE_CHECKING

from agentkv.errors import Cancelled

if TYPE_CHECKING:
    from agentkv.engine.base import Cancellation


@contextlib.contextmanager
def cancelled_by_ctrl_c() -> Iterator[Cancellation]:
    """A cancellation that Ctrl-C sets; what it ends, ends as KeyboardInterrupt. Main thread only, elsewhere inert."""
    from agentkv.engine.base import Cancellation

    cancellation = Cancellation()
    if threading.current_thread() is not threading.main_thread():
        yield cancellation
        return
    reader, writer = socket.socketpair()
    writer.setblocking(False)
    before = signal.set_wakeup_fd(writer.fileno(), warn_on_full_buffer=False)

    def watch() -> None:
        while numbers := reader.recv(16):
            if signal.SIGINT in numbers:
                cancellation.cancel()

    thread = threading.Thread(target=watch, daemon=True)
    thread.start()
    try:
        yield cancellation
    except Cancelled:
        raise KeyboardInterrupt from None
    finally:
        signal.set_wakeup_fd(before)
        writer.close()
        thread.join()
        reader.close()
