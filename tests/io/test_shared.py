"""Copies and pickles of what holds an open model."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from agentkv import AgentMemory, FakeEngine, SkillLibrary
from agentkv.documents import Corpus
from agentkv.errors import AgentKVError, NotPicklable

MAKERS: dict[str, Callable[[AgentMemory, Path], Any]] = {
    "FakeEngine": lambda memory, _: memory.engine,
    "AgentMemory": lambda memory, _: memory,
    "BlockStore": lambda memory, _: memory.store,
    "Corpus": lambda memory, _: Corpus(memory, chunk_tokens=256, overlap=0),
    "Thread": lambda memory, _: memory.thread("a"),
    "SkillLibrary": lambda memory, folder: SkillLibrary(memory, folder),
}


@pytest.mark.parametrize("name", MAKERS)
def test_a_copy_is_the_same_and_pickling_says_why_not(tmp_path: Path, name: str) -> None:
    held = MAKERS[name](AgentMemory(tmp_path / "store", FakeEngine()), tmp_path)
    assert copy.copy(held) is copy.deepcopy(held) is copy.deepcopy({"in": [held]})["in"][0] is held
    for protocol in range(pickle.HIGHEST_PROTOCOL + 1):
        with pytest.raises(NotPicklable, match=f"{name} cannot be pickled: .* open a new {name} there") as refused:
            pickle.dumps(held, protocol)
    assert isinstance(refused.value, TypeError)
    assert isinstance(refused.value, AgentKVError)
