"""The examples in public docstrings run."""

from __future__ import annotations

import doctest
from importlib import import_module

import pytest

MODULES = [
    "agentkv.memory.memory",
    "agentkv.memory.options",
    "agentkv.memory.threads",
    "agentkv.packs",
    "agentkv.skills.library",
    "agentkv.engine.constrain.calls",
    "agentkv.engine.constrain.schema",
    "agentkv.engine.fake",
    "agentkv.engine.generate",
    "agentkv.engine.settings",
    "agentkv.fusion",
    "agentkv.text",
    "agentkv.store.catalog",
    "agentkv.skills.questions",
    "agentkv.bench.results",
    "langchain_agentkv.byte_store",
    "langchain_agentkv.cache",
    "langchain_agentkv.langgraph_store",
    "langchain_agentkv.middleware",
    "langchain_agentkv.documents",
]


@pytest.mark.parametrize("name", MODULES)
def test_examples_in_docstrings_run(name: str) -> None:
    result = doctest.testmod(import_module(name))
    assert result.attempted > 0
    assert result.failed == 0
