"""``agentkv verify``: every byte, then the proof; on past bad blocks, the first fault's code at the end."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from agentkv import AgentMemory, FakeEngine
from agentkv.cli import options

from .conftest import Run, damage, error_of, manifest_files, record


def test_sound(filled: Run) -> None:
    result = filled("verify", "--json")
    found = record(result)
    assert (result.exit_code, found["ok"], len(found["blocks"])) == (0, True, 6)
    assert all(block["ok"] and block["proof"] is None for block in found["blocks"])
    assert filled("verify").stdout.splitlines()[-1] == "6 blocks checked, none bad"


def test_named(filled: Run) -> None:
    block_id = record(filled("show", "release", "--json"))["block_id"]
    found = record(filled("verify", "fees", block_id[:10], "--json"))["blocks"]
    assert [block["name"] for block in found] == ["fees", "release"]


def test_goes_on_past_bad_ones(filled: Run, store: Path) -> None:
    damage(store, record(filled("show", "fees", "--json"))["block_id"])
    result = filled("verify", "absent", "fees", "release", "--json")
    assert error_of(result)["exit_code"] == 44
    types = [block["error"] and block["error"]["type"] for block in record(result)["blocks"]]
    assert types[0] == "UnknownBlock"
    assert types[1:] == ["CorruptBlock", None]
    assert filled("verify").exit_code == 42


def test_damaged_manifests_and_names(filled: Run, store: Path) -> None:
    for file in (manifest_files(store)[0], next(p for p in sorted((store / "names").rglob("*")) if p.is_file())):
        file.chmod(0o644)
        file.write_bytes(b"damaged")
    result = filled("verify", "--json")
    found = record(result)
    assert (result.exit_code, found["ok"], len(found["blocks"])) == (42, False, 6)
    assert sum(not block["ok"] for block in found["blocks"]) == 1
    assert result.stderr.count("error: ") == 2


def test_prove(filled: Run) -> None:
    found = record(filled("verify", "--prove", "--json"))
    proofs = Counter(block["proof"] for block in found["blocks"])
    # The agent prefix and the texts were proved one by one; the router's cards rest on the configuration.
    assert proofs == {"proved": 3, "by the configuration's self-test": 3}
    assert "proved" in filled("verify", "fees", "--prove").stdout


def test_prove_finds_another_computation(filled: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(options, "_open_engine", lambda *_: FakeEngine(window=4096, diverge_after=3))
    result = filled("verify", "fees", "--prove", "--json")
    assert error_of(result)["type"] == "InexactBlock"
    assert result.exit_code == 31


def test_prove_leaves_other_models_alone(filled: Run, store: Path) -> None:
    with AgentMemory(store, FakeEngine(weights="another")) as memory:
        memory.deposit_text("other", "Other fees.")
    (other,) = record(filled("verify", "other", "--prove", "--json"))["blocks"]
    assert (other["ok"], other["proof"]) == (True, "not repeated: other model or settings (model_sha256)")


def test_inexact_as_stored_is_no_fault(run: Run, store: Path) -> None:
    with AgentMemory(store, FakeEngine(window=4096, diverge_after=3)) as memory:
        memory.deposit_text("loose", "text", allow_inexact=True)
    (loose,) = record(run("verify", "loose", "--json"))["blocks"]
    assert loose["ok"]


def test_an_empty_store(run: Run, store: Path) -> None:
    with AgentMemory(store, FakeEngine()):
        pass
    assert "nothing is stored" in run("verify").stdout
