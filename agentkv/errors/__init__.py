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
    │   ├── NoGpu                 15   layers for a GPU, in a build of llama.cpp that uses none
    │   ├── EngineUnavailable     16   llama-cpp-python is not there, or cannot be loaded here
    │   ├── WindowOverflow        20   block + turn + answer do not fit; four numbers
    │   ├── InvalidState          21   a malformed state; it never reached native code
    │   ├── NativeRefusal         22   llama.cpp refused; the context was rebuilt
    │   ├── InvalidGrammar        23   the grammar or JSON schema cannot be used
    │   ├── Cancelled             24   stopped by the caller; the context is clean
    │   ├── UnsupportedTemplate   25   the chat template cannot be split into parts
    │   └── EngineClosed          26   used after close()
    ├── NotPicklable              27   what is open cannot be pickled
    ├── OpenedBeforeFork          28   what the parent process opened is used in a forked child
    ├── IncompatibleFingerprint   30   the block belongs to another model, setting or runtime
    ├── InexactBlock              31   the exactness probe diverged; says at which step
    ├── StoreError
    │   ├── StoreUnusable         40   the directory cannot serve as a store
    │   ├── StoreFormatError      41   written by a version that this one cannot read
    │   ├── CorruptBlock          42   bytes on disk are not the bytes that were committed
    │   ├── MissingSegment        43   a committed block lacks one of its segments
    │   ├── UnknownBlock          44   nothing stored under that id or name
    │   ├── StoreFull             45   no space left; nothing half-written
    │   ├── StoreReadError        46   the system refused the read; nothing is known to be corrupt
    │   ├── StoreDamaged          47   a check found corrupt files; what and where is in its findings
    │   ├── OverBudget            48   the budget has no room: what is left is pinned
    │   └── CorruptDatabase       49   an adapter's SQLite database beside the blocks is corrupt
    ├── SkillError
    │   ├── InvalidManual         50   file, line and reason
    │   ├── UnknownSkill          51   not in the library; names the nearest
    │   ├── InvalidPick           52   the classifier picked no live label, and the policy is to stop there
    │   └── SkillsLeftOut         55   skills are stored, but for another engine, and ``strict`` was asked for
    ├── NotConfirmed              56   nothing was removed: nobody was there to be asked, or the answer was no
    ├── GuaranteeViolated         60   a self-check saw its guarantee fail
    ├── WorkerFailed              61   a self-check's other process ended with an error
    ├── BenchError
    │   ├── InvalidResult         62   a file that is not a result of a benchmark, or lacks the figure
    │   └── DifferentRuns         63   figures of two runs were to be compared
    ├── PackError
    │   ├── InvalidPack           70   not exactly a pack: the member and the reason; nothing was imported
    │   ├── UntrustedPack         71   unsigned, or signed by a key that is not trusted
    │   ├── BadSignature          72   the signature is not that of these bytes
    │   ├── InvalidKey            73   no Ed25519 key in that file or text
    │   ├── ForgedBlock           74   a block's state or tokens are not what its text gives
    │   └── NameConflict          75   a name of the pack is taken in the store
    ├── DocumentError
    │   ├── InvalidDocument       80   a file that is not text, or cannot be read: which and why
    │   ├── UnknownCorpus         81   no corpus of that name for this model
    │   ├── StaleDocument         82   what is stored of a file no longer gives its chunks
    │   └── ReadingNotConfirmed   84   the prefill of what is added would take long or much disk, and nobody has agreed
    ├── ThreadError
    │   ├── UnknownThread         90   no thread of that name in the store
    │   ├── ThreadChanged         91   another process has continued the thread; nothing is lost
    │   └── CorruptThread         92   a turn of the thread is corrupt or missing
    ├── StillReadable             94   words that were to be forgotten can still be read in a file of the store
    ├── EvidenceError
    │   ├── LedgerDamaged        100   records were changed, dropped, moved or forged; what and where in its findings
    │   ├── UnknownRun           101   no run of that id in the ledger
    │   ├── NotScorable          102   no scorer for the run, or its raw generations were left out
    │   ├── ScoreMismatch        103   the scores computed from the raw generations are not those reported
    │   ├── InvalidPlan          104   not a plan, or changed after it was sealed
    │   ├── PlanRefused          105   the plan does not belong to this tree, model or run, or came after the run
    │   ├── ReplayFailed         106   the replay is valid and what was predicted did not happen
    │   ├── MachineUnsuitable    107   the machine lacks what the plan needs
    │   └── StepFailed           108   a step's command gave no result; the run can be resumed
    ├── FlywheelError
    │   ├── InvalidTask          110   a file of tasks: file, line and reason
    │   ├── NotProven            111   a solution whose proof is not one; nothing was stored
    │   ├── IsolationTooLow      112   this system cannot isolate a candidate as far as the policy asks
    │   ├── SandboxUnavailable   113   nothing can be run here at all
    │   ├── UnknownTask          114   no solution is stored for that task
    │   └── EndpointFailed       115   a teacher's endpoint did not answer as one
    └── Interrupted              130   Ctrl-C; what was committed stays
"""

from __future__ import annotations

from agentkv.errors.base import (
    AgentKVError,
    BenchError,
    DifferentRuns,
    GuaranteeViolated,
    Interrupted,
    InvalidResult,
    NotConfirmed,
    NotPicklable,
    OpenedBeforeFork,
    UsageError,
    WorkerFailed,
)
from agentkv.errors.engine import (
    Cancelled,
    EngineClosed,
    EngineError,
    EngineUnavailable,
    IncompatibleFingerprint,
    InexactBlock,
    InvalidGrammar,
    InvalidState,
    ModelError,
    ModelHashMismatch,
    ModelUnreadable,
    NativeRefusal,
    NoGpu,
    PullFailed,
    UnknownModel,
    UnsupportedTemplate,
    WindowOverflow,
)
from agentkv.errors.evidence import (
    EvidenceError,
    InvalidPlan,
    LedgerDamaged,
    MachineUnsuitable,
    NotScorable,
    PlanRefused,
    ReplayFailed,
    ScoreMismatch,
    StepFailed,
    UnknownRun,
)
from agentkv.errors.flywheel import (
    EndpointFailed,
    FlywheelError,
    InvalidTask,
    IsolationTooLow,
    NotProven,
    SandboxUnavailable,
    UnknownTask,
)
from agentkv.errors.memory import (
    CorruptThread,
    DocumentError,
    InvalidDocument,
    InvalidManual,
    InvalidPick,
    ReadingNotConfirmed,
    SkillError,
    SkillsLeftOut,
    StaleDocument,
    ThreadChanged,
    ThreadError,
    UnknownCorpus,
    UnknownSkill,
    UnknownThread,
)
from agentkv.errors.packs import (
    BadSignature,
    ForgedBlock,
    InvalidKey,
    InvalidPack,
    NameConflict,
    PackError,
    UntrustedPack,
)
from agentkv.errors.store import (
    CorruptBlock,
    CorruptDatabase,
    MissingSegment,
    OverBudget,
    StillReadable,
    StoreDamaged,
    StoreError,
    StoreFormatError,
    StoreFull,
    StoreReadError,
    StoreUnusable,
    UnknownBlock,
)

__all__ = [
    "AgentKVError",
    "BadSignature",
    "BenchError",
    "Cancelled",
    "CorruptBlock",
    "CorruptDatabase",
    "CorruptThread",
    "DifferentRuns",
    "DocumentError",
    "EndpointFailed",
    "EngineClosed",
    "EngineError",
    "EngineUnavailable",
    "EvidenceError",
    "FlywheelError",
    "ForgedBlock",
    "GuaranteeViolated",
    "IncompatibleFingerprint",
    "InexactBlock",
    "Interrupted",
    "InvalidDocument",
    "InvalidGrammar",
    "InvalidKey",
    "InvalidManual",
    "InvalidPack",
    "InvalidPick",
    "InvalidPlan",
    "InvalidResult",
    "InvalidState",
    "InvalidTask",
    "IsolationTooLow",
    "LedgerDamaged",
    "MachineUnsuitable",
    "MissingSegment",
    "ModelError",
    "ModelHashMismatch",
    "ModelUnreadable",
    "NameConflict",
    "NativeRefusal",
    "NoGpu",
    "NotConfirmed",
    "NotPicklable",
    "NotProven",
    "NotScorable",
    "OpenedBeforeFork",
    "OverBudget",
    "PackError",
    "PlanRefused",
    "PullFailed",
    "ReadingNotConfirmed",
    "ReplayFailed",
    "SandboxUnavailable",
    "ScoreMismatch",
    "SkillError",
    "SkillsLeftOut",
    "StaleDocument",
    "StepFailed",
    "StillReadable",
    "StoreDamaged",
    "StoreError",
    "StoreFormatError",
    "StoreFull",
    "StoreReadError",
    "StoreUnusable",
    "ThreadChanged",
    "ThreadError",
    "UnknownBlock",
    "UnknownCorpus",
    "UnknownModel",
    "UnknownRun",
    "UnknownSkill",
    "UnknownTask",
    "UnknownThread",
    "UnsupportedTemplate",
    "UntrustedPack",
    "UsageError",
    "WindowOverflow",
    "WorkerFailed",
]
