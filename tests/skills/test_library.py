"""``SkillLibrary``: what a sync reads, retires, keeps and reports."""

from __future__ import annotations

import doctest
import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

import agentkv.skills.library
from agentkv import AgentMemory, BlockStore, Cancellation, FakeEngine
from agentkv.errors import Cancelled, InexactBlock, StoreFull, StoreReadError, UsageError, WindowOverflow
from agentkv.notices import AgentKVWarning
from agentkv.records import NamedBlock, SegmentRef
from agentkv.router.base import NONE
from agentkv.router.lexical import LexicalClassifier
from agentkv.skills.library import SkillLibrary
from agentkv.skills.report import SkillEvent
from agentkv.store.format import name_key

from .conftest import skill, stored, text_of


def test_the_example_runs() -> None:
    result = doctest.testmod(agentkv.skills.library)
    assert (result.attempted > 0, result.failed) == (True, 0)


def test_new_then_unchanged_then_changed_then_gone(memory: AgentMemory, root: Path) -> None:
    for name in ("a", "b", "c"):
        skill(root, name)
    library = SkillLibrary(memory, root)
    report = library.sync()
    assert (report.added, report.found) == (("a", "b", "c"), 3)
    ids = {named.name: named.block_id for named in memory.names()}

    decoded = memory.engine.counters.decoded
    assert library.sync().unchanged == ("a", "b", "c")
    assert SkillLibrary(memory, root).sync().unchanged == ("a", "b", "c")
    assert memory.engine.counters.decoded == decoded

    skill(root, "b", "Other text.")
    os.utime(root / "a" / "SKILL.md", (1, 1))
    shutil.rmtree(root / "c")
    report = library.sync()
    assert (report.unchanged, report.changed, report.removed) == (("a",), ("b",), ("c",))
    assert report.retired == (ids["c"], ids["b"])
    assert stored(memory) == {"a": "Text.\n", "b": "Other text.\n"}
    assert memory.store.exists(ids["b"])

    skill(root, "c")
    decoded = memory.engine.counters.decoded
    assert library.sync().added == ("c",)
    assert memory.engine.counters.decoded == decoded


def test_digests_decide_and_not_times(memory: AgentMemory, root: Path) -> None:
    file = skill(root, "a", "one") / "SKILL.md"
    library = SkillLibrary(memory, root)
    library.sync()
    before = file.stat()
    file.write_text(text_of("a", "two"))
    os.utime(file, ns=(before.st_atime_ns, before.st_mtime_ns))
    assert library.sync().changed == ("a",)
    assert stored(memory) == {"a": "two\n"}


def test_blocks_are_those_of_a_plain_deposit(memory: AgentMemory, root: Path) -> None:
    folder = skill(root, "a")
    plain = memory.deposit_skill(folder)
    assert SkillLibrary(memory, root).sync().unchanged == ("a",)
    assert memory.names()[0].block_id == plain.manifest.block_id


def test_a_description_alone_makes_a_skill_changed_and_reads_only_its_card(memory: AgentMemory, root: Path) -> None:
    skill(root, "a", "long " * 200)
    library = SkillLibrary(memory, root)
    library.sync()
    skill(root, "a", "long " * 200, description="Something else.")
    report = library.sync()
    assert report.changed == ("a",)
    assert report.retired == ()
    assert 0 < report.events[0].read < 500
    assert memory.names()[0].description == "Something else."


def test_a_broken_file_keeps_its_skill_and_its_name(memory: AgentMemory, root: Path) -> None:
    folder = skill(root, "x/same")
    library = SkillLibrary(memory, root)
    (folder / "SKILL.md").write_text(text_of("same"))
    assert library.sync().added == ("same",)
    (folder / "SKILL.md").write_bytes(b"---\nname: same\n")
    (root / "y" / "same").mkdir(parents=True)
    (root / "y" / "same" / "SKILL.md").write_text(text_of("same", "Of another."))
    with pytest.warns(AgentKVWarning, match="taken by"):
        report = library.sync()
    assert (report.removed, report.added, report.changed, report.found) == ((), (), (), 2)
    first, second = report.broken
    assert (first.folder, first.kept) == (folder, ("same",))
    assert "its earlier version stays (same)" in first.message
    assert "taken by" in second.message
    assert str(folder) in second.message
    assert stored(memory) == {"same": "Text.\n"}
    shutil.rmtree(folder)
    assert library.sync().changed == ("same",)
    assert stored(memory) == {"same": "Of another.\n"}


def test_a_clash_names_both_paths(memory: AgentMemory, root: Path) -> None:
    for place in ("p", "q"):
        (root / place / "a").mkdir(parents=True)
        (root / place / "a" / "SKILL.md").write_text(text_of("a", place))
    with pytest.warns(AgentKVWarning, match=f"{root / 'q' / 'a' / 'SKILL.md'}: .* taken by {root / 'p' / 'a'}"):
        report = SkillLibrary(memory, root).sync()
    assert (report.added, len(report.broken), report.found) == (("a",), 1, 2)
    assert str(root / "p" / "a") in report.broken[0].message
    assert str(root / "q" / "a" / "SKILL.md") in report.broken[0].message


def test_a_skill_that_moves_within_the_folders_is_not_removed(memory: AgentMemory, root: Path) -> None:
    skill(root, "a")
    library = SkillLibrary(memory, root)
    library.sync()
    decoded = memory.engine.counters.decoded
    (root / "deeper").mkdir()
    (root / "a").rename(root / "deeper" / "a")
    report = library.sync()
    assert (report.changed, report.removed) == (("a",), ())
    assert memory.engine.counters.decoded == decoded
    assert memory.names()[0].source == str(root / "deeper" / "a")


def test_what_others_have_stored_is_left_alone(memory: AgentMemory, root: Path, tmp_path: Path) -> None:
    memory.deposit_text("a-text", "text", "A text.", source=str(root / "a.txt"))
    memory.deposit_skill(skill(tmp_path / "elsewhere", "theirs"))
    report = SkillLibrary(memory, root).sync()
    assert report.removed == ()
    assert set(stored(memory)) == {"a-text", "theirs"}


@pytest.mark.skipif(not hasattr(os, "geteuid") or os.geteuid() == 0, reason="root may read everywhere")
def test_a_folder_that_cannot_be_read_takes_nothing_away(memory: AgentMemory, root: Path) -> None:
    skill(root / "in", "a")
    library = SkillLibrary(memory, root)
    library.sync()
    (root / "in").chmod(0)
    try:
        report = library.sync()
    finally:
        (root / "in").chmod(0o755)
    assert report.removed == ()
    assert len(report.broken) == 1


def test_an_unreadable_folder_is_told_and_takes_nothing_away(
    memory: AgentMemory, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    skill(root / "in", "a")
    library = SkillLibrary(memory, root)
    library.sync()
    scandir = os.scandir

    def refused(path: Path) -> object:
        if Path(path) == root / "in":
            raise PermissionError(13, "Permission denied")
        return scandir(path)

    monkeypatch.setattr("agentkv.skills.discovery.os.scandir", refused)
    report = library.sync()
    assert (report.removed, [entry.path for entry in report.broken]) == ((), [root / "in"])
    assert set(stored(memory)) == {"a"}


def test_a_deposit_that_fails_keeps_the_old_version_and_the_others(
    memory: AgentMemory, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    skill(root, "a")
    skill(root, "b")
    library = SkillLibrary(memory, root)
    library.sync()
    skill(root, "a", "Changed.")
    skill(root, "b", "Changed.")
    deposit, tries = memory.deposit_skill, []

    def failing(manual: object, **options: object) -> object:
        tries.append(manual.name)  # type: ignore[attr-defined]
        if manual.name == "a":  # type: ignore[attr-defined]
            raise error
        return deposit(manual, **options)  # type: ignore[arg-type]

    monkeypatch.setattr(memory, "deposit_skill", failing)
    error: Exception = InexactBlock("0" * 64, 3, 32)
    report = library.sync()
    assert (report.changed, report.broken[0].error, report.broken[0].kept) == (("b",), error, ("a",))
    assert stored(memory) == {"a": "Text.\n", "b": "Changed.\n"}
    assert library.plan(read=False).work == ()
    assert library.plan().work[0].manual.name == "a"
    error = StoreFull(root, 1, 0)
    library.sync()
    assert library.plan(read=False).work[0].manual.name == "a"


def test_cancelling_ends_a_sync_and_keeps_what_is_done(memory: AgentMemory, root: Path) -> None:
    for name in ("a", "b", "c"):
        skill(root, name)
    cancellation = Cancellation()
    start_s = []

    def on_work(work: object) -> None:
        start_s.append(work.manual.name)  # type: ignore[attr-defined]
        if len(start_s) == 2:
            cancellation.cancel()

    library = SkillLibrary(memory, root)
    with pytest.raises(Cancelled):
        library.sync(cancellation=cancellation, on_work=on_work)
    assert set(stored(memory)) == {"a"}
    assert (library.sync().unchanged, library.sync().unchanged) == (("a",), ("a", "b", "c"))


def test_a_root_that_is_not_a_directory_is_refused(memory: AgentMemory, root: Path) -> None:
    with pytest.raises(UsageError, match="not a directory"):
        SkillLibrary(memory, [root, root / "nothing"])


# --- what is stored and cannot be used ----------------------------------------------------------------


def named(memory: AgentMemory, name: str) -> NamedBlock:
    return next(entry for entry in memory.names() if entry.name == name)


def manifest_file(memory: AgentMemory, name: str) -> Path:
    return memory.store.files.manifests.path(named(memory, name).block_id)


def parent_file(memory: AgentMemory, name: str) -> Path:
    parent_id = memory.store.verify(named(memory, name).block_id).parent_id
    assert parent_id is not None
    return memory.store.files.manifests.path(parent_id)


def segment_file(memory: AgentMemory, name: str) -> Path:
    """A segment of this skill that no other has."""
    block_id = named(memory, name).block_id
    others = {ref.sha256 for one in memory.store.block_ids() if one != block_id for ref in segments(memory, one)}
    own = next(ref.sha256 for ref in segments(memory, block_id) if ref.sha256 not in others)
    return Path(memory.store.segments.where(own))


def segments(memory: AgentMemory, block_id: str) -> tuple[SegmentRef, ...]:
    manifest = memory.store.manifest(block_id)
    assert manifest is not None
    return manifest.segments


def text_file(memory: AgentMemory, name: str) -> Path:
    digest = named(memory, name).source_sha256
    assert digest is not None
    return memory.store.files.texts.path(digest)


def name_file(memory: AgentMemory, name: str) -> Path:
    return memory.store.files.names.path(name_key("skill", name, memory.blocks.fingerprint.id))


FileOf = Callable[[AgentMemory, str], Path]
FILES = [segment_file, text_file, manifest_file, parent_file, name_file]


def flip(file: Path) -> None:
    data = bytearray(file.read_bytes())
    data[-40] ^= 1
    file.write_bytes(data)


def reopened(memory: AgentMemory) -> AgentMemory:
    """The same store as another process finds it: nothing of it in RAM."""
    return AgentMemory(BlockStore(memory.store.root), FakeEngine(), prefix=memory.prefix)


@pytest.mark.parametrize("harm", [Path.unlink, flip])
@pytest.mark.parametrize("file_of", FILES)
def test_what_is_missing_or_damaged_is_mended(
    memory: AgentMemory, root: Path, file_of: FileOf, harm: Callable[[Path], None]
) -> None:
    skill(root, "a", "Twelve per cent.")
    skill(root, "b")
    SkillLibrary(memory, root).sync()
    before = stored(memory)
    file = file_of(memory, "a")
    harm(file)

    memory = reopened(memory)
    report = SkillLibrary(memory, root).sync()
    nameless = file_of is name_file and harm is Path.unlink
    of_both = file_of is parent_file
    assert report.added == (("a",) if nameless else ())
    assert report.mended == (() if nameless else ("a", "b") if of_both else ("a",))
    assert report.unchanged == (() if of_both else ("b",))
    assert (report.found, report.changed, report.broken) == (2, (), ())
    assert report.events[0].kind == ("added" if nameless else "mended")
    assert stored(memory) == before
    assert reopened(memory).ask("what?", skill="a", max_new=2).not_restored is None
    assert SkillLibrary(reopened(memory), root).sync().unchanged == ("a", "b")


@pytest.mark.parametrize("file_of", FILES)
def test_a_read_that_is_refused_is_told_and_is_no_change(memory: AgentMemory, root: Path, file_of: FileOf) -> None:
    skill(root, "a", "Twelve per cent.")
    skill(root, "b")
    SkillLibrary(memory, root).sync()
    file = file_of(memory, "a")
    file.unlink()
    file.mkdir()  # which nobody may read as a file, not even root

    memory = reopened(memory)
    report = SkillLibrary(memory, root).sync()
    refused = 2 if file_of is parent_file else 1
    assert (len(report.broken), report.found) == (refused, 2)
    assert all(isinstance(entry.error, StoreReadError) for entry in report.broken)
    assert str(file) in report.broken[0].message
    assert report.broken[0].kept == (() if file_of is name_file else ("a",))
    assert (report.added, report.changed, report.mended, report.removed) == ((), (), (), ())
    assert memory.engine.counters.decoded == 0


def test_of_a_skill_in_parts_only_the_damaged_part_is_read(memory: AgentMemory, root: Path) -> None:
    skill(root, "long", SECTIONS[:3000])
    library = SkillLibrary(memory, root, max_tokens=800)
    assert library.sync().events[0].pieces == 5
    before = stored(memory)
    part = sorted(before)[2]
    segment_file(memory, part).unlink()
    memory = reopened(memory)
    library = SkillLibrary(memory, root, max_tokens=800)
    assert [piece.manual.name for piece in library.plan().work[0].missing] == [part]
    report = library.sync()
    assert (report.mended, report.found) == (("long",), 1)
    assert stored(memory) == before


def test_what_is_changed_and_damaged_is_changed(memory: AgentMemory, root: Path) -> None:
    skill(root, "a")
    SkillLibrary(memory, root).sync()
    segment_file(memory, "a").unlink()
    skill(root, "a", "Other.")
    report = SkillLibrary(memory, root).sync()
    assert (report.changed, report.mended) == (("a",), ())


# --- one name, two folders ----------------------------------------------------------------------------


def test_a_name_that_another_folder_has_is_replaced_and_told(memory: AgentMemory, root: Path, tmp_path: Path) -> None:
    ours, theirs = skill(root, "a", "Ours."), skill(tmp_path / "other", "a", "Theirs.")
    assert SkillLibrary(memory, root).sync().added == ("a",)
    report = SkillLibrary(memory, tmp_path / "other").sync()
    assert (report.replaced, report.added, report.changed, report.found) == (("a",), (), (), 1)
    assert (report.events[0].kind, report.events[0].was) == ("replaced", ours)
    assert stored(memory) == {"a": "Theirs.\n"}
    assert named(memory, "a").source == str(theirs)
    assert SkillLibrary(memory, tmp_path / "other").sync().unchanged == ("a",)
    assert SkillLibrary(memory, root).sync().events[0].was == theirs
    assert stored(memory) == {"a": "Ours.\n"}


def test_the_same_text_from_another_folder_is_replaced_too(memory: AgentMemory, root: Path, tmp_path: Path) -> None:
    ours = skill(root, "a")
    skill(tmp_path / "other", "a")
    SkillLibrary(memory, root).sync()
    (event,) = SkillLibrary(memory, tmp_path / "other").sync().events
    assert (event.kind, event.was, event.read) == ("replaced", ours, 0)


def test_both_folders_given_is_a_clash_and_nothing_is_replaced(memory: AgentMemory, root: Path, tmp_path: Path) -> None:
    skill(root, "a", "Ours.")
    skill(tmp_path / "other", "a", "Theirs.")
    SkillLibrary(memory, root).sync()
    with pytest.warns(AgentKVWarning, match="taken by"):
        report = SkillLibrary(memory, [root, tmp_path / "other"]).sync()
    assert SkillLibrary(memory, [root, tmp_path / "other"], layered=True).sync().broken != ()
    assert (report.unchanged, report.replaced, len(report.broken), report.found) == (("a",), (), 1, 2)
    assert stored(memory) == {"a": "Ours.\n"}


def test_a_folder_that_is_gone_or_is_the_same_by_a_link_was_not_replaced(
    memory: AgentMemory, root: Path, tmp_path: Path
) -> None:
    skill(root, "a")
    SkillLibrary(memory, root).sync()
    (tmp_path / "link").symlink_to(root, target_is_directory=True)
    (event,) = SkillLibrary(memory, tmp_path / "link").sync().events
    assert (event.kind, event.was) == ("changed", None)
    root.rename(tmp_path / "moved")
    (event,) = SkillLibrary(memory, tmp_path / "moved").sync().events
    assert (event.kind, event.was) == ("changed", None)


def test_parts_of_what_is_replaced_go_with_it(memory: AgentMemory, root: Path, tmp_path: Path) -> None:
    folder = skill(root, "long", SECTIONS[:3000])
    SkillLibrary(memory, root, max_tokens=800).sync()
    skill(tmp_path / "other", "long", "Short.")
    report = SkillLibrary(memory, tmp_path / "other").sync()
    assert (report.replaced, report.events[0].was, len(report.retired)) == (("long",), folder, 5)
    assert stored(memory) == {"long": "Short.\n"}


# --- numbers, and a budget ----------------------------------------------------------------------------


def test_tokens_are_those_of_the_blocks_and_read_is_what_was_evaluated(memory: AgentMemory, root: Path) -> None:
    folder = skill(root, "a", "The manual.")
    (folder / "references").mkdir()
    (folder / "references" / "r.md").write_text("A reference.")
    before = memory.engine.counters.decoded
    (event,) = SkillLibrary(memory, root, references=True).sync().events
    manifests = [memory.store.verify(named.block_id) for named in memory.names()]
    assert event.pieces == len(manifests) == 2
    assert event.tokens == sum(manifest.n_tokens for manifest in manifests)
    assert event.own_tokens == sum(len(manifest.tokens) for manifest in manifests)
    assert event.read == memory.engine.counters.decoded - before > event.own_tokens


def used_bytes(memory: AgentMemory) -> int:
    return sum(n for _, n in memory.store.segments.all()) + sum(
        memory.store.files.manifests.stored_bytes(block_id) or 0 for block_id in memory.store.block_ids()
    )


def test_what_the_budget_made_go_is_told_and_the_counts_add_up(memory: AgentMemory, root: Path) -> None:
    names = tuple(f"s{i}" for i in range(6))
    skill(root, names[0], "word " * 300)
    library = SkillLibrary(memory, root)
    library.sync()
    memory.deposit_text("note", "text " * 100, source=str(root / "note.txt"))
    budget = used_bytes(memory) * 2
    memory.store.set_budget(budget)
    for name in names[1:]:
        skill(root, name, f"{name} " * 400)
    events: list[SkillEvent] = []
    report = library.carry_out(library.plan(), on_event=events.append)
    there = {entry.name for entry in memory.names()}
    assert used_bytes(memory) <= budget
    assert report.evicted == tuple(name for name in names if name not in there)
    assert report.evicted[:2] == ("s0", "s1")  # unchanged a moment ago, and deposited in this very sync
    assert report.added == tuple(name for name in names[1:] if name in there)
    assert (report.unchanged, report.found) == ((), 6)
    assert set(report.evicted_names) == {*report.evicted, "note"}
    assert report.evicted_bytes > 0
    gone = [(event.name, event.path) for event in events if event.kind == "evicted"]
    assert sorted(gone, key=str) == sorted([("note", None), *((n, root / n) for n in report.evicted)], key=str)
    assert [event.name for event in events if event.kind == "added"] == list(names[1:])


def test_a_skill_that_lost_a_part_is_evicted(memory: AgentMemory, root: Path) -> None:
    skill(root, "long", SECTIONS[:3000])
    library = SkillLibrary(memory, root, max_tokens=800)
    library.sync()
    memory.store.set_budget(used_bytes(memory) * 3 // 4)
    skill(root, "long", SECTIONS[:3000].replace("word", "term"))
    report = library.sync()
    parts = {piece.manual.name for piece in library.plan().work[0].pieces}
    there = {entry.name for entry in memory.names()}
    assert 0 < len(parts & there) < len(parts) == 5
    assert (report.evicted, report.changed, report.found) == (("long",), (), 1)
    assert set(report.evicted_names) >= parts - there


def test_without_a_budget_nothing_is_evicted(memory: AgentMemory, root: Path) -> None:
    skill(root, "a")
    report = SkillLibrary(memory, root).sync()
    assert (report.evicted, report.evicted_names, report.evicted_bytes) == ((), (), 0)
    memory.store.set_budget(used_bytes(memory))
    report = SkillLibrary(memory, root).sync()
    assert (report.unchanged, report.evicted, report.evicted_names) == (("a",), (), ())


# --- parts and references ---------------------------------------------------------------------------

SECTIONS = "\n\n".join(f"## Section {i}\n\n{'word ' * 60}{i}." for i in range(20))


def test_a_manual_over_the_window_becomes_routed_parts(memory: AgentMemory, root: Path) -> None:
    folder = skill(root, "long", f"# Long\n\n{SECTIONS}")
    with pytest.raises(WindowOverflow):
        memory.deposit_skill(folder)
    library = SkillLibrary(memory, root)
    report = library.sync()
    assert (report.added, report.broken) == (("long",), ())
    plan = library.plan()
    ((manual, pieces),) = plan.unchanged
    assert len(pieces) == report.events[0].pieces > 1
    assert "".join(piece.manual.text for piece in pieces) == manual.text
    assert [piece.manual.name for piece in pieces][:2] == ["long/long", "long/section-6"]
    for piece in pieces:
        manifest = memory.store.manifest(piece.block_id)
        assert manifest is not None
        assert len(manifest.tokens) == piece.n_tokens
        assert manifest.n_tokens * 2 <= memory.engine.window
    turn = memory.ask("what about section 12?", skill="long", max_new=4)
    assert turn.decision.pick in {piece.manual.name for piece in pieces} | {None}
    assert set(turn.decision.scores) > {piece.manual.name for piece in pieces}
    described = {named.name: named.description for named in memory.names()}
    assert described["long/section-6"].startswith("Long; Section 6; Section 7; ")
    assert described["long/section-6"].endswith("All about long.")


def test_a_budget_splits_what_would_fit_and_an_edit_reads_one_part(memory: AgentMemory, root: Path) -> None:
    skill(root, "long", SECTIONS[:3000])
    assert SkillLibrary(memory, root, max_tokens=3500).sync().events[0].pieces == 1  # over half of the window
    library = SkillLibrary(memory, root, max_tokens=800)
    report = library.sync()
    assert report.changed == ("long",)
    assert "long" not in stored(memory)
    before = {named.name: named.block_id for named in memory.names()}
    pieces = library.plan().unchanged[0][1]
    assert all(piece.n_tokens <= 800 for piece in pieces)

    skill(root, "long", SECTIONS[:3000].replace("4.", "four."))
    library.sync()
    after = {named.name: named.block_id for named in memory.names()}
    assert set(before) == set(after)
    assert len([name for name in before if before[name] != after[name]]) == 1
    skill(root, "long", SECTIONS[:600])
    assert library.sync().changed == ("long",)
    assert set(stored(memory)) == {"long"}


def test_a_skill_in_parts_of_which_none_fits_says_so(memory: AgentMemory, root: Path) -> None:
    skill(root, "long", SECTIONS[:3000])
    SkillLibrary(memory, root, max_tokens=800).sync()
    memory.routing.classifier = LexicalClassifier(margin=0.9)
    decision = memory.ask("hi", skill="long", max_new=1).decision
    assert (decision.raw_pick, decision.pick) == (NONE, None)
    assert decision.fallback == "nothing within the skill fits: no block, since 'long' is stored in parts only"


def test_references_are_blocks_behind_their_manual(memory: AgentMemory, root: Path) -> None:
    folder = skill(root, "a", "The manual.")
    (folder / "references" / "deep").mkdir(parents=True)
    (folder / "references" / "fees.md").write_text("# Fees\n\nTwelve per cent.\n")
    (folder / "references" / "deep" / "big.md").write_text(SECTIONS)
    (folder / "references" / "bad.md").write_bytes(b"caf\xe9")
    (folder / "references" / "code.py").write_text("x = 1")
    library = SkillLibrary(memory, root, references=True)
    report = library.sync()
    assert (report.added, report.broken) == (("a",), ())
    assert "not UTF-8" in report.problems[0].message
    assert {"a", "a/references/fees.md"} < set(stored(memory))
    assert "a/references/bad.md" not in stored(memory)
    names = {named.name: named for named in memory.names()}
    reference = memory.store.manifest(names["a/references/fees.md"].block_id)
    assert reference is not None
    assert reference.parent_id == names["a"].block_id
    assert not any(named.description for name, named in names.items() if "/" in name)
    assert set(memory.candidates()) == {"a"}
    big = [name for name in names if name.startswith("a/references/deep/big.md/")]
    assert len(big) > 1

    (folder / "references" / "fees.md").write_text("# Fees\n\nTen per cent.\n")
    manual = names["a"].block_id
    assert library.sync().changed == ("a",)
    assert {named.name: named.block_id for named in memory.names()}["a"] == manual
    shutil.rmtree(folder / "references")
    library.sync()
    assert set(stored(memory)) == {"a"}


def test_a_turn_behind_a_reference(memory: AgentMemory, root: Path) -> None:
    folder = skill(root, "a", "The manual.")
    (folder / "references").mkdir()
    (folder / "references" / "fees.md").write_text("# Fees\n\nTwelve per cent of restocking fees.\n")
    SkillLibrary(memory, root, references=True).sync()
    named = memory.ask("fees?", skill="a/references/fees.md", max_new=4)
    reference = memory.store.manifest({n.name: n.block_id for n in memory.names()}["a/references/fees.md"])
    assert reference is not None
    assert (named.tokens.restored, named.not_restored) == (reference.n_tokens, None)
    again = memory.ask("fees?", skill="a/references/fees.md", graft=False, max_new=4)
    assert named.logits_sha256 == again.logits_sha256
    routed = memory.ask("what are the restocking fees per cent", within="a", max_new=4)
    assert routed.decision.pick in {"a", "a/references/fees.md"}
    assert set(routed.decision.scores) == {"a/references/fees.md", "none of these"}
    if routed.decision.pick == "a":
        assert routed.decision.fallback is not None
    assert memory.ask("fees?", skill="a", max_new=2).decision.classifier == "caller/1"


def test_a_window_too_small_for_anything_is_told(tmp_path: Path, root: Path) -> None:
    skill(root, "a", "word " * 100)
    with AgentMemory(tmp_path / "store", FakeEngine(window=256), prefix="x" * 200) as memory:
        report = SkillLibrary(memory, root).sync()
    assert (report.added, report.found) == ((), 1)
    assert "budget" in report.broken[0].message
