"""Errors that LangChain knows by a class of its own."""

from __future__ import annotations

from typing import Self

from langchain_core.exceptions import ContextOverflowError

from agentkv.errors import WindowOverflow


class ContextOverflow(WindowOverflow, ContextOverflowError):
    """A :class:`~agentkv.errors.WindowOverflow` that LangChain's and deepagents' summarising middleware catches."""

    @classmethod
    def of(cls, error: WindowOverflow) -> Self:
        """The same overflow."""
        return cls(error.n_block, error.n_turn, error.max_new, error.window)
