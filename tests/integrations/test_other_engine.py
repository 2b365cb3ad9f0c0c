"""Skills of another engine: the chat model and the middleware warn and have it in the record, or fail where strict."""

from __future__ import annotations

from pathlib import Path

import pytest
from langchain.agents import create_agent
from langchain_agentkv import ChatAgentKV, SkillMemoryMiddleware
from langchain_core.language_models import GenericFakeChatModel
from langchain_core.messages import AIMessage

from agentkv import AgentKVWarning, AgentMemory, FakeEngine
from agentkv.engine.settings import EngineSettings
from agentkv.errors import SkillsLeftOut
from agentkv.records import EngineChoice

QUESTION = "How long are returns accepted?"
FIELD = "flash_attention = False, here True"


@pytest.fixture
def memory(tmp_path: Path) -> AgentMemory:
    """What another engine than that of the memory has deposited."""
    AgentMemory(tmp_path, FakeEngine()).deposit_text("returns", "Returns: 7 days.", "Sending goods back, returns.")
    settings = EngineSettings(flash_attention=True)
    return AgentMemory(
        tmp_path, FakeEngine(settings=settings, replies=lambda prompt: "7" if "7 days" in prompt else "?")
    )


def test_a_chat_model_warns_and_has_it_in_the_record(memory: AgentMemory) -> None:
    with pytest.warns(AgentKVWarning, match=FIELD):
        answer = ChatAgentKV(memory=memory).invoke(QUESTION)
    (note,) = answer.response_metadata["agentkv"]["notes"]
    assert FIELD in note
    assert "agentkv migrate" in note
    with pytest.warns(AgentKVWarning, match=FIELD):
        last = list(ChatAgentKV(memory=memory).stream(QUESTION))[-1]
    assert last.response_metadata["agentkv"]["notes"] == [note]


def test_strict_is_a_failure(memory: AgentMemory) -> None:
    with pytest.raises(SkillsLeftOut, match=FIELD):
        ChatAgentKV(memory=memory, strict=True).invoke(QUESTION)
    assert memory.strict
    memory.deposit_again()
    assert ChatAgentKV(memory=memory, strict=True).invoke(QUESTION).text == "7"


def test_a_chat_model_made_of_a_store_follows_its_settings(memory: AgentMemory) -> None:
    memory.store.set_engine_choice(EngineChoice(model="fake", flash_attention=True))
    memory.deposit_again()
    chat = ChatAgentKV(store=memory.store.root, strict=True)
    assert chat.memory.blocks.fingerprint == memory.blocks.fingerprint
    assert chat.invoke(QUESTION).response_metadata["agentkv"]["decision"]["pick"] == "returns"


def test_the_middleware_warns_and_its_answers_have_it_in_the_record(memory: AgentMemory) -> None:
    agent = create_agent(ChatAgentKV(memory=memory), middleware=[SkillMemoryMiddleware(memory=memory)])
    with pytest.warns(AgentKVWarning, match=FIELD):
        state = agent.invoke({"messages": [{"role": "user", "content": QUESTION}]})
    assert FIELD in state["agentkv_decision"]["notes"][0]
    assert FIELD in state["messages"][-1].response_metadata["agentkv"]["notes"][0]


def test_the_middleware_warns_before_another_model_too(memory: AgentMemory) -> None:
    model = GenericFakeChatModel(messages=iter([AIMessage("?")]))
    agent = create_agent(model, middleware=[SkillMemoryMiddleware(memory=memory)])
    with pytest.warns(AgentKVWarning, match=FIELD):
        agent.invoke({"messages": [{"role": "user", "content": QUESTION}]})
    memory.strict = True
    with pytest.raises(SkillsLeftOut):
        agent.invoke({"messages": [{"role": "user", "content": QUESTION}]})
