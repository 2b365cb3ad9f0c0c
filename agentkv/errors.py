"""Every error that agentkv raises on purpose.

What a caller may do about it decides the leaf; each leaf has an exit code of its own, never re-used, and a
message that says what happened, where, and what to run or change next. A miss is a return value, not an error.

    AgentKVError
    ├── UsageError                 2   the request itself makes no sense
    ├── ModelError
    │   ├── UnknownModel          10   no such name, file or catalogue entry
    │   ├── ModelHashMismatch     11   the file is not the one that was named
    │   ├── ModelUnreadable       12   truncated, not GGUF, or refused by llama.cpp
    │   └── PullFailed            13   the package index gave no model
    ├── EngineError
    │   ├── WindowOverflow        20   block + turn + answer do not fit; four numbers
    │   ├── InvalidState          21   a state that is not well formed; never reached native code
    │   ├── NativeRefusal         22   llama.cpp refused; the context was rebuilt
    │   ├── InvalidGrammar        23   the grammar or JSON schema cannot be used
    │   ├── Cancelled             24   stopped by the caller; the context is clean
    │   ├── UnsupportedTemplate   25   the chat template cannot be split into pieces
    │   └── EngineClosed          26   used after close()
    ├── IncompatibleFingerprint   30   the block belongs to another model, setting or runtime
    ├── InexactBlock              31   the exactness probe diverged; says at which step
    ├── StoreError
    │   ├── StoreUnusable         40   the directory cannot serve as a store
    │   ├── StoreFormatError      41   written by a version that this one cannot read
    │   ├── CorruptBlock          42   bytes on disk are not the bytes that were committed
    │   ├── MissingSegment        43   a committed block lacks one of its segments
    │   ├── UnknownBlock          44   nothing stored under that id or name
    │   ├── StoreFull             45   no space left; nothing half-written
    │   ├── StoreReadError        46   the system refused the read; nothing is known to be damaged
    │   ├── StoreDamaged          47   a check found damage; what and where is in its findings
    │   ├── OverBudget            48   the budget has no room: what is left is pinned
    │   └── CorruptDatabase       49   what an adapter keeps beside the blocks is damaged
    ├── SkillError
    │   ├── InvalidManual         50   file, line and reason
    │   ├── UnknownSkill          51   not in the library; names the nearest
    │   └── InvalidPick           52   the classifier picked no live label, and the policy is to stop there
    ├── DocumentError
    │   ├── InvalidDocument       80   a file that is no text, or cannot be read: which and why
    │   ├── UnknownCorpus         81   no corpus of that name for this model
    │   └── StaleDocument         82   what is kept of a file does not give its windows any more
    ├── ThreadError
    │   ├── UnknownThread         90   no thread of that name in the store
    │   ├── ThreadChanged         91   another has gone on with the thread; nothing is lost
    │   └── CorruptThread         92   a turn of the thread is damaged or missing
    ├── GuaranteeViolated         60   a benchmark saw its guarantee fail
    ├── WorkerFailed              61   a benchmark's other process ended with an error
    └── Interrupted              130   Ctrl-C; what was committed stays
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

if TYPE_CHECKING:
    from agentkv.records import Turn


class AgentKVError(Exception):
    """Base of all errors of this package; ``exit_code`` is what the command line ends with.

    ``turn``: an answer that was given before the error and could not be kept, or None.
    """

    exit_code: ClassVar[int] = 1
    turn: Turn | None = None

    def __init__(self, message: str) -> None:
        super().__init__(message)
        self.message = message


class UsageError(AgentKVError):
    """The request cannot be carried out as it was put."""

    exit_code = 2


class ModelError(AgentKVError):
    """A model file is missing, is another one than was named, or cannot be read."""


class UnknownModel(ModelError):
    """Neither a catalogue name nor a file."""

    exit_code = 10

    def __init__(self, name: str, known: list[str]) -> None:
        super().__init__(
            f"no model {name!r}: neither a file nor one of {', '.join(known)}. "
            "Run `agentkv models list`, or pass the path of a .gguf file."
        )
        self.name, self.known = name, known


class ModelHashMismatch(ModelError):
    """A file's SHA-256 is not the one that its name stands for."""

    exit_code = 11

    def __init__(self, path: Path, expected: str, actual: str) -> None:
        super().__init__(
            f"{path} has SHA-256 {actual[:16]}…, expected {expected[:16]}…: it is damaged or another model. "
            "It was not used; delete it and run `agentkv models pull` again."
        )
        self.path, self.expected, self.actual = path, expected, actual


class ModelUnreadable(ModelError):
    """The file is not a complete GGUF model."""

    exit_code = 12

    def __init__(self, path: Path, reason: str) -> None:
        super().__init__(f"cannot load {path}: {reason}. Check it with `agentkv models verify {path}`.")
        self.path, self.reason = path, reason


class PullFailed(ModelError):
    """The model's packages could not be had."""

    exit_code = 13

    def __init__(self, name: str, reason: str) -> None:
        super().__init__(
            f"could not pull {name}: {reason}. Nothing was changed; check the network and pip's index settings "
            "and run the same command again, or pass the path of a .gguf file that you have."
        )
        self.name, self.reason = name, reason


class EngineError(AgentKVError):
    """Something between token ids and logits."""


class WindowOverflow(EngineError):
    """``n_block + n_turn + max_new`` is more than the context window; raised before anything is decoded."""

    exit_code = 20

    def __init__(self, n_block: int, n_turn: int, max_new: int, window: int) -> None:
        super().__init__(
            f"{n_block} block + {n_turn} turn + {max_new} new tokens = {n_block + n_turn + max_new}, "
            f"over the window of {window}. Shorten the text, lower max_new, or open the model with a larger window."
        )
        self.n_block, self.n_turn, self.max_new, self.window = n_block, n_turn, max_new, window


class InvalidState(EngineError):
    """A state blob that is not well formed; found in Python, before native code saw it."""

    exit_code = 21

    def __init__(self, reason: str, offset: int | None = None) -> None:
        where = "" if offset is None else f" at byte {offset}"
        super().__init__(f"state refused{where}: {reason}. The block has to be deposited again.")
        self.reason, self.offset = reason, offset


class NativeRefusal(EngineError):
    """llama.cpp refused a call; the context was thrown away and made anew."""

    exit_code = 22

    def __init__(self, call: str, detail: str) -> None:
        super().__init__(f"{call} failed: {detail}. The context was rebuilt; the next call starts clean.")
        self.call, self.detail = call, detail


class InvalidGrammar(EngineError):
    """A GBNF grammar or JSON schema that cannot be compiled, or a decoding that it cannot bind."""

    exit_code = 23

    def __init__(self, reason: str) -> None:
        super().__init__(f"the grammar cannot be used: {reason}")
        self.reason = reason


class Cancelled(EngineError):
    """The caller's cancellation took effect; the context was cleared."""

    exit_code = 24

    def __init__(self, during: str) -> None:
        super().__init__(f"cancelled during {during}; the context was cleared and the next call starts clean")
        self.during = during


class UnsupportedTemplate(EngineError):
    """The model's chat template cannot be cut into template pieces and content."""

    exit_code = 25

    def __init__(self, reason: str) -> None:
        super().__init__(f"the model's chat template cannot be used: {reason}")
        self.reason = reason


class EngineClosed(EngineError):
    """The engine was used after ``close()``."""

    exit_code = 26

    def __init__(self) -> None:
        super().__init__("the engine is closed; open it again")


class IncompatibleFingerprint(AgentKVError):
    """A block made with other model bytes, KV settings or runtime; names the first field that differs."""

    exit_code = 30

    def __init__(self, field: str, block: object, engine: object) -> None:
        super().__init__(
            f"the block was made with {field} = {block}, this engine has {field} = {engine}: its state would be "
            "another computation. Open the store with the matching model and settings, or deposit the text again."
        )
        self.field, self.block, self.engine = field, block, engine


class InexactBlock(AgentKVError):
    """A restored block did not continue as the fresh one did."""

    exit_code = 31

    def __init__(self, block_id: str, step: int, steps: int) -> None:
        super().__init__(
            f"block {block_id[:12]} diverged at step {step} of {steps} after restoring: this model and setting are "
            "not exact. Nothing was stored. Pass allow_inexact=True (--allow-inexact) to store it as `inexact`."
        )
        self.block_id, self.step, self.steps = block_id, step, steps


class StoreError(AgentKVError):
    """Something between a block and its bytes on disk."""


class StoreUnusable(StoreError):
    """The path cannot serve as a store directory."""

    exit_code = 40

    def __init__(self, path: Path, reason: str) -> None:
        super().__init__(f"{path} cannot be used as a store: {reason}")
        self.path, self.reason = path, reason


class StoreFormatError(StoreError):
    """The store was written in a format that this version does not read."""

    exit_code = 41

    def __init__(self, path: Path, found: object, known: list[int]) -> None:
        super().__init__(
            f"{path} has store format {found}, this version reads {known}. Use the agentkv version that wrote it."
        )
        self.path, self.found, self.known = path, found, known


class CorruptBlock(StoreError):
    """Bytes on disk are not those that were committed; found before anything was restored."""

    exit_code = 42

    def __init__(self, what: str, path: Path | None, reason: str) -> None:
        where = f" ({path})" if path else ""
        super().__init__(f"{what} is corrupt{where}: {reason}. It was not used; deposit the text again.")
        self.what, self.path, self.reason = what, path, reason


class MissingSegment(StoreError):
    """A manifest names a segment that is not there."""

    exit_code = 43

    def __init__(self, block_id: str, segment: str, path: Path) -> None:
        super().__init__(f"block {block_id[:12]} lacks its segment {segment[:12]} ({path}). Deposit the text again.")
        self.block_id, self.segment, self.path = block_id, segment, path


class UnknownBlock(StoreError):
    """No block under that id or name."""

    exit_code = 44

    def __init__(self, key: str, hint: str = "") -> None:
        super().__init__(f"no block {key!r} in this store. {hint or 'Run `agentkv list`.'}")
        self.key = key


class StoreFull(StoreError):
    """The file system has no room; what was half-written has been removed."""

    exit_code = 45

    def __init__(self, path: Path, needed: int, free: int | None) -> None:
        have = "" if free is None else f", {free:,} are free"
        super().__init__(
            f"no space to write {needed:,} bytes at {path}{have}. Nothing was stored and nothing was lost; "
            "free some space and repeat the command."
        )
        self.path, self.needed, self.free = path, needed, free


class StoreReadError(StoreError):
    """The operating system refused the read or write (EACCES, EIO, EMFILE…); no damage is known."""

    exit_code = 46

    def __init__(self, path: Path, reason: str) -> None:
        super().__init__(f"cannot access {path}: {reason}. Nothing is known to be damaged.")
        self.path, self.reason = path, reason


class StoreDamaged(StoreError):
    """A check of a whole store found damage; ``findings`` tells each."""

    exit_code = 47

    def __init__(self, path: Path, findings: Sequence[str]) -> None:
        more = f", and {len(findings) - 1:,} more" if len(findings) > 1 else ""
        super().__init__(
            f"{path} is damaged: {findings[0]}{more}. Nothing was changed; `agentkv check --repair` moves what is "
            "damaged aside, so that it can be deposited again."
        )
        self.path, self.findings = path, list(findings)


class OverBudget(StoreError):
    """The store's budget cannot hold the block, whatever else is evicted."""

    exit_code = 48

    def __init__(self, needed: int, budget: int, kept: int, evicted: str | None = None) -> None:
        what = f"{needed:,} bytes are needed; the store's budget is {budget:,}, and {kept:,} cannot go"
        end = (
            "Nothing was stored" if evicted is None else f"{evicted!r} was stored and went again for what came after it"
        )
        super().__init__(f"{what}. {end}. Raise it with `agentkv gc --set-budget SIZE`, unpin, or `gc --quarantine`.")
        self.needed, self.budget, self.kept, self.evicted = needed, budget, kept, evicted


class CorruptDatabase(StoreError):
    """An adapter's SQLite file in the store, or a row of it, is not what was written; no block depends on it."""

    exit_code = 49

    def __init__(self, path: Path, reason: str, remedy: str) -> None:
        super().__init__(f"{path} is damaged: {reason}. No block is concerned, and nothing was changed. {remedy}")
        self.path, self.reason, self.remedy = path, reason, remedy


class SkillError(AgentKVError):
    """Something about a SKILL.md folder."""


class InvalidManual(SkillError):
    """A manual that cannot be loaded: which file, which line, why; ``keeper``: the folder whose skill has its name."""

    exit_code = 50

    def __init__(self, path: Path, reason: str, line: int | None = None, keeper: Path | None = None) -> None:
        at = f"{path}:{line}" if line is not None else f"{path}"
        super().__init__(f"{at}: {reason}")
        self.path, self.reason, self.line, self.keeper = path, reason, line, keeper


class UnknownSkill(SkillError):
    """No skill of that name in the library."""

    exit_code = 51

    def __init__(self, name: str, near: list[str]) -> None:
        hint = f" Did you mean {', '.join(near)}?" if near else " Run `agentkv list`."
        super().__init__(f"no skill {name!r}.{hint}")
        self.name, self.near = name, near


class InvalidPick(SkillError):
    """The router's classifier answered something that is no live label, and no fallback was wanted."""

    exit_code = 52

    def __init__(self, raw_pick: str, labels: list[str]) -> None:
        super().__init__(
            f"the router picked {raw_pick!r}, which is none of {len(labels):,} live labels. "
            "Ask again with --skill NAME, or with another fallback than 'error'."
        )
        self.raw_pick, self.labels = raw_pick, labels


class DocumentError(AgentKVError):
    """Something about a corpus of documents."""


class InvalidDocument(DocumentError):
    """A file that cannot be split into windows: it is no text, too large, or cannot be read."""

    exit_code = 80

    def __init__(self, path: Path, reason: str) -> None:
        super().__init__(f"{path}: {reason}")
        self.path, self.reason = path, reason


class UnknownCorpus(DocumentError):
    """No corpus of that name, or none for this model and these settings."""

    exit_code = 81

    def __init__(self, name: str, known: Sequence[str], why: str = "") -> None:
        there = f"There are: {', '.join(known)}." if known else "There is none yet."
        said = why or f"{there} Make it with `agentkv docs add PATH`."
        super().__init__(f"no corpus {name!r} here for this model and these settings. {said}")
        self.name, self.known = name, list(known)


class StaleDocument(DocumentError):
    """The kept source of a file is gone or damaged, or is read otherwise by this version."""

    exit_code = 82

    def __init__(self, path: str, reason: str) -> None:
        super().__init__(f"{path}: {reason}. Run `agentkv docs add` on it again.")
        self.path, self.reason = path, reason


class ThreadError(AgentKVError):
    """Something about a conversation that is kept in the store."""


class UnknownThread(ThreadError):
    """No thread of that name."""

    exit_code = 90

    def __init__(self, thread_id: str, near: list[str]) -> None:
        hint = f" Did you mean {', '.join(near)}?" if near else " Run `agentkv threads list`."
        super().__init__(f"no thread {thread_id!r} in this store.{hint}")
        self.thread_id, self.near = thread_id, near


class ThreadChanged(ThreadError):
    """Another object or process has added to the thread since it was opened here; ``turn``: an answer in hand."""

    exit_code = 91

    def __init__(self, thread_id: str, turn: Turn | None = None) -> None:
        done = "Nothing was asked" if turn is None else "This answer is in the error's `turn` and not in the thread"
        super().__init__(
            f"thread {thread_id!r} has gone on elsewhere since it was opened. {done}; open it again, or fork it."
        )
        self.thread_id, self.turn = thread_id, turn


class CorruptThread(ThreadError):
    """What is kept of a thread is not what was written, or a part of it is gone."""

    exit_code = 92

    def __init__(self, thread_id: str, path: Path, reason: str) -> None:
        super().__init__(
            f"thread {thread_id!r} is damaged ({path}): {reason}. Nothing was changed; open it at an earlier entry "
            "(memory.thread(…, entry=N)), or remove it with `agentkv threads rm`."
        )
        self.thread_id, self.path, self.reason = thread_id, path, reason


class GuaranteeViolated(AgentKVError):
    """A benchmark measured the guarantee that it is there for, and it did not hold."""

    exit_code = 60


class WorkerFailed(AgentKVError):
    """A benchmark's other process ended with an error of its own, which it has printed."""

    exit_code = 61

    def __init__(self, target: str, code: int) -> None:
        super().__init__(f"{target} ended with code {code} in its own process; its message is above")
        self.target, self.code = target, code


class Interrupted(AgentKVError):
    """Stopped by Ctrl-C; everything committed before stays. ``counts``: of what was done, for a script."""

    exit_code = 130

    def __init__(
        self, message: str = "interrupted; what was committed before stays, nothing is half-written", **counts: int
    ) -> None:
        super().__init__(message)
        vars(self).update(counts)
