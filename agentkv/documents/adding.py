"""Adding files to a corpus: a plan that writes nothing, and its execution, which may be interrupted at any moment.

Blocks of chunks that are gone are removed, then each file's source and record are written, then the index is updated,
then (eager) chunks that are not stored are prefilled. A crash after any step leaves a corpus that can be used, and the
same command continues, because a chunk's id says whether it is stored.
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
from agentkv.documents.chunks import Chunks, Depositor
from agentkv.documents.gather import Found, absolute, gather, is_below, root_of
from agentkv.documents.index import Index
from agentkv.documents.readers import VERSION, readable
from agentkv.documents.readers.decoding import decodes, read_source, read_text_source
from agentkv.documents.records import By, ChunkRecord, DocumentRecord, document_key
from agentkv.documents.shelf import Shelf
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
OnChunk = Callable[[DocumentRecord, ChunkRecord], None]
"""Called before a chunk is prefilled."""
Until = Callable[[], bool]
"""Called before a chunk is prefilled; if true, the rest is left for another call."""

_SAMPLE_FROM, _SAMPLE_TOKENS = 4, 4096
_MUCH_SECONDS, _MUCH_BYTES = 60.0, 1_000_000_000
_NAMED = 5


@dataclass(frozen=True)
class PlannedFile:
    """A file to write. ``change``: ``new``, ``changed``, or ``recut`` (other settings or another version)."""

    key: str
    file: Path
    record: DocumentRecord
    change: str


@dataclass(frozen=True)
class Sample:
    """What prefilling one chunk took: ``seconds`` with its check and its writing, ``n_bytes`` on disk."""

    n_tokens: int
    seconds: float
    n_bytes: int


@dataclass(frozen=True)
class Forecast:
    """What prefilling all chunks of a plan would take: seconds, and bytes on disk."""

    seconds: float
    n_bytes: float

    @property
    def is_much(self) -> bool:
        """Whether it is more than a minute or a gigabyte, too much to do unasked."""
        return self.seconds > _MUCH_SECONDS or self.n_bytes > _MUCH_BYTES


@dataclass(frozen=True)
class AddPlan:
    """What adding would do. ``missing``: chunks of these files that are not stored.

    ``removed``: by key the documents whose file is gone from a path that is added again. ``passed_over``: files of an
    unknown kind in folders.
    """

    planned: tuple[PlannedFile, ...]
    unchanged: tuple[DocumentRecord, ...]
    removed: dict[str, DocumentRecord]
    failed: tuple[InvalidDocument, ...]
    passed_over: tuple[Path, ...]
    missing: tuple[tuple[DocumentRecord, ChunkRecord], ...]

    @property
    def documents(self) -> list[DocumentRecord]:
        """All documents of these paths: new, changed and unchanged."""
        return [*(item.record for item in self.planned), *self.unchanged]

    @property
    def n_chunks(self) -> int:
        """Chunks of all of them."""
        return sum(len(record.chunks) for record in self.documents)

    @property
    def n_tokens(self) -> int:
        """Tokens of all of them, headers and overlaps included."""
        return sum(record.n_tokens for record in self.documents)

    @property
    def missing_tokens(self) -> int:
        """Tokens of the chunks that are not stored."""
        return sum(chunk.n_tokens for _, chunk in self.missing)

    @property
    def guessed(self) -> list[DocumentRecord]:
        """New and changed files whose encoding is a guess."""
        return [item.record for item in self.planned if item.record.encoding_by == "guessed"]

    def forecast(self, sample: Sample | None) -> Forecast | None:
        """What prefilling the missing chunks takes, by a sample."""
        if sample is None:
            return None
        share = self.missing_tokens / max(sample.n_tokens, 1)
        return Forecast(sample.seconds * share, sample.n_bytes * share)


@dataclass
class AddReport:
    """What was done. ``prefilled``: chunks prefilled and stored now; ``stopped``: why the rest was left for later."""

    plan: AddPlan
    prefilled: int = 0
    prefilled_tokens: int = 0
    seconds: float = 0.0
    retired_blocks: int = 0
    stopped: AgentKVError | None = None
    skipped: list[StaleDocument] = field(default_factory=list)


class Adding:
    """Makes and carries out plans for one corpus."""

    def __init__(self, shelf: Shelf, chunks: Chunks) -> None:
        self._shelf, self._chunks = shelf, chunks
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
    ) -> AddPlan:
        """Look at every file and cut those that are new or changed. Raises UsageError, Cancelled.

        A path that does not exist any more means the corpus's file of that path, which is removed. ``encoding``: of all
        the files, instead of what they declare or a guess.
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
        _warn_of_guesses(plan.guessed)
        return replace(plan, removed=gone)

    def changed(self, cancellation: Cancellation | None = None) -> AddPlan:
        """The plan that cuts again the files that have changed since they were added. Raises Cancelled."""
        there = self._shelf.all()
        stale = [record for record in there.values() if self._shelf.origin_state(record) == "changed"]
        found = [Found(Path(record.origin), record.path, record.root, record.kind) for record in stale]
        plan = self._planned(found, there, [], None, None, cancellation)
        _warn_of_guesses(plan.guessed)
        return plan

    def _planned(
        self,
        found: Sequence[Found],
        there: dict[str, DocumentRecord],
        passed_over: Sequence[Path],
        encoding: str | None,
        on_file: OnFile | None,
        cancellation: Cancellation | None,
    ) -> AddPlan:
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
                planned.append(PlannedFile(key, item.file, record, change))
        documents = [*(item.record for item in planned), *unchanged]
        stored = self._chunks.memory.store.exists
        missing = [(record, chunk) for record in documents for chunk in record.chunks if not stored(chunk.block_id)]
        return AddPlan(tuple(planned), tuple(unchanged), {}, tuple(failed), tuple(passed_over), tuple(missing))

    def _record(
        self, item: Found, before: DocumentRecord | None, encoding: str | None
    ) -> tuple[DocumentRecord, str | None]:
        """The file's record and what changed: see :class:`PlannedFile`; None for nothing. Raises InvalidDocument."""
        data, corpus = read_text_source(item.file), self._chunks.record
        known: tuple[str | None, By] = (encoding, "known" if encoding is None else "given")
        if before is None:
            return self._cut(item, data, *known), "new"
        is_same = before.sha256 == sha256(data)
        settings = (before.path, before.root, before.kind, before.chunk_tokens, before.overlap)
        same_settings = settings == (item.path, item.root, item.kind, corpus.chunk_tokens, corpus.overlap)
        same_settings &= encoding in (None, before.encoding)
        if (
            is_same
            and same_settings
            and before.reader == VERSION
            and self._shelf.sources.valid(before.sha256) is not None
        ):
            return before, None
        if encoding is None and before.encoding_by == "given" and decodes(data, before.encoding):
            known = before.encoding, "given"
        elif encoding is None and is_same and before.reader == VERSION:
            known = before.encoding, before.encoding_by
        return self._cut(item, data, *known), "recut" if is_same and same_settings else "changed"

    def _cut(self, item: Found, data: bytes, encoding: str | None, by: By) -> DocumentRecord:
        document, corpus = readable(item.file, data, item.kind, encoding), self._chunks.record
        columns: dict[str, int] = {}
        chunks = []
        for piece in self._chunks.splitter.split(item.path, document):
            start, stop = document.byte_range(piece.start, piece.stop)
            text = block_text(piece.header, document.text[piece.start : piece.stop], piece.columns)
            chunks.append(
                ChunkRecord(
                    start=start,
                    stop=stop,
                    n_tokens=piece.n_tokens,
                    heading_path=piece.heading_path,
                    block_id=self._chunks.block_id(self._chunks.prompt(text)),
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
            chunk_tokens=corpus.chunk_tokens,
            overlap=corpus.overlap,
            chunks=tuple(chunks),
            encoding_by=document.source.by if encoding is None else by,
            reader=VERSION,
            columns=tuple(columns),
        )

    def sample(self, plan: AddPlan, cancellation: Cancellation | None = None) -> Sample | None:
        """Prefill one chunk of median size into a temporary store; None where it is not worth it."""
        if len(plan.missing) < (2 if plan.missing_tokens >= _SAMPLE_TOKENS else _SAMPLE_FROM):
            return None
        sizes = sorted(plan.missing, key=lambda item: item[1].n_tokens)
        record, chunk = sizes[len(sizes) // 2]
        file = next((item.file for item in plan.planned if item.record is record), None)
        data = self._shelf.sources.read(record.sha256) if file is None else read_source(file)
        if data is None or sha256(data) != record.sha256:
            return None
        document = readable(Path(record.path), data, record.kind, record.encoding)
        prompt = self._chunks.prompt(self._chunks.text_of(document, record, chunk))
        with (
            tempfile.TemporaryDirectory(prefix="agentkv-") as folder,
            BlockStore(folder, cache_bytes=64 << 20) as store,
        ):
            self._self_test(store, cancellation)
            depositor = Depositor(Blocks(self._chunks.memory.engine, store))
            depositor.deposit(self._chunks.prompt("\n"), cancellation)  # which stores the prefix, too
            started = time.perf_counter()
            manifest, _ = depositor.deposit(prompt, cancellation)
            seconds, n_bytes = time.perf_counter() - started, store.sizes(manifest).own_stored
        return Sample(chunk.n_tokens, seconds, n_bytes)

    def _self_test(self, store: BlockStore, cancellation: Cancellation | None) -> None:
        """Record the configuration's self-test in ``store``; it is run once."""
        memory = self._chunks.memory
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
        """Cut the documents of another corpus from its kept sources; files, chunks, and by path what failed."""
        files, chunks, failed = 0, 0, []
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
                files, chunks = files + 1, chunks + len(cut.chunks)
        with Index(self._shelf):
            return files, chunks, tuple(failed)

    # --- the work ---

    def carry_out(
        self,
        plan: AddPlan,
        *,
        eager: bool,
        on_file: OnFile | None = None,
        on_chunk: OnChunk | None = None,
        until: Until | None = None,
        cancellation: Cancellation | None = None,
    ) -> AddReport:
        """Do what the plan says; with ``eager``, prefill the missing chunks. Raises Cancelled, StoreError's.

        That ends early, with ``stopped`` in the report, where the store's budget or the disk has no room for more.
        """
        report, started = AddReport(plan), time.perf_counter()
        # 1. Chunks that no file has any more.
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
        # 4. The chunks.
        if eager and plan.missing:
            self._self_test(self._chunks.memory.store, cancellation)
            self._prefill(report, on_chunk, until, cancellation)
        report.seconds = time.perf_counter() - started
        return report

    def _retire(self, plan: AddPlan) -> int:
        before = self._shelf.all()
        replaced = {item.key for item in plan.planned if item.key in before}
        leaving = replaced | plan.removed.keys()
        if not leaving:
            return 0
        staying = {chunk.block_id for record in plan.documents for chunk in record.chunks}
        ids = {chunk.block_id for key in leaving for chunk in before[key].chunks}
        retired = self._shelf.remove_blocks(ids - staying, leaving)
        if plan.removed:
            self._shelf.forget(plan.removed)
        return retired

    def _prefill(
        self,
        report: AddReport,
        on_chunk: OnChunk | None,
        until: Until | None,
        cancellation: Cancellation | None,
    ) -> None:
        store = self._chunks.memory.store
        own = {chunk.block_id for record in report.plan.documents for chunk in record.chunks}
        left = {error.path for error in report.skipped}
        for record, chunk in report.plan.missing:
            if record.path in left:
                continue
            if until is not None and until():
                return
            if on_chunk is not None:
                on_chunk(record, chunk)
            evicted = len(store.evicted)
            try:
                _, created = self._chunks.deposit(record, chunk, cancellation)
            except (OverBudget, StoreFull) as error:
                report.stopped = error
                return
            except StaleDocument as error:
                report.skipped.append(error)
                continue
            if created:
                report.prefilled += 1
                report.prefilled_tokens += chunk.n_tokens
            if any(victim.block_id in own for victim in store.evicted[evicted:]):
                report.stopped = OverBudget(0, store.budget or 0, 0)
                return


def _absent(paths: Sequence[Path]) -> set[str]:
    return {root_of(path) for path in paths if not absolute(path).exists()}


def _is_of(record: DocumentRecord, roots: set[str]) -> bool:
    """Whether a file was added by one of these paths, or is below one."""
    return record.root in roots or any(is_below(record.origin, root) for root in roots)


def _as_known(item: Found, before: DocumentRecord | None) -> Found:
    """A file given by its own path that was added with a folder keeps its name there."""
    named_itself = item.root == root_of(item.file)
    if before is None or not named_itself or not is_below(before.origin, before.root):
        return item
    return replace(item, path=before.path, root=before.root)


def _warn_of_guesses(guessed: Sequence[DocumentRecord]) -> None:
    if guessed:
        names = ", ".join(f"{record.path} ({record.encoding})" for record in guessed[:_NAMED])
        more = f" and {len(guessed) - _NAMED:,} more" if len(guessed) > _NAMED else ""
        what = "the encoding of a file is a guess" if len(guessed) == 1 else "encodings of files are guesses"
        warn(f"{what}: {names}{more}. If the text comes out wrong, add the file with its encoding: --encoding NAME.")


def _check(cancellation: Cancellation | None) -> None:
    if cancellation is not None and cancellation.requested:
        from agentkv.errors import Cancelled

        raise Cancelled("adding documents")
