"""The records and sources of one corpus in a store, and which blocks its windows have. Knows no model.

A :class:`Shelf` opens without an engine: listing, searching and removing need none.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from functools import lru_cache
from pathlib import Path

from agentkv.blocks.mismatch import again_command
from agentkv.documents import files as corpora
from agentkv.documents.readable import Readable, readable
from agentkv.documents.records import (
    CorpusRecord,
    DocumentRecord,
    corpus_key,
    decode_corpus,
    decode_document,
    encode_corpus,
    encode_document,
)
from agentkv.errors import CorruptBlock, StaleDocument, StoreError, UnknownCorpus, UsageError
from agentkv.io.forks import Shared
from agentkv.io.hashing import sha256
from agentkv.store import budget as budgets
from agentkv.store.catalog import BlockStore
from agentkv.store.format import Malformed
from agentkv.store.recordfiles import RecordFiles

_READABLES = 8


class Shelf(Shared):
    """One corpus in ``store``. ``key``: see :func:`agentkv.documents.records.corpus_key`."""

    def __init__(self, store: BlockStore, key: str) -> None:
        self.store, self.key = store, key
        root, temporaries = store.root / corpora.DOCUMENTS, store.files.temporaries
        self._corpora = _corpora(store)
        self.documents: RecordFiles[DocumentRecord] = RecordFiles(
            root / corpora.FILES,
            key,
            "document",
            decode_document,
            corpora.MAX_RECORD_BYTES,
            sharded=True,
            temporaries=temporaries,
        )
        self.sources: RecordFiles[bytes] = RecordFiles(
            root,
            corpora.SOURCES,
            "source",
            corpora.decode_source,
            corpora.MAX_RECORD_BYTES,
            sharded=True,
            temporaries=temporaries,
            suffix=corpora.SOURCE_SUFFIX,
        )
        self.index_path = root / corpora.INDEX / f"{key}{corpora.INDEX_SUFFIX}"
        self._readable = lru_cache(maxsize=_READABLES)(self._read)

    @property
    def record(self) -> CorpusRecord | None:
        """The corpus's record; None while nothing was added. Raises CorruptBlock."""
        return self._corpora.read(self.key)

    @property
    def written_at(self) -> float:
        """When the corpus's record was written, in seconds since 1970."""
        return self._corpora.written_at(self.key)

    def record_or_none(self) -> CorpusRecord | None:
        """The same, but a damaged one counts as none, with a warning; the next add writes it anew."""
        try:
            return self.record
        except CorruptBlock as error:
            self.store.tell_once(error, "Its settings are the usual ones until `agentkv docs add` writes it anew.")
            return None

    def write(self, record: CorpusRecord) -> None:
        """Put the corpus's record there."""
        if self._corpora.valid(self.key) != record:
            self._corpora.write(self.key, _encoded(lambda: encode_corpus(record)))

    # --- documents ---

    def all(self) -> dict[str, DocumentRecord]:
        """The documents that can be read, by key. A damaged record is passed over and told; the next add mends it."""
        found = {}
        for key in self.documents.digests():
            try:
                record = self.documents.read(key)
            except CorruptBlock as error:
                self.store.tell_once(error, "`agentkv docs add` on its file makes it anew.")
                continue
            if record is not None:
                found[key] = record
        return found

    def put(self, key: str, record: DocumentRecord, data: bytes) -> None:
        """Keep a document and its source; the record comes last, so that a crash leaves none without its source."""
        encoded = _encoded(lambda: encode_document(record))
        with self.store.files.lock.shared():
            if self.sources.valid(record.sha256) is None:
                self.sources.write(record.sha256, corpora.encode_source(data))
            self.documents.write(key, encoded)

    def forget(self, keys: Iterable[str]) -> None:
        """Drop documents, then the sources that no document of any corpus needs."""
        with self.store.files.lock.exclusive():
            for key in keys:
                self.documents.remove(key)
            wanted = {record.sha256 for shelf in shelves(self.store) for record in shelf.all().values()}
            for digest in list(self.sources.digests()):
                if digest not in wanted:
                    self.sources.remove(digest)

    def readable(self, record: DocumentRecord) -> Readable:
        """The text of a document, from its kept source. Raises StaleDocument."""
        return self._readable(record.path, record.kind, record.sha256, record.encoding)

    def _read(self, path: str, kind: str, digest: str, encoding: str) -> Readable:
        try:
            data = self.sources.read(digest)
        except CorruptBlock as error:
            raise StaleDocument(path, f"its kept source is damaged ({error.reason})") from error
        if data is None:
            raise StaleDocument(path, "its kept source is gone")
        return readable(Path(path), data, kind, encoding)  # type: ignore[arg-type]

    def origin_state(self, record: DocumentRecord) -> str:
        """Whether the file where it lay is still the one that was added: ``same``, ``changed`` or ``gone``."""
        from agentkv.documents.source import read_source
        from agentkv.errors import InvalidDocument

        try:
            return "same" if sha256(read_source(Path(record.origin))) == record.sha256 else "changed"
        except InvalidDocument:
            return "gone"

    # --- blocks ---

    def stored(self) -> set[str]:
        """The blocks of this corpus's windows that are in the store now."""
        there = set(self.store.block_ids())
        return {w.block_id for record in self.all().values() for w in record.windows if w.block_id in there}

    def remove_blocks(self, block_ids: Iterable[str], leaving: Iterable[str] = ()) -> int:
        """Remove blocks of windows that nobody else needs; how many went. ``leaving``: documents about to be dropped.

        Another document of any corpus, a name, a pin or a child keeps a block.
        """
        candidates = set(block_ids)
        if not candidates:
            return 0
        skipped = set(leaving)
        for shelf in shelves(self.store):
            for key, record in shelf.all().items():
                if shelf.key != self.key or key not in skipped:
                    candidates -= {window.block_id for window in record.windows}
        with self.store.files.lock.exclusive():
            candidates -= {named.block_id for named in self.store.names(on_error=lambda _: None)}
            candidates -= self.store.pinned()
            there = dict(self.store.files.summaries())
            candidates -= {summary.parent_id for summary in there.values() if summary.parent_id} - {None}
            gone = sorted(candidates & there.keys())
            if gone:
                budgets.take_away(self.store.files, gone)
        for block_id in gone:
            self.store.cache.drop(block_id)
        return len(gone)

    def remove(self) -> int:
        """Remove the corpus with everything that only it needs; how many blocks went."""
        documents = self.all()
        ids = [window.block_id for record in documents.values() for window in record.windows]
        gone = self.remove_blocks(ids, documents)
        self.forget(list(self.documents.digests()))
        for path in self.index_path.parent.glob(f"{self.index_path.name}*"):
            path.unlink(missing_ok=True)
        self._corpora.remove(self.key)
        return gone


def _encoded(encode: Callable[[], bytes]) -> bytes:
    try:
        return encode()
    except Malformed as error:
        raise UsageError(f"the record cannot be stored: {error}") from error


def _corpora(store: BlockStore) -> RecordFiles[CorpusRecord]:
    return RecordFiles(
        store.root / corpora.DOCUMENTS,
        corpora.CORPORA,
        "corpus",
        decode_corpus,
        corpora.MAX_RECORD_BYTES,
        sharded=False,
        temporaries=store.files.temporaries,
    )


def shelves(store: BlockStore, on_error: Callable[[StoreError], None] | None = None) -> Iterator[Shelf]:
    """Every corpus of a store, by key; one whose record is damaged is told to ``on_error`` and left out."""
    for record in _corpora(store).all(on_error or (lambda _: None)):
        yield Shelf(store, corpus_key(record.name, record.fingerprint_id))


def find_shelf(store: BlockStore, name: str, model: str | None = None, fingerprint_id: str | None = None) -> Shelf:
    """The corpus of that name. Where several models have one, ``model`` or ``fingerprint_id`` chooses.

    Raises UnknownCorpus, UsageError.
    """
    found = [(shelf, record) for shelf in shelves(store) if (record := shelf.record) is not None]
    named = [
        (shelf, record)
        for shelf, record in found
        if record.name == name and model in (None, record.model) and fingerprint_id in (None, record.fingerprint_id)
    ]
    if not named:
        known = sorted({record.model for _, record in found if record.name == name})
        if known:
            again = again_command(store.root, ["--model", model or "NAME"])
            why = (
                f"It is there for {', '.join(known)}: pass that as --model, or cut its kept files anew with `{again}`."
            )
            raise UnknownCorpus(name, known, why)
        raise UnknownCorpus(name, sorted({f"{record.name} ({record.model})" for _, record in found}))
    if len(named) > 1:
        models = ", ".join(sorted(f"{record.model} {record.fingerprint_id[:8]}" for _, record in named))
        raise UsageError(f"{name!r} is a corpus of several models or settings: {models}. Pass --model NAME.")
    return named[0][0]
