"""What the flywheel keeps beside the blocks: solutions, and which of them is live for each task.

    flywheel/solutions/<2>/<solution id>.json    a solution with its proof, never changed     sealed JSON
    flywheel/standings/<2>/<task id>.json        a task's live solution and its history       sealed JSON
    flywheel/tasks/<2>/<task id>.json            the task of a solution, with its check       sealed JSON
    flywheel/lock                                who may change a standing now                empty

A sealed file's first line is a magic word and the SHA-256 of what follows, which is canonical JSON. A solution's proof
names its task and its check (`task_id`, `check_sha256`). Older records have neither field, are read and written without
them, and prove no check until it is run again. No block depends on a solution.
"""

from __future__ import annotations

import re
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import TypeVar

from pydantic import ValidationError

from agentkv.flywheel import values
from agentkv.records import Record
from agentkv.store.files import StoreFiles
from agentkv.store.format import Malformed, is_digest, seal, unseal
from agentkv.store.registry import Found, files_below, is_sealed, read

FLYWHEEL, SOLUTIONS, STANDINGS, TASKS, LOCK = "flywheel", "solutions", "standings", "tasks", "lock"
SOLUTION_MAGIC, STANDING_MAGIC, TASK_MAGIC = "agentkv-solution/1", "agentkv-standing/1", "agentkv-task/1"
MAX_RECORD_BYTES = 16 << 20
_SEAL = re.compile(rb"agentkv-(?:solution|standing|task)/1 ([0-9a-f]{64})")


def entries(root: Path) -> Iterator[Found]:
    """Every file below the flywheel's folder: path, bytes, whether it is one of its own. Raises StoreReadError."""
    folder = root / FLYWHEEL
    for path in files_below(folder):
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


def fault(files: StoreFiles, path: Path) -> str | None:
    """Why a record is not what was written; None if it is, or is gone. Raises StoreReadError."""
    if path.name == LOCK:
        return None
    data, reason = read(files.root, path, MAX_RECORD_BYTES)
    if data is None:
        return reason
    if not is_sealed(data, _SEAL):
        return "the first line is not a solution's, standing's or task's and the SHA-256 of what follows"
    return None


# --- sealed files ---------------------------------------------------------------------------------

R = TypeVar("R", bound=Record)


def encode_record(magic: str, record: Record) -> bytes:
    """The bytes of a record's file."""
    return seal(magic, values.encode(record.on_disk()).encode())


def decode_record(magic: str, data: bytes, kind: type[R], what: str) -> R:
    """The record of a file's bytes. Raises Malformed, which calls it ``what``."""
    body = unseal(magic, data)
    try:
        values.decode(body)
        record = kind.model_validate_json(body)
    except (ValidationError, ValueError) as error:
        reason = error.errors(include_input=False)[0]["msg"] if isinstance(error, ValidationError) else str(error)
        raise Malformed(f"not a {what}: {reason[:300]}") from error
    if encode_record(magic, record) != data:
        raise Malformed("the body is not canonical JSON")
    return record
