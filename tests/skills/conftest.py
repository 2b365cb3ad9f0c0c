"""Skill folders, and a library over them on the fake engine."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from agentkv import AgentMemory, FakeEngine
from agentkv.skills.library import SkillLibrary


def text_of(name: str, body: str = "Text.", description: str | None = None) -> str:
    return f"---\nname: {name}\ndescription: {description or f'All about {name}.'}\n---\n{body}\n"


def skill(root: Path, name: str, body: str = "Text.", description: str | None = None) -> Path:
    """Write a skill, plainly; its folder."""
    folder = root / name
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "SKILL.md").write_text(text_of(name, body, description))
    return folder


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """An empty folder for skills."""
    (tmp_path / "skills").mkdir()
    return tmp_path / "skills"


@pytest.fixture
def memory(tmp_path: Path) -> Iterator[AgentMemory]:
    """A memory with a store beside the folder, a window of 4,096 bytes, and few words before each manual."""
    with AgentMemory(tmp_path / "store", FakeEngine(), prefix="Be brief.\n") as opened:
        yield opened


def stored(memory: AgentMemory) -> dict[str, str]:
    """What is stored, by name: the texts, without the line that names the manual."""
    found: dict[str, str] = {}
    for named in memory.names():
        assert named.source_sha256 is not None
        text = memory.store.text(named.source_sha256)
        assert text is not None
        memory.store.verify(named.block_id)
        found[named.name] = text.split("\n\n", 1)[-1]
    return found


def library(memory: AgentMemory, root: Path, **options: Any) -> SkillLibrary:
    return SkillLibrary(memory, root, **options)
