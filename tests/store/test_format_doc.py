"""FORMAT.md against the code: the byte table, the limits, the digests in their numbered steps."""

from __future__ import annotations

import hashlib
import json
import re
import struct
from dataclasses import fields
from pathlib import Path

import pytest

from agentkv.errors import StoreError
from agentkv.records import SegmentRef
from agentkv.store import format as formats
from agentkv.store.format import (
    HEADER_BYTES,
    HEADER_FIELDS,
    Codec,
    Limits,
    Malformed,
    SegmentHeader,
    read_header,
)
from tests.store.blocks import FINGERPRINT, block, named

DOC = (Path(formats.__file__).parent / "FORMAT.md").read_text(encoding="utf-8")
REF = SegmentRef(section=0, start=0, stop=1, sha256="ab" * 32, n_bytes=100, element_bytes=2)
HEADER = SegmentHeader(Codec.PLANES, 2, 100, 40, REF.sha256)


def rows(heading: str) -> list[list[str]]:
    """The cells of the first table below a heading, without its head."""
    section = DOC.split(f"\n## {heading}\n", 1)[1].split("\n## ", 1)[0]
    lines = [line for line in section.splitlines() if line.startswith("|")]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines[2:]]


def test_the_byte_table_is_the_structs() -> None:
    documented = [(row[3], row[2].strip("`")) for row in rows("Segment file")]
    assert documented == list(HEADER_FIELDS)
    offset = 0
    for row, (_, kind) in zip(rows("Segment file"), HEADER_FIELDS, strict=True):
        assert (int(row[0]), int(row[1])) == (offset, struct.calcsize("<" + kind))
        offset += struct.calcsize("<" + kind)
    assert offset == HEADER_BYTES == 64
    codecs = rows("Segment file")[2][4]
    assert codecs == ", ".join(f"{codec.value} {codec.name.lower()}" for codec in Codec)


def test_the_limits_are_the_codes() -> None:
    assert {row[0]: int(row[1]) for row in rows("Limits")} == {
        field.name: getattr(Limits(), field.name) for field in fields(Limits)
    }


def test_the_recipe_gives_the_ids() -> None:
    def digest(*parts: object) -> str:
        text = json.dumps(["agentkv", *parts], sort_keys=True, separators=(",", ":"), ensure_ascii=False)
        return hashlib.sha256(text.encode()).hexdigest()

    fingerprint = digest("fingerprint/1", FINGERPRINT.content, FINGERPRINT.numerics)
    parent, _ = block([1, 2, 3, 4])
    child, _ = block([5], parent=parent)
    assert parent.block_id == digest("block/1", fingerprint, None, [1, 2, 3, 4])
    assert child.block_id == digest("block/1", fingerprint, parent.block_id, [5])
    ref = named(parent, "straße")
    assert formats.name_key(ref.kind, ref.name, ref.fingerprint_id) == digest("name/1", "skill", "straße", fingerprint)


def test_every_golden_file_of_the_version_table_exists() -> None:
    source = (Path(__file__).parent / "test_golden.py").read_text()
    names = re.findall(r"GOLDEN_\w+", DOC)
    assert len(names) == 15
    assert all(f"\n{name} = " in source for name in names)


def test_a_header_reads_back() -> None:
    assert read_header(HEADER.pack(), REF, HEADER.file_bytes) == HEADER


@pytest.mark.parametrize(
    ("offset", "kind", "value"),
    [
        (0, "8s", b"AKVSEG\n\n"),
        (8, "H", 2),
        (10, "B", 3),
        (10, "B", 4),
        (11, "B", 3),
        (11, "B", 1),
        (12, "I", 1),
        (16, "Q", 101),
        (24, "Q", 100),
        (24, "Q", 2**63),
        (24, "Q", 39),
        (32, "32s", bytes(32)),
    ],
)
def test_a_header_with_another_field_is_refused(offset: int, kind: str, value: object) -> None:
    data = bytearray(HEADER.pack())
    struct.pack_into("<" + kind, data, offset, value)
    with pytest.raises(Malformed):
        read_header(bytes(data), REF, HEADER.file_bytes)


@pytest.mark.parametrize("size", [0, 63, 64, HEADER.file_bytes - 1, HEADER.file_bytes + 1])
def test_a_file_of_another_size_is_refused(size: int) -> None:
    with pytest.raises(Malformed):
        read_header(HEADER.pack()[:size], REF, size)


def test_malformed_never_leaves_the_store() -> None:
    assert not issubclass(Malformed, StoreError)
