"""Bounded reading of a pipe: the first and the last bytes are kept, however many come.

Knows bytes and descriptors. Refuses to wait.
"""

from __future__ import annotations

import os

from agentkv.sandbox.base import Captured

_CHUNK = 1 << 16


class Stream:
    """The reading end ``fd`` of a pipe; at most ``keep`` bytes of what it gave stay in memory."""

    def __init__(self, fd: int, keep: int) -> None:
        self.fd, self.total, self.ended = fd, 0, False
        self._head, self._tail = bytearray(), bytearray()
        self._each = max(1, keep // 2)
        os.set_blocking(fd, False)

    def read(self) -> int:
        """Take what is there, one chunk at most; how many bytes. 0: nothing now, or ``ended``."""
        try:
            chunk = os.read(self.fd, _CHUNK)
        except BlockingIOError:
            return 0
        except OSError:
            chunk = b""
        self.ended = not chunk
        self.total += len(chunk)
        room = self._each - len(self._head)
        self._head += chunk[:room]
        self._tail += chunk[max(0, room) :]
        del self._tail[: -self._each]
        return len(chunk)

    def drain(self, at_most: int) -> None:
        """Take what is there, ``at_most`` bytes about."""
        taken = 0
        while taken < at_most and (got := self.read()):
            taken += got

    @property
    def whole(self) -> bytes | None:
        """Every byte, or None if some are gone."""
        complete = self.total == len(self._head) + len(self._tail)
        return bytes(self._head + self._tail) if complete else None

    def captured(self, *, more: bool) -> Captured:
        """What is kept. ``more``: it was cut off while more was to come."""
        if self.whole is not None and not more:
            return Captured(self.whole, b"", self.total, truncated=False)
        return Captured(bytes(self._head), bytes(self._tail), self.total, truncated=True)
