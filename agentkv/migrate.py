"""Migration: what a store holds for another engine is deposited for this one, after a new llama.cpp, CPU or model.

In this order, each step of which finds out by itself what is left to do, so that the next run goes on where one was
killed: blocks of builds that give the same bits are adopted without prefill; names are deposited from their texts;
corpora are cut again from the kept sources; the chunks and threads that had a state in the store get one; what the
router has learned is taken over. Then, if nothing failed, pins move to the new blocks and the other fingerprints are
*superseded*: their blocks are evicted before all others. Until then none of them goes. Texts, threads' logs, sources
and solutions belong to no engine and stay.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial

from agentkv.blocks.adopting import Adoption, adopt, adoptable
from agentkv.blocks.blocks import Deposit
from agentkv.documents.corpus import Corpus, Recut
from agentkv.documents.corpus import deposit_again as cut_again
from agentkv.documents.records import ChunkRecord, DocumentRecord
from agentkv.documents.shelf import lacking as lacking_corpora
from agentkv.documents.shelf import shelves
from agentkv.engine.base import Cancellation
from agentkv.engine.generate import PROBE_BATCH, PROBE_STEPS, check_window
from agentkv.errors import AgentKVError, Cancelled, OverBudget, StoreError, StoreFull
from agentkv.memory import again, states
from agentkv.memory.memory import AgentMemory
from agentkv.memory.threads import checkpoints
from agentkv.records import NamedBlock
from agentkv.router.learn import Learned

_RATE_TOKENS, _RATE_STEPS = 192, 4

OnWork = Callable[[str, int], None]
"""Called before each piece of work with what it is called and its tokens."""


@dataclass(frozen=True)
class Plan:
    """What there is to do. ``tokens``: to prefill, unless blocks can be adopted; of chunks not cut yet those of before.

    ``learned``: questions that the router has learned from for another engine.
    ``adoptable``: blocks of builds that differ in numerics only, which are adopted if the bits are the same.
    ``n_bytes``: on disk, as much as what is replaced takes; ``seconds``: by a measurement, None where none was made.
    """

    names: tuple[str, ...]
    corpora: tuple[str, ...]
    chunks: int
    threads: tuple[str, ...]
    learned: int
    adoptable: int
    tokens: int
    blocks: int
    n_bytes: int
    seconds: float | None = None

    @property
    def is_empty(self) -> bool:
        """Whether this engine has all that others have."""
        return not (self.names or self.corpora or self.chunks or self.threads or self.learned or self.adoptable)


@dataclass
class Done:
    """What was done. ``learned``: questions that this engine's router goes by now.

    ``failed``: by name, why it could not be. ``superseded``: fingerprints evicted first from now.
    """

    adopted: list[Adoption] = field(default_factory=list)
    deposits: list[tuple[NamedBlock, Deposit]] = field(default_factory=list)
    corpora: list[Recut] = field(default_factory=list)
    chunks: int = 0
    threads: list[str] = field(default_factory=list)
    learned: int = 0
    failed: list[tuple[str, AgentKVError]] = field(default_factory=list)
    superseded: tuple[str, ...] = ()


def plan(memory: AgentMemory, *, measure: bool = True) -> Plan:
    """Look at what is to be done; writes nothing. ``measure``: prefill 192 tokens to tell how long it will take."""
    store, here = memory.store, memory.blocks.fingerprint.id
    names = again.lacking(store, here)
    corpora = [record.name for _, record in lacking_corpora(store, here)]
    cut, uncut = lacking_chunks(memory), stored_chunks(memory)
    threads = states.lacking_threads(memory)
    tokens = sum(_length(memory, named) for named in names)
    tokens += sum(one.chunk.n_tokens for one in cut) + sum(one.n_tokens for one in uncut)
    tokens += sum(thread.n_tokens for thread in threads)
    blocks = len(names) + len(cut) + len(uncut) + len(threads)
    replaced = [*(named.block_id for named in names), *(one.block_id for one in uncut)]
    n_bytes = sum(_own_bytes(memory, block_id) for block_id in [*replaced, *(thread.old for thread in threads)])
    return Plan(
        names=tuple(named.name for named in names),
        corpora=tuple(corpora),
        chunks=len(cut) + len(uncut),
        threads=tuple(thread.thread_id for thread in threads),
        learned=_questions(memory.routing.others_learned(_others(memory))),
        adoptable=sum(map(len, adoptable(memory.blocks).values())),
        tokens=tokens,
        blocks=blocks,
        n_bytes=n_bytes,
        seconds=_seconds(memory, tokens, blocks) if measure and blocks else None,
    )


def migrate(
    memory: AgentMemory,
    *,
    allow_inexact: bool = False,
    on_work: OnWork = lambda what, n_tokens: None,
    cancellation: Cancellation | None = None,
) -> Done:
    """Deposit for this engine what others have. What was done before an error, Ctrl-C or a crash stays.

    This engine takes the others' place: no block of theirs is evicted before all is done, and from then on theirs go
    first. To have this one beside the others, see :meth:`agentkv.AgentMemory.deposit_again`. Raises Cancelled,
    OverBudget, StoreFull.
    """
    done, store = Done(), memory.store
    fingerprints, others = _migrated_from(memory), _others(memory)

    may_go = _of_earlier_migrations(memory)

    def holding() -> contextlib.AbstractContextManager[None]:
        return store.holding(() if store.budget is None else set(store.block_ids()) - may_go)

    # 1. Blocks of another build with the same bits.
    on_work("comparing builds", 0)
    done.adopted = adopt(memory.blocks, holding=holding, cancellation=cancellation)
    # 2. Names, from the kept texts.
    lengths = {named.name: _length(memory, named) for named in again.lacking(store, memory.blocks.fingerprint.id)}
    named = again.deposit_again(
        memory.blocks,
        memory.deposit_source,
        allow_inexact=allow_inexact,
        on_work=lambda one: on_work(one.name, lengths.get(one.name, 0)),
        cancellation=cancellation,
        holding=holding,
    )
    done.deposits += named.done
    done.failed += [(one.name, error) for one, error in named.failed]
    # 3. Documents, from the kept sources.
    done.corpora = cut_again(memory, on_work=lambda name: on_work(name, 0), cancellation=cancellation)
    done.failed += [(path, error) for corpus in done.corpora for path, error in corpus.failed]
    # 4. States of chunks and threads.
    for chunk in lacking_chunks(memory):
        on_work(chunk.document.path, chunk.chunk.n_tokens)
        work = partial(chunk.deposit, cancellation)
        done.chunks += _one(done, chunk.document.path, memory, holding, work, cancellation)
    for thread in states.lacking_threads(memory):
        on_work(thread.thread_id, thread.n_tokens)
        work = partial(states.deposit_thread, memory, thread, cancellation)
        if _one(done, thread.thread_id, memory, holding, work, cancellation):
            done.threads.append(thread.thread_id)
    # 5. What the router has learned; the names that it routes to are there now.
    learned = memory.routing.others_learned(others)
    if learned is not None:
        on_work("what the router has learned", 0)
        memory.routing.take_over(*learned)
        done.learned = _questions(learned)
    # 6. All is there: the others' blocks may go.
    if not done.failed:
        done.superseded = _supersede(memory, fingerprints)
    return done


def _one(
    done: Done,
    name: str,
    memory: AgentMemory,
    holding: Callable[[], contextlib.AbstractContextManager[None]],
    work: Callable[[], object],
    cancellation: Cancellation | None,
) -> bool:
    """Do one piece of work; what is wrong with it alone is noted and keeps no other out."""
    if cancellation is not None and cancellation.requested:
        raise Cancelled("migrating")
    try:
        with memory.engine.lock, holding():
            work()
    except (Cancelled, OverBudget, StoreFull):
        raise
    except AgentKVError as error:
        done.failed.append((name, error))
        return False
    return True


def _of_earlier_migrations(memory: AgentMemory) -> set[str]:
    """The blocks that may be evicted while this is under way; no other, and none that comes meanwhile."""
    earlier = memory.store.superseded
    found = memory.store.files.summaries(lambda _: None) if earlier else ()
    return {block_id for block_id, summary in found if summary.fingerprint_id in earlier}


def _migrated_from(memory: AgentMemory) -> set[str]:
    """The fingerprints, other than this one, that names, corpora or threads are of.

    A model that only routes has neither, so its cards are nobody's to replace.
    """
    store, here = memory.store, memory.blocks.fingerprint.id
    blocks: dict[str, set[str]] = {}
    for block_id, summary in store.files.summaries(lambda _: None):
        blocks.setdefault(summary.fingerprint_id, set()).add(block_id)
    used = {named.fingerprint_id for named in store.names(on_error=lambda _: None)}
    used |= {record.fingerprint_id for shelf in shelves(store) if (record := shelf.record) is not None}
    kept = {state for name in memory.threads() for state in checkpoints(store, name)}
    used |= {key for key, ids in blocks.items() if ids & kept}
    return used - {here}


def _questions(learned: tuple[Learned, bool] | None) -> int:
    return 0 if learned is None else sum(map(len, learned[0].labelled.values()))


def _others(memory: AgentMemory) -> dict[str, bool]:
    """The other fingerprints of the blocks that are here, and whether each is of this engine's model."""
    here = memory.blocks.fingerprint
    found = memory.store.files.summaries(lambda _: None)
    content = {summary.fingerprint_id: summary.content == here.content for _, summary in found}
    return {fingerprint_id: same for fingerprint_id, same in content.items() if fingerprint_id != here.id}


def _supersede(memory: AgentMemory, fingerprints: set[str]) -> tuple[str, ...]:
    """Move pins to this engine's blocks, and mark the others' as evicted first; the fingerprints that are new there."""
    store, here = memory.store, memory.blocks.fingerprint.id
    before = store.superseded
    names = store.names(on_error=lambda _: None)
    own = {(named.kind, named.name): named.block_id for named in names if named.fingerprint_id == here}
    pinned = store.pinned()
    for named in names:
        new = own.get((named.kind, named.name))
        if named.fingerprint_id in fingerprints and named.block_id in pinned and new is not None:
            store.pin(new)
            store.unpin(named.block_id)
    marked = (before | fingerprints) - {here}
    if marked != before:
        store.set_superseded(marked)
    return tuple(sorted(marked - before))


# --- chunks ---------------------------------------------------------------------------------------


@dataclass(frozen=True)
class LackingChunk:
    """A chunk that another engine has in the store, and this one has not."""

    corpus: Corpus
    document: DocumentRecord
    chunk: ChunkRecord

    def deposit(self, cancellation: Cancellation | None = None) -> None:
        """Prefill and store it. Raises what a deposit raises, StaleDocument."""
        self.corpus.chunks.deposit(self.document, self.chunk, cancellation)


def lacking_chunks(memory: AgentMemory) -> list[LackingChunk]:
    """The chunks of this engine's corpora where another one has a state of the same bytes, or of some of them."""
    store, here = memory.store, memory.blocks.fingerprint.id
    known = [(shelf, record) for shelf in shelves(store) if (record := shelf.record) is not None]
    own = {record.name: Corpus(memory, record.name) for _, record in known if record.fingerprint_id == here}
    found: dict[str, LackingChunk] = {}
    for shelf, record in known:
        corpus = own.get(record.name)
        if record.fingerprint_id == here or corpus is None:
            continue
        stored, mine = shelf.stored(), corpus.shelf.all()
        for key, document in shelf.all().items():
            ranges = [(one.start, one.stop) for one in document.chunks if one.block_id in stored]
            for chunk in mine[key].chunks if key in mine and mine[key].sha256 == document.sha256 else ():
                overlaps = any(start < chunk.stop and chunk.start < stop for start, stop in ranges)
                if overlaps and memory.blocks.valid(chunk.block_id) is None:
                    found.setdefault(chunk.block_id, LackingChunk(corpus, mine[key], chunk))
    return list(found.values())


def stored_chunks(memory: AgentMemory) -> list[ChunkRecord]:
    """The stored chunks of corpora that only other engines have: about what :func:`lacking_chunks` gives afterwards."""
    found: dict[str, ChunkRecord] = {}
    for shelf, _ in lacking_corpora(memory.store, memory.blocks.fingerprint.id):
        stored = shelf.stored()
        chunks = (chunk for document in shelf.all().values() for chunk in document.chunks)
        found |= {chunk.block_id: chunk for chunk in chunks if chunk.block_id in stored}
    return list(found.values())


# --- the forecast ---------------------------------------------------------------------------------


def _length(memory: AgentMemory, named: NamedBlock) -> int:
    text = None
    with contextlib.suppress(StoreError):
        text = memory.store.text(named.source_sha256) if named.source_sha256 else None
    return len(memory.engine.tokenize(text or "", special=False))


def _own_bytes(memory: AgentMemory, block_id: str) -> int:
    with contextlib.suppress(StoreError):
        manifest = memory.store.manifest(block_id)
        return 0 if manifest is None else memory.store.sizes(manifest).own_stored
    return 0


def _seconds(memory: AgentMemory, tokens: int, blocks: int) -> float | None:
    """What the prefill and the proofs take, by a short prefill and a few single steps on this machine."""
    engine = memory.engine
    words: Sequence[int] = [t for t in range(min(engine.info.n_vocab, 4096)) if not engine.is_control(t)]
    n_tokens = min(_RATE_TOKENS, engine.window - _RATE_STEPS)
    check_window(0, n_tokens, _RATE_STEPS, engine.window)
    with memory.blocks.exclusive():
        engine.clear()
        started = time.perf_counter()
        engine.extend([words[i % len(words)] for i in range(n_tokens)])
        prefill = (time.perf_counter() - started) / n_tokens
        started = time.perf_counter()
        for _ in range(_RATE_STEPS):
            engine.extend(words[:1])
        step = (time.perf_counter() - started) / _RATE_STEPS
    proof = PROBE_BATCH * prefill + (PROBE_STEPS - PROBE_BATCH) * step
    return tokens * prefill + blocks * 2 * proof
