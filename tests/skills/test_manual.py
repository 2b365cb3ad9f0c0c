from __future__ import annotations

from pathlib import Path

import pytest
import skills_ref

from agentkv.errors import InvalidManual
from agentkv.skills.manual import load_manual, load_manuals
from tests.conftest import REPOSITORY

ALIASES = "".join(f"{b}: &{b} [{', '.join([f'*{a}'] * 9)}]\n" for a, b in zip("abcde", "bcdef", strict=True)).encode()
ALIASES += b"---\nx"
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
        (GOOD.replace("---\n#", "allowed-tools:\n- Read\n- Bash\n---\n#"), "line 4: `allowed-tools` is not text"),
        (GOOD.replace("---\n#", "metadata: x\n---\n#"), "line 4: `metadata` is not a mapping"),
        (GOOD.replace("---\n#", "metadata:\n  a:\n    - b\n---\n#"), "line 4: `metadata` holds more than text"),
    ],
)
def test_what_loads_in_an_unusual_way_says_so(tmp_path: Path, data: str, note: str) -> None:
    (shown,) = load_manual(write(tmp_path, data)).notes
    assert note in shown


def with_line(line: str) -> str:
    return GOOD.replace("---\n#", f"{line}\n---\n#")


def described(value: str) -> str:
    return GOOD.replace("Mends tests.", value)


def named(value: str) -> str:
    return GOOD.replace("name: fix-tests", f"name: {value}")


@pytest.mark.parametrize(
    ("data", "name", "description", "violation"),
    [
        (with_line("version: 1.2"), "fix-tests", "Mends tests.", "line 4: unknown frontmatter field version"),
        (with_line("argument-hint: '[file]'"), "fix-tests", "Mends tests.", "line 4: unknown frontmatter field argum"),
        (with_line("allowed-tools: [Read, Bash]"), "fix-tests", "Mends tests.", "line 4: frontmatter: a list or mapp"),
        (with_line("metadata: {a: {b: c}}"), "fix-tests", "Mends tests.", "line 4: frontmatter: a list or mapping"),
        (with_line(f"compatibility: {'x' * 501}"), "fix-tests", "Mends tests.", "line 4: `compatibility` has 501"),
        (with_line("compatibility:\n- x"), "fix-tests", "Mends tests.", "line 4: `compatibility` is not text"),
        (
            with_line("name: fix-tests"),
            "fix-tests",
            "Mends tests.",
            "line 4: frontmatter: the key 'name' appears twice",
        ),
        (with_line("description: Later."), "fix-tests", "Later.", "line 4: frontmatter: the key 'description' appears"),
        (with_line("metadata:\n\tversion: 1"), "fix-tests", "Mends tests.", "line 5: YAML allows no tabs there"),
        (named("other"), "other", "Mends tests.", "line 2: `name` is 'other', but its folder is 'fix-tests'"),
        (named("Fix-Tests"), "Fix-Tests", "Mends tests.", "line 2: `name` 'Fix-Tests' must be lower-case"),
        (named("Fix   my tests"), "Fix my tests", "Mends tests.", "line 2: `name` 'Fix   my tests' must be lower-case"),
        (named("fix_tests"), "fix_tests", "Mends tests.", "line 2: `name` 'fix_tests' must be"),
        (named("plugin:fix"), "plugin:fix", "Mends tests.", "line 2: `name` 'plugin:fix' must be"),
        (named("\U0001f680 fix"), "\U0001f680 fix", "Mends tests.", "line 2: `name` '\U0001f680 fix' must be"),
        (named("2024"), "2024", "Mends tests.", "line 2: `name` is '2024', but its folder is"),
        (named("x" * 65), "x" * 65, "Mends tests.", "line 2: `name` has 65 characters, the limit is 64"),
        (
            named(""),
            "fix-tests",
            "Mends tests.",
            "line 2: the frontmatter has no `name` text; it is called 'fix-tests'",
        ),
        (named("[a, b]"), "fix-tests", "Mends tests.", "the frontmatter has no `name` text"),
        (GOOD.replace("name: fix-tests\n", ""), "fix-tests", "Mends tests.", "line 2: the frontmatter has no `name`"),
        (
            described("x" * 1025),
            "fix-tests",
            "x" * 1025,
            "line 3: `description` has 1025 characters, the limit is 1024",
        ),
        (described("x" * 9000), "fix-tests", "x" * 3500, "the limit is 1024; the first 3,500 are kept"),
        (described("[" * 3000), "fix-tests", "[" * 3000, "line 3: no YAML; its value was taken as it stands"),
        (described("[a, b]"), "fix-tests", "a b", "line 3: frontmatter: a list or mapping in brackets"),
        (described("!tag d"), "fix-tests", "d", "line 3: frontmatter: a tag"),
        (described("&a d"), "fix-tests", "d", "line 3: frontmatter: an anchor"),
        (described("Use when: it fails"), "fix-tests", "Use when: it fails", "line 3: no YAML; its value was taken"),
        (described("*Now* or never"), "fix-tests", "*Now* or never", "line 3: no YAML; its value was taken"),
        ("\n\n" + GOOD, "fix-tests", "Mends tests.", "the public validator refuses it"),
        ("\ufeff" + GOOD, "fix-tests", "Mends tests.", "byte-order mark"),
        (described("d\n? [a]\n: b"), "fix-tests", "d", "a key is not text"),
    ],
)
def test_what_only_the_validator_refuses_loads_with_a_warning(
    tmp_path: Path, data: str, name: str, description: str, violation: str
) -> None:
    folder = write(tmp_path, data)
    manual = load_manual(folder)
    assert (manual.name, manual.description, manual.text) == (name, description, "# Fix\n\nRead the log.")
    shown = "; ".join(map(str, manual.violations))
    assert violation in shown
    assert shown in manual.warning
    assert str(folder) in manual.warning
    assert "agentkv skills validate --strict" in manual.warning
    assert skills_ref.validate(folder) != []


def test_values_of_other_clients_are_kept(tmp_path: Path) -> None:
    more = "allowed-tools: [Read, Bash]\nmetadata:\n  openclaw: {requires: [a, b], emoji: x}\n  version: 1.0"
    more += "\ncompatibility: [a]"
    manual = load_manual(write(tmp_path, with_line(more)))
    assert (manual.allowed_tools, manual.compatibility) == ("Read Bash", "a")
    assert manual.metadata == {"openclaw": "requires: a b, emoji: x", "version": "1.0"}


@pytest.mark.parametrize(
    ("value", "routed", "notes"),
    [("true", False, 2), ("'True'", False, 2), ("yes", False, 2), ("false", True, 1), ("maybe", True, 2)],
)
def test_a_skill_may_ask_not_to_be_routed_to(tmp_path: Path, value: str, routed: bool, notes: int) -> None:
    manual = load_manual(write(tmp_path, with_line(f"disable-model-invocation: {value}")))
    assert (manual.routed, manual.card) == (routed, "Mends tests." if routed else "")
    assert (manual.description, len(manual.notes), len(manual.violations)) == ("Mends tests.", notes, 1)


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
        (GOOD.replace("description: Mends tests.\n", "").encode(), "no `description`"),
        (b"---\n- a\n- b\n---\nx", "no fields"),
        (GOOD.replace("name: fix-tests", "name: ../../evil").encode(), "not safe"),
        (GOOD.replace("name: fix-tests", "name: a/b").encode(), "not safe"),
        (GOOD.replace("name: fix-tests", "name: a\\b").encode(), "not safe"),
        (GOOD.replace("name: fix-tests", "name: .hidden").encode(), "not safe"),
        (GOOD.replace("name: fix-tests", "name: ..").encode(), "not safe"),
        (GOOD.replace("name: fix-tests", "name: \u202eevil").encode(), "not safe"),
        (GOOD.replace("name: fix-tests", r'name: "a\x00b"').encode(), "not safe"),
        (GOOD.replace("name: fix-tests", "name: " + "x" * 201).encode(), "not safe"),
        (GOOD.replace("Mends tests.", "").encode(), "no `description`"),
        (GOOD.replace("Mends tests.", '"  "').encode(), "no `description`"),
        (b"---\nname: x\ndescription: d\na: &a [x]\n" + ALIASES, "SKILL.md:4: frontmatter: its aliases expand"),
        (b"---\nname: x\ndescription: d\na: &a [*a]\n---\nx", "frontmatter"),
        (b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR", "binary"),
        (b"---\na: [1\n  b: {\n---\nx", "frontmatter"),
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
    assert report.loaded[0].path == tmp_path / "fix-tests"
    assert clash.endswith(f"taken by {tmp_path / 'fix-tests'}; rename or remove one of them")
    assert str(tmp_path / "deeper" / "fix-tests" / "SKILL.md") in clash
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
