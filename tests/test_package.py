"""Promises of the package as a whole: import time, public names, layers, exit codes, no pickle."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from importlib import import_module
from pathlib import Path

import pytest

import agentkv
from agentkv import errors
from tests.benchmarks.house import circles, imports

PACKAGE = Path(agentkv.__file__).parent


PUBLIC = {
    "agentkv": [
        "ROUTE", "AgentKVError", "AgentKVWarning", "AgentMemory", "BlockStore", "Cancellation", "Deposit",
        "EngineSettings", "FakeEmbedder", "FakeEngine", "LlamaEmbedder", "LlamaEngine", "Message", "Sampling",
        "SkillLibrary", "Thread", "Turn", "TurnOptions", "__version__",
    ],
    "agentkv.documents": ["AddPlan", "AddReport", "Corpus", "Hit", "Reply", "Shelf", "find_shelf"],
    "agentkv.evidence": ["Item", "Ledger", "Run", "Score", "VerifyReport", "score", "verify"],
    "agentkv.flywheel": [
        "Answered", "BestOfN", "Flywheel", "FromFile", "Learned", "SelfRepair", "Task", "Truth",
    ],
    "agentkv.forget": ["ForgetReport", "Selection", "forget"],
    "agentkv.packs": [
        "CreatedPack", "ImportedPack", "Pack", "Proof", "Trust", "create_pack", "import_pack", "open_pack",
        "prove_pack",
    ],
    "langchain_agentkv": [
        "AgentKVByteStore", "AgentKVCache", "AgentKVRetriever", "AgentKVStore", "ChatAgentKV", "SkillMemoryMiddleware",
        "search_documents",
    ],
}  # fmt: skip
"""The public face: what each public package exports. ``agentkv.errors``, the other one, is pinned by its tree."""


@pytest.mark.parametrize("package", PUBLIC)
def test_public_names_are_pinned_sorted_and_there(package: str) -> None:
    module = import_module(package)
    assert module.__all__ == PUBLIC[package]
    for name in module.__all__:
        assert getattr(module, name) is not None
    with pytest.raises(AttributeError):
        _ = module.nothing


def test_no_name_is_public_twice() -> None:
    names = [name for exported in [*PUBLIC.values(), errors.__all__] for name in exported]
    assert {name for name in names if names.count(name) > 1} == {"AgentKVError"}  # the one that every caller catches


def test_import_loads_no_native_library_and_nothing_heavy() -> None:
    code = (
        "import sys; before = set(sys.modules); import agentkv; new = set(sys.modules) - before;"
        "heavy = {'llama_cpp', 'numpy', 'pydantic', 'zstandard', 'typer', 'rich', 'yaml'} & new;"
        "print(len(new), sorted(heavy))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    count, heavy = done.stdout.split(" ", 1)
    assert heavy.strip() == "[]"
    assert int(count) < 60  # a count and no time: it is the same on a machine that does other work


def leaves(kind: type[errors.AgentKVError]) -> list[type[errors.AgentKVError]]:
    own = [sub for sub in kind.__subclasses__() if sub.__module__.startswith("agentkv.")]
    below = [leaf for sub in own for leaf in leaves(sub)]
    return below or [kind]


def test_exit_codes_are_never_used_twice_and_the_tree_in_the_docstring_is_true() -> None:
    found = leaves(errors.AgentKVError)
    codes = [leaf.exit_code for leaf in found]
    assert len(set(codes)) == len(codes)
    assert not {0, 1} & set(codes)
    drawn = dict(re.findall(r"[├└]── (\w+) +(\d+)", errors.__doc__ or ""))
    assert drawn == {leaf.__name__: str(leaf.exit_code) for leaf in found if leaf.__module__.startswith("agentkv.")}


LAYERS = {
    "_lazy": 0, "_version": 0, "errors": 0, "notices": 0, "text": 0, "figures": 0, "fusion": 0,
    "io": 1,
    "records": 2,
    "tracing": 3, "models": 3, "sandbox": 3, "store": 3,
    "signing": 4, "engine": 4,
    "blocks": 5,
    "skills": 6,
    "router": 7,
    "memory": 8,
    "packs": 9, "documents": 9, "evidence": 9,
    "flywheel": 10, "migrate": 10,
    "forget": 11, "bench": 11,
    "cli": 12,
    "__main__": 13,
}  # fmt: skip
DECLARED = {("errors", "records")}
"""Imports that do not go down: an error carries a `Turn`, whose type is imported for type checkers only."""


def imported(file: Path) -> set[str]:
    tree = ast.parse(file.read_text(encoding="utf-8"))
    names = {node.module for node in ast.walk(tree) if isinstance(node, ast.ImportFrom) and node.module}
    names |= {alias.name for node in ast.walk(tree) if isinstance(node, ast.Import) for alias in node.names}
    return {name.split(".")[1] for name in names if name.startswith("agentkv.")}


def test_imports_go_down_only() -> None:
    wrong = []
    for file in PACKAGE.rglob("*.py"):
        room = file.relative_to(PACKAGE).parts[0].removesuffix(".py")
        if room == "__init__":
            continue
        wrong += [
            f"{file.relative_to(PACKAGE)} imports {name}"
            for name in imported(file) - {room}
            if LAYERS[name] >= LAYERS[room] and (room, name) not in DECLARED
        ]
    assert wrong == []


def test_no_imports_go_in_a_circle() -> None:
    assert circles(imports(PACKAGE.parent)) == {}


def test_nothing_in_the_product_imports_the_benchmarks_of_the_checkout() -> None:
    for folder in (PACKAGE, PACKAGE.parent / "integrations"):
        for file in folder.rglob("*.py"):
            assert not re.search(r"^\s*(?:import|from) tests\b", file.read_text(encoding="utf-8"), re.M), file


def test_no_pickle_no_eval_and_no_file_over_500_lines() -> None:
    for file in PACKAGE.rglob("*.py"):
        text = file.read_text(encoding="utf-8")
        assert len(text.splitlines()) <= 500, file
        assert not re.search(r"^\s*(?:import|from) (?:pickle|shelve|marshal|diskcache)\b", text, re.M), file
        assert not re.search(r"(?<![\w.])(?:eval|exec)\(", text), file


MOST_LINES = 60


def bodies(file: Path) -> list[tuple[str, int, str]]:
    """Each function's place, the lines of its body after the docstring, and its text; nested ones count in both."""
    text = file.read_text(encoding="utf-8")
    found = []
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            first = node.body[0]
            has_docstring = ast.get_docstring(node, clean=False) is not None
            begin = (first.end_lineno or 0) + 1 if has_docstring else first.lineno
            end = node.end_lineno or 0
            lines = text.splitlines()[begin - 1 : end]
            found.append((f"{file.name}:{node.lineno} {node.name}", len(lines), "\n".join(lines)))
    return found


def test_a_long_function_has_numbered_stages() -> None:
    long = [
        where
        for folder in (PACKAGE, PACKAGE.parent / "integrations")
        for file in folder.rglob("*.py")
        for where, lines, text in bodies(file)
        if lines > MOST_LINES and not re.search(r"^\s*# 1\. ", text, re.M)
    ]
    assert long == []


def test_the_package_s_readme_names_every_room_and_only_files_that_exist() -> None:
    text = (PACKAGE / "README.md").read_text(encoding="utf-8")
    layers = text.split("## One token")[0]
    named = set(re.findall(r"`(\w+)/?`", layers))
    assert set(LAYERS) - {"_version"} <= named
    for path in re.findall(r"`((?:[a-z]+/)*[a-z_]+\.(?:py|md))`", text):
        known = [PACKAGE / path, PACKAGE.parent / path, PACKAGE / "store" / path]
        assert any(place.exists() for place in known), path
