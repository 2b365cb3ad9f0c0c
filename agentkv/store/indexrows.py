"""The tables of the catalogue's index, and its rows as records. What they are for says ``index.py``."""

from __future__ import annotations

import sqlite3
import zlib
from collections.abc import Iterator
from typing import Any

from agentkv.store.format import Summary

VERSION = 1
REF = 40
"""Bytes of a segment in ``refs``: its digest, and its raw bytes as a little-endian number."""

SCHEMA = """
CREATE TABLE places (place TEXT PRIMARY KEY, mtime INTEGER NOT NULL, certain INTEGER NOT NULL) WITHOUT ROWID;
CREATE TABLE totals (kind TEXT PRIMARY KEY, n INTEGER NOT NULL, bytes INTEGER NOT NULL) WITHOUT ROWID;
INSERT INTO totals VALUES ('blocks', 0, 0), ('names', 0, 0), ('ancestors', 0, 0), ('needed', 0, 0), ('unneeded', 0, 0);
CREATE TABLE fingerprints (no INTEGER PRIMARY KEY, id BLOB NOT NULL UNIQUE, body BLOB NOT NULL);
CREATE TABLE blocks (no INTEGER PRIMARY KEY, id BLOB NOT NULL UNIQUE, bytes INTEGER NOT NULL, mtime INTEGER NOT NULL,
  inode INTEGER NOT NULL, parent BLOB, fingerprint INTEGER, n_tokens INTEGER, raw_bytes INTEGER, exactness TEXT,
  refs BLOB, seal INTEGER, last REAL NOT NULL DEFAULT 0, children INTEGER NOT NULL DEFAULT 0,
  lone INTEGER NOT NULL DEFAULT 0);
CREATE INDEX blocks_parent ON blocks (parent) WHERE parent IS NOT NULL;
CREATE INDEX blocks_unread ON blocks (no) WHERE refs IS NULL;
CREATE INDEX blocks_next ON blocks (fingerprint, last, id) WHERE children = 0 OR (lone > 0 AND parent IS NOT NULL);
CREATE TABLE ancestors (id BLOB PRIMARY KEY, bytes INTEGER NOT NULL, mtime INTEGER NOT NULL, inode INTEGER NOT NULL,
  parent BLOB, is_read INTEGER NOT NULL) WITHOUT ROWID;
CREATE INDEX ancestors_parent ON ancestors (parent) WHERE parent IS NOT NULL;
CREATE TABLE names (id BLOB PRIMARY KEY, bytes INTEGER NOT NULL, mtime INTEGER NOT NULL, inode INTEGER NOT NULL,
  kind TEXT, name TEXT, fingerprint TEXT, block TEXT, source TEXT, described INTEGER, body BLOB, text BLOB);
CREATE INDEX names_order ON names (kind, name, fingerprint);
CREATE INDEX names_block ON names (block);
CREATE INDEX names_source ON names (source) WHERE source IS NOT NULL;
CREATE INDEX names_described ON names (kind, name, fingerprint) WHERE described;
CREATE INDEX names_unread ON names (id) WHERE body IS NULL;
CREATE TABLE segments (digest BLOB PRIMARY KEY, bytes INTEGER NOT NULL, users INTEGER NOT NULL, owners INTEGER NOT NULL,
  seal INTEGER NOT NULL) WITHOUT ROWID;
CREATE INDEX segments_unneeded ON segments (digest) WHERE users = 0;
CREATE TRIGGER block_in AFTER INSERT ON blocks BEGIN
  UPDATE blocks SET children = children + 1 WHERE id = new.parent;
  UPDATE blocks SET children = (SELECT count(*) FROM blocks WHERE parent = new.id)
    + (SELECT count(*) FROM ancestors WHERE parent = new.id) WHERE no = new.no;
  UPDATE totals SET n = n + 1, bytes = bytes + new.bytes WHERE kind = 'blocks';
END;
CREATE TRIGGER block_out AFTER DELETE ON blocks BEGIN
  UPDATE blocks SET children = children - 1 WHERE id = old.parent;
  UPDATE totals SET n = n - 1, bytes = bytes - old.bytes WHERE kind = 'blocks';
END;
CREATE TRIGGER ancestor_in AFTER INSERT ON ancestors BEGIN
  UPDATE blocks SET children = children + 1 WHERE id = new.parent;
  UPDATE totals SET n = n + 1, bytes = bytes + new.bytes WHERE kind = 'ancestors';
END;
CREATE TRIGGER ancestor_out AFTER DELETE ON ancestors BEGIN
  UPDATE blocks SET children = children - 1 WHERE id = old.parent;
  UPDATE totals SET n = n - 1, bytes = bytes - old.bytes WHERE kind = 'ancestors';
END;
CREATE TRIGGER name_in AFTER INSERT ON names BEGIN
  UPDATE totals SET n = n + 1, bytes = bytes + new.bytes WHERE kind = 'names';
END;
CREATE TRIGGER name_out AFTER DELETE ON names BEGIN
  UPDATE totals SET n = n - 1, bytes = bytes - old.bytes WHERE kind = 'names';
END;
CREATE TRIGGER segment_in AFTER INSERT ON segments BEGIN
  UPDATE totals SET n = n + 1, bytes = bytes + new.bytes WHERE kind = 'needed';
  UPDATE blocks SET lone = lone + 1 WHERE no = new.owners;
END;
CREATE TRIGGER segment_use AFTER UPDATE ON segments BEGIN
  UPDATE totals SET n = n - 1, bytes = bytes - old.bytes WHERE kind = iif(old.users, 'needed', 'unneeded');
  UPDATE totals SET n = n + 1, bytes = bytes + new.bytes WHERE kind = iif(new.users, 'needed', 'unneeded');
  UPDATE blocks SET lone = lone - 1 WHERE old.users = 1 AND no = old.owners;
  UPDATE blocks SET lone = lone + 1 WHERE new.users = 1 AND no = new.owners;
END;
CREATE TRIGGER segment_out AFTER DELETE ON segments BEGIN
  UPDATE totals SET n = n - 1, bytes = bytes - old.bytes WHERE kind = iif(old.users, 'needed', 'unneeded');
END;
"""
"""``owners``: the sum of the numbers of the blocks that hold a segment, so that of one owner it is that. ``lone``: how
many segments a block has alone. ``last``: when a block was deposited, or a use of it that eviction has seen since."""
USE = (
    "INSERT INTO segments VALUES (?1, ?2, 1, ?3, seal(?1, ?2, 1, ?3)) ON CONFLICT (digest) DO UPDATE SET "
    "users = users + 1, owners = owners + ?3, bytes = iif(users, bytes, ?2), "
    "seal = seal(digest, iif(users, bytes, ?2), users + 1, owners + ?3)"
)
RELEASE = (
    "UPDATE segments SET users = users - 1, owners = owners - ?2, seal = seal(digest, bytes, users - 1, owners - ?2) "
    "WHERE digest = ?1"
)


class Damaged(sqlite3.DatabaseError):
    """A row is not what was written."""


def seal(*values: Any) -> int:
    """A checksum of a row's values."""
    return zlib.crc32(b"\0".join(value if isinstance(value, bytes) else str(value).encode() for value in values))


BLOCK = "id, bytes, parent, fingerprint, n_tokens, raw_bytes, exactness, refs, seal"
"""The columns of a block that :func:`summary_of` takes."""


def summary_of(row: tuple[Any, ...], fingerprints: dict[int, tuple[dict[str, object], dict[str, object]]]) -> Summary:
    """A block's summary from the columns of ``BLOCK``. Raises Damaged."""
    segments = {digest.hex(): n_bytes for digest, n_bytes in refs_of(row)}
    _, n_bytes, parent, fingerprint, n_tokens, raw_bytes, exactness, _, _ = row
    if fingerprint not in fingerprints:
        raise Damaged("a fingerprint is missing")
    parent_id, (content, numerics) = parent.hex() if parent else None, fingerprints[fingerprint]
    return Summary(parent_id, segments, raw_bytes, n_tokens, exactness, content, numerics, n_bytes)


def refs_of(row: tuple[Any, ...]) -> list[tuple[bytes, int]]:
    """Digests and raw bytes of a block's segments, from the columns of ``BLOCK``; none for one that does not read."""
    refs, check = row[-2:]
    if refs is None:
        return []
    if seal(*row[:-1]) != check:
        raise Damaged(f"the row of block {row[0].hex()[:12]} is not what was written")
    return [(refs[at : at + 32], int.from_bytes(refs[at + 32 : at + REF], "little")) for at in range(0, len(refs), REF)]


def blob(digest: str | None) -> bytes | None:
    return None if digest is None else bytes.fromhex(digest)


def statements(script: str) -> Iterator[str]:
    statement = ""
    for line in script.splitlines(keepends=True):
        statement += line
        if sqlite3.complete_statement(statement):
            yield statement
            statement = ""
