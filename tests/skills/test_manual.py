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
        (b"---\nname: fix-tests\ndescription: d\n---", "no text"),
        (b"---\n- a\n- b\n---\nx", "no fields"),
        (GOOD.replace("Mends tests.", "[" * 3000).encode(), "limit is 1024"),
        (GOOD.encode() + b"\x01\x02", "binary"),
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
    assert any("taken by" in error.message for error in report.broken)
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
