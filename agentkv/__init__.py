"""agentkv: agent memory made of KV states. See README.md; start with :class:`AgentMemory`."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from agentkv._version import __version__

if TYPE_CHECKING:
    from agentkv.engine.base import Cancellation, Engine, Sampling
    from agentkv.engine.embed import Embedder, FakeEmbedder, LlamaEmbedder
    from agentkv.engine.fake import FakeEngine
    from agentkv.engine.llama import LlamaEngine
    from agentkv.errors import AgentKVError
    from agentkv.memory import AgentMemory, Within
    from agentkv.records import Decision, Exactness, Fingerprint, Manifest, Turn
    from agentkv.skills.library import SkillLibrary
    from agentkv.store.catalog import BlockStore

# Nothing is imported before it is asked for: `import agentkv` loads neither a native library nor pydantic.
_HOMES = {
    "AgentKVError": "agentkv.errors",
    "AgentMemory": "agentkv.memory",
    "BlockStore": "agentkv.store.catalog",
    "Cancellation": "agentkv.engine.base",
    "Decision": "agentkv.records",
    "Embedder": "agentkv.engine.embed",
    "Engine": "agentkv.engine.base",
    "Exactness": "agentkv.records",
    "FakeEmbedder": "agentkv.engine.embed",
    "FakeEngine": "agentkv.engine.fake",
    "Fingerprint": "agentkv.records",
    "LlamaEmbedder": "agentkv.engine.embed",
    "LlamaEngine": "agentkv.engine.llama",
    "Manifest": "agentkv.records",
    "Sampling": "agentkv.engine.base",
    "SkillLibrary": "agentkv.skills.library",
    "Turn": "agentkv.records",
    "Within": "agentkv.memory",
}

__all__ = [
    "AgentKVError",
    "AgentMemory",
    "BlockStore",
    "Cancellation",
    "Decision",
    "Embedder",
    "Engine",
    "Exactness",
    "FakeEmbedder",
    "FakeEngine",
    "Fingerprint",
    "LlamaEmbedder",
    "LlamaEngine",
    "Manifest",
    "Sampling",
    "SkillLibrary",
    "Turn",
    "Within",
    "__version__",
]


def __getattr__(name: str) -> Any:
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module 'agentkv' has no attribute {name!r}")
    return getattr(import_module(home), name)


def __dir__() -> list[str]:
    return sorted(__all__)
