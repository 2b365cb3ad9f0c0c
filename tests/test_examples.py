"""Every example runs with the fake engine, warnings as errors, and prints what its docstring says."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from agentkv.sandbox.sandbox import Sandbox
from tests.conftest import REPOSITORY

EXAMPLES = sorted((REPOSITORY / "examples").glob("*.py"))


def run(name: str) -> str:
    command = [sys.executable, "-W", "error", str(REPOSITORY / "examples" / name)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=120)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_skill_memory_routes_and_restores() -> None:
    out = run("01_skill_memory.py")
    assert "refund-policy -> refund-policy: RF-DUP" in out
    assert "on-call-handover -> on-call-handover: 20 minutes" in out
    assert "refund-policy -> refund-policy: GBP 65" in out
    stored = {int(n) for n in re.findall(r"(\d+) tokens, exact", out)}
    assert {int(n) for n in re.findall(r"(\d+) restored", out)} == stored
    assert len(stored) == 2


def test_langchain_chat_streams_the_answer_and_counts_the_cache() -> None:
    out = run("02_langchain_chat.py")
    assert out.startswith("RF-DUP\n")
    assert re.search(r"'cache_read': [1-9]", out)
    assert "'pick': 'refund-policy'" in out


def check_agent(out: str) -> None:
    """It called its tool, answered from the manual, and prefilled only what was new after the tool's result."""
    assert "'name': 'charges', 'args': {'order': 1182}" in out
    assert "tool: [" in out
    assert "ai: RF-DUP\n" in out
    assert re.search(r"skill: refund-policy.* by graft", out)
    (_, first), (again, new) = re.findall(r"(\d+) tokens restored, (\d+) prefilled", out)
    assert int(again) >= int(first)
    assert int(new) < 300


def test_an_agent_with_skills_calls_its_tool_with_the_skill() -> None:
    check_agent(run("03_agent_with_skills.py"))


def test_a_deep_agent_does_too() -> None:
    check_agent(run("04_deep_agent.py"))


def test_a_thread_is_resumed_in_a_new_process() -> None:
    out = run("05_thread_resumed.py")
    assert re.findall(r"turn \d: (.*)", out) == ["RF-DUP", "RF-DUP"]
    (restored, read), (again, new) = (
        (int(a), int(b)) for a, b in re.findall(r"(\d+) tokens restored, (\d+) prefilled", out)
    )
    assert again == restored + read
    assert new < 100


def test_documents_are_found_asked_and_cited() -> None:
    out = run("06_documents.py")
    assert "found: refund-policy/SKILL.md > Refund policy > Fees" in out
    assert "  12%\n" in out
    assert all(
        int(restored) > int(read) > 0 for restored, read in re.findall(r"(\d+) tokens restored, (\d+) prefilled", out)
    )
    assert len(re.findall(r"retriever: .*SKILL.md chunk \d+, score", out)) == 2
    cited = re.search(r"search_documents: 12%\n\n\"(.*)\"\n.*SKILL.md > .*, bytes (\d+) to (\d+)\n", out)
    assert cited is not None
    source = (REPOSITORY / "skills" / "refund-policy" / "SKILL.md").read_bytes()
    assert source[int(cited[2]) : int(cited[3])].decode() == cited[1]


def test_a_task_is_learned_recalled_and_transferred(strong: Sandbox) -> None:
    learned, again, like_it = run("07_flywheel.py").splitlines()
    assert learned == "deposited: 3 of 3 samples agree on an answer that the check refuses"
    assert again.startswith("recurrence: 17462 (recalled from solution/lease-")
    assert like_it.startswith("transfer: 11800 (transferred from solution/lease-")
    assert like_it.endswith("by filling its parameters, unverified), 42 tokens")


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda path: path.name)
def test_an_example_is_short_and_says_how_it_is_run(example: Path) -> None:
    text = example.read_text(encoding="utf-8")
    assert len(text.splitlines()) < 60
    assert f"python examples/{example.name} " in text


def test_every_example_is_run_here() -> None:
    text = (REPOSITORY / "tests" / "test_examples.py").read_text(encoding="utf-8")
    assert [example.name for example in EXAMPLES if f'run("{example.name}")' not in text] == []
