from __future__ import annotations

import copy
import doctest
import pickle
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from langchain_agentkv import ChatAgentKV, chat_models
from langchain_core.caches import InMemoryCache
from langchain_core.messages import (
    AIMessage,
    BaseMessage,
    HumanMessage,
    RemoveMessage,
    SystemMessage,
    ToolMessage,
)
from langchain_core.runnables import ConfigurableField, RunnablePassthrough

from agentkv import ROUTE, AgentKVWarning, AgentMemory
from agentkv.engine.prompt import Message
from agentkv.errors import NotPicklable, UnknownSkill, UsageError, WindowOverflow
from tests.integrations.chatting import digest

# --- an answer ------------------------------------------------------------------------------------


def test_invoke_answers_as_the_memory_does_and_carries_its_record(chat: ChatAgentKV, memory: AgentMemory) -> None:
    turn = memory.ask("The code of north?")
    answer = chat.invoke("The code of north?")
    assert answer.content == turn.text == "7001"
    assert answer.usage_metadata == {
        "input_tokens": turn.tokens.restored + turn.tokens.prefilled,
        "output_tokens": len("7001") + 1,
        "total_tokens": turn.tokens.restored + turn.tokens.prefilled + len("7001") + 1,
        "input_token_details": {"cache_read": turn.tokens.restored, "cache_creation": 0},
    }
    assert answer.usage_metadata["input_token_details"]["cache_read"] > 0
    metadata = answer.response_metadata
    assert (metadata["model_name"], metadata["finish_reason"]) == ("fake", "stop")
    record = metadata["agentkv"]
    assert record["decision"]["raw_pick"] == record["decision"]["pick"] == "north"
    assert record["decision"]["fallback"] is None
    assert record["decision"]["scores"] == {"north": 1.0}
    assert (record["block_id"], record["exactness"]) == (turn.block_id, "exact")
    assert record["tokens"] == {"restored": turn.tokens.restored, "prefilled": turn.tokens.prefilled, "generated": 5}
    assert record["logits_sha256"] == turn.logits_sha256
    assert set(record["ms"]) == {"route", "restore", "prefill", "generate", "keep"}
    assert record["ms"]["route"] > 0


def test_skill_is_routed_or_named_or_none_also_for_one_call(chat: ChatAgentKV, memory: AgentMemory) -> None:
    assert chat.skill is ROUTE
    assert ChatAgentKV(memory=memory, skill="route").skill is ROUTE
    assert ChatAgentKV(memory=memory, skill="south").invoke("The code?").content == "8002"
    nothing = ChatAgentKV(memory=memory, skill=None).invoke("The code of north?")
    assert nothing.content == "I do not know."
    assert nothing.response_metadata["agentkv"]["decision"]["pick"] is None
    assert chat.invoke("The code of north?", skill="south").content == "8002"
    assert chat.bind(skill="south").invoke("The code of north?").content == "8002"
    assert ChatAgentKV(memory=memory, skill="south").invoke("of north?", skill="route").content == "7001"
    with pytest.raises(UnknownSkill, match="south"):
        chat.invoke("The code?", skill="soth")


def test_max_new_by_both_names_and_its_finish_reason(chat: ChatAgentKV, memory: AgentMemory) -> None:
    for short in (
        ChatAgentKV(memory=memory, max_new=3).invoke("count"),
        ChatAgentKV(memory=memory, max_tokens=3).invoke("count"),
        chat.invoke("count", max_tokens=3),
        ChatAgentKV(memory=memory, max_tokens=9).invoke("count", max_new=3),
    ):
        assert short.content == "0 1"
        assert short.response_metadata["finish_reason"] == "length"
        assert short.usage_metadata is not None
        assert short.usage_metadata["output_tokens"] == 3
    with pytest.raises(WindowOverflow):
        chat.invoke("count", max_new=10**6)


def test_stop_strings_of_the_model_and_of_the_call(chat: ChatAgentKV, memory: AgentMemory) -> None:
    model = ChatAgentKV(memory=memory, stop=[" 5"])
    assert model.invoke("count").content == "0 1 2 3 4"
    assert model.invoke("count", stop=[" 3"]).content == "0 1 2"
    assert model.invoke("count", stop=[], max_new=13).content == "0 1 2 3 4 5 6"
    assert chat.invoke("count", stop=[" 3", " 2"]).response_metadata["finish_reason"] == "stop"
    assert "".join(chunk.text for chunk in model.stream("count")) == "0 1 2 3 4"
    with pytest.raises(UsageError, match=r"stop\.0"):
        chat.invoke("count", stop=[""])


def test_sampling_is_passed_on(memory: AgentMemory) -> None:
    memory.engine._replies = None  # type: ignore[attr-defined]
    hot = ChatAgentKV(memory=memory, skill="north", temperature=1.0, seed=1, max_new=8)
    first = hot.invoke("?")
    assert hot.invoke("?").response_metadata["agentkv"]["logits_sha256"] == digest(first)
    assert digest(hot.invoke("?", seed=2)) != digest(first)
    assert digest(hot.invoke("?", temperature=0.0)) != digest(first)


# --- messages -------------------------------------------------------------------------------------


def test_system_messages_at_the_beginning_follow_the_prefix_and_roles_are_kept(
    chat: ChatAgentKV, memory: AgentMemory, monkeypatch: pytest.MonkeyPatch
) -> None:
    heard: list[tuple[Sequence[Message], str]] = []
    original = memory.stream

    def listening(messages: Any, **settings: Any) -> Any:
        heard.append((messages, settings["system"]))
        return original(messages, **settings)

    monkeypatch.setattr(memory, "stream", listening)
    chat.invoke([SystemMessage("Be brief."), HumanMessage("Hello"), AIMessage("Hi."), HumanMessage("Of north?")])
    chat.invoke(
        [
            SystemMessage("Be kind."),
            SystemMessage("Mind south."),
            HumanMessage([{"type": "text", "text": "Of "}, "north?"]),
        ]
    )
    chat.invoke([HumanMessage("Of south?"), SystemMessage("Be brief.")])
    assert heard == [
        ((Message("user", "Hello"), Message("assistant", "Hi."), Message("user", "Of north?")), "Be brief.\n\n"),
        ((Message("user", "Of north?"),), "Be kind.\n\nMind south.\n\n"),
        ((Message("user", "Of south?"), Message("system", "Be brief.")), ""),
    ]
    assert memory.classifier.asked == ["Of north?", "Of north?", "Of south?"]  # type: ignore[attr-defined]


def test_a_system_text_is_read_once_and_restored_with_the_manual_behind_it(memory: AgentMemory) -> None:
    chat = ChatAgentKV(memory=memory, skill="north")
    messages = [SystemMessage("You are the keeper."), HumanMessage("The code?")]
    first, second = chat.invoke(messages), chat.invoke([*messages[:1], HumanMessage("Again: the code?")])
    assert first.content == second.content == "7001"
    assert first.usage_metadata is not None
    assert second.usage_metadata is not None
    details = first.usage_metadata["input_token_details"]
    assert details["cache_creation"] == first.usage_metadata["input_tokens"] - details["cache_read"] > 0
    manual_and_prefix = sum(
        map(len, memory.prompt([Message("user", "?")], "north", system="You are the keeper.\n\n").blocks)
    )
    assert second.usage_metadata["input_token_details"]["cache_read"] == manual_and_prefix
    plain = ChatAgentKV(memory=memory, skill="north", keep=False).invoke(
        [messages[0], HumanMessage("Yet again: the code?")]
    )
    assert plain.usage_metadata is not None
    assert plain.usage_metadata["input_token_details"]["cache_creation"] == 0
    fresh = AgentMemory(memory.store.root.parent / "other", memory.engine)
    fresh.deposit_text("north", "The code of the vault is 7001.", "The north vault.")
    assert digest(ChatAgentKV(memory=fresh, skill="north", keep=False).invoke(messages)) == digest(first)


def test_a_system_text_that_is_the_prefix_is_not_said_twice(chat: ChatAgentKV, memory: AgentMemory) -> None:
    alone = chat.invoke("The code of north?")
    again = chat.invoke([SystemMessage(memory.prefix), HumanMessage("The code of north?")], keep=False)
    assert digest(again) == digest(alone)
    assert again.usage_metadata == alone.usage_metadata


CALL: Any = {"name": "add", "args": {}, "id": "1"}
IMAGE = {"type": "image", "url": "https://example.org/a.png"}


@pytest.mark.parametrize(
    ("messages", "reason"),
    [
        ([], "nothing to answer"),
        ([SystemMessage("a")], "nothing to answer"),
        ([AIMessage(""), AIMessage(" ")], "nothing to answer"),
        ([HumanMessage("a"), AIMessage("b", tool_calls=[CALL])], "message 1 calls tools"),
        ([HumanMessage("  ")], "question is empty"),
        ([SystemMessage("a"), HumanMessage("")], "question is empty"),
        ([ToolMessage("b", tool_call_id="1"), HumanMessage("c")], "message 0 is a tool's result"),
        ([RemoveMessage("a"), HumanMessage("b")], "message 0 is of type 'remove'"),
        ([HumanMessage(["a", IMAGE])], "message 0 has a content block of type 'image'"),
        ([HumanMessage([{"type": "text"}])], "message 0 has a content block of type 'text'"),
    ],
)
def test_what_cannot_be_carried_is_refused(chat: ChatAgentKV, messages: list[BaseMessage], reason: str) -> None:
    with pytest.raises(UsageError, match=reason):
        chat.invoke(messages)
    with pytest.raises(UsageError, match=reason):
        list(chat.stream(messages))


# --- settings -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("wrong", "reason"),
    [
        ({"max_new": 0}, "max_new = 0"),
        ({"max_tokens": 0}, "max_new = 0"),
        ({"max_new": 5, "max_tokens": 5}, "one setting"),
        ({"temperature": -1}, "temperature = -1"),
        ({"top_p": 0}, "top_p"),
        ({"min_p": 2}, "min_p"),
        ({"top_k": -1}, "top_k"),
        ({"seed": 2**32}, "seed"),
        ({"stop": "end"}, "stop = 'end'"),
        ({"skill": 7}, "skill"),
        ({"temprature": 1}, "did you mean temperature"),
        ({"keep": "sometimes"}, "keep"),
    ],
)
def test_wrong_settings_are_refused_at_construction_and_in_a_call(
    chat: ChatAgentKV, memory: AgentMemory, wrong: dict[str, Any], reason: str
) -> None:
    with pytest.raises(UsageError, match=reason):
        ChatAgentKV(memory=memory, **wrong)
    with pytest.raises(UsageError, match=reason):
        chat.bind(**wrong).invoke("The code of north?")


def test_tools_are_for_a_call(chat: ChatAgentKV, memory: AgentMemory) -> None:
    with pytest.raises(UsageError, match="no setting 'tools'"):
        ChatAgentKV(memory=memory, tools=[])
    assert chat.invoke("The code of north?", tools=[]).content == "7001"


def test_a_memory_is_given_or_made(memory: AgentMemory, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(UsageError, match="needs a memory"):
        ChatAgentKV()
    with pytest.raises(UsageError, match="needs a memory"):
        ChatAgentKV(memory=None, model="smollm2-135m")
    with pytest.raises(UsageError, match="not both"):
        ChatAgentKV(memory=memory, store=tmp_path)
    opened: list[tuple[Any, ...]] = []

    def open_memory(*arguments: Any) -> AgentMemory:
        opened.append(arguments)
        return memory

    monkeypatch.setattr(chat_models, "AgentMemory", open_memory)
    with pytest.raises(UsageError, match="top_p"):
        ChatAgentKV(store=tmp_path, model="smollm2-135m", top_p=7)
    assert opened == []
    made = ChatAgentKV(store=tmp_path, model="smollm2-135m")
    assert (made.memory, made.store, made.model) == (memory, None, None)
    assert ChatAgentKV(store="here").memory is memory
    assert opened == [(tmp_path, "smollm2-135m"), ("here", None)]


def test_settings_can_be_configured_and_a_model_stands_in_a_pydantic_field(chat: ChatAgentKV) -> None:
    from pydantic import BaseModel

    configurable = chat.configurable_fields(max_new=ConfigurableField(id="length"))
    answer = configurable.with_config(configurable={"length": 3}).invoke("count")
    assert answer.content == "0 1"

    class Holder(BaseModel, arbitrary_types_allowed=True):
        model: ChatAgentKV

    assert Holder(model=chat).model is chat


def test_identifying_params_tell_models_and_settings_apart(chat: ChatAgentKV, memory: AgentMemory) -> None:
    params = chat.asdict()
    assert params["_type"] == chat._llm_type == "agentkv"
    assert params["model_name"] == "fake"
    assert params["skill"] == "route"
    assert params["fingerprint_id"] == memory.blocks.fingerprint.id
    profile = chat.profile
    assert profile is not None
    assert (profile["max_input_tokens"], profile["tool_calling"], profile["image_inputs"]) == (4096, True, False)
    changes: list[dict[str, Any]] = [{"skill": None}, {"seed": 1}, {"stop": ["x"]}, {"max_new": 1}]
    strings = [ChatAgentKV(memory=memory, **change)._get_llm_string() for change in [{}, *changes]]
    assert len(set(strings)) == len(strings)


def test_a_copy_shares_the_memory_and_pickling_says_why_not(chat: ChatAgentKV, memory: AgentMemory) -> None:
    held: Any = RunnablePassthrough() | chat
    copies = [
        copy.copy(chat),
        copy.deepcopy(chat),
        chat.model_copy(),
        chat.model_copy(deep=True, update={"max_new": 3}),
    ]
    copies += [copy.deepcopy(held).last, copy.deepcopy({"model": [chat]})["model"][0]]
    assert all(isinstance(one, ChatAgentKV) and one is not chat and one.memory is memory for one in copies)
    assert copies[1].invoke("The code of north?").content == "7001"
    assert copies[3].invoke("count").content == "0 1"
    assert chat.max_new is None
    for bound in (chat.bind(max_new=3), chat.with_config(tags=["a"]), chat.with_retry()):
        assert copy.deepcopy(bound).bound.memory is memory  # type: ignore[attr-defined]
    with pytest.raises(NotPicklable, match="AgentMemory cannot be pickled: it holds an open"):
        pickle.dumps(chat)


def test_the_default_length_fits_the_window_and_a_cut_is_in_the_record(chat: ChatAgentKV, memory: AgentMemory) -> None:
    with pytest.warns(AgentKVWarning, match="cut at 512 tokens"):
        answer = chat.invoke("count")
    assert answer.response_metadata["finish_reason"] == "length"
    assert answer.response_metadata["agentkv"]["notes"] == [
        "the answer was cut at 512 tokens; raise max_new for a longer one"
    ]
    assert chat._get_ls_params()["ls_max_tokens"] == 512
    nearly_full = "x" * (memory.engine.window - chat.get_num_tokens_from_messages([HumanMessage("?")]) - 60)
    assert chat.invoke(nearly_full, skill=None).content == "I do not know."


def test_a_cache_does_not_outlive_the_manual_that_it_answered_from(memory: AgentMemory) -> None:
    chat = ChatAgentKV(memory=memory, cache=InMemoryCache())
    assert chat.invoke("The code of north?").content == "7001"
    before = memory.engine.counters.decoded
    assert chat.invoke("The code of north?").content == "7001"
    assert memory.engine.counters.decoded == before
    memory.deposit_text("north", "The code of the vault is 8002.", "The north vault.")
    assert chat.invoke("The code of north?").content == "8002"


def test_the_docstring_example_runs() -> None:
    results = doctest.testmod(chat_models)
    assert (results.failed, results.attempted > 2) == (0, True)
