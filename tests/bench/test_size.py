"""The size benchmark on the fake engine: its figures move when what they measure is made worse."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from agentkv import FakeEngine
from agentkv.bench import bound, size
from agentkv.bench.size import SeenState, Settings, Size, StateSizes
from agentkv.bench.texts import beginning, default_setting, running_text, states
from agentkv.blocks.blocks import Blocks, Deposit
from agentkv.cli.bench import show_tables
from agentkv.engine import layout as blobs
from agentkv.engine.fake import LAYOUT
from agentkv.errors import GuaranteeViolated, UsageError
from agentkv.records import Manifest
from agentkv.store.format import Codec

TEXTS = [f"Paragraph {i} says that rule {i * 7} holds on day {i}.\n\n" * 2 for i in range(20)]
PLAN = Settings(skills=4, prefix_tokens=600, skill_tokens=300, turns=5, lengths=(64, 300), codecs=((Codec.PLANES, 1),))


class Unshared(Blocks):
    """Prefills every child after a prefix of its own, as if no two blocks had a parent in common."""

    def deposit(self, tokens: Sequence[int], *, parent: Manifest | None = None, **how: Any) -> Deposit:
        if parent is not None:
            first = len(list(self.store.block_ids()))
            parent = super().deposit([first, *self.tokens_of(parent)[1:]], **how).manifest
        return super().deposit(tokens, parent=parent, **how)


class Straddling(Blocks):
    """Cuts across the seam between prefix and skill: the child is one block of all tokens."""

    def deposit(self, tokens: Sequence[int], *, parent: Manifest | None = None, **how: Any) -> Deposit:
        return super().deposit([*(self.tokens_of(parent) if parent else ()), *tokens], **how)


def run(engine: FakeEngine, settings: Settings) -> dict[str, Any]:
    return Size(replace(settings, engine=engine, texts=tuple(TEXTS))).run()


@pytest.fixture
def engine() -> FakeEngine:
    return FakeEngine(window=4096)


class TestSharedPrefix:
    def test_segments_hold_own_rows_and_one_prefix(self, engine: FakeEngine, tmp_path: Path) -> None:
        part = size.shared_ratios(size.shared_prefix(engine, TEXTS, PLAN, tmp_path / "store"))
        # The fake's windowed rows of the prefix are masked after it, so a child adds a piece of zeros: 96 bytes each.
        assert 1.0 <= part["ratio_segments"] < 1.01
        assert part["bytes"]["total"] == sum(p.stat().st_size for p in (tmp_path / "store").rglob("*") if p.is_file())
        assert part["bytes"]["total"] > part["bytes"]["segments"] > part["own_rows_bytes"] + part["prefix_bytes"] - 1
        assert part["unshared_bytes"] > 1.5 * part["bytes"]["segments"]

    def test_it_shows_when_the_prefix_is_stored_again(self, engine: FakeEngine, tmp_path: Path) -> None:
        part = size.shared_ratios(size.shared_prefix(engine, TEXTS, PLAN, tmp_path / "store", Unshared))
        assert part["ratio_segments"] > 1.5

    def test_it_shows_when_segments_straddle_the_seam(self, engine: FakeEngine, tmp_path: Path) -> None:
        # 600 tokens are two segments and 88 tokens: those are stored again with every skill.
        part = size.shared_ratios(size.shared_prefix(engine, TEXTS, PLAN, tmp_path / "store", Straddling))
        assert part["ratio_segments"] > 1.05


class TestThread:
    def test_parts_add_up(self, engine: FakeEngine, tmp_path: Path) -> None:
        part = size.thread_ratios(size.thread(engine, TEXTS, PLAN, tmp_path))
        assert part["ratio"] == pytest.approx(1 + sum(part["excess"].values()))
        assert part["turns"] == 5
        assert PLAN.turns * 60 <= part["tokens"] <= PLAN.turns * 100
        # A fake's window of 64 tokens is less than a turn: every checkpoint keeps rows that the last has masked.
        assert part["excess"]["superseded"] > 0.1
        assert part["excess"]["manifests"] > 0

    def test_a_turn_stored_twice_shows(self, engine: FakeEngine, tmp_path: Path, monkeypatch: Any) -> None:
        good = size.thread_ratios(size.thread(engine, TEXTS, PLAN, tmp_path / "good"))
        monkeypatch.setattr(size, "Blocks", Straddling)
        bad = size.thread_ratios(size.thread(engine, TEXTS, PLAN, tmp_path / "bad"))
        assert bad["ratio_segments"] > 1.1 * good["ratio_segments"]


class TestBound:
    def test_entropy_of_known_bytes(self) -> None:
        # High bytes: four values in equal parts, 2 bits each; low bytes: one value, nothing.
        raw = np.array([0x0105, 0x0205, 0x0305, 0x0405] * 100, "<u2").view(np.uint8)
        assert bound.plane_entropies(raw, 2) == pytest.approx([100.0, 0.0])
        # As single bytes: one value in half of the places, four in an eighth each.
        assert bound.planes_entropy(raw, 1) == pytest.approx(800 / 8 * (1 / 2 * 1 + 4 / 8 * 3))

    def test_masked_rows(self, engine: FakeEngine) -> None:
        state = next(states(engine, TEXTS, [300]))
        # 300 tokens, of which the windowed section keeps 64; 48 bytes a row.
        assert bound.masked_bytes(state) == (300 - 64) * 48
        assert state.layout == LAYOUT

    def test_codecs_of_a_state(self, engine: FakeEngine) -> None:
        seen = bound.measure_codecs(next(states(engine, TEXTS, [300])), PLAN.codecs)
        row = StateSizes.of(SeenState.model_validate(seen)).model_dump()
        by = {one["codec"]: one for one in row["codecs"]}
        assert by["live rows"]["bytes"] == by["raw"]["bytes"] - (300 - 64) * 48
        # The fake's rows are hashes: incompressible but for the masked ones.
        assert by["order-0 bound"]["bytes"] < by["planes 1"]["bytes"] < by["raw"]["bytes"]
        assert by["planes 1"]["over_bound"] > 1.0

    def test_a_compressible_state_meets_the_bound_only_with_planes(self) -> None:
        halves = np.random.default_rng(0).standard_normal(1 << 18).astype("<f2").view(np.uint8)
        limit = bound.planes_entropy(halves, 2)
        ref = blobs.reference(0, 0, 256, halves, 2)
        planes = bound._encode_all([(ref, halves)], Codec.PLANES, 1)["bytes"]
        zstd = bound._encode_all([(ref, halves)], Codec.ZSTD, 1)["bytes"]
        assert planes < 1.03 * limit < zstd


class TestText:
    def test_length_order_and_seed(self, engine: FakeEngine) -> None:
        one, two = (running_text(engine, TEXTS, 500, seed) for seed in (1, 2))
        assert len(one) == len(two) == 500
        assert one != two
        assert one == running_text(engine, TEXTS, 500, 1)
        assert bytes(one).decode().startswith("Paragraph ")
        assert beginning(engine, TEXTS, 500, 1) == [engine.info.bos, *one[:499]]

    def test_no_text(self, engine: FakeEngine) -> None:
        with pytest.raises(UsageError):
            running_text(engine, [" \n\n "], 5, 0)


class TestRunAndCheck:
    def test_the_whole(self, engine: FakeEngine) -> None:
        result = run(engine, PLAN)
        assert [row["n"] for row in result["codecs"]] == [64, 300]
        assert result["sliding_window"] == 64
        assert result["aims"] == [
            {"aim": "thread, share of its final state", "limit": 1.1, "value": result["thread"]["ratio"], "met": False}
        ]
        assert result["settings"]["plan"]["codecs"] == ["planes 1"]

    def test_what_the_terminal_shows(self, engine: FakeEngine, capsys: pytest.CaptureFixture[str]) -> None:
        result = run(engine, PLAN)
        show_tables(Size.tables, result)
        out = capsys.readouterr().out + "\n".join(Size.notes(result))
        assert "4 skills of 300 tokens on top of 600" in out
        assert "5 checkpoints" in out
        assert "superseded" in out
        assert "masked rows" in out  # a heading is folded
        assert "at most 1.10" in out
        assert "NOT MET" in out

    def test_the_window_holds_every_part(self) -> None:
        assert Settings().window == 4096
        assert Settings(skills=0, turns=0, lengths=(64,)).window == 256
        assert Settings(skills=0, turns=0, lengths=(64, 3000)).window == 3072

    def test_parts_can_be_left_out(self, engine: FakeEngine) -> None:
        result = run(engine, Settings(skills=0, turns=0, lengths=(64,), codecs=()))
        assert "shared_prefix" not in result
        assert "thread" not in result
        Size.check(result)

    @pytest.mark.parametrize(
        ("part", "fails"),
        [
            ({"shared_prefix": {"skills": 50, "ratio": 1.051}}, True),
            ({"shared_prefix": {"skills": 50, "ratio": 1.049}}, False),
            ({"thread": {"turns": 40, "ratio": 1.11}}, True),
            ({"thread": {"turns": 40, "ratio": 1.11}, "sliding_window": 512}, False),
            ({"codecs": [{"n": 1, "codecs": [{"codec": default_setting(), "over_bound": 1.04}]}]}, True),
            ({"codecs": [{"n": 1, "codecs": [{"codec": "zstd 19", "over_bound": 1.2}]}]}, False),
        ],
    )
    def test_what_is_enforced(self, part: dict[str, Any], fails: bool) -> None:
        result = {"sliding_window": 0, "codecs": [], **part}
        if fails:
            with pytest.raises(GuaranteeViolated):
                Size.check(result)
        else:
            Size.check(result)
