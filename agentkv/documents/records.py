"""What is kept of a corpus: the corpus, its files and their windows. Frozen, validated, sealed on disk; no times.

Not kept: whether a window is stored. Its ``block_id`` follows from its tokens before the model has read any, so the
store itself says. A deposit that was interrupted therefore leaves nothing to mend: what is there is there.
"""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from agentkv.documents.charset import By
from agentkv.documents.source import Kind
from agentkv.io.hashing import tagged_digest
from agentkv.records import Count, Record, Sha256
from agentkv.store.format import Malformed, decode_record, encode_record

CORPUS_MAGIC, DOCUMENT_MAGIC = "agentkv-corpus 1", "agentkv-document 1"

Text = Annotated[str, Field(max_length=8192)]


class CorpusRecord(Record):
    """A corpus of one model. ``window`` and ``overlap`` in tokens; ``prefix``: the system text before every window.

    ``keep``: ``eager`` (every window is read when it is added), ``lazy`` (when it is first asked for, and kept) or
    ``top`` (as lazy, and only the ``top`` most recently used are kept). ``fingerprint_id``: whose blocks they are.
    """

    format: Literal[1] = 1
    name: Annotated[str, Field(min_length=1, max_length=256)]
    fingerprint_id: Sha256
    model: str
    window: Count
    overlap: Count
    prefix: str
    keep: Literal["eager", "lazy", "top"]
    top: Count | None = None


class WindowRecord(Record):
    """One window: source bytes ``start`` to ``stop``, its tokens (header included, unpadded), headings, block.

    ``columns``: the names of a table's columns, one of the document's ``columns`` by its number, that stand before it.
    """

    start: Count
    stop: Count
    n_tokens: Count
    trail: tuple[Text, ...]
    block_id: Sha256
    columns: Count | None = None


class DocumentRecord(Record):
    """One file. ``path`` is how it is called, ``origin`` where it lay, ``root`` the path by which it was added.

    ``sha256`` is over the ``n_bytes`` source bytes (unpacked, if it was gzip), by which they are kept. ``window`` and
    ``overlap``: the corpus's when it was cut. ``encoding_by``: how ``encoding`` is known. ``reader``: by which rules it
    was read (:data:`agentkv.documents.readable.VERSION`). ``columns``: the names of its tables' columns, each once.
    """

    format: Literal[1] = 1
    path: Text
    origin: Text
    root: Text
    kind: Kind
    encoding: str
    sha256: Sha256
    n_bytes: Count
    title: Text = ""
    window: Count
    overlap: Count
    windows: tuple[WindowRecord, ...]
    encoding_by: By = "known"
    reader: Count = 1
    columns: tuple[Text, ...] = ()

    def columns_of(self, window: WindowRecord) -> str:
        """The names of the columns that go with a window; "" for none."""
        at = window.columns
        return self.columns[at] if at is not None and at < len(self.columns) else ""

    @property
    def n_tokens(self) -> int:
        """Tokens of all windows, overlaps and headers included."""
        return sum(window.n_tokens for window in self.windows)


def corpus_key(name: str, fingerprint_id: str) -> str:
    """What a corpus's files are called by, 64 hex digits."""
    return tagged_digest("corpus/1", name, fingerprint_id)


def document_key(origin: bytes) -> str:
    """What a file's record is called by: the digest of its absolute path's bytes."""
    return tagged_digest("document/1", origin.hex())


def encode_corpus(record: CorpusRecord) -> bytes:
    """The file's bytes."""
    return encode_record(CORPUS_MAGIC, record)


def decode_corpus(data: bytes, name: str) -> CorpusRecord:
    """The corpus in a file called ``name``. Raises Malformed."""
    record = decode_record(CORPUS_MAGIC, data, CorpusRecord)
    if corpus_key(record.name, record.fingerprint_id) != name:
        raise Malformed(f"it is the record of corpus {record.name!r}")
    return record


def encode_document(record: DocumentRecord) -> bytes:
    """The file's bytes."""
    return encode_record(DOCUMENT_MAGIC, record)


def decode_document(data: bytes, _: str) -> DocumentRecord:
    """The document in a file. Raises Malformed, also unless its windows rise and end within the source."""
    record = decode_record(DOCUMENT_MAGIC, data, DocumentRecord)
    before = (-1, 0)
    for window in record.windows:
        if not before[0] < window.start <= before[1] < window.stop <= record.n_bytes:
            raise Malformed(f"bytes {window.start:,} to {window.stop:,} do not follow {before[0]:,} to {before[1]:,}")
        before = window.start, window.stop
    return record
