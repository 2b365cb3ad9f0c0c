"""LangChain's own suites for chat models.

The unit suite runs on the fake engine. The integration suite runs twice: on the fake engine, which says what a good
model would (so the protocol is tested: streams, events, usage, calls, objects), and on qwen2.5-coder-1.5b, marked
``model``; of this one CI runs what is in ``TELLING``, and ``AGENTKV_WHOLE_SUITE=1`` all of it (many minutes).
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from typing import Any, Literal

import pytest
from langchain_agentkv import ChatAgentKV
from langchain_core.messages import AIMessage, AIMessageChunk, HumanMessage, SystemMessage
from langchain_tests.integration_tests import ChatModelIntegrationTests
from langchain_tests.unit_tests import ChatModelUnitTests

from agentkv import AgentMemory, FakeEngine
from agentkv.engine.template import GENERIC, ToolCall

MODEL = os.environ.get("AGENTKV_SUITE_MODEL", "qwen2.5-coder-1.5b")
TELLING = {
    "test_stream_events_v3",
    "test_usage_metadata",
    "test_tool_calling",
    "test_tool_message_histories_list_content",
    "test_structured_output",
    "test_json_mode",
}
"""Streams, usage with cache details, a forced call, a conversation with calls and results, objects."""
ARGUMENTS = {
    "magic_function": {"input": 3},
    "magic_function_no_args": {},
    "get_weather": {"location": "Paris"},
    "greeting_generator": {"answer_style": "pirate"},
    "my_adder_tool": {"a": 1, "b": 2},
    "unicode_customer": {"customer_name": "你好啊集团 こんにちは", "description": "A company."},
}
"""What a good model gives the tools of LangChain's tests."""


class TestUnit(ChatModelUnitTests):
    @pytest.fixture(autouse=True)
    def _memory(self, memory: AgentMemory) -> None:
        self.memory = memory

    @property
    def chat_model_class(self) -> type[ChatAgentKV]:
        return ChatAgentKV

    @property
    def chat_model_params(self) -> dict[str, Any]:
        return {"memory": self.memory}


class GoodModel(FakeEngine):
    """Says what a good model would, as far as the grammar that it was given asks for it."""

    def __init__(self) -> None:
        super().__init__(replies=self._answer_to, keeps_grammar=True)
        self.grammar = ""

    def _answer_to(self, prompt: str) -> str:
        if "answer-root" in self.grammar:
            joke = {"setup": "Why do cats purr?", "punchline": "They boot."}
            return json.dumps(joke if "joke" in prompt.casefold() else {})
        callable_here = [name for name in ARGUMENTS if f' ::= "{name}" ' in self.grammar]
        if "<tool_response>" in prompt or not callable_here:
            return "Hello! It is 3, and sunny."
        return GENERIC.text([ToolCall(callable_here[0], json.dumps(ARGUMENTS[callable_here[0]], ensure_ascii=False))])


class Telling(AgentMemory):
    """Tells its engine of the grammar before the prompt is read: there a scripted answer begins."""

    def stream(self, *arguments: Any, **settings: Any) -> Iterator[Any]:
        assert isinstance(self.engine, GoodModel)
        self.engine.grammar = settings["grammar"] or ""
        return super().stream(*arguments, **settings)


@pytest.fixture(scope="module")
def scripted(tmp_path_factory: pytest.TempPathFactory) -> AgentMemory:
    return Telling(tmp_path_factory.mktemp("scripted") / "store", GoodModel(), prefix="")


@pytest.fixture(scope="module")
def real(tmp_path_factory: pytest.TempPathFactory) -> Iterator[AgentMemory]:
    with AgentMemory(tmp_path_factory.mktemp("real") / "store", MODEL, prefix="", window=4096) as memory:
        yield memory


class Integration(ChatModelIntegrationTests):
    memory: AgentMemory

    @property
    def chat_model_class(self) -> type[ChatAgentKV]:
        return ChatAgentKV

    @property
    def chat_model_params(self) -> dict[str, Any]:
        return {"memory": self.memory, "skill": None, "max_new": 160}

    @property
    def supports_json_mode(self) -> bool:
        return True

    @property
    def supported_usage_metadata_details(
        self,
    ) -> dict[
        Literal["invoke", "stream"],
        list[Literal["audio_input", "audio_output", "reasoning_output", "cache_read_input", "cache_creation_input"]],
    ]:
        return {
            "invoke": ["cache_read_input", "cache_creation_input"],
            "stream": ["cache_read_input", "cache_creation_input"],
        }

    def invoke_with_cache_creation_input(self, *, stream: bool = False) -> AIMessage:
        return self._asked(stream, f"Say hello, {'politely' if stream else 'briefly'}.")

    def invoke_with_cache_read_input(self, *, stream: bool = False) -> AIMessage:
        self._asked(stream, "Say hi.")
        return self._asked(stream, "Say hi.")

    def _asked(self, stream: bool, question: str) -> AIMessage:
        chat = ChatAgentKV(memory=self.memory, skill=None, max_new=8)
        messages = [SystemMessage("You are polite."), HumanMessage(question)]
        if not stream:
            return chat.invoke(messages)
        whole: AIMessageChunk | None = None
        for chunk in chat.stream(messages):
            whole = chunk if whole is None else whole + chunk
        assert isinstance(whole, AIMessageChunk)
        return whole


class TestIntegrationScripted(Integration):
    @pytest.fixture(autouse=True)
    def _memory(self, scripted: AgentMemory) -> None:
        self.memory = scripted


@pytest.mark.model
class TestIntegration(Integration):
    @pytest.fixture(autouse=True)
    def _memory(self, request: pytest.FixtureRequest) -> None:
        if request.node.originalname not in TELLING and not os.environ.get("AGENTKV_WHOLE_SUITE"):
            pytest.skip("runs with AGENTKV_WHOLE_SUITE=1")
        self.memory = request.getfixturevalue("real")
