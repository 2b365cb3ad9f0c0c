"""What can be wrong with documents beyond the leaves of :mod:`agentkv.errors`.

AgentKVError
└── DocumentError
    └── ReadingNotConfirmed   84   reading what is added would take long or much disk, and nobody has agreed to it
"""

from __future__ import annotations

from agentkv.errors import DocumentError


class ReadingNotConfirmed(DocumentError):
    """Reading all windows now would take more than a minute or a gigabyte, and nobody has agreed; nothing was added."""

    exit_code = 84

    def __init__(self, forecast: str) -> None:
        super().__init__(
            f"reading every window now would take {forecast}; nothing was added. Pass --yes to read them all, or "
            "--lazy to index them now and read each when a question first needs it."
        )
        self.forecast = forecast
