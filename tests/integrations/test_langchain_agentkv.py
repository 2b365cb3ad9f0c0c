from __future__ import annotations

import asyncio
import doctest
import threading
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import reduce
from operator import add
from pathlib import Path
from typing import Any

import pytest
from langchain_agentkv import ChatAgentKV, chat_models
from langchain_core.caches import InMemoryCache
from langchain_core.callbacks import UsageMetadataCallbackHandler
from langchain_core.messages import (
    AIMessage,
    AIMessageChunk,
    BaseMessage,
    ChatMessage,
    HumanMessage,
    SystemMessage,
    ToolMessage,
)
from langchain_core.runnables import ConfigurableField
from langchain_tests.unit_tests import ChatModelUnitTests

from agentkv import AgentMemory, FakeEngine
from agentkv.engine.base import Cancellation, Logits
from agentkv.engine.prompt import Message
from agentkv.errors import Cancelled, UnknownSkill, UsageError, WindowOverflow
from agentkv.memory import Pick
from agentkv.router.base import Classification

STEP = 0.02


class SlowEngine(FakeEngine):
    """Takes its time for each decode call, as a model does; waits outside the interpreter."""

    step = 0.0

    def extend(self, tokens: Sequence[int], cancellation: Cancellation | None = None) -> Logits:
        time.sleep(self.step)
        return super().extend(tokens, cancellation)


class Echo:
    """Routes to the label that stands in the question, and remembers what it was asked."""

    name, version = "echo", "1"

    def __init__(self) -> None:
        self.asked: list[str] = []

    def classify(self, question: str, candidates: Any) -> Classification:
        self.asked.append(question)
        pick = next((label for label in candidates if label in question), "none of these")
        return Classification(pick, {pick: 1.0}, 0)


def reply(prompt: str) -> str:
    """Codes that stand in the prompt; ``say …`` is repeated; ``count`` goes on for long."""
    question = prompt.rsplit("user\n", 1)[-1]
    if "say " in question:
        return question.split("say ", 1)[1].removesuffix("assistant\n")
    if "count" in question:
        return " ".join(map(str, range(200)))
    codes = [code for code in ("7001", "8002") if code in prompt]
    return " ".join(codes) or "I do not know."


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


class TestStandard(ChatModelUnitTests):
    """LangChain's own suite."""

    @pytest.fixture(autouse=True)
    def _memory(self, memory: AgentMemory) -> None:
        self.memory = memory

    @property
    def chat_model_class(self) -> type[ChatAgentKV]:
        return ChatAgentKV

    @property
    def chat_model_params(self) -> dict[str, Any]:
        return {"memory": self.memory}


# --- an answer ------------------------------------------------------------------------------------


def test_invoke_answers_as_the_memory_does_and_carries_its_record(chat: ChatAgentKV, memory: AgentMemory) -> None:
    turn = memory.ask("The code of north?")
    answer = chat.invoke("The code of north?")
    assert answer.content == turn.text == "7001"
    assert answer.usage_metadata == {
        "input_tokens": turn.tokens.restored + turn.tokens.prefilled,
        "output_tokens": len("7001") + 1,
        "total_tokens": turn.tokens.restored + turn.tokens.prefilled + len("7001") + 1,
        "input_token_details": {"cache_read": turn.tokens.restored},
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
    assert set(record["ms"]) == {"route", "restore", "prefill", "generate"}
    assert record["ms"]["route"] > 0


def test_skill_is_routed_or_named_or_none_also_for_one_call(chat: ChatAgentKV, memory: AgentMemory) -> None:
    assert chat.skill is Pick.ROUTE
    assert ChatAgentKV(memory=memory, skill="route").skill is Pick.ROUTE
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
    assert hot.invoke("?").response_metadata["agentkv"]["logits_sha256"] == _digest(first)
    assert _digest(hot.invoke("?", seed=2)) != _digest(first)
    assert _digest(hot.invoke("?", temperature=0.0)) != _digest(first)


def _digest(answer: AIMessage) -> str:
    return str(answer.response_metadata["agentkv"]["logits_sha256"])


# --- messages -------------------------------------------------------------------------------------


def test_roles_and_a_leading_system_message(chat: ChatAgentKV, memory: AgentMemory) -> None:
    heard: list[Sequence[Message]] = []
    memory.stream = lambda messages, **settings: (heard.append(messages), original(messages, **settings))[1]  # type: ignore[method-assign]
    original = AgentMemory.stream.__get__(memory)
    chat.invoke([SystemMessage("Be brief."), HumanMessage("Hello"), AIMessage("Hi."), HumanMessage("Of north?")])
    chat.invoke([SystemMessage("Mind south."), HumanMessage([{"type": "text", "text": "Of "}, "north?"])])
    assert heard[0] == (
        Message("user", "Be brief.\n\nHello"),
        Message("assistant", "Hi."),
        Message("user", "Of north?"),
    )
    assert heard[1] == (Message("user", "Mind south.\n\nOf north?"),)
    assert memory.classifier.asked == ["Of north?", "Of north?"]  # type: ignore[attr-defined]


IMAGE = {"type": "image", "url": "https://example.org/a.png"}
CALL = {"name": "add", "args": {}, "id": "1"}


@pytest.mark.parametrize(
    ("messages", "reason"),
    [
        ([], "last message must be the user's"),
        ([SystemMessage("a")], "last message must be the user's"),
        ([HumanMessage("a"), AIMessage("b")], "last message must be the user's"),
        ([HumanMessage("  ")], "question is empty"),
        ([SystemMessage("a"), HumanMessage("")], "question is empty"),
        ([HumanMessage("a"), SystemMessage("b"), HumanMessage("c")], "message 1 is a system message"),
        ([SystemMessage("a"), SystemMessage("b"), HumanMessage("c")], "message 1 is a system message"),
        ([HumanMessage("a"), AIMessage("", tool_calls=[CALL]), HumanMessage("c")], "message 1 calls tools"),
        ([HumanMessage("a"), ToolMessage("b", tool_call_id="1"), HumanMessage("c")], "message 1 is a tool's result"),
        ([ChatMessage("a", role="critic"), HumanMessage("b")], "message 0 is of type 'chat'"),
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
        ({"tools": []}, "no setting 'tools'"),
    ],
)
def test_wrong_settings_are_refused_at_construction_and_in_a_call(
    chat: ChatAgentKV, memory: AgentMemory, wrong: dict[str, Any], reason: str
) -> None:
    with pytest.raises(UsageError, match=reason):
        ChatAgentKV(memory=memory, **wrong)
    with pytest.raises(UsageError, match=reason):
        chat.bind(**wrong).invoke("The code of north?")


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
    assert opened == [(tmp_path, "smollm2-135m"), ("here",)]


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
    changes: list[dict[str, Any]] = [{"skill": None}, {"seed": 1}, {"stop": ["x"]}, {"max_new": 1}]
    strings = [ChatAgentKV(memory=memory, **change)._get_llm_string() for change in [{}, *changes]]
    assert len(set(strings)) == len(strings)


def test_a_cache_does_not_outlive_the_manual_that_it_answered_from(memory: AgentMemory) -> None:
    chat = ChatAgentKV(memory=memory, cache=InMemoryCache())
    assert chat.invoke("The code of north?").content == "7001"
    before = memory.engine.counters.decoded
    assert chat.invoke("The code of north?").content == "7001"
    assert memory.engine.counters.decoded == before
    memory.deposit_text("north", "The code of the vault is 8002.", "The north vault.")
    assert chat.invoke("The code of north?").content == "8002"


# --- streams --------------------------------------------------------------------------------------


def timeless(message: AIMessage) -> dict[str, Any]:
    """A message without what may differ between two runs: id, milliseconds."""
    record = {**message.response_metadata["agentkv"], "ms": None}
    record["decision"] = {**record["decision"], "ms": None}
    return {
        "content": message.content,
        "usage": message.usage_metadata,
        "metadata": {**message.response_metadata, "agentkv": record},
    }


def added(chunks: Sequence[AIMessageChunk]) -> AIMessageChunk:
    return reduce(add, chunks)


@pytest.mark.parametrize(
    "question", ["The code of north?", "say  \n padded   words \n", "say  ", "say ", "say 21 µg – 😀!"]
)
def test_a_stream_sums_to_the_invoked_answer(chat: ChatAgentKV, question: str) -> None:
    answer = chat.invoke(question)
    chunks = list(chat.stream(question))
    assert timeless(added(chunks)) == timeless(answer)
    assert len({chunk.id for chunk in chunks}) == 1
    assert [chunk.usage_metadata is not None for chunk in chunks] == [False] * (len(chunks) - 1) + [True]
    assert [chunk.chunk_position for chunk in chunks] == [None] * (len(chunks) - 1) + ["last"]
    assert chat.invoke(question, stream=True).content == answer.content


def test_text_comes_while_the_rest_is_generated(chat: ChatAgentKV, engine: SlowEngine) -> None:
    engine.step = STEP
    stream = chat.stream("count", max_new=20)
    next(stream)
    decoded = engine.counters.decoded
    assert len(list(stream)) >= 10
    assert engine.counters.decoded >= decoded + 10


def test_a_stream_may_be_read_by_many_threads_and_two_by_one(chat: ChatAgentKV) -> None:
    alone = [chunk.text for chunk in chat.stream("The code of north?")]
    stream: Iterator[AIMessageChunk] = chat.stream("The code of north?")
    texts = []
    for _ in alone:
        with ThreadPoolExecutor(1) as pool:
            texts.append(pool.submit(lambda: next(stream).text).result())
    assert texts == alone
    pairs = zip(chat.stream("The code of north?"), chat.stream("The code of south?"), strict=True)
    north, south = zip(*[(a.text, b.text) for a, b in pairs], strict=True)
    assert ("".join(north), "".join(south)) == ("7001", "8002")


def test_a_closed_stream_stops_within_a_token_and_the_next_answer_is_exact(
    chat: ChatAgentKV, memory: AgentMemory, engine: SlowEngine
) -> None:
    expected = _digest(chat.invoke("The code of south?"))
    engine.step = STEP
    stream = chat.stream("count", max_new=90)
    next(stream)
    stream.close()  # type: ignore[attr-defined]
    closed = engine.counters.decoded
    with engine.lock:
        assert engine.counters.decoded <= closed + 1
        assert engine.tokens == ()
    engine.step = 0
    assert _digest(chat.invoke("The code of south?")) == expected


def test_an_error_in_the_thread_is_raised_where_the_stream_is_read(chat: ChatAgentKV) -> None:
    with pytest.raises(UnknownSkill):
        list(chat.stream("The code?", skill="east"))

    async def read() -> None:
        async for _ in chat.astream("The code?", skill="east"):
            pass

    with pytest.raises(UnknownSkill):
        asyncio.run(read())


# --- several at once ------------------------------------------------------------------------------


def test_batch_and_threads_answer_each_their_own(chat: ChatAgentKV) -> None:
    questions = ["The code of north?", "The code of south?"] * 4
    alone = [chat.invoke(question) for question in questions]
    assert [timeless(answer) for answer in chat.batch(questions)] == [timeless(answer) for answer in alone]
    with ThreadPoolExecutor(2) as pool:
        sums = list(pool.map(lambda question: added(list(chat.stream(question))), questions))
    assert [timeless(answer) for answer in sums] == [timeless(answer) for answer in alone]


def test_usage_reaches_langchains_counter(chat: ChatAgentKV) -> None:
    counter = UsageMetadataCallbackHandler()
    answers = chat.batch(["The code of north?", "The code of south?"], config={"callbacks": [counter]})
    total = sum(answer.usage_metadata["total_tokens"] for answer in answers if answer.usage_metadata)
    assert counter.usage_metadata["fake"]["total_tokens"] == total > 0


# --- async ----------------------------------------------------------------------------------------


async def widest_gap(done: asyncio.Event) -> float:
    """The longest time, in seconds, for which the event loop did not come round."""
    widest, last = 0.0, time.perf_counter()
    while not done.is_set():
        await asyncio.sleep(0.002)
        now = time.perf_counter()
        widest, last = max(widest, now - last), now
    return widest


@pytest.mark.parametrize("streamed", [False, True])
def test_the_event_loop_runs_on_while_the_engine_works(chat: ChatAgentKV, engine: SlowEngine, streamed: bool) -> None:
    question = "The code of north?"
    expected = timeless(chat.invoke(question))
    engine.step = 0.15

    async def main() -> tuple[AIMessage, float]:
        done = asyncio.Event()
        watch = asyncio.create_task(widest_gap(done))
        if streamed:
            answer: AIMessage = added([chunk async for chunk in chat.astream(question)])
        else:
            answer = await chat.ainvoke(question)
        done.set()
        return answer, await watch

    answer, gap = asyncio.run(main())
    assert timeless(answer) == expected
    assert gap < 0.1


def test_abatch_and_events(chat: ChatAgentKV) -> None:
    async def main() -> None:
        both = await chat.abatch(["The code of north?", "The code of south?"])
        assert [answer.content for answer in both] == ["7001", "8002"]
        seen = [event async for event in chat.astream_events("The code of north?", version="v2")]
        chunks = [event["data"]["chunk"] for event in seen if event["event"] == "on_chat_model_stream"]
        assert added(chunks).content == "7001"

    asyncio.run(main())


@pytest.mark.parametrize("streamed", [False, True])
def test_a_cancelled_task_stops_within_a_token_and_the_next_answer_is_exact(
    chat: ChatAgentKV, engine: SlowEngine, streamed: bool
) -> None:
    expected = _digest(chat.invoke("The code of south?"))
    prefilled = chat.invoke("count", max_new=1).response_metadata["agentkv"]["tokens"]["prefilled"]
    engine.step = STEP

    async def read() -> None:
        if streamed:
            async for _ in chat.astream("count", max_new=90):
                pass
        else:
            await chat.ainvoke("count", max_new=90)

    async def main() -> int:
        task = asyncio.create_task(read())
        start = engine.counters.decoded
        while engine.counters.decoded < start + prefilled + 5 and not task.done():
            await asyncio.sleep(0.001)
        cancelled = engine.counters.decoded
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        return cancelled

    cancelled = asyncio.run(main())
    with engine.lock:
        assert engine.counters.decoded <= cancelled + 1
        assert engine.tokens == ()
    engine.step = 0
    assert _digest(chat.invoke("The code of south?")) == expected


def test_an_abandoned_astream_stops_too(chat: ChatAgentKV, engine: SlowEngine) -> None:
    engine.step = STEP

    async def main() -> int:
        async for _ in chat.astream("count", max_new=90):
            break
        await asyncio.sleep(0)
        return engine.counters.decoded

    left = asyncio.run(main())
    with engine.lock:
        assert engine.counters.decoded <= left + 2


def test_one_that_waits_for_the_engine_is_cancelled_at_once_and_decodes_nothing(
    chat: ChatAgentKV, engine: SlowEngine
) -> None:
    async def main() -> None:
        with_engine, released = threading.Event(), threading.Event()

        def hold() -> None:
            with engine.lock:
                with_engine.set()
                released.wait(30)

        holder = threading.Thread(target=hold)
        holder.start()
        with_engine.wait(30)
        before = engine.counters.decoded
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(chat.ainvoke("The code of north?"), 0.05)
        released.set()
        await asyncio.to_thread(holder.join)
        with engine.lock:
            assert engine.counters.decoded == before

    asyncio.run(main())


def test_a_cancellation_before_the_start_is_a_cancelled_turn(chat: ChatAgentKV) -> None:
    cancellation = Cancellation()
    cancellation.cancel()
    with pytest.raises(Cancelled):
        chat._request([HumanMessage("The code of north?")], None, {}).answer(cancellation)


def test_the_docstring_example_runs() -> None:
    results = doctest.testmod(chat_models)
    assert (results.failed, results.attempted > 2) == (0, True)
