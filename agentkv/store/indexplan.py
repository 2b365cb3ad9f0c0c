"""Which blocks go for the budget, by the index: the same rules as ``budget.py``, at a cost that the store's size does
not change. The plan is carried out in the index's tables and undone again, so that each step sees what the last left.
"""

from __future__ import annotations

import contextlib
import sqlite3
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass

from agentkv.store.index import Index
from agentkv.store.indexed import needless_ids, total
from agentkv.store.indexrows import BLOCK, refs_of
from agentkv.store.uses import Use, Uses


@dataclass(frozen=True)
class Asked:
    """``budget`` in bytes; ``protected`` and ``pinned`` by id; ``superseded``: fingerprints; ``others``: bytes that
    stay whatever goes; ``swept``: segments that no block needs could not be removed, and count.

    ``ids_bytes``: what the ids of a block take up that has children.
    """

    budget: int
    protected: Collection[str]
    pinned: Collection[str]
    superseded: Collection[str]
    others: int
    swept: bool
    ids_bytes: Callable[[str], int]


@dataclass(frozen=True)
class Gone:
    """One block that would go: see ``budget.Victim``."""

    block_id: str
    names: tuple[str, ...]
    last: float
    hits: int
    bytes: int


def plan(index: Index, uses: Uses, asked: Asked) -> tuple[list[Gone], int, int] | None:
    """What would go, in order, the bytes stored now, and those that cannot go; None where files have to be read.

    So it is, too, where a block does not read: what it needs is not known.
    """

    def work(db: sqlite3.Connection) -> tuple[list[Gone], int, int] | None:
        unread = "SELECT 1 FROM blocks WHERE refs IS NULL UNION ALL SELECT 1 FROM ancestors WHERE NOT is_read LIMIT 1"
        if db.execute(unread).fetchone():
            return None
        planned = _Planned(db, uses, asked)
        db.execute("SAVEPOINT planned")
        try:
            return planned.run()
        finally:
            with contextlib.suppress(sqlite3.Error):
                db.execute("ROLLBACK TO planned")
                db.execute("RELEASE planned")
                db.executemany("UPDATE blocks SET last = ? WHERE no = ?", planned.later)

    return index.ask(work, certain=[index.manifests])


_MAY_GO = "(children = 0 OR (lone > 0 AND parent IS NOT NULL))"
_NEXT = f"SELECT no, id, last, children FROM blocks WHERE fingerprint = ? AND {_MAY_GO} ORDER BY last, id"
_AHEAD = 64
"""Of how many candidates the uses are looked up at once."""


class _Planned:
    """``later``: last uses that the index had not seen, and the numbers of the blocks."""

    def __init__(self, db: sqlite3.Connection, uses: Uses, asked: Asked) -> None:
        self._db, self._noted, self._asked = db, uses, asked
        self._uses: dict[bytes, Use | None] = {}
        self.later: list[tuple[float, int]] = []
        pinned = self._with_parents(asked.pinned)
        self._kept = self._with_parents([*asked.protected, *asked.pinned])
        self._stay = pinned | {bytes.fromhex(block_id) for block_id in asked.protected}

    def run(self) -> tuple[list[Gone], int, int]:
        db, asked = self._db, self._asked
        for block_id in needless_ids(db):
            db.execute("DELETE FROM ancestors WHERE id = ?", (block_id,))
        fixed = total(db, "ancestors")[1] + asked.others + (total(db, "unneeded")[1] if asked.swept else 0)
        left = stored = total(db, "blocks")[1] + total(db, "needed")[1] + fixed
        kept = self._bytes_of(self._kept) + fixed
        groups = self._groups()
        gone: list[Gone] = []
        while left > asked.budget and (found := self._first(groups)) is not None:
            gone.append(self._take(*found))
            left -= gone[-1].bytes
        return gone, stored, kept

    def _groups(self) -> list[list[int]]:
        """Numbers of fingerprints: those that were migrated to another one, then the rest."""
        rows = self._db.execute("SELECT no, id FROM fingerprints").fetchall()
        first = [no for no, digest in rows if digest.hex() in self._asked.superseded]
        return [first, [no for no, _ in rows if no not in first]]

    def _first(self, groups: Iterable[list[int]]) -> tuple[float, bytes, int] | None:
        """The block that goes next: its last use, id and number."""
        for group in groups:
            found = [block for number in group if (block := self._first_of(number)) is not None]
            if found:
                return min(found)
        return None

    def _first_of(self, fingerprint: int) -> tuple[float, bytes, int] | None:
        while True:
            for no, block_id, last, children in self._db.execute(_NEXT, (fingerprint,)):
                if block_id in self._stay or (children and self._names(block_id)):
                    continue
                use = self._use(block_id, fingerprint)
                if use is None or use.last <= last:
                    return last, block_id, no
                self.later.append((use.last, no))
                break  # it was used since the index has seen it: its turn comes later
            else:
                return None
            self._db.execute("UPDATE blocks SET last = ? WHERE no = ?", self.later[-1])

    def _use(self, block_id: bytes, fingerprint: int) -> Use | None:
        if block_id not in self._uses:
            ahead = [row[1] for row in self._db.execute(f"{_NEXT} LIMIT {_AHEAD}", (fingerprint,))]
            missing = [key for key in {block_id, *ahead} if key not in self._uses]
            noted = self._noted.of(key.hex() for key in missing)
            self._uses.update({key: noted.get(key.hex()) for key in missing})
        return self._uses[block_id]

    def _take(self, last: float, block_id: bytes, no: int) -> Gone:
        """Take a block out of the plan."""
        db, use = self._db, self._uses.get(block_id)
        names = tuple(self._names(block_id))
        query = "SELECT bytes, parent, children FROM blocks WHERE no = ?"
        n_bytes, parent, children = db.execute(query, (no,)).fetchone()
        freed = n_bytes + Index.drop_block(db, block_id)
        if children:
            ids = self._asked.ids_bytes(block_id.hex())
            db.execute("INSERT OR REPLACE INTO ancestors VALUES (?, ?, 0, 0, ?, 1)", (block_id, ids, parent))
            freed -= ids
        else:
            freed += self._release(parent)
        return Gone(block_id.hex(), names, last, use.hits if use else 0, freed)

    def _release(self, parent: bytes | None) -> int:
        """A parent's ids go with its last child, and so on up; the bytes that this frees."""
        freed = 0
        while parent is not None:
            row = self._db.execute("SELECT bytes, parent FROM ancestors WHERE id = ?", (parent,)).fetchone()
            children = (
                "SELECT 1 FROM blocks WHERE parent = ?1 UNION ALL SELECT 1 FROM ancestors WHERE parent = ?1 LIMIT 1"
            )
            if row is None or self._db.execute(children, (parent,)).fetchone():
                break
            self._db.execute("DELETE FROM ancestors WHERE id = ?", (parent,))
            freed, parent = freed + row[0], row[1]
        return freed

    def _names(self, block_id: bytes) -> list[str]:
        rows = self._db.execute("SELECT name FROM names WHERE block = ? ORDER BY name", (block_id.hex(),))
        return [row[0] for row in rows]

    def _with_parents(self, block_ids: Iterable[str]) -> set[bytes]:
        found: set[bytes] = set()
        query = "SELECT parent FROM blocks WHERE id = ?1 UNION ALL SELECT parent FROM ancestors WHERE id = ?1 LIMIT 1"
        for start in block_ids:
            here: bytes | None = bytes.fromhex(start)
            while here is not None and here not in found:
                row = self._db.execute(query, (here,)).fetchone()
                if row is None:
                    break
                found.add(here)
                here = row[0]
        return found

    def _bytes_of(self, block_ids: Iterable[bytes]) -> int:
        """Bytes of the manifests and, each once, the segments of those that are stored."""
        n_bytes, digests = 0, set[bytes]()
        for block_id in block_ids:
            row = self._db.execute(f"SELECT {BLOCK} FROM blocks WHERE id = ?", (block_id,)).fetchone()
            if row is not None:
                n_bytes += row[1]
                digests |= {digest for digest, _ in refs_of(row)}
        sizes = (self._db.execute("SELECT bytes FROM segments WHERE digest = ?", (key,)).fetchone() for key in digests)
        return n_bytes + sum(int(row[0]) for row in sizes if row is not None)
