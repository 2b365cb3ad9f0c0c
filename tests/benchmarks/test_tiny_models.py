"""The benchmarks that need llama.cpp, on models of random weights that it runs in milliseconds."""

from __future__ import annotations

from pathlib import Path

import pytest

from agentkv.bench import measured, results
from agentkv.bench.exactness import Exactness
from agentkv.bench.results import read
from agentkv.bench.subsidy import Subsidy
from tests.benchmarks.architectures import Architectures
from tests.benchmarks.tiny import write_tiny

pytestmark = pytest.mark.model
TEXTS = [f"Paragraph {i} says that rule {i * 7} holds on day {i}. " * 8 for i in range(20)]


@pytest.fixture(scope="module")
def llama(tmp_path_factory: pytest.TempPathFactory) -> str:
    return str(write_tiny(tmp_path_factory.mktemp("tiny") / "llama.gguf", "llama"))


def saved(result: dict[str, object], folder: Path) -> dict[str, object]:
    results.save(result, folder / "r.json")
    found = read(folder / "r.json").data
    assert measured.rescore(found) == []
    return found


def test_exactness(llama: str, tmp_path: Path) -> None:
    result = Exactness(model=llama, texts=tuple(TEXTS), lengths=(1, 64), samples=4, threads=1).run()
    Exactness.check(result)
    saved(result, tmp_path)
    assert list(result["samples"]) == ["one pass", "one pass, cut unaligned", "0", "8", "128", "1024"]
    assert result["samples"]["0"]["equal"] == 4
    assert result["samples"]["8"]["equal"] == 0, "a moved block is another computation"
    hashes = {record["key"]: record["raw"] for record in result["raw"]}["length/64"]
    assert len(set(hashes["fresh"])) > 1
    assert hashes["fresh"] == hashes["graft"]


def test_subsidy(llama: str, tmp_path: Path) -> None:
    result = Subsidy(model=llama, lengths=(64, 100_000), threads=1).run()
    saved(result, tmp_path)
    (row,) = result["lengths"]
    assert row["logits_equal"]
    assert row["subsidy_ram"] > 1
    assert list(result["left_out"]) == ["100000"]


def test_architectures(llama: str, tmp_path: Path) -> None:
    result = Architectures(models=(llama,), lengths=(31, 64)).run()
    Architectures.check(result)
    saved(result, tmp_path)
    assert [(row["flash_attention"], row["verdict"], row["steps"]) for row in result["rows"]] == [
        (False, "exact", 48),
        (True, "exact", 48),
    ]
    assert result["rows"][0]["unchanged_by"]["window"]
