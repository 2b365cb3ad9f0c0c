"""agentkv: agent memory made of KV states. See README.md; start with :class:`AgentMemory`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from agentkv._lazy import lazily
from agentkv._version import __version__

if TYPE_CHECKING:
    from agentkv.blocks.blocks import Deposit
    from agentkv.engine.base import Cancellation, Sampling
    from agentkv.engine.embed import FakeEmbedder, LlamaEmbedder
    from agentkv.engine.fake import FakeEngine
    from agentkv.engine.llama.engine import LlamaEngine
    from agentkv.engine.prompt import Message
    from agentkv.engine.settings import EngineSettings
    from agentkv.errors import AgentKVError
    from agentkv.memory.memory import AgentMemory
    from agentkv.memory.options import TurnOptions
    from agentkv.memory.threads import Thread
    from agentkv.notices import AgentKVWarning
    from agentkv.records import Turn
    from agentkv.router.routing import ROUTE
    from agentkv.skills.library import SkillLibrary
    from agentkv.store.catalog import BlockStore

# Nothing is imported before it is asked for: `import agentkv` loads neither a native library nor pydantic.
_HOMES = {
    "AgentKVError": "errors",
    "AgentKVWarning": "notices",
    "AgentMemory": "memory.memory",
    "BlockStore": "store.catalog",
    "Cancellation": "engine.base",
    "Deposit": "blocks.blocks",
    "EngineSettings": "engine.settings",
    "FakeEmbedder": "engine.embed",
    "FakeEngine": "engine.fake",
    "LlamaEmbedder": "engine.embed",
    "LlamaEngine": "engine.llama.engine",
    "Message": "engine.prompt",
    "ROUTE": "router.routing",
    "Sampling": "engine.base",
    "SkillLibrary": "skills.library",
    "Thread": "memory.threads",
    "Turn": "records",
    "TurnOptions": "memory.options",
}

__all__ = [
    "ROUTE",
    "AgentKVError",
    "AgentKVWarning",
    "AgentMemory",
    "BlockStore",
    "Cancellation",
    "Deposit",
    "EngineSettings",
    "FakeEmbedder",
    "FakeEngine",
    "LlamaEmbedder",
    "LlamaEngine",
    "Message",
    "Sampling",
    "SkillLibrary",
    "Thread",
    "Turn",
    "TurnOptions",
    "__version__",
]

__getattr__, __dir__ = lazily(__name__, _HOMES, __all__)
