"""Against the public validator, on generated files: what it accepts loads, what it refuses is listed or a violation."""

from __future__ import annotations

import tempfile
from pathlib import Path

import skills_ref
from hypothesis import example, given, settings
from hypothesis import strategies as st

from agentkv.errors import InvalidManual
from agentkv.skills.manual import Manual, load_manual

ODD = [
    "Use when: it fails", "@team", "`make`", "%d", "[draft", "[a]", "{a: b}", "fix #7 now", "it's", "'it''s'", '"a: b"',
    "!x", "&a b", "*a", "~", "null", "true", "12", "1.0", "2024-13-45", "- x", "? x", "| x", "> x", "a --- b", "x---",
    "=", "\u00e9", "e\u0301", "\U0001f642", "a\u2028b", "a\x85b", "\x7f", "x" * 501, "x" * 1024, "x" * 1025, "", "  ",
    "|\n  a\n  b: c", ">-\n  a\n  b", "\n  - a\n  - b", "\n  a: b", "\n  a: b: c", "'open", '"\\x41"', "a\\tb", "a\n b",
]  # fmt: skip
NAMES = [
    "fix-tests",
    "Fix-Tests",
    "fix--tests",
    "-x",
    "fix tests",
    "12",
    "straße",
    "cafe\u0301",
    "a" * 65,
    "other",
    "ﬁx",
]
KEYS = ["license", "compatibility", "metadata", "allowed-tools", "colour", "name", "description", "<<", "a b"]
values = st.sampled_from(ODD) | st.text(st.characters(codec="utf-8", exclude_categories=["Cs"]), max_size=12)
fields = st.tuples(st.sampled_from(KEYS), values)
openings = st.sampled_from(["---\n"] * 8 + ["--- \n", "---", "----\n", "\n---\n", "\ufeff---\n"])
closings = st.sampled_from(["---\n"] * 8 + ["---", "---  \n", "--- x\n", "----\n", "", "...\n---\n", " ---\n"])
separators = st.sampled_from([": "] * 12 + [":", ":\t", " : "])
bodies = st.sampled_from(["# Text\n\nMore.\n", "", "\x01", "a --- b\n", "---\n"])
breaks = st.sampled_from(["\n"] * 6 + ["\r\n", "\r"])


@st.composite
def files(draw: st.DrawFn) -> tuple[str, str]:
    name = draw(st.sampled_from(NAMES))
    folder = name if draw(st.booleans()) and "/" not in name else "fix-tests"
    rows = [("name", name), ("description", draw(values | st.just("Mends tests.")))]
    rows += draw(st.lists(fields, max_size=3))
    separator = draw(separators)
    header = "".join(f"{key}{separator}{value}\n" for key, value in draw(st.permutations(rows)))
    text = draw(openings) + header + draw(closings) + draw(bodies)
    return folder, text.replace("\n", draw(breaks))


def verdict(folder: Path) -> list[str]:
    try:
        problems: list[str] = skills_ref.validate(folder)
        return problems
    except Exception as error:  # it has no error of its own for some files, and cannot read them either
        return [type(error).__name__]


def loaded(folder: Path) -> tuple[Manual | None, str]:
    try:
        return load_manual(folder), ""
    except InvalidManual as error:
        return None, error.message


@given(files())
@example(("fix-tests", "---\nname: fix-tests\ndescription: d\ncolour: a---b\n---\nx"))
@example(("fix-tests", "---\nname: fix-tests\ndescription: d --- \nfoo\n---\nx"))
@settings(max_examples=150, deadline=None)
def test_what_the_validator_accepts_loads_and_what_it_refuses_is_told(file: tuple[str, str]) -> None:
    name, text = file
    with tempfile.TemporaryDirectory() as root:
        folder = Path(root) / name
        folder.mkdir()
        (folder / "SKILL.md").write_bytes(text.encode())
        problems = verdict(folder)
        manual, refusal = loaded(folder)
        if manual is None:
            assert problems, refusal
            return
        assert bool(manual.violations) == bool(problems), (problems, manual.violations)
        assert {str(violation) for violation in manual.violations} <= set(manual.notes)
        if problems:
            assert manual.notes, f"loaded without a word: {problems}"
            return
        read = skills_ref.read_properties(folder)
        if text.count("---") > 2 or any(char in text for char in "\u2028\u2029\x85"):
            return  # cut elsewhere, or read with blanks: see the modules' texts
        assert (manual.name, manual.description) == (read.name, read.description)
        for ours, theirs in [(manual.license, read.license), (manual.compatibility, read.compatibility)]:
            assert ours == theirs or not isinstance(theirs, str | None)
        assert not any("no YAML" in note for note in manual.notes)
