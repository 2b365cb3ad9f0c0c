"""The words of the field: retired terms stay out of names, docstrings, messages and READMEs."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent

RETIRED = {
    r"of (?:an )?unknown hand|of_unknown_hand|\bstained\b": "untrusted",
    r"\banew\b": "again",
    r"(?<!there )\b(?:is|are|was) no (?!longer|more|less|fewer|better|worse|larger|smaller|slower|way)": "is not a",
    r"\bfresh(?:ly)? read(?:ing)?\b": "a cold prefill",
    r"\bbehind\b": "after, appended to, on top of",
    r"\blikeness\b": "similarity",
    r"\bmodels? of meaning\b": "embedding model",
    r"\bargmax (?:flip|move)|flipped argmax": "top-1 token changed",
    r"\bworth it from\b": "break-even at",
    r"\bsittings?\b": "run (resumed)",
    r"\bbaked[ -]in\b|\bbaked_in\b": "hard-coded",
    r"\brefuted\b": "mismatch",
    r"\btold\b": "reported, said",
    r"\brefuses? to know\b": "what the module does not do, only where that is surprising",
    r"\bre-?reads?\b|\bre-?reading\b": "prefill again, a cold prefill",
    r"\bin words\b": "lexical, or say it plainly",
    r"\bshared lock alone\b": "exclusive / shared lock",
}
"""Pattern, matched without case, and what to write instead."""

RETIRED_NAMES = {"wanted", "told", "said", "begun", "trail", "brief", "court", "fused", "likeness", "aside", "doubt"}
"""Names of variables, parameters, functions and attributes: use the thing's own name."""

ALLOWED = {
    "agentkv/store/FORMAT.md": r".",
    "agentkv/packs/FORMAT.md": r".",
    "agentkv/evidence/FORMAT.md": r".",
    "tests/documents/test_locate.py": r"yard behind",  # a text
    "tests/benchmarks/documents/widen.py": r"['\"]sittings?\b|sitting=number",  # keys of raw records and figures
    "tests/benchmarks/documents/test_widen.py": r'"sittings"',  # likewise
    "tests/benchmarks/documents/chunk_sizes.py": r'["`]reread|reread=prefilled',  # the command, and keys of its results
    "tests/benchmarks/documents/test_shown.py": r'"reread"',  # likewise
    "tests/benchmarks/commands/registry.py": r'"reread"',  # the command
    "agentkv/flywheel/gate.py": r"['\"]behind['\"]",  # a field and a key of records
    "agentkv/flywheel/loop.py": r'"baked_in"',  # a field of records and of the commands' output
    "agentkv/flywheel/solution.py": r'"baked_in"',
    "tests/integrations/documents.py": r"behind the house",  # a place
    "tests/integrations/test_stores_langgraph.py": r"\bin words:",  # Python
    "agentkv/engine/EXACTNESS.md": r"^\| model \|",  # a generated table
    "agentkv/cli/ask.py": r'"--reread", hidden',  # the option's name before it was --no-graft
    "tests/cli/test_ask.py": r'"--reread"',
    "agentkv/cli/docs_add.py": r'"reread"',
    "agentkv/cli/demo.py": r'"reread"',  # keys of the command's output
    "agentkv/cli/demo_screen.py": r"['\"]reread['\"]",
    "tests/cli/test_demo.py": r'"reread"',
    "agentkv/cli/flywheel.py": r"baked_in",
    "tests/cli/test_flywheel.py": r'"behind"',
    "tests/cli/test_pack.py": r'"refuted"',  # a verdict of records
    "tests/benchmarks/answers.py": r'"reread"|reread: Answer|self\.reread|reread=None',  # a key of records, an option
    "tests/benchmarks/test_answers.py": r'"reread"',
    "tests/benchmarks/flywheel/aime.py": r'"reread"',  # a key of settings, an option
    "tests/benchmarks/flywheel/negatives.py": r"behind: int|\"behind|procedure\.behind|baked_in",  # keys of records
    "tests/benchmarks/flywheel/test_runs.py": r'"reread"|"baked_in"',
    "tests/benchmarks/__init__.py": r"documents\.reread",  # a benchmark's name
    "tests/benchmarks/agent/arms.py": r'"reread"',  # an arm's name, in records and on the command line
    "tests/benchmarks/agent/part.py": r"deepagents, reread",
    "tests/benchmarks/test_plots.py": r'"reread"',
    "tests/benchmarks/test_readme_tables.py": r'"reread"',
    "tests/benchmarks/peers/faults.py": r'alias="told"',  # a key of records
    "agentkv/bench/RESULTS.md": r"reread|baked|4 behind it|asked for in other words",
}
"""Files (relative to the checkout) that may use a retired term, and where in the line: formats keep their words."""

ROOMS = ["README.md", "agentkv", "integrations", "examples", "skills/README.md", "tests"]
"""Folders and files that hold to it."""


def texts() -> Iterator[Path]:
    for room in ROOMS:
        place = ROOT / room
        found = [place] if place.is_file() else sorted(place.rglob("*.py")) + sorted(place.rglob("*.md"))
        yield from (path for path in found if path != Path(__file__).resolve())


@pytest.mark.parametrize("pattern", RETIRED)
def test_retired_terms_are_not_used(pattern: str) -> None:
    found = []
    for path in texts():
        name = path.relative_to(ROOT).as_posix()
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
            if re.search(pattern, line, re.I) and not re.search(ALLOWED.get(name, r"(?!)"), line):
                found.append(f"{name}:{number}: {line.strip()}")
    assert not found, f"write {RETIRED[pattern]!r} instead:\n" + "\n".join(found)


def names(tree: ast.AST) -> Iterator[tuple[str, int]]:
    for node in ast.walk(tree):
        match node:
            case ast.Name(id=name, ctx=ast.Store()) | ast.arg(arg=name):
                yield name, node.lineno
            case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name) | ast.ClassDef(name=name):
                yield name, node.lineno
            case ast.Attribute(attr=name, ctx=ast.Store()):
                yield name, node.lineno


def test_retired_names_are_not_used() -> None:
    found = []
    for path in texts():
        if path.suffix == ".py":
            for name, line in names(ast.parse(path.read_text(encoding="utf-8"))):
                if name.strip("_") in RETIRED_NAMES:
                    found.append(f"{path.relative_to(ROOT)}:{line}: {name}")
    assert not found, "name the thing itself:\n" + "\n".join(found)
