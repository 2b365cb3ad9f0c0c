"""LangChain over agentkv: :class:`ChatAgentKV`, a chat model that answers from stored KV states, and what goes with it.

chat_models.py      ChatAgentKV: fields, LangChain's hooks, the way into a thread and back
├── settings.py     what may be set, at construction and for one call
├── messages.py     LangChain's messages to agentkv's
│   ├── blocks.py   content blocks as text, or left out by name
│   └── repeats.py  which calls have their result already
├── counting.py     tokens of messages
├── tools.py        what bind_tools and response_format ask for
├── structured.py   answers as objects
│   └── fits.py     whether they fit their JSON schema
├── turns.py        one turn in one thread: route, answer, read calls, stop when told to
│   ├── call_check.py   calls checked behind the grammar
│   └── system.py   what stands in the system text
├── answers.py      what a turn gives, as LangChain's chunks
└── errors.py       a full window, as LangChain knows it
middleware.py       SkillMemoryMiddleware: an agent's model calls behind the skill that the question needs
└── manuals.py      a manual as text, for other chat models
retriever.py        AgentKVRetriever: windows of documents for a question
search_tool.py      search_documents: an agent's tool that finds in documents or asks them
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
    from langchain_agentkv.langgraph_store import AgentKVStore
    from langchain_agentkv.middleware import SkillMemoryMiddleware
    from langchain_agentkv.retriever import AgentKVRetriever
    from langchain_agentkv.search_tool import search_documents

# Each is imported when it is asked for: all but the middleware and LangGraph's store need langchain-core only.
_HOMES = {
    "AgentKVByteStore": "byte_store",
    "AgentKVCache": "cache",
    "AgentKVRetriever": "retriever",
    "AgentKVStore": "langgraph_store",
    "ChatAgentKV": "chat_models",
    "SkillMemoryMiddleware": "middleware",
    "search_documents": "search_tool",
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
