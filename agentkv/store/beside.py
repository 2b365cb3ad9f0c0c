"""What other parts keep in folders of the store beside the blocks, so that check and repair know it as their own.

Each part says which files are its own and whether one is what was written; no block depends on any. Here is what they
share, refusing to know what a record says; ``annexes.py`` lists them.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

from agentkv.errors import StoreError, StoreReadError
from agentkv.io import fsio
from agentkv.io.hashing import sha256

Found = tuple[Path, int, bool]
"""A path below a part's folder, its bytes, and whether it is one of the part's own."""


def files_below(folder: Path) -> Iterator[Path]:
    """Everything below a folder that is no folder itself, sorted; links are not followed. Raises StoreReadError."""
    try:
        found = sorted(folder.iterdir())
    except FileNotFoundError:
        return
    except OSError as error:
        raise fsio.translated(error, folder) from error
    for path in found:
        if path.is_dir() and not path.is_symlink():
            yield from files_below(path)
        else:
            yield path


def read(root: Path, path: Path, limit: int) -> tuple[bytes | None, str | None]:
    """The bytes of a file, None if it is gone, and what is wrong with its place or kind. Raises StoreReadError."""
    try:
        fsio.refuse_links(root, path)
        return fsio.read_regular(path, limit), None
    except StoreReadError:
        raise
    except StoreError as error:
        return None, error.message


def is_sealed(data: bytes, first_line: re.Pattern[bytes]) -> bool:
    """Whether the first line is of that form, its group the SHA-256 of all that follows."""
    line, _, body = data.partition(b"\n")
    sealed = first_line.fullmatch(line)
    return sealed is not None and sealed[1].decode() == sha256(body)
