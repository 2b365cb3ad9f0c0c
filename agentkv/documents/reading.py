"""A window as a block: its ids, its deposit at first use, and the engine brought behind it.

A window is a manual behind the corpus's own prefix: the prompt builder that makes a skill's turn makes a window's too.
It gets no name, so that a thousand windows never become candidates of the router.

A probe of its own would double the time that a window takes, so all but one in ``SAMPLED`` are stored as
``exact_by_config``: the configuration has passed a self-test, and the state that was stored is captured again as the
same bytes. Which ones are probed follows from their ids, so that an interrupted deposit ends in the same bytes.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from agentkv.blocks.blocks import Blocks
from agentkv.blocks.checkpoints import Checkpoints, NotKept
from agentkv.blocks.restoring import MENDS
from agentkv.documents.brief import Brief
from agentkv.documents.readable import Readable
from agentkv.documents.records import CorpusRecord, DocumentRecord, WindowRecord
from agentkv.documents.shelf import Shelf
from agentkv.documents.split import Splitter, block_text
from agentkv.engine.base import Cancellation
from agentkv.engine.generate import PROBE_STEPS, check_window
from agentkv.engine.prompt import Message, Prompt, PromptBuilder
from agentkv.errors import OverBudget, StaleDocument, StoreError, StoreFull
from agentkv.memory.memory import AgentMemory
from agentkv.notices import warn
from agentkv.records import Manifest

PREFIX = (
    "Answer from the passage below, in a few words. If the passage does not answer it, say that it is not stated.\n\n"
)
SAMPLED = 32
TURN_TOKENS = 256
"""Room behind a window for a question and its answer; checked when a corpus is made."""


@dataclass(frozen=True)
class Live:
    """What was done to have a window in the context. ``created``: it was read and stored; ``kept`` False: read only."""

    prompt: Prompt
    manifest: Manifest | None
    created: bool

    @property
    def kept(self) -> bool:
        """Whether the window is in the store."""
        return self.manifest is not None


def is_sampled(block_id: str) -> bool:
    """Whether a window of that id is probed in full."""
    return int(block_id[:8], 16) % SAMPLED == 0


class Depositor:
    """Stores windows of one engine in one store."""

    def __init__(self, blocks: Blocks) -> None:
        self._blocks, self._checkpoints = blocks, Checkpoints(blocks)

    def deposit(self, prompt: Prompt, cancellation: Cancellation | None = None) -> tuple[Manifest, bool]:
        """The block of a window; whether it was read and stored now. Raises what a deposit raises."""
        blocks = self._blocks
        with blocks.engine.lock, blocks.store.holding():
            parent = blocks.deposit(prompt.prefix, cancellation=cancellation).manifest
            identity = blocks.id_of(prompt.manual, parent.block_id)
            foreign = blocks.is_untrusted(identity)
            known = None if foreign else blocks.valid(identity)
            if known is not None:
                return known, False
            if not foreign and not is_sampled(identity):
                with contextlib.suppress(NotKept):
                    return self._keep(identity, prompt, parent, cancellation), True
            done = blocks.deposit(prompt.manual, parent=parent, cancellation=cancellation)
            return done.manifest, done.created

    def _keep(self, identity: str, prompt: Prompt, parent: Manifest, cancellation: Cancellation | None) -> Manifest:
        """Read a window and store it without a probe of its own. Raises NotKept."""
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


class Reader:
    """The windows of one corpus under one memory's engine."""

    def __init__(self, memory: AgentMemory, shelf: Shelf, record: CorpusRecord) -> None:
        self.memory, self.shelf, self.record = memory, shelf, record
        self._prompts = PromptBuilder(memory.engine)
        self._depositor = Depositor(memory.blocks)
        self.brief = Brief(memory)
        self._splitter = Splitter(memory.engine, record.window, record.overlap)

    @property
    def splitter(self) -> Splitter:
        """What cuts this corpus's documents."""
        return self._splitter

    def prompt(self, text: str, question: str = "?") -> Prompt:
        """The ids of a window of that text and a question behind it."""
        return self._prompts.build(self.record.prefix, text, [Message("user", question)])

    def block_id(self, prompt: Prompt) -> str:
        """The id of a window's block."""
        blocks = self.memory.blocks
        return blocks.id_of(prompt.manual, blocks.id_of(prompt.prefix))

    def text(self, document: DocumentRecord, window: WindowRecord) -> str:
        """A window as it becomes a block, from the kept source. Raises StaleDocument."""
        return self.text_of(self.shelf.readable(document), document, window)

    def text_of(self, readable: Readable, document: DocumentRecord, window: WindowRecord) -> str:
        """A window of ``readable`` as it becomes a block: header, names of columns, text."""
        start, stop = readable.characters(window.start, window.stop)
        header = self._splitter.header(document.path, window.trail)
        return block_text(header, readable.text[start:stop], document.columns_of(window))

    def window_prompt(self, document: DocumentRecord, window: WindowRecord, question: str = "?") -> Prompt:
        """The ids of a window and a question. Raises StaleDocument if they are not those that were recorded."""
        prompt = self.prompt(self.text(document, window), question)
        if self.block_id(prompt) != window.block_id:
            raise StaleDocument(document.path, "this version reads the file in other words than the one that added it")
        return prompt

    def deposit(
        self, document: DocumentRecord, window: WindowRecord, cancellation: Cancellation | None = None
    ) -> tuple[Manifest, bool]:
        """The window's block, read and stored if it is not there; whether it was. Raises what a deposit raises."""
        return self._depositor.deposit(self.window_prompt(document, window), cancellation)

    @contextlib.contextmanager
    def live(
        self,
        document: DocumentRecord,
        window: WindowRecord,
        question: str,
        cancellation: Cancellation | None = None,
        behind: Sequence[tuple[int, ...]] = (),
    ) -> Iterator[Live]:
        """The engine with just this window in its context: restored, or else read, and kept if it can be.

        The ids ``behind`` it, of other windows, are read one after the other and not kept: see
        :mod:`agentkv.documents.compose`.
        The context is empty again at the end.
        """
        prompt = self.window_prompt(document, window, question)
        blocks = self.memory.blocks
        manifest, created = self._kept(document, window, cancellation)
        with blocks.exclusive():
            if manifest is not None and blocks.bring(manifest, cancellation) is not None:
                manifest = None  # what was read is not restored
            elif manifest is None:
                blocks.read_parts(prompt.blocks, cancellation)
            for part in behind:
                blocks.engine.extend(part, cancellation)
            yield Live(prompt, manifest, created)

    def refuse(self, document: DocumentRecord, window: WindowRecord, reason: str) -> bool:
        """Note that no logits came behind the stored chunk, so that it is read anew; False if it is not stored."""
        blocks = self.memory.blocks
        stored = blocks.stored_chain(self.window_prompt(document, window).blocks)
        for manifest in stored:
            blocks.refuse(manifest, reason)
        if stored:
            warn(f"a chunk of {document.path} was read anew instead of restored: {reason}")
        return bool(stored)

    def _kept(
        self, document: DocumentRecord, window: WindowRecord, cancellation: Cancellation | None
    ) -> tuple[Manifest | None, bool]:
        try:
            return self.deposit(document, window, cancellation)
        except (OverBudget, StoreFull):  # an answer does not need it kept
            return None, False
        except StoreError as error:
            warn(f"a chunk of {document.path} is read for this answer alone: {error.message} {MENDS}")
            return None, False
