from __future__ import annotations

import pytest

from agentkv.engine.base import Sampling
from agentkv.errors import UsageError


@pytest.mark.parametrize(
    "bad", [{"temperature": -1}, {"top_p": 0}, {"top_p": 1.1}, {"min_p": -0.1}, {"top_k": -1}, {"seed": 2**32}]
)
def test_sampling_is_checked(bad: dict[str, float]) -> None:
    with pytest.raises(UsageError):
        Sampling(**bad)  # type: ignore[arg-type]
