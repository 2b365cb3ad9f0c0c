"""Two checkouts of this project side by side: how large they are, and how fast they start.

    python -m tests.benchmarks.house BEFORE AFTER

Each argument is a folder with a checkout. Counted is what goes into the wheel. Times are medians of ten starts, taken
in turn in one run with the same Python and the same dependencies, and given as a ratio (after ÷ before).
"""

from __future__ import annotations

import ast
import os
import re
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

STARTS = 10
COMMANDS = {"import agentkv": ["-c", "import agentkv"], "agentkv --help": ["-m", "agentkv", "--help"]}


def sources(checkout: Path) -> list[Path]:
    """The Python files of the wheel."""
    return sorted([*(checkout / "agentkv").rglob("*.py"), *(checkout / "integrations").rglob("*.py")])


def functions(files: list[Path]) -> Iterator[tuple[int, str]]:
    """Each function's lines without its docstring, and where it is."""
    for file in files:
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                first = node.body[0]
                documented = ast.get_docstring(node, clean=False) is not None
                begin = (first.end_lineno or 0) + 1 if documented else first.lineno
                yield max(0, (node.end_lineno or 0) - begin + 1), f"{file.name} {node.name}"


def public_names(files: list[Path]) -> int:
    """The names in every package's ``__all__``; one that two packages give out counts twice. Without errors."""
    count = 0
    for file in files:
        if file.name == "__init__.py" and file.parent.name != "errors":
            for node in ast.parse(file.read_text(encoding="utf-8")).body:
                if isinstance(node, ast.Assign) and any(
                    isinstance(t, ast.Name) and t.id == "__all__" for t in node.targets
                ):
                    count += len(ast.literal_eval(node.value))
    return count


def imports(checkout: Path) -> dict[str, set[str]]:
    """Each module of the wheel, and its modules that it imports anywhere: inside functions and for types too."""
    modules = {}
    for folder in (checkout / "agentkv", checkout / "integrations" / "langchain_agentkv"):
        for file in folder.rglob("*.py"):
            modules[".".join(file.relative_to(folder.parent).with_suffix("").parts).removesuffix(".__init__")] = file
    edges = {}
    for module, file in modules.items():
        found: set[str] = set()
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            if isinstance(node, ast.ImportFrom) and node.module:
                full = {f"{node.module}.{alias.name}" for alias in node.names}
                found |= {name if name in modules else node.module for name in full}
            elif isinstance(node, ast.Import):
                found |= {alias.name for alias in node.names}
        edges[module] = found & set(modules) - {module}
    return edges


def circles(edges: dict[str, set[str]]) -> dict[str, set[str]]:
    """The modules that take part in an import circle or stand between two, with what they import of each other."""
    while ends := {m for m, found in edges.items() if not found or not any(m in other for other in edges.values())}:
        edges = {module: found - ends for module, found in edges.items() if module not in ends}
    return edges


def wheel_bytes(checkout: Path) -> int:
    """The size of the wheel that the checkout builds."""
    with tempfile.TemporaryDirectory() as folder:
        build = [sys.executable, "-m", "pip", "wheel", "-q", "--no-deps", "-w", folder, str(checkout)]
        subprocess.run(build, check=True)
        return next(Path(folder).glob("*.whl")).stat().st_size


def starts(checkouts: tuple[Path, Path], arguments: list[str]) -> tuple[float, float]:
    """The median seconds of ten starts of each, in turn; the first start of each is not counted."""
    taken: tuple[list[float], list[float]] = ([], [])
    for turn in range(STARTS + 1):
        for checkout, times in zip(checkouts, taken, strict=True):
            environment = os.environ | {"PYTHONPATH": str(checkout)}
            began = time.perf_counter()
            subprocess.run([sys.executable, *arguments], env=environment, check=True, capture_output=True, cwd="/")
            if turn:
                times.append(time.perf_counter() - began)
    return statistics.median(taken[0]), statistics.median(taken[1])


def table(before: Path, after: Path) -> str:
    """The comparison as a Markdown table."""
    rows = [("", "before", "after")]
    counted = []
    for checkout in (before, after):
        files = sources(checkout)
        lengths = sorted(functions(files))
        counted.append(
            {
                "Python files in the wheel": len(files),
                "lines of Python in the wheel": sum(
                    len(file.read_text(encoding="utf-8").splitlines()) for file in files
                ),
                "wheel, bytes": wheel_bytes(checkout),
                "public names, all packages": public_names(files),
                "functions": len(lengths),
                "mean lines of a function": round(statistics.mean(length for length, _ in lengths), 1),
                "longest function": re.sub(r"^(\d+) ", r"\1: ", f"{lengths[-1][0]} {lengths[-1][1]}"),
                "modules in import circles": len(circles(imports(checkout))),
                "lines of README.md": len((checkout / "README.md").read_text(encoding="utf-8").splitlines()),
            }
        )
    rows += [(name, str(counted[0][name]), str(counted[1][name])) for name in counted[0]]
    for name, arguments in COMMANDS.items():
        first, second = starts((before, after), arguments)
        rows.append((f"`{name}`, time relative to before", "1", f"{second / first:.2f}"))
    lines = [" | ".join(("", *row, "")).strip() for row in rows]
    return "\n".join([lines[0], "|---|---|---|", *lines[1:]])


if __name__ == "__main__":
    print(table(Path(sys.argv[1]), Path(sys.argv[2])))
