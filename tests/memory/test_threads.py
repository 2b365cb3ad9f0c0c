"""Conversations that outlive the process: what each turn prefills, and that it is what a cold prefill gives."""

from __future__ import annotations

import contextlib
import errno
import os
import shlex
import shutil
import subprocess
import sys
import threading
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from agentkv import ROUTE, AgentKVWarning, AgentMemory, FakeEngine, Turn
from agentkv.engine.base import Cancellation
from agentkv.engine.prompt import Message
from agentkv.errors import (
    Cancelled,
    CorruptThread,
    StoreFull,
    StoreReadError,
    ThreadChanged,
    UnknownThread,
    UsageError,
)
from agentkv.store.budget import stored_bytes
from agentkv.store.catalog import BlockStore


def reply(prompt: str) -> str:
    """An answer that depends on everything spoken before."""
    return f"{sum(map(ord, prompt)) % 977} after {len(prompt)}"


def opened(root: Path | BlockStore, **how: Any) -> AgentMemory:
    """The store as a new process sees it."""
    return AgentMemory(root, FakeEngine(replies=reply, window=8192), **how)


def question(number: int) -> str:
    return f"Question {number}: {'x' * (number % 7)}?"


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return tmp_path / "store"


def talk(root: Path, turns: int, thread_id: str = "t", first: int = 0, **how: Any) -> list[Turn]:
    """Each turn in a process of its own."""
    how = {"skill": None, "max_new": 40, **how}
    return [opened(root).thread(thread_id).ask(question(first + i), **how) for i in range(turns)]


def fresh(tmp_path: Path, messages: list[Message], name: str = "fresh", skill: str | None = None) -> Turn:
    """The same conversation, read at once from an empty store that has the manual at most."""
    memory = opened(tmp_path / name)
    if skill:
        memory.deposit_text(skill, MANUALS[skill])
    return memory.ask(messages, skill=skill, max_new=40, keep=True)


MANUALS = {"shop": "The shop is open from 9 to 5. " * 5, "bank": "The bank is closed on Sundays. " * 6}


def same(one: Turn, other: Turn) -> bool:
    """Every logit of both, every token, and the state from which the next turn goes on."""
    found = [(turn.logits_sha256, turn.token_ids, turn.text, turn.checkpoint) for turn in (one, other)]
    return found[0] == found[1] and one.checkpoint is not None


def test_after_a_restart_a_turn_reads_its_new_tokens_and_not_one_more(root: Path) -> None:
    before: tuple[int, ...] = ()
    for number, turn in enumerate(talk(root, 8)):
        memory = opened(root)
        messages = memory.thread("t").messages[: 2 * number + 1]
        ids = memory.prompt(messages, None).tokens
        assert ids[: len(before)] == before
        new = len(ids) - len(before)
        assert turn.tokens.prefilled == new
        assert turn.tokens.restored == len(before)
        assert turn.deposited == new
        before = ids


def test_forty_turns_a_fork_and_a_rewind_are_what_fresh_conversations_give(root: Path, tmp_path: Path) -> None:
    turns = talk(root, 40)
    memory = opened(root)
    thread = memory.thread("t")
    original = thread.turns
    assert [turn.answer for turn in original] == [turn.text for turn in turns]
    for at in (1, 17, 40):
        assert same(turns[at - 1], fresh(tmp_path, thread.messages[: 2 * at - 1], f"fresh-{at}"))

    fork = memory.thread("t").fork("by another way", at=10)
    assert fork.turns == tuple(e.model_copy(update={"thread_id": "by another way"}) for e in original[:10])
    decoded = memory.engine.counters.decoded
    went = fork.ask("And what if not?", max_new=40)
    new = len(memory.prompt(fork.messages[:-1], None).tokens) - len(memory.prompt(thread.messages[:19], None).tokens)
    assert went.tokens.prefilled == new
    assert memory.engine.counters.decoded - decoded == new + went.tokens.generated - 1
    assert same(went, fresh(tmp_path, fork.messages[:-1], "fresh-fork"))
    assert opened(root).thread("t").turns == original

    thread.rewind(20)
    assert thread.turns == original[:20]
    back = opened(root).thread("t")
    assert back.turns == original[:20]
    again = back.ask("Once more, from there?", max_new=40)
    assert same(again, fresh(tmp_path, back.messages[:-1], "fresh-rewound"))
    assert again.tokens.restored == turns[19].tokens.restored + turns[19].tokens.prefilled
    assert [entry for entry in back.history if entry.question][:40] == list(original)
    back.resume(original[39].seq)
    on = back.ask(question(40), max_new=40)
    assert on.tokens.restored == turns[39].tokens.restored + turns[39].tokens.prefilled
    assert same(on, fresh(tmp_path, back.messages[:-1], "fresh-resumed"))
    assert not opened(root).store.check().findings


def test_a_chain_of_checkpoints_takes_the_room_of_its_last_state(root: Path) -> None:
    turns = talk(root, 30)
    store = BlockStore(root)
    manifests = [store.verify(turn.checkpoint or "") for turn in turns]
    whole = [{ref.sha256 for ref in manifest.segments if ref.section == 0} for manifest in manifests]
    assert all(one < other for one, other in pairwise(whole))
    sizes = dict(store.segments.all())
    last = sum(sizes[digest] for digest in whole[-1])
    assert sum(sizes[digest] for digest in set().union(*whole)) == last


def test_another_skill_reads_the_conversation_once_behind_it_and_keeps_that_too(root: Path, tmp_path: Path) -> None:
    for name, text in MANUALS.items():
        opened(root).deposit_text(name, text)
    shop = talk(root, 3, skill="shop")
    switched = talk(root, 1, first=3, skill="bank")[0]
    memory = opened(root)
    messages = memory.thread("t").messages
    prompt = memory.prompt(messages[:-1], "bank")
    assert switched.tokens.restored == len(prompt.prefix + prompt.manual)
    assert switched.tokens.prefilled == len(prompt.turn)
    assert same(switched, fresh(tmp_path, messages[:-1], skill="bank"))
    stays = opened(root).thread("t").ask("And then?", max_new=40)
    assert stays.decision.pick == "bank"
    assert stays.tokens.restored == len(prompt.tokens)
    back = opened(root).thread("t").ask("As before?", skill="shop", max_new=40)
    assert back.tokens.restored == shop[-1].tokens.restored + shop[-1].tokens.prefilled
    assert [entry.skill for entry in opened(root).thread("t").turns] == ["shop"] * 3 + ["bank"] * 2 + ["shop"]


def test_the_first_turn_is_routed_and_the_others_stay(root: Path) -> None:
    memory = opened(root)
    memory.deposit_text("shop", MANUALS["shop"], "When the shop is open.")
    thread = memory.thread("t")
    first = thread.ask("When is the shop open?")
    assert first.decision.classifier != "given"
    second = thread.ask("And on Sundays?")
    assert second.decision.pick == first.decision.pick
    assert thread.ask("Really?", skill=ROUTE).decision.classifier == first.decision.classifier


def test_under_a_budget_the_oldest_checkpoints_go_and_the_thread_goes_on(root: Path, tmp_path: Path) -> None:
    talk(tmp_path / "whole", 40)
    size = stored_bytes(BlockStore(tmp_path / "whole").files)
    memory = opened(root)
    memory.deposit_text("shop", MANUALS["shop"])
    memory.store.set_budget(size // 3)
    turns = talk(root, 40, skill="shop")
    assert all(turn.not_kept is None for turn in turns)
    store = BlockStore(root)
    assert stored_bytes(store.files) <= size // 3
    there = [store.exists(turn.checkpoint or "") for turn in turns]
    assert there[-1]
    assert not there[0]
    assert there == sorted(there), "the older went before the newer"
    assert [named.name for named in store.names()] == ["shop"]
    new = [turn.tokens.prefilled for turn in turns[1:]]
    assert max(new) < 60, "no turn but the first had to prefill again"
    after = talk(root, 1, first=40, skill="shop")[0]
    assert after.tokens.restored == turns[-1].tokens.restored + turns[-1].tokens.prefilled
    assert same(after, fresh(tmp_path, opened(root).thread("t").messages[:-1], skill="shop"))
    early = opened(root).thread("t").fork("early", at=2).ask("Back then?", max_new=40)
    assert early.tokens.prefilled > 60, "its checkpoint went: read again"
    assert same(early, fresh(tmp_path, opened(root).thread("early").messages[:-1], "fresh-early", skill="shop"))
    assert not store.check().findings


def test_a_turn_of_a_thread_is_a_use_of_its_manual(root: Path) -> None:
    memory = opened(root)
    manual = memory.deposit_text("shop", MANUALS["shop"]).manifest.block_id
    thread = memory.thread("t")
    for number in range(3):
        thread.ask(question(number), skill="shop", max_new=4)
    assert memory.store.uses()[manual].hits == 3


def spoil(store: BlockStore, path: Path, how: str) -> None:
    if how == "gone":
        path.unlink()
        return
    data = bytearray(path.read_bytes())
    data[-40] ^= 1
    path.write_bytes(data)


@pytest.mark.parametrize("what", ["segment", "manifest"])
@pytest.mark.parametrize("how", ["flipped", "gone"])
def test_a_damaged_checkpoint_is_passed_over_for_the_one_before_and_mended(
    root: Path, tmp_path: Path, what: str, how: str
) -> None:
    turns = talk(root, 5)
    store = BlockStore(root)
    last = store.verify(turns[-1].checkpoint or "")
    before = {ref.sha256 for turn in turns[:-1] for ref in store.verify(turn.checkpoint or "").segments}
    own = next(ref.sha256 for ref in last.segments if ref.sha256 not in before)
    path = Path(store.segments.where(own)) if what == "segment" else store.files.manifests.path(last.block_id)
    spoil(store, path, how)
    is_miss = (what, how) == ("manifest", "gone")
    with contextlib.nullcontext() if is_miss else pytest.warns(AgentKVWarning, match="a checkpoint could not be"):
        turn = talk(root, 1, first=5)[0]
    assert turn.tokens.restored == turns[-1].tokens.restored
    assert turn.tokens.prefilled > turns[-1].tokens.prefilled
    assert ("passed over" in (turn.not_restored or "")) is not is_miss
    assert len(turn.notes) == (0 if is_miss else 1)
    assert same(turn, fresh(tmp_path, opened(root).thread("t").messages[:-1]))
    mended = opened(root)
    again = mended.ask(mended.thread("t").messages[:9], skill=None, keep=True, max_new=40)
    assert again.logits_sha256 == turns[-1].logits_sha256
    mended.store.verify(last.block_id)
    assert talk(root, 1, first=6)[0].not_restored is None


def test_threads_taken_in_turns_do_not_meet(root: Path, tmp_path: Path) -> None:
    memory = opened(root)
    one, two = memory.thread("one"), memory.thread("two")
    for number in range(4):
        one.ask(question(number), skill=None, max_new=40)
        two.ask(f"Another {number}.", skill=None, max_new=40)
    for thread in (one, two):
        alone = fresh(tmp_path, thread.messages[:-1], thread.thread_id)
        assert thread.turns[-1].answer == alone.text
        assert thread.turns[-1].checkpoint == alone.checkpoint
    assert memory.threads() == ["one", "two"]


def test_memories_at_once_on_one_store_keep_what_each_alone_would(root: Path, tmp_path: Path) -> None:
    turns: dict[str, list[Turn]] = {}
    errors: list[BaseException] = []

    def work(name: str) -> None:
        try:
            memory = opened(root)
            thread = memory.thread(name)
            turns[name] = [thread.ask(question(i), skill=None, max_new=40) for i in range(5)]
        except BaseException as error:
            errors.append(error)

    workers = [threading.Thread(target=work, args=(f"thread {i}",)) for i in range(3)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    assert errors == []
    assert len({turn.checkpoint for all_of_it in turns.values() for turn in all_of_it}) == 5, "they spoken the same"
    alone = fresh(tmp_path, opened(root).thread("thread 0").messages[:-1])
    assert all(same(all_of_it[-1], alone) for all_of_it in turns.values())
    assert not opened(root).store.check().findings


def test_a_cancelled_or_abandoned_turn_leaves_the_thread_as_it_was(root: Path, tmp_path: Path) -> None:
    talk(root, 2)
    memory = opened(root)
    thread = memory.thread("t")
    before = thread.turns, set(memory.store.block_ids())
    cancellation = Cancellation()
    stream = thread.stream(question(2), max_new=40, cancellation=cancellation)
    next(stream)
    cancellation.cancel()
    with pytest.raises(Cancelled):
        list(stream)
    stream = thread.stream(question(2), max_new=40)
    next(stream)
    stream.close()  # type: ignore[attr-defined]
    assert (thread.turns, set(memory.store.block_ids())) == before
    assert opened(root).thread("t").turns == before[0]
    turn = thread.ask(question(2), max_new=40)
    assert same(turn, fresh(tmp_path, thread.messages[:-1]))


def test_a_thread_that_went_on_elsewhere_is_not_overwritten(root: Path) -> None:
    talk(root, 1)
    here, there = opened(root).thread("t"), opened(root).thread("t")
    there.ask("First?", max_new=8)
    decoded = here._memory.engine.counters.decoded
    with pytest.raises(ThreadChanged):
        here.ask("Second?")
    with pytest.raises(ThreadChanged):
        here.rewind(0)
    assert here._memory.engine.counters.decoded == decoded
    assert len(opened(root).thread("t").turns) == 2


def test_of_two_answers_at_once_one_is_kept_and_the_other_is_in_hand(root: Path) -> None:
    talk(root, 1)
    here, there = opened(root).thread("t"), opened(root).thread("t")
    stream = here.stream("Mine?", max_new=8)
    pieces = [next(stream)]
    kept = there.ask("Yours?", max_new=8)
    with pytest.raises(ThreadChanged, match="not in the thread") as caught:
        pieces += stream
    assert caught.value.turn is not None
    assert caught.value.turn.text == "".join(map(str, pieces)).strip() != kept.text
    assert [turn.question for turn in opened(root).thread("t").turns] == [question(0), "Yours?"]
    assert [turn.question for turn in here.turns] == [question(0)]
    with pytest.raises(ThreadChanged, match="Nothing was asked") as caught:
        here.ask("Again?")
    assert caught.value.turn is None
    elsewhere = here.fork("elsewhere").ask("Mine?", max_new=8)
    assert elsewhere.text == "".join(map(str, pieces)).strip()


def test_a_thread_that_is_rewound_resumed_or_removed_during_an_answer_has_changed(root: Path) -> None:
    talk(root, 2)
    for move in ("rewind", "resume", "remove"):
        stream = opened(root).thread("t").stream("And now?", max_new=8)
        next(stream)
        other = opened(root)
        if move == "rewind":
            other.thread("t").rewind(1)
        elif move == "resume":
            other.thread("t").resume(2)
        else:
            other.remove_thread("t")
        with pytest.raises(ThreadChanged) as caught:
            list(stream)
        assert caught.value.turn is not None
    assert opened(root).threads() == []


def test_a_rewind_and_a_fork_that_come_second_are_refused(root: Path) -> None:
    talk(root, 3)
    one, two = opened(root).thread("t"), opened(root).thread("t")
    one.rewind(1)
    with pytest.raises(ThreadChanged):
        two._move(2)
    log = one._log
    head, numbers = log.head, log.numbers()
    log.head = lambda: two._newest  # type: ignore[method-assign]  # the other writes between the look and the link
    with pytest.raises(ThreadChanged):
        log.append(two.turns[-1], two._newest)
    log.head = head  # type: ignore[method-assign]
    assert log.numbers() == numbers
    one.fork("fork")
    with pytest.raises(UsageError, match="already"):
        two.fork("fork")
    assert len(opened(root).thread("fork").turns) == 1


ASK = """
import sys, time
from pathlib import Path
from agentkv import AgentMemory, FakeEngine
from agentkv.errors import ThreadChanged
root, name, go = sys.argv[1:]
thread = AgentMemory(root, FakeEngine(replies=lambda prompt: name * 9, window=4096)).thread("t")
print("open", flush=True)
while not Path(go).exists():
    time.sleep(0.001)
try:
    thread.ask(f"{name}?", skill=None, max_new=8)
    print("kept", flush=True)
except ThreadChanged as error:
    print("changed", error.turn.text if error.turn else "", flush=True)
"""


def test_of_processes_that_ask_at_once_one_is_kept_and_no_answer_is_lost(root: Path, tmp_path: Path) -> None:
    talk(root, 1)
    go = tmp_path / "go"
    command = [sys.executable, "-c", ASK, str(root)]
    children = [
        subprocess.Popen([*command, name, str(go)], stdout=subprocess.PIPE, text=True) for name in ("a", "b", "c")
    ]
    outs = [child.stdout for child in children]
    assert [out.readline() for out in outs if out] == ["open\n"] * 3
    go.touch()
    spoken = [child.communicate(timeout=60)[0] for child in children]
    assert [child.returncode for child in children] == [0, 0, 0]
    assert sum(line == "kept\n" for line in spoken) == 1
    assert all(line == "kept\n" or line.startswith("changed") for line in spoken)
    turns = opened(root).thread("t").turns
    assert [turn.question for turn in turns] == [question(0), f"{'abc'[spoken.index('kept' + chr(10))]}?"]


def test_a_store_that_cannot_be_written_is_refused_before_anything_is_evaluated(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    talk(root, 1)
    memory = opened(root)
    for name in ("t", "new"):
        with monkeypatch.context() as patched:
            patched.setattr(os, "access", lambda path, mode: not mode & os.W_OK)
            with pytest.raises(StoreReadError, match="no turn could be kept"):
                memory.thread(name).ask("Who?", skill=None)
        with monkeypatch.context() as patched:
            refuse_to_create(patched, errno.EROFS)
            with pytest.raises(StoreReadError, match="Read-only"):
                memory.thread(name).ask("Who?", skill=None)
            refuse_to_create(patched, errno.ENOSPC)
            with pytest.raises(StoreFull):
                next(memory.thread(name).stream("Who?", skill=None))
    assert memory.engine.counters.decoded == 0
    assert memory.threads() == ["t"]
    assert not list((root / "tmp").iterdir())
    assert memory.thread("t").ask("Who?", skill=None, max_new=8).text


def refuse_to_create(patched: pytest.MonkeyPatch, code: int) -> None:
    """As a file system does that is mounted read-only, or is full."""
    open_file = os.open

    def refusing(path: Any, flags: int, *rest: Any, **how: Any) -> int:
        if flags & os.O_CREAT:
            raise OSError(code, os.strerror(code), str(path))
        return open_file(path, flags, *rest, **how)

    patched.setattr(os, "open", refusing)


def test_on_a_file_system_that_is_really_read_only_nothing_is_evaluated(root: Path) -> None:
    talk(root, 1)
    bound = "mount --bind {0} {0} && mount -o remount,bind,ro {0} && exec {1} -c '{2}' {0} x {0}"
    code = (
        "import sys; from agentkv import AgentMemory, FakeEngine; from agentkv.errors import StoreReadError\n"
        "memory = AgentMemory(sys.argv[1], FakeEngine(window=4096))\n"
        'try:\n    memory.thread("t").ask("Who?", skill=None)\n'
        "except StoreReadError as error:\n    print(memory.engine.counters.decoded, error.reason)"
    )
    script = bound.format(shlex.quote(str(root)), shlex.quote(sys.executable), code)
    done = subprocess.run(["unshare", "-rm", "sh", "-c", script], capture_output=True, text=True, check=False)
    if "Operation not permitted" in done.stderr or "unshare" in done.stderr or "mount:" in done.stderr:
        pytest.skip("no mounting here")
    assert done.stdout.startswith("0 "), done.stderr


def test_a_store_that_was_removed_under_an_open_memory_takes_a_new_thread(root: Path) -> None:
    memory = opened(root)
    shutil.rmtree(root)
    with pytest.warns(AgentKVWarning, match="made again"):
        memory.thread("t").ask("Who?", skill=None, max_new=8)
    assert len(opened(root).thread("t").turns) == 1


def test_an_answer_that_cannot_be_written_down_is_in_the_error(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    memory = opened(root)
    thread = memory.thread("t")
    monkeypatch.setattr(os, "link", lambda *_: (_ for _ in ()).throw(OSError(errno.ENOSPC, "No space left on device")))
    with pytest.raises(StoreFull) as caught:
        thread.ask("Who?", skill=None, max_new=8)
    assert caught.value.turn is not None
    assert caught.value.turn.text
    assert (thread.turns, memory.threads()) == ((), [])


def test_what_cannot_be_written_down_is_refused_before_anything_is_evaluated(root: Path) -> None:
    memory = opened(root)
    for name, text in (("t", "\ud800"), ("x" * 600, "fine?"), ("", "fine?")):
        with pytest.raises(UsageError):
            memory.thread(name).ask(text, skill=None)
    assert (memory.engine.counters.decoded, memory.threads()) == (0, [])


def test_turns_are_counted_from_one(root: Path) -> None:
    talk(root, 2)
    thread = opened(root).thread("t")
    for wrong in (-1, 3):
        with pytest.raises(UsageError):
            thread.rewind(wrong)
        with pytest.raises(UsageError):
            thread.fork("x", at=wrong)
    thread.rewind(0)
    assert (thread.turns, thread.messages) == ((), [])
    empty = thread.fork("empty")
    assert (empty.turns, opened(root).threads()) == ((), ["empty", "t"])
    with pytest.raises(UsageError):
        thread.fork("empty")
    with pytest.raises(CorruptThread):
        thread.resume(99)


def test_a_damaged_turn_is_told_and_what_is_before_it_can_be_had(root: Path) -> None:
    talk(root, 3)
    entry = opened(root).thread("t").turns[2]
    (path,) = (root / "threads").rglob(f"{entry.seq:08}.json")
    path.write_bytes(b"{}")
    with pytest.raises(CorruptThread) as caught:
        opened(root).thread("t")
    assert caught.value.path == path
    assert opened(root).threads() == ["t"]
    before = opened(root).thread("t", entry=2)
    assert [turn.question for turn in before.turns] == [question(0), question(1)]
    assert before.ask("On from there?", max_new=8).tokens.restored > 0
    assert len(opened(root).thread("t").turns) == 3, "the newest entry is sound again"
    assert opened(root).remove_thread("t") == 3
    assert opened(root).threads() == []


def test_a_thread_that_is_removed_takes_its_own_states_along(root: Path, tmp_path: Path) -> None:
    talk(root, 4)
    memory = opened(root)
    fork = memory.thread("t").fork("fork", at=2)
    went = fork.ask("And now?", max_new=40)
    shared = {entry.checkpoint for entry in fork.turns}
    with pytest.raises(UnknownThread, match="Did you mean"):
        memory.remove_thread("forks")
    assert memory.remove_thread("t") == 2
    assert memory.threads() == ["fork"]
    assert {block_id for block_id in memory.store.block_ids() if block_id in shared} == shared
    again = opened(root)
    assert same(again.ask(again.thread("fork").messages[:-1], skill=None, keep=True, max_new=40), went)
    assert again.remove_thread("fork") == 3
    assert not again.store.check().findings
    assert not any((root / "segments").rglob("*.seg")) or set(again.store.block_ids())


def test_tools_and_a_system_text_are_read_once_for_all_conversations(root: Path) -> None:
    tool = {"type": "function", "function": {"name": "add", "description": "Adds.", "parameters": {"type": "object"}}}
    how: dict[str, Any] = {"system": "Be brief.", "tools": [tool], "skill": None, "max_new": 8, "keep": True}
    opened(root).ask("One?", **how)
    other = opened(root).ask("Another?", **how)
    memory = opened(root)
    prompt = memory.prompt([Message("user", "Another?")], None, system="Be brief.", tools=[tool])
    assert other.tokens.restored == len(prompt.prefix)
    assert other.tokens.prefilled == len(prompt.turn)


def test_one_pass_cuts_cost_a_few_tokens_and_no_more(root: Path, tmp_path: Path) -> None:
    messages: list[Message] = []
    before = 0
    for number in range(6):
        messages.append(Message("user", question(number)))
        memory = opened(root, one_pass=True)
        turn = memory.ask(messages, skill=None, keep=True, max_new=40)
        ids = memory.prompt(messages, None).tokens
        manifest = memory.store.verify(turn.checkpoint or "")
        assert manifest.n_tokens % memory.engine.alignment == 0
        assert turn.tokens.prefilled <= len(ids) - before + 11
        alone = opened(tmp_path / f"alone-{number}", one_pass=True).ask(messages, skill=None, keep=True, max_new=40)
        assert same(turn, alone)
        before = len(ids)
        messages.append(Message("assistant", turn.text))
