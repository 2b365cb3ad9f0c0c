"""With which model and settings an engine is opened: the caller's, else the environment's, else the store's.

All of it is in the fingerprint, or may be: an engine opened with other settings than the one that deposited finds
nothing that it stored. So they can be set once for a store instead of with every call. No native library is loaded
before an engine is opened.
"""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from agentkv.engine.base import Engine
from agentkv.engine.fake import FAKE, FakeEngine, fake_fingerprint, fake_sha256, quote
from agentkv.engine.settings import EngineSettings, require_gpu
from agentkv.errors import EngineUnavailable, UsageError
from agentkv.models.catalogue import DEFAULT
from agentkv.records import EngineChoice, Fingerprint

VARIABLES = {name: f"AGENTKV_{name.upper()}" for name in EngineChoice.model_fields}
"""The environment variable of each setting."""
_SWITCH = {"1": True, "true": True, "yes": True, "on": True, "0": False, "false": False, "no": False, "off": False}
_FAKE_WINDOW = 1 << 16


def parsed(name: str, text: str, label: str) -> Any:
    """The value of setting ``name`` from its text; ``label`` is its name in errors. Raises UsageError."""
    value: Any = text.strip()
    if name == "flash_attention":
        if value.lower() not in _SWITCH:
            raise UsageError(f"{label} is on or off, not {text!r}")
        value = _SWITCH[value.lower()]
    elif name in ("window", "gpu_layers", "threads"):
        if not value.isdecimal():
            raise UsageError(f"{label} is a whole number, not {text!r}")
        value = int(value)
    try:
        EngineChoice.model_validate({name: value})
    except ValidationError as error:
        raise UsageError(f"{label} = {text!r}: {error.errors()[0]['msg']}") from error
    return value


def from_environment(environment: Mapping[str, str] | None = None) -> dict[str, Any]:
    """The settings that the environment has; an empty variable is not set. Raises UsageError."""
    known = os.environ if environment is None else environment
    return {name: parsed(name, known[key], key) for name, key in VARIABLES.items() if known.get(key, "").strip()}


def choose(given: Mapping[str, Any], stored: EngineChoice) -> tuple[str | Path, EngineSettings]:
    """The model and its settings. ``given``: the caller's, None for those that he left out. Raises UsageError."""
    own = {name: value for name, value in given.items() if value is not None}
    values = {**stored.model_dump(exclude_none=True), **from_environment(), **own}
    model = values.pop("model", DEFAULT)
    unknown = sorted(set(values) - {field.name for field in dataclasses.fields(EngineSettings)})
    if unknown:
        raise UsageError(f"unknown engine setting: {', '.join(unknown)}")
    return model, EngineSettings(**values)


def is_fake(model: str | Path) -> bool:
    """Whether a model's name is that of the fake engine, ``fake`` or ``fake:WORD``."""
    return isinstance(model, str) and model.partition(":")[0] == FAKE


def open_engine(model: str | Path, settings: EngineSettings) -> Engine:
    """Open a model, which is fetched if it is not here. Raises the errors of ModelError, NoGpu."""
    if is_fake(model):
        weights = str(model).partition(":")[2]
        return FakeEngine(window=settings.window or _FAKE_WINDOW, weights=weights, settings=settings, replies=quote)
    try:
        from agentkv.engine.llama.engine import LlamaEngine
    except (ImportError, OSError, RuntimeError) as error:
        raise EngineUnavailable(str(error)) from error
    return LlamaEngine.open(model, settings)


def require_usable(model: str | Path, settings: EngineSettings) -> None:
    """Raise NoGpu for layers on a GPU that this installation would ignore; no model is loaded."""
    if not settings.gpu_layers:
        return
    has_gpu = False
    if not is_fake(model):
        import llama_cpp

        has_gpu = bool(llama_cpp.llama_supports_gpu_offload())
    require_gpu(settings, has_gpu)


def model_sha256(model: str | Path) -> str:
    """The digest of the model of this name; nothing is fetched or loaded. Raises the errors of ModelError."""
    from agentkv.models import CATALOGUE, resolve

    if is_fake(model):
        return fake_sha256(str(model).partition(":")[2])
    return CATALOGUE[str(model)].sha256 if str(model) in CATALOGUE else resolve(model, pull=False).sha256


def expected_fingerprint(model: str | Path, settings: EngineSettings) -> Fingerprint:
    """The fingerprint that the engine would have; no model is loaded. Raises the errors of ModelError.

    Not guaranteed: ``v_trans``, which only a loaded model shows. It follows from flash attention, so
    :meth:`~agentkv.records.Fingerprint.differences` has it only where nothing else explains it.
    """
    digest = model_sha256(model)
    if is_fake(model):
        return fake_fingerprint(digest, settings)
    from agentkv.engine.llama.model import llama_fingerprint

    return llama_fingerprint(digest, settings, [], not settings.flash_attention)
