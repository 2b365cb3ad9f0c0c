from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from langchain_agentkv import ChatAgentKV
from langchain_core.callbacks import UsageMetadataCallbackHandler
from langchain_core.messages import AIMessage, AIMessageChunk, HumanMessage

from agentkv import AgentMemory
from agentkv.engine.base import Cancellation
from agentkv.errors import Cancelled, UnknownSkill
from tests.integrations.chatting import SlowEngine, added, digest, timeless

STEP = 0.02

# --- streams --------------------------------------------------------------------------------------


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
    expected = digest(chat.invoke("The code of south?"))
    engine.step = STEP
    stream = chat.stream("count", max_new=90)
    next(stream)
    stream.close()  # type: ignore[attr-defined]
    closed = engine.counters.decoded
    with engine.lock:
        assert engine.counters.decoded <= closed + 1
        assert engine.tokens == ()
    engine.step = 0
    assert digest(chat.invoke("The code of south?")) == expected


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
    questions: list[Any] = ["The code of north?", "The code of south?"] * 4
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
    question = "count"
    chat = chat.model_copy(update={"max_new": 64})
    expected = timeless(chat.invoke(question))
    engine.step = 0.03

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


def test_two_streams_at_once_give_each_what_it_gives_alone(chat: ChatAgentKV, engine: SlowEngine) -> None:
    questions: list[Any] = ["The code of north?", "The code of south?"]
    alone = [timeless(chat.invoke(question)) for question in questions]
    engine.step = 0.005

    async def one(question: str) -> AIMessageChunk:
        return added([chunk async for chunk in chat.astream(question)])

    async def main() -> list[AIMessageChunk]:
        return list(await asyncio.gather(*map(one, questions)))

    assert [timeless(answer) for answer in asyncio.run(main())] == alone


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
    expected = digest(chat.invoke("The code of south?"))
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
    assert digest(chat.invoke("The code of south?")) == expected


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
