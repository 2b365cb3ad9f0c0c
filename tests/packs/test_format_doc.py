"""FORMAT.md against the code, and the golden file against both."""

from __future__ import annotations

import struct
from dataclasses import fields
from pathlib import Path

from agentkv import packs
from agentkv.packs import create_pack, import_pack, open_pack, tar
from agentkv.packs.check import check
from agentkv.packs.format import FOLDERS, INDEX, INDEX_MAGIC, SIGNATURE, SIGNATURE_MAGIC, SIGNED_CONTEXT, PackLimits
from agentkv.signing.trust import Trust
from agentkv.store.catalog import BlockStore

from .packing import key

DOC = (Path(packs.__file__).parent / "FORMAT.md").read_text(encoding="utf-8")
GOLDEN = Path(__file__).resolve().parent.parent / "data" / "pack-v1.akvpack"
CONTENT = "b4242b7d36d44b910d42d1ac934d5d026a3e8ec2b616f7dddeacc794dab2b79e"


def rows(heading: str) -> list[list[str]]:
    """The cells of the first table below a heading, without its head."""
    section = DOC.split(f"\n## {heading}\n", 1)[1].split("\n## ", 1)[0]
    lines = [line for line in section.splitlines() if line.startswith("|")]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines[2:]]


def test_the_byte_table_is_the_structs() -> None:
    assert [(row[3], row[2].strip("`")) for row in rows("Header")] == list(tar.HEADER_FIELDS)
    offset = 0
    for row, (_, kind) in zip(rows("Header"), tar.HEADER_FIELDS, strict=True):
        assert (int(row[0]), int(row[1])) == (offset, struct.calcsize(kind))
        offset += struct.calcsize(kind)
    assert offset == tar.BLOCK == 512


def test_the_limits_are_the_codes() -> None:
    assert {row[0]: int(row[1]) for row in rows("Limits")} == {
        field.name: getattr(PackLimits(), field.name) for field in fields(PackLimits)
    }


def test_the_members_are_the_codes() -> None:
    documented = [row[0].strip("`") for row in rows("Members, in this order")]
    assert documented[:2] == [INDEX, SIGNATURE]
    assert [(name.split("/")[0], "." + name.rsplit(".", 1)[1]) for name in documented[2:]] == list(FOLDERS.items())
    assert f"{INDEX_MAGIC} <" in DOC
    assert f"{SIGNATURE_MAGIC} <" in DOC
    assert SIGNED_CONTEXT.rstrip(b"\0").decode() in DOC


def test_the_golden_file_is_read_as_ever(store: BlockStore, trust: Trust, tmp_path: Path) -> None:
    with open_pack(GOLDEN) as opened:
        assert (opened.sha256, opened.signed_by) == (CONTENT, key().public)
        found = check(opened)
        assert [(entry.name, entry.kind, entry.description) for entry in found.names] == [
            ("straße", "text", "How to return a reader.")
        ]
        assert opened.text(found.names[0].source_sha256 or "") == "Returns are accepted for 7 days.\n"
    done = import_pack(GOLDEN, store, fingerprint=None, trust=trust)
    assert len(done.created) == 2
    for block_id in done.created:
        store.verify(block_id)
    again = create_pack(store, tmp_path / "again", codec="raw", licenses=["MIT\n"], signer=key())
    assert again.path.read_bytes() == GOLDEN.read_bytes()
