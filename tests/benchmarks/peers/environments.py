"""An environment for the packages of one arm: made by the benchmark with venv and pip, versions pinned.

What pip says it has installed, with the SHA-256 of every file it took, goes into the result. What cannot be had here is
a reason, in the result, not an error.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import orjson

from agentkv.bench.results import say
from agentkv.io import fsio
from agentkv.io.hashing import canonical_json, sha256

_LIMIT_S = 600
_OWN = ("llama-cpp-python", "diskcache", "numpy", "zstandard")


@dataclass(frozen=True)
class Environment:
    """``python``: its interpreter, None if ``unavailable`` says why. ``packages``: name, version and SHA-256."""

    python: str | None
    packages: list[dict[str, Any]]
    unavailable: str | None = None
    shared: bool = False

    def record(self) -> dict[str, Any]:
        """For the result; no path of this machine in it."""
        record = {"packages": self.packages, "shared": self.shared}
        return record if self.unavailable is None else {**record, "unavailable": self.unavailable}


def environment(packages: Sequence[str], folder: Path) -> Environment:
    """The environment that has ``packages`` (``name==version``); agentkv's own interpreter for none.

    It is made in ``folder``, or found there from an earlier run.
    """
    if not packages:
        return Environment(sys.executable, [_own(name) for name in _OWN], shared=True)
    home = folder / sha256(canonical_json([sys.version, *packages]))[:12]
    python, report = home / "bin" / "python", home / "installed.json"
    if not report.exists():
        say(f"making an environment for {', '.join(packages)}")
        try:
            _make(home, python, packages, report)
        except (OSError, subprocess.SubprocessError) as error:
            return Environment(None, [], _reason(packages, error))
    return Environment(str(python), json.loads(report.read_bytes()))


def _make(home: Path, python: Path, packages: Sequence[str], report: Path) -> None:
    _run([sys.executable, "-m", "venv", "--clear", str(home)])
    pip = [str(python), "-m", "pip", "--disable-pip-version-check", "--no-input", "install", "--only-binary", ":all:"]
    pip_report = home / "pip.json"
    _run([*pip, "--report", str(pip_report), *packages])
    installed = [_installed(one) for one in json.loads(pip_report.read_bytes())["install"]]
    fsio.write_durably(report, [orjson.dumps(installed)])


def _run(command: list[str]) -> None:
    subprocess.run(command, check=True, capture_output=True, text=True, timeout=_LIMIT_S)


def _installed(one: dict[str, Any]) -> dict[str, Any]:
    digests = one.get("download_info", {}).get("archive_info", {}).get("hashes", {})
    data = one["metadata"]
    return {"name": data["name"], "version": data["version"], "sha256": digests.get("sha256")}


def _own(name: str) -> dict[str, Any]:
    try:
        return {"name": name, "version": version(name), "sha256": None}
    except PackageNotFoundError:
        return {"name": name, "version": None, "sha256": None}


def _reason(packages: Sequence[str], error: Exception) -> str:
    lines = str(getattr(error, "stderr", None) or error).strip().splitlines()
    errors = [line for line in lines if line.startswith("ERROR")]
    return f"pip cannot install {', '.join(packages)}: {(errors or lines or ['no reason given'])[-1]}"
