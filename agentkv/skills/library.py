"""``SkillLibrary``: folders of skills and a memory, kept in step: what is new or changed is read, what is gone retired.

What is stored for this model, these settings and this agent prefix is compared with what the folders hold now, by
digest and block id; times decide nothing. What is the same but cannot be used (a file of the block, its parent, its
text or its name is missing or damaged) is deposited again, and reported as mended; what the system would not read is a
fault. The names that a library may retire are those of skills whose source lies below its folders, and those of a
skill that one of its own replaces; whatever else the store holds is not its business.

**Names are one space.** A skill deposited from another folder under the same name is replaced, the last one wins, and
the report says whose it was. Of two with one name below the roots of one library one is taken: the first root's, then
one whose path does not speak of copies (``old``, ``copy``, ``backup``, ``(1)``), then the one nearest to its root, then
the one that is named like its folder. The other is a fault and is warned of.

**A skill keeps its last good version** while its file is broken, cannot be deposited, or its folder cannot be read:
a half-saved file must not take a skill away. The report says so. A skill whose file is gone is retired at once:
its names go, so that it is not routed any more. Blocks stay, unnamed, until the store's budget or a collection
takes them; a skill that comes back costs a hash.

Knows files, names and ids. What it needs of a memory is :class:`Depositor`. Not guaranteed: that a skill in several
pieces changes all of them in one instant; each piece is replaced whole, and what is left over goes last. Nor that a
store's byte budget holds all of the skills: what a later deposit made go is reported as evicted; the next sync reads it
again, and others go for it.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from enum import Enum
from pathlib import Path
from typing import Any, Protocol

from agentkv.blocks.blocks import Blocks, Deposit
from agentkv.blocks.mismatch import in_words, others
from agentkv.engine.base import Cancellation, Engine
from agentkv.errors import AgentKVError, Cancelled, CorruptBlock, InvalidManual, StoreError
from agentkv.io.forks import OwnedLock, Shared
from agentkv.notices import warn
from agentkv.records import NamedBlock
from agentkv.skills.discovery import FILE_NAMES
from agentkv.skills.inventory import Inventory
from agentkv.skills.manual import Manual, name_key
from agentkv.skills.pieces import Cutter, SkillBlock, owner, read_references
from agentkv.skills.report import Broken, Done, Plan, SkillEvent, SyncReport, Work, warn_of
from agentkv.skills.stored import Evictions, fault_of
from agentkv.skills.watch import SkillWatch
from agentkv.store.catalog import BlockStore


class Depositor(Protocol):
    """What a library asks of a memory; :class:`agentkv.AgentMemory` is one."""

    store: BlockStore
    engine: Engine
    blocks: Blocks
    prefix: str

    def deposit_skill(
        self,
        skill: Manual,
        /,
        *,
        parent: str | None = None,
        allow_inexact: bool = False,
        cancellation: Cancellation | None = None,
    ) -> Deposit:
        """Read a manual once and store it under its name."""
        ...


class _State(Enum):
    STORED = "as it should be"
    DAMAGED = "as it should be, but not usable"
    OTHER = "not there, or another one"


def _ignore(_: object) -> None:
    """The default of callbacks."""


class SkillLibrary(Shared):
    """The skills below ``roots``, for one memory. Calls from several threads take turns.

    ``max_tokens``: split a manual whose block would be longer; one over the window is split in any case (see
    ``pieces.py``). ``references``: deposit ``references/….md`` on top of their manuals too. ``layered``: the roots are
    layers, of which the first is meant to hide what the others have of one name, so that is not warned of. Raises
    UsageError for a root that is not a directory.

    >>> import tempfile
    >>> from agentkv import AgentMemory, FakeEngine
    >>> folder = Path(tempfile.mkdtemp())
    >>> (folder / "greet").mkdir()
    >>> _ = (folder / "greet" / "SKILL.md").write_text("---\\nname: greet\\ndescription: Greets.\\n---\\nSay hello.")
    >>> with AgentMemory(tempfile.mkdtemp(), FakeEngine()) as memory:
    ...     library = SkillLibrary(memory, folder)
    ...     library.sync().added, library.sync().unchanged
    (('greet',), ('greet',))
    """

    def __init__(
        self,
        memory: Depositor,
        roots: Path | str | Sequence[Path | str],
        *,
        max_tokens: int | None = None,
        references: bool = False,
        allow_inexact: bool = False,
        layered: bool = False,
    ) -> None:
        given = [roots] if isinstance(roots, Path | str) else list(roots)
        self.inventory = Inventory([Path(root) for root in given])
        self.memory, self.references = memory, references
        self._allow_inexact, self._layered = allow_inexact, layered
        self._cutter = Cutter(memory.blocks, memory.prefix, max_tokens=max_tokens)
        self._lock = OwnedLock("skill library", reentrant=True)
        self._cuts: dict[Path, tuple[object, list[SkillBlock]]] = {}
        self._refused: dict[Path, tuple[object, AgentKVError]] = {}
        self._warned: set[str] = set()

    def sync(
        self,
        *,
        retire: bool = True,
        cancellation: Cancellation | None = None,
        on_work: Callable[[Work], None] = _ignore,
    ) -> SyncReport:
        """Read the folders, deposit what is new or changed, retire what is gone (unless ``retire`` is off).

        ``on_work`` is called before each skill is deposited. A fault of one skill is in the report and keeps no other
        out; manuals that were loaded with a warning, and two of one name, are warned of once. Raises Cancelled; what
        was committed by then stays.
        """
        with self._lock:
            plan = self.plan()
            self.announce(plan, clashes=True)
            return self.carry_out(plan if retire else replace(plan, removed=()), cancellation, on_work=on_work)

    def watch(
        self,
        on_event: Callable[[SkillEvent], None] = _ignore,
        *,
        quiet_s: float = 0.3,
        longest_s: float = 1.5,
        rescan_s: float = 30.0,
    ) -> SkillWatch:
        """Sync now and from now on, on a thread of its own, until the handle is stopped. See ``watch.py``."""
        return SkillWatch(self, on_event, quiet_s=quiet_s, longest_s=longest_s, rescan_s=rescan_s)

    def announce(self, plan: Plan, *, clashes: bool = False) -> None:
        """Warn of the plan's notices that were not warned of before; with ``clashes``, of names that two have, too."""
        clashing = [error for error in plan.clashes if not (self._layered and self._is_of_another_root(error))]
        names = [error.message for error in clashing if clashes]
        warn_of([*plan.notices, *names], self._warned)

    def _is_of_another_root(self, clash: InvalidManual) -> bool:
        roots = [self.inventory.root_of(path) for path in (clash.path, clash.keeper) if path is not None]
        return roots[0] != roots[-1]

    @contextlib.contextmanager
    def locked(self) -> Iterator[None]:
        """Several calls in one, while other threads wait."""
        with self._lock:
            yield

    # --- what is to be done ---------------------------------------------------------------------------

    def plan(self, *, read: bool = True) -> Plan:
        """What a sync would do now. ``read=False``: by what of the folders is known already."""
        with self._lock:
            if read:
                self._refused.clear()
                self.inventory.read()
            stored = self._stored()
            ours = [named for named in stored.values() if self._is_ours(named)]
            folders = {_source(path): path for path in self.inventory.broken_folders()}
            held = [named for named in ours if named.source in folders]
            reserved = {name_key(owner(named.name)): folders[named.source] for named in held}
            manuals, errors = self.inventory.resolved(reserved)
            return self._plan(manuals, errors, stored, ours)

    def _plan(
        self,
        manuals: Sequence[Manual],
        errors: Sequence[InvalidManual],
        stored: dict[str, NamedBlock],
        ours: Sequence[NamedBlock],
    ) -> Plan:
        works, unchanged, problems = [], [], []
        broken = [Broken(error.path, error, _names_from(error.path, ours)) for error in errors]
        for manual in manuals:
            try:
                pieces, more = self._pieces(manual)
                work = self._work(manual, tuple(pieces), stored)
            except AgentKVError as error:
                broken.append(Broken(manual.path, error, _names_of(manual.name, ours)))
                continue
            problems += more
            if work is None:
                unchanged.append((manual, tuple(pieces)))
            else:
                works.append(work)
        kept = {owner(name) for entry in broken for name in entry.kept} | {manual.name for manual in manuals}
        gone = [n for n in ours if owner(n.name) not in kept and not self.inventory.is_unreadable(Path(n.source))]
        notices = (*self.inventory.notices, *(manual.warning for manual in manuals if manual.notes))
        return Plan(tuple(works), tuple(unchanged), tuple(gone), tuple(broken), tuple(problems), notices)

    def _pieces(self, manual: Manual) -> tuple[list[SkillBlock], list[InvalidManual]]:
        """The skill's pieces, cut again only if its content has changed. Raises what that was refused for before."""
        texts, broken = read_references(manual) if self.references else ([], [])
        content = (manual.sha256, manual.routed, manual.license, tuple(texts))
        refused = self._refused.get(manual.path)
        if refused is not None and refused[0] == content:
            raise refused[1]
        known = self._cuts.get(manual.path)
        if known is None or known[0] != content:
            known = self._cuts[manual.path] = (content, self._cutter.cut(manual, texts))
        return known[1], broken

    def _stored(self) -> dict[str, NamedBlock]:
        """Skills of this fingerprint by name; a damaged name counts as none, so that a deposit mends it."""
        fingerprint = self.memory.blocks.fingerprint.id
        return {named.name: named for named in self.memory.store.names("skill", fingerprint, on_error=_ignore)}

    def _is_ours(self, named: NamedBlock) -> bool:
        source = Path(named.source)
        return any(source.is_relative_to(_source(root)) for root in self.inventory.roots)

    def _work(self, manual: Manual, pieces: tuple[SkillBlock, ...], stored: dict[str, NamedBlock]) -> Work | None:
        """What is to be done for a skill, None if nothing is. Raises StoreReadError."""
        states = {piece.manual.name: self._state(piece, stored) for piece in pieces}
        before = tuple(named for named in stored.values() if owner(named.name) == manual.name)
        missing = tuple(piece for piece in pieces if states[piece.manual.name] is not _State.STORED)
        stale = tuple(named for named in before if named.name not in states)
        if not missing and not stale:
            return None
        kind: Done = "changed" if before else "added"
        was = _other_folder(manual, before)
        if was is not None:
            kind = "replaced"
        elif not stale and _State.OTHER not in states.values():
            kind = "mended"
        return Work(manual, pieces, missing, stale, before, kind, was)

    def _state(self, piece: SkillBlock, stored: dict[str, NamedBlock]) -> _State:
        store, manual = self.memory.store, piece.manual
        try:
            named = stored.get(manual.name) or store.name("skill", manual.name, self.memory.blocks.fingerprint.id)
        except CorruptBlock:
            return _State.DAMAGED
        if named is None or (named.block_id, named.source_sha256) != (piece.block_id, piece.source_sha256):
            return _State.OTHER
        about = named.description, named.license, named.source
        if about != (manual.card, manual.license or "", _source(manual.path)):
            return _State.OTHER
        return _State.STORED if fault_of(store, named) is None else _State.DAMAGED

    # --- doing it -------------------------------------------------------------------------------------

    def carry_out(
        self,
        plan: Plan,
        cancellation: Cancellation | None = None,
        *,
        on_work: Callable[[Work], None] = _ignore,
        on_event: Callable[[SkillEvent], None] = _ignore,
        leave: Callable[[Path], bool] = lambda _: False,
    ) -> SyncReport:
        """Do what a plan says: retire first, then deposit skill by skill; the engine is held for one at a time.

        ``leave``: whether a skill's folder is to be passed over now, since it is known to have changed again. Raises
        Cancelled.
        """
        with self._lock:
            self._warn_of_others(plan)
            carrying = _Carrying(Evictions(self.memory.store), on_event, list(plan.broken))
            sources = {named.name: Path(named.source) for named in self._stored().values()}
            carrying.retired += [named.block_id for named in plan.removed if self._remove(named)]
            carrying.emit(*_removals(plan.removed))
            for work in plan.work:
                if cancellation is not None and cancellation.requested:
                    raise Cancelled("a sync of skills")
                if leave(work.manual.path):
                    continue
                on_work(work)
                sources |= {piece.manual.name: work.manual.path for piece in work.pieces}
                self._carry_out(work, carrying, cancellation)
                carrying.emit(*carrying.evictions.look(sources))
            return carrying.report(plan, self._gone(plan, carrying.done))

    def _carry_out(self, work: Work, carrying: _Carrying, cancellation: Cancellation | None) -> None:
        try:
            event, lost = self._deposit(work, cancellation)
        except Cancelled:
            raise
        except AgentKVError as error:
            carrying.broken.append(self._refuse(work, error))
        else:
            carrying.done.append(work)
            carrying.retired += lost
            carrying.emit(event)

    def _warn_of_others(self, plan: Plan) -> None:
        """Warn that skills are prefilled again since another engine has made what is stored of them."""
        added = {piece.manual.name for work in plan.work if work.kind == "added" for piece in work.pieces}
        if not added:
            return
        store, engine = self.memory.store, self.memory.engine
        names = [named for named in store.names("skill", on_error=_ignore) if named.name in added]
        for other in others(store, self.memory.blocks.fingerprint, names):
            warn(
                f"{', '.join(named.name for named in other.names)}: stored for another engine "
                f"({in_words(store, other.fields, engine.info.name)}), so prefilled again for this one. "
                "What it has stays; `agentkv list` shows both."
            )

    def _gone(self, plan: Plan, done: Sequence[Work]) -> dict[str, list[str]]:
        """The skills that should be stored now and are not whole, with the names that they lack: the budget's doing."""
        there = set(self._stored())
        pieces = [(manual.name, pieces) for manual, pieces in plan.unchanged]
        pieces += [(work.manual.name, work.pieces) for work in done]
        lost = {name: [p.manual.name for p in of_it if p.manual.name not in there] for name, of_it in pieces}
        lost = {name: names for name, names in lost.items() if names}
        return lost if lost and self._has_budget() else {}

    def _has_budget(self) -> bool:
        with contextlib.suppress(StoreError):  # settings that cannot be read bound nothing
            return self.memory.store.budget is not None
        return False

    def _deposit(self, work: Work, cancellation: Cancellation | None) -> tuple[SkillEvent, list[str]]:
        start, before = time.perf_counter(), self.memory.engine.counters.decoded
        for piece in work.missing:
            self.memory.deposit_skill(
                piece.manual, parent=piece.parent, allow_inexact=self._allow_inexact, cancellation=cancellation
            )
        lost = work.replaced + [named.block_id for named in work.stale if self._remove(named)]
        event = SkillEvent(
            kind=work.kind,
            name=work.manual.name,
            path=work.manual.path,
            pieces=len(work.pieces),
            tokens=sum(piece.n_whole for piece in work.pieces),
            own_tokens=sum(piece.n_tokens for piece in work.pieces),
            read=self.memory.engine.counters.decoded - before,
            seconds=time.perf_counter() - start,
            was=work.was,
        )
        return event, lost

    def _refuse(self, work: Work, error: AgentKVError) -> Broken:
        """Remember what was refused, so that it is not read again until it changes; the store's faults may pass."""
        content = self._cuts[work.manual.path][0]
        if not isinstance(error, StoreError):
            self._refused[work.manual.path] = (content, error)
        return Broken(work.manual.path, error, tuple(named.name for named in work.before))

    def _remove(self, named: NamedBlock) -> bool:
        return self.memory.store.remove_name(named.kind, named.name, named.fingerprint_id)


@dataclass
class _Carrying:
    """A plan while it is carried out: what has happened so far."""

    evictions: Evictions
    on_event: Callable[[SkillEvent], None]
    broken: list[Broken]
    done: list[Work] = field(default_factory=list)
    retired: list[str] = field(default_factory=list)
    events: list[SkillEvent] = field(default_factory=list)

    def emit(self, *events: SkillEvent) -> None:
        for event in events:
            self.events.append(event)
            self.on_event(event)

    def report(self, plan: Plan, gone: dict[str, list[str]]) -> SyncReport:
        """``gone``: skills that the budget made go, with the names that they lack."""
        report = SyncReport(
            unchanged=tuple(manual.name for manual, _ in plan.unchanged if manual.name not in gone),
            evicted=tuple(gone),
            removed=tuple(event.name for event in self.events if event.kind == "removed"),
            broken=tuple(self.broken),
            problems=plan.problems,
            retired=tuple(self.retired),
            evicted_names=self.evictions.names,
            evicted_bytes=self.evictions.bytes_of([name for names in gone.values() for name in names]),
            events=tuple(self.events),
        )
        return replace(report, **_by_kind([work for work in self.done if work.manual.name not in gone]))


def _removals(removed: Sequence[NamedBlock]) -> list[SkillEvent]:
    """One event a skill, however many pieces it had."""
    count: dict[tuple[str, str], int] = {}
    for named in removed:
        key = (owner(named.name), named.source)
        count[key] = count.get(key, 0) + 1
    return [SkillEvent("removed", name, Path(source), pieces) for (name, source), pieces in count.items()]


def _by_kind(done: Sequence[Work]) -> dict[str, Any]:
    """The skills deposited, by what became of them, as a report names them."""
    kinds: tuple[Done, ...] = ("added", "changed", "mended", "replaced")
    return {kind: tuple(work.manual.name for work in done if work.kind == kind) for kind in kinds}


def _other_folder(manual: Manual, before: Sequence[NamedBlock]) -> Path | None:
    """The folder whose skill has the name now, if it is another one and still holds a manual."""
    for folder in dict.fromkeys(Path(named.source) for named in before):
        if not folder.is_absolute():
            continue
        with contextlib.suppress(OSError):
            if any((folder / name).is_file() for name in FILE_NAMES) and not folder.samefile(manual.path):
                return folder
    return None


def _names_from(path: Path, ours: Sequence[NamedBlock]) -> tuple[str, ...]:
    sources = {_source(path), _source(path.parent)}
    return tuple(named.name for named in ours if named.source in sources)


def _names_of(skill: str, ours: Sequence[NamedBlock]) -> tuple[str, ...]:
    return tuple(named.name for named in ours if owner(named.name) == skill)


def _source(path: Path) -> str:
    """A path as a name's record keeps it."""
    return str(path).encode("utf-8", "replace").decode()
