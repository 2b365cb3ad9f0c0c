"""What holds an open model or store: a copy is the same object, and pickling is refused in words.

Frameworks copy what they hold (``copy.deepcopy`` of a chat model, ``model_copy(deep=True)``); two copies of a loaded
model, its locks and its context would be two models, or fail somewhere below. Knows nothing of what is held.
"""

from __future__ import annotations

from typing import Any, NoReturn, Self, SupportsIndex

from agentkv.errors import NotPicklable


class Shared:
    """Mixed into what holds an open model or store: ``copy`` and ``deepcopy`` give the object itself."""

    def __copy__(self) -> Self:
        return self

    def __deepcopy__(self, memo: dict[int, Any]) -> Self:
        return self

    def __reduce_ex__(self, protocol: SupportsIndex) -> NoReturn:
        raise NotPicklable(type(self).__name__)
