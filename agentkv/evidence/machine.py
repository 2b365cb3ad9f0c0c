"""Does this machine have what a plan needs? Loads the native library, in a process of its own, only when asked."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Sequence

import orjson

from agentkv.errors import MachineUnsuitable

_LOOK = (
    "import json, llama_cpp as l; print(json.dumps({'gpu': bool(l.llama_supports_gpu_offload()),"
    " 'system': l.llama_print_system_info().decode('utf-8', 'replace')}))"
)


def accelerator() -> dict[str, object]:
    """``gpu``: whether llama.cpp, as installed, sees a device to offload to; ``system``: what it says of itself."""
    done = subprocess.run([sys.executable, "-c", _LOOK], capture_output=True, check=False)
    if done.returncode != 0:
        lines = done.stderr.decode("utf-8", "replace").strip().splitlines()
        return {"gpu": False, "system": lines[-1] if lines else f"ended with {done.returncode}"}
    found: dict[str, object] = orjson.loads(done.stdout.splitlines()[-1])
    return found


def require(needs: Sequence[str]) -> dict[str, object] | None:
    """What llama.cpp says of itself, if anything is needed. Raises MachineUnsuitable."""
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
        raise MachineUnsuitable("a CUDA machine", "llama-cpp-python has CUDA and sees no GPU; look at nvidia-smi")
    return found
