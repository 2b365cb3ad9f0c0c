"""The benchmark of unrelated questions: what is counted, and that it runs; its figures are a model's matter."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

import pytest

from tests.benchmarks.unrelated import DATA, Asked, figures, main


def test_the_questions_are_enough_and_each_has_its_manual() -> None:
    data = json.loads(DATA.read_text())
    assert len(data["unrelated"]) >= 30
    assert len(data["related"]) >= 30
    assert all(len(manuals) == 6 for manuals in data["libraries"].values())
    assert all(label in data["libraries"][library] for library, _, label in data["related"])
    assert len({question for _, question, _ in data["related"]} | set(data["unrelated"])) == 68


def test_figures_count_by_library_and_kind() -> None:
    asked = [
        Asked("a", "x", None, None, -1.0),
        Asked("a", "y", None, "m", 1.0),
        Asked("b", "z", "m", "m", 2.0),
        Asked("b", "w", "m", "n", 2.0),
    ]
    assert figures(asked) == {
        "a, unrelated: none": [1, 2],
        "all, related: right": [1, 2],
        "all, unrelated: none": [1, 2],
        "b, related: right": [1, 2],
    }


def test_it_runs_without_a_model(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    data = json.loads(DATA.read_text())
    data = {**data, "libraries": {"library": data["libraries"]["library"]}, "unrelated": data["unrelated"][:3]}
    small, out = tmp_path / "small.json", tmp_path / "out.json"
    small.write_text(json.dumps(data))
    assert main(["--model", "fake", "--data", str(small), "--out", str(out)]) == 0
    shown, result = capsys.readouterr().out, json.loads(out.read_text())
    assert result["data_sha256"] == hashlib.sha256(small.read_bytes()).hexdigest() in shown
    assert result["figures"]["all, unrelated: none"][1] == 3
    assert len(result["asked"]) == 3 + sum(row[0] == "library" for row in data["related"])
