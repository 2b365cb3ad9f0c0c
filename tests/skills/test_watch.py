"""``SkillLibrary.watch``: every way in which files change, none in which they are read; counts are exact."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from agentkv import AgentMemory, BlockStore, FakeEngine
from agentkv.errors import InexactBlock
from agentkv.skills.library import SkillLibrary
from agentkv.skills.report import SkillEvent
from agentkv.skills.watch import SkillWatch

from .conftest import skill, stored, text_of

QUIET = 0.1
SOON = 60.0
"""How long a test waits for what should come within a second: other work may be going on on the machine."""


class Watched:
    """A running watch, and what it has seen."""

    def __init__(self, library: SkillLibrary, **options: Any) -> None:
        self.events: list[SkillEvent] = []
        self.memory: Any = library.memory
        self.watch: SkillWatch = library.watch(self.events.append, **{"quiet_s": QUIET, "longest_s": 0.5, **options})
        self.settle()

    def settle(self) -> list[tuple[str, str]]:
        """Wait for quiet; what was seen since the last time, kind and name."""
        assert self.watch.wait_idle(SOON)
        seen: list[tuple[str, str]] = [(event.kind, event.name) for event in self.events]
        self.events.clear()
        return seen

    def until(self, condition: Callable[[], bool]) -> None:
        """Wait for what an event alone brings about, without asking the watch to look."""
        end = time.monotonic() + SOON
        while not condition():
            assert time.monotonic() < end, self.events
            time.sleep(0.02)


@pytest.fixture
def start() -> Iterator[Callable[..., Watched]]:
    running: list[Watched] = []

    def begin(library: SkillLibrary, **options: Any) -> Watched:
        running.append(Watched(library, **options))
        return running[-1]

    yield begin
    for watched in running:
        assert watched.watch.stop()


@pytest.fixture
def watched(memory: AgentMemory, root: Path, start: Callable[..., Watched]) -> Watched:
    """A watch over one skill ``a``."""
    skill(root, "a", "one")
    return start(SkillLibrary(memory, root))


def has(watched: Watched, **texts: str) -> Callable[[], bool]:
    return lambda: stored(watched.memory) == {name: f"{text}\n" for name, text in texts.items()}


# --- the ways to change a file ------------------------------------------------------------------------


def plainly(file: Path, text: str) -> None:
    file.write_text(text)


def atomically(file: Path, text: str) -> None:
    temporary = file.with_name(f"{file.name}.tmp")
    temporary.write_text(text)
    temporary.replace(file)


def like_vim(file: Path, text: str) -> None:
    (file.parent / "4913").write_text("")
    (file.parent / "4913").unlink()
    (file.parent / f".{file.name}.swp").write_text("swap")
    backup = file.with_name(f"{file.name}~")
    file.rename(backup)
    file.write_text(text)
    backup.unlink()


def like_emacs(file: Path, text: str) -> None:
    (file.parent / f".#{file.name}").symlink_to("user@host.1234:1")
    file.rename(file.with_name(f"{file.name}~"))
    file.write_text(text)
    (file.parent / f".#{file.name}").unlink()


def in_pieces(file: Path, text: str) -> None:
    with file.open("w") as out:
        for char in text:
            out.write(char)
            out.flush()
            time.sleep(0.001)


@pytest.mark.parametrize("save", [plainly, atomically, like_vim, like_emacs, in_pieces])
def test_a_save_is_one_deposit_of_the_final_content(watched: Watched, root: Path, save: Any) -> None:
    before = stored_ids(watched.memory)
    save(root / "a" / "SKILL.md", text_of("a", "two"))
    watched.until(has(watched, a="two"))
    assert watched.settle() == [("changed", "a")]
    assert stored_ids(watched.memory)["a"] != before["a"]


def stored_ids(memory: AgentMemory) -> dict[str, str]:
    return {named.name: named.block_id for named in memory.names()}


def test_moves_in_and_out(watched: Watched, root: Path, tmp_path: Path) -> None:
    folder = skill(tmp_path / "outside", "b", "two")
    folder.rename(root / "b")
    watched.until(has(watched, a="one", b="two"))
    (root / "a").rename(tmp_path / "outside" / "a")
    watched.until(has(watched, b="two"))
    assert watched.settle() == [("added", "b"), ("removed", "a")]
    assert set(watched.memory.candidates()) == {"b"}

    (root / "b" / "SKILL.md").rename(tmp_path / "SKILL.md")
    watched.until(has(watched))
    (tmp_path / "SKILL.md").rename(root / "b" / "SKILL.md")
    watched.until(has(watched, b="two"))
    shutil.copytree(root / "b", tmp_path / "tree" / "deep" / "b")
    (tmp_path / "tree" / "deep" / "a").symlink_to(tmp_path / "nowhere")
    (root / "b").rename(tmp_path / "old")
    (tmp_path / "tree").rename(root / "tree")
    watched.until(lambda: [named.source for named in watched.memory.names()] == [str(root / "tree" / "deep" / "b")])
    assert watched.settle()[:2] == [("removed", "b"), ("added", "b")]


def test_deleted_and_created_step_by_step(watched: Watched, root: Path) -> None:
    (root / "a" / "SKILL.md").unlink()
    watched.until(has(watched))
    shutil.rmtree(root / "a")
    (root / "b").mkdir()
    time.sleep(2 * QUIET)
    (root / "b" / "SKILL.md").touch()
    (root / "b" / "SKILL.md").write_text(text_of("b", "two"))
    watched.until(has(watched, b="two"))
    seen = watched.settle()
    assert [entry for entry in seen if entry[0] != "broken"] == [("removed", "a"), ("added", "b")]


def test_what_editors_leave_is_never_a_skill_and_wakes_nobody(watched: Watched, root: Path) -> None:
    for name in ("SKILL.md~", "SKILL.md.tmp", "4913", ".SKILL.md.swp", ".#SKILL.md.x", "notes.md"):
        (root / "a" / name).write_text(text_of("a", name))
    (root / "c").mkdir()
    (root / "c" / "SKILL.md~").write_text(text_of("c"))
    assert watched.settle() == []
    assert has(watched, a="one")()


def test_the_same_content_again_is_no_change(watched: Watched, root: Path) -> None:
    decoded = watched.memory.engine.counters.decoded
    for save in (plainly, atomically, like_vim):
        save(root / "a" / "SKILL.md", text_of("a", "one"))
    (root / "a" / "SKILL.md").touch()
    assert watched.settle() == []
    assert watched.memory.engine.counters.decoded == decoded


def test_a_broken_file_keeps_the_old_block_and_is_told_once(watched: Watched, root: Path) -> None:
    file = root / "a" / "SKILL.md"
    file.write_text("---\nname: a\n")
    assert watched.settle() == [("broken", "a")]
    file.write_text("---\nname: a\n")
    assert watched.settle() == []
    assert has(watched, a="one")()
    file.write_text(text_of("a", "one"))
    assert watched.settle() == [("mended", "a")]
    file.write_text("---\n")
    watched.settle()
    file.write_text(text_of("a", "two"))
    assert watched.settle() == [("changed", "a")]
    file.write_text("---\n")
    watched.settle()
    file.unlink()
    assert watched.settle() == [("removed", "a")]


def test_a_root_that_goes_and_comes_back(watched: Watched, root: Path) -> None:
    shutil.rmtree(root)
    watched.until(has(watched))
    time.sleep(0.05)
    skill(root, "b", "two")
    watched.until(has(watched, b="two"))
    skill(root, "b", "three")
    watched.until(has(watched, b="three"))
    root.rename(root.with_name("moved"))
    watched.until(has(watched))


def test_references_count_if_they_are_deposited(memory: AgentMemory, root: Path, start: Callable[..., Watched]) -> None:
    folder = skill(root, "a", "one")
    watched = start(SkillLibrary(memory, root, references=True))
    (folder / "references").mkdir()
    (folder / "references" / "r.md").write_text("Reference.")
    (folder / "scripts").mkdir()
    (folder / "scripts" / "run.md").write_text("No reference.")
    watched.until(lambda: "a/references/r.md" in stored(memory))
    atomically(folder / "references" / "r.md", "Other.")
    watched.until(lambda: stored(memory).get("a/references/r.md") == "Other.\n")
    shutil.rmtree(folder / "references")
    watched.until(has(watched, a="one"))


# --- what must not wake it ----------------------------------------------------------------------------


def test_fifty_skills_one_change_and_reads_from_another_process(
    memory: AgentMemory, root: Path, start: Callable[..., Watched]
) -> None:
    files = [skill(root, f"skill-{i}") / "SKILL.md" for i in range(50)]
    watched = start(SkillLibrary(memory, root))
    files[7].write_text(text_of("skill-7", "Changed."))
    assert watched.settle() == [("changed", "skill-7")]
    notices = Counter[str]()
    (watched_root,) = watched.watch._roots.values()
    notice = watched_root._notice
    watched_root._notice = lambda *args: (notices.update(["seen"]), notice(*args))[1]
    for _ in range(5):
        subprocess.run(["cat", *files], check=True, stdout=subprocess.DEVNULL)
    assert watched.settle() == []
    assert not notices
    files[8].write_bytes(files[8].read_bytes())
    watched.until(lambda: bool(notices))
    assert watched.settle() == []


def test_a_store_inside_the_root_does_not_feed_the_loop(root: Path, start: Callable[..., Watched]) -> None:
    skill(root, "a", "one")
    with AgentMemory(root / "store", FakeEngine()) as memory:
        watched = start(SkillLibrary(memory, root))
        library_reads = Counter[str]()
        read = watched.watch._library.inventory.read
        watched.watch._library.inventory.read = lambda places=None: (  # type: ignore[method-assign]
            library_reads.update(["read"]),
            read(places),
        )[1]
        skill(root, "a", "two")
        watched.until(has(watched, a="two"))
        memory.ask("what?", max_new=2)
        assert watched.settle() == [("changed", "a")]
        time.sleep(4 * QUIET)
        assert watched.settle() == []
        assert library_reads["read"] == 1


def test_idle_costs_next_to_nothing(memory: AgentMemory, root: Path, start: Callable[..., Watched]) -> None:
    for i in range(20):
        skill(root, f"skill-{i}")
    start(SkillLibrary(memory, root))
    before, start_s = time.process_time(), time.monotonic()
    time.sleep(3)
    share = (time.process_time() - before) / (time.monotonic() - start_s)
    print(f"idle: {share:.3%} of a CPU")  # noqa: T201 - the figure is what this is for
    assert share < 0.01


# --- many at once -------------------------------------------------------------------------------------


def test_twenty_manuals_at_once_are_twenty_deposits_of_the_final_content(
    memory: AgentMemory, root: Path, start: Callable[..., Watched]
) -> None:
    for i in range(20):
        skill(root, f"skill-{i}", "Before.")
    watched = start(SkillLibrary(memory, root), quiet_s=0.3, longest_s=1.5)
    deposits = Counter[str]()
    deposit = memory.deposit_skill

    def counted(manual: Any, **options: Any) -> Any:
        deposits[manual.name] += 1
        return deposit(manual, **options)

    memory.deposit_skill = counted  # type: ignore[method-assign, assignment]
    start_s = time.monotonic()
    for version in range(5):
        skill(root, "skill-3", f"Version {version}.")
    for i in range(20):
        if i != 3:
            atomically(root / f"skill-{i}" / "SKILL.md", text_of(f"skill-{i}", f"After {i}."))
    wrote = time.monotonic() - start_s
    final = {f"skill-{i}": f"After {i}." for i in range(20)} | {"skill-3": "Version 4."}
    watched.until(lambda: len(watched.events) >= 20)
    took = time.monotonic() - start_s
    spent = sum(event.seconds for event in watched.events)
    assert has(watched, **final)()
    assert sorted(watched.settle()) == sorted(("changed", f"skill-{i}") for i in range(20))
    assert deposits == {f"skill-{i}": 1 for i in range(20)}
    print(f"20 changes in {wrote * 1e3:.0f} ms: done after {took:.2f} s, of which {spent:.2f} s deposits")  # noqa: T201
    assert took - spent < 10


def test_a_change_during_a_deposit_is_not_lost(memory: AgentMemory, root: Path, start: Callable[..., Watched]) -> None:
    skill(root, "a", "one")
    watched = start(SkillLibrary(memory, root))
    skill(root, "a", "two")
    with memory.engine.lock:
        time.sleep(4 * QUIET)
        skill(root, "a", "three")
    watched.until(has(watched, a="three"))


def test_a_file_that_never_rests_is_read_all_the_same(
    memory: AgentMemory, root: Path, start: Callable[..., Watched]
) -> None:
    skill(root, "a", "0")
    watched = start(SkillLibrary(memory, root), quiet_s=60.0, longest_s=0.3)
    skill(root, "a", "1")
    watched.until(has(watched, a="1"))


def test_a_file_that_is_saved_while_others_are_compared_is_read_all_the_same(
    memory: AgentMemory, root: Path, start: Callable[..., Watched]
) -> None:
    folder = skill(root, "a", "0")
    library = SkillLibrary(memory, root)
    watched = start(library, quiet_s=0.01, longest_s=0.3)
    plan, rounds = library.plan, Counter[str]()

    def changed_meanwhile(**options: Any) -> Any:
        made = plan(**options)
        rounds.update(["rounds"])
        watched.watch._touch([folder])  # as if it were saved again before its turn comes
        return made

    library.plan = changed_meanwhile  # type: ignore[method-assign]
    skill(root, "a", "1")
    watched.until(has(watched, a="1"))
    assert rounds["rounds"] > 1  # it was left at first
    library.plan = plan  # type: ignore[method-assign]
    assert watched.settle() == [("changed", "a")]


def test_one_of_seventy_skills_that_is_saved_all_the_time_is_read(
    memory: AgentMemory, root: Path, start: Callable[..., Watched]
) -> None:
    for i in range(70):
        skill(root, f"skill-{i}")
    watched = start(SkillLibrary(memory, root), quiet_s=0.3, longest_s=1.5)
    ended = threading.Event()

    def save() -> None:
        number = 0
        while not ended.wait(0.02):
            number += 1
            atomically(root / "skill-7" / "SKILL.md", text_of("skill-7", f"Version {number}."))

    saver = threading.Thread(target=save)
    saver.start()
    try:
        watched.until(lambda: ("changed", "skill-7") in [(event.kind, event.name) for event in watched.events])
    finally:
        ended.set()
        saver.join()
    watched.settle()
    assert stored(memory)["skill-7"] == (root / "skill-7" / "SKILL.md").read_text().rsplit("---\n", 1)[1]


# --- faults and the end -------------------------------------------------------------------------------


def test_a_deposit_that_is_refused_is_told_and_not_tried_again_before_a_change(
    watched: Watched, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tries = Counter[str]()

    def refused(manual: Any, **options: Any) -> Any:
        tries[manual.name] += 1
        raise InexactBlock("0" * 64, 1, 32)

    with monkeypatch.context() as patch:
        patch.setattr(watched.memory, "deposit_skill", refused)
        skill(root, "a", "two")
        assert watched.settle() == [("broken", "a")]
        skill(root, "b")
        assert watched.settle() == [("broken", "b")]
        (root / "a" / "SKILL.md").touch()
        assert watched.settle() == []
        assert tries == {"a": 1, "b": 1}
        assert has(watched, a="one")()
    skill(root, "a", "three")
    assert watched.settle() == [("changed", "a")]


def test_without_events_the_files_are_compared(
    memory: AgentMemory, root: Path, start: Callable[..., Watched], monkeypatch: pytest.MonkeyPatch
) -> None:
    from watchdog.observers import Observer

    def no_watches(*_: object, **__: object) -> None:
        raise OSError(28, "inotify watch limit reached")

    monkeypatch.setattr(Observer, "schedule", no_watches)
    monkeypatch.setattr("agentkv.skills.watch.POLL_S", 0.1)
    skill(root, "a", "one")
    watched = start(SkillLibrary(memory, root))
    skill(root, "a", "two")
    watched.until(has(watched, a="two"))
    assert watched.settle() == [("changed", "a")]


def test_what_an_event_did_not_tell_the_rescan_finds(
    memory: AgentMemory, root: Path, tmp_path: Path, start: Callable[..., Watched]
) -> None:
    linked = skill(tmp_path / "elsewhere", "a", "one")
    (root / "a").symlink_to(linked)
    watched = start(SkillLibrary(memory, root), rescan_s=0.2)
    skill(tmp_path / "elsewhere", "a", "two")
    watched.until(has(watched, a="two"))


def test_stop_cancels_a_deposit_and_leaves_the_engine_clean(memory: AgentMemory, root: Path) -> None:
    skill(root, "a", "one")
    reading = threading.Event()
    extend = memory.engine.extend

    def slow(tokens: Any, cancellation: Any = None) -> Any:
        if cancellation is not None and len(tokens) > 1000:
            reading.set()
            while not cancellation.requested:
                time.sleep(0.001)
        return extend(tokens, cancellation)

    memory.engine.extend = slow  # type: ignore[method-assign]
    watch = SkillLibrary(memory, root).watch(quiet_s=QUIET)
    assert watch.wait_idle(SOON)
    skill(root, "b", "long " * 400)
    assert reading.wait(SOON)
    assert watch.stop()
    assert not watch.is_alive
    assert set(stored(memory)) == {"a"}
    assert memory.ask("what?", skill="a", max_new=2).tokens.restored > 0


def test_an_error_in_the_callback_ends_the_watch_and_is_raised(memory: AgentMemory, root: Path) -> None:
    skill(root, "a", "one")

    def bad(event: SkillEvent) -> None:
        raise ZeroDivisionError(event.name)

    with pytest.raises(ZeroDivisionError), SkillLibrary(memory, root).watch(bad) as watch:
        watch.wait_idle(SOON)


def test_turns_go_on_while_it_works(watched: Watched, root: Path) -> None:
    for i in range(5):
        skill(root, f"skill-{i}", "words " * 50)
    answered = 0
    while len(watched.events) < 5:
        watched.memory.ask("what?", skill="a", max_new=1)
        answered += 1
    assert answered > 0


KILLED = """
import sys
from agentkv import AgentMemory, FakeEngine
from agentkv.skills.library import SkillLibrary
memory = AgentMemory(sys.argv[1], FakeEngine())
with SkillLibrary(memory, sys.argv[2]).watch(lambda event: print(event.name, flush=True), quiet_s=0.05) as watch:
    while watch.is_alive:
        watch.wait_idle()
"""


@pytest.mark.skipif(os.name == "nt", reason="no SIGKILL")
def test_a_kill_leaves_a_whole_store(root: Path, tmp_path: Path) -> None:
    for i in range(30):
        skill(root, f"skill-{i}", "words " * 300)
    arguments = [sys.executable, "-c", KILLED, str(tmp_path / "store"), str(root)]
    with subprocess.Popen(arguments, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        for _ in range(4):
            assert process.stdout.readline()
        process.send_signal(signal.SIGKILL)
    with BlockStore(tmp_path / "store") as store:
        names = store.names("skill")
        assert len(names) >= 4
        for named in names:
            store.verify(named.block_id)
        assert list((tmp_path / "store" / "tmp").iterdir()) == []
        with AgentMemory(store, FakeEngine()) as memory:
            report = SkillLibrary(memory, root).sync()
            assert (len(report.unchanged), report.found) == (len(names), 30)
            assert len(stored(memory)) == 30


# --- the store ----------------------------------------------------------------------------------------


def test_each_eviction_is_told_once(memory: AgentMemory, root: Path, start: Callable[..., Watched]) -> None:
    skill(root, "a", "first " * 200)
    watched = start(SkillLibrary(memory, root))
    stored_bytes = sum(n_bytes for _, n_bytes in memory.store.segments.all())
    memory.store.set_budget(stored_bytes * 3 // 2)
    skill(root, "b", "second " * 200)
    assert watched.settle() == [("added", "b"), ("evicted", "a")]
    assert set(stored(memory)) == {"b"}
    assert watched.settle() == []
