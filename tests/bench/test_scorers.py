"""Every benchmark's figures follow from its raw records: on runs of the fake engine, and on records made by hand."""

from __future__ import annotations

import copy
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from agentkv import FakeEngine
from agentkv.bench import measured, results
from agentkv.bench.catalogue import Catalogue
from agentkv.bench.exactness import Exactness
from agentkv.bench.integrity import Integrity, corruption, faults, power
from agentkv.bench.portability import Portability
from agentkv.bench.restore import Restore
from agentkv.bench.results import read
from agentkv.bench.size import Size
from agentkv.bench.subsidy import Subsidy
from agentkv.store.format import Codec
from tests.benchmarks.agent.agent import Agent
from tests.benchmarks.architectures import Architectures
from tests.benchmarks.commands.registry import BENCHMARKS
from tests.conftest import REPOSITORY

TEXTS = [f"Paragraph {i} says that rule {i * 7} holds on day {i}.\n\n" * 2 for i in range(20)]
AMOUNTS: dict[str, Any] = {"skills": 2, "prefix_tokens": 300, "skill_tokens": 100, "turns": 3, "lengths": (64,)}

RUNS: dict[str, Callable[[Path], dict[str, Any]]] = {
    "size": lambda folder: Size(
        engine=FakeEngine(window=2048), texts=tuple(TEXTS), codecs=((Codec.PLANES, 1),), **AMOUNTS
    ).run(),
    "restore": lambda folder: Restore(synthetic=True, lengths=(64,), codecs=("raw",), repeats=2, folder=folder).run(),
    "catalogue": lambda folder: Catalogue(blocks=(10,), processes=1, synced=2, folder=folder).run(),
    "integrity": lambda folder: Integrity(small=True, parts=("power",), folder=folder).run(),
    "portability": lambda folder: Portability(model="fake", skills=REPOSITORY / "skills", manuals=1).run(),
    "agent, secrets": lambda folder: Agent(part="secrets", model="fake", turns=6).run(),
    "agent, threads": lambda folder: Agent(part="threads", model="fake", small=True).run(),
    "agent, conversation": lambda folder: Agent(
        model="fake", texts=("A manual of a few words.",), turns=2, manual=100, answer=2, arms=("agentkv",)
    ).run(),
}


@pytest.mark.parametrize("name", RUNS)
def test_a_file_gives_the_figures_that_were_reported(name: str, tmp_path: Path) -> None:
    (tmp_path / "store").mkdir()
    result = RUNS[name](tmp_path / "store")
    results.save(result, tmp_path / "result.json")
    found = read(tmp_path / "result.json").data
    assert found["benchmark"] == name.split(",")[0]
    assert measured.rescore(found) == []
    figures = measured.figures_of(found)
    assert figures
    assert all(found[key] == value for key, value in figures.items())


def test_scoring_loads_no_llama_cpp() -> None:
    code = (
        "import sys, tests.benchmarks; from agentkv.bench.measured import load_scorers;"
        "from agentkv.evidence.scoring import known_scorers; load_scorers();"
        "print('llama_cpp' in sys.modules, *sorted(kind for kind, _ in known_scorers()), sep='|')"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=REPOSITORY)
    native, *kinds = done.stdout.strip().split("|")
    assert native == "False"
    scored = {kind.removeprefix("bench ") for kind in kinds}
    assert {one.command for one in BENCHMARKS} <= scored


# --- by hand ----------------------------------------------------------------------------------------


def exact_raw() -> dict[str, Any]:
    fresh = [f"{step:064x}" for step in range(48)]
    length = {"n": 600, "fresh": fresh, "graft": list(fresh), "control": None}
    length |= {"state_sha256": "aa", "recaptured_sha256": "aa"}
    same = {"sha256": "s", "kl": 0.0, "flipped": False}
    samples = {f"sample/{i}": {"sha256": "s", "variants": {"0": dict(same), "8": dict(same)}} for i in range(4)}
    return {"length/600": length, **samples}


def test_exactness_counts_steps_and_samples() -> None:
    raw = exact_raw()
    raw["length/600"]["graft"][5] = raw["length/600"]["graft"][9] = "0" * 64
    raw["length/600"]["control"] = [["a", "b", "c"], ["a", "x", "c"]]
    raw["sample/1"]["variants"]["8"] = {"sha256": "other", "kl": 0.5, "flipped": True}
    raw["sample/2"]["variants"]["8"] = {"sha256": "other", "kl": 0.25, "flipped": False}
    found = Exactness.figures(raw)
    (row,) = found["lengths"]
    assert (row["equal_steps"], row["first_difference"], row["control_equal_steps"]) == (46, 6, 2)
    assert row["recaptured_equal"]
    own, moved = found["samples"]["0"], found["samples"]["8"]
    assert (own["equal"], own["n"], own["kl_max"]) == (4, 4, 0.0)
    assert (moved["equal"], moved["argmax_flips"]) == (2, 1)
    assert (moved["kl_median"], moved["kl_p99"], moved["kl_max"]) == (0.125, 0.5, 0.5)
    raw["length/600"]["recaptured_sha256"] = "bb"
    assert not Exactness.figures(raw)["lengths"][0]["recaptured_equal"]
    assert Exactness.figures({})["samples"]["0"]["n"] == 0


def test_subsidy_takes_medians_and_ratios() -> None:
    times = {step: [value] * 3 for step, value in (("hashed", 2.0), ("decoded", 5.0), ("placed", 6.0), ("native", 3.0))}
    record: dict[str, Any] = {
        "n": 512, "state_bytes": 10, "stored_bytes": 8, "cold_prefill_ms": 990.0, "first_token_ms": [10.0, 30.0, 5.0],
        "restore_ram_ms": [40.0, 15.0, 10.0], "memcpy_ms": [3.0, 3.0, 9.0], "clear_cache_ms": [1.0, 2.0, 3.0],
        "disk_ms": {**times, "whole": [10.0, 30.0, 8.0], "again": [4.0]},
        "deposit_ms": {"capture": 1.0, "cut": 2.0, "store": 3.0, "prefill": 600.0, "prove": 50.0},
        "logits_sha256": {"read": "a", "grafted": "a"},
    }  # fmt: skip
    (row,) = Subsidy.figures({"512": record})["lengths"]
    assert row["subsidy_ram"] == (990 + 10) / (15 + 10)
    assert row["subsidy_disk"] == (990 + 10) / (10 + 10)
    assert row["ram_share_of_memcpy"] == 0.2
    assert row["restore_disk"]["share"] == {
        "read + SHA-256": 0.2, "decompress": 0.3, "place": 0.1, "native set": 0.3,
    }  # fmt: skip
    assert row["restore_disk"]["verified_before_ms"] == 7.0
    assert row["restore_ram_ms"] == {"median": 15.0, "min": 10.0, "max": 40.0, "repeats": 3.0}
    assert row["deposit_overhead"] == 0.01
    assert row["logits_equal"]
    record["logits_sha256"]["grafted"] = "b"
    assert not Subsidy.figures({"512": record})["lengths"][0]["logits_equal"]


def test_architectures_give_verdicts() -> None:
    block: dict[str, Any] = {"n": 64, "fresh_sha256": "a", "graft_sha256": "a", "first_difference": None}
    block |= {"stored_as_exact": True, "reproved": True}
    record: dict[str, Any] = {
        "name": "llama",
        "flash_attention": False,
        "steps": 48,
        "sections": ["attention"],
        "blocks": [block],
    }
    record["pairs"] = {"threads": ["a", "a"], "cut at n-1": ["a", "b"]}
    broken = copy.deepcopy(record)
    broken["blocks"].append({**block, "graft_sha256": "b", "first_difference": 7})
    inexact = copy.deepcopy(broken)
    inexact["blocks"][1]["stored_as_exact"] = False
    refused = {"name": "diffusion", "flash_attention": True, "refused": "no state"}
    rows = Architectures.figures({"1": record, "2": broken, "3": inexact, "4": refused})["rows"]
    verdicts = [(row["verdict"], row.get("steps")) for row in rows]
    assert verdicts == [("exact", 48), ("stored but not exact", 6), ("inexact", 6), ("refused", None)]
    assert rows[0]["unchanged_by"] == {"threads": True, "cut at n-1": False}


def test_integrity_counts_each_case() -> None:
    lost = {"lost": ["step 3, EIO: abc"]}
    raw = [{"operation": "pin", "steps": 2, "cases": [["EIO", 0, "StoreFull", {}], ["EIO", 1, "StoreFull", lost]]}]
    (fault,) = faults.figures(raw)
    assert (fault.cases, fault.ends, fault.lost, fault.half) == (2, {"StoreFull": 2}, 1, 0)
    assert fault.examples == lost
    cases = [[0, "whole", True, {}], [1, "empty", False, lost]]
    state = [{"operation": "pin", "prefixes": 3, "possible": 9, "cases": cases}]
    (failure,) = power.figures(state)
    assert (failure.states, failure.waited_for_collect, failure.lost) == (2, 1, 1)
    flips = [[0, "bit 1", "CorruptBlock", {}], [1, "bit 2", None, {"accepted": ["x"]}]]
    damages = [{"what": "a flip", "cases": flips}]
    found = corruption.figures({"files": [["segment", "s"], ["name", "n"]], "damages": damages})
    row = found.damages["a flip"]
    assert (row.cases, row.refused, row.accepted) == (2, {"CorruptBlock": 1}, 1)
    assert (row.by_kind, found.files) == ({"segment": 1, "name": 1}, {"segment": 1, "name": 1})


def test_a_ledger_gives_the_same_as_a_file(tmp_path: Path) -> None:
    """A ledger keeps canonical JSON: nothing may hang on the order of keys."""
    from agentkv.evidence import Ledger, score

    result = RUNS["integrity"](tmp_path)
    ledger = Ledger(tmp_path / "ledger")
    with ledger.run("integrity") as run:
        run.record_all(measured.items_of(result))
        run.scores(measured.figures_of(result))
    found = score(ledger, ledger.find("last"))
    assert found.differences == []
    assert found.computed["power"] == result["power"]
    assert [row["operation"] for row in result["power"]] == ["deposit", "name with text"]
