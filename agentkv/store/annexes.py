"""The features that keep checksummed files beside the blocks, so that check and repair know them as the store's.

The store knows their folders and the modules that describe them, by name; a module is imported when a check comes to
its folder. Such a module has ``fault(files, path)``: why a file is not what was written, None if it is or is gone; it
raises StoreReadError. One whose folder has folders of its own also has ``entries(root)``: every file below, its bytes,
and whether it belongs there. No block depends on any of these files.

Adapters' databases are not among them: only SQLite can tell whether one is whole.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import cast

from agentkv.store.beside import Found
from agentkv.store.files import StoreFiles


@dataclass(frozen=True)
class Annex:
    """A feature's folder below the store's root, and the module that describes its files.

    What is corrupt is moved aside by a repair: a source or record of documents is made again by `agentkv docs add`, a
    thread can be rewound to the turns before, a task is solved again, the router computes again what it learned.
    """

    folder: str
    module: str

    def entries(self, root: Path) -> Iterator[Found]:
        """Every file of the folder. Raises StoreReadError."""
        return cast(Iterator[Found], import_module(self.module).entries(root))

    def fault(self, files: StoreFiles, path: Path) -> str | None:
        """Why a file is not what was written; None if it is, or is gone. Raises StoreReadError."""
        return cast(str | None, import_module(self.module).fault(files, path))


ANNEXES = (
    Annex("documents", "agentkv.documents.records"),
    Annex("threads", "agentkv.memory.threadlog"),
    Annex("flywheel", "agentkv.flywheel.files"),
)
ROUTER_FILES = Annex("router", "agentkv.router.files")
"""The router's weights and vectors, in one folder without others below it."""
