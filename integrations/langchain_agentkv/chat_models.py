"""``ChatAgentKV``: LangChain's chat model over an ``AgentMemory``.

Knows LangChain's hooks; what a turn is, it leaves to ``turns.py``. Tools and structured output are not part of it.
Not guaranteed: a cancellation while the router is scoring takes effect after it.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from contextlib import aclosing, closing
from pathlib import Path
from typing import Any

from langchain_core.callbacks import AsyncCallbackManagerForLLMRun, CallbackManagerForLLMRun
from langchain_core.language_models import LangSmithParams
from langchain_core.language_models.chat_models import BaseChatModel
from langchain_core.messages import AIMessage, AIMessageChunk, BaseMessage
from langchain_core.outputs import ChatGeneration, ChatGenerationChunk, ChatResult
from pydantic import ConfigDict, Field, model_validator

from agentkv import AgentMemory
from agentkv.engine.base import Cancellation
from agentkv.errors import UsageError
from agentkv.hashing import sha256, tagged_digest
from agentkv.memory import Pick
from agentkv.records import Turn
from langchain_agentkv import settings
from langchain_agentkv.messages import conversation, response_metadata, usage
from langchain_agentkv.turns import Item, Request

_OF_A_SERVICE = {"api_key", "base_url", "max_retries", "timeout"}


def _no_memory() -> AgentMemory:
    raise UsageError("ChatAgentKV needs a memory: pass memory=AgentMemory(...), or store=... and model=...")


class ChatAgentKV(BaseChatModel):
    """A chat model that answers from an agent's memory of KV states.

    ``memory`` is an :class:`~agentkv.AgentMemory`; or it is made of ``store`` (a directory) and ``model`` (a catalogue
    name, a ``.gguf`` path or ``hf:REPO/FILE``), and then ``chat.memory.close()`` closes it. ``skill`` is a stored
    name, None for no block, or ``"route"``: whatever the router picks (a skill that is named "route" can only be
    routed to). ``temperature`` 0 is greedy; otherwise ``seed`` repeats a draw. Every setting can be given for one
    call too, by ``invoke(..., skill=...)`` or ``bind``.

    A leading SystemMessage is put in front of the first user message; the agent's own system text is the memory's
    ``prefix``. The answer's ``usage_metadata`` counts restored tokens as ``cache_read``, and its
    ``response_metadata["agentkv"]`` is the turn's record: decision, block, exactness, tokens, milliseconds, SHA-256 of
    the logits.

    Settings of a remote service that LangChain's generic code passes (``api_key``, ``base_url``, ``max_retries``,
    ``timeout``) are accepted and have nothing to act on; cancel a task (``asyncio.timeout``) to bound a turn. Raises
    UsageError for settings and messages that make no sense, and whatever :meth:`agentkv.AgentMemory.ask` raises.

    >>> import tempfile
    >>> from agentkv import AgentMemory, FakeEngine
    >>> memory = AgentMemory(tempfile.mkdtemp(), FakeEngine(replies=lambda prompt: "7 days"))
    >>> _ = memory.deposit_text("returns", "returns are accepted for 7 days", "Taking things back.")
    >>> answer = ChatAgentKV(memory=memory, skill="returns").invoke("How long?")
    >>> answer.text, answer.usage_metadata["input_token_details"]["cache_read"] > 0
    ('7 days', True)
    """

    model_config = ConfigDict(arbitrary_types_allowed=True, populate_by_name=True)

    memory: AgentMemory = Field(default_factory=_no_memory, exclude=True)
    store: str | Path | None = Field(default=None, exclude=True)
    """Makes ``memory``, and is None from then on; so is ``model``."""
    model: str | None = Field(default=None, exclude=True)
    skill: settings.Skill = Pick.ROUTE
    max_new: settings.MaxNew = Field(default=96, alias="max_tokens")
    temperature: settings.Temperature = 0.0
    top_p: settings.TopP = 1.0
    top_k: settings.TopK = 0
    min_p: settings.MinP = 0.0
    seed: settings.Seed = 0
    stop: settings.Stop = Field(default_factory=list)
    streaming: bool | None = None
    """True: ``invoke`` runs through the stream, to the same answer. False: ``stream`` gives the answer in one piece."""

    @model_validator(mode="before")
    @classmethod
    def _check(cls, given: Any) -> Any:
        """Refuse unknown names and wrong settings before a model is opened, then make the memory."""
        if not isinstance(given, dict):
            return given
        given = settings.canonical({name: value for name, value in given.items() if name not in _OF_A_SERVICE})
        settings.refuse_unknown(given, cls.model_fields)
        settings.checked({name: given[name] for name in settings.TurnSettings.model_fields if name in given})
        store, model = given.pop("store", None), given.pop("model", None)
        if given.get("memory") is None:
            given.pop("memory", None)
            if store is not None:
                given["memory"] = AgentMemory(store) if model is None else AgentMemory(store, model)
        elif store is not None or model is not None:
            raise UsageError("pass a memory, or store and model to make one of, not both")
        return given

    # --- LangChain's hooks ------------------------------------------------------------------------

    @property
    def _llm_type(self) -> str:
        return "agentkv"

    @property
    def _identifying_params(self) -> dict[str, Any]:
        """The model and every setting; strings, numbers and lists only."""
        set_here = {name: getattr(self, name) for name in settings.TurnSettings.model_fields}
        if isinstance(self.skill, Pick):
            set_here["skill"] = self.skill.value
        return {
            "model_name": self.memory.engine.info.name,
            "fingerprint_id": self.memory.blocks.fingerprint.id,
            "prefix_sha256": sha256(self.memory.prefix.encode()),
            "classifier": f"{self.memory.classifier.name}/{self.memory.classifier.version}",
            **set_here,
        }

    def _get_invocation_params(self, stop: list[str] | None = None, **kwargs: Any) -> dict[str, Any]:
        return super()._get_invocation_params(stop=self.stop if stop is None else stop, **kwargs)

    def _get_ls_params(self, stop: list[str] | None = None, **kwargs: Any) -> LangSmithParams:
        params = super()._get_ls_params(stop=stop or self.stop or None, **kwargs)
        params.setdefault("ls_model_name", self.memory.engine.info.name)
        params.setdefault("ls_max_tokens", kwargs.get("max_new", self.max_new))
        return params

    def _get_llm_string(self, stop: list[str] | None = None, **kwargs: Any) -> str:
        """A cache's key. What is stored is part of it: a manual that was replaced gives other answers."""
        stored = [(entry.name, entry.description, entry.block_id) for entry in self.memory.names()]
        return super()._get_llm_string(stop=stop, **kwargs) + tagged_digest("langchain-library/1", stored)

    def _generate(
        self,
        messages: list[BaseMessage],
        stop: list[str] | None = None,
        run_manager: CallbackManagerForLLMRun | None = None,
        **kwargs: Any,
    ) -> ChatResult:
        return self._result(self._request(messages, stop, kwargs).answer(Cancellation()))

    async def _agenerate(
        self,
        messages: list[BaseMessage],
        stop: list[str] | None = None,
        run_manager: AsyncCallbackManagerForLLMRun | None = None,
        **kwargs: Any,
    ) -> ChatResult:
        return self._result(await self._request(messages, stop, kwargs).aanswer())

    def _stream(
        self,
        messages: list[BaseMessage],
        stop: list[str] | None = None,
        run_manager: CallbackManagerForLLMRun | None = None,
        **kwargs: Any,
    ) -> Iterator[ChatGenerationChunk]:
        with closing(self._request(messages, stop, kwargs).stream()) as items:
            for item in items:
                yield self._chunk(item)

    async def _astream(
        self,
        messages: list[BaseMessage],
        stop: list[str] | None = None,
        run_manager: AsyncCallbackManagerForLLMRun | None = None,
        **kwargs: Any,
    ) -> AsyncIterator[ChatGenerationChunk]:
        async with aclosing(self._request(messages, stop, kwargs).astream()) as items:
            async for item in items:
                yield self._chunk(item)

    # --- to a turn and back -----------------------------------------------------------------------

    def _request(self, messages: list[BaseMessage], stop: list[str] | None, kwargs: dict[str, Any]) -> Request:
        own = {name: getattr(self, name) for name in settings.TurnSettings.model_fields}
        call = settings.canonical({name: value for name, value in kwargs.items() if name != "stream"})
        if stop is not None:
            call["stop"] = stop
        return Request(self.memory, conversation(messages), settings.checked({**own, **call}))

    def _result(self, turn: Turn) -> ChatResult:
        message = AIMessage(content=turn.text, usage_metadata=usage(turn), response_metadata=self._metadata(turn))
        return ChatResult(generations=[ChatGeneration(message=message)])

    def _chunk(self, item: Item) -> ChatGenerationChunk:
        if isinstance(item, str):
            return ChatGenerationChunk(message=AIMessageChunk(content=item))
        last = AIMessageChunk(
            content="",
            usage_metadata=usage(item),
            response_metadata=self._metadata(item),
            chunk_position="last",
        )
        return ChatGenerationChunk(message=last)

    def _metadata(self, turn: Turn) -> dict[str, Any]:
        return response_metadata(turn, self.memory.engine.info.name)
