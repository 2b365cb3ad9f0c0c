"""LangChain over agentkv: :class:`ChatAgentKV`, a chat model that answers from stored KV states.

chat_models.py  ChatAgentKV: fields, LangChain's hooks, the way into a thread and back
settings.py     what may be set, at construction and for one call
messages.py     LangChain's messages to agentkv's, a turn's record to LangChain's
turns.py        one turn in one thread: route, answer, trim, stop when told to
"""

from __future__ import annotations

from langchain_agentkv.chat_models import ChatAgentKV

__all__ = ["ChatAgentKV"]
