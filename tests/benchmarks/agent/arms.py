"""The arms of the benchmark of an agent: LangChain chat models, given the same messages and the same tools.

A turn's ``first_ms`` is from the call to the first token: for agentkv the turn's time without generating and keeping,
for llama-cpp-python until the first chunk comes. ``evaluated`` are prompt tokens counted at the decode call: in
agentkv's record, and in each call of ``Llama.eval`` up to the first token (``native``: llama.cpp's own counter).
"""

from __future__ import annotations

import contextlib
import importlib
import importlib.util
import io
import json
import time
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Protocol

from agentkv.errors import UsageError
from tests.benchmarks.agent.script import TOOLS

AGENTKV, REREAD, DEEP = "agentkv", "reread", "deepagents"
PLAIN, RAM, DISK = "llamacpp", "llamacpp-ram", "llamacpp-disk"
ARMS = (AGENTKV, PLAIN, RAM, DISK, DEEP, REREAD)
USUAL = (AGENTKV, PLAIN, DISK, DEEP, REREAD)
"""The arms of a run that names none. In one conversation LlamaRAMCache saves what the live context holds as well."""
LABELS = {
    AGENTKV: "ChatAgentKV, keep",
    PLAIN: "ChatLlamaCpp",
    RAM: "ChatLlamaCpp, LlamaRAMCache",
    DISK: "ChatLlamaCpp, LlamaDiskCache",
    DEEP: "ChatAgentKV, keep, as deepagents' skills send it",
    REREAD: "ChatAgentKV that reads the manual as tokens, keeping nothing",
}
SURVIVING = (AGENTKV, DISK, DEEP)
"""Arms whose states outlive a process, so that what begins each conversation can have been read in an earlier one."""
SAMPLED = (REREAD,)
"""Arms that read everything in each turn: measured in some turns only."""
ROOM = {DEEP: 8192}
"""Tokens of context that an arm takes beyond the plan's: deepagents' own prompt and tools."""
FAKE = "fake"
_RIVAL = "langchain_community"


def why_skipped(arm: str, model: str) -> str | None:
    """Why this arm cannot be run here, or None."""
    if arm == DEEP and importlib.util.find_spec("deepagents") is None:
        return "deepagents is not installed (pip install deepagents)"
    if arm not in (PLAIN, RAM, DISK):
        return None
    if model == FAKE:
        return "llama-cpp-python needs a model file, and the fake engine has none"
    if importlib.util.find_spec(_RIVAL) is None:
        return "langchain-community is not installed (pip install langchain-community)"
    return None


class Arm(Protocol):
    """A chat model on trial."""

    def ask(self, messages: Sequence[Any], max_new: int) -> dict[str, Any]:
        """Answer greedily with at most ``max_new`` tokens: the turn's row, in tokens and milliseconds."""
        ...


class AgentKVArm:
    """``ChatAgentKV``; with ``reads`` it restores nothing and keeps nothing, with the same token ids."""

    def __init__(self, payload: dict[str, Any], *, reads: bool = False, tools: Sequence[Any] = TOOLS) -> None:
        from langchain_agentkv import ChatAgentKV

        from agentkv.memory.memory import AgentMemory

        class Rereading(AgentMemory):
            """Reads every token of each turn, whatever is stored."""

            def stream(self, *args: Any, **how: Any) -> Any:
                return super().stream(*args, **{**how, "graft": False})

        engine = open_engine(payload["model"], payload["window"], payload["threads"])
        memory = (Rereading if reads else AgentMemory)(payload["folder"], engine, prefix="")
        self._form = memory.call_form
        self._chat = ChatAgentKV(memory=memory, skill=None, temperature=0, keep=not reads).bind_tools(tools)

    def ask(self, messages: Sequence[Any], max_new: int) -> dict[str, Any]:
        start = time.perf_counter()
        answer = self._chat.invoke(list(messages), max_new=max_new)
        total = (time.perf_counter() - start) * 1e3
        record = answer.response_metadata["agentkv"]
        tokens, ms = record["tokens"], record["ms"]
        return {
            "prompt": tokens["restored"] + tokens["prefilled"],
            "evaluated": tokens["prefilled"],
            "generated": tokens["generated"],
            "first_ms": total - ms["generate"] - ms["keep"],
            "restore_ms": ms["restore"],
            "prefill_ms": ms["prefill"],
            "generate_ms": ms["generate"],
            "keep_ms": ms["keep"],
            "total_ms": total,
            "answer": self._said(answer),
            "logits_sha256": record["logits_sha256"],
            "not_kept": record["not_kept"],
        }

    def _said(self, answer: Any) -> str:
        """The answer as the model wrote it, calls included, so that it can be compared with plain text."""
        from agentkv.engine.template import ToolCall

        calls = [ToolCall(call["name"], json.dumps(call["args"], ensure_ascii=False)) for call in answer.tool_calls]
        cut = [str(call["args"]).removeprefix("cut: ") for call in answer.invalid_tool_calls]
        return " ".join([answer.text, self._form.text(calls), *cut]).strip()


class DeepAgentsArm(AgentKVArm):
    """``ChatAgentKV`` as deepagents' skills use it: the manual is read by a tool, in each conversation anew.

    What is kept of an earlier conversation is deepagents' prompt and tools; the manual stands behind the user's first
    message. The call that reads it is the script's, so the tokens that a model would spend on it are not counted.
    """

    def __init__(self, payload: dict[str, Any]) -> None:
        from tests.benchmarks.agent.deep import begun

        folder = Path(payload["folder"])
        self._begun = begun(payload["manual"], folder / "files")
        super().__init__({**payload, "folder": folder / "store"}, tools=self._begun.tools)

    def ask(self, messages: Sequence[Any], max_new: int) -> dict[str, Any]:
        return {**super().ask(self._begun.messages(list(messages)), max_new), "deepagents": self._begun.version}


class LlamaCppArm:
    """LangChain's ``ChatLlamaCpp``, with one of llama-cpp-python's caches of states or none.

    Its defaults that would hurt it are set: 512 tokens a batch instead of 8, the model's own rope base, all threads, no
    repeat penalty (answers are compared). It keeps its live context, and evaluates only what is behind the longest
    common beginning of it and the next prompt: that is so without any cache.
    """

    def __init__(self, payload: dict[str, Any], cache: str | None) -> None:
        from agentkv.engine.settings import EngineSettings
        from agentkv.models import resolve

        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)  # it announces its own end
            module = importlib.import_module(f"{_RIVAL}.chat_models.llamacpp")
            caches = importlib.import_module("llama_cpp.llama_cache")
        chat = module.ChatLlamaCpp(
            model_path=str(resolve(payload["model"]).path),
            n_ctx=payload["window"],
            n_batch=512,
            n_threads=EngineSettings(threads=payload["threads"]).n_threads,
            rope_freq_base=0.0,
            rope_freq_scale=0.0,
            temperature=0.0,
            repeat_penalty=1.0,
            verbose=False,
        )
        self._client = chat.client
        if cache is not None:
            folder = str(Path(payload["folder"]) / "llama-cache")
            chosen = caches.LlamaRAMCache() if cache == RAM else caches.LlamaDiskCache(folder)
            self._client.set_cache(chosen)
        self._evaluated = 0
        self._client.eval = self._counted(self._client.eval)
        self._chat = chat.bind_tools(list(TOOLS))

    def _counted(self, evaluate: Any) -> Any:
        def counting(tokens: Sequence[int]) -> None:
            self._evaluated += len(tokens)
            evaluate(tokens)

        return counting

    def ask(self, messages: Sequence[Any], max_new: int) -> dict[str, Any]:
        import llama_cpp

        context = self._client.ctx
        llama_cpp.llama_perf_context_reset(context)
        self._evaluated = at_first = native = prompt = 0
        times: list[float] = []
        texts: list[str] = []
        start = time.perf_counter()
        with contextlib.redirect_stderr(io.StringIO()):  # the disk cache tells each of its steps
            for chunk in self._chat.stream(list(messages), max_tokens=max_new):
                now = time.perf_counter()
                if not times:
                    at_first, prompt = self._evaluated, int(self._client.n_tokens)
                    native = int(llama_cpp.llama_perf_context(context).n_p_eval)
                times.append(now)
                texts.append(chunk.text)
        total = (time.perf_counter() - start) * 1e3
        spoken = [at for at, text in zip(times, texts, strict=True) if text]
        return {
            "prompt": prompt,
            "evaluated": at_first,
            "native": native,
            "generated": self._evaluated - at_first + 1,
            "first_ms": (times[0] - start) * 1e3,
            "generate_ms": ((spoken or times)[-1] - times[0]) * 1e3,
            "keep_ms": total - ((spoken or times)[-1] - start) * 1e3,
            "total_ms": total,
            "answer": "".join(texts).strip(),
        }


def open_engine(model: str, window: int, threads: int | None) -> Any:
    """The fake engine for the model ``fake``; else the model."""
    if model == FAKE:
        from agentkv.engine.fake import FakeEngine

        return FakeEngine(window=1 << 16, keeps_grammar=True)
    from agentkv.engine.llama.engine import LlamaEngine
    from agentkv.engine.settings import EngineSettings

    return LlamaEngine.open(model, EngineSettings(window=window, threads=threads))


def open_arm(payload: dict[str, Any]) -> Arm:
    """The arm that the payload names. Raises UsageError for one that there is not."""
    name = payload["arm"]
    if name in (AGENTKV, REREAD):
        return AgentKVArm(payload, reads=name == REREAD)
    if name == DEEP:
        return DeepAgentsArm(payload)
    if name in (PLAIN, RAM, DISK):
        return LlamaCppArm(payload, None if name == PLAIN else name)
    raise UsageError(f"{name!r} is no arm; there are: {', '.join(ARMS)}")
