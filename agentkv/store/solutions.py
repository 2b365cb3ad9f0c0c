"""What the flywheel keeps beside the blocks: solutions, and which of them is live for each task.

    flywheel/solutions/<2>/<solution id>.json    a solution with its proof, never changed     sealed JSON
    flywheel/standings/<2>/<task id>.json        a task's live solution and its history       sealed JSON
    flywheel/tasks/<2>/<task id>.json            the task of a solution, with its check       sealed JSON
    flywheel/lock                                who may change a standing now                empty

Knows where they lie and whether a file is the one that was written; refuses to know what a record says. No block
depends on a solution.
"""

from __future__ import annotations

import re
import stat
from collections.abc import Iterator
from pathlib import Path

from agentkv import fsio
from agentkv.errors import StoreError, StoreReadError
from agentkv.hashing import sha256
from agentkv.store.format import is_digest

FLYWHEEL, SOLUTIONS, STANDINGS, TASKS, LOCK = "flywheel", "solutions", "standings", "tasks", "lock"
SOLUTION_MAGIC, STANDING_MAGIC, TASK_MAGIC = "agentkv-solution/1", "agentkv-standing/1", "agentkv-task/1"
MAX_RECORD_BYTES = 16 << 20
_SEAL = re.compile(rb"agentkv-(?:solution|standing|task)/1 ([0-9a-f]{64})")


def entries(root: Path) -> Iterator[tuple[Path, int, bool]]:
    """Every file below the flywheel's folder: path, bytes, whether it is one of its own. Raises StoreReadError."""
    folder = root / FLYWHEEL
    for path in _walk(folder):
        try:
            info = path.lstat()
        except OSError:  # removed meanwhile
            continue
        parts, name = path.relative_to(folder).parts, path.name.removesuffix(".json")
        match parts:
            case (("solutions" | "standings" | "tasks"), shard, file):
                own = is_digest(name) and shard == name[:2] and file == f"{name}.json"
            case _:
                own = parts == (LOCK,)
        yield path, info.st_size, own and stat.S_ISREG(info.st_mode)


def _walk(folder: Path) -> Iterator[Path]:
    try:
        found = sorted(folder.iterdir())
    except FileNotFoundError:
        return
    except OSError as error:
        raise fsio.translated(error, folder) from error
    for path in found:
        if path.is_dir() and not path.is_symlink():
            yield from _walk(path)
        else:
            yield path


def fault(root: Path, path: Path) -> str | None:
    """Why a record is not what was written; None if it is, or is gone. Raises StoreReadError."""
    if path.name == LOCK:
        return None
    try:
        fsio.refuse_links(root, path)
        data = fsio.read_regular(path, MAX_RECORD_BYTES)
    except StoreReadError:
        raise
    except StoreError as error:
        return error.message
    if data is None:
        return None
    line, _, body = data.partition(b"\n")
    sealed = _SEAL.fullmatch(line)
    if sealed is None or sealed[1].decode() != sha256(body):
        return "the first line is not a solution's, standing's or task's and the SHA-256 of what follows"
    return None
