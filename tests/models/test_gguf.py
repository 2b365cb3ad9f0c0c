"""Which files are complete GGUFs."""

from __future__ import annotations

import os
import struct
import time
from pathlib import Path

import gguf
import numpy as np
import pytest

from agentkv import models
from agentkv.errors import (
    ModelUnreadable,
)
from agentkv.models import gguf as checker
from tests.models.packages import (
    MODEL,
    text,
    tiny_gguf,
)


class TestGguf:
    def check(self, tmp_path: Path, content: bytes) -> models.GgufHeader:
        path = tmp_path / "model.gguf"
        path.write_bytes(content)
        return models.gguf_check(path)

    @pytest.mark.parametrize("version", [2, 3])
    def test_whole_file(self, tmp_path: Path, version: int) -> None:
        content = tiny_gguf(version=version)
        header = self.check(tmp_path, content)
        assert (header.version, header.n_tensors, header.n_metadata) == (version, 1, 5)
        assert (header.data_end - header.data_start, header.data_end) == (512, len(content))

    def test_cut_anywhere(self, tmp_path: Path) -> None:
        path = tmp_path / "model.gguf"
        path.write_bytes(MODEL)
        for length in reversed(range(len(MODEL))):
            os.truncate(path, length)
            with pytest.raises(ModelUnreadable, match=r"truncated|empty|not a GGUF file"):
                models.gguf_check(path)

    def test_file_of_the_gguf_package_cut_anywhere(self, tmp_path: Path) -> None:
        path = tmp_path / "model.gguf"
        writer = gguf.GGUFWriter(path, "llama")
        writer.add_custom_alignment(64)
        writer.add_token_list(["a", "ü", ""] * 9)
        writer.add_tensor("a", np.zeros((3, 5), np.float32))
        writer.add_tensor("b", np.zeros((2, 18), np.uint8), raw_dtype=gguf.GGMLQuantizationType.Q4_0)
        writer.write_header_to_file()
        writer.write_kv_data_to_file()
        writer.write_tensors_to_file()
        writer.close()
        content, header = path.read_bytes(), models.gguf_check(path)
        assert (header.alignment, header.n_tensors, header.unsized) == (64, 2, 0)
        assert header.data_end == header.data_start + 64 + 36
        for length in reversed(range(header.data_end)):
            os.truncate(path, length)
            with pytest.raises(ModelUnreadable):
                models.gguf_check(path)
        path.write_bytes(content[: header.data_end])
        assert models.gguf_check(path) == header

    def test_flipped_header_bytes_end_in_our_error_or_none(self, tmp_path: Path) -> None:
        path, refused = tmp_path / "model.gguf", 0
        for position in range(len(MODEL) - 512):
            content = bytearray(MODEL)
            content[position] ^= 0xFF
            path.write_bytes(content)
            try:
                models.gguf_check(path)
            except ModelUnreadable:
                refused += 1
        assert refused > 100

    @pytest.mark.parametrize(
        ("content", "reason"),
        [
            (b"", "empty"),
            (b"GG", "not a GGUF file"),
            (b"PK\x03\x04" + bytes(99), "not a GGUF file"),
            (tiny_gguf(version=1), "version 1"),
            (b"GGUF" + struct.pack(">IQQ", 3, 1, 1) + bytes(99), "big-endian"),
            (tiny_gguf(tensors=0), "no tensors"),
            (b"GGUF" + struct.pack("<IQQ", 3, 1 << 60, 1) + bytes(99), "claims"),
            (b"GGUF" + struct.pack("<IQQ", 3, 1, 1 << 60) + bytes(99), "claims"),
            (b"GGUF" + struct.pack("<IQQQ", 3, 1, 1, 1 << 60) + bytes(99), "a name of"),
            (
                tiny_gguf(alignment=32, metadata=(text("general.alignment") + struct.pack("<II", 4, 24),)),
                "power of two",
            ),
            (tiny_gguf(metadata=(text("general.alignment") + struct.pack("<IQ", 10, 32),)), "alignment"),
            (tiny_gguf(metadata=(text("split.count") + struct.pack("<IH", 2, 3),)), "one of 3 shards"),
            (tiny_gguf(metadata=(text("a") + struct.pack("<IIQ", 9, 8, 1 << 62),)), "truncated"),
            (tiny_gguf(metadata=(text("a") + struct.pack("<IIQ", 9, 6, 1 << 62),)), "truncated"),
            (tiny_gguf(metadata=(text("a") + struct.pack("<IIQ", 9, 9, 1),)), "unusable type 9"),
            (tiny_gguf(metadata=(text("a") + struct.pack("<I", 77),)), "unknown type 77"),
            (tiny_gguf(dimensions=(1, 1, 1, 1, 1)), "5 dimensions"),
            (tiny_gguf(dimensions=(1 << 40, 1 << 40)), "elements"),
            (tiny_gguf(kind=2, dimensions=(33, 1)), "multiple of 32"),
            (tiny_gguf(offset=5), "alignment"),
            (tiny_gguf(offset=32), "truncated"),
            (tiny_gguf(kind=999, offset=1024), "truncated"),
        ],
    )
    def test_refused(self, tmp_path: Path, content: bytes, reason: str) -> None:
        with pytest.raises(ModelUnreadable, match=reason):
            self.check(tmp_path, content)

    def test_unknown_tensor_type_passes_unsized(self, tmp_path: Path) -> None:
        assert self.check(tmp_path, tiny_gguf(kind=999)).unsized == 1

    def test_one_unsplit_shard_passes(self, tmp_path: Path) -> None:
        entry = text("split.count") + struct.pack("<IH", 2, 1)
        assert self.check(tmp_path, tiny_gguf(metadata=(entry,))).n_metadata == 6

    def test_header_larger_than_the_limit(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(checker, "MAX_HEADER", 500)
        with pytest.raises(ModelUnreadable, match="larger than 500"):
            self.check(tmp_path, MODEL)

    def test_folder_and_missing_file(self, tmp_path: Path) -> None:
        with pytest.raises(ModelUnreadable, match="it is a folder"):
            models.gguf_check(tmp_path)
        with pytest.raises(ModelUnreadable, match="No such file"):
            models.gguf_check(tmp_path / "none.gguf")

    @pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="no FIFOs here")
    def test_never_waits_on_a_fifo(self, tmp_path: Path) -> None:
        os.mkfifo(tmp_path / "fifo.gguf")
        with pytest.raises(ModelUnreadable, match="not a regular file"):
            models.gguf_check(tmp_path / "fifo.gguf")

    def test_type_sizes_are_ggmls(self) -> None:
        # Q8_1 (9) is never stored in a file, and the package's size of it is not ggml's.
        theirs = {int(kind): sizes for kind, sizes in gguf.GGML_QUANT_SIZES.items() if int(kind) != 9}
        shared = checker.TYPE_SIZES.keys() & theirs.keys()
        assert len(shared) >= 30
        assert {kind: checker.TYPE_SIZES[kind] for kind in shared} == {kind: theirs[kind] for kind in shared}

    def test_large_vocabulary_is_skipped_quickly(self, tmp_path: Path) -> None:
        words = b"".join(text(f"word{n}") for n in range(300_000))
        entry = text("tokenizer.ggml.merges") + struct.pack("<IIQ", 9, 8, 300_000) + words
        path = tmp_path / "model.gguf"
        path.write_bytes(tiny_gguf(metadata=(entry,)))
        start = time.perf_counter()
        models.gguf_check(path)
        assert time.perf_counter() - start < 1
