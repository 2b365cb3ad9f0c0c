"""Settings of an engine and of its sampling are checked when they are made."""

from __future__ import annotations

from typing import Any

import pytest

from agentkv.engine.base import Sampling
from agentkv.engine.settings import EngineSettings
from agentkv.errors import UsageError


@pytest.mark.parametrize(
    "bad", [{"temperature": -1}, {"top_p": 0}, {"top_p": 1.1}, {"min_p": -0.1}, {"top_k": -1}, {"seed": 2**32}]
)
def test_sampling_is_checked(bad: dict[str, Any]) -> None:
    with pytest.raises(UsageError):
        Sampling(**bad)


@pytest.mark.parametrize(
    "bad", [{"kv_type": "q8_0"}, {"kv_type": "q4"}, {"window": 10}, {"batch": 0}, {"threads": 0}, {"gpu_layers": -1}]
)
def test_engine_settings_are_checked(bad: dict[str, Any]) -> None:
    with pytest.raises(UsageError):
        EngineSettings(**bad)
