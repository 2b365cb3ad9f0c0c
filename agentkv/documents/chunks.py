"""A chunk as a block: its token ids, its deposit at first use, and restoring it into the context.

A chunk takes the place of a skill's manual after the corpus's own prefix, and its turn is built in the same way. It
gets no name, so that a thousand chunks never become candidates of the router.

An exactness probe would double the time that a chunk takes, so all but one in ``SAMPLED`` are stored as
``exact_by_config``: the configuration has passed a self-test, and the stored state is captured again as the same bytes.
Which ones are probed follows from their ids, so that an interrupted deposit ends in the same bytes.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from agentkv.blocks.blocks import Blocks
from agentkv.blocks.checkpoints import Checkpoints, NotKept
from agentkv.blocks.restoring import MENDS
from agentkv.documents.quote import ShortAnswers
from agentkv.documents.readers.document import Readable
from agentkv.documents.records import ChunkRecord, CorpusRecord, DocumentRecord
from agentkv.documents.shelf import Shelf
from agentkv.documents.split import Splitter, block_text
from agentkv.engine.base import Cancellation
from agentkv.engine.generate import PROBE_STEPS, check_window
from agentkv.engine.prompt import Message, Prompt, PromptBuilder
from agentkv.errors import OverBudget, StaleDocument, StoreError, StoreFull, UsageError
from agentkv.memory.memory import AgentMemory
from agentkv.notices import warn
from agentkv.records import Manifest

PREFIX = (
    "Answer from the passage below, in a few words. If the passage does not answer it, say that it is not stated.\n\n"
)
SAMPLED = 32
"""One chunk in so many is probed in full."""
TURN_TOKENS = 256
"""Room after a chunk for a question and its answer; checked when a corpus is made."""


@dataclass(frozen=True)
class Live:
    """A chunk in the context. ``created``: it was prefilled and stored now; without ``manifest`` only prefilled."""

    prompt: Prompt
    manifest: Manifest | None
    created: bool

    @property
    def kept(self) -> bool:
        """Whether the chunk is in the store."""
        return self.manifest is not None


def is_sampled(block_id: str) -> bool:
    """Whether a chunk of that id is probed in full."""
    return int(block_id[:8], 16) % SAMPLED == 0


class Depositor:
    """Stores chunks of one engine in one store."""

    def __init__(self, blocks: Blocks) -> None:
        self._blocks, self._checkpoints = blocks, Checkpoints(blocks)

    def deposit(self, prompt: Prompt, cancellation: Cancellation | None = None) -> tuple[Manifest, bool]:
        """The block of a chunk, and whether it was prefilled and stored now. Raises what ``Blocks.deposit`` raises."""
        blocks = self._blocks
        with blocks.engine.lock, blocks.store.holding():
            parent = blocks.deposit(prompt.prefix, cancellation=cancellation).manifest
            identity = blocks.id_of(prompt.manual, parent.block_id)
            untrusted = blocks.is_untrusted(identity)
            known = None if untrusted else blocks.valid(identity)
            if known is not None:
                return known, False
            if not untrusted and not is_sampled(identity):
                with contextlib.suppress(NotKept):
                    return self._keep(identity, prompt, parent, cancellation), True
            done = blocks.deposit(prompt.manual, parent=parent, cancellation=cancellation)
            return done.manifest, done.created

    def _keep(self, identity: str, prompt: Prompt, parent: Manifest, cancellation: Cancellation | None) -> Manifest:
        """Prefill a chunk and store it without an exactness probe. Raises NotKept."""
        blocks = self._blocks
        check_window(parent.n_tokens + len(prompt.manual), PROBE_STEPS, 0, blocks.engine.window)
        with blocks.exclusive(), blocks.tracing.span("agentkv.deposit") as span:
            blocks.bring(parent, cancellation)
            blocks.read(prompt.manual, cancellation)
            self._checkpoints.keep([prompt.prefix, prompt.manual], blocks.engine.capture(), cancellation)
            if span.on:
                span.set({"agentkv.block.id": identity, "agentkv.deposit.tokens": len(prompt.manual)})
        manifest = blocks.store.manifest(identity)
        if manifest is None:  # removed by another process a moment ago
            raise NotKept("it was removed again")
        return manifest


class Chunks:
    """The chunks of one corpus under one memory's engine."""

    def __init__(self, memory: AgentMemory, shelf: Shelf, record: CorpusRecord) -> None:
        self.memory, self.shelf, self.record = memory, shelf, record
        self._prompts = PromptBuilder(memory.engine)
        self._depositor = Depositor(memory.blocks)
        self.short_answers = ShortAnswers(memory)
        self.splitter = Splitter(memory.engine, record.chunk_tokens, record.overlap)

    def prompt(self, text: str, question: str = "?") -> Prompt:
        """The token ids of a chunk with that text, and of a question after it."""
        return self._prompts.build(self.record.prefix, text, [Message("user", question)])

    def block_id(self, prompt: Prompt) -> str:
        """The id of a chunk's block."""
        blocks = self.memory.blocks
        return blocks.id_of(prompt.manual, blocks.id_of(prompt.prefix))

    def text(self, document: DocumentRecord, chunk: ChunkRecord) -> str:
        """A chunk as it becomes a block, from the kept source. Raises StaleDocument."""
        return self.text_of(self.shelf.readable(document), document, chunk)

    def text_of(self, readable: Readable, document: DocumentRecord, chunk: ChunkRecord) -> str:
        """A chunk of ``readable`` as it becomes a block: header, names of columns, text."""
        start, stop = readable.characters(chunk.start, chunk.stop)
        header = self.splitter.header(document.path, chunk.heading_path)
        return block_text(header, readable.text[start:stop], document.columns_of(chunk))

    def chunk_prompt(self, document: DocumentRecord, chunk: ChunkRecord, question: str = "?") -> Prompt:
        """The token ids of a chunk and a question. Raises StaleDocument if they are not those that were recorded."""
        prompt = self.prompt(self.text(document, chunk), question)
        if self.block_id(prompt) != chunk.block_id:
            raise StaleDocument(document.path, "this version extracts another text from it than the one that added it")
        return prompt

    def deposit(
        self, document: DocumentRecord, chunk: ChunkRecord, cancellation: Cancellation | None = None
    ) -> tuple[Manifest, bool]:
        """The chunk's block, and whether it was prefilled and stored now. Raises what ``Blocks.deposit`` raises."""
        return self._depositor.deposit(self.chunk_prompt(document, chunk), cancellation)

    @contextlib.contextmanager
    def live(
        self,
        document: DocumentRecord,
        chunk: ChunkRecord,
        question: str,
        cancellation: Cancellation | None = None,
        after: Sequence[tuple[int, ...]] = (),
    ) -> Iterator[Live]:
        """The engine with just this chunk in its context: restored, or else prefilled, and stored if that is possible.

        The token ids ``after`` it, of other chunks, are prefilled and not stored. The context is empty at the end.
        """
        prompt = self.chunk_prompt(document, chunk, question)
        blocks = self.memory.blocks
        manifest, created = self._kept(document, chunk, cancellation)
        with blocks.exclusive():
            if manifest is not None and blocks.bring(manifest, cancellation) is not None:
                manifest = None  # it was prefilled instead
            elif manifest is None:
                blocks.read_parts(prompt.blocks, cancellation)
            for part in after:
                blocks.engine.extend(part, cancellation)
            yield Live(prompt, manifest, created)

    def refuse(self, document: DocumentRecord, chunk: ChunkRecord, reason: str) -> bool:
        """Record that decoding on top of the stored chunk failed: it is prefilled next time. False if not stored."""
        blocks = self.memory.blocks
        stored = blocks.stored_chain(self.chunk_prompt(document, chunk).blocks)
        for manifest in stored:
            blocks.refuse(manifest, reason)
        if stored:
            warn(f"a chunk of {document.path} was prefilled again instead of restored: {reason}")
        return bool(stored)

    def _kept(
        self, document: DocumentRecord, chunk: ChunkRecord, cancellation: Cancellation | None
    ) -> tuple[Manifest | None, bool]:
        try:
            return self.deposit(document, chunk, cancellation)
        except (OverBudget, StoreFull):  # an answer does not need it kept
            return None, False
        except StoreError as error:
            warn(f"a chunk of {document.path} is prefilled for this answer alone: {error.message} {MENDS}")
            return None, False


# --- several chunks in one context ----------------------------------------------------------------


def chain(
    blocks: Blocks, parts: Sequence[Sequence[int]], *, cancellation: Cancellation | None = None
) -> list[Manifest]:
    """The blocks of ``parts`` (token ids, none empty), prefilled one after the other; a stored one costs only a hash.

    Restoring the last block brings all of them back. A state belongs to the tokens before it, so the states of parts
    that were prefilled apart cannot be put one after the other; a chain stores every step, and shares its first steps
    with other chains. Raises UsageError, WindowOverflow before any prefill, and what ``Blocks.deposit`` raises.
    """
    if not parts or not all(parts):
        raise UsageError("a chain has at least one part, and every part at least one token")
    check_window(sum(map(len, parts)), PROBE_STEPS, 0, blocks.engine.window)
    links: list[Manifest] = []
    with blocks.engine.lock, blocks.store.holding():
        for part in parts:
            parent = links[-1] if links else None
            links.append(blocks.deposit(part, parent=parent, cancellation=cancellation).manifest)
    return links
