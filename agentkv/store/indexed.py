"""What is asked of the catalogue's index: names, candidates, blocks, parents, sizes. No file is opened for a row.

Every function gives None where the index cannot be used, and what does not read by its digest, for whoever wants the
error of its file.
"""

from __future__ import annotations

import contextlib
import sqlite3
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import orjson
from pydantic import ValidationError

from agentkv.io.hashing import tagged_digest
from agentkv.records import NamedBlock
from agentkv.store import format as formats
from agentkv.store.format import NAME_MAGIC, Malformed, Summary
from agentkv.store.index import Index
from agentkv.store.indexrows import BLOCK, Damaged, seal, summary_of
from agentkv.store.recordfiles import RecordFiles

Key = tuple[str, str, str]
"""Kind, name and fingerprint of a name."""


@dataclass(frozen=True)
class Selection:
    """Which names: of a kind, of a fingerprint, those with a description, the first ``limit`` after a key."""

    kind: str | None = None
    fingerprint_id: str | None = None
    block_id: str | None = None
    described: bool = False
    after: Key | None = None
    limit: int | None = None

    def fits(self, named: NamedBlock) -> bool:
        """Whether a name is one of these, but for ``limit``."""
        return (
            self.kind in (None, named.kind)
            and self.fingerprint_id in (None, named.fingerprint_id)
            and self.block_id in (None, named.block_id)
            and (bool(named.description) or not self.described)
            and (self.after is None or key_of(named) > self.after)
        )

    def clause(self) -> tuple[str, list[object]]:
        """The same in SQL."""
        parts = ["body IS NOT NULL", *(["described"] if self.described else [])]
        given: list[object] = []
        for column, value in (("kind", self.kind), ("fingerprint", self.fingerprint_id), ("block", self.block_id)):
            if value is not None:
                parts.append(f"{column} = ?")
                given.append(value)
        if self.after is not None and self.kind == self.after[0]:  # so that the index is entered there
            parts.append("(name, fingerprint) > (?, ?)")
            given += self.after[1:]
        elif self.after is not None:
            parts.append("(kind, name, fingerprint) > (?, ?, ?)")
            given += self.after
        return " AND ".join(parts), given

    @property
    def is_all(self) -> bool:
        """Whether these are all names there are."""
        return self == EVERY


EVERY = Selection()


def key_of(named: NamedBlock) -> Key:
    """By which names are sorted."""
    return named.kind, named.name, named.fingerprint_id


@dataclass(frozen=True)
class Names:
    """Names, sorted; ``texts``: of those with a description, by ``source_sha256``, where short enough to be kept here.

    ``unread``: digests of the files that do not read, of all names.
    """

    found: list[NamedBlock]
    texts: dict[str, str]
    unread: list[str]


def names(index: Index, selection: Selection) -> Names | None:
    """These names."""

    def work(db: sqlite3.Connection) -> Names:
        where, given = selection.clause()
        query = f"SELECT kind, name, fingerprint, block, body, text FROM names WHERE {where} "
        rows = db.execute(
            f"{query} ORDER BY kind, name, fingerprint LIMIT ?",
            [*given, -1 if selection.limit is None else selection.limit],
        ).fetchall()
        unread = [row[0].hex() for row in db.execute("SELECT id FROM names WHERE body IS NULL ORDER BY id")]
        if selection.is_all and len(rows) + len(unread) != total(db, "names")[0]:
            raise Damaged("names are missing")
        found, texts = [], {}
        for *where_to, body, text in rows:
            named = _named(body)
            if [*key_of(named), named.block_id] != where_to:
                raise Damaged(f"the row of the name {named.name!r} is not what was written")
            found.append(named)
            if selection.described and text is not None and named.source_sha256:
                with contextlib.suppress(Malformed):  # its file says more
                    texts[named.source_sha256] = formats.decode_text(text, named.source_sha256)
        return Names(found, texts, unread)

    return index.ask(work)


def _named(data: bytes) -> NamedBlock:
    try:
        return NamedBlock.model_validate_json(formats.unseal(NAME_MAGIC, data), strict=True)
    except (Malformed, ValidationError) as error:
        raise Damaged("the row of a name is not what was written") from error


def needed_texts(index: Index) -> set[str | None] | None:
    """The texts that names need; None also where a name does not read."""

    def work(db: sqlite3.Connection) -> set[str | None] | None:
        rows = db.execute("SELECT body FROM names").fetchall()
        if len(rows) != total(db, "names")[0]:
            raise Damaged("names are missing")
        return None if any(row[0] is None for row in rows) else {_named(row[0]).source_sha256 for row in rows}

    return index.ask(work, certain=[index.names])


def summaries(
    index: Index, certain: Collection[RecordFiles[Any]] = ()
) -> tuple[list[tuple[str, Summary]], list[str]] | None:
    """Every block's id and summary, by id, and the ids of those that do not read."""

    def work(db: sqlite3.Connection) -> tuple[list[tuple[str, Summary]], list[str]]:
        known = _fingerprints(db)
        rows = db.execute(f"SELECT {BLOCK} FROM blocks WHERE refs IS NOT NULL ORDER BY id")
        found = [(row[0].hex(), summary_of(row, known)) for row in rows]
        unread = [row[0].hex() for row in db.execute("SELECT id FROM blocks WHERE refs IS NULL ORDER BY id")]
        if len(found) + len(unread) != total(db, "blocks")[0]:
            raise Damaged("blocks are missing")
        return found, unread

    return index.ask(work, certain=certain)


def _fingerprints(db: sqlite3.Connection) -> dict[int, tuple[dict[str, object], dict[str, object]]]:
    known = {}
    for no, digest, body in db.execute("SELECT no, id, body FROM fingerprints"):
        try:
            content, numerics = orjson.loads(body)
        except (orjson.JSONDecodeError, ValueError, TypeError) as error:
            raise Damaged("a fingerprint is not what was written") from error
        if tagged_digest("fingerprint/1", content, numerics) != digest.hex():
            raise Damaged("a fingerprint is not what was written")
        known[no] = content, numerics
    return known


def parents(index: Index) -> dict[str, str | None] | None:
    """The parent of every block, and of every evicted one whose ids are left; None also where one does not read."""

    def work(db: sqlite3.Connection) -> dict[str, str | None] | None:
        if _exists(db, "ancestors WHERE NOT is_read") or _exists(db, "blocks WHERE refs IS NULL"):
            return None
        query = "SELECT id, parent FROM ancestors UNION ALL SELECT id, parent FROM blocks"
        return {row[0].hex(): row[1].hex() if row[1] else None for row in db.execute(query)}

    return index.ask(work)


def children(index: Index, block_id: str) -> list[str] | None:
    """The blocks, and ids of evicted ones, whose parent this is, sorted."""

    def work(db: sqlite3.Connection) -> list[str] | None:
        if _exists(db, "blocks WHERE refs IS NULL"):
            return None
        key = bytes.fromhex(block_id)
        query = "SELECT id FROM blocks WHERE parent = ?1 UNION ALL SELECT id FROM ancestors WHERE parent = ?1"
        found = [row[0].hex() for row in db.execute(query, (key,))]
        counted = db.execute("SELECT children FROM blocks WHERE id = ?", (key,)).fetchone()
        if counted is not None and counted[0] != len(found):
            raise Damaged(f"children of block {block_id[:12]} are missing")
        return sorted(set(found))

    return index.ask(work)


def stored_bytes(index: Index) -> int | None:
    """Bytes of manifests, ids of evicted blocks, and segments that blocks have or had."""
    kinds = ("blocks", "ancestors", "needed", "unneeded")
    return index.ask(lambda db: sum(total(db, kind)[1] for kind in kinds))


def needless(index: Index) -> tuple[list[str], list[str]] | None:
    """Segments that the index knows and no block needs; evicted blocks whose ids no block needs, children first."""

    def work(db: sqlite3.Connection) -> tuple[list[str], list[str]] | None:
        if _exists(db, "blocks WHERE refs IS NULL") or _exists(db, "ancestors WHERE NOT is_read"):
            return None
        segments = []
        for row in db.execute("SELECT * FROM segments WHERE users = 0"):
            if seal(*row[:4]) != row[4]:
                raise Damaged("the row of a segment is not what was written")
            segments.append(row[0].hex())
        return segments, [block_id.hex() for block_id in needless_ids(db)]

    return index.ask(work, certain=[index.manifests, index.ancestors])


def needless_ids(db: sqlite3.Connection) -> list[bytes]:
    """Evicted blocks that are the parents of none any more, or are stored again; children first."""
    again = "SELECT id FROM ancestors a WHERE EXISTS (SELECT 1 FROM blocks b WHERE b.id = a.id)"  # IN would scan blocks
    found = [row[0] for row in db.execute(again)]
    gone = set(found)
    free = (
        "SELECT id FROM ancestors a WHERE NOT EXISTS (SELECT 1 FROM blocks b WHERE b.parent = a.id) "
        "AND NOT EXISTS (SELECT 1 FROM ancestors c WHERE c.parent = a.id)"
    )
    pending = [row[0] for row in db.execute(free)]
    while pending:
        here = pending.pop()
        if here not in gone:
            gone.add(here)
            found.append(here)
        row = db.execute("SELECT parent FROM ancestors WHERE id = ?", (here,)).fetchone()
        if row is not None and row[0] is not None and _is_free(db, row[0], gone):
            pending.append(row[0])
    return found


def _is_free(db: sqlite3.Connection, block_id: bytes, gone: Collection[bytes]) -> bool:
    """Whether there are ids of that block, and all its children are ids that are gone."""
    if block_id in gone or not db.execute("SELECT 1 FROM ancestors WHERE id = ?", (block_id,)).fetchone():
        return False
    if db.execute("SELECT 1 FROM blocks WHERE parent = ? LIMIT 1", (block_id,)).fetchone():
        return False
    return all(row[0] in gone for row in db.execute("SELECT id FROM ancestors WHERE parent = ?", (block_id,)))


def unneeded_of(index: Index, digests: Sequence[str]) -> list[str] | None:
    """Those of these segments that no block needs; None also where one is not known to the index."""

    def work(db: sqlite3.Connection) -> list[str] | None:
        if _exists(db, "blocks WHERE refs IS NULL"):
            return None
        found = []
        for digest in digests:
            row = db.execute("SELECT * FROM segments WHERE digest = ?", (bytes.fromhex(digest),)).fetchone()
            if row is None:  # nobody ever needed it, or its row is lost: all blocks are looked at
                return None
            if seal(*row[:4]) != row[4]:
                raise Damaged("the row of a segment is not what was written")
            if row[2] == 0:
                found.append(digest)
        return found

    return index.ask(work, certain=[index.manifests])


def removed(index: Index, digests: Iterable[str]) -> None:
    """These segments' files are gone."""

    def work(db: sqlite3.Connection) -> bool:
        keys = [(bytes.fromhex(digest),) for digest in digests]
        db.executemany("DELETE FROM segments WHERE digest = ? AND users = 0", keys)
        return True

    index.ask(work)


def total(db: sqlite3.Connection, kind: str) -> tuple[int, int]:
    """How many rows of a kind there are, and the bytes of their files."""
    n, n_bytes = db.execute("SELECT n, bytes FROM totals WHERE kind = ?", (kind,)).fetchone()
    return n, n_bytes


def _exists(db: sqlite3.Connection, where: str) -> bool:
    return db.execute(f"SELECT 1 FROM {where} LIMIT 1").fetchone() is not None
