"""Embedding models: texts to unit vectors whose cosine is their similarity in meaning.

``Embedder`` is what a router or an index needs of one, ``LlamaEmbedder`` runs a GGUF of an embedding model (the
catalogue has one of 46 MB) on llama.cpp, ``FakeEmbedder`` is deterministic and needs no file. Not guaranteed: the same
last bits on another machine or build, so vectors carry the embedder's ``identity`` and are compared with its own only.
"""

from __future__ import annotations

import contextlib
import zlib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from agentkv.errors import EngineClosed, ModelUnreadable, UsageError
from agentkv.io.forks import OwnedLock, Shared
from agentkv.io.hashing import tagged_digest

Vectors = NDArray[np.float32]
"""Shape (texts, dimensions); rows of length 1, or of zeros for a text without content."""


@runtime_checkable
class Embedder(Protocol):
    """Makes vectors of texts. ``identity`` (hex SHA-256) changes with whatever changes the vectors."""

    name: str
    identity: str
    dimensions: int

    def embed(self, texts: Sequence[str]) -> Vectors:
        """One unit vector a text, in their order, shape (texts, dimensions); a text beyond the model's window is cut
        there.
        """
        ...


class LlamaEmbedder(Shared):
    """A GGUF embedding model on llama.cpp's CPU threads; calls wait for one another. Use it as a context manager."""

    def __init__(self, path: Path, *, name: str, sha256: str, threads: int | None = None) -> None:
        import llama_cpp

        from agentkv.engine.llama.native import claim, interrupts_kept

        claim()
        try:
            with interrupts_kept():
                self._llama: Any = llama_cpp.Llama(
                    str(path), embedding=True, n_ctx=0, n_threads=threads, n_threads_batch=threads, verbose=False
                )
        except (ValueError, RuntimeError) as error:
            raise ModelUnreadable(path, f"llama.cpp does not load it ({error})") from error
        self.name = name
        self.identity = tagged_digest("embedder/1", sha256, llama_cpp.__version__)
        self.dimensions = int(self._llama.n_embd())
        self._lock = OwnedLock("embedding model")
        if self._llama.pooling_type() == llama_cpp.LLAMA_POOLING_TYPE_NONE:
            self.close()
            raise ModelUnreadable(path, "not an embedding model: it gives one vector a token, none a text")

    @classmethod
    def open(cls, spec: str | Path, *, threads: int | None = None, **options: Any) -> LlamaEmbedder:
        """Open a catalogue name (pulled if it is not there), a ``.gguf`` path or ``hf:REPO/FILE``.

        ``options`` go to :func:`agentkv.models.resolve`. Raises the errors of ModelError.
        """
        from agentkv.models import resolve

        model = resolve(spec, **options)
        return cls(model.path, name=model.name, sha256=model.sha256, threads=threads)

    def __enter__(self) -> LlamaEmbedder:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Free the model's memory; may be called twice."""
        if not self._lock.owner.is_here:
            return
        llama, self._llama = self._llama, None
        if llama is not None:
            llama.close()

    def embed(self, texts: Sequence[str]) -> Vectors:
        """See :class:`agentkv.engine.embed.Embedder`. Raises EngineClosed."""
        with self._lock:
            if self._llama is None:
                raise EngineClosed()
            rows = [self._llama.embed(_readable(text), truncate=True) for text in texts]
        return _units(np.asarray(rows, np.float32).reshape(len(texts), self.dimensions))


class FakeEmbedder:
    """Counts character trigrams in 256 buckets, so that similar spelling is similar. For tests and trying out."""

    name = "fake-embedder"
    identity = tagged_digest("embedder/1", "fake-embedder", "1")
    dimensions = 256

    def embed(self, texts: Sequence[str]) -> Vectors:
        """See :class:`agentkv.engine.embed.Embedder`."""
        rows = np.zeros((len(texts), self.dimensions), np.float32)
        for row, text in zip(rows, texts, strict=True):
            padded = f" {' '.join(text.casefold().split())} "
            for start in range(len(padded) - 2):
                row[zlib.crc32(padded[start : start + 3].encode("utf-8", "replace")) % self.dimensions] += 1
        return _units(rows)


def open_embedder(embedder: str | Path | Embedder | None) -> Embedder | None:
    """The embedder that a caller named or gave: a catalogue name, a ``.gguf`` path, an open embedder, or None.

    Raises UsageError for anything else, and the errors of ModelError.
    """
    if embedder is None or isinstance(embedder, Embedder):
        return embedder
    if not isinstance(embedder, str | Path):
        raise UsageError(f"an embedder is a model's name, a path or an Embedder, not {type(embedder).__name__}")
    return LlamaEmbedder.open(embedder)


@contextlib.contextmanager
def opened_embedder(embedder: str | Path | Embedder | None) -> Iterator[Embedder | None]:
    """Like :func:`open_embedder`; what is opened here is closed at the end."""
    opened = open_embedder(embedder)
    try:
        yield opened
    finally:
        if isinstance(embedder, str | Path) and isinstance(opened, LlamaEmbedder):
            opened.close()


def _units(rows: Vectors) -> Vectors:
    lengths = np.linalg.norm(rows, axis=1, keepdims=True)
    units: Vectors = np.divide(rows, lengths, out=np.zeros_like(rows), where=lengths > 0)
    return units


def _readable(text: str) -> str:
    """What llama.cpp takes: no NUL, no half of a surrogate pair, never empty."""
    return text.encode("utf-8", "replace").decode().replace("\0", " ") or " "
