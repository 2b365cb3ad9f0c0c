"""Which folders a walk goes into, by which path a skill is found, and what the bounds leave out."""

from __future__ import annotations

import os
import re
from pathlib import Path

import pytest

from agentkv import AgentMemory
from agentkv.errors import InvalidManual
from agentkv.notices import AgentKVWarning
from agentkv.skills import discovery
from agentkv.skills.discovery import find_manuals, is_walked
from agentkv.skills.inventory import Inventory, place_of
from agentkv.skills.library import SkillLibrary
from agentkv.skills.manual import load_manuals

from .conftest import skill, stored, text_of


def found(root: Path) -> list[str]:
    """The folders of what is found, relative to the root; and that a partial reading agrees with the whole one."""
    files = find_manuals(root).files
    assert all(find_manuals(file.parent, root).files[:1] == [file] for file in files)
    return [file.parent.relative_to(root).as_posix() for file in files]


COPIES = [
    ".backup", ".git", ".Trash", ".venv", "archive", "Archived", "node_modules", "build", "dist", "venv", "__pycache__",
    "vendor", "backups", "a.bak", "a.old", "a~", "site-packages", "__MACOSX", "_archive",
]  # fmt: skip


@pytest.mark.parametrize("place", COPIES)
def test_an_older_copy_elsewhere_does_not_hide_the_live_skill(memory: AgentMemory, root: Path, place: str) -> None:
    skill(root / "z", "a", "live")
    skill(root / place, "a", "old")
    skill(root / place / "deeper", "b", "old")
    skill(root / "z" / "a" / place, "a", "old")
    (root / "z" / "a" / place / "SKILL.md").write_text(text_of("a", "old"))
    assert found(root) == ["z/a"]
    report = SkillLibrary(memory, root).sync()
    assert (report.added, report.found) == (("a",), 1)
    assert stored(memory) == {"a": "live\n"}


def test_the_folder_that_is_asked_for_is_looked_into_whatever_it_is_called(root: Path) -> None:
    for place in (".claude/skills", "archive", "venv"):
        skill(root / place, "a")
        assert found(root / place) == ["a"]
    (root / "venv" / "pyvenv.cfg").touch()
    assert found(root / "venv") == ["a"]
    with pytest.raises(InvalidManual, match="hidden and vendored folders are only looked into by name"):
        load_manuals([root])


def test_a_virtual_environment_is_known_whatever_it_is_called(root: Path) -> None:
    skill(root / "env311" / "lib", "a")
    assert found(root) == ["env311/lib/a"]
    (root / "env311" / "pyvenv.cfg").touch()
    assert found(root) == []


def test_a_skill_may_be_called_like_a_folder_of_copies(root: Path) -> None:
    skill(root, "build")
    skill(root, "archive")
    skill(root / "build", "below")
    assert found(root) == ["archive", "build"]


@pytest.mark.parametrize("folder", ["assets", "references", "scripts"])
def test_what_lies_beside_a_manual_holds_no_skills(root: Path, folder: str) -> None:
    skill(root, "a")
    skill(root / "a" / folder, "template")
    skill(root / "a" / folder / "deeper", "template")
    skill(root / "a" / "more", "b")
    skill(root / folder, "c")
    assert found(root) == sorted(["a", "a/more/b", f"{folder}/c"])
    assert not is_walked(root / "a" / folder / "deeper" / "template", root)
    (root / "a" / "SKILL.md").unlink()
    assert len(found(root)) == 4


def test_a_shallower_skill_beats_a_nested_one_and_both_are_named(memory: AgentMemory, root: Path) -> None:
    live, nested = skill(root, "pdf", "live"), skill(root / "a" / "examples", "pdf", "old")
    library = SkillLibrary(memory, root)
    with pytest.warns(AgentKVWarning) as caught:
        report = library.sync()
    (warning,) = caught
    message = f"{nested / 'SKILL.md'}: the name 'pdf' is taken by {live}; rename or remove one of them"
    assert str(warning.message) == message
    assert (report.added, len(report.broken)) == (("pdf",), 1)
    assert stored(memory) == {"pdf": "live\n"}
    library.sync()  # which says it once


def test_of_two_at_one_depth_the_one_named_like_its_folder_is_taken(memory: AgentMemory, root: Path) -> None:
    (skill(root, "a-copy-of-pdf") / "SKILL.md").write_text(text_of("pdf", "old"))
    skill(root, "pdf", "live")
    with pytest.warns(AgentKVWarning, match="the name 'pdf' is taken by .*/pdf"):
        SkillLibrary(memory, root).sync()
    assert stored(memory) == {"pdf": "live\n"}


@pytest.mark.parametrize(
    "place",
    ["old", "Backup of z", "a copy", "a (1)", "OLD-skills", "_deprecated", "2024_snapshot", "Kopie von z", "tmp"],
)
@pytest.mark.parametrize("live", ["z", "z/deeper"])
def test_of_two_the_one_in_a_folder_of_copies_by_its_name_gives_way(
    memory: AgentMemory, root: Path, place: str, live: str
) -> None:
    skill(root / live, "pdf", "live")
    copy = skill(root / place, "pdf", "old")
    skill(root / place, "b", "alone of its name")
    with pytest.warns(
        AgentKVWarning, match=f"{re.escape(str(copy))}/SKILL.md: the name 'pdf' is taken by .*{live}/pdf"
    ):
        SkillLibrary(memory, root).sync()
    assert stored(memory) == {"pdf": "live\n", "b": "alone of its name\n"}


def test_a_root_below_a_folder_of_copies_is_a_root_like_any(memory: AgentMemory, root: Path) -> None:
    skill(root / "old" / "skills" / "b", "pdf", "nested")
    skill(root / "old" / "skills", "pdf", "live")
    with pytest.warns(AgentKVWarning, match="is taken by .*/skills/pdf"):
        SkillLibrary(memory, root / "old" / "skills").sync()
    assert stored(memory) == {"pdf": "live\n"}


# --- links --------------------------------------------------------------------------------------------


def test_a_linked_category_is_walked_and_nothing_is_written_there(
    memory: AgentMemory, root: Path, tmp_path: Path
) -> None:
    elsewhere = tmp_path / "elsewhere"
    skill(elsewhere / "deep", "a", "one")
    skill(elsewhere, "b", "two")
    (root / "team").symlink_to(elsewhere)
    before = sorted((path, path.stat().st_mtime_ns) for path in elsewhere.rglob("*"))
    assert found(root) == ["team/b", "team/deep/a"]
    report = SkillLibrary(memory, root).sync()
    assert report.added == ("b", "a")
    assert {named.source for named in memory.names()} == {str(root / "team" / "b"), str(root / "team" / "deep" / "a")}
    assert sorted((path, path.stat().st_mtime_ns) for path in elsewhere.rglob("*")) == before
    skill(elsewhere, "b", "changed")
    assert SkillLibrary(memory, root).sync().changed == ("b",)


def test_circles_of_links_end_and_nothing_is_found_twice(memory: AgentMemory, root: Path, tmp_path: Path) -> None:
    skill(root / "cat", "a")
    outside = skill(tmp_path / "outside", "b").parent
    (root / "cat" / "up").symlink_to(root)
    (root / "self").symlink_to(root / "self")
    (root / "parent").symlink_to(tmp_path)
    (root / "alias").symlink_to(root / "cat" / "a")
    (root / "one").symlink_to(outside)
    (root / "two").symlink_to(outside)
    (outside / "back").symlink_to(root)
    assert found(root) == ["cat/a", "one/b"]
    assert not is_walked(root / "alias", root)
    inventory = Inventory([root])
    inventory.read()
    inventory.read([root / "two", root / "alias", root / "cat" / "up"])
    manuals, broken = inventory.resolved({})
    assert ([manual.name for manual in manuals], broken) == (["a", "b"], ())


def test_a_link_may_lead_to_a_hidden_folder(root: Path) -> None:
    skill(root / ".curated", "a")
    (root / "shown").symlink_to(root / ".curated")
    assert found(root) == ["shown/a"]


# --- bounds -------------------------------------------------------------------------------------------


def test_what_lies_too_deep_is_told(memory: AgentMemory, root: Path) -> None:
    deep = root.joinpath(*["d"] * (discovery.MAX_DEPTH + 1))
    skill(deep, "far")
    skill(root, "near")
    assert found(root) == ["near"]
    with pytest.warns(AgentKVWarning, match="more than 16 folders below .* pass it by itself"):
        assert SkillLibrary(memory, root).sync().added == ("near",)
    assert found(deep) == ["far"]


@pytest.mark.parametrize(("bound", "what"), [("MAX_MANUALS", "3 skills"), ("MAX_FOLDERS", "folders")])
def test_how_many_are_looked_at_is_bounded_and_told(
    root: Path, monkeypatch: pytest.MonkeyPatch, bound: str, what: str
) -> None:
    for i in range(9):
        skill(root, f"s{i}")
    monkeypatch.setattr(discovery, bound, 3 if bound == "MAX_MANUALS" else 4)
    report = load_manuals([root])
    assert len(report.loaded) == 3
    (notice,) = report.notices
    assert what in notice
    assert "pass folders that hold fewer" in notice


# --- what wakes a watch -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("path", "is_directory", "place"),
    [
        ("a/SKILL.md", False, "a"),
        ("a", True, "a"),
        (".git/a/SKILL.md", False, None),
        (".git", True, None),
        ("node_modules/x/SKILL.md", False, None),
        ("node_modules/x", True, None),
        ("build/SKILL.md", False, "build"),
        ("build", True, "build"),
        ("a/references/r.md", False, "a"),
        ("a/.cache/references/r.md", False, None),
    ],
)
def test_places_in_folders_that_are_not_walked_are_no_places(path: str, is_directory: bool, place: str | None) -> None:
    root = Path("/root")
    assert place_of(root / path, root, is_directory) == (None if place is None else root / place)


def test_a_place_that_is_not_walked_is_not_read(root: Path) -> None:
    skill(root, "a")
    skill(root / "a" / "assets", "t")
    inventory = Inventory([root])
    inventory.read()
    assert not inventory.read([root / "a" / "assets" / "t"])
    assert [manual.name for manual in inventory.resolved({})[0]] == ["a"]
    assert inventory.places_changed() == []


def test_a_root_within_a_hidden_folder_of_another_root_is_read(root: Path) -> None:
    skill(root, "a")
    skill(root / ".claude" / "skills", "b")
    inventory = Inventory([root, root / ".claude" / "skills"])
    inventory.read()
    assert [manual.name for manual in inventory.resolved({})[0]] == ["b", "a"]
    os.utime(root / ".claude" / "skills" / "b" / "SKILL.md", (1, 1))
    assert inventory.places_changed() == [root / ".claude" / "skills" / "b"]
