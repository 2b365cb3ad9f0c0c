"""Migration between two fingerprints: killed anywhere it goes on, nothing is lost, the same answers after."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from agentkv import AgentMemory, BlockStore, FakeEngine
from agentkv.cli import app
from agentkv.documents import Corpus
from agentkv.engine.fake import quote
from agentkv.engine.generate import PROBE_STEPS
from agentkv.engine.settings import EngineSettings
from agentkv.errors import OverBudget
from agentkv.flywheel.library import SolutionLibrary
from agentkv.migrate import migrate, plan
from agentkv.records import Exactness
from agentkv.router.classifier import ChannelClassifier
from agentkv.router.evaluate import Labelled
from agentkv.sandbox.sandbox import Sandbox
from agentkv.store.budget import stored_bytes
from tests.cli.conftest import Run, manual, record
from tests.flywheel import scripted

FLASH = EngineSettings(flash_attention=True)
N_SKILLS, N_THREADS, N_CHUNKS, N_KILLS = 20, 3, 200, 10


@pytest.fixture(autouse=True)
def _no_waiting_for_the_disk(monkeypatch: pytest.MonkeyPatch) -> None:
    """A killed process loses nothing that the system has: only a power failure would need these."""
    monkeypatch.setattr(os, "fsync", lambda _: None)


def memory_of(store: Path, settings: EngineSettings | None = None, *, weights: str = "") -> AgentMemory:
    return AgentMemory(store, FakeEngine(window=1 << 14, settings=settings, replies=quote, weights=weights))


def fill(store: Path, skills: int, threads: int, chunks: int) -> None:
    """Skills with a value each, threads of two turns, and a corpus of that many stored chunks or a few more."""
    folder = store.parent / "docs"
    folder.mkdir()
    lines = [f"Rule {number} of the house allows {number + 3} guests in room {number}." for number in range(chunks)]
    for part in range(4):
        text = "\n\n".join(lines[part::4])
        (folder / f"part{part}.md").write_text(f"# Part {part}\n\n{text}\n")
    with memory_of(store) as memory:
        for number in range(skills):
            home = manual(store.parent / "skills", f"tariff-{number}", f"Tariff {number} costs {number * 7 + 1} euros.")
            memory.deposit_skill(home)
        for number in range(threads):
            thread = memory.thread(f"visitor {number}")
            thread.ask(f"I am visitor {number} and my favourite number is {number + 40}.", skill=None)
            thread.ask("Good morning to you.")
        Corpus(memory, chunk_tokens=64, overlap=0, keep="eager").add([folder])


def answers(memory: AgentMemory, skills: int, threads: int) -> list[str]:
    """What each skill, each thread (a fork of it) and the documents say."""
    shown = [memory.ask(f"What costs Tariff {n} euros?", skill=f"tariff-{n}").text for n in range(skills)]
    for number in range(threads):
        turn = memory.thread(f"visitor {number}").ask("What is my favourite number?", keep=False)
        shown.append(turn.text)
    reply = Corpus(memory).ask("How many guests does Rule 17 of the house allow?")
    return [*shown, reply.answer or ""]


KILLED = """
import os, signal, sys
from agentkv.io import fsio
from agentkv.cli import main
os.fsync = lambda _: None
left, write = int(sys.argv.pop(1)), fsio.write_durably
def counted(*args, **how):
    global left
    left -= 1
    if left == 0:
        os.kill(os.getpid(), signal.SIGKILL)
    return write(*args, **how)
fsio.write_durably = counted
main()
"""


def test_killed_ten_times_on_the_way_nothing_is_lost_and_the_answers_are_the_same(tmp_path: Path) -> None:
    store = tmp_path / "store"
    fill(store, N_SKILLS, N_THREADS, N_CHUNKS)
    with memory_of(store) as memory:
        chunks = len(Corpus(memory).shelf.stored())
        before, old = answers(memory, N_SKILLS, N_THREADS), set(memory.store.block_ids())
        turns = [len(memory.thread(name).turns) for name in memory.threads()]
    assert chunks >= N_CHUNKS
    assert before[3] == "Tariff 3 costs 22 euros."
    command = [sys.executable, "-c", KILLED]
    options = ["migrate", "--store", str(store), "--model", "fake", "--flash-attention", "--json"]
    environment = os.environ | {"COLUMNS": "100"}
    progress = []
    for number in range(N_KILLS):
        done = subprocess.run([*command, str(12 + 4 * number), *options], env=environment, capture_output=True)
        assert done.returncode == -signal.SIGKILL, done.stderr.decode()
        with BlockStore(store) as opened:
            assert old <= set(opened.block_ids()), "until it is done no block of the other engine goes"
            assert opened.superseded == frozenset()
            progress.append(len(set(opened.block_ids()) - old))
    assert progress == sorted(set(progress)), "each run goes on where the one before was killed"
    with memory_of(store, FLASH) as memory:
        todo = plan(memory)
        assert todo.tokens > 0
        assert progress[-1] > N_SKILLS
    finished = subprocess.run([*command, "0", *options], env=environment, capture_output=True)
    assert finished.returncode == 0, finished.stderr.decode()
    with memory_of(store, FLASH) as memory:
        assert plan(memory).is_empty
        assert len(memory.store.superseded) == 1
        read = memory.engine.counters.decoded
        assert len(Corpus(memory).shelf.stored()) >= chunks
        turn = memory.ask("What costs Tariff 3 euros?", skill="tariff-3")
        assert (turn.not_restored, turn.exactness) == (None, Exactness.EXACT)
        again = memory.thread("visitor 1").ask("What is my favourite number?", keep=False)
        assert again.tokens.restored > again.tokens.prefilled, "it goes on from its state"
        assert memory.engine.counters.decoded - read < 2000
    with memory_of(store, FLASH) as memory:
        for name, n_turns in zip(memory.threads(), turns, strict=True):  # without what was asked a moment ago
            memory.thread(name).rewind(n_turns - 1)
        assert answers(memory, N_SKILLS, N_THREADS) == before
        assert memory.store.check().damage == ()


@pytest.fixture
def small(tmp_path: Path) -> Path:
    fill(tmp_path / "store", 2, 1, 6)
    return tmp_path / "store"


def test_a_build_with_the_same_bits_takes_blocks_over_without_prefill_and_records_it(tmp_path: Path) -> None:
    store = tmp_path / "store"
    one, two = (EngineSettings(flash_attention=True, threads=threads) for threads in (1, 2))
    with memory_of(store, one) as memory:
        for number in range(5):
            memory.deposit_text(f"note-{number}", f"Note {number} says {number * 9}. " * (number + 1))
        memory.thread("t").ask("I am Ann.", skill="note-1")
        before = memory.ask("What says Note 3?", skill="note-3")
    with memory_of(store, two) as memory:
        assert plan(memory).adoptable >= 6
        read = memory.engine.counters.decoded
        done = migrate(memory)
        (adoption,) = done.adopted
        assert (adoption.why_not, [one.created for _, one in done.deposits]) == ("", [False] * 5)
        assert done.threads == ["t"]
        assert memory.engine.counters.decoded - read <= adoption.compared + 3 * PROBE_STEPS, "three samples, no more"
        manifest = memory.routing.manifest("note-3")
        assert manifest.adopted_from is not None
        assert (manifest.adopted_from.numerics["threads"], manifest.exactness) == (1, Exactness.EXACT_BY_CONFIG)
        turn = memory.ask("What says Note 3?", skill="note-3")
        assert (turn.logits_sha256, turn.not_restored) == (before.logits_sha256, None)
        assert memory.blocks.reprove(manifest)
        assert memory.store.check().damage == ()
    shown = CliRunner().invoke(app, ["show", manifest.block_id[:12], "--store", str(store), "--model", "fake"])
    assert "exact_by_config, computed by another build with the same bits" in shown.stdout


@pytest.mark.parametrize("what", ["state", "logits"])
def test_a_build_with_other_bits_prefills(tmp_path: Path, what: str, monkeypatch: pytest.MonkeyPatch) -> None:
    one, two = (EngineSettings(flash_attention=True, threads=threads) for threads in (1, 2))
    with memory_of(tmp_path, one) as memory:
        memory.deposit_text("note", "A note.")
    with memory_of(tmp_path, two) as memory:
        engine = memory.engine
        assert isinstance(engine, FakeEngine)
        if what == "state":
            monkeypatch.setattr(engine, "_weights", "other bits under the same name")
        else:
            logits = engine._logits
            monkeypatch.setattr(engine, "_logits", lambda: logits()[::-1].copy())
        done = migrate(memory)
        (adoption,) = done.adopted
        assert (adoption.blocks, [one.created for _, one in done.deposits]) == (0, [True])
        assert ("other bits" if what == "state" else "logits after") in adoption.why_not
        assert migrate(memory).adopted == [], "asked once"
        assert memory.routing.manifest("note").adopted_from is None


def test_the_old_blocks_go_first_and_only_once_all_is_done(small: Path) -> None:
    with memory_of(small) as memory:
        old = set(memory.store.block_ids())
        pinned = memory.routing.manifest("tariff-0").block_id
        memory.store.pin(pinned)
        memory.store.set_budget(stored_bytes(memory.store.files) + 20_000)
    with memory_of(small, FLASH) as memory:
        with pytest.raises(OverBudget):
            migrate(memory)
        assert old <= set(memory.store.block_ids())
        memory.store.set_budget(None)
        migrate(memory)
        assert memory.store.pinned() == {memory.routing.manifest("tariff-0").block_id}
        new = set(memory.store.block_ids()) - old
        used = [memory.ask("What costs Tariff 1?", skill="tariff-1").block_id for _ in range(2)]
        eviction = memory.store.evict(stored_bytes(memory.store.files) // 3, dry_run=True)
        order = [victim.block_id in old for victim in eviction.victims]
        assert order == sorted(order, reverse=True)
        assert order.count(True) == len(old)
        assert set(used) <= new
    with memory_of(small) as memory:
        migrate(memory)
        assert len(memory.store.superseded) == 1, "back at the first engine, that one is the present one again"
        eviction = memory.store.evict(stored_bytes(memory.store.files) * 2 // 3, dry_run=True)
        order = [victim.block_id in new for victim in eviction.victims]
        assert order == sorted(order, reverse=True)


def test_what_cannot_be_done_is_named_and_nothing_is_superseded(small: Path) -> None:
    with memory_of(small) as memory:
        memory.store.files.texts.remove(memory.routing.named("tariff-0").source_sha256 or "")
    with memory_of(small, FLASH) as memory:
        done = migrate(memory)
        assert [name for name, _ in done.failed] == ["tariff-0"]
        assert memory.store.superseded == frozenset()
        assert memory.store.names(fingerprint_id=memory.blocks.fingerprint.id) != []


def test_the_state_of_a_thread_goes_with_the_thread(small: Path) -> None:
    with memory_of(small, FLASH) as memory:
        before = set(memory.store.block_ids())
        migrate(memory)
        assert len(memory.thread("visitor 0").turns) == 2
        states = [entry.checkpoint for entry in memory.thread("visitor 0").history if entry.question is None]
        assert len(states) == 1
        assert states[0] in set(memory.store.block_ids()) - before
        memory.store.take_away(sorted(before))
    with memory_of(small, weights="third") as memory:
        assert migrate(memory).threads == ["visitor 0"], "also where the states of its turns are gone"
        noted = {entry.checkpoint for entry in memory.thread("visitor 0").history if entry.question is None}
        memory.remove_thread("visitor 0")
        assert len(noted) == 2
        assert not noted & set(memory.store.block_ids())


def test_the_status_says_what_images_take_up(filled: Run, store: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert record(filled("store", "status", "--json"))["image_bytes"] == 0
    assert "restore images" not in filled("store", "status").stdout
    monkeypatch.setattr("agentkv.store.images.LEAST_BYTES", 1)
    filled("ask", "what is the restocking fee?")
    taken = sum(path.stat().st_size for path in (store / "images").rglob("*.image"))
    assert record(filled("store", "status", "--json"))["image_bytes"] == taken > 0
    assert "of restore images in" in filled("store", "status").stdout


def test_the_commands(filled: Run, skills: Path, store: Path) -> None:
    filled("docs", "add", skills, "--tokens", 128, "--overlap", 0)
    (row,) = record(filled("store", "status", "--json"))["fingerprints"]
    assert (row["present"], row["names"], row["blocks"] > 2, row["bytes"] > 0) == (True, 2, True, True)
    filled("settings", "flash-attention=on")
    screen = filled("store", "status").stdout
    assert "flash_attention = False, here True" in screen
    assert "`agentkv migrate --store" in screen
    dry = filled("migrate", "--dry-run")
    assert dry.exit_code == 0
    assert "skills and texts: 2, document corpora: 1" in dry.stdout
    assert "tokens, about" in dry.stdout
    assert len(record(filled("store", "status", "--json"))["fingerprints"]) == 1, "a dry run writes nothing"
    done = filled("migrate")
    assert done.exit_code == 0
    assert "the store is fake's now" in done.stdout
    here, other = record(filled("store", "status", "--json"))["fingerprints"]
    assert (here["present"], here["names"], other["superseded"]) == (True, 2, True)
    assert here["blocks"] == other["blocks"]
    assert "nothing to do" in filled("migrate").stdout
    assert record(filled("migrate", "--json"))["todo"]["names"] == []
    assert "another engine" not in filled("list").stdout


@pytest.mark.parametrize("same_model", [True, False])
def test_what_the_router_has_learned_goes_on_counting(small: Path, same_model: bool) -> None:
    questions = [Labelled(f"how dear is number {n} for {who}?", f"tariff-{n}") for n in (0, 1) for who in ("me", "us")]
    with memory_of(small) as memory:
        first = memory.learn(questions)
    with memory_of(small, FLASH if same_model else None, weights="" if same_model else "other") as memory:
        assert plan(memory).learned == 4
        done = migrate(memory)
        assert done.learned == 4
        classifier = memory.routing.classifier
        assert isinstance(classifier, ChannelClassifier)
        assert classifier.weights == first.weights or not same_model
        assert memory.ask("how dear is number 1 for me?").decision.pick == "tariff-1"
        assert plan(memory).is_empty
        forgotten = memory.routing.forget()
    assert forgotten, "it is kept for this engine"
    with memory_of(small, FLASH if same_model else None, weights="" if same_model else "other") as memory:
        assert plan(memory).learned == 4, "the other engine's is still there"


def test_a_solution_is_routed_to_and_restored_as_before(tmp_path: Path, strong: Sandbox) -> None:
    with scripted.memory(tmp_path, lambda _: "37 * 46") as memory:
        scripted.filled(memory, strong)
        before, known = SolutionLibrary(memory).route(scripted.CRATES)
        assert known is not None
    engine = FakeEngine(window=16384, settings=FLASH, replies=lambda _: "37 * 46", keeps_grammar=True)
    with AgentMemory(tmp_path / "store", engine) as memory:
        assert [named.name for named, _ in migrate(memory).deposits] == [before.pick]
        library = SolutionLibrary(memory)
        decision, again = library.route(scripted.CRATES)
        assert (decision.pick, again and again.solution) == (before.pick, known.solution)
        manifest = memory.routing.manifest(decision.pick or "")
        assert manifest.fingerprint == memory.blocks.fingerprint
        assert memory.blocks.reprove(manifest)
