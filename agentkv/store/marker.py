"""What makes a directory a store: the file ``agentkv-store.json``.

A store whose marker is corrupt is known by how its records begin. A store is created only in a new or empty directory,
so that a mistyped path never fills somebody's folder, and opening one writes nothing: a read-only store opens.
"""

from __future__ import annotations

import contextlib
import itertools
from pathlib import Path

from agentkv.errors import StoreFormatError, StoreReadError, StoreUnusable
from agentkv.io import fsio
from agentkv.io.lock import GATE, LOCK
from agentkv.notices import warn
from agentkv.store import format as formats
from agentkv.store.format import KNOWN_FORMATS, decode_marker, encode_marker

MARKER = "agentkv-store.json"
_MARKER_LIMIT = 4096
_LOOKED_AT = 64
_BEGINNINGS = {
    "segments": formats.SEGMENT_MAGIC + formats.SEGMENT_VERSION.to_bytes(2, "little"),
    "manifests": f"{formats.MANIFEST_MAGIC} ".encode(),
    "names": f"{formats.NAME_MAGIC} ".encode(),
    "texts": f"{formats.TEXT_MAGIC} ".encode(),
    "ancestors": f"{formats.ANCESTOR_MAGIC} ".encode(),
    "selftests": f"{formats.SELFTEST_MAGIC} ".encode(),
    "pins": f"{formats.PIN_MAGIC} ".encode(),
    "threads": f"{formats.THREAD_MAGIC} ".encode(),
}
"""How the files of each folder begin in store format 1."""


def locate(root: Path | str) -> Path:
    """The directory that ``root`` means, links resolved; nothing is created. Raises StoreUnusable."""
    try:
        return Path(root).expanduser().resolve()
    except (OSError, RuntimeError) as error:  # a loop of links, no such user
        raise StoreUnusable(Path(root), f"{error}. Pass another directory.") from error


def open_root(root: Path, *, create: bool) -> None:
    """Make sure that ``root`` is a store, made now if it may be.

    Raises StoreUnusable, StoreFormatError, StoreFull.
    """
    try:
        _open(root, create)
    except OSError as error:
        reason = f"{error.strerror or error}. Pass a directory that you may write."
        raise StoreUnusable(root, reason) from error
    except StoreReadError as error:
        reason = f"{error.reason}. Check {error.path} and its permissions."
        raise StoreUnusable(root, reason) from error


def require_marker(root: Path) -> None:
    """Make the store again, with a warning, if its folder was removed or emptied while it was open.

    Raises StoreUnusable if something else is there now: what is written there would never be found again.
    """
    if (root / MARKER).exists() or marker_fault(root) is not None:
        return
    open_root(root, create=True)
    warn(f"the store {root} was removed while it was open; it was made again, and what it held is gone")


def marker_fault(root: Path) -> str | None:
    """Why the marker is not what it should be although this is a store; None if it is, or if this is not a store.

    A corrupt or missing one says nothing of the format, but the records around it do. Raises
    StoreReadError, StoreFormatError.
    """
    data = fsio.read_regular(root / MARKER, _MARKER_LIMIT)
    if data is not None:
        found = decode_marker(data)
        if type(found) is int and found in KNOWN_FORMATS:
            return None
        if found is not None:
            raise StoreFormatError(root / MARKER, found, KNOWN_FORMATS)
    if not _has_records(root):
        return None
    return "it is not there" if data is None else "it is not the bytes that mark a store"


def mend_marker(root: Path) -> None:
    """Write the marker of a store whose records say which format it has. Raises StoreFull, StoreReadError."""
    fsio.write_durably(root / MARKER, [encode_marker()])


def _open(root: Path, create: bool) -> None:
    if root.exists() and not root.is_dir():
        raise StoreUnusable(root, "it is a file. Pass a directory.")
    if _has_marker(root):
        return
    if not create:
        raise StoreUnusable(root, "there is no store here. Check the path, or deposit something first.")
    if _foreign_entries(root):
        if _has_marker(root):  # another process has created it just now
            return
        raise StoreUnusable(root, f"it holds other files and no {MARKER}. Pass a new or empty directory.")
    fsio.make_directory(root)
    fsio.write_durably(root / MARKER, [encode_marker()])


def _has_marker(root: Path) -> bool:
    path = root / MARKER
    fault = marker_fault(root)
    if fault is not None:
        warn(f"{path}: {fault}. Its records are those of a store, so it is used; `agentkv check --repair` mends it.")
        return True
    data = fsio.read_regular(path, _MARKER_LIMIT)
    if data is None:
        return False
    found = decode_marker(data)
    if type(found) is not int or found not in KNOWN_FORMATS:
        raise StoreFormatError(path, found, KNOWN_FORMATS)
    return True


def _has_records(root: Path) -> bool:
    """Whether there are records of the store format that this version writes."""
    for folder, begin in _BEGINNINGS.items():
        files = itertools.chain(root.glob(f"{folder}/??/*"), root.glob(f"{folder}/*"))
        for path in itertools.islice(files, _LOOKED_AT):
            with contextlib.suppress(StoreReadError), fsio.open_regular(path) as opened:
                if opened is not None and opened[0].read(len(begin)) == begin:
                    return True
    return False


def _foreign_entries(root: Path) -> bool:
    """Whether something is in a directory that may become a store but what the making of one leaves."""
    if not root.exists():
        return False
    own = (MARKER, LOCK, GATE)
    return any(not entry.name.startswith(own) for entry in root.iterdir())
