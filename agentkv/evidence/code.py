"""Which code ran: the package's version, the SHA-256 of each file of its source tree, and the machine.

The tree is this package as it lies on disk: every file but compiled ones, hidden ones and the manuals, which a wheel
carries inside and a checkout beside (a run hashes those as inputs). A checkout and the wheel made of it have one tree.
Not covered: the interpreter and the libraries, of which the versions are noted.
"""

from __future__ import annotations

import os
import platform
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from agentkv._version import __version__
from agentkv.evidence.records import Code
from agentkv.io.hashing import file_sha256, tagged_digest

_SKIPPED = {"__pycache__", "_manuals"}
_LIBRARIES = ("llama-cpp-python", "numpy", "orjson", "pydantic", "zstandard")


def source_code(root: Path | None = None) -> Code:
    """The code of this package, or of the package at ``root``, as its files are now."""
    base = Path(__file__).parent.parent if root is None else root
    files = {}
    for folder, names, found in os.walk(base):
        names[:] = sorted(name for name in names if name not in _SKIPPED and not name.startswith("."))
        for name in found:
            path = Path(folder) / name
            if not name.startswith(".") and path.suffix != ".pyc" and path.is_file():
                files[path.relative_to(base).as_posix()] = file_sha256(path)
    return Code(version=__version__, tree_sha256=tree_sha256(files), files=files)


def tree_sha256(files: dict[str, str]) -> str:
    """One digest over the paths and the digests of a tree."""
    return tagged_digest("source-tree/1", sorted(files.items()))


def differences(planned: dict[str, str], here: dict[str, str]) -> list[str]:
    """The files that are not the same in both, each with how it differs, by path."""
    found = []
    for path in sorted(set(planned) | set(here)):
        if path not in here:
            found.append(f"{path} is missing")
        elif path not in planned:
            found.append(f"{path} is new")
        elif planned[path] != here[path]:
            found.append(f"{path} is another")
    return found


def machine() -> dict[str, Any]:
    """The machine and the libraries, for people and for comparing runs."""
    libraries = {}
    for name in _LIBRARIES:
        try:
            libraries[name] = version(name)
        except PackageNotFoundError:
            libraries[name] = ""
    return {
        "system": platform.system(),
        "machine": platform.machine(),
        "cores": os.cpu_count(),
        "python": platform.python_version(),
        "libraries": libraries,
    }
