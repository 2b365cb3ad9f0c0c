"""Adding files to a corpus: a plan that writes nothing, and its execution, which may be cut short at any moment.

Order of the work: blocks of windows that are gone are removed, then each file's source and record are written, then
the index is brought in step, then (eager) windows that are not stored are read. A crash after any step leaves a corpus
that can be used; the same command goes on where it stopped, because a window's id says whether it is there.
"""

from __future__ import annotations

import contextlib
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from agentkv.blocks.blocks import Blocks
from agentkv.blocks.checkpoints import run_self_test
from agentkv.documents.charset import By, decodes
from agentkv.documents.gather import Found, absolute, gather, is_below, root_of
from agentkv.documents.index import Index
from agentkv.documents.readable import VERSION, readable
from agentkv.documents.reading import Depositor, Reader
from agentkv.documents.records import DocumentRecord, WindowRecord, document_key
from agentkv.documents.shelf import Shelf
from agentkv.documents.source import read_source, read_text_source
from agentkv.documents.split import block_text
from agentkv.engine.base import Cancellation
from agentkv.errors import (
    AgentKVError,
    CorruptBlock,
    InexactBlock,
    InvalidDocument,
    OverBudget,
    StaleDocument,
    StoreFull,
)
from agentkv.io.hashing import sha256
from agentkv.notices import warn
from agentkv.records import SelfTest
from agentkv.store.catalog import BlockStore

OnFile = Callable[[int, int, str], None]
"""Called with files done, files in all, and the file's path."""
OnWindow = Callable[[DocumentRecord, WindowRecord], None]
"""Called before a window is read."""
Until = Callable[[], bool]
"""Asked before a window is read; true ends the reading there, and the rest is for another time."""

_SAMPLE_FROM, _SAMPLE_TOKENS = 4, 4096
_MUCH_SECONDS, _MUCH_BYTES = 60.0, 1_000_000_000
_NAMED = 5


@dataclass(frozen=True)
class Planned:
    """A file to write: ``change`` is ``new``, ``changed``, or ``reread``, as an earlier version read it otherwise."""

    key: str
    file: Path
    record: DocumentRecord
    change: str


@dataclass(frozen=True)
class Sample:
    """What reading one window took: ``seconds`` with its proof and its storing, ``n_bytes`` on disk."""

    n_tokens: int
    seconds: float
    n_bytes: int


@dataclass(frozen=True)
class Forecast:
    """What reading all windows of a plan would take: seconds, and bytes on disk."""

    seconds: float
    n_bytes: float

    @property
    def is_much(self) -> bool:
        """Whether it is more than a minute or a gigabyte, so that it is not to be done unasked."""
        return self.seconds > _MUCH_SECONDS or self.n_bytes > _MUCH_BYTES


@dataclass(frozen=True)
class Plan:
    """What adding would do. ``missing``: windows that are not stored, of these files and of those there already.

    ``removed``: documents whose file is gone from a path that is added again, by key. ``passed_over``: files in folders
    whose kind is not known. ``empty``: files without any text.
    """

    planned: tuple[Planned, ...]
    unchanged: tuple[DocumentRecord, ...]
    removed: dict[str, DocumentRecord]
    failed: tuple[InvalidDocument, ...]
    passed_over: tuple[Path, ...]
    missing: tuple[tuple[DocumentRecord, WindowRecord], ...]

    @property
    def documents(self) -> list[DocumentRecord]:
        """What these paths come to: new, changed and unchanged."""
        return [*(item.record for item in self.planned), *self.unchanged]

    @property
    def n_windows(self) -> int:
        """Windows of all of them."""
        return sum(len(record.windows) for record in self.documents)

    @property
    def n_tokens(self) -> int:
        """Tokens of all of them, headers and overlaps included."""
        return sum(record.n_tokens for record in self.documents)

    @property
    def missing_tokens(self) -> int:
        """Tokens of the windows that are not stored."""
        return sum(window.n_tokens for _, window in self.missing)

    @property
    def guessed(self) -> list[DocumentRecord]:
        """New and changed files whose encoding is a guess."""
        return [item.record for item in self.planned if item.record.encoding_by == "guessed"]

    def forecast(self, sample: Sample | None) -> Forecast | None:
        """What all windows take that are not stored, by one of them."""
        if sample is None:
            return None
        share = self.missing_tokens / max(sample.n_tokens, 1)
        return Forecast(sample.seconds * share, sample.n_bytes * share)


@dataclass
class AddReport:
    """What was done.

    ``read``: chunks prefilled and stored now; ``read_tokens``: their tokens; ``stopped``: why the rest was left for
    later, if it was.
    """

    plan: Plan
    read: int = 0
    read_tokens: int = 0
    seconds: float = 0.0
    retired_blocks: int = 0
    stopped: AgentKVError | None = None
    skipped: list[StaleDocument] = field(default_factory=list)


class Adding:
    """Plans and carries out, for one corpus."""

    def __init__(self, shelf: Shelf, reader: Reader) -> None:
        self._shelf, self._reader = shelf, reader
        self._tested: SelfTest | None = None

    # --- the plan ---

    def plan(
        self,
        paths: Sequence[Path],
        include: Sequence[str] = (),
        exclude: Sequence[str] = (),
        on_file: OnFile | None = None,
        cancellation: Cancellation | None = None,
        encoding: str | None = None,
    ) -> Plan:
        """Look at every file and cut those that are new or changed. Raises UsageError, Cancelled.

        A path that is not there any more means the file of the corpus that lay there, and retires it. ``encoding``: of
        all the files, instead of what they say or look like.
        """
        there = self._shelf.all()
        gone = {key: record for key, record in there.items() if record.origin in _absent(paths)}
        left = {record.origin for record in gone.values()}
        found, passed_over = gather([path for path in paths if root_of(path) not in left], include, exclude)
        plan = self._planned(found, there, passed_over, encoding, on_file, cancellation)
        roots = {root_of(path) for path in paths}
        seen = {document_key(item.origin) for item in found}
        unseen = {key: record for key, record in there.items() if key not in seen and _is_of(record, roots)}
        gone |= {key: record for key, record in unseen.items() if not Path(record.origin).exists()}
        _tell_guessed(plan.guessed)
        return replace(plan, removed=gone)

    def changed(self, cancellation: Cancellation | None = None) -> Plan:
        """The plan that reads anew the files that have changed since they were added. Raises Cancelled."""
        there = self._shelf.all()
        stale = [record for record in there.values() if self._shelf.origin_state(record) == "changed"]
        found = [Found(Path(record.origin), record.path, record.root, record.kind) for record in stale]
        plan = self._planned(found, there, [], None, None, cancellation)
        _tell_guessed(plan.guessed)
        return plan

    def _planned(
        self,
        found: Sequence[Found],
        there: dict[str, DocumentRecord],
        passed_over: Sequence[Path],
        encoding: str | None,
        on_file: OnFile | None,
        cancellation: Cancellation | None,
    ) -> Plan:
        planned, unchanged, failed = [], [], []
        for done, item in enumerate(found):
            _check(cancellation)
            if on_file is not None:
                on_file(done, len(found), item.path)
            key = document_key(item.origin)
            try:
                record, change = self._record(_as_known(item, there.get(key)), there.get(key), encoding)
            except InvalidDocument as error:
                failed.append(error)
                continue
            if change is None:
                unchanged.append(record)
            else:
                planned.append(Planned(key, item.file, record, change))
        documents = [*(item.record for item in planned), *unchanged]
        stored = self._reader.memory.store.exists
        missing = [(record, window) for record in documents for window in record.windows if not stored(window.block_id)]
        return Plan(tuple(planned), tuple(unchanged), {}, tuple(failed), tuple(passed_over), tuple(missing))

    def _record(
        self, item: Found, before: DocumentRecord | None, encoding: str | None
    ) -> tuple[DocumentRecord, str | None]:
        """The file's record and what changed: see :class:`Planned`; None for nothing. Raises InvalidDocument."""
        data, corpus = read_text_source(item.file), self._reader.record
        known: tuple[str | None, By] = (encoding, "known" if encoding is None else "given")
        if before is None:
            return self._cut(item, data, *known), "new"
        is_same = before.sha256 == sha256(data)
        settings = (before.path, before.root, before.kind, before.window, before.overlap)
        is_set_so = settings == (item.path, item.root, item.kind, corpus.window, corpus.overlap)
        is_set_so &= encoding in (None, before.encoding)
        if is_same and is_set_so and before.reader == VERSION and self._shelf.sources.valid(before.sha256) is not None:
            return before, None
        if encoding is None and before.encoding_by == "given" and decodes(data, before.encoding):
            known = before.encoding, "given"
        elif encoding is None and is_same and before.reader == VERSION:
            known = before.encoding, before.encoding_by
        return self._cut(item, data, *known), "reread" if is_same and is_set_so else "changed"

    def _cut(self, item: Found, data: bytes, encoding: str | None, by: By) -> DocumentRecord:
        document, corpus = readable(item.file, data, item.kind, encoding), self._reader.record
        columns: dict[str, int] = {}
        windows = []
        for piece in self._reader.splitter.split(item.path, document):
            start, stop = document.byte_range(piece.start, piece.stop)
            text = block_text(piece.header, document.text[piece.start : piece.stop], piece.columns)
            windows.append(
                WindowRecord(
                    start=start,
                    stop=stop,
                    n_tokens=piece.n_tokens,
                    trail=piece.trail,
                    block_id=self._reader.block_id(self._reader.prompt(text)),
                    columns=columns.setdefault(piece.columns, len(columns)) if piece.columns else None,
                )
            )
        return DocumentRecord(
            path=item.path,
            origin=item.origin.decode("utf-8", "replace"),
            root=item.root,
            kind=item.kind,
            encoding=document.source.encoding,
            sha256=sha256(data),
            n_bytes=len(data),
            title=document.title,
            window=corpus.window,
            overlap=corpus.overlap,
            windows=tuple(windows),
            encoding_by=document.source.by if encoding is None else by,
            reader=VERSION,
            columns=tuple(columns),
        )

    def sample(self, plan: Plan, cancellation: Cancellation | None = None) -> Sample | None:
        """Read one window of usual size into a store that is thrown away; None where it is not worth it."""
        if len(plan.missing) < (2 if plan.missing_tokens >= _SAMPLE_TOKENS else _SAMPLE_FROM):
            return None
        sizes = sorted(plan.missing, key=lambda item: item[1].n_tokens)
        record, window = sizes[len(sizes) // 2]
        file = next((item.file for item in plan.planned if item.record is record), None)
        data = self._shelf.sources.read(record.sha256) if file is None else read_source(file)
        if data is None or sha256(data) != record.sha256:
            return None
        document = readable(Path(record.path), data, record.kind, record.encoding)
        prompt = self._reader.prompt(self._reader.text_of(document, record, window))
        with (
            tempfile.TemporaryDirectory(prefix="agentkv-") as folder,
            BlockStore(folder, cache_bytes=64 << 20) as store,
        ):
            self._self_test(store, cancellation)
            depositor = Depositor(Blocks(self._reader.memory.engine, store))
            depositor.deposit(self._reader.prompt("\n"), cancellation)  # which stores the prefix, too
            begun = time.perf_counter()
            manifest, _ = depositor.deposit(prompt, cancellation)
            seconds, n_bytes = time.perf_counter() - begun, store.sizes(manifest).own_stored
        return Sample(window.n_tokens, seconds, n_bytes)

    def _self_test(self, store: BlockStore, cancellation: Cancellation | None) -> None:
        """Have the configuration's self-test on record in ``store``; it is made once."""
        memory = self._reader.memory
        identity = memory.blocks.fingerprint.id
        self._tested = self._tested or memory.store.selftest(identity)
        if self._tested is None:
            with memory.blocks.exclusive(), contextlib.suppress(InexactBlock):
                self._tested = run_self_test(memory.engine, identity, cancellation)
        if self._tested is not None and store.selftest(identity) is None:
            store.set_selftest(self._tested)

    def take_over(
        self, other: Shelf, cancellation: Cancellation | None = None
    ) -> tuple[int, int, tuple[tuple[str, AgentKVError], ...]]:
        """Cut the documents of another corpus from its kept sources; files, windows, and what failed, by path."""
        files, windows, failed = 0, 0, []
        for key, record in other.all().items():
            _check(cancellation)
            try:
                data = other.sources.read(record.sha256)
                if data is None:
                    raise StaleDocument(record.path, "its kept source is gone")
                item = Found(Path(record.origin), record.path, record.root, record.kind)
                cut = self._cut(item, data, record.encoding, record.encoding_by)
                self._shelf.put(key, cut, data)
            except (InvalidDocument, StaleDocument, CorruptBlock) as error:
                failed.append((record.path, error))
            else:
                files, windows = files + 1, windows + len(cut.windows)
        with Index(self._shelf):
            return files, windows, tuple(failed)

    # --- the work ---

    def carry_out(
        self,
        plan: Plan,
        *,
        eager: bool,
        on_file: OnFile | None = None,
        on_window: OnWindow | None = None,
        until: Until | None = None,
        cancellation: Cancellation | None = None,
    ) -> AddReport:
        """Do what the plan says; with ``eager``, read the windows that are not stored. Raises Cancelled, StoreError's.

        Reading ends early, with ``stopped`` in the report, where the store's budget or the disk has no room for more.
        """
        report, begun = AddReport(plan), time.perf_counter()
        # 1. Windows that no file has any more.
        report.retired_blocks = self._retire(plan)
        # 2. Sources and records.
        for done, item in enumerate(plan.planned):
            _check(cancellation)
            if on_file is not None:
                on_file(done, len(plan.planned), item.record.path)
            data = read_source(item.file)
            if sha256(data) != item.record.sha256:
                report.skipped.append(StaleDocument(item.record.path, "it was changed while it was being added"))
                continue
            self._shelf.put(item.key, item.record, data)
        if any(item.change != "new" for item in plan.planned):
            self._shelf.forget(())  # earlier sources
        # 3. The index.
        with Index(self._shelf, progress=on_file) as index:
            report.skipped += index.skipped
        # 4. The windows.
        if eager and plan.missing:
            self._self_test(self._reader.memory.store, cancellation)
            self._read(report, on_window, until, cancellation)
        report.seconds = time.perf_counter() - begun
        return report

    def _retire(self, plan: Plan) -> int:
        before = self._shelf.all()
        replaced = {item.key for item in plan.planned if item.key in before}
        leaving = replaced | plan.removed.keys()
        if not leaving:
            return 0
        staying = {window.block_id for record in plan.documents for window in record.windows}
        ids = {window.block_id for key in leaving for window in before[key].windows}
        retired = self._shelf.remove_blocks(ids - staying, leaving)
        if plan.removed:
            self._shelf.forget(plan.removed)
        return retired

    def _read(
        self,
        report: AddReport,
        on_window: OnWindow | None,
        until: Until | None,
        cancellation: Cancellation | None,
    ) -> None:
        store = self._reader.memory.store
        own = {window.block_id for record in report.plan.documents for window in record.windows}
        left = {error.path for error in report.skipped}
        for record, window in report.plan.missing:
            if record.path in left:
                continue
            if until is not None and until():
                return
            if on_window is not None:
                on_window(record, window)
            evicted = len(store.evicted)
            try:
                _, created = self._reader.deposit(record, window, cancellation)
            except (OverBudget, StoreFull) as error:
                report.stopped = error
                return
            except StaleDocument as error:
                report.skipped.append(error)
                continue
            if created:
                report.read += 1
                report.read_tokens += window.n_tokens
            if any(victim.block_id in own for victim in store.evicted[evicted:]):
                report.stopped = OverBudget(0, store.budget or 0, 0)
                return


def _absent(paths: Sequence[Path]) -> set[str]:
    return {root_of(path) for path in paths if not absolute(path).exists()}


def _is_of(record: DocumentRecord, roots: set[str]) -> bool:
    """Whether a file was added by one of these paths, or lies below one, by whatever path it was added."""
    return record.root in roots or any(is_below(record.origin, root) for root in roots)


def _as_known(item: Found, before: DocumentRecord | None) -> Found:
    """A file that is named by itself and is known as one of a folder stays what it is called there."""
    named_itself = item.root == root_of(item.file)
    if before is None or not named_itself or not is_below(before.origin, before.root):
        return item
    return replace(item, path=before.path, root=before.root)


def _tell_guessed(guessed: Sequence[DocumentRecord]) -> None:
    if guessed:
        names = ", ".join(f"{record.path} ({record.encoding})" for record in guessed[:_NAMED])
        more = f" and {len(guessed) - _NAMED:,} more" if len(guessed) > _NAMED else ""
        what = "the encoding of a file is a guess" if len(guessed) == 1 else "encodings of files are guesses"
        warn(f"{what}: {names}{more}. Where text comes out wrong, add the file with its encoding: --encoding NAME.")


def _check(cancellation: Cancellation | None) -> None:
    if cancellation is not None and cancellation.requested:
        from agentkv.errors import Cancelled

        raise Cancelled("adding documents")
