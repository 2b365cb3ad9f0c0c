"""The records that cross layers: frozen, validated, canonical on disk.

Times and use counts are not part of a manifest: the same tokens under the same
fingerprint give the same manifest, byte for byte, on every machine where the computation is the same.
"""

from __future__ import annotations

from enum import StrEnum
from functools import cache, cached_property
from typing import Annotated, Any, ClassVar, Literal, get_args

from pydantic import BaseModel, ConfigDict, Field, model_validator

from agentkv.io.hashing import tagged_digest

Sha256 = Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]
Count = Annotated[int, Field(ge=0, le=2**53)]
TokenId = Annotated[int, Field(ge=0, lt=2**31)]


class Record(BaseModel):
    """Base: immutable, no unknown fields, no silent coercion."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)

    added: ClassVar[frozenset[str]] = frozenset()
    """Fields that are younger than the format: on disk only where they differ from their default."""

    def on_disk(self) -> dict[str, Any]:
        """JSON values of the fields as files have them, without ``added`` ones at their default, here and in records
        inside; so a record of an earlier version keeps its bytes and digest."""
        return self.model_dump(mode="json", by_alias=True, exclude=self._young())

    def _young(self) -> dict[str, Any]:
        fields = type(self).model_fields
        found: dict[str, Any] = {name: True for name in self.added if getattr(self, name) == fields[name].default}
        for name in _fields_with_added(type(self)):
            value = getattr(self, name)
            items = dict(enumerate(value)) if isinstance(value, tuple) else value if isinstance(value, dict) else None
            if items is not None:
                inner: Any = {key: young for key, item in items.items() if (young := _young_of(item))}
            else:
                inner = _young_of(value)
            if inner and name not in found:
                found[name] = inner
        return found


def _young_of(value: object) -> dict[str, Any]:
    return value._young() if isinstance(value, Record) else {}


@cache
def _fields_with_added(kind: type[Record]) -> tuple[str, ...]:
    """Fields in whose records something may be left out: few have any, and a manifest has a million records."""
    return tuple(name for name, field in kind.model_fields.items() if _has_added(field.annotation))


def _has_added(annotation: Any) -> bool:
    if isinstance(annotation, type) and issubclass(annotation, Record):
        return bool(annotation.added or _fields_with_added(annotation))
    return any(_has_added(part) for part in get_args(annotation))


class Exactness(StrEnum):
    """How well it is known that a restored block gives the logits of a cold prefill."""

    EXACT = "exact"
    EXACT_BY_CONFIG = "exact_by_config"
    INEXACT = "inexact"


USUAL = {"kv_type": "f16", "flash_attention": False, "gpu_layers": 0}
"""Values of fields that a fingerprint leaves out."""


class Fingerprint(Record):
    """What makes two states interchangeable.

    ``content`` must match or the block is refused; ``numerics`` must match for ``exact``. Values are JSON scalars,
    or lists of strings. File names, paths and sizes are never part of it.
    """

    content: dict[str, str | int | float | bool | list[str] | None]
    numerics: dict[str, str | int | float | bool | list[str] | None]

    @cached_property
    def id(self) -> str:
        """SHA-256 over both halves, 64 hex characters."""
        return tagged_digest("fingerprint/1", self.content, self.numerics)

    def first_difference(self, other: Fingerprint) -> tuple[str, Any, Any] | None:
        """The first field that differs, as (name, here, there); content before numerics; None when equal."""
        for half in ("content", "numerics"):
            here, there = getattr(self, half), getattr(other, half)
            for key in sorted(set(here) | set(there)):
                if here.get(key) != there.get(key) or (key in here) != (key in there):
                    return key, _value(here, key), _value(there, key)
        return None

    def differences(self, other: Fingerprint) -> dict[str, tuple[Any, Any]]:
        """Every field that differs, as name -> (here, there), content before numerics, without mere consequences.

        ``v_trans`` follows from flash attention; the batch split and the threads count where that or the GPU is on.
        """
        found: dict[str, tuple[Any, Any]] = {}
        for half in ("content", "numerics"):
            here, there = getattr(self, half), getattr(other, half)
            fields = sorted(set(here) | set(there))
            pairs = {key: (_value(here, key), _value(there, key)) for key in fields}
            found |= {key: pair for key, pair in pairs.items() if pair[0] != pair[1]}
        if "engine" in found:  # nothing else can be compared
            return {key: found[key] for key in ("engine", "model_sha256") if key in found}
        pins = {"flash_attention", "gpu_layers"}
        causes = {"v_trans": {"flash_attention"}, "batch": pins, "threads": pins}
        return {key: pair for key, pair in found.items() if not causes.get(key, set()) & found.keys()}


def _value(fields: dict[str, Any], key: str) -> Any:
    return fields.get(key, USUAL.get(key))


class Planes(Record):
    """One layer's keys or values inside a section.

    ``token_major``: ``n_cells`` rows of ``row_bytes``; else channel-major: ``channels`` runs of ``n_cells`` elements
    of ``row_bytes // channels`` bytes. ``ggml_type`` is the tensor type's number in ggml.
    """

    ggml_type: int
    token_major: bool
    row_bytes: Annotated[int, Field(ge=1, le=2**32)]
    channels: Annotated[int, Field(ge=1, le=2**32)] = 1


class Section(Record):
    """One cache inside a state: an attention cache (full or sliding-window), a recurrent one, or an opaque one.

    ``window``: 0, or the number of positions that the sliding window keeps visible.
    ``fixed_bytes``: its size when it cannot be cut by position (recurrent, opaque), else 0.
    """

    kind: Literal["attention", "recurrent", "opaque"]
    v_trans: bool = False
    window: Count = 0
    keys: tuple[Planes, ...] = ()
    values: tuple[Planes, ...] = ()
    fixed_bytes: Count = 0


class StateLayout(Record):
    """How a state blob is put together: the architecture's name and its sections, in order."""

    architecture: Annotated[str, Field(max_length=128)]
    sections: Annotated[tuple[Section, ...], Field(min_length=1, max_length=8)]


class SegmentRef(Record):
    """A content-addressed range of a state: positions ``start`` to ``stop`` of one section.

    ``sha256`` is over the ``n_bytes`` raw bytes; ``element_bytes`` the width by which byte planes are split.
    """

    section: Annotated[int, Field(ge=0, lt=8)]
    start: Count
    stop: Count
    sha256: Sha256
    n_bytes: Count
    element_bytes: Literal[1, 2, 4]


class Probe(Record):
    """A proof that can be repeated: ``steps`` tokens decoded after the block, SHA-256 chained over their logits.

    The first ``batch`` of them are the block's own from its middle on, decoded at once; the rest are greedy steps.
    ``token``: the first.
    """

    added = frozenset({"batch"})

    steps: Annotated[int, Field(ge=1, le=4096)]
    token: TokenId
    sha256: Sha256
    batch: Annotated[int, Field(ge=1, le=4096)] = 1

    @model_validator(mode="after")
    def _fits(self) -> Probe:
        if self.batch > self.steps:
            raise ValueError(f"{self.batch} of {self.steps} steps in one batch")
        return self


class Manifest(Record):
    """A block: its identity, its own tokens, and the segments of its whole state (parents' included).

    ``adopted_from``: the fingerprint of the build that computed the state, where another one was seen to give the same
    bits and took it over without prefill; see :mod:`agentkv.blocks.adopting`.
    """

    added = frozenset({"adopted_from"})

    format: Literal[1] = 1
    block_id: Sha256
    parent_id: Sha256 | None
    fingerprint: Fingerprint
    tokens: tuple[TokenId, ...]
    n_tokens: Annotated[int, Field(ge=1, le=2**31)]
    layout: StateLayout
    segments: tuple[SegmentRef, ...]
    state_sha256: Sha256
    exactness: Exactness
    probe: Probe | None
    adopted_from: Fingerprint | None = None


class NamedBlock(Record):
    """A name for a block under one fingerprint: what listing and routing work on.

    ``kind``: ``skill`` or ``text``. ``source_sha256`` is over the text that was deposited, by which the store keeps
    it; ``source`` is where it came from, for people. ``license``: as the skill states it.
    """

    format: Literal[1] = 1
    kind: Literal["skill", "text"]
    name: Annotated[str, Field(min_length=1, max_length=512)]
    fingerprint_id: Sha256
    block_id: Sha256
    description: Annotated[str, Field(max_length=4096)] = ""
    source: Annotated[str, Field(max_length=4096)] = ""
    source_sha256: Sha256 | None = None
    license: Annotated[str, Field(max_length=4096)] = ""


class Pin(Record):
    """A block that is never evicted, nor any of its parents."""

    format: Literal[1] = 1
    block_id: Sha256


class Import(Record):
    """Where a block came from, if not from a deposit here: the pack, who signed it, and why it was let in.

    ``pack_sha256`` is over the pack's index. ``signed_by``: the public key, as ``ed25519:<64 hex digits>``, or None.
    ``decision``: ``trusted`` (its key is in the key store), ``unknown-key`` or ``unsigned`` (the policy allowed it).
    """

    format: Literal[1] = 1
    block_id: Sha256
    pack_sha256: Sha256
    signed_by: Annotated[str, Field(pattern=r"^ed25519:[0-9a-f]{64}$")] | None
    decision: Literal["trusted", "unknown-key", "unsigned"]


class Refused(Record):
    """That a block whose files are valid could not be restored: a forged state, another layout, NaN values.

    ``state_sha256``: the state that was refused; of another state under the same id nothing is said. A deposit
    computes the block again and removes the record.
    """

    format: Literal[1] = 1
    block_id: Sha256
    state_sha256: Sha256
    reason: Annotated[str, Field(max_length=4096)]


class Ancestor(Record):
    """What is left of an evicted block that has children: its ids, without its state.

    A block holds the segments of all its parents, but its own ids only; those before them are here. ``n_tokens`` counts
    the parents' too.
    """

    format: Literal[1] = 1
    block_id: Sha256
    parent_id: Sha256 | None
    fingerprint_id: Sha256
    tokens: Annotated[tuple[TokenId, ...], Field(min_length=1)]
    n_tokens: Annotated[int, Field(ge=1, le=2**31)]


class SelfTest(Record):
    """That a configuration was seen to be exact on this machine: what ``exact_by_config`` rests on.

    At each of ``lengths`` (tokens), ``steps`` greedy steps after a restored state gave the logits of the uninterrupted
    run, bit for bit, and the restored state was captured again as the same bytes.
    """

    format: Literal[1] = 1
    fingerprint_id: Sha256
    steps: Annotated[int, Field(ge=48, le=4096)]
    lengths: Annotated[tuple[Annotated[int, Field(ge=1, le=2**31)], ...], Field(min_length=2)]


class ThreadEntry(Record):
    """One entry of a thread's log: a turn, or, without ``question``, a move to an earlier one (a rewind).

    ``seq`` counts the entries from 1; ``after`` is the entry that this one follows, 0 for the beginning: so what was
    rewound is still there, beside what came after it. ``skill``: whose manual preceded the question, or None.
    ``checkpoint``: the block that holds the state before the answer, or None where it was not kept.
    ``left_out``: how many turns, from the first one on, the model was not shown for this answer; ``summary``: the text
    that it was shown instead of them, or None. ``lacking``: there was no skill, as what is stored could not be used.
    """

    added = frozenset({"left_out", "summary", "lacking"})

    format: Literal[1] = 1
    thread_id: Annotated[str, Field(min_length=1, max_length=512)]
    seq: Annotated[int, Field(ge=1, le=2**31)]
    after: Annotated[int, Field(ge=0, le=2**31)]
    question: str | None
    answer: str | None
    skill: str | None
    finish: Literal["stop", "length", "stop_string"] | None
    checkpoint: Sha256 | None
    left_out: Count = 0
    summary: str | None = None
    lacking: bool = False


class EngineChoice(Record):
    """How the engine of a store is opened where its caller does not say; None: the default.

    The fields are those of :class:`agentkv.engine.settings.EngineSettings`; ``model`` is a catalogue name, the absolute
    path of a ``.gguf`` file or ``hf:OWNER/REPO/FILE``.
    """

    model: Annotated[str, Field(min_length=1, max_length=4096)] | None = None
    window: Annotated[int, Field(ge=64, le=2**22)] | None = None
    kv_type: Literal["f32", "f16", "q8_0"] | None = None
    flash_attention: bool | None = None
    gpu_layers: Annotated[int, Field(ge=0, le=2**31 - 1)] | None = None
    threads: Annotated[int, Field(ge=1, le=2**31 - 1)] | None = None


class StoreSettings(Record):
    """What holds for a store whoever opens it. ``budget_bytes``: bytes on disk that eviction keeps to, or None.

    ``engine``: with which engine it is opened; without a choice it is not written, so older files are what they were.
    ``superseded``: the fingerprints whose blocks were migrated to another one, and are evicted before all others.
    """

    added = frozenset({"engine", "superseded"})

    format: Literal[1] = 1
    budget_bytes: Count | None = None
    engine: EngineChoice | None = None
    superseded: tuple[Sha256, ...] = ()


class ModelName(Record):
    """What people call a model whose states are in the store; never part of a fingerprint."""

    format: Literal[1] = 1
    model_sha256: Sha256
    name: Annotated[str, Field(min_length=1, max_length=512)]


class Decision(Record):
    """What the router picked and what was done with it; the raw pick is stored before anything changes it.

    ``raw_pick`` is the classifier's unedited answer; ``pick`` the name that was grafted, or None for no block;
    ``fallback`` why the two differ, or None. ``scores``: by label, best first, in the classifier's unit.
    ``left_out``: names that could not be candidates, and why (corrupt, or stored for another fingerprint).
    ``confidence``: the classifier's probability of its raw pick, 0 to 1, where it gives one.
    ``notes``: what of ``left_out`` another engine has, by which setting, and the remedy, in a sentence.
    """

    raw_pick: str
    pick: str | None
    fallback: str | None
    scores: dict[str, float]
    classifier: str
    tokens: Count
    ms: float
    left_out: dict[str, str] = {}
    confidence: float | None = None
    notes: Annotated[tuple[str, ...], Field(strict=False)] = ()


class TokenCounts(Record):
    """Tokens of one turn, counted where they pass to the decode call, never from a file's header."""

    restored: Count
    prefilled: Count
    generated: Count


class Timings(Record):
    """Milliseconds of one turn by stage; ``keep``: storing the checkpoint, after the answer."""

    route: float = 0.0
    restore: float = 0.0
    prefill: float = 0.0
    generate: float = 0.0
    keep: float = 0.0

    @property
    def total(self) -> float:
        """Sum of the stages."""
        return self.route + self.restore + self.prefill + self.generate + self.keep


class Turn(Record):
    """The record of one answered request.

    ``block_id``: the block that was restored, a checkpoint of this conversation among them; ``exactness`` is its.
    ``not_restored``: why some of prefix and manual was prefilled, not restored, or which checkpoint was passed over;
    None when all of it was restored. ``checkpoint``: the block by which the next turn may go on, where it was asked
    for; ``deposited``: tokens that it holds beyond what was restored, 0 if it was there; ``not_kept``: why there is
    none.
    ``logprobs``: natural-log probability of each token before sampling, where asked for.
    ``notes``: what was left out, fell back, was cut or was guessed in this turn, a sentence each with its remedy.
    """

    text: str
    finish: Literal["stop", "length", "stop_string"]
    decision: Decision
    block_id: Sha256 | None
    exactness: Exactness | None
    not_restored: str | None
    tokens: TokenCounts
    ms: Timings
    first_logits_sha256: Sha256
    logits_sha256: Sha256
    token_ids: tuple[TokenId, ...]
    logprobs: tuple[float, ...] | None = None
    checkpoint: Sha256 | None = None
    deposited: Count = 0
    not_kept: str | None = None
    notes: tuple[str, ...] = ()
