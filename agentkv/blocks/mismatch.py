"""What a store holds for another engine than the one at hand: which names, by which field, and what to do about it.

A block belongs to the model bytes, settings and runtime that made it. After an upgrade of llama-cpp-python, or with a
flag forgotten, the same store shows this engine nothing; so whoever leaves something out for that says so in the
sentences that are made here.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from agentkv.engine.base import Engine
from agentkv.errors import IncompatibleFingerprint, StoreError
from agentkv.records import Fingerprint, NamedBlock
from agentkv.store.catalog import BlockStore

Fields = dict[str, tuple[Any, Any]]
"""Field -> (as it was stored, as it is here)."""

_SHOWN = 4
_OPTIONS = {"engine", "model_sha256", "kv_type", "flash_attention", "gpu_layers", "threads", "batch"}
"""Fields that options can set; the rest is the machine's or the runtime's."""


@dataclass(frozen=True)
class Other:
    """Names that one other engine has and the engine at hand has not. ``fields``: what differs."""

    fingerprint: Fingerprint
    fields: Fields
    names: tuple[NamedBlock, ...]


def fingerprint_of(store: BlockStore, block_id: str) -> Fingerprint | None:
    """The fingerprint that a block was made with; None if it is gone or damaged."""
    try:
        summary = store.files.summary(block_id)
    except StoreError:
        return None
    return (
        None
        if summary is None
        else Fingerprint.model_validate({"content": summary.content, "numerics": summary.numerics})
    )


def fingerprints_of(store: BlockStore, names: Iterable[NamedBlock]) -> dict[str, Fingerprint]:
    """The fingerprints of these names by id, each from the first of their blocks that can be read."""
    found: dict[str, Fingerprint] = {}
    for named in names:
        if named.fingerprint_id not in found:
            fingerprint = fingerprint_of(store, named.block_id)
            if fingerprint is not None and fingerprint.id == named.fingerprint_id:
                found[fingerprint.id] = fingerprint
    return found


def others(store: BlockStore, here: Fingerprint, names: Iterable[NamedBlock]) -> list[Other]:
    """Those of ``names`` that only other engines have, each with the engine nearest to this one, nearest first."""
    known = list(names)
    own = {named.name for named in known if named.fingerprint_id == here.id}
    away = [named for named in known if named.name not in own]
    there = fingerprints_of(store, away)
    nearest: dict[str, NamedBlock] = {}
    for named in away:
        if named.fingerprint_id in there:
            before = nearest.get(named.name)
            rank = _rank(there[named.fingerprint_id], here)
            if before is None or rank < _rank(there[before.fingerprint_id], here):
                nearest[named.name] = named
    groups: dict[str, list[NamedBlock]] = {}
    for named in nearest.values():
        groups.setdefault(named.fingerprint_id, []).append(named)
    found = [Other(there[key], there[key].differences(here), tuple(group)) for key, group in groups.items()]
    return sorted(found, key=lambda other: _rank(other.fingerprint, here))


def _rank(there: Fingerprint, here: Fingerprint) -> tuple[bool, int, str]:
    """How far two engines are from each other: another model is farthest."""
    fields = there.differences(here)
    return "model_sha256" in fields, len(fields), there.id


# --- sentences -------------------------------------------------------------------------------------


def in_words(store: BlockStore, fields: Fields, model: str = "") -> str:
    """``flash_attention = False, here True; …``, models by their names; ``model``: of the one here, where known."""
    return "; ".join(_field(store, name, *pair, model) for name, pair in fields.items()) or "other in its form only"


def _field(store: BlockStore, name: str, there: Any, here: Any, model: str) -> str:
    if name == "model_sha256":
        return f"model_sha256 = {model_name(store, str(there))}, here {model or model_name(store, str(here))}"
    if isinstance(there, list) and isinstance(here, list):
        there, here = (", ".join(sorted(set(a) - set(b))) or "no others" for a, b in ((there, here), (here, there)))
    return f"{name} = {there}, here {here}"


def model_name(store: BlockStore | None, digest: str) -> str:
    """What the model of a digest is called: by the catalogue, else by this store, else the digest's start."""
    from agentkv.engine.fake import FAKE, fake_sha256
    from agentkv.models import CATALOGUE

    if digest == fake_sha256():
        return FAKE
    known = next((entry.name for entry in CATALOGUE.values() if entry.sha256 == digest), None)
    return known or (store.model_name(digest) if store is not None else None) or digest[:12] or "?"


def notice(store: BlockStore, engine: Engine, found: Sequence[Other]) -> str:
    """One sentence on what is left out, by which fields, and the remedies."""
    total = sum(len(other.names) for other in found)
    groups = "; and ".join(
        f"{_names(other.names)} ({in_words(store, other.fields, engine.info.name)})" for other in found
    )
    what = "1 stored skill or text is" if total == 1 else f"{total:,} stored skills and texts are"
    way = as_stored(store, engine, found[0]) if len(found) == 1 else ""
    return f"{what} left out, since another engine has made them: {groups}. {way}{remedy(store, engine)}"


def _names(names: Sequence[NamedBlock]) -> str:
    shown = [named.name for named in names[:_SHOWN]]
    return ", ".join(shown) + (f" and {len(names) - _SHOWN:,} more" if len(names) > _SHOWN else "")


def as_stored(store: BlockStore, engine: Engine, other: Other) -> str:
    """How to open the store as it was; empty where no option can."""
    if not other.fields or not other.fields.keys() <= _OPTIONS:
        return ""
    digest = str(other.fingerprint.content.get("model_sha256", ""))
    model = model_name(store, digest)
    if not is_openable(model):
        model = engine.info.spec if digest == engine.info.sha256 else f"FILE-OF-{model}"
    options = " ".join(map(shlex.quote, options_of(other.fingerprint, model)))
    return f"Open the store as then ({options}), or: "


def is_openable(model: str) -> bool:
    """Whether a model's name is enough to open it; of a file of the user's only its name is known here."""
    from agentkv.engine.opening import is_fake
    from agentkv.models import CATALOGUE

    return model in CATALOGUE or is_fake(model) or model.startswith("hf:")


def remedy(store: BlockStore, engine: Engine, in_python: str = "memory.deposit_again()") -> str:
    """What deposits for this engine what others have; ``in_python``: the same as a call."""
    content = engine.fingerprint().content
    if content.get("lora") or content.get("rope_freq_base") or content.get("rope_freq_scale"):
        return f"{in_python} deposits them for this engine from the kept texts."
    window = getattr(getattr(engine, "settings", None), "window", None)
    options = options_of(engine.fingerprint(), engine.info.name if is_openable(engine.info.name) else engine.info.spec)
    command = again_command(store.root, [*options, *(["--window", str(window)] if window else [])])
    return f"`{command}` deposits them for this engine from the kept texts (in Python: {in_python})."


def again_command(root: Path, options: Sequence[str]) -> str:
    """The command that deposits what other engines have for the one that is opened by these options."""
    return " ".join(["agentkv migrate --store", shlex.quote(str(root)), *map(shlex.quote, options)])


def options_of(fingerprint: Fingerprint, model: str) -> list[str]:
    """The command line's options that open such an engine."""
    content, numerics = fingerprint.content, fingerprint.numerics
    made = ["--model", model]
    if content.get("kv_type", "f16") != "f16":
        made += ["--kv-type", str(content["kv_type"])]
    made += ["--flash-attention"] if content.get("flash_attention") else []
    made += ["--gpu-layers", str(numerics["gpu_layers"])] if numerics.get("gpu_layers") else []
    return made + (["--threads", str(numerics["threads"])] if numerics.get("threads") else [])


def incompatible(store: BlockStore, engine: Engine, named: Sequence[NamedBlock]) -> IncompatibleFingerprint | None:
    """That a name is there for other engines only, by the fields of the nearest; None if none of them can be read."""
    here = engine.fingerprint()
    found = others(store, here, named)
    if not found or not found[0].fields:
        return None
    first, fields = found[0], found[0].fields
    field, (there, is_here) = next(iter(fields.items()))
    error = IncompatibleFingerprint(field, there, is_here)
    error.message = (
        f"{first.names[0].name!r} is stored for {_counted(store, here, named)}, not for this one: "
        f"{in_words(store, fields, engine.info.name)}. {as_stored(store, engine, first)}{remedy(store, engine)}"
    )
    error.args = (error.message,)
    return error


def _counted(store: BlockStore, here: Fingerprint, named: Sequence[NamedBlock]) -> str:
    """``another engine``, or how many there are and by which fields they differ, of which the nearest is named."""
    there = fingerprints_of(store, named)
    if len(there) < 2:
        return "another engine"
    fields = fields_counted(fingerprint.differences(here) for fingerprint in there.values())
    return f"{len(there)} other engines ({fields}; the nearest follows)"


def fields_counted(each: Iterable[Mapping[str, object]]) -> str:
    """``2 by flash_attention, 1 by model``: how many differ by which field, the most frequent first."""
    counts: dict[str, int] = {}
    for fields in each:
        for name in fields:
            counts[name] = counts.get(name, 0) + 1
    ordered = sorted(counts, key=lambda name: (-counts[name], name))
    return ", ".join(f"{counts[name]:,} by {name}" for name in ordered)
