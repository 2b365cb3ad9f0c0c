"""What the command line itself refuses, beyond the common tree in ``agentkv/errors.py``.

AgentKVError
└── NotConfirmed             56   nothing was removed: nobody was there to be asked, or the answer was no
"""

from __future__ import annotations

from agentkv.errors import AgentKVError


class NotConfirmed(AgentKVError):
    """Something would be removed that was not named, or that exists nowhere else, and nobody has said yes."""

    exit_code = 56

    def __init__(self, what: str, *, asked: bool) -> None:
        why = (
            "Nothing was removed." if asked else "Nothing was removed: pass --yes, or run it on a terminal to be asked."
        )
        super().__init__(f"this would remove {what}. {why}")
        self.what = what
