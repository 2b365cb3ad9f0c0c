"""The catalogue's index: what lists, routing and eviction need of every block and name, in one SQLite file (WAL).

1. Derived, never the truth: made from ``manifests/``, ``names/`` and ``ancestors/``, and may be deleted at any time.
2. A row follows its file in the transaction that is open around the file's rename or unlink (:meth:`Index.following`).
3. Of every folder the index keeps the mtime at which it knew all that is in it. Another mtime: the folder is listed
   again, and the files of other identity (inode, size, mtime) are read. Thus a crash between a file and its row, and a
   writer that knows nothing of the index, are noticed by what they changed; no journal could show the latter.
4. Clocks tick in milliseconds, so after its own change the index moves the folder's mtime on by a nanosecond: no later
   change can leave that value. Where it may not, the folder counts as changed until it is older than a tick.
5. A writer that knows nothing of the index and changes the folder within the microseconds between our looking at the
   mtime and setting it would be missed: such folders are marked, and listed before anything is removed for them.
6. Every row carries a checksum or a sealed file, and counts are compared: damage throws the index away.
7. Where it cannot be used (read-only store, network file system, no WAL, busy, full disk) files are read as before.
"""

from __future__ import annotations

import contextlib
import os
import sqlite3
import stat
import threading
import time
import weakref
from collections.abc import Callable, Collection, Iterator
from pathlib import Path
from typing import Any, TypeVar

import orjson

from agentkv.errors import StoreError
from agentkv.io import fsio, sqlitefiles
from agentkv.io.lock import StoreLock
from agentkv.io.mounts import is_network
from agentkv.notices import warn
from agentkv.records import Ancestor, Manifest, NamedBlock
from agentkv.store import format as formats
from agentkv.store.format import Malformed, Summary, is_digest
from agentkv.store.indexrows import BLOCK, RELEASE, SCHEMA, USE, VERSION, Damaged, blob, refs_of, seal, statements
from agentkv.store.recordfiles import RecordFiles
from agentkv.store.segments import SegmentStore

T = TypeVar("T")

INDEX = "agentkv-index.sqlite"
LEAST = 256
"""Blocks and names from which on an index is made: fewer are read as quickly."""
_BUSY_S, _PAUSE_S, _LONG_S, _SMALL_S = 2.0, 5.0, 2.0, 1.0
_TEXT_BYTES = 64 << 10
"""The longest text of a described name that is kept with it, so that routing opens no file."""


class Index:
    """The index of the store in ``root``; made when a list of many blocks is first asked for.

    Usable from several threads and processes; in a forked child it is left alone, and files are read.
    """

    def __init__(
        self,
        root: Path,
        lock: StoreLock,
        segments: SegmentStore,
        manifests: RecordFiles[Manifest],
        names: RecordFiles[NamedBlock],
        ancestors: RecordFiles[Ancestor],
        texts: RecordFiles[str],
    ) -> None:
        self.path, self._root, self._store_lock, self._segments = root / INDEX, root, lock, segments
        self.manifests, self.names, self.ancestors, self._texts = manifests, names, ancestors, texts
        self._lock, self._pid = threading.RLock(), os.getpid()
        self._open: dict[str, Any] = {}
        self._small, self._paused, self._reason, self._warned, self._discarded = 0.0, 0.0, "", False, False
        self._at_exit = weakref.finalize(self, _close, self._open, self._pid)

    # --- the connection ---

    def close(self) -> None:
        """Close the file; a later use opens it again."""
        if os.getpid() == self._pid:
            with self._lock:
                _close(self._open, self._pid)

    def discard(self) -> None:
        """Delete the index: it is made again when it is next needed."""
        with self._lock:
            _close(self._open, self._pid)
            for suffix in ("", "-wal", "-shm"):  # in this order a crash leaves no log that a new file would replay
                with contextlib.suppress(OSError):
                    self.path.with_name(self.path.name + suffix).unlink()

    def _connection(self, create: bool) -> sqlite3.Connection | None:
        """The open file; None where there is none, unless it may be made. Raises sqlite3.Error, OSError."""
        if time.monotonic() < self._paused:
            return None
        try:
            found = os.lstat(self.path)
        except FileNotFoundError:
            found = None
        if self._open and (found is None or (found.st_dev, found.st_ino) != self._open["identity"]):
            _close(self._open, self._pid)  # it was deleted, or another process has made it again
        if self._open:
            connection: sqlite3.Connection = self._open["connection"]
            return connection
        if found is None and not create:
            return None
        if found is not None and not stat.S_ISREG(found.st_mode):
            raise sqlite3.OperationalError(f"{INDEX} is not a file")
        connection = self._opened()
        info = os.lstat(self.path)
        self._open.update(connection=connection, identity=(info.st_dev, info.st_ino))
        return connection

    def _opened(self) -> sqlite3.Connection:
        if is_network(self._root):
            raise sqlite3.OperationalError("a network file system")
        uri = f"{self.path.as_uri()}?mode=rwc"
        db = sqlitefiles.connect(
            uri, uri=True, timeout=_BUSY_S, isolation_level=None, check_same_thread=False, cached_statements=256
        )
        try:
            db.create_function("seal", -1, seal, deterministic=True)
            if db.execute("PRAGMA journal_mode = WAL").fetchone()[0] != "wal":
                raise sqlite3.OperationalError("the file system has no write-ahead log")
            db.execute("PRAGMA synchronous = NORMAL")  # after a power failure it is an earlier one, never half of one
            version = db.execute("PRAGMA user_version").fetchone()[0]
            if version not in (0, VERSION):
                raise Damaged(f"it is of version {version}")
            if version == 0:
                db.execute("BEGIN IMMEDIATE")
                if db.execute("PRAGMA user_version").fetchone()[0] == 0:  # else another process was quicker
                    for statement in statements(SCHEMA):
                        db.execute(statement)
                    sqlitefiles.mark_new(db)
                    db.execute(f"PRAGMA user_version = {VERSION}")
                db.execute("COMMIT")
        except BaseException:
            db.close()
            raise
        return db

    @contextlib.contextmanager
    def _used(self, *, create: bool) -> Iterator[sqlite3.Connection | None]:
        """A write transaction; None where the index cannot be used. What SQLite refuses is undone, never raised.

        Ends with everything undone, and the error going on, if the body raises anything else.
        """
        if os.getpid() != self._pid:  # in a forked child, where the lock may be held for ever
            yield None
            return
        with self._lock:
            db = None
            try:
                db = self._connection(create)
                if db is not None:
                    db.execute("BEGIN IMMEDIATE")
            except (sqlite3.Error, OSError) as error:
                self._failed(error)
                db = None
            try:
                yield db
                if db is not None:
                    db.execute("COMMIT")
            except sqlite3.Error as error:
                _roll_back(db)
                self._failed(error)
            except BaseException:
                _roll_back(db)
                raise

    def _failed(self, error: Exception) -> None:
        """Throw away what is damaged; leave alone for a while what cannot be used."""
        self._reason, self._discarded = str(error), False
        damaged = isinstance(error, sqlite3.DatabaseError) and not isinstance(
            error, sqlite3.OperationalError | sqlite3.ProgrammingError
        )
        if damaged or "malformed" in self._reason or "no such" in self._reason:
            self.discard()
            self._discarded = not self.path.exists()
        if not self._discarded:
            self._paused = time.monotonic() + _PAUSE_S

    # --- following the files ---

    @contextlib.contextmanager
    def following(self, folder: RecordFiles[Any], digest: str, data: bytes | None) -> Iterator[None]:
        """Around the rename that puts ``data`` there, or (None) the unlink: the row follows, where there is an index.

        Whatever goes wrong with the index, the file is what counts: its folder then shows that it changed.
        """
        with self._used(create=False) as db:
            place = folder.path(digest).parent
            before = mtime_of(place) if db is not None else None
            yield
            if db is None or before is None or self.known_mtime(db, place) != before:
                return  # what else changed there is found when the folder is looked through
            self._forget(db, folder, digest)
            if data is not None:
                self._insert(db, folder, digest, data)
            moved = _move_on(place, before)
            certain = self._store_lock.is_exclusive
            db.execute(
                "UPDATE places SET mtime = ?, certain = certain AND ? WHERE place = ?",
                (-1 if moved is None else moved, certain, self._key(place)),
            )

    def resize(self, digests: list[str]) -> None:
        """Segments that were there for blocks already were written again, perhaps in other sizes."""
        with self._used(create=False) as db:
            for digest in digests if db is not None else ():
                size, key = self._segments.stored_bytes(digest) or 0, bytes.fromhex(digest)
                db.execute(  # type: ignore[union-attr]
                    "UPDATE segments SET bytes = ?2, seal = seal(digest, ?2, users, owners) WHERE digest = ?1",
                    (key, size),
                )

    def ask(self, work: Callable[[sqlite3.Connection], T], *, certain: Collection[RecordFiles[Any]] = ()) -> T | None:
        """What ``work`` gives in a transaction in which the index says what the folders hold.

        None where files have to be read instead. ``certain``: of these folders also those are listed that a writer
        without an index could have changed unseen.
        """
        for _ in range(2):  # once more if the index was damaged: then it has been thrown away
            self._discarded = False
            outcome = self._asked(work, certain)
            if outcome is not None:
                return outcome[0]
            if not self._discarded:
                break
        if not self._warned and os.getpid() == self._pid and self._is_large():
            self._warned = True
            warn(f"the index of the store {self._root} cannot be used ({self._reason or 'busy'}): every file is read")
        return None

    def is_current(self) -> bool:
        """Bring the index up to date; whether it is, or there is none."""
        return not self.path.exists() or self.ask(lambda _: True) is not None

    def _asked(self, work: Callable[[sqlite3.Connection], T], certain: Collection[RecordFiles[Any]]) -> tuple[T] | None:
        try:
            with self._used(create=self.path.exists() or self._is_large()) as db:
                if db is None:
                    return None
                started = time.monotonic()
                is_new = db.execute("SELECT count(*) FROM places").fetchone()[0] == 0
                self._mend(db, certain)
                seconds = time.monotonic() - started
                if seconds > _LONG_S:
                    what = "made" if is_new else "brought up to date"
                    warn(f"the index of the store {self._root} was {what} from its files, in {seconds:.1f} s")
                return (work(db),)
        except (OSError, StoreError):  # whoever reads the files says what is wrong with them
            pass
        return None

    def _is_large(self) -> bool:
        """Whether an index is worth it; of a small store that is taken to hold for a second."""
        n, now = 0, time.monotonic()
        if now < self._small:
            return False
        with contextlib.suppress(OSError):
            for folder in (self.names, self.manifests):
                for place in self.places(folder):
                    with os.scandir(place) as entries:
                        for _ in entries:
                            n += 1
                            if n >= LEAST:
                                return True
        self._small = now + _SMALL_S
        return False

    def _mend(self, db: sqlite3.Connection, certain: Collection[RecordFiles[Any]]) -> None:
        """Bring every folder up to date that is not as it was. Raises OSError, StoreError, sqlite3.Error."""
        known = {
            place: (mtime, is_certain) for place, mtime, is_certain in db.execute("SELECT * FROM places").fetchall()
        }
        looked = False
        for folder in (self.manifests, self.ancestors, self.names):
            fsio.refuse_links(self._root, folder.root / "x")
            for place in self._place_names(folder):
                mtime, is_certain = known.pop(place, (None, True))
                if mtime_of(f"{self._root}/{place}") != mtime or (folder in certain and not is_certain):
                    self._look_through(db, folder, self._root / place)
                    looked = True
        for key in known:  # a sub-folder that is gone, with all that was in it
            place = self._root / key
            folder = next(f for f in (self.manifests, self.ancestors, self.names) if f.root in (place, place.parent))
            for digest in self.rows(db, folder, place):
                self._forget(db, folder, digest)
            db.execute("DELETE FROM places WHERE place = ?", (key,))
        if looked or known:
            free = [row[0] for row in db.execute("SELECT digest FROM segments WHERE users = 0")]
            gone = [(digest,) for digest in free if not self._segments.has(digest.hex())]
            db.executemany("DELETE FROM segments WHERE digest = ?", gone)

    def _look_through(self, db: sqlite3.Connection, folder: RecordFiles[Any], place: Path) -> None:
        """Read what is new or replaced in a folder, forget what is gone."""
        fsio.refuse_links(self._root, place / "x")
        before = _move_on(place, mtime_of(place))
        found = dict(entries_of(folder, place))
        rows = self.rows(db, folder, place)
        whole = True
        for digest in rows.keys() - found.keys():
            self._forget(db, folder, digest)
        for digest, identity in found.items():
            if rows.get(digest) == identity:
                continue
            self._forget(db, folder, digest)
            try:
                data = fsio.read_regular(folder.path(digest), folder.limit)
            except StoreError:  # not now: another time it may be
                data, whole = b"", False
            if data is not None:
                self._insert(db, folder, digest, data)
        is_whole = whole and mtime_of(place) == before
        self._note(db, place, before if is_whole else None, certain=True)

    def rows(self, db: sqlite3.Connection, folder: RecordFiles[Any], place: Path) -> dict[str, tuple[int, int, int]]:
        """What is known to be in a folder: size, mtime and inode by digest."""
        if folder.sharded and place == folder.root:
            return {}
        where, bounds = "", list[bytes]()
        if folder.sharded:
            first = bytes.fromhex(place.name)
            where, bounds = " WHERE id BETWEEN ? AND ?", [first + bytes(31), first + b"\xff" * 31]
        query = f"SELECT id, bytes, mtime, inode FROM {self._table(folder)}{where}"
        return {row[0].hex(): row[1:] for row in db.execute(query, bounds)}

    def places(self, folder: RecordFiles[Any]) -> list[Path]:
        """A folder and its sub-folders."""
        return [self._root / name for name in self._place_names(folder)]

    def _place_names(self, folder: RecordFiles[Any]) -> list[str]:
        """The same as they are called in ``places``; strings, since there are hundreds and each use looks at them."""
        name = folder.root.name
        return [name, *(f"{name}/{shard}" for shard in (_shards(folder.root) if folder.sharded else ()))]

    def _table(self, folder: RecordFiles[Any]) -> str:
        tables = {self.manifests.root: "blocks", self.names.root: "names", self.ancestors.root: "ancestors"}
        return tables[folder.root]

    def _key(self, place: Path) -> str:
        return str(place)[len(str(self._root)) + 1 :].replace(os.sep, "/")

    def known_mtime(self, db: sqlite3.Connection, place: Path) -> int | None:
        """At which mtime of a folder everything in it was known."""
        row = db.execute("SELECT mtime FROM places WHERE place = ?", (self._key(place),)).fetchone()
        return row[0] if row else None

    # --- rows ---

    def _insert(self, db: sqlite3.Connection, folder: RecordFiles[Any], digest: str, data: bytes) -> None:
        """The row of a file that holds ``data``; one of nothing but its identity if that does not read."""
        try:
            info = os.lstat(folder.path(digest))
        except FileNotFoundError:
            return
        row = bytes.fromhex(digest), info.st_size, info.st_mtime_ns, info.st_ino
        try:
            if folder.root == self.manifests.root:
                self._insert_block(db, row, formats.summarise(data))
            elif folder.root == self.names.root:
                self._insert_name(db, row, self.names.decode(data, digest), data)
            else:
                parent = self.ancestors.decode(data, digest).parent_id
                db.execute("INSERT INTO ancestors VALUES (?, ?, ?, ?, ?, 1)", (*row, blob(parent)))
        except Malformed:
            extra = ", parent, is_read) VALUES (?, ?, ?, ?, NULL, 0)"
            extra = extra if folder.root == self.ancestors.root else ") VALUES (?, ?, ?, ?)"
            db.execute(f"INSERT INTO {self._table(folder)} (id, bytes, mtime, inode{extra}", row)

    def _insert_block(self, db: sqlite3.Connection, row: tuple[bytes, int, int, int], block: Summary) -> None:
        fingerprint, body = bytes.fromhex(block.fingerprint_id), orjson.dumps([block.content, block.numerics])
        db.execute("INSERT OR IGNORE INTO fingerprints (id, body) VALUES (?, ?)", (fingerprint, body))
        (number,) = db.execute("SELECT no FROM fingerprints WHERE id = ?", (fingerprint,)).fetchone()
        refs = b"".join(bytes.fromhex(key) + n_bytes.to_bytes(8, "little") for key, n_bytes in block.segments.items())
        facts = blob(block.parent_id), number, block.n_tokens, block.raw_bytes, block.exactness, refs
        columns = "id, bytes, mtime, inode, parent, fingerprint, n_tokens, raw_bytes, exactness, refs, seal, last"
        no = db.execute(
            f"INSERT INTO blocks ({columns}) VALUES ({', '.join('?' * 12)})",
            (*row, *facts, seal(*row[:2], *facts), row[2] / 1e9),
        ).lastrowid
        for digest in block.segments:
            key = bytes.fromhex(digest)
            found = db.execute("SELECT users FROM segments WHERE digest = ?", (key,)).fetchone()
            size = 0 if found and found[0] else self._segments.stored_bytes(digest) or 0
            db.execute(USE, (key, size, no))

    def _insert_name(
        self, db: sqlite3.Connection, row: tuple[bytes, int, int, int], named: NamedBlock, data: bytes
    ) -> None:
        text = None
        if named.description and named.source_sha256 is not None:
            with contextlib.suppress(StoreError):  # too long, or gone: whoever wants it reads its file
                text = fsio.read_regular(self._texts.path(named.source_sha256), _TEXT_BYTES)
        where = named.kind, named.name, named.fingerprint_id, named.block_id, named.source_sha256
        db.execute(
            f"INSERT INTO names VALUES ({', '.join('?' * 12)})",
            (*row, *where, bool(named.description), data, text),
        )

    def _forget(self, db: sqlite3.Connection, folder: RecordFiles[Any], digest: str) -> None:
        """Drop a file's row, if there is one."""
        key = bytes.fromhex(digest)
        if folder.root == self.manifests.root:
            self.drop_block(db, key)
        else:
            db.execute(f"DELETE FROM {self._table(folder)} WHERE id = ?", (key,))

    @staticmethod
    def drop_block(db: sqlite3.Connection, block_id: bytes) -> int:
        """Drop a block's row and its uses of segments; the bytes of those that no block needs any more."""
        row = db.execute(f"SELECT no, {BLOCK} FROM blocks WHERE id = ?", (block_id,)).fetchone()
        if row is None:
            return 0
        freed = 0
        for digest, _ in refs_of(row[1:]):
            found = db.execute("SELECT * FROM segments WHERE digest = ?", (digest,)).fetchone()
            if found is None or seal(*found[:4]) != found[4] or found[2] < 1:
                raise Damaged(f"the row of segment {digest.hex()[:12]} is not what was written")
            db.execute(RELEASE, (digest, row[0]))
            freed += found[1] if found[2] == 1 else 0
        db.execute("DELETE FROM blocks WHERE no = ?", (row[0],))
        return freed

    def _note(self, db: sqlite3.Connection, place: Path, mtime: int | None, certain: bool) -> None:
        """A folder was looked through, and left at that mtime (None: it has to be looked through again)."""
        values = self._key(place), -1 if mtime is None else mtime, certain
        db.execute("INSERT OR REPLACE INTO places VALUES (?, ?, ?)", values)


def mtime_of(place: Path | str) -> int | None:
    """A folder's mtime in nanoseconds; None if there is none. Raises OSError."""
    try:
        return os.lstat(place).st_mtime_ns
    except FileNotFoundError:
        return None


def _move_on(place: Path, before: int | None) -> int | None:
    """Give a folder an mtime that no change of it can leave; None where that is not known to be so."""
    try:
        info = os.lstat(place)
        mtime = max(info.st_mtime_ns, before or 0) + 1
        os.utime(place, ns=(info.st_atime_ns, mtime), follow_symlinks=False)
        return mtime if os.lstat(place).st_mtime_ns == mtime else None
    except FileNotFoundError:
        return None
    except (OSError, NotImplementedError):  # somebody else's folder
        return info.st_mtime_ns if fsio.is_settled(fsio.identity_of(info)) else None


def _shards(root: Path) -> list[str]:
    try:
        with os.scandir(root) as entries:
            return [entry.name for entry in entries if len(entry.name) == 2 and is_digest(entry.name * 32)]
    except FileNotFoundError:
        return []


def entries_of(folder: RecordFiles[Any], place: Path) -> Iterator[tuple[str, tuple[int, int, int]]]:
    """Digest, and size, mtime and inode of each record's file in a folder; of one with sub-folders none."""
    if folder.sharded and place == folder.root:
        return
    try:
        with os.scandir(place) as entries:
            for entry in entries:
                digest = entry.name.removesuffix(folder.suffix)
                if not is_digest(digest) or entry.name != digest + folder.suffix:
                    continue
                if folder.sharded and digest[:2] != place.name:
                    continue
                with contextlib.suppress(FileNotFoundError):
                    info = entry.stat(follow_symlinks=False)
                    if stat.S_ISREG(info.st_mode):
                        yield digest, (info.st_size, info.st_mtime_ns, info.st_ino)
    except FileNotFoundError:
        return


def _roll_back(db: sqlite3.Connection | None) -> None:
    with contextlib.suppress(sqlite3.Error):
        if db is not None and db.in_transaction:
            db.execute("ROLLBACK")


def _close(opened: dict[str, Any], pid: int) -> None:
    """Close the file, but for that of the parent of a fork: its locks and its log are the parent's."""
    connection = opened.pop("connection", None)
    opened.clear()
    if connection is not None and pid == os.getpid():
        with contextlib.suppress(sqlite3.Error):
            connection.close()
    elif connection is not None:
        _inherited.append(connection)


_inherited: list[sqlite3.Connection] = []
