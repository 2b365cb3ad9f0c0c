"""Which code ran, and where: the package's version, the SHA-256 of each of its files, and the machine.

The source tree is every file of this package but compiled and hidden ones and the manuals, which are inside a wheel and
beside a checkout (a run hashes those as inputs), so that a checkout and its wheel have the same tree. Not covered: the
interpreter and the libraries, whose versions are recorded.
"""

from __future__ import annotations

import os
import platform
import subprocess
import sys
from collections.abc import Sequence
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import orjson

from agentkv._version import __version__
from agentkv.errors import MachineUnsuitable
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
    """The files that differ, by path, each with how."""
    found = []
    for path in sorted(set(planned) | set(here)):
        if path not in here:
            found.append(f"{path} is missing")
        elif path not in planned:
            found.append(f"{path} is new")
        elif planned[path] != here[path]:
            found.append(f"{path} differs")
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


# --- what a plan needs ----------------------------------------------------------------------------

_LOOK = (
    "import json, llama_cpp as l; print(json.dumps({'gpu': bool(l.llama_supports_gpu_offload()),"
    " 'system': l.llama_print_system_info().decode('utf-8', 'replace')}))"
)


def accelerator() -> dict[str, object]:
    """``gpu``: whether the installed llama.cpp finds a device to offload to; ``system``: its system info.

    The native library is loaded in a process of its own.
    """
    done = subprocess.run([sys.executable, "-c", _LOOK], capture_output=True, check=False)
    if done.returncode != 0:
        lines = done.stderr.decode("utf-8", "replace").strip().splitlines()
        return {"gpu": False, "system": lines[-1] if lines else f"ended with {done.returncode}"}
    found: dict[str, object] = orjson.loads(done.stdout.splitlines()[-1])
    return found


def require(needs: Sequence[str]) -> dict[str, object] | None:
    """llama.cpp's system info, if a plan needs anything; None otherwise. Raises MachineUnsuitable."""
    if "cuda" not in needs:
        return None
    found = accelerator()
    if "CUDA" not in str(found["system"]):
        raise MachineUnsuitable(
            "a CUDA machine",
            "llama-cpp-python is installed without CUDA. On a machine with an NVIDIA GPU and the CUDA toolkit, run "
            "CMAKE_ARGS=-DGGML_CUDA=on pip install --force-reinstall --no-binary llama-cpp-python llama-cpp-python",
        )
    if not found["gpu"]:
        raise MachineUnsuitable("a CUDA machine", "llama-cpp-python has CUDA but finds no GPU; look at nvidia-smi")
    return found
