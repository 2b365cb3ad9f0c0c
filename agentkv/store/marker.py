"""What makes a directory a store: the file ``agentkv-store.json``.

Knows nothing of blocks. Creates a store only in a new or empty directory, so that a mistyped path never fills
somebody's folder, and writes nothing into one that exists: a read-only store opens.
"""

from __future__ import annotations

from pathlib import Path

from agentkv import fsio
from agentkv.errors import StoreFormatError, StoreReadError, StoreUnusable
from agentkv.store.format import KNOWN_FORMATS, decode_marker, encode_marker

MARKER = "agentkv-store.json"
_MARKER_LIMIT = 4096


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
    """Raise StoreUnusable if ``root`` is no store any more: what is written there would never be found again."""
    if not (root / MARKER).exists():
        raise StoreUnusable(root, "it was removed or replaced while it was open. Open it again.")


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
    data = fsio.read_regular(path, _MARKER_LIMIT)
    if data is None:
        return False
    found = decode_marker(data)
    if type(found) is not int or found not in KNOWN_FORMATS:
        raise StoreFormatError(path, found, KNOWN_FORMATS)
    return True


def _foreign_entries(root: Path) -> bool:
    if not root.exists():
        return False
    return any(not entry.name.startswith(MARKER) for entry in root.iterdir())
