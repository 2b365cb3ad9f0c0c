"""``forget``: find what is selected in a store, remove it, and read every file to show that it is gone.

The order is threads, rows, documents, names, blocks, logs, solutions, leftovers: words before what refers to them. A
crash in between leaves a valid store with some of it removed; the same call again finishes. Each step takes the store's
own locks.
"""

from __future__ import annotations

import contextlib
import sqlite3
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import orjson

from agentkv.blocks.turnlog import TurnLog
from agentkv.documents.index import Index
from agentkv.documents.records import DocumentRecord
from agentkv.documents.shelf import Shelf, shelves
from agentkv.engine.base import Engine
from agentkv.errors import CorruptThread, InvalidDocument, StaleDocument, StoreError, UsageError
from agentkv.evidence.files import FILE, PAYLOADS, TORN
from agentkv.flywheel.files import FLYWHEEL, LOCK
from agentkv.forget import databases
from agentkv.forget.selection import Selection, Words
from agentkv.io import fsio, sqlitefiles
from agentkv.io.hashing import sha256
from agentkv.memory.threadlog import ThreadLog, thread_names
from agentkv.records import Ancestor, NamedBlock, ThreadEntry
from agentkv.router.log import DecisionLog
from agentkv.store.catalog import BlockStore
from agentkv.store.files import DECISIONS, ROUTER, children_of, with_descendants
from agentkv.store.registry import ADAPTERS

_LONG = 12
"""A removed text of at least so many characters is looked for elsewhere too: "yes" is everywhere."""
_SEGMENT = ".seg"


@dataclass
class ForgetReport:
    """How many of each kind were removed, or would be. ``could_not``: what had to stay, and why.

    ``remaining``: where words could still be read at the end, when ``files`` files of ``n_bytes`` bytes were read.
    """

    dry_run: bool
    removed: Counter[str] = field(default_factory=Counter)
    could_not: list[str] = field(default_factory=list)
    remaining: list[str] = field(default_factory=list)
    files: int = 0
    n_bytes: int = 0


def forget(
    store: BlockStore,
    selection: Selection,
    *,
    engine: Engine | None = None,
    ledgers: Sequence[Path] = (),
    dry_run: bool = False,
) -> ForgetReport:
    """Remove what is selected from every file of ``store`` and of evidence ``ledgers``; ``dry_run`` only counts.

    ``engine``: a model to decode blocks' token ids, so that blocks of no thread, name or document are found too. Open
    threads and memories of other processes keep what they have in RAM. Raises
    StoreReadError, StoreFull.
    """
    return Forgetting(store, selection, engine, ledgers, dry_run).run()


class Forgetting:
    """One run of :func:`forget`."""

    def __init__(
        self,
        store: BlockStore,
        selection: Selection,
        engine: Engine | None,
        ledgers: Sequence[Path],
        dry_run: bool,
    ) -> None:
        self._store, self._selection, self._engine, self._ledgers = store, selection, engine, list(ledgers)
        for ledger in self._ledgers:
            if not (ledger / FILE).is_file():
                raise UsageError(f"{str(ledger)!r} is not a ledger: there is no {FILE} in it")
        self._words = selection.words
        self._texts: list[str] = []
        self._blocks: set[str] = set()
        self.report = ForgetReport(dry_run)

    def run(self) -> ForgetReport:
        """Find, remove, check."""
        # 1. Threads and items: their removed texts are looked for elsewhere, unless a text is what is selected.
        self._threads()
        self._rows()
        text = self._selection.text
        self._everywhere = Words([text] if text else [removed for removed in self._texts if len(removed) >= _LONG])
        # 2. Documents and names, then the blocks of all of these, then logs.
        self._documents()
        self._names()
        self._remove_blocks()
        self._lines()
        # 3. Other features' files beside the blocks.
        self._flywheel()
        self._leftovers()
        self._ledger_files()
        # 4. Sweep, overwrite, and read everything.
        if not self.report.dry_run:
            self._store.collect()
            for path, reason in sqlitefiles.scrub_all(self._store.root, again=True):
                self.report.could_not.append(f"{path} could not be cleaned: {reason}")
            self._check()
        return self.report

    def _do(self, kind: str, number: int, work: Callable[[], object]) -> None:
        """Count something, and do it unless this is a dry run."""
        self.report.removed[kind] += number
        if number and not self.report.dry_run:
            work()

    # --- threads and items ------------------------------------------------------------------------

    def _threads(self) -> None:
        names = thread_names(self._store.files)
        logs = {name: ThreadLog(self._store.files, name) for name in names}
        entries = {name: list(_readable(log)) for name, log in logs.items()}
        whole = {name for name in names if self._is_whole(name, logs[name], entries[name])}
        others = {e.checkpoint for name in names if name not in whole for e in entries[name]}
        for name, log in logs.items():
            hit = {e.seq for e in entries[name] if name in whole or self._is_selected(log, e)}
            if not hit:
                continue
            own = [e for e in entries[name] if e.seq in _after(entries[name], hit)]
            states = {e.checkpoint for e in own if e.checkpoint}
            self._blocks |= states - others if self._selection.thread or self._selection.user else states
            removed = [e for e in entries[name] if e.seq in hit]
            self._texts += [e.question for e in removed if e.question]
            self.report.removed["turns"] += sum(e.question is not None for e in removed)
            if name in whole:
                self._do("threads", 1, log.remove)
            elif not self.report.dry_run:
                for seq in sorted(hit):
                    log.redact(seq)

    def _is_whole(self, name: str, log: ThreadLog, entries: Sequence[ThreadEntry]) -> bool:
        return self._selection.selects_thread(name) or (
            bool(entries) and all(self._is_old(log, entry) for entry in entries)
        )

    def _is_selected(self, log: ThreadLog, entry: ThreadEntry) -> bool:
        texts = (entry.question, entry.answer, entry.summary)
        return any(map(self._words.are_in, texts)) or self._is_old(log, entry)

    def _is_old(self, log: ThreadLog, entry: ThreadEntry) -> bool:
        with contextlib.suppress(OSError):
            return self._selection.is_before(log.path(entry.seq).stat().st_mtime)
        return False

    def _rows(self) -> None:
        for path in sqlitefiles.files(self._store.root / ADAPTERS):
            try:
                found = databases.rows(path, self._selection, self._words)
                numbers = sum(len(rows) for table, rows in found.items())
                self._texts += [text for rows in found.values() for _, texts in rows for text in texts]
                self._do("rows", numbers, lambda path=path, found=found: databases.delete(path, found))  # type: ignore[misc]
            except sqlite3.Error as error:
                self.report.could_not.append(f"{path} could not be read: {error}")

    # --- logs, documents, names, blocks -----------------------------------------------------------

    def _lines(self) -> None:
        digests = {sha256(text.encode("utf-8", "replace")) for text in self._texts}

        def keep_decision(line: bytes) -> bool:
            entry = _parsed(line)
            goes = entry.get("question_sha256") in digests or self._selection.is_before_day(str(entry.get("time")))
            decision = entry.get("decision")
            labels = decision.get("scores") if isinstance(decision, dict) else None
            goes |= any(map(self._words.are_in, labels or ()))
            return not goes and not self._everywhere.are_in_line(line)

        def keep_turn(line: bytes) -> bool:
            entry = _parsed(line)
            gone = entry.get("block_id") in self._blocks or self._selection.is_before_day(str(entry.get("time")))
            return not gone and not self._words.are_in_line(line)

        dry = self.report.dry_run
        decisions = DecisionLog(self._store.root / DECISIONS, questions=True)
        self.report.removed["decisions"] += decisions.rewrite(keep_decision, dry_run=dry)
        self.report.removed["turn log lines"] += TurnLog(self._store.root).rewrite(keep_turn, dry_run=dry)

    def _documents(self) -> None:
        if not self._words:
            return
        for shelf in list(shelves(self._store, lambda _: None)):
            hit = {key: record for key, record in shelf.all().items() if self._is_in_source(shelf, record)}
            hit |= {k: r for k, r in shelf.all().items() if self._words.are_in(r.model_dump_json())}
            self._blocks |= {chunk.block_id for record in hit.values() for chunk in record.chunks}
            self._do("documents", len(hit), lambda shelf=shelf, hit=hit: _forget_documents(shelf, hit))  # type: ignore[misc]

    def _is_in_source(self, shelf: Shelf, record: DocumentRecord) -> bool:
        """Whether a document holds words, in its bytes or in its decoded text."""
        with contextlib.suppress(StoreError):
            if self._words.are_in_bytes(shelf.sources.read(record.sha256) or b""):
                return True
        with contextlib.suppress(StaleDocument, InvalidDocument):
            return self._words.are_in(shelf.readable(record).text)
        return False

    def _names(self) -> None:
        for named in self._store.names(on_error=lambda _: None):
            fields = (named.name, named.description, named.source, self._text_of(named))
            if any(map(self._words.are_in, fields)):
                self._blocks.add(named.block_id)
                where = named.kind, named.name, named.fingerprint_id
                self._do("names", 1, lambda where=where: self._store.remove_name(*where))  # type: ignore[misc]

    def _text_of(self, named: NamedBlock) -> str | None:
        with contextlib.suppress(StoreError):
            return self._store.text(named.source_sha256) if named.source_sha256 else None
        return None

    def _remove_blocks(self) -> None:
        if self._engine is not None and self._words:
            self._blocks |= _holding(self._store, self._engine, self._everywhere)[0]
        doomed = with_descendants(children_of(self._store.files.parents()), sorted(self._blocks))
        there = [block_id for block_id in doomed if self._store.exists(block_id)]
        packed = sum(self._store.imported(block_id) is not None for block_id in there)
        if packed:
            self.report.could_not.append(f"{packed} of the blocks came in packs; the packs' own files are not here")
        self._do("blocks", len(there), lambda: self._store.take_away(there))

    # --- beside the blocks ------------------------------------------------------------------------

    def _flywheel(self) -> None:
        """Solutions, standings and tasks that hold words or are old enough, with all files of the same task."""
        files = [path for path in _files(self._store.root / FLYWHEEL) if path.name != LOCK]
        data = {path: _bytes(path) for path in files}
        hit = [path for path in files if self._words.are_in_bytes(data[path]) or self._is_old_file(path)]
        tasks = {path.stem for path in hit if path.parent.parent.name != "solutions"}
        tasks |= {str(_parsed(data[path].partition(b"\n")[2]).get("task_id", "")) for path in hit} - {""}
        gone = {path for path in files if path in hit or any(task.encode() in data[path] for task in tasks)}
        gone |= {path for path in files if path.stem in tasks}
        self._do("solutions and tasks", len(gone), lambda: _remove(gone))

    def _leftovers(self) -> None:
        """The router's learned questions, and files that a crash or a repair has left."""
        root, files = self._store.root, self._store.files
        learned = [path for path in _files(root / ROUTER) if self._words.are_in_bytes(_bytes(path))]
        self._do("routers' learned questions", len(learned), lambda: _remove(learned))
        leftovers = [*_files(files.temporaries), *_files(files.quarantine)]
        hit = [path for path in leftovers if self._everywhere.are_in_bytes(_bytes(path)) or self._is_old_file(path)]
        self._do("left-over files", len(hit), lambda: _remove(hit))

    def _ledger_files(self) -> None:
        for ledger in self._ledgers:
            hold = [*_files(ledger / PAYLOADS), *_files(ledger / TORN)]
            hold = [path for path in hold if self._words.are_in_bytes(_bytes(path)) or self._is_old_file(path)]
            self._do("ledger payloads", len(hold), lambda hold=hold: _remove(hold))  # type: ignore[misc]
            lines = sum(self._words.are_in_bytes(line) for line in _bytes(ledger / FILE).splitlines())
            if lines:
                self.report.could_not.append(
                    f"{lines} lines of {ledger / FILE} hold words inline: they are chained by hashes and stay. Remove "
                    "the ledger, or record with payloads='files'"
                )
            if hold:
                self.report.could_not.append(f"the digests of {len(hold)} payloads stay in {ledger / FILE}")

    def _is_old_file(self, path: Path) -> bool:
        with contextlib.suppress(OSError):
            return self._selection.is_before(path.stat().st_mtime)
        return False

    # --- the final check --------------------------------------------------------------------------

    def _check(self) -> None:
        inline = {ledger / FILE for ledger in self._ledgers}
        found: list[str] = []
        for root in (self._store.root, *self._ledgers):
            for path in _files(root):
                data = _bytes(path)
                self.report.files, self.report.n_bytes = self.report.files + 1, self.report.n_bytes + len(data)
                held = self._everywhere.are_in_raw if path.suffix == _SEGMENT else self._everywhere.are_in_bytes
                if path not in inline and held(data):
                    found.append(str(path))
        if not self._words:  # others may have said the same
            self.report.could_not += [f"a text that was removed is also in {path}" for path in found]
            return
        unread = sum(1 for _ in self._store.block_ids())
        if self._engine is not None:
            held_by, unread = _holding(self._store, self._engine, self._words)
            found += [f"block {block_id}" for block_id in sorted(held_by)]
        if unread:
            what = f"the token ids of the {unread:,} blocks that are left were not decoded"
            self.report.could_not.append(f"{what}: that takes their model (--model)")
        self.report.remaining = found


def _holding(store: BlockStore, engine: Engine, words: Words) -> tuple[set[str], int]:
    """The blocks of ``engine``'s model whose token ids, decoded, hold words; and how many blocks other models have.

    Removed blocks count while their ids are kept. Words that begin in a parent are found in the block. Raises
    CorruptBlock, StoreReadError.
    """
    known = {item.block_id: item for item in store.files.ancestors.all()}
    mine, others = engine.fingerprint(), 0
    for block_id in store.block_ids():
        manifest = store.manifest(block_id)
        if manifest is None:
            continue
        if manifest.fingerprint.content.get("model_sha256") != mine.content.get("model_sha256"):
            others += 1
            continue
        known[block_id] = store.files.ancestor_of(block_id) or known[block_id]
    tails: dict[str, bytes] = {}
    found = set()
    for item in _parents_first(known):
        before = tails.get(item.parent_id or "", b"")
        text = before + b"".join(engine.token_bytes(token) for token in item.tokens if token < engine.info.n_vocab)
        tails[item.block_id] = text[-4 * words.longest :] if words.longest else b""
        if words.are_in_bytes(text):
            found.add(item.block_id)
    return found, others


def _parents_first(known: dict[str, Ancestor]) -> list[Ancestor]:
    return sorted(known.values(), key=lambda item: item.n_tokens)


def _readable(log: ThreadLog) -> Iterator[ThreadEntry]:
    for seq in log.numbers():
        with contextlib.suppress(CorruptThread):
            yield log.read(seq)


def _after(entries: Iterable[ThreadEntry], hit: set[int]) -> set[int]:
    """These entries, and those after any of them: their states hold the same words."""
    found = set(hit)
    for entry in sorted(entries, key=lambda entry: entry.seq):
        if entry.after in found:
            found.add(entry.seq)
    return found


def _forget_documents(shelf: Shelf, keys: Iterable[str]) -> None:
    shelf.forget(keys)
    if shelf.index_path.exists():
        with Index(shelf):  # updates it: the words go
            pass


def _parsed(line: bytes) -> dict[str, object]:
    with contextlib.suppress(orjson.JSONDecodeError):
        found = orjson.loads(line)
        return found if isinstance(found, dict) else {}
    return {}


def _files(folder: Path) -> list[Path]:
    """Every regular file below a folder, sorted; links are skipped."""
    return sorted(path for path in folder.rglob("*") if path.is_file() and not path.is_symlink())


def _bytes(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except FileNotFoundError:
        return b""
    except OSError as error:
        raise fsio.translated(error, path) from error


def _remove(paths: Iterable[Path]) -> None:
    for path in paths:
        fsio.remove_file(path)
