"""What corpora of documents keep beside the blocks: records, sources and indexes in one folder of the store.

    documents/corpora/<key>.json            a corpus: a name, a model, sizes          sealed JSON
    documents/files/<key>/<2>/<key>.json    a file of it, with its windows            sealed JSON
    documents/sources/<2>/<sha256>.zst      a file's bytes, by their own digest       zstd
    documents/index/<key>.sqlite            full-text search; made again at any time  not checked

Knows where they lie and whether a file is the one that was written; refuses to know what a record says. A window's
block is a block like any other, without a name: its manifest keeps it from collection, and it may be evicted.
"""

from __future__ import annotations

import re
import stat
from collections.abc import Iterator
from pathlib import Path

import zstandard

from agentkv.io.hashing import sha256
from agentkv.store.files import StoreFiles
from agentkv.store.format import Malformed, is_digest
from agentkv.store.registry import Found, files_below, is_sealed, read

DOCUMENTS, INDEX = "documents", "index"
CORPORA, FILES, SOURCES = "corpora", "files", "sources"
SOURCE_SUFFIX, INDEX_SUFFIX = ".zst", ".sqlite"
MAX_RECORD_BYTES, MAX_SOURCE_BYTES = 64 << 20, 64 << 20
_SEAL = re.compile(rb"agentkv-(?:corpus|document) \d+ ([0-9a-f]{64})")
_LEVEL = 3


def encode_source(data: bytes) -> bytes:
    """A source's file; the same bytes on every machine with the same zstd."""
    return zstandard.ZstdCompressor(level=_LEVEL, write_content_size=True, threads=0).compress(data)


def decode_source(data: bytes, name: str) -> bytes:
    """The source in a file called ``name``, the digest of what it unpacks to. Raises Malformed."""
    try:
        size = zstandard.frame_content_size(data)
        if not 0 <= size <= MAX_SOURCE_BYTES:
            raise Malformed(f"it says that it unpacks to {size:,} bytes")
        whole: bytes = zstandard.ZstdDecompressor().decompress(data, max_output_size=max(size, 1))
    except zstandard.ZstdError as error:
        raise Malformed(f"it does not unpack: {error}") from error
    if sha256(whole) != name:
        raise Malformed("it does not unpack to the bytes that it is called by")
    return whole


def entries(root: Path) -> Iterator[Found]:
    """Every file below the folder of documents: path, bytes, whether it is one of its own. Raises StoreReadError."""
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
