"""The records and sources of one corpus in a store, and which blocks its chunks have; corpora of other engines.

A :class:`Shelf` opens without an engine: listing, searching and removing need none.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from functools import lru_cache
from pathlib import Path

from agentkv.blocks.mismatch import Fields, again_command, fingerprint_of, in_words, remedy
from agentkv.documents import records
from agentkv.documents.readers import readable
from agentkv.documents.readers.decoding import read_source
from agentkv.documents.readers.document import Readable
from agentkv.documents.records import (
    CorpusRecord,
    DocumentRecord,
    Kind,
    corpus_key,
    decode_corpus,
    decode_document,
    encode_corpus,
    encode_document,
)
from agentkv.engine.base import Engine
from agentkv.errors import CorruptBlock, InvalidDocument, StaleDocument, StoreError, UnknownCorpus, UsageError
from agentkv.io.forks import Shared
from agentkv.io.hashing import sha256
from agentkv.records import Fingerprint
from agentkv.store import budget as budgets
from agentkv.store.catalog import BlockStore
from agentkv.store.format import Malformed
from agentkv.store.recordfiles import RecordFiles

_READABLES = 8


class Shelf(Shared):
    """One corpus in ``store``. ``key``: see :func:`agentkv.documents.records.corpus_key`."""

    def __init__(self, store: BlockStore, key: str) -> None:
        self.store, self.key = store, key
        root, temporaries = store.root / records.DOCUMENTS, store.files.temporaries
        self._corpora = _corpora(store)
        self.documents: RecordFiles[DocumentRecord] = RecordFiles(
            root / records.FILES,
            key,
            "document",
            decode_document,
            records.MAX_RECORD_BYTES,
            sharded=True,
            temporaries=temporaries,
        )
        self.sources: RecordFiles[bytes] = RecordFiles(
            root,
            records.SOURCES,
            "source",
            records.decode_source,
            records.MAX_RECORD_BYTES,
            sharded=True,
            temporaries=temporaries,
            suffix=records.SOURCE_SUFFIX,
        )
        self.index_path = root / records.INDEX / f"{key}{records.INDEX_SUFFIX}"
        self._readable = lru_cache(maxsize=_READABLES)(self._read)

    @property
    def record(self) -> CorpusRecord | None:
        """The corpus's record; None if nothing was added yet. Raises CorruptBlock."""
        return self._corpora.read(self.key)

    @property
    def written_at(self) -> float:
        """When the corpus's record was written, in seconds since 1970."""
        return self._corpora.written_at(self.key)

    def record_or_none(self) -> CorpusRecord | None:
        """The same, but a corrupt one counts as none, with a warning; the next add writes it again."""
        try:
            return self.record
        except CorruptBlock as error:
            self.store.tell_once(error, "Its settings are the defaults until `agentkv docs add` writes it again.")
            return None

    def write(self, record: CorpusRecord) -> None:
        """Write the corpus's record if it has changed."""
        if self._corpora.valid(self.key) != record:
            self._corpora.write(self.key, _encoded(lambda: encode_corpus(record)))

    # --- documents ---

    def all(self) -> dict[str, DocumentRecord]:
        """The documents by key. A corrupt record is skipped with a warning; the next add repairs it."""
        found = {}
        for key in self.documents.digests():
            try:
                record = self.documents.read(key)
            except CorruptBlock as error:
                self.store.tell_once(error, "`agentkv docs add` on its file writes it again.")
                continue
            if record is not None:
                found[key] = record
        return found

    def put(self, key: str, record: DocumentRecord, data: bytes) -> None:
        """Write a source and its record, which comes last, so that a crash leaves no record without its source."""
        encoded = _encoded(lambda: encode_document(record))
        with self.store.files.lock.shared():
            if self.sources.valid(record.sha256) is None:
                self.sources.write(record.sha256, records.encode_source(data))
            self.documents.write(key, encoded)

    def forget(self, keys: Iterable[str]) -> None:
        """Drop documents, then the sources that no document of any corpus needs."""
        with self.store.files.lock.exclusive():
            for key in keys:
                self.documents.remove(key)
            needed = {record.sha256 for shelf in shelves(self.store) for record in shelf.all().values()}
            for digest in list(self.sources.digests()):
                if digest not in needed:
                    self.sources.remove(digest)

    def readable(self, record: DocumentRecord) -> Readable:
        """The text of a document, from its kept source. Raises StaleDocument."""
        return self._readable(record.path, record.kind, record.sha256, record.encoding)

    def _read(self, path: str, kind: Kind, digest: str, encoding: str) -> Readable:
        try:
            data = self.sources.read(digest)
        except CorruptBlock as error:
            raise StaleDocument(path, f"its kept source is corrupt ({error.reason})") from error
        if data is None:
            raise StaleDocument(path, "its kept source is gone")
        return readable(Path(path), data, kind, encoding)

    def origin_state(self, record: DocumentRecord) -> str:
        """Whether the file is still the one that was added: ``same``, ``changed`` or ``gone``."""
        try:
            return "same" if sha256(read_source(Path(record.origin))) == record.sha256 else "changed"
        except InvalidDocument:
            return "gone"

    # --- blocks ---

    def stored(self) -> set[str]:
        """The blocks of this corpus's chunks that are in the store now."""
        there = set(self.store.block_ids())
        return {w.block_id for record in self.all().values() for w in record.chunks if w.block_id in there}

    def remove_blocks(self, block_ids: Iterable[str], leaving: Iterable[str] = ()) -> int:
        """Remove blocks of chunks that nothing else needs; how many went. ``leaving``: documents about to be dropped.

        A block stays if another document of any corpus, a name, a pin or a child needs it.
        """
        candidates = set(block_ids)
        if not candidates:
            return 0
        skipped = set(leaving)
        for shelf in shelves(self.store):
            for key, record in shelf.all().items():
                if shelf.key != self.key or key not in skipped:
                    candidates -= {chunk.block_id for chunk in record.chunks}
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
        ids = [chunk.block_id for record in documents.values() for chunk in record.chunks]
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
        store.root / records.DOCUMENTS,
        records.CORPORA,
        "corpus",
        decode_corpus,
        records.MAX_RECORD_BYTES,
        sharded=False,
        temporaries=store.files.temporaries,
    )


def shelves(store: BlockStore, on_error: Callable[[StoreError], None] | None = None) -> Iterator[Shelf]:
    """Every corpus of a store, by key; one with a corrupt record is passed to ``on_error`` and left out."""
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
            why = f"It is there for {', '.join(known)}: pass that as --model, or cut it for this one with `{again}`."
            raise UnknownCorpus(name, known, why)
        raise UnknownCorpus(name, sorted({f"{record.name} ({record.model})" for _, record in found}))
    if len(named) > 1:
        models = ", ".join(sorted(f"{record.model} {record.fingerprint_id[:8]}" for _, record in named))
        raise UsageError(f"{name!r} is a corpus of several models or settings: {models}. Pass --model NAME.")
    return named[0][0]


# --- corpora of other engines ---------------------------------------------------------------------

_IN_PYTHON = "agentkv.documents.corpus.deposit_again(memory)"


def lacking(store: BlockStore, fingerprint_id: str) -> list[tuple[Shelf, CorpusRecord]]:
    """The corpora that only other engines have, by name; of several with one name the one written last."""
    known = [(shelf, record) for shelf in shelves(store) if (record := shelf.record) is not None]
    own = {record.name for _, record in known if record.fingerprint_id == fingerprint_id}
    newest: dict[str, tuple[Shelf, CorpusRecord]] = {}
    for shelf, record in sorted(known, key=lambda item: item[0].written_at):
        if record.name not in own:
            newest[record.name] = shelf, record
    return [newest[name] for name in sorted(newest)]


def fingerprint_of_corpus(shelf: Shelf, record: CorpusRecord) -> Fingerprint | None:
    """The engine's fingerprint of a corpus, from any block of that engine; None if the store holds none."""
    store = shelf.store
    for block_id in [*sorted(shelf.stored()), *store.block_ids()]:
        found = fingerprint_of(store, block_id)
        if found is not None and found.id == record.fingerprint_id:
            return found
    return None


def differences(shelf: Shelf, record: CorpusRecord, here: Fingerprint) -> Fields | None:
    """In which fields a corpus's engine differs from ``here``; empty if it is the same, None if that is not known."""
    if record.fingerprint_id == here.id:
        return {}
    found = fingerprint_of_corpus(shelf, record)
    return None if found is None else found.differences(here)


def fields_of(shelf: Shelf, record: CorpusRecord, here: Fingerprint | None, model: str) -> Fields:
    """The same for a listing: the models' names where no block is left; empty where nothing is known."""
    if here is None or record.fingerprint_id == here.id:
        return {}
    fields = differences(shelf, record, here)
    if fields is None:
        return {"model_sha256": (record.model, model)} if record.model != model else {}
    fields.pop("v_trans", None)
    return fields


def why_missing(store: BlockStore, engine: Engine, name: str) -> str:
    """That the corpus exists for another engine, how that differs, and the remedy; empty if it does not exist."""
    here = engine.fingerprint()
    there = [
        (shelf, record) for shelf in shelves(store) if (record := shelf.record) is not None and record.name == name
    ]
    if not there:
        return ""
    reasons = [_difference(store, engine, record, differences(shelf, record, here)) for shelf, record in there]
    by = "; or ".join(sorted(set(reasons)))
    return f"It exists, but another engine has made it: {by}. {remedy(store, engine, _IN_PYTHON)}"


def _difference(store: BlockStore, engine: Engine, record: CorpusRecord, fields: Fields | None) -> str:
    if fields:
        return in_words(store, fields, engine.info.name)
    if record.model != engine.info.name:
        return f"model_sha256 = {record.model}, here {engine.info.name}"
    return f"{record.model} with other settings or another version, which no stored block can show"
