"""What routing refuses beyond the common tree in ``agentkv/errors.py``.

SkillError
└── SkillsLeftOut            55   skills are stored, but for another engine, and ``strict`` was asked for
"""

from __future__ import annotations

from agentkv.errors import SkillError


class SkillsLeftOut(SkillError):
    """A question would be routed without skills that the store holds for another engine; nothing was decoded."""

    exit_code = 55

    def __init__(self, notice: str, names: list[str]) -> None:
        super().__init__(f"{notice} Nothing was asked, since that is to be a failure (strict).")
        self.names = names
