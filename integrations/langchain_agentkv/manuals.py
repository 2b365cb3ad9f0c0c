"""A stored manual as text, for chat models that have no KV state of it.

Knows names, blocks and texts of a memory, and LangChain's system message; refuses to know routing and agents.
"""

from __future__ import annotations

from langchain_core.messages import SystemMessage

from agentkv import AgentMemory
from agentkv.errors import StoreError, UnknownBlock


def holds_manual(memory: AgentMemory, other: AgentMemory, name: str) -> bool:
    """Whether ``memory`` has under ``name`` the text that ``other`` has there, so that it can be grafted."""
    if memory is other:
        return True
    here, there = memory.routing.find(name), other.routing.find(name)
    return here is not None and there is not None and here.source_sha256 == there.source_sha256 is not None


def manual_text(memory: AgentMemory, name: str) -> str:
    """The text of a block, after those of the manuals that it is behind. Raises UnknownSkill, UnknownBlock."""
    names = {named.block_id: named for named in memory.names()}
    try:
        links = memory.blocks.chain(memory.routing.manifest(name))
    except StoreError:  # a state is not needed here: the text is, if it is kept
        text = memory.routing.kept_text(memory.routing.named(name))
        if text is None:
            raise
        return text.strip()
    texts = []
    for link in links:
        named = memory.routing.named(name) if link is links[-1] else names.get(link.block_id)
        if named is None:  # the agent's prefix
            continue
        text = None if named.source_sha256 is None else memory.store.text(named.source_sha256)
        if text is None:
            raise UnknownBlock(link.block_id, f"The text of {named.name!r} is not in the store; deposit it again.")
        texts.append(text.strip())
    return "\n\n".join(texts)


def with_manual(system: SystemMessage | None, name: str, text: str) -> SystemMessage:
    """The system message with a manual behind it; content blocks stay content blocks."""
    manual = f"The manual for this request, {name}:\n\n{text}"
    if system is None:
        return SystemMessage(manual)
    if isinstance(system.content, str):
        return system.model_copy(update={"content": f"{system.content}\n\n{manual}" if system.content else manual})
    return system.model_copy(update={"content": [*system.content, {"type": "text", "text": f"\n\n{manual}"}]})
