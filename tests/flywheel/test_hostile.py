"""Hostile candidates: no escape, no survivor, no false "verified", and a verdict in time."""

from __future__ import annotations

import hashlib
import os
import secrets
import select
import socket
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from agentkv.flywheel.solution import Program, Verdict
from agentkv.flywheel.task import Task, Truth
from agentkv.flywheel.verify import Verification, verify
from agentkv.sandbox.base import Level, Limits, Policy
from agentkv.sandbox.sandbox import Sandbox
from tests.flywheel.hostile import ESCAPES, FALSE_PASSES, FLOODS, HOSTILE, REMAIN, Hostile

TASK = Task(id="add", prompt="Add the two.", parameters={"a": 2, "b": 3}, check=Truth(answer=5))


@dataclass
class World:
    """What a candidate must not reach."""

    folder: Path
    listeners: list[socket.socket]
    token: str

    def source(self, hostile: Hostile) -> str:
        places = {
            "@ESCAPE@": str(self.folder / "escaped"),
            "@STORE@": str(self.folder / "store"),
            "@PACKAGE@": str(Path(__file__).parents[2]),
            "@PORT@": str(self.listeners[0].getsockname()[1]),
            "@ABSTRACT@": self.token,
            "@PARENT@": str(os.getpid()),
            "@TOKEN@": self.token,
        }
        source = hostile.source
        for name, value in places.items():
            source = source.replace(name, value)
        return source

    def digest(self) -> str:
        files = sorted(path for path in self.folder.rglob("*") if path.is_file())
        listed = b"".join(str(path).encode() + path.read_bytes() for path in files)
        return hashlib.sha256(listed).hexdigest()

    def survivors(self) -> list[str]:
        found = []
        for place in Path("/proc").glob("[0-9]*"):
            try:
                seen = (place / "cmdline").read_bytes() + (place / "environ").read_bytes()
            except OSError:
                continue
            if self.token.encode() in seen:
                found.append(place.name)
        return found


@pytest.fixture
def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[World]:
    token = "".join(secrets.choice("123456789") for _ in range(9))
    (tmp_path / "store").mkdir()
    (tmp_path / "store" / "block").write_bytes(b"tokens and states")
    with socket.socket() as tcp, socket.socket(socket.AF_UNIX) as abstract:
        tcp.bind(("127.0.0.1", 0))
        abstract.bind("\0" + token)
        tcp.listen()
        abstract.listen()
        # Every process of the run carries the token in its environment, so that none can be overlooked.
        monkeypatch.setattr("agentkv.sandbox.sandbox.secrets.token_hex", lambda _: f"mark-{token}")
        yield World(tmp_path, [tcp, abstract], token)


def checked(world: World, sandbox: Sandbox, hostile: Hostile) -> Verification:
    """Verify it; whatever it did, nothing outside has changed and nothing of it is left."""
    before = world.digest()
    found = verify(TASK, Program(source=world.source(hostile)), sandbox, limits=hostile.limits)
    assert world.survivors() == []
    assert world.digest() == before
    assert select.select(world.listeners, [], [], 0)[0] == []
    return found


@pytest.mark.parametrize("name", HOSTILE)
def test_a_hostile_candidate_reaches_nothing_leaves_nothing_and_proves_nothing(
    name: str, world: World, strong: Sandbox
) -> None:
    hostile = HOSTILE[name]
    found = checked(world, strong, hostile)
    assert found.proof.verdict in hostile.verdicts, found.proof.reason
    assert found.proof.checks_run == 1
    assert found.proof.checks[0].wall_ms < (hostile.limits.wall_s + 1.0) * 1e3
    if found.proof.verdict is Verdict.VERIFIED:
        assert found.answer == 5


# Where there are neither namespaces nor bubblewrap: files are open there, and the docs say so.
NEEDS_A_FOLDER_OF_ITS_OWN = {"many files", "memory that no limit counts", "listens", "stops itself"}


@pytest.mark.parametrize("name", sorted(set(REMAIN | FALSE_PASSES) - NEEDS_A_FOLDER_OF_ITS_OWN))
def test_with_limits_alone_nothing_is_left_and_nothing_is_ever_verified(name: str, world: World) -> None:
    if not hasattr(os, "fork"):
        pytest.skip("no fork here")
    hostile = HOSTILE[name]
    found = checked(world, Sandbox(policy=Policy(run=Level.PROCESS), ceiling=Level.LIMITS), hostile)
    passing = {Verdict.UNVERIFIED if verdict is Verdict.VERIFIED else verdict for verdict in hostile.verdicts}
    assert found.proof.verdict in passing, found.proof.reason


def test_the_tables_hold_the_hazards_and_at_least_twenty_more() -> None:
    assert len(HOSTILE) == len(ESCAPES) + len(REMAIN) + len(FLOODS) + len(FALSE_PASSES) >= 50


@pytest.mark.parametrize("name", ["prints lines for ever", "stderr only", "no newline", "floods the answer pipe"])
def test_a_flood_takes_no_memory_here_and_leaves_head_and_tail(name: str, strong: Sandbox) -> None:
    import resource

    hostile = FLOODS[name]
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    found = verify(TASK, Program(source=hostile.source), strong, limits=hostile.limits)
    assert found.proof.verdict is Verdict.FAILED
    assert found.proof.checks[0].ending in ("output", "answer")
    assert (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) << 10 < 20 << 20


def test_a_candidate_that_looks_for_the_truth_does_not_find_it(strong: Sandbox) -> None:
    secret = 918273645
    task = Task(id="t", prompt="What is it?", parameters={"a": 1}, check=Truth(answer=secret))
    source = f"""
import gc, os, sys
def solve(a):
    wanted = {secret ^ 0x5A5A5A5A} ^ 0x5A5A5A5A
    texts = [str(sys.argv), str(dict(os.environ)), open("/proc/self/cmdline").read()]
    for folder, _, names in os.walk(os.getcwd()):
        texts += [open(os.path.join(folder, name)).read() for name in names if name != "program.py"]
    for thing in gc.get_objects():
        if isinstance(thing, dict):
            texts += [str(v) for v in thing.values() if type(v) in (str, int)]
    seen = [t for t in texts if str(wanted) in t and "solve" not in t]
    return "found" if seen else "nothing"
"""
    found = verify(task, Program(source=source), strong)
    assert found.answer == "nothing"
    assert found.proof.verdict is Verdict.FAILED


def test_a_verdict_comes_after_the_limit_and_within_a_second_of_it(strong: Sandbox) -> None:
    limits = Limits(wall_s=0.5)
    for _ in range(3):
        run = strong.run("while True: pass", limits=limits)
        assert run.ending == "timeout"
        assert not run.survivors
        assert limits.wall_s <= run.wall_s < limits.wall_s + 1.0
