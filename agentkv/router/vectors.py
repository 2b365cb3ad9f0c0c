"""Vectors of texts that do not change: made once, kept in one file beside the store.

Knows an embedder and a file of fixed-size rows, an array of plain numbers: SHA-256 of a text, then its vector. A file
that is damaged, or of another embedder, counts as none: its vectors are made again.
"""

from __future__ import annotations

import contextlib
import io
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from agentkv.engine.embed import Embedder
from agentkv.engine.embed import Vectors as Rows
from agentkv.errors import StoreError
from agentkv.io import fsio
from agentkv.io.hashing import sha256
from agentkv.notices import warn
from agentkv.router.files import array_fault

_LIMIT = 1 << 30


class Vectors:
    """The vectors of one embedder, in memory and, with a ``folder``, on disk."""

    def __init__(self, embedder: Embedder, folder: Path | None = None) -> None:
        self.embedder = embedder
        self._file = None if folder is None else folder / f"vectors-{embedder.identity[:32]}.npy"
        self._known: dict[str, Rows] = {}
        self._read = False

    def of(self, texts: Sequence[str]) -> Rows:
        """Unit vectors of ``texts``, shape (n, dimensions); those not known yet are made and kept."""
        keys = [sha256(text.encode("utf-8", "replace")) for text in texts]
        if not self._read:
            self._known, self._read = self._load(), True
        missing = {key: text for key, text in zip(keys, texts, strict=True) if key not in self._known}
        if missing:
            made = self.embedder.embed(list(missing.values()))
            self._known.update(zip(missing, made, strict=True))
            self._save()
        if not keys:
            return np.zeros((0, self.embedder.dimensions), np.float32)
        return np.stack([self._known[key] for key in keys])

    def _row(self) -> np.dtype[np.void]:
        return np.dtype([("text", "S64"), ("vector", "<f4", (self.embedder.dimensions,))])

    def _load(self) -> dict[str, Rows]:
        try:
            data = None if self._file is None else fsio.read_regular(self._file, _LIMIT)
        except StoreError as error:
            warn(f"the vectors kept for the router are made again: {error.message}")
            return {}
        if data is None:
            return {}
        rows = self._rows_of(data)
        if rows is None or not np.isfinite(rows["vector"]).all():
            warn(f"{self._file} is not the array of vectors that was kept; they are made again")
            return {}
        return {row["text"].decode("ascii", "replace"): row["vector"] for row in rows}

    def _rows_of(self, data: bytes) -> NDArray[np.void] | None:
        """The rows in a file's bytes, if they are of this embedder; nothing is allocated for what its header claims."""
        if array_fault(data) is not None:
            return None
        rows = np.lib.format.read_array(io.BytesIO(data), allow_pickle=False)
        return rows if rows.dtype == self._row() else None

    def _save(self) -> None:
        if self._file is None:
            return
        rows = np.empty(len(self._known), self._row())
        rows["text"] = [key.encode() for key in self._known]
        rows["vector"] = list(self._known.values())
        buffer = io.BytesIO()
        np.save(buffer, rows, allow_pickle=False)
        with contextlib.suppress(StoreError):  # a full disk costs time, no decision
            fsio.write_durably(self._file, [buffer.getvalue()])
