"""agentkv: agent memory made of KV states. See README.md; start with :class:`AgentMemory`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from agentkv._lazy import lazily
from agentkv._version import __version__

if TYPE_CHECKING:
    from agentkv.engine.base import Cancellation, Engine, Sampling
    from agentkv.engine.embed import Embedder, FakeEmbedder, LlamaEmbedder
    from agentkv.engine.fake import FakeEngine
    from agentkv.engine.llama.engine import LlamaEngine
    from agentkv.errors import AgentKVError
    from agentkv.memory.memory import AgentMemory, Within
    from agentkv.notices import AgentKVWarning
    from agentkv.records import Decision, Exactness, Fingerprint, Manifest, Turn
    from agentkv.skills.library import SkillLibrary
    from agentkv.store.catalog import BlockStore

# Nothing is imported before it is asked for: `import agentkv` loads neither a native library nor pydantic.
_HOMES = {
    "AgentKVError": "errors",
    "AgentKVWarning": "notices",
    "AgentMemory": "memory.memory",
    "BlockStore": "store.catalog",
    "Cancellation": "engine.base",
    "Decision": "records",
    "Embedder": "engine.embed",
    "Engine": "engine.base",
    "Exactness": "records",
    "FakeEmbedder": "engine.embed",
    "FakeEngine": "engine.fake",
    "Fingerprint": "records",
    "LlamaEmbedder": "engine.embed",
    "LlamaEngine": "engine.llama.engine",
    "Manifest": "records",
    "Sampling": "engine.base",
    "SkillLibrary": "skills.library",
    "Turn": "records",
    "Within": "memory.memory",
}

__all__ = [
    "AgentKVError",
    "AgentKVWarning",
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

__getattr__, __dir__ = lazily(__name__, _HOMES, __all__)
