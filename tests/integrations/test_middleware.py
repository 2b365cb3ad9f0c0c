"""``SkillMemoryMiddleware`` in LangChain's agents: one decision a user turn, a graft or a text, no loop blocked."""

from __future__ import annotations

import asyncio
import copy
import logging
import pickle
import shutil
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from langchain.agents import create_agent
from langchain.agents.middleware import AgentMiddleware, ModelRequest
from langchain_agentkv import ChatAgentKV, SkillMemoryMiddleware
from langchain_agentkv.middleware import manual_text, with_manual
from langchain_core.caches import InMemoryCache
from langchain_core.language_models import GenericFakeChatModel
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, SystemMessage, ToolMessage
from langchain_core.outputs import ChatResult
from langgraph.checkpoint.memory import InMemorySaver

from agentkv import AgentMemory, FakeEngine
from agentkv.errors import NotPicklable, UsageError
from agentkv.notices import AgentKVWarning
from agentkv.router.base import Classification


class Echo:
    """Routes to the label that stands in the question, and remembers what it was asked and where."""

    name, version = "echo", "1"

    def __init__(self) -> None:
        self.asked: list[str] = []
        self.threads: list[int] = []
        self.pause = 0.0

    def classify(self, question: str, candidates: Any) -> Classification:
        self.asked.append(question)
        self.threads.append(threading.get_ident())
        time.sleep(self.pause)
        pick = next((label for label in sorted(candidates) if label in question), "none of these")
        return Classification(pick, {pick: 1.0}, 0)


class Remote(GenericFakeChatModel):
    """A chat model of somebody else's: says what it is set to, remembers what it was sent."""

    messages: Iterator[AIMessage | str]
    seen: list[list[BaseMessage]]

    def bind_tools(self, tools: Sequence[Any], **kwargs: Any) -> Any:
        return self.bind(**kwargs)

    def _generate(self, messages: list[BaseMessage], *args: Any, **kwargs: Any) -> ChatResult:
        self.seen.append(list(messages))
        return super()._generate(messages, *args, **kwargs)


def remote(*answers: AIMessage | str) -> Remote:
    return Remote(messages=iter(answers), seen=[])


def calling(name: str, **args: Any) -> AIMessage:
    return AIMessage("", tool_calls=[{"name": name, "args": args, "id": "call-1"}])


def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


def write_skill(root: Path, name: str, text: str) -> Path:
    folder = root / name
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "SKILL.md").write_text(f"---\nname: {name}\ndescription: About {name}.\n---\n{text}\n")
    return folder


@pytest.fixture
def router() -> Echo:
    return Echo()


@pytest.fixture
def memory(tmp_path: Path, router: Echo) -> AgentMemory:
    engine = FakeEngine(window=4096, replies=lambda prompt: next((c for c in ("7001", "8002") if c in prompt), "none"))
    memory = AgentMemory(tmp_path / "store", engine, classifier=router)
    memory.deposit_text("north", "The code of the vault is 7001.", "The north vault.")
    memory.deposit_text("south", "The code of the vault is 8002.", "The south vault.")
    return memory


def asked(text: str) -> Any:
    return {"messages": [HumanMessage(text)]}


# --- with ChatAgentKV: by graft -------------------------------------------------------------------


def test_a_chat_model_of_ours_grafts_what_was_routed_once(memory: AgentMemory, router: Echo) -> None:
    agent = create_agent(ChatAgentKV(memory=memory), middleware=[SkillMemoryMiddleware(memory=memory)])
    state = agent.invoke(asked("The code of south?"))
    answer, decision = state["messages"][-1], state["agentkv_decision"]
    assert answer.content == "8002"
    assert router.asked == ["The code of south?"]
    assert (decision["pick"], decision["how"], decision["classifier"]) == ("south", "graft", "echo/1")
    record = answer.response_metadata["agentkv"]
    assert record["decision"] == {k: v for k, v in decision.items() if k not in ("question", "how", "source")}
    assert record["block_id"] == memory.routing.manifest("south").block_id
    assert answer.usage_metadata["input_token_details"]["cache_read"] == memory.routing.manifest("south").n_tokens


def test_no_skill_is_a_decision_too(memory: AgentMemory, router: Echo) -> None:
    agent = create_agent(ChatAgentKV(memory=memory), middleware=[SkillMemoryMiddleware(memory=memory)])
    state = agent.invoke(asked("The code of west?"))
    assert state["messages"][-1].content == "none"
    assert (state["agentkv_decision"]["pick"], state["agentkv_decision"]["how"]) == (None, "none")
    assert len(router.asked) == 1


def test_a_skill_that_the_request_names_is_left_alone(memory: AgentMemory, router: Echo) -> None:
    class Named(AgentMiddleware[Any, Any, Any]):
        def wrap_model_call(self, request: ModelRequest[Any], handler: Callable[..., Any]) -> Any:
            return handler(request.override(model_settings={"skill": "north"}))

    agent = create_agent(ChatAgentKV(memory=memory), middleware=[Named(), SkillMemoryMiddleware(memory=memory)])
    state = agent.invoke(asked("The code of south?"))
    assert state["messages"][-1].content == "7001"
    assert router.asked == []
    assert "agentkv_decision" not in state


def test_a_chat_model_with_another_memory_gets_the_text_unless_it_holds_the_same(
    memory: AgentMemory, tmp_path: Path
) -> None:
    other = AgentMemory(
        tmp_path / "other", FakeEngine(window=4096, replies=lambda prompt: "8002" if "8002" in prompt else "-")
    )
    agent = create_agent(ChatAgentKV(memory=other), middleware=[SkillMemoryMiddleware(memory=memory)])
    state = agent.invoke(asked("The code of south?"))
    assert state["agentkv_decision"]["how"] == "text"
    assert state["messages"][-1].content == "8002"
    other.deposit_text("south", "The code of the vault is 1111.", "The south vault.")
    assert agent.invoke(asked("The code of south?"))["agentkv_decision"]["how"] == "text"
    other.deposit_text("south", "The code of the vault is 8002.", "The south vault.")
    assert agent.invoke(asked("The code of south?"))["agentkv_decision"]["how"] == "graft"


# --- with any other chat model: as text -----------------------------------------------------------


def test_another_chat_model_gets_the_manual_behind_its_system_message(memory: AgentMemory) -> None:
    model = remote("8002")
    middleware = SkillMemoryMiddleware(memory=memory)
    agent = create_agent(model, system_prompt="You guard vaults.", middleware=[middleware])
    state = agent.invoke(asked("The code of south?"))
    system = model.seen[0][0]
    assert isinstance(system, SystemMessage)
    assert system.text.startswith("You guard vaults.\n\n")
    assert "The code of the vault is 8002." in system.text
    assert "7001" not in system.text
    assert state["agentkv_decision"]["how"] == "text"
    assert [message.type for message in state["messages"]] == ["human", "ai"]


def test_another_chat_model_without_a_skill_is_sent_what_it_would_be_sent(memory: AgentMemory) -> None:
    model = remote("hello")
    create_agent(model, middleware=[SkillMemoryMiddleware(memory=memory)]).invoke(asked("Hello!"))
    assert [message.type for message in model.seen[0]] == ["human"]


def test_content_blocks_of_a_system_message_stay_blocks() -> None:
    given = SystemMessage([{"type": "text", "text": "a", "cache_control": {"type": "ephemeral"}}])
    made = with_manual(given, "north", "manual")
    assert made.content[0] == given.content[0]
    assert "manual" in made.content[1]["text"]  # type: ignore[index]
    assert with_manual(None, "north", "manual").text.endswith("manual")


def test_the_text_of_a_reference_comes_behind_its_manual(tmp_path: Path, memory: AgentMemory) -> None:
    folder = write_skill(tmp_path / "skills", "east", "The east vault has a manual.")
    (folder / "references").mkdir()
    (folder / "references" / "codes.md").write_text("The code is 3003.")
    SkillMemoryMiddleware(memory=memory, skills=[tmp_path / "skills"], references=True).sync()
    text = manual_text(memory, "east/references/codes.md")
    assert text.index("The east vault has a manual.") < text.index("The code is 3003.")
    assert memory.prefix.strip() not in text


# --- one decision for a user turn -----------------------------------------------------------------


def test_calls_after_tool_results_stay_behind_the_same_skill(memory: AgentMemory, router: Echo) -> None:
    model = remote(calling("add", a=1, b=2), calling("add", a=3, b=4), "done", "again")
    agent = create_agent(
        model, tools=[add], middleware=[SkillMemoryMiddleware(memory=memory)], checkpointer=InMemorySaver()
    )
    config: Any = {"configurable": {"thread_id": "t"}}
    state = agent.invoke(asked("Add, for north."), config)
    assert [message.content for message in state["messages"] if isinstance(message, ToolMessage)] == ["3", "7"]
    assert router.asked == ["Add, for north."]
    assert len(model.seen) == 3
    assert all("7001" in sent[0].text for sent in model.seen)
    state = agent.invoke(asked("And now south."), config)
    assert router.asked == ["Add, for north.", "And now south."]
    assert "8002" in model.seen[3][0].text
    assert "7001" not in model.seen[3][0].text
    assert state["agentkv_decision"]["pick"] == "south"


def test_messages_of_a_middleware_are_no_questions(memory: AgentMemory, router: Echo) -> None:
    model = remote("x")
    agent = create_agent(model, middleware=[SkillMemoryMiddleware(memory=memory)])
    written = HumanMessage("Summary: all about south.", additional_kwargs={"lc_source": "summarization"})
    agent.invoke({"messages": [HumanMessage("The code of north?"), written]})
    assert router.asked == ["The code of north?"]


def test_where_nobody_asks_nothing_is_routed(memory: AgentMemory, router: Echo) -> None:
    model = remote("x")
    state = create_agent(model, middleware=[SkillMemoryMiddleware(memory=memory)]).invoke(
        {"messages": [HumanMessage([{"type": "image", "url": "https://example.org/a.png"}])]}
    )
    assert router.asked == []
    assert "agentkv_decision" not in state


# --- async ----------------------------------------------------------------------------------------


async def test_the_loop_runs_on_while_the_router_thinks(memory: AgentMemory, router: Echo) -> None:
    router.pause = 0.3
    agent = create_agent(ChatAgentKV(memory=memory), middleware=[SkillMemoryMiddleware(memory=memory)])
    task = asyncio.create_task(agent.ainvoke(asked("The code of north?")))
    turns = 0
    while not task.done():
        await asyncio.sleep(0.01)
        turns += bool(router.asked)
    state = await task
    assert state["messages"][-1].content == "7001"
    assert router.threads[0] != threading.get_ident()
    assert turns > 5


async def test_agents_at_once_get_each_their_own_skill(memory: AgentMemory) -> None:
    agent = create_agent(ChatAgentKV(memory=memory), middleware=[SkillMemoryMiddleware(memory=memory)])
    names = ["north", "south"] * 4
    states = await asyncio.gather(*(agent.ainvoke(asked(f"The code of {name}?")) for name in names))
    assert [state["messages"][-1].content for state in states] == ["7001", "8002"] * 4


async def test_the_decision_is_streamed_with_the_state(memory: AgentMemory) -> None:
    agent = create_agent(ChatAgentKV(memory=memory), middleware=[SkillMemoryMiddleware(memory=memory)])
    updates = [update async for update in agent.astream(asked("The code of north?"), stream_mode="updates")]
    labels = [
        part["agentkv_decision"]["pick"]
        for update in updates
        for part in update.values()
        if part and "agentkv_decision" in part
    ]
    assert labels == ["north"]


def records(streamed: Iterator[Any]) -> list[dict[str, Any]]:
    """The records in the messages of a stream, which come with the last piece of each."""
    found = (message.response_metadata.get("agentkv") for message, _ in streamed)
    return [record for record in found if record is not None]


def test_a_stream_says_who_decided_as_the_invoked_answer_does(memory: AgentMemory, tmp_path: Path) -> None:
    other = AgentMemory(tmp_path / "other", FakeEngine(window=4096))
    for used, how in ((memory, "graft"), (other, "text")):
        agent = create_agent(ChatAgentKV(memory=used), middleware=[SkillMemoryMiddleware(memory=memory)])
        for question, pick in (("The code of south?", "south"), ("The code of west?", None)):
            state = agent.invoke(asked(question))
            decision = {**state["messages"][-1].response_metadata["agentkv"]["decision"], "ms": None}
            assert (decision["classifier"], decision["pick"]) == ("echo/1", pick)
            assert state["agentkv_decision"]["how"] == (how if pick else "none")
            streamed = records(agent.stream(asked(question), stream_mode="messages"))
            assert [{**record["decision"], "ms": None} for record in streamed] == [decision]


def test_a_cached_answer_is_found_whoever_chose_the_skill(memory: AgentMemory, router: Echo) -> None:
    chat = ChatAgentKV(memory=memory, cache=InMemoryCache())
    agent = create_agent(chat, middleware=[SkillMemoryMiddleware(memory=memory)])
    first = chat.invoke(asked("The code of south?")["messages"], skill="south")
    assert first.response_metadata["agentkv"]["decision"]["classifier"] != "echo/1"
    for _ in range(2):
        state = agent.invoke(asked("The code of south?"))
        record = state["messages"][-1].response_metadata["agentkv"]
        assert record["ms"] == first.response_metadata["agentkv"]["ms"]
        assert record["decision"] == {name: state["agentkv_decision"][name] for name in record["decision"]}
    assert len(router.asked) == 2


# --- folders of skills ----------------------------------------------------------------------------


def test_skills_are_read_before_the_first_call_and_not_again(tmp_path: Path, memory: AgentMemory) -> None:
    write_skill(tmp_path / "skills", "east", "The code of the vault is 8002.")
    middleware = SkillMemoryMiddleware(memory=memory, skills=[str(tmp_path / "skills")])
    assert memory.routing.find("east") is None
    agent = create_agent(ChatAgentKV(memory=memory), middleware=[middleware])
    assert agent.invoke(asked("The code of east?"))["agentkv_decision"]["pick"] == "east"
    assert middleware.report is not None
    assert middleware.report.added == ("east",)
    report = middleware.report
    agent.invoke(asked("The code of east?"))
    assert middleware.report is report
    assert middleware.sync().unchanged == ("east",)


Change = Callable[[Path], object]


def edit(folder: Path) -> None:
    (folder / "SKILL.md").write_text("---\nname: east\ndescription: About east.\n---\nThe code is 8002 now.\n")


def touch_reference(folder: Path) -> None:
    (folder / "references").mkdir(exist_ok=True)
    (folder / "references" / "codes.md").write_text("The code is 8002.\n")


@pytest.mark.parametrize("is_async", [False, True])
@pytest.mark.parametrize(
    ("change", "pick", "text"),
    [
        (edit, "east", "8002"),
        (lambda folder: shutil.rmtree(folder), None, None),
        (lambda folder: (folder / "SKILL.md").unlink(), None, None),
        (lambda folder: folder.rename(folder.parent.parent / "away"), None, None),
        (lambda folder: (folder / "SKILL.md").write_text("---\nname: east\n---\nno description"), "east", "7001"),
    ],
    ids=["edited", "folder deleted", "file deleted", "moved away", "broken"],
)
def test_a_change_of_a_skill_is_noticed_before_the_next_turn(
    tmp_path: Path, memory: AgentMemory, change: Change, pick: str | None, text: str | None, is_async: bool
) -> None:
    folder = write_skill(tmp_path / "skills", "east", "The code of the vault is 7001.")
    middleware = SkillMemoryMiddleware(memory=memory, skills=[tmp_path / "skills"])
    agent = create_agent(ChatAgentKV(memory=memory), middleware=[middleware])

    def ask() -> dict[str, Any]:
        question = asked("The code of east?")
        return asyncio.run(agent.ainvoke(question)) if is_async else agent.invoke(question)

    assert ask()["messages"][-1].text == "7001"
    first = middleware.report
    change(folder)
    state = ask()
    assert middleware.report is not first
    assert state["agentkv_decision"]["pick"] == pick
    assert state["messages"][-1].text == (text or "none")


def test_a_reference_is_noticed_too_and_nothing_is_read_while_nothing_changes(
    tmp_path: Path, memory: AgentMemory
) -> None:
    folder = write_skill(tmp_path / "skills", "east", "The east vault has a manual.")
    middleware = SkillMemoryMiddleware(memory=memory, skills=[tmp_path / "skills"], references=True)
    agent = create_agent(ChatAgentKV(memory=memory), middleware=[middleware])
    agent.invoke(asked("The code of east?"))
    for change in (touch_reference, lambda folder: (folder / "references" / "codes.md").unlink()):
        before = middleware.report
        agent.invoke(asked("The code of east?"))
        assert middleware.report is before
        change(folder)
        agent.invoke(asked("The code of east?"))
        assert middleware.report is not before
        assert (memory.routing.find("east/references/codes.md") is not None) == (change is touch_reference)


def test_a_skill_that_goes_in_mid_turn_is_decided_on_again(tmp_path: Path, memory: AgentMemory) -> None:
    folder = write_skill(tmp_path / "skills", "east", "The code of the vault is 7001.")
    middleware = SkillMemoryMiddleware(memory=memory, skills=[tmp_path / "skills"])

    def forget() -> str:
        """Delete the skill, as another run of the agent would notice."""
        shutil.rmtree(folder)
        middleware.sync()
        return "gone"

    calls = AIMessage("", tool_calls=[{"name": "forget", "args": {}, "id": "1"}])
    model = remote(calls, "done")
    state = create_agent(model, [forget], middleware=[middleware]).invoke(asked("Forget east."))
    assert state["messages"][-1].text == "done"
    assert state["agentkv_decision"]["pick"] is None
    assert "7001" in model.seen[0][0].text
    assert model.seen[1][0].type == "human"


def test_a_copy_of_the_middleware_is_the_same(memory: AgentMemory) -> None:
    middleware = SkillMemoryMiddleware(memory=memory)
    assert copy.copy(middleware) is copy.deepcopy(middleware) is middleware
    with pytest.raises(NotPicklable, match="SkillMemoryMiddleware"):
        pickle.dumps(middleware)


def test_of_two_folders_with_one_name_the_last_wins_and_is_told_by_its_label(
    tmp_path: Path, memory: AgentMemory, caplog: pytest.LogCaptureFixture
) -> None:
    write_skill(tmp_path / "base", "east", "The code of the vault is 7001.")
    write_skill(tmp_path / "base", "west", "The code of the vault is 7001.")
    write_skill(tmp_path / "own", "east", "The code of the vault is 8002.")
    sources = [(tmp_path / "base", "Base"), (tmp_path / "own", "Own")]
    middleware = SkillMemoryMiddleware(memory=memory, skills=sources)
    agent = create_agent(ChatAgentKV(memory=memory), middleware=[middleware])
    with caplog.at_level(logging.WARNING):
        east, west = (agent.invoke(asked(f"The code of {name}?")) for name in ("east", "west"))
    assert caplog.records == []
    assert (east["messages"][-1].content, east["agentkv_decision"]["source"]) == ("8002", "Own")
    assert (west["messages"][-1].content, west["agentkv_decision"]["source"]) == ("7001", "Base")
    assert middleware.sync().unchanged == ("east", "west")


def test_two_skills_of_one_name_in_one_folder_are_warned_of(tmp_path: Path, memory: AgentMemory) -> None:
    write_skill(tmp_path / "base" / ".backup", "east", "The code of the vault is 9999.")
    old = write_skill(tmp_path / "base" / "attic", "east", "The code of the vault is 7001.")
    live = write_skill(tmp_path / "base", "east", "The code of the vault is 8002.")
    middleware = SkillMemoryMiddleware(memory=memory, skills=[tmp_path / "base"])
    agent = create_agent(ChatAgentKV(memory=memory), middleware=[middleware])
    with pytest.warns(AgentKVWarning, match=f"{old}/SKILL.md: the name 'east' is taken by {live}; rename or remove"):
        state = agent.invoke(asked("The code of east?"))
    assert state["messages"][-1].content == "8002"
    assert middleware.sync().unchanged == ("east",)


def test_a_skill_that_only_the_validator_refuses_is_used_with_a_warning(tmp_path: Path, memory: AgentMemory) -> None:
    file = write_skill(tmp_path / "base", "east", "The code of the vault is 8002.") / "SKILL.md"
    file.write_text(file.read_text().replace("---\n", "---\nversion: 1.0\nallowed-tools: [Read]\n", 1))
    middleware = SkillMemoryMiddleware(memory=memory, skills=[tmp_path / "base"])
    agent = create_agent(ChatAgentKV(memory=memory), middleware=[middleware])
    with pytest.warns(AgentKVWarning, match="unknown frontmatter field version"):
        state = agent.invoke(asked("The code of east?"))
    assert state["messages"][-1].content == "8002"


def test_a_source_added_later_replaces_the_name(tmp_path: Path, memory: AgentMemory) -> None:
    write_skill(tmp_path / "base", "east", "The code of the vault is 7001.")
    write_skill(tmp_path / "own", "east", "The code of the vault is 8002.")
    SkillMemoryMiddleware(memory=memory, skills=[tmp_path / "base"]).sync()
    SkillMemoryMiddleware(memory=memory, skills=[tmp_path / "base", tmp_path / "own"]).sync()
    assert "8002" in manual_text(memory, "east")


def test_a_broken_skill_is_told(tmp_path: Path, memory: AgentMemory, caplog: pytest.LogCaptureFixture) -> None:
    write_skill(tmp_path / "base", "east", "x")
    write_skill(tmp_path / "base", "west", "x").joinpath("SKILL.md").write_text("---\nname: west\n---\nno description")
    middleware = SkillMemoryMiddleware(memory=memory, skills=[tmp_path / "base"])
    with caplog.at_level(logging.WARNING):
        middleware.sync()
    assert [record.getMessage() for record in caplog.records if "west" in record.getMessage()] != []
    assert len(caplog.records) == 1


@pytest.mark.parametrize(
    "given",
    [{}, {"memory": True, "store": "x"}, {"memory": True, "model": "x"}, {"memory": True, "skills": [("a", 1)]}],
)
def test_what_makes_no_sense_is_refused(memory: AgentMemory, given: dict[str, Any]) -> None:
    if given.get("memory"):
        given = {**given, "memory": memory}
    with pytest.raises(UsageError):
        SkillMemoryMiddleware(**given)


def test_a_folder_that_is_not_there_is_refused(tmp_path: Path, memory: AgentMemory) -> None:
    with pytest.raises(UsageError, match="is not a directory"):
        SkillMemoryMiddleware(memory=memory, skills=[tmp_path / "nothing"])
