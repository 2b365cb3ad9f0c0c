from __future__ import annotations

from pathlib import Path

import pytest
from langchain_agentkv import ChatAgentKV

from agentkv import AgentMemory
from tests.integrations.chatting import Echo, SlowEngine, reply


@pytest.fixture
def engine() -> SlowEngine:
    return SlowEngine(replies=reply)


@pytest.fixture
def memory(tmp_path: Path, engine: SlowEngine) -> AgentMemory:
    memory = AgentMemory(tmp_path / "store", engine, classifier=Echo())
    memory.deposit_text("north", "The code of the vault is 7001.", "The north vault.")
    memory.deposit_text("south", "The code of the vault is 8002.", "The south vault.")
    return memory


@pytest.fixture
def chat(memory: AgentMemory) -> ChatAgentKV:
    return ChatAgentKV(memory=memory)
