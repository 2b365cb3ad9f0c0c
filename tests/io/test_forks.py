"""A memory that was opened before a fork: the child gets an error at once, whatever the parent's threads were doing."""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from agentkv import AgentMemory, FakeEmbedder, FakeEngine, SkillLibrary
from agentkv.documents import Corpus
from agentkv.documents.index import Index
from agentkv.errors import OpenedBeforeFork
from agentkv.io.forks import RenewedLock

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="this system has no fork")
LIMIT_S = 30


def in_child(work: Callable[[], object]) -> str:
    """What ``work`` gives in a forked child, or the name of what it raises; a child that hangs is killed."""
    receiver, sender = os.pipe()
    pid = os.fork()
    if pid == 0:
        signal.alarm(LIMIT_S)
        try:
            answer = str(work())
        except BaseException as error:
            answer = f"{type(error).__name__}: {error}"
        os.write(sender, answer.encode())
        os._exit(0)
    os.close(sender)
    with os.fdopen(receiver) as pipe:
        answer = pipe.read()
    code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    assert code == 0, f"the child hung or died: {code}"
    return answer


@pytest.fixture
def memory(tmp_path: Path) -> Iterator[AgentMemory]:
    (tmp_path / "docs").mkdir()
    (tmp_path / "docs" / "guide.txt").write_text("The gate opens at nine. " * 40)
    (tmp_path / "skills" / "greet").mkdir(parents=True)
    (tmp_path / "skills" / "greet" / "SKILL.md").write_text("---\nname: greet\ndescription: Greets.\n---\nSay hello.")
    engine = FakeEngine(replies=lambda _: "At nine.", window=8192)
    with AgentMemory(tmp_path / "store", engine, embedder=FakeEmbedder()) as opened:
        opened.deposit_text("shop", "The shop opens at nine.", "When the shop opens.")
        opened.thread("t").ask("When?", skill="shop", max_new=8)
        yield opened


@contextlib.contextmanager
def held(lock: Any) -> Iterator[None]:
    """Another thread holds the lock while the process forks, and never lets it go in the child."""
    taken, done = threading.Event(), threading.Event()

    def hold() -> None:
        with lock:
            taken.set()
            done.wait()

    thread = threading.Thread(target=hold)
    thread.start()
    taken.wait()
    try:
        yield
    finally:
        done.set()
        thread.join()


USES: dict[str, Callable[[AgentMemory], object]] = {
    "ask": lambda memory: memory.ask("When?", skill=None, max_new=4),
    "stream": lambda memory: next(memory.stream("When?", skill=None, max_new=4)),
    "graft": lambda memory: memory.ask("When?", skill="shop", max_new=4),
    "thread": lambda memory: memory.thread("t").ask("And now?", max_new=4),
    "rewind": lambda memory: memory.thread("t").rewind(0),
    "route": lambda memory: memory.route("When does the shop open?"),
    "deposit": lambda memory: memory.deposit_text("bank", "The bank is closed.", "When."),
    "extend": lambda memory: memory.engine.extend([1]),
    "verify": lambda memory: memory.store.verify(next(memory.store.block_ids())),
    "pin": lambda memory: memory.store.pin(next(memory.store.block_ids())),
    "collect": lambda memory: memory.store.collect(),
    "remove": lambda memory: memory.remove_thread("t"),
    "cache": lambda memory: memory.store.cache.get("x"),
}


@pytest.mark.parametrize("use", USES)
@pytest.mark.parametrize("busy", [False, True])
def test_every_use_in_the_child_is_refused_at_once(memory: AgentMemory, use: str, busy: bool) -> None:
    with contextlib.ExitStack() as busily:
        if busy:
            busily.enter_context(held(memory.engine.lock))
            busily.enter_context(held(memory.store.cache._lock))
            busily.enter_context(held(memory.store._workers._lock))
        answer = in_child(lambda: USES[use](memory))
    assert answer.startswith("OpenedBeforeFork: the "), answer
    assert "after the fork" in answer
    assert "post_fork" in answer


def test_the_parent_goes_on_and_a_child_may_open_its_own(memory: AgentMemory) -> None:
    def own() -> str:
        with AgentMemory(memory.store.root, FakeEngine(replies=lambda _: "At nine.", window=8192)) as mine:
            return mine.thread("t").ask("And on Sundays?", max_new=8).text

    with held(memory.engine.lock):
        assert in_child(own) == "At nine."
    assert len(memory.thread("t").turns) == 2
    assert memory.thread("t").ask("And now?", max_new=8).tokens.restored > 0
    assert not memory.store.check().findings


def test_a_child_may_close_and_end_without_harm(memory: AgentMemory) -> None:
    def leave() -> str:
        memory.close()
        memory.store.close()
        memory.__exit__(None, None, None)
        return "left"

    with held(memory.engine.lock), held(memory.store._workers._lock):
        assert in_child(leave) == "left"
    assert memory.ask("When?", skill=None, max_new=4).text


def test_documents_libraries_and_watches_are_refused_too(memory: AgentMemory, tmp_path: Path) -> None:
    corpus = Corpus(memory, "docs")
    corpus.add([tmp_path / "docs"])
    assert in_child(lambda: corpus.ask("When does the gate open?")).startswith("OpenedBeforeFork")
    with Index(corpus.shelf) as index:
        assert in_child(lambda: index.search("gate", 3)).startswith("OpenedBeforeFork: the index")
        assert in_child(index.close) == "None"
        assert index.search("gate", 3)
    library = SkillLibrary(memory, tmp_path / "skills")
    assert in_child(library.sync).startswith("OpenedBeforeFork")
    with library.watch() as watch:
        watch.wait_idle(LIMIT_S)
        for use in (lambda: watch.wait_idle(1), watch.stop):
            assert in_child(use).startswith("OpenedBeforeFork: the skill watch")
        assert watch.wait_idle(LIMIT_S)


def test_logs_and_digests_go_on_in_the_child(memory: AgentMemory) -> None:
    memory.route("When does the shop open?")
    log = memory.decisions
    lines = len(list(log.read()))
    with held(log._lines._lock):
        assert in_child(lambda: log.append("asked in the child", {}, next(iter(log.read())).decision)) == "None"
    assert len(list(log.read())) == lines + 1
    lock = RenewedLock()
    with held(lock):
        assert in_child(lock.__enter__) == "True"


def _worker(memory: AgentMemory, answers: Any) -> None:
    """A worker of a server that loaded its application before it forked: a request, then a post_fork hook."""
    signal.alarm(LIMIT_S)
    try:
        memory.ask("When?", skill=None, max_new=4)
    except OpenedBeforeFork as error:
        answers.put((type(error).__name__, error.exit_code))
    with AgentMemory(memory.store.root, FakeEngine(replies=lambda _: "At nine.")) as own:
        answers.put((own.ask("When?", skill=None, max_new=8).text, 0))


def test_multiprocessing_and_servers_that_load_first(memory: AgentMemory) -> None:
    context = multiprocessing.get_context("fork")
    answers = context.SimpleQueue()
    with held(memory.engine.lock):
        workers = [context.Process(target=_worker, args=(memory, answers)) for _ in range(2)]
        for worker in workers:
            worker.start()
        answer = sorted(answers.get() for _ in range(4))
        for worker in workers:
            worker.join(LIMIT_S)
    assert [worker.exitcode for worker in workers] == [0, 0]
    assert answer == [("At nine.", 0)] * 2 + [("OpenedBeforeFork", 28)] * 2


TINY = """
import os, signal, sys
from pathlib import Path
from tests.benchmarks.tiny import write_tiny
from agentkv.engine.llama.engine import LlamaEngine
from agentkv.engine.settings import EngineSettings
from agentkv.errors import OpenedBeforeFork
path = write_tiny(Path(sys.argv[1]) / "tiny.gguf", "llama")
def in_child(work):
    pid = os.fork()
    if pid == 0:
        signal.alarm(60)
        try:
            work()
        except OpenedBeforeFork as error:
            os._exit(error.exit_code)
        os._exit(0)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
def opened():
    engine = LlamaEngine(path, EngineSettings(window=256, threads=2))
    engine.extend(list(range(3, 40)))
    return engine
assert in_child(opened) == 0, "the first model is opened after the fork"
engine = opened()
assert in_child(lambda: engine.extend([3])) == 28
assert in_child(lambda: engine.tokenize("a", special=False)) == 28
assert in_child(opened) == 28, "OpenMP's threads stayed in the parent"
assert in_child(engine.close) == 0
engine.extend([3])
engine.close()
"""


def test_llama_cpp_is_refused_in_the_child_and_can_be_opened_there_first(tmp_path: Path) -> None:
    done = subprocess.run([sys.executable, "-c", TINY, str(tmp_path)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


REAL = """
import os, signal, sys
from agentkv import AgentMemory
from agentkv.errors import OpenedBeforeFork
def opened():
    return AgentMemory(sys.argv[1], "smollm2-135m", window=512)
def in_child(work):
    pid = os.fork()
    if pid == 0:
        signal.alarm(300)
        os._exit(work())
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
def after():
    with opened() as memory:
        return memory.ask("Hi", skill=None, max_new=4).tokens.generated
def refused(work):
    try:
        work()
    except OpenedBeforeFork as error:
        return error.exit_code
assert in_child(after) == 4, "the first model is opened after the fork"
memory = opened()
memory.ask("Hi", skill=None, max_new=4)
assert in_child(lambda: refused(lambda: memory.ask("Hi", skill=None))) == 28
assert in_child(lambda: refused(opened)) == 28
assert in_child(lambda: memory.close() or 3) == 3
assert memory.ask("Hi", skill=None, max_new=4).tokens.generated == 4
"""


@pytest.mark.model
def test_a_real_model_is_refused_in_the_child_and_can_be_opened_there_first(tmp_path: Path) -> None:
    done = subprocess.run([sys.executable, "-c", REAL, str(tmp_path)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
