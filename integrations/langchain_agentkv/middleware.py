"""``SkillMemoryMiddleware``: an agent's model calls answered with the one skill that the user's question needs.

The skill is decided once for each user turn, by the last message that a person wrote, so the calls that follow tool
results keep the same manual; the decision is in the agent's state. ``ChatAgentKV`` grafts the manual's block; for any
other chat model its text is put into the prompt. Not guaranteed: that a skill which changes in mid-turn is decided on
again; one that is gone is.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import Any, NotRequired, cast

from langchain.agents.middleware.types import (
    AgentMiddleware,
    AgentState,
    ContextT,
    ExtendedModelResponse,
    ModelRequest,
    ModelResponse,
    ResponseT,
)
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, SystemMessage
from langchain_core.runnables.config import run_in_executor
from langgraph.types import Command

from agentkv import AgentMemory, SkillLibrary
from agentkv.errors import StoreError, UnknownBlock, UsageError
from agentkv.io.forks import OwnedLock, Shared
from agentkv.io.hashing import sha256
from agentkv.records import Decision
from agentkv.skills.report import SyncReport
from langchain_agentkv.chat_models import ChatAgentKV

Source = str | Path | tuple[str | Path, str]
"""A folder of skills, or a folder and what it is called."""

_log = logging.getLogger(__name__)


class SkillMemoryState(AgentState[Any]):
    """An agent's state with the last decision.

    ``agentkv_decision``: the :class:`~agentkv.records.Decision` as a dict, with ``question``: the message asked about;
    ``how``: ``graft``, ``text`` or ``none``; ``source``: the label of the skill's folder, or None.
    """

    agentkv_decision: NotRequired[dict[str, Any]]


class SkillMemoryMiddleware(Shared, AgentMiddleware[SkillMemoryState, ContextT, ResponseT]):
    """Routes each user turn to one skill and puts its manual before the model: by graft, or else as text.

    ``memory`` routes; or it is made of ``store`` and ``model``, and then :meth:`close` closes it. ``skills`` are
    folders of skills, each a path or ``(path, label)``, of which the last wins where a name is in several, as with
    deepagents; they are deposited by :meth:`sync`, at the latest when an agent first runs, and synced again before a
    turn if a file was edited, added or deleted. ``references``: deposit their ``references/`` too. A copy, deep or not,
    is the same middleware.

    A :class:`ChatAgentKV` whose memory holds the manual grafts it, and its answers' ``response_metadata`` has the
    decision. Any other chat model gets the manual's text after its system message. A ``skill`` in the request's
    ``model_settings`` is left as it is. Messages that a middleware wrote (``lc_source``) are not questions.

    Raises UsageError, and whatever :meth:`AgentMemory.route <agentkv.AgentMemory.route>` and
    :meth:`SkillLibrary.sync <agentkv.SkillLibrary.sync>` raise.

    >>> import tempfile
    >>> from agentkv import FakeEngine
    >>> from langchain.agents import create_agent
    >>> memory = AgentMemory(tempfile.mkdtemp(), FakeEngine(replies=lambda prompt: "7 days" if "7" in prompt else "?"))
    >>> _ = memory.deposit_text("returns", "returns are accepted for 7 days", "Sending goods back, returns.")
    >>> agent = create_agent(ChatAgentKV(memory=memory), middleware=[SkillMemoryMiddleware(memory=memory)])
    >>> state = agent.invoke({"messages": [{"role": "user", "content": "How long are returns accepted?"}]})
    >>> state["messages"][-1].text, state["agentkv_decision"]["pick"], state["agentkv_decision"]["how"]
    ('7 days', 'returns', 'graft')
    """

    state_schema = SkillMemoryState

    def __init__(
        self,
        *,
        memory: AgentMemory | None = None,
        store: str | Path | None = None,
        model: str | Path | None = None,
        skills: Source | Sequence[Source] = (),
        references: bool = False,
    ) -> None:
        super().__init__()
        if (memory is None) == (store is None):
            raise UsageError("pass a memory, or store (and model) to make one of, and not both")
        if memory is not None and model is not None:
            raise UsageError("a memory has its model already")
        folders = [_source(source) for source in ([skills] if isinstance(skills, str | Path) else skills)]
        self._made = None
        if memory is None:
            assert store is not None
            memory = self._made = AgentMemory(store, model)
        self.memory = memory
        folders.reverse()  # a library's first folder wins, here the last
        self._labels = {folder.absolute(): label for folder, label in folders}
        roots = [folder for folder, _ in folders]
        self.library = SkillLibrary(memory, roots, references=references, layered=True) if roots else None
        self.report: SyncReport | None = None
        self._syncing = OwnedLock("skill middleware")

    def close(self) -> None:
        """Close the memory if it was made here."""
        if self._made is not None:
            self._made.close()

    def sync(self) -> SyncReport:
        """Deposit what is new or changed in the skills' folders; broken skills are logged too. Takes a model's time."""
        with self._syncing:
            return self._sync()

    def _bring_in_step(self) -> None:
        """Sync the first time, and whenever a file has changed since; otherwise it costs one stat a file.

        A concurrent caller waits, and finds it done.
        """
        with self._syncing:
            if self.report is None or self._is_behind():
                self._sync()

    def _is_behind(self) -> bool:
        if self.library is None:
            return False
        with self.library.locked():
            return bool(self.library.inventory.places_changed())

    def _sync(self) -> SyncReport:
        report = SyncReport() if self.library is None else self.library.sync()
        for broken in report.broken:
            level = logging.DEBUG if getattr(broken.error, "keeper", None) else logging.WARNING  # sync has warned
            _log.log(level, "skill not read: %s", broken.message)
        self.report = report
        return report

    # --- hooks ------------------------------------------------------------------------------------

    def before_agent(self, state: SkillMemoryState, runtime: Any) -> dict[str, Any] | None:
        """Sync the skills the first time, and later when their folders have changed."""
        self._bring_in_step()
        return None

    async def abefore_agent(self, state: SkillMemoryState, runtime: Any) -> dict[str, Any] | None:
        """The same, in the default executor."""
        await run_in_executor(None, self._bring_in_step)
        return None

    def wrap_model_call(
        self,
        request: ModelRequest[ContextT],
        handler: Callable[[ModelRequest[ContextT]], ModelResponse[ResponseT]],
    ) -> ModelResponse[ResponseT] | AIMessage | ExtendedModelResponse[ResponseT]:
        """Route, call the model with the skill, update the state."""
        request, decision = self._routed(request)
        return _with_decision(handler(request), request, decision)

    async def awrap_model_call(
        self,
        request: ModelRequest[ContextT],
        handler: Callable[[ModelRequest[ContextT]], Awaitable[ModelResponse[ResponseT]]],
    ) -> ModelResponse[ResponseT] | AIMessage | ExtendedModelResponse[ResponseT]:
        """The same; routing runs in the default executor."""
        request, decision = await run_in_executor(None, self._routed, request)
        return _with_decision(await handler(request), request, decision)

    # --- one model call ---------------------------------------------------------------------------

    def _routed(self, request: ModelRequest[ContextT]) -> tuple[ModelRequest[ContextT], dict[str, Any] | None]:
        """The request with its skill, and the decision; None where there is nothing to decide."""
        if "skill" in request.model_settings:
            return request, None
        decision = self._decision(request)
        if decision is None:
            return request, None
        pick, model = decision["pick"], request.model
        how = "none" if pick is None else "text"
        if isinstance(model, ChatAgentKV):
            if pick is not None and holds_manual(model.memory, self.memory, pick):
                how = "graft"
            settings = {"skill": pick if how == "graft" else None, "decision": _decided(decision)}
            request = request.override(model_settings={**request.model_settings, **settings})
        if how == "text":
            system = with_manual(request.system_message, pick, manual_text(self.memory, pick))
            request = request.override(system_message=system)
        return request, {**decision, "how": how}

    def _decision(self, request: ModelRequest[ContextT]) -> dict[str, Any] | None:
        """The state's decision if it is about the same question and its skill still exists, else a new one."""
        known: dict[str, Any] | None = cast(dict[str, Any], request.state).get("agentkv_decision")
        asked = next((message for message in reversed(request.messages) if _is_question(message)), None)
        if known is not None and known["pick"] is not None and self.memory.routing.find(known["pick"]) is None:
            known = None  # deleted since, and retired by whoever noticed it first
        if asked is None:  # summarised away, say: the turn keeps its skill
            return known
        question = asked.id or sha256(asked.text.encode("utf-8", "replace"))
        if known is not None and known.get("question") == question:
            return known
        decision = self.memory.route(asked.text)
        source = self._label(decision.pick)
        return {**decision.model_dump(mode="json"), "question": question, "source": source}

    def _label(self, pick: str | None) -> str | None:
        """What the folder is called that the skill comes from."""
        named = None if pick is None else self.memory.routing.find(pick)
        if named is None:
            return None
        path = Path(named.source)
        return next((label for folder, label in self._labels.items() if path.is_relative_to(folder)), None)


def _with_decision(
    response: ModelResponse[ResponseT], request: ModelRequest[ContextT], decision: dict[str, Any] | None
) -> ModelResponse[ResponseT] | ExtendedModelResponse[ResponseT]:
    """The response with the decision in its record, and in the state if that does not have it yet."""
    if decision is None:
        return response
    response = ModelResponse([_recorded(one, decision) for one in response.result], response.structured_response)
    if request.state.get("agentkv_decision") == decision:
        return response
    return ExtendedModelResponse(response, Command(update={"agentkv_decision": decision}))


def _source(source: Source) -> tuple[Path, str | None]:
    if isinstance(source, str | Path):
        return Path(source).expanduser(), None
    if not (isinstance(source, tuple) and len(source) == 2 and isinstance(source[1], str)):
        raise UsageError(f"{source!r} is not a source of skills: pass a folder, or (folder, label)")
    return Path(source[0]).expanduser(), source[1]


def _is_question(message: BaseMessage) -> bool:
    by_person = isinstance(message, HumanMessage) and "lc_source" not in message.additional_kwargs
    return by_person and bool(message.text.strip())


def _decided(decision: dict[str, Any]) -> dict[str, Any]:
    """The router's part of what the state has."""
    return {name: value for name, value in decision.items() if name in Decision.model_fields}


def _recorded(message: BaseMessage, decision: dict[str, Any]) -> BaseMessage:
    """An answer of ``ChatAgentKV`` with this decision; one from a cache has that of the call that made it.

    A fallback that the turn took for lack of room stays on record.
    """
    record = message.response_metadata.get("agentkv")
    if not isinstance(message, AIMessage) or not isinstance(record, dict):
        return message
    notes = list(dict.fromkeys((*decision.get("notes", ()), *record.get("notes", ()))))
    decided, made = _decided(decision), record.get("decision", {})
    if made.get("fallback") and made.get("raw_pick") == decided["raw_pick"]:
        decided |= {"pick": made["pick"], "fallback": made["fallback"]}
    metadata = {**message.response_metadata, "agentkv": {**record, "decision": decided, "notes": notes}}
    return message.model_copy(update={"response_metadata": metadata})


# --- manuals as text ------------------------------------------------------------------------------


def holds_manual(memory: AgentMemory, other: AgentMemory, name: str) -> bool:
    """Whether ``memory`` has under ``name`` the text that ``other`` has there, so that it can be grafted."""
    if memory is other:
        return True
    here, there = memory.routing.find(name), other.routing.find(name)
    return here is not None and there is not None and here.source_sha256 == there.source_sha256 is not None


def manual_text(memory: AgentMemory, name: str) -> str:
    """The text of a block, after those of the manuals that it is on top of. Raises UnknownSkill, UnknownBlock."""
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
    """The system message with a manual after it; content blocks stay content blocks."""
    manual = f"The manual for this request, {name}:\n\n{text}"
    if system is None:
        return SystemMessage(manual)
    if isinstance(system.content, str):
        return system.model_copy(update={"content": f"{system.content}\n\n{manual}" if system.content else manual})
    return system.model_copy(update={"content": [*system.content, {"type": "text", "text": f"\n\n{manual}"}]})
