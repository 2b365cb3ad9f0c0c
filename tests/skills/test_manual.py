from __future__ import annotations

from pathlib import Path

import pytest
import skills_ref

from agentkv.errors import InvalidManual
from agentkv.skills.manual import load_manual, load_manuals
from tests.conftest import REPOSITORY

GOOD = "---\nname: fix-tests\ndescription: Mends tests.\n---\n# Fix\n\nRead the log.\n"


def write(root: Path, data: bytes | str, name: str = "fix-tests") -> Path:
    folder = root / name
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "SKILL.md").write_bytes(data if isinstance(data, bytes) else data.encode())
    return folder


def test_the_same_manual_on_any_system_is_the_same_manual(tmp_path: Path) -> None:
    expected = load_manual(write(tmp_path, GOOD))
    variants = [
        GOOD.replace("\n", "\r\n").encode(),
        GOOD.replace("\n", "\r").encode(),
        b"\xef\xbb\xbf" + GOOD.encode(),
        GOOD.replace("---\n", "---   \n").encode(),
    ]
    for data in variants:
        manual = load_manual(write(tmp_path, data))
        assert (manual.name, manual.description, manual.text) == ("fix-tests", "Mends tests.", expected.text)
        assert manual.sha256 == expected.sha256
        assert (manual.path / "SKILL.md").read_bytes() == data
    assert "name:" not in expected.text


@pytest.mark.parametrize(
    "value",
    [
        "Use when tests fail: read the log, then patch",
        "@team fixes it",
        "`make` fails",
        "%d of tests",
        "[draft of a skill",
        "it's: here",
        "2024-13-45",
    ],
)
def test_values_that_strict_yaml_breaks_on_load_as_written(tmp_path: Path, value: str) -> None:
    assert load_manual(write(tmp_path, GOOD.replace("Mends tests.", value))).description == value


def test_what_the_narrow_rule_does_is_noted_and_leaves_the_other_lines_alone(tmp_path: Path) -> None:
    header = "description: Use when: tests fail\nlicense: MIT # the usual\nmetadata:\n  by: me: @home\n---\n#"
    manual = load_manual(write(tmp_path, GOOD.replace("description: Mends tests.\n---\n#", header)))
    assert (manual.description, manual.license) == ("Use when: tests fail", "MIT")
    assert manual.metadata == {"by": "me: @home"}
    assert [note.split(":")[0] for note in manual.notes] == ["line 3", "line 6", "line 4"]
    block = "description: |\n  Note: this: that\nlicense: @x\n---\n#"
    manual = load_manual(write(tmp_path, GOOD.replace("description: Mends tests.\n---\n#", block)))
    assert (manual.description, manual.license) == ("Note: this: that", "@x")


def test_a_comment_is_cut_as_yaml_says_and_noted(tmp_path: Path) -> None:
    manual = load_manual(write(tmp_path, GOOD.replace("Mends tests.", "Mends issue #7 at once")))
    assert manual.description == "Mends issue"
    assert manual.notes == ("line 3: `description` ends before '#7 at once', a comment in YAML; quote it to keep it",)
    assert load_manual(write(tmp_path, GOOD.replace("Mends tests.", "'Mends #7'"))).description == "Mends #7"
    with_colon = load_manual(write(tmp_path, GOOD.replace("Mends tests.", "Mends: issue #7")))
    assert with_colon.description == "Mends: issue #7"


def test_every_field_and_every_resource_is_kept(tmp_path: Path) -> None:
    more = "license: MIT\ncompatibility: Python 3\nallowed-tools: Read Bash(git:*)\nmetadata:\n  version: 1.0\n---\n#"
    folder = write(tmp_path, GOOD.replace("---\n#", more))
    for name in ("references/b.md", "references/deep/a.md", "scripts/run.py", "assets/logo.svg", "other.txt"):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text("x")
    (tmp_path / "outside.md").write_text("secret")
    (folder / "references" / "out.md").symlink_to(tmp_path / "outside.md")
    (folder / "references" / "in.md").symlink_to(folder / "other.txt")
    (folder / "references" / "dangling.md").symlink_to(tmp_path / "nothing")
    manual = load_manual(folder)
    assert (manual.license, manual.compatibility, manual.allowed_tools) == ("MIT", "Python 3", "Read Bash(git:*)")
    assert manual.metadata == {"version": "1.0"}
    inside = ("references/b.md", "references/deep/a.md", "references/in.md")
    assert manual.resources == ("assets/logo.svg", *inside, "scripts/run.py")
    (tmp_path / "linked" / "x").mkdir(parents=True)
    (tmp_path / "linked" / "x" / "y.md").write_text("x")
    (folder / "scripts" / "run.py").unlink()
    (folder / "scripts").rmdir()
    (folder / "scripts").symlink_to(tmp_path / "linked")
    assert load_manual(folder).resources == ("assets/logo.svg", *inside)


@pytest.mark.parametrize(
    ("data", "note"),
    [
        ("---\nname: fix-tests\ndescription: d\n---", "no text after"),
        ("\ufeff" + GOOD, "byte-order mark"),
        (GOOD + "\x01", "control characters"),
        ("---\nname: fix-tests\ndescription: d\n--- and on", "not closed by a line"),
        ("---name: fix-tests\ndescription: d\n---\nx", "not closed by a line"),
        (GOOD.replace("---\n#", "allowed-tools:\n- Read\n- Bash\n---\n#"), "line 4: `allowed-tools` is no text"),
        (GOOD.replace("---\n#", "metadata: x\n---\n#"), "line 4: `metadata` is no mapping"),
        (GOOD.replace("---\n#", "metadata:\n  a:\n    - b\n---\n#"), "line 4: `metadata` holds more than text"),
    ],
)
def test_what_loads_in_an_unusual_way_says_so(tmp_path: Path, data: str, note: str) -> None:
    (said,) = load_manual(write(tmp_path, data)).notes
    assert note in said


def test_a_lower_case_file_counts_where_there_is_no_other(tmp_path: Path) -> None:
    folder = write(tmp_path, GOOD)
    (folder / "skill.md").write_text(GOOD.replace("Mends", "Breaks"))
    assert load_manual(folder).description == "Mends tests."
    assert len(load_manuals([tmp_path]).loaded) == 1
    (folder / "SKILL.md").unlink()
    (manual,) = load_manuals([tmp_path]).loaded
    assert manual.description == "Breaks tests."


def test_a_linked_skill_counts_under_the_links_name_and_stores_are_not_looked_into(tmp_path: Path) -> None:
    target = write(tmp_path / "elsewhere", GOOD, "original")
    root = tmp_path / "root"
    root.mkdir()
    (root / "fix-tests").symlink_to(target)
    (root / "loop").symlink_to(root)
    write(root / "store", GOOD)
    (root / "store" / "agentkv-store.json").write_text("{}")
    report = load_manuals([root])
    assert [manual.path for manual in report.loaded] == [root / "fix-tests"]
    assert report.broken == ()


def test_valid_yaml_is_never_altered(tmp_path: Path) -> None:
    assert load_manual(write(tmp_path, GOOD.replace("Mends tests.", '"a: b"'))).description == "a: b"
    assert (
        load_manual(write(tmp_path, GOOD.replace("Mends tests.", ">\n  folded\n  text"))).description == "folded text"
    )


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b"", "empty"),
        (b"  \n", "empty"),
        (GOOD.encode("utf-16"), "UTF-16"),
        (GOOD.encode("utf-16-le"), "UTF-16"),
        (b"---\nname: x\n\0\0", "binary"),
        (GOOD.encode() + b"\xff\xfe\xfa", "not UTF-8"),
        (b"# no frontmatter\n", "frontmatter"),
        (b"---\nname: fix-tests\n", "not closed"),
        (GOOD.replace("name: fix-tests\n", "").encode(), "no `name`"),
        (GOOD.replace("description: Mends tests.\n", "").encode(), "no `description`"),
        (GOOD.replace("Mends tests.", "x" * 1025).encode(), "limit is 1024"),
        (GOOD.replace("name: fix-tests", "name: ../../evil").encode(), "lower-case"),
        (GOOD.replace("name: fix-tests", "name: other").encode(), "its folder"),
        (GOOD.replace("name: fix-tests", "name: Fix-Tests").encode(), "lower-case"),
        (GOOD.replace("---\n#", "colour: red\n---\n#").encode(), "unknown frontmatter field colour"),
        (b"---\n- a\n- b\n---\nx", "no fields"),
        (GOOD.replace("Mends tests.", "[" * 3000).encode(), "limit is 1024"),
        (b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR", "binary"),
        (b"---\na: [1\n  b: {\n---\nx", "frontmatter"),
        (GOOD.replace("Mends tests.", "[a, b]").encode(), "SKILL.md:3: frontmatter: a list or mapping in brackets"),
        (GOOD.replace("Mends tests.", "!tag d").encode(), "SKILL.md:3: frontmatter: a tag"),
        (GOOD.replace("Mends tests.", "&a d").encode(), "SKILL.md:3: frontmatter: an anchor"),
        (
            GOOD.replace("description", "name: fix-tests\ndescription").encode(),
            "SKILL.md:3: frontmatter: the key 'name'",
        ),
        (GOOD.replace("---\n#", f"compatibility: {'x' * 501}\n---\n#").encode(), "SKILL.md:4: `compatibility` has 501"),
        (GOOD.replace("---\n#", "compatibility:\n- x\n---\n#").encode(), "SKILL.md:4: `compatibility` is no text"),
    ],
)
def test_what_cannot_be_loaded_says_where_and_why(tmp_path: Path, data: bytes, reason: str) -> None:
    folder = write(tmp_path, data)
    with pytest.raises(InvalidManual) as caught:
        load_manual(folder)
    assert reason in caught.value.message
    assert str(folder / "SKILL.md") in caught.value.message


def test_loaded_and_broken_make_up_what_was_found(tmp_path: Path) -> None:
    write(tmp_path, GOOD)
    write(tmp_path / "deeper", GOOD)
    write(tmp_path, b"", "empty-one")
    report = load_manuals([tmp_path])
    assert len(report.loaded) + len(report.broken) == 3
    assert {manual.name for manual in report.loaded} == {"fix-tests"}
    (clash,) = [error.message for error in report.broken if "taken by" in error.message]
    assert str(tmp_path / "deeper" / "fix-tests") in clash
    assert str(tmp_path / "fix-tests" / "SKILL.md") in clash
    with pytest.raises(InvalidManual):
        load_manuals([tmp_path / "nothing"])


def test_the_repositorys_skills_load_and_the_public_validator_agrees() -> None:
    report = load_manuals([REPOSITORY / "skills"])
    assert len(report.loaded) >= 8
    assert report.broken == ()
    for manual in report.loaded:
        assert skills_ref.validate(manual.path) == []
        properties = skills_ref.read_properties(manual.path)
        assert (properties.name, properties.description) == (manual.name, manual.description)
