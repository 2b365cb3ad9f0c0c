"""Scores from raw generations alone: equal to those reported, and not when either was bent."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from agentkv.errors import NotScorable, ScoreMismatch
from agentkv.evidence import Item, Ledger, score
from agentkv.evidence.scoring import scorer

from .making import filled, forge_head, parsed, put, remade


@scorer("demo", 1)
def demo(items: Sequence[Item]) -> dict[str, Any]:
    return {
        "right": sum(
            any(answer in item.raw["text"].split()[-1] for answer in item.expected["answers"]) for item in items
        )
    }


def test_equal(tmp_path: Path) -> None:
    ledger = filled(tmp_path / "ledger", payloads="files")
    found = score(ledger, ledger.find("last"))
    assert (found.computed, found.reported, found.differences) == ({"right": 1}, {"right": 1}, [])
    found.require_equal()


def test_scores_that_do_not_follow_are_told(tmp_path: Path) -> None:
    """A consistent, re-made ledger with better scores: the chain says nothing, the raw generations do."""
    ledger = filled(tmp_path / "ledger", runs=1)
    old = parsed(ledger.folder)
    old[-2]["body"]["scores"] = {"right": 2, "of": [1]}
    put(ledger.folder, *remade(ledger.folder, old))
    forge_head(ledger.folder)
    found = score(ledger, ledger.find("last"))
    assert found.differences == ["of: reported [1], computed None", "right: reported 2, computed 1"]
    with pytest.raises(ScoreMismatch, match="of: reported"):
        found.require_equal()


def test_what_cannot_be_scored(tmp_path: Path) -> None:
    ledger = filled(tmp_path / "ledger", payloads="digests", runs=1)
    with pytest.raises(NotScorable, match="left out"):
        score(ledger, ledger.find("last"))
    with ledger.run("demo", version=2):
        pass
    with pytest.raises(NotScorable, match=r"no scorer demo/2; known: .*demo/1"):
        score(ledger, ledger.find("last"))
    ledger.begin("demo")
    with pytest.raises(NotScorable, match="no end"):
        score(ledger, ledger.find("last"))
    plain = Ledger(ledger.folder)
    with plain.run("demo") as run:
        run.record("k", ["no text"], expected={})
    with pytest.raises(NotScorable, match="not those of demo/1"):
        score(plain, plain.find("last"))


def test_a_scorer_is_registered_once() -> None:
    with pytest.raises(ValueError, match="demo/1 already"):
        scorer("demo", 1)(lambda items: {})
