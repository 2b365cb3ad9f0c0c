"""What a corpus keeps in one folder of the store: records of the corpus, its files and chunks; sources; indexes.

    documents/corpora/<key>.json            a corpus: a name, a model, sizes          sealed JSON
    documents/files/<key>/<2>/<key>.json    a file of it, with its chunks             sealed JSON
    documents/sources/<2>/<sha256>.zst      a file's bytes, by their own digest       zstd
    documents/index/<key>.sqlite            full-text search; can be rebuilt          not checked

A chunk's block is a block like any other, without a name: its manifest keeps it from collection, and it may be evicted.
No record says whether a chunk is stored: its ``block_id`` follows from its tokens before any prefill, so the store
itself says, and an interrupted deposit leaves nothing to repair.
"""

from __future__ import annotations

import re
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Literal

import zstandard
from pydantic import ConfigDict, Field

from agentkv.io.hashing import sha256, tagged_digest
from agentkv.records import Count, Record, Sha256
from agentkv.store.files import StoreFiles
from agentkv.store.format import Malformed, decode_record, encode_record, is_digest
from agentkv.store.registry import Found, files_below, is_sealed, read

Kind = Literal["text", "markdown", "rst", "html", "code", "csv"]
By = Literal["known", "guessed", "given"]
"""How an encoding is known. ``known``: a mark, a declaration, or valid UTF-8; ``guessed``: by the bytes; ``given``: by
the user."""

CORPUS_MAGIC, DOCUMENT_MAGIC = "agentkv-corpus 1", "agentkv-document 1"

Text = Annotated[str, Field(max_length=8192)]


class _OnDisk(Record):
    """What format 1 calls a *window* is a chunk, and its *trail* the heading path: aliases keep those words on disk."""

    model_config = ConfigDict(populate_by_name=True)


class CorpusRecord(_OnDisk):
    """A corpus of one model. ``chunk_tokens`` and ``overlap`` in tokens; ``prefix``: the text before every chunk.

    ``keep``: ``eager`` (every chunk is prefilled and stored when added), ``lazy`` (when a question first needs it) or
    ``top`` (as lazy, and only the ``top`` most recently used stay). ``fingerprint_id``: the engine of the blocks.
    """

    format: Literal[1] = 1
    name: Annotated[str, Field(min_length=1, max_length=256)]
    fingerprint_id: Sha256
    model: str
    chunk_tokens: Count = Field(alias="window")
    overlap: Count
    prefix: str
    keep: Literal["eager", "lazy", "top"]
    top: Count | None = None


class ChunkRecord(_OnDisk):
    """One chunk: source bytes ``start`` to ``stop``, its tokens (header included, unpadded), heading path and block.

    ``columns``: which of the document's ``columns`` comes before its text, where it begins within a table.
    """

    start: Count
    stop: Count
    n_tokens: Count
    heading_path: tuple[Text, ...] = Field(alias="trail")
    block_id: Sha256
    columns: Count | None = None


class DocumentRecord(_OnDisk):
    """One file. ``path``: its name in the corpus; ``origin``: its absolute path; ``root``: the path that was added.

    ``sha256``: of the ``n_bytes`` source bytes (unpacked, if gzip), which are kept under it. ``chunk_tokens`` and
    ``overlap``: the corpus's when it was cut. ``encoding_by``: how ``encoding`` is known. ``reader``: the
    :data:`agentkv.documents.readers.VERSION` that read it. ``columns``: its tables' column names, each once.
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
    chunk_tokens: Count = Field(alias="window")
    overlap: Count
    chunks: tuple[ChunkRecord, ...] = Field(alias="windows")
    encoding_by: By = "known"
    reader: Count = 1
    columns: tuple[Text, ...] = ()

    def columns_of(self, chunk: ChunkRecord) -> str:
        """The column names that go with a chunk; "" for none."""
        at = chunk.columns
        return self.columns[at] if at is not None and at < len(self.columns) else ""

    @property
    def n_tokens(self) -> int:
        """Tokens of all chunks, overlaps and headers included."""
        return sum(chunk.n_tokens for chunk in self.chunks)


def corpus_key(name: str, fingerprint_id: str) -> str:
    """The file name of a corpus's record, 64 hex digits."""
    return tagged_digest("corpus/1", name, fingerprint_id)


def document_key(origin: bytes) -> str:
    """The file name of a document's record: the digest of the file's absolute path (its bytes)."""
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
    """The document in a file. Raises Malformed, also where its chunks are not in order or not within the source."""
    record = decode_record(DOCUMENT_MAGIC, data, DocumentRecord)
    before = (-1, 0)
    for chunk in record.chunks:
        if not before[0] < chunk.start <= before[1] < chunk.stop <= record.n_bytes:
            raise Malformed(f"bytes {chunk.start:,} to {chunk.stop:,} do not follow {before[0]:,} to {before[1]:,}")
        before = chunk.start, chunk.stop
    return record


# --- the files ------------------------------------------------------------------------------------

DOCUMENTS, INDEX = "documents", "index"
CORPORA, FILES, SOURCES = "corpora", "files", "sources"
SOURCE_SUFFIX, INDEX_SUFFIX = ".zst", ".sqlite"
MAX_RECORD_BYTES, MAX_SOURCE_BYTES = 64 << 20, 64 << 20
_SEAL = re.compile(rb"agentkv-(?:corpus|document) \d+ ([0-9a-f]{64})")
_LEVEL = 3


def encode_source(data: bytes) -> bytes:
    """A source's file; the same bytes on every machine with the same zstd version."""
    return zstandard.ZstdCompressor(level=_LEVEL, write_content_size=True, threads=0).compress(data)


def decode_source(data: bytes, name: str) -> bytes:
    """The source in a file called ``name``, the digest of what it unpacks to. Raises Malformed."""
    try:
        size = zstandard.frame_content_size(data)
        if not 0 <= size <= MAX_SOURCE_BYTES:
            raise Malformed(f"its header says that it unpacks to {size:,} bytes")
        whole: bytes = zstandard.ZstdDecompressor().decompress(data, max_output_size=max(size, 1))
    except zstandard.ZstdError as error:
        raise Malformed(f"it does not unpack: {error}") from error
    if sha256(whole) != name:
        raise Malformed("its bytes are not those of its name")
    return whole


def entries(root: Path) -> Iterator[Found]:
    """Every file below the folder of documents: path, size, whether it belongs there. Raises StoreReadError."""
    folder = root / DOCUMENTS
    for path in files_below(folder):
        try:
            info = path.lstat()
        except OSError:  # removed meanwhile
            continue
        parts, name = path.relative_to(folder).parts, path.name.split(".")[0]
        own = stat.S_ISREG(info.st_mode) and is_digest(name)
        match parts:
            case ("corpora", file):
                own &= file == f"{name}.json"
            case ("files", key, shard, file):
                own &= is_digest(key) and shard == name[:2] and file == f"{name}.json"
            case ("sources", shard, file):
                own &= shard == name[:2] and file == f"{name}{SOURCE_SUFFIX}"
            case ("index", file):
                own &= file.startswith(f"{name}{INDEX_SUFFIX}")
            case _:
                own = False
        yield path, info.st_size, own


def fault(files: StoreFiles, path: Path) -> str | None:
    """Why a record or source is not what was written; None if it is, or is gone. Raises StoreReadError."""
    data, reason = read(files.root, path, MAX_RECORD_BYTES)
    if data is None or path.parent == files.root / DOCUMENTS / INDEX:
        return reason
    if path.suffix == SOURCE_SUFFIX:
        try:
            decode_source(data, path.name.removesuffix(SOURCE_SUFFIX))
        except Malformed as error:
            return str(error)
        return None
    if not is_sealed(data, _SEAL):
        return "the first line is not a corpus's or document's and the SHA-256 of what follows"
    return None
