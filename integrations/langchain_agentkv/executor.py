"""Work in the default executor that stops when whoever waits for it does."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from langchain_core.runnables.config import run_in_executor

from agentkv.engine.base import Cancellation

T = TypeVar("T")


async def in_executor(work: Callable[[Cancellation], T]) -> T:
    """The result of ``work``; when the wait for it ends, for whatever reason, its cancellation is requested."""
    cancellation = Cancellation()
    try:
        return await run_in_executor(None, work, cancellation)
    finally:
        cancellation.cancel()
