"""The arms of the benchmark of an agent: LangChain chat models, given the same messages and the same tools.

Each lives in a process of its own until it is killed: this module, run. It answers on stdout, a line of JSON each, what
it is asked on stdin, so its parent can kill it between two turns, as a crash would, with nothing closed.
"""

from __future__ import annotations

import contextlib
import importlib
import importlib.util
import io
import json
import sys
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, Unpack

from agentkv.bench.base import Row
from agentkv.errors import AgentKVError, UsageError
from tests.benchmarks.agent.script import TOOLS, exchanges, messages

if TYPE_CHECKING:
    from agentkv.engine.base import Engine
    from agentkv.memory.options import TurnOptions
    from agentkv.records import Turn

AGENTKV, PREFILLED, DEEP = "agentkv", "reread", "deepagents"
PLAIN, RAM, DISK = "llamacpp", "llamacpp-ram", "llamacpp-disk"
ARMS = (AGENTKV, PLAIN, RAM, DISK, DEEP, PREFILLED)
USUAL = (AGENTKV, PLAIN, DISK, DEEP, PREFILLED)
"""The arms of a run that names none. In one conversation LlamaRAMCache saves what the live context holds as well."""
LABELS = {
    AGENTKV: "ChatAgentKV, keep",
    PLAIN: "ChatLlamaCpp",
    RAM: "ChatLlamaCpp, LlamaRAMCache",
    DISK: "ChatLlamaCpp, LlamaDiskCache",
    DEEP: "ChatAgentKV, keep, as deepagents' skills send it",
    PREFILLED: "ChatAgentKV that reads the manual as tokens, keeping nothing",
}
SURVIVING = (AGENTKV, DISK, DEEP)
"""Arms whose states outlive a process, so that an earlier one can have prefilled what begins each conversation."""
SAMPLED = (PREFILLED,)
"""Arms that prefill everything in each turn: measured in some turns only."""
ROOM = {DEEP: 8192}
"""Tokens of context that an arm takes beyond the plan's: deepagents' own prompt and tools."""
OWN = (AGENTKV, DEEP, PREFILLED)
"""Arms on agentkv: where one fails, the benchmark does."""
FAKE = "fake"
_RIVAL = "langchain_community"


class Task(Row):
    """What an arm's process is given. ``turns``: of the whole conversation; ``window``: tokens of its context."""

    arm: str
    model: str
    manual: str
    turns: int
    threads: int | None
    folder: Path
    window: int


class Opened(Row):
    """How long it took to open an arm, and with ``process_ms`` until its process answered."""

    open_ms: float
    process_ms: float = 0.0


class Request(Row):
    """One turn, asked of a process; turn 0 is an earlier conversation's beginning."""

    turn: int
    max_new: int


class TurnRow(Row):
    """The raw record of one turn, in tokens and milliseconds; an arm leaves out what it does not count.

    ``first_ms`` is from the call to the first token: for agentkv the turn's time without generating and keeping, for
    llama-cpp-python until the first chunk comes. ``evaluated`` are prompt tokens counted at the decode call: in
    agentkv's record, and in each call of ``Llama.eval`` up to the first token (``native``: llama.cpp's own counter).
    """

    turn: int = 0
    prompt: int
    evaluated: int
    generated: int
    first_ms: float
    generate_ms: float
    keep_ms: float
    total_ms: float
    answer: str
    restore_ms: float | None = None
    prefill_ms: float | None = None
    logits_sha256: str | None = None
    not_kept: str | None = None
    native: int | None = None
    deepagents: str | None = None


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

    def ask(self, messages: Sequence[Any], max_new: int) -> TurnRow:
        """Answer greedily with at most ``max_new`` tokens."""
        ...


class AgentKVArm:
    """``ChatAgentKV``; with ``prefills`` it restores nothing and keeps nothing, with the same token ids."""

    def __init__(self, task: Task, *, prefills: bool = False, tools: Sequence[Any] = TOOLS) -> None:
        from langchain_agentkv import ChatAgentKV

        from agentkv.memory.memory import AgentMemory

        class Prefilling(AgentMemory):
            """Prefills every token of each turn, whatever is stored."""

            def stream(self, question: Any, **options: Unpack[TurnOptions]) -> Iterator[str | Turn]:
                options["graft"] = False
                return super().stream(question, **options)

        engine = open_engine(task.model, task.window, task.threads)
        memory = (Prefilling if prefills else AgentMemory)(task.folder, engine, prefix="")
        self._form = memory.call_form
        self._chat = ChatAgentKV(memory=memory, skill=None, temperature=0, keep=not prefills).bind_tools(tools)

    def ask(self, messages: Sequence[Any], max_new: int) -> TurnRow:
        start = time.perf_counter()
        answer = self._chat.invoke(list(messages), max_new=max_new)
        total = (time.perf_counter() - start) * 1e3
        record = answer.response_metadata["agentkv"]
        tokens, ms = record["tokens"], record["ms"]
        return TurnRow(
            prompt=tokens["restored"] + tokens["prefilled"],
            evaluated=tokens["prefilled"],
            generated=tokens["generated"],
            first_ms=total - ms["generate"] - ms["keep"],
            restore_ms=ms["restore"],
            prefill_ms=ms["prefill"],
            generate_ms=ms["generate"],
            keep_ms=ms["keep"],
            total_ms=total,
            answer=self._text(answer),
            logits_sha256=record["logits_sha256"],
            not_kept=record["not_kept"],
        )

    def _text(self, answer: Any) -> str:
        """The answer as the model wrote it, calls included, so that it can be compared with plain text."""
        from agentkv.engine.template import ToolCall

        calls = [ToolCall(call["name"], json.dumps(call["args"], ensure_ascii=False)) for call in answer.tool_calls]
        cut = [str(call["args"]).removeprefix("cut: ") for call in answer.invalid_tool_calls]
        return " ".join([answer.text, self._form.text(calls), *cut]).strip()


class DeepAgentsArm(AgentKVArm):
    """``ChatAgentKV`` as deepagents' skills use it: a tool reads the manual, again in each conversation.

    What is kept of an earlier conversation is deepagents' prompt and tools; the manual comes after the user's first
    message. The call that reads it is the script's, so the tokens that a model would spend on it are not counted.
    """

    def __init__(self, task: Task) -> None:
        from tests.benchmarks.agent.deep import opening

        self._opening = opening(task.manual, task.folder / "files")
        super().__init__(task.model_copy(update={"folder": task.folder / "store"}), tools=self._opening.tools)

    def ask(self, messages: Sequence[Any], max_new: int) -> TurnRow:
        row = super().ask(self._opening.messages(list(messages)), max_new)
        return row.model_copy(update={"deepagents": self._opening.version})


class LlamaCppArm:
    """LangChain's ``ChatLlamaCpp``, with one of llama-cpp-python's caches of states or none.

    Its defaults that would hurt it are set: 512 tokens a batch instead of 8, the model's own rope base, all threads, no
    repeat penalty (answers are compared). It keeps its live context, and evaluates only what follows the longest common
    beginning of it and the next prompt: that is so without any cache.
    """

    def __init__(self, task: Task, cache: str | None) -> None:
        from agentkv.engine.settings import EngineSettings
        from agentkv.models import resolve

        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)  # it announces its own end
            module = importlib.import_module(f"{_RIVAL}.chat_models.llamacpp")
            caches = importlib.import_module("llama_cpp.llama_cache")
        chat = module.ChatLlamaCpp(
            model_path=str(resolve(task.model).path),
            n_ctx=task.window,
            n_batch=512,
            n_threads=EngineSettings(threads=task.threads).n_threads,
            rope_freq_base=0.0,
            rope_freq_scale=0.0,
            temperature=0.0,
            repeat_penalty=1.0,
            verbose=False,
        )
        self._client = chat.client
        if cache is not None:
            folder = str(task.folder / "llama-cache")
            chosen = caches.LlamaRAMCache() if cache == RAM else caches.LlamaDiskCache(folder)
            self._client.set_cache(chosen)
        self._evaluated = 0
        self._client.eval = self._counted(self._client.eval)
        self._chat = chat.bind_tools(list(TOOLS))

    def _counted(self, evaluate: Callable[[Sequence[int]], None]) -> Callable[[Sequence[int]], None]:
        def counting(tokens: Sequence[int]) -> None:
            self._evaluated += len(tokens)
            evaluate(tokens)

        return counting

    def ask(self, messages: Sequence[Any], max_new: int) -> TurnRow:
        import llama_cpp

        context = self._client.ctx
        llama_cpp.llama_perf_context_reset(context)
        self._evaluated = at_first = native = prompt = 0
        times: list[float] = []
        texts: list[str] = []
        start = time.perf_counter()
        with contextlib.redirect_stderr(io.StringIO()):  # the disk cache prints each of its steps
            for chunk in self._chat.stream(list(messages), max_tokens=max_new):
                now = time.perf_counter()
                if not times:
                    at_first, prompt = self._evaluated, int(self._client.n_tokens)
                    native = int(llama_cpp.llama_perf_context(context).n_p_eval)
                times.append(now)
                texts.append(chunk.text)
        total = (time.perf_counter() - start) * 1e3
        spoken = [at for at, text in zip(times, texts, strict=True) if text]
        return TurnRow(
            prompt=prompt,
            evaluated=at_first,
            native=native,
            generated=self._evaluated - at_first + 1,
            first_ms=(times[0] - start) * 1e3,
            generate_ms=((spoken or times)[-1] - times[0]) * 1e3,
            keep_ms=total - ((spoken or times)[-1] - start) * 1e3,
            total_ms=total,
            answer="".join(texts).strip(),
        )


def open_engine(model: str, window: int, threads: int | None) -> Engine:
    """The fake engine for the model ``fake``; else the model."""
    if model == FAKE:
        from agentkv.engine.fake import FakeEngine

        return FakeEngine(window=1 << 16, keeps_grammar=True)
    from agentkv.engine.llama.engine import LlamaEngine
    from agentkv.engine.settings import EngineSettings

    return LlamaEngine.open(model, EngineSettings(window=window, threads=threads))


def open_arm(task: Task) -> Arm:
    """The arm that the task names. Raises UsageError for another name."""
    if task.arm in (AGENTKV, PREFILLED):
        return AgentKVArm(task, prefills=task.arm == PREFILLED)
    if task.arm == DEEP:
        return DeepAgentsArm(task)
    if task.arm in (PLAIN, RAM, DISK):
        return LlamaCppArm(task, None if task.arm == PLAIN else task.arm)
    raise UsageError(f"{task.arm!r} is not an arm; there are: {', '.join(ARMS)}")


def main() -> int:
    """The process: a task on the first line, then one request a line; a line of JSON for each, on stdout."""
    out, sys.stdout = sys.stdout, sys.stderr  # nothing else may write between the answers

    def answer(row: Row) -> None:
        out.write(row.model_dump_json(exclude_unset=True) + "\n")
        out.flush()

    started = time.perf_counter()
    try:
        task = Task.model_validate_json(sys.stdin.readline())
        arm = open_arm(task)
        answer(Opened(open_ms=(time.perf_counter() - started) * 1e3))
        script = exchanges(task.turns)
        for line in sys.stdin:
            request = Request.model_validate_json(line)
            row = arm.ask(messages(task.manual, script[: request.turn]), request.max_new)
            answer(row.model_copy(update={"turn": request.turn}))
    except AgentKVError as error:
        sys.stderr.write(f"{error.message}\n")
        return error.exit_code
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
