"""``ChatAgentKV``: LangChain's chat model over an ``AgentMemory``.

LangChain's hooks only: a turn is in ``turns.py``, tools in ``tools.py``, structured output in ``structured.py``.
``invoke`` is the sum of what ``stream`` gives. A cancellation while the router is scoring takes effect after it; a call
is streamed when it is whole.
"""

from __future__ import annotations

import builtins
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import aclosing, closing
from contextvars import ContextVar
from functools import reduce
from operator import add
from pathlib import Path
from typing import Any

from langchain_core.callbacks import AsyncCallbackManagerForLLMRun, CallbackManagerForLLMRun
from langchain_core.globals import get_llm_cache
from langchain_core.language_models import LangSmithParams, LanguageModelInput, ModelProfile
from langchain_core.language_models.chat_models import BaseChatModel
from langchain_core.messages import AIMessage, BaseMessage, message_chunk_to_message
from langchain_core.outputs import ChatGeneration, ChatGenerationChunk, ChatResult
from langchain_core.prompt_values import ChatPromptValue, PromptValue
from langchain_core.runnables import Runnable
from langchain_core.runnables.config import run_in_executor
from pydantic import BaseModel, ConfigDict, Field, model_validator

from agentkv import ROUTE, AgentMemory
from agentkv.engine.base import Cancellation
from agentkv.engine.generate import MAX_NEW
from agentkv.errors import UsageError
from agentkv.io.hashing import sha256, tagged_digest
from langchain_agentkv import settings
from langchain_agentkv.messages import conversation, count_tokens, traceable
from langchain_agentkv.structured import Method, structured
from langchain_agentkv.tools import AnyTool, chosen, converted
from langchain_agentkv.turns import Answer, Item, Request

_STORED: ContextVar[str] = ContextVar("langchain_agentkv_stored", default="")
"""What :meth:`ChatAgentKV._stored` gave for the call under way, if it was asked before."""
_OF_A_SERVICE = {"api_key", "base_url", "max_retries", "timeout"}


def _no_memory() -> AgentMemory:
    raise UsageError("ChatAgentKV needs a memory: pass memory=AgentMemory(...), or store=... and model=...")


class ChatAgentKV(BaseChatModel):
    """A chat model that answers from an agent's memory of KV states.

    ``memory`` is an :class:`~agentkv.AgentMemory`; or it is made of ``store`` (a directory) and ``model`` (a catalogue
    name, a ``.gguf`` path or ``hf:REPO/FILE``; None: as the environment or the store says), and then
    ``chat.memory.close()`` closes it. ``skill`` is a stored name, None for no block, or ``"route"``: what the router
    picks (a skill that is named "route" can only be routed to). ``temperature`` 0 is greedy; otherwise ``seed`` repeats
    a draw. Every setting can be given for one call too, by ``invoke(..., skill=...)`` or ``bind``.

    ``keep``: store the conversation's state after each turn, so that the next one, in this process or another, prefills
    only what is new; None does so where more calls with the same beginning can be expected (a SystemMessage, tools, an
    earlier answer). What is stored is found by its tokens, so True and False give the same answers. The first turn that
    keeps something proves the configuration exact, once for each store (:meth:`agentkv.AgentMemory.self_test`).

    Leading SystemMessages follow the memory's own ``prefix``, before tools and manual; one with the same text is left
    out, so with ``AgentMemory(prefix=...)`` the skills are stored on top of it already. Another system text, or other
    tools, cost one cold prefill: what changes from call to call is better put into the user's message.

    The answer's ``usage_metadata`` counts restored tokens as ``cache_read`` and newly stored ones as
    ``cache_creation``; its ``response_metadata["agentkv"]`` is the turn's record: decision, block, exactness, tokens,
    milliseconds, SHA-256 of the logits.

    ``max_new`` (``max_tokens``): most tokens of an answer; None for 512, or as many as the context window has room for.
    A full one raises :class:`~langchain_agentkv.errors.ContextOverflow`, LangChain's ContextOverflowError too.

    An answer with tools is decoded under a grammar of their schemas, in the form that the model's template teaches. A
    call that was cut, that names no tool or lacks a required argument is in ``invalid_tool_calls``, as written. A call
    that has its result already is not offered again: the model answers in text, or calls another tool. An answer that
    may hold calls is never empty; where the model says nothing, a text in square brackets says why.

    A copy, deep or not, shares the memory; pickling raises :class:`~agentkv.errors.NotPicklable`.

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
    skill: settings.Skill = ROUTE
    max_new: settings.MaxNew | None = Field(default=None, alias="max_tokens")
    temperature: settings.Temperature = 0.0
    top_p: settings.TopP = 1.0
    top_k: settings.TopK = 0
    min_p: settings.MinP = 0.0
    seed: settings.Seed = 0
    stop: settings.Stop = Field(default_factory=list)
    keep: bool | None = None
    strict: bool = False
    """True: fail with SkillsLeftOut, instead of a warning, where the router would leave out what another engine has
    deposited. It becomes the memory's own setting."""
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
                given["memory"] = AgentMemory(store, model)
        elif store is not None or model is not None:
            raise UsageError("pass a memory, or store and model to make one of, not both")
        if given.get("strict") and isinstance(given.get("memory"), AgentMemory):
            given["memory"].strict = True
        return given

    # --- tools and objects ------------------------------------------------------------------------

    def bind_tools(
        self,
        tools: Sequence[AnyTool],
        *,
        tool_choice: str | bool | dict[str, Any] | None = None,
        parallel_tool_calls: bool | None = None,
        **kwargs: Any,
    ) -> Runnable[LanguageModelInput, AIMessage]:
        """The model with tools. See ``tools.py`` for what ``tool_choice`` means; ``kwargs`` are settings of a turn.

        ``parallel_tool_calls``: whether one answer may hold several calls; None where the model may choose to call, but
        not where it has to.

        ``tools`` are functions, LangChain tools, pydantic classes, TypedDicts or OpenAI's dicts. Raises UsageError for
        what is not a tool and for a choice that is not among them.
        """
        schemas = converted(tools)
        chosen(tool_choice, [schema["function"]["name"] for schema in schemas])
        settings: dict[str, Any] = {"tools": schemas, **kwargs}
        if tool_choice is not None:
            settings["tool_choice"] = tool_choice
        if parallel_tool_calls is not None:
            settings["parallel_tool_calls"] = parallel_tool_calls
        return self.bind(**settings)

    def with_structured_output(
        self,
        schema: builtins.dict[str, Any] | type,
        *,
        include_raw: bool = False,
        method: Method = "json_schema",
        **kwargs: Any,
    ) -> Runnable[LanguageModelInput, builtins.dict[str, Any] | BaseModel]:
        """Answers as objects of ``schema``: a pydantic class, a TypedDict, or a JSON schema with a title.

        ``method`` ``json_schema``: the schema is put into the system text and the answer is decoded under its grammar.
        ``function_calling``: the same by a forced call of a tool. ``json_mode``: any JSON object, asked for by the
        caller. An answer that was cut or does not fit raises OutputParserException, or is the ``parsing_error`` of
        ``include_raw``.
        """
        return structured(self, schema, include_raw=include_raw, method=method, settings=kwargs)

    # --- counting ---------------------------------------------------------------------------------

    def get_token_ids(self, text: str) -> list[int]:
        """The model's own token ids of ``text`` alone; no text becomes a control token."""
        if self.custom_get_token_ids is not None:
            return self.custom_get_token_ids(text)
        return self.memory.engine.tokenize(text, special=False)

    def get_num_tokens_from_messages(self, messages: list[BaseMessage], tools: Sequence[Any] | None = None) -> int:
        """Tokens of the prompt that these messages make: the memory's prefix, tools, template, a named skill's manual.

        Equals the ``input_tokens`` of an answer, except for the manual that the router picks, which is not known
        before. Messages that are not a whole conversation (a part that ends with an answer, say) are counted as part of
        one. Raises UnknownSkill.
        """
        skill = self.skill if isinstance(self.skill, str) else None
        return count_tokens(self.memory, messages, converted(tools or []), skill)

    # --- LangChain's hooks ------------------------------------------------------------------------

    def _resolve_model_profile(self) -> ModelProfile:
        return ModelProfile(
            name=self.memory.engine.info.name,
            open_weights=True,
            max_input_tokens=self.memory.engine.window,
            text_inputs=True,
            text_outputs=True,
            image_inputs=False,
            audio_inputs=False,
            video_inputs=False,
            pdf_inputs=False,
            reasoning_output=False,
            tool_calling=True,
            tool_choice=True,
            structured_output=True,
            temperature=True,
        )

    @property
    def _llm_type(self) -> str:
        return "agentkv"

    @property
    def _identifying_params(self) -> dict[str, Any]:
        """The model and every setting; strings, numbers and lists only."""
        set_here = {name: getattr(self, name) for name in settings.TurnSettings.model_fields}
        if self.skill is ROUTE:
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
        params.setdefault("ls_max_tokens", kwargs.get("max_new", self.max_new) or MAX_NEW)
        return params

    def _get_llm_string(self, stop: list[str] | None = None, **kwargs: Any) -> str:
        """A cache's key. It includes what is stored, since a replaced manual gives other answers.

        Who chose the skill is left out: it changes no answer.
        """
        kwargs.pop("decision", None)
        return super()._get_llm_string(stop=stop, **kwargs) + (_STORED.get() or self._stored())

    def _stored(self) -> str:
        """A digest of the names that answers may rest on; reads files."""
        stored = [(entry.name, entry.description, entry.block_id) for entry in self.memory.names()]
        return tagged_digest("langchain-library/1", stored)

    async def _agenerate_with_cache(
        self,
        messages: list[BaseMessage],
        stop: list[str] | None = None,
        run_manager: AsyncCallbackManagerForLLMRun | None = None,
        **kwargs: Any,
    ) -> ChatResult:
        """Reads what is stored in the executor, because LangChain makes a cache's key on the event loop."""
        cached = self.cache or (self.cache is None and get_llm_cache() is not None)
        token = _STORED.set(await run_in_executor(None, self._stored) if cached else "")
        try:
            return await super()._agenerate_with_cache(messages, stop, run_manager, **kwargs)
        finally:
            _STORED.reset(token)

    def _generate(
        self,
        messages: list[BaseMessage],
        stop: list[str] | None = None,
        run_manager: CallbackManagerForLLMRun | None = None,
        **kwargs: Any,
    ) -> ChatResult:
        return self._summed(self._request(messages, stop, kwargs, run_manager).answer(Cancellation()))

    async def _agenerate(
        self,
        messages: list[BaseMessage],
        stop: list[str] | None = None,
        run_manager: AsyncCallbackManagerForLLMRun | None = None,
        **kwargs: Any,
    ) -> ChatResult:
        return self._summed(await self._request(messages, stop, kwargs, run_manager).aanswer())

    def _stream(
        self,
        messages: list[BaseMessage],
        stop: list[str] | None = None,
        run_manager: CallbackManagerForLLMRun | None = None,
        **kwargs: Any,
    ) -> Iterator[ChatGenerationChunk]:
        answer = self._answer()
        with closing(self._request(messages, stop, kwargs, run_manager).stream()) as items:
            for item in items:
                yield ChatGenerationChunk(message=answer.chunk(item))

    async def _astream(
        self,
        messages: list[BaseMessage],
        stop: list[str] | None = None,
        run_manager: AsyncCallbackManagerForLLMRun | None = None,
        **kwargs: Any,
    ) -> AsyncIterator[ChatGenerationChunk]:
        answer = self._answer()
        async with aclosing(self._request(messages, stop, kwargs, run_manager).astream()) as items:
            async for item in items:
                yield ChatGenerationChunk(message=answer.chunk(item))

    def _convert_input(self, model_input: LanguageModelInput) -> PromptValue:
        """The messages in a form that LangChain can trace: one old message that it cannot trace would fail every later
        call.
        """
        messages = super()._convert_input(model_input).to_messages()
        contents = [traceable(message.content) for message in messages]
        return ChatPromptValue(
            messages=[
                message if content == message.content else message.model_copy(update={"content": content})
                for message, content in zip(messages, contents, strict=True)
            ]
        )

    # --- to a turn and back -----------------------------------------------------------------------

    def _request(
        self,
        messages: list[BaseMessage],
        stop: list[str] | None,
        kwargs: dict[str, Any],
        run: CallbackManagerForLLMRun | AsyncCallbackManagerForLLMRun | None = None,
    ) -> Request:
        own = {name: getattr(self, name) for name in settings.TurnSettings.model_fields}
        call = settings.canonical(kwargs)
        if stop is not None:
            call["stop"] = stop
        if call.get("tools"):
            call["tools"] = converted(call["tools"])
        if own["skill"] is ROUTE and run is not None and "lc_source" in (run.metadata or {}):
            own["skill"] = None  # a middleware's own request, of a summary say: nobody's question
        return Request(self.memory, conversation(messages), settings.checked({**own, **call}, call=True))

    def _answer(self) -> Answer:
        return Answer(self.memory.engine.info.name)

    def _summed(self, items: list[Item]) -> ChatResult:
        answer = self._answer()
        whole = reduce(add, [answer.chunk(item) for item in items])
        return ChatResult(generations=[ChatGeneration(message=message_chunk_to_message(whole))])
