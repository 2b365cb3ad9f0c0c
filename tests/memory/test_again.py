"""Depositing again for another engine: every text, after what it followed, and none lost to a budget."""

from __future__ import annotations

import contextlib
from pathlib import Path

import pytest

from agentkv import AgentMemory, Cancellation, FakeEngine, SkillLibrary
from agentkv.engine.settings import EngineSettings
from agentkv.errors import Cancelled, OverBudget
from agentkv.records import NamedBlock
from agentkv.store.budget import stored_bytes

FLASH = EngineSettings(flash_attention=True)


def flash(store: Path) -> AgentMemory:
    return AgentMemory(store, FakeEngine(settings=FLASH))


def texts_of(memory: AgentMemory) -> dict[str, str | None]:
    return {named.name: memory.store.text(named.source_sha256 or "") for named in memory.names()}


def test_everything_as_it_was_with_what_it_stood_behind(tmp_path: Path) -> None:
    home = tmp_path / "skills" / "greet"
    (home / "references").mkdir(parents=True)
    (home / "SKILL.md").write_text("---\nname: greet\ndescription: Greets.\nlicense: MIT\n---\nSay hello.")
    (home / "references" / "more.md").write_text("More on greeting.\n")
    with AgentMemory(tmp_path / "store", FakeEngine()) as memory:
        SkillLibrary(memory, tmp_path / "skills", references=True).sync()
        memory.deposit_text("note", "A note.", "What the note is for.", source="/somewhere")
        before, about = texts_of(memory), memory.names()
    with flash(tmp_path / "store") as memory:
        done = memory.deposit_again()
        assert (sorted(named.name for named, _ in done.done), done.failed) == (sorted(before), ())
        assert texts_of(memory) == before
        for old, new in zip(about, memory.names(), strict=True):
            assert old.model_copy(update={"fingerprint_id": "", "block_id": ""}) == new.model_copy(
                update={"fingerprint_id": "", "block_id": ""}
            )
        reference = memory.routing.manifest("greet/references/more.md")
        assert reference.parent_id == memory.routing.manifest("greet").block_id
        report = SkillLibrary(memory, tmp_path / "skills", references=True).sync()
        assert report.unchanged == ("greet",), "a sync has nothing to do after it"
        assert memory.deposit_again().done == ()
    with AgentMemory(tmp_path / "store", FakeEngine()) as memory:
        assert memory.names() == about, "nothing of the other engine went"


def test_of_several_engines_the_last_written(tmp_path: Path) -> None:
    with AgentMemory(tmp_path, FakeEngine(weights="b")) as memory:
        memory.deposit_text("note", "An older note.")
    with AgentMemory(tmp_path, FakeEngine()) as memory:
        memory.deposit_text("note", "The newer note.")
    with flash(tmp_path) as memory:
        memory.deposit_again()
        assert texts_of(memory) == {"note": "The newer note.\n"}


def test_one_bad_name_keeps_no_other_out(tmp_path: Path) -> None:
    with AgentMemory(tmp_path, FakeEngine()) as memory:
        memory.deposit_text("long", "word " * 300)
        memory.deposit_text("lost", "A lost text.", source="/away/lost.txt")
        memory.deposit_text("note", "A note.")
        lost = memory.routing.named("lost").source_sha256 or ""
        memory.store.files.texts.remove(lost)
    with AgentMemory(tmp_path, FakeEngine(settings=FLASH, window=600)) as memory:
        done = memory.deposit_again()
    assert [named.name for named, _ in done.done] == ["note"]
    reasons = {named.name: error.message for named, error in done.failed}
    assert "over the context window" in reasons["long"]
    assert "The text of 'lost' is not kept in the store. It came from /away/lost.txt" in reasons["lost"]


@pytest.mark.parametrize(("room", "fits"), [(0, False), (9_000, True), (30_000, True)])
def test_a_budget_never_costs_a_text(tmp_path: Path, room: int, fits: bool) -> None:
    with AgentMemory(tmp_path, FakeEngine()) as memory:
        for number in range(4):
            memory.deposit_text(f"note-{number}", f"Note number {number}. " * 20)
        before = texts_of(memory)
        memory.store.set_budget(stored_bytes(memory.store.files) + room)
    with flash(tmp_path) as memory:
        with contextlib.nullcontext() if fits else pytest.raises(OverBudget):
            memory.deposit_again()
        kept = {named.name: memory.store.text(named.source_sha256 or "") for named in memory.store.names()}
        assert kept == before, "each is there for one engine or the other"
        memory.store.set_budget(None)
        memory.deposit_again()
        assert texts_of(memory) == before


def test_it_can_be_cut_short_and_goes_on(tmp_path: Path) -> None:
    with AgentMemory(tmp_path, FakeEngine()) as memory:
        for name in ("a", "b", "c"):
            memory.deposit_text(name, f"The text {name}.")
    cancellation, seen = Cancellation(), []

    def on_work(named: NamedBlock) -> None:
        seen.append(named.name)
        if len(seen) == 2:
            cancellation.cancel()

    with flash(tmp_path) as memory:
        with pytest.raises(Cancelled):
            memory.deposit_again(on_work=on_work, cancellation=cancellation)
        assert [named.name for named in memory.names()] == ["a"]
        assert [named.name for named, _ in memory.deposit_again().done] == ["b", "c"]
