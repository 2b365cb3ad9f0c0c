"""What stands in the system text of a turn, behind the memory's own prefix."""

from __future__ import annotations

from agentkv import AgentMemory


def system_text(memory: AgentMemory, said: str, *more: str) -> str:
    """What follows the memory's prefix: the agent's text, unless it is the same, then ``more``, a blank line apart."""
    prefix = memory.prefix
    texts = [text for text in ("" if said == prefix.strip() else said, *more) if text]
    before = "" if not texts or not prefix or prefix.endswith("\n") else "\n\n"
    return before + "".join(f"{text}\n\n" for text in texts)
