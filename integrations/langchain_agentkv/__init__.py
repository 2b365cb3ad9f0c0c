"""LangChain over agentkv: :class:`ChatAgentKV`, a chat model that answers from stored KV states, and what goes with it.

chat_models.py      ChatAgentKV: fields, LangChain's hooks, the way into a thread and back
├── settings.py     what may be set, at construction and for one call
├── messages.py     LangChain's messages to agentkv's; content blocks, repeated calls, token counts
├── tools.py        what bind_tools and response_format ask for; calls checked after the grammar
├── structured.py   answers as objects
│   └── schemas.py  whether they fit their JSON schema
├── turns.py        one turn in one thread: route, answer, read calls; its items as LangChain's chunks
└── errors.py       a full context window, as LangChain knows it
middleware.py       SkillMemoryMiddleware: an agent's model calls with the skill that the question needs
documents.py        AgentKVRetriever: chunks for a question; search_documents: an agent's tool
executor.py         work in the default executor that stops with whoever waits for it
cache.py            AgentKVCache: a call made before is answered from disk
byte_store.py       AgentKVByteStore: bytes by key
langgraph_store.py  AgentKVStore: LangGraph's long-term memory
├── items.py        namespaces, values and filters
└── ranking.py      BM25 and embeddings
database.py         one SQLite file in the store's folder
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from agentkv._lazy import lazily

if TYPE_CHECKING:
    from langchain_agentkv.byte_store import AgentKVByteStore
    from langchain_agentkv.cache import AgentKVCache
    from langchain_agentkv.chat_models import ChatAgentKV
    from langchain_agentkv.documents import AgentKVRetriever, search_documents
    from langchain_agentkv.langgraph_store import AgentKVStore
    from langchain_agentkv.middleware import SkillMemoryMiddleware

# Each is imported when it is asked for: all but the middleware and LangGraph's store need langchain-core only.
_HOMES = {
    "AgentKVByteStore": "byte_store",
    "AgentKVCache": "cache",
    "AgentKVRetriever": "documents",
    "AgentKVStore": "langgraph_store",
    "ChatAgentKV": "chat_models",
    "SkillMemoryMiddleware": "middleware",
    "search_documents": "documents",
}

__all__ = [
    "AgentKVByteStore",
    "AgentKVCache",
    "AgentKVRetriever",
    "AgentKVStore",
    "ChatAgentKV",
    "SkillMemoryMiddleware",
    "search_documents",
]

__getattr__, __dir__ = lazily(__name__, _HOMES, __all__)
