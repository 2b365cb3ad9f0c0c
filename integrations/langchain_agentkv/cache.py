"""``AgentKVCache``: an LLM call that was made before is answered from disk, exactly.

The key is the exact prompt and the exact ``llm_string``, in which :class:`~langchain_agentkv.ChatAgentKV` states
fingerprint, settings and what is stored. A value is JSON, read back under an allow-list of message classes; nothing is
ever unpickled or imported by what a row says. Not guaranteed: that an answer is kept. The cache is bounded, and a file
that cannot be written or read costs a miss, not an error.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

from langchain_core.caches import RETURN_VAL_TYPE, BaseCache
from langchain_core.load import dumps, loads
from langchain_core.load.serializable import Serializable
from langchain_core.messages import AIMessage, AIMessageChunk, ChatMessage, ChatMessageChunk
from langchain_core.outputs import ChatGeneration, ChatGenerationChunk, Generation, GenerationChunk

from agentkv import BlockStore
from agentkv.errors import CorruptDatabase, StoreError, UsageError
from langchain_agentkv.database import Database, seal

ALLOWED: Final[tuple[type[Serializable], ...]] = (
    Generation, GenerationChunk, ChatGeneration, ChatGenerationChunk,
    AIMessage, AIMessageChunk, ChatMessage, ChatMessageChunk,
)  # fmt: skip
"""All that a row may become."""

_SCHEMA = (
    "CREATE TABLE answers (key BLOB PRIMARY KEY, value BLOB NOT NULL, seal BLOB NOT NULL, "
    "bytes INTEGER NOT NULL, used REAL NOT NULL)",
    "CREATE INDEX answers_by_use ON answers (used, bytes)",
)
_ROW_BYTES = 256
"""What a row takes besides its value: key, seal, indexes."""
_FRESH_S = 60.0
"""A use is noted at most this often: a hit need not write."""
_KEPT = 0.9
"""The share of ``max_bytes`` that an eviction leaves, so that not every update evicts."""
_EVICT = (
    "DELETE FROM answers WHERE key IN (SELECT key FROM (SELECT key, sum(bytes) OVER "
    "(ORDER BY used DESC, rowid DESC) AS running FROM answers) WHERE running > ?)"
)


class AgentKVCache(BaseCache):
    """LLM answers in the store's folder; over ``max_bytes`` the least recently used ones are removed.

    ``store`` is a directory or an open :class:`~agentkv.BlockStore` (``memory.store``). ``lost`` counts what could not
    be looked up or stored, ``reason`` says why the last one was not. Raises UsageError, StoreUnusable.

    >>> import tempfile
    >>> cache = AgentKVCache(tempfile.mkdtemp())
    >>> cache.update("the prompt", "the model and its settings", [Generation(text="42")])
    >>> cache.lookup("the prompt", "the model and its settings")
    [Generation(text='42')]
    >>> cache.lookup("the prompt", "another model") is None
    True
    """

    def __init__(self, store: str | Path | BlockStore, *, max_bytes: int = 256 << 20) -> None:
        if max_bytes < 1:
            raise UsageError(f"max_bytes = {max_bytes}: a cache holds at least one byte")
        self.max_bytes = max_bytes
        self.lost, self.reason = 0, ""
        self._database = Database(store, "langchain-cache.sqlite", _SCHEMA, durable=False)

    @property
    def path(self) -> Path:
        """The file; it may be deleted while nobody uses it."""
        return self._database.path

    def lookup(self, prompt: str, llm_string: str) -> RETURN_VAL_TYPE | None:
        """The answer of the same prompt to the same model and settings, or None."""
        key, row = _key(prompt, llm_string), None
        try:
            with self._database.reading() as connection:
                if connection is not None:
                    row = connection.execute("SELECT value, seal, used FROM answers WHERE key = ?", (key,)).fetchone()
        except StoreError as error:
            self._lose(error)
            return None
        if row is None:
            return None
        value = _opened(key, row[0], row[1])
        if value is None:
            self._note(f"the row of {key.hex()[:12]} was corrupt")
            self._forget(key)
        elif time.time() - row[2] > _FRESH_S:
            self._touch(key)
        return value

    def update(self, prompt: str, llm_string: str, return_val: RETURN_VAL_TYPE) -> None:
        """Keep an answer, unless its JSON form would not give back the same answer."""
        try:
            value = dumps(list(return_val)).encode()
            same = _loaded(value) == list(return_val)
        except Exception as error:  # noqa: BLE001 - whatever a message of another package says to being copied
            self._note(f"an answer has no JSON form: {error}")
            return
        size = len(value) + _ROW_BYTES
        if not same or size > self.max_bytes:
            self._note("an answer is not the same after a JSON round trip" if not same else f"{size:,} bytes")
            return
        key = _key(prompt, llm_string)
        try:
            with self._database.writing() as connection:
                row = (key, value, seal(key, value), size, time.time())
                connection.execute("INSERT OR REPLACE INTO answers VALUES (?, ?, ?, ?, ?)", row)
                total = connection.execute("SELECT sum(bytes) FROM answers").fetchone()[0]
                if total > self.max_bytes:
                    connection.execute(_EVICT, (max(size, int(_KEPT * self.max_bytes)),))
        except StoreError as error:
            self._lose(error)

    def clear(self, **kwargs: Any) -> None:
        """Forget every answer. Raises StoreReadError if they cannot be deleted."""
        try:
            with self._database.writing() as connection:
                connection.execute("DELETE FROM answers")
        except CorruptDatabase:
            self._database.throw_away()

    def _forget(self, key: bytes) -> None:
        with contextlib.suppress(StoreError), self._database.writing() as connection:
            connection.execute("DELETE FROM answers WHERE key = ?", (key,))

    def _touch(self, key: bytes) -> None:
        with contextlib.suppress(StoreError), self._database.writing() as connection:
            connection.execute("UPDATE answers SET used = ? WHERE key = ?", (time.time(), key))

    def _lose(self, error: StoreError) -> None:
        self._note(error.message)
        if isinstance(error, CorruptDatabase):
            with contextlib.suppress(StoreError):
                self._database.throw_away()

    def _note(self, reason: str) -> None:
        self.lost, self.reason = self.lost + 1, reason


def _key(prompt: str, llm_string: str) -> bytes:
    return seal(prompt.encode("utf-8", "surrogatepass"), llm_string.encode("utf-8", "surrogatepass"))


def _opened(key: bytes, value: object, sealed: object) -> list[Generation] | None:
    """A row's answer; None if it is not what was written, or nothing that may be made of a row."""
    if not isinstance(value, bytes) or sealed != seal(key, value):
        return None
    try:
        found = _loaded(value)
    except Exception:  # noqa: BLE001 - a row that somebody else made: whatever its classes say of it, it is a miss
        return None
    return found if isinstance(found, list) and all(isinstance(item, Generation) for item in found) else None


def _loaded(value: bytes) -> Any:
    allowed: Sequence[type[Serializable]] = ALLOWED
    return loads(value.decode(), allowed_objects=list(allowed), secrets_from_env=False)
