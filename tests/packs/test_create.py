"""Making packs: what is in them, the same bytes everywhere, atomically."""

from __future__ import annotations

import doctest
import os
import subprocess
import sys
import tarfile
from pathlib import Path
from typing import Any

import pytest

from agentkv import packs
from agentkv.errors import AgentKVError, MissingSegment, UnknownBlock, UsageError
from agentkv.packs import create_pack, open_pack, tar
from agentkv.packs.check import check
from agentkv.packs.format import PackLimits, encode_index
from agentkv.store.catalog import BlockStore
from tests.store.blocks import block, contents, named, temporaries

from .packing import TEXT, fill, key, members_of, small_blocks, small_pack

REPOSITORY = Path(__file__).resolve().parents[2]
ELSEWHERE = """
import os, sys
os.umask(0o077)
from pathlib import Path
from tests.packs.packing import small_pack
sys.stdout.buffer.write(small_pack(Path(sys.argv[1])).read_bytes())
"""


def test_what_is_in_it(pack: Path) -> None:
    parent, child = (manifest for manifest, _ in small_blocks())
    with open_pack(pack) as opened:
        found = check(opened)
        assert list(found.blocks) == [parent.block_id, child.block_id]
        assert [entry.name for entry in found.names] == ["returns", "prefix"]
        assert [entry.source for entry in found.names] == ["", ""]
        assert opened.manifest(child.block_id) == child
        assert opened.text(found.names[0].source_sha256 or "") == TEXT
        assert [opened.text(digest, "licenses") for digest in opened.texts("licenses")] == ["Do as you like.\n"]
        assert opened.signed_by is None
        assert (found.blocks[child.block_id].own_tokens, found.blocks[child.block_id].n_tokens) == (3, 7)


def test_tarfile_lists_it_and_reads_it(pack: Path) -> None:
    members = members_of(pack.read_bytes())
    with tarfile.open(pack, "r:") as archive:
        infos = archive.getmembers()
        assert [info.name for info in infos] == [name for name, _ in members]
        assert [archive.extractfile(info).read() for info in infos] == [data for _, data in members]  # type: ignore[union-attr]
        assert {(i.mode, i.uid, i.gid, i.mtime, i.uname, i.gname, i.type) for i in infos} == {
            (0o644, 0, 0, 0, "", "", tarfile.REGTYPE)
        }


@pytest.mark.parametrize(("name", "size"), [("pack.json", 0), ("a" * 100, 8**11 - 1), ("segments/x.seg", 513)])
def test_tarfile_understands_a_header(name: str, size: int) -> None:
    info = tarfile.TarInfo.frombuf(tar.header(name, size), "ascii", "strict")  # also compares the checksum
    assert (info.name, info.size, info.mode, info.type, info.mtime) == (name, size, 0o644, tarfile.REGTYPE, 0)
    assert tar.read_header(tar.header(name, size)) == (name, size)


def test_the_same_bytes_on_any_machine(tmp_path: Path, pack: Path) -> None:
    (tmp_path / "home").mkdir()
    (tmp_path / "another place").mkdir()
    environment = {**os.environ, "HOME": str(tmp_path / "home"), "TZ": "Pacific/Kiritimati", "LC_ALL": "C"}
    environment |= {"PYTHONPATH": str(REPOSITORY), "PYTHONHASHSEED": "7", "USER": "somebody"}
    command = [sys.executable, "-c", ELSEWHERE, str(tmp_path / "another place")]
    other = subprocess.run(command, cwd="/", env=environment, capture_output=True, timeout=60, check=True)
    # tests.store.blocks.state() salts with hash(tuple), which is the same for numbers in every process
    assert other.stdout == pack.read_bytes()


@pytest.mark.parametrize("codec", ["raw", "zstd", "planes"])
def test_how_the_store_keeps_its_segments_does_not_show(tmp_path: Path, codec: str) -> None:
    with BlockStore(tmp_path / "one", codec=codec, level=1) as one, BlockStore(tmp_path / "two", codec="raw") as two:
        manifest, segments = block([1, 2, 3, 4], n_bytes=4096)
        zeros, nothing = block([9], n_bytes=4096)
        for store in (one, two):
            store.put(manifest, segments)
            store.set_name(named(manifest, "b").model_copy(update={"source": str(store.root)}))
            store.put(zeros, nothing)
            store.set_name(named(zeros, "a"))
        first = create_pack(one, tmp_path / "one.akvpack").path.read_bytes()
        assert first == create_pack(two, tmp_path / "two.akvpack").path.read_bytes()
        assert str(tmp_path).encode() not in first
        raw = create_pack(one, tmp_path / "raw.akvpack", codec="raw").path.read_bytes()
        assert all(data[10] == 0 for name, data in members_of(raw) if name.startswith("segments/"))


def test_signing_changes_nothing_else(tmp_path: Path, pack: Path) -> None:
    (tmp_path / "s").mkdir()
    signed = members_of(small_pack(tmp_path / "s", signer=key()).read_bytes())
    assert [item for item in signed if item[0] != "signature.json"] == members_of(pack.read_bytes())
    assert signed[1][0] == "signature.json"


def test_parts_of_a_store(tmp_path: Path) -> None:
    with BlockStore(tmp_path / "origin") as store:
        fill(store)
        parent, child = (manifest for manifest, _ in small_blocks())
        lone = block([50])
        store.put(*lone)
        made = create_pack(store, tmp_path / "a", block_ids=[lone[0].block_id])
        assert (made.blocks, made.names) == (1, ())
        made = create_pack(store, tmp_path / "b", names=store.names("skill"))
        assert (made.blocks, made.names, made.sources) == (2, ("returns",), 1)
        made = create_pack(store, tmp_path / "c", names=store.names("text"), sources=False)
        assert (made.blocks, made.sources) == (1, 0)
        with pytest.raises(UnknownBlock):
            create_pack(store, tmp_path / "d", block_ids=["ab" * 32])
        with pytest.raises(UsageError, match="nothing to pack"):
            create_pack(store, tmp_path / "d", names=[])
        store.remove_block(parent.block_id)
        with pytest.raises(UnknownBlock):
            create_pack(store, tmp_path / "d", block_ids=[child.block_id])
    assert not (tmp_path / "d").exists()


def test_a_text_that_is_not_there(tmp_path: Path) -> None:
    with BlockStore(tmp_path / "origin") as store:
        manifest, segments = block([1])
        store.put(manifest, segments)
        store.set_name(named(manifest, "old").model_copy(update={"source_sha256": "ab" * 32}))
        with pytest.raises(UsageError, match="--no-sources"):
            create_pack(store, tmp_path / "p")
        assert create_pack(store, tmp_path / "p", sources=False).sources == 0


def test_names_too_much_alike_are_not_packed(tmp_path: Path) -> None:
    with BlockStore(tmp_path / "origin") as store:
        manifest, segments = block([1])
        store.put(manifest, segments)
        for name in ("straße", "STRASSE"):
            store.set_name(named(manifest, name))
        with pytest.raises(UsageError, match="mistaken for each other"):
            create_pack(store, tmp_path / "p")


def test_it_overwrites_only_when_asked(tmp_path: Path, pack: Path) -> None:
    before = pack.read_bytes()
    with BlockStore(tmp_path / "origin") as store:
        with pytest.raises(UsageError, match="there already"):
            create_pack(store, pack)
        assert create_pack(store, pack, replace=True).sha256
        assert pack.read_bytes() != before  # without the licence
        for bad in (tmp_path, tmp_path / "none" / "x"):
            with pytest.raises(UsageError):
                create_pack(store, bad, replace=True)
        (tmp_path / "link").symlink_to(pack)
        with pytest.raises(UsageError, match="not a plain file"):
            create_pack(store, tmp_path / "link", replace=True)


@pytest.mark.parametrize("error", [OSError(28, "No space left on device"), KeyboardInterrupt()])
def test_a_failure_leaves_the_old_file_and_no_other(
    tmp_path: Path, pack: Path, monkeypatch: pytest.MonkeyPatch, error: BaseException
) -> None:
    before, write = pack.read_bytes(), os.write
    left = 3

    def failing(fd: int, data: Any) -> int:
        nonlocal left
        left -= 1
        if left < 0:
            raise error
        return write(fd, data)

    with BlockStore(tmp_path / "origin") as store:
        monkeypatch.setattr("os.write", failing)
        with pytest.raises((AgentKVError, KeyboardInterrupt)):
            create_pack(store, pack, replace=True)
    monkeypatch.undo()
    assert pack.read_bytes() == before
    assert temporaries(tmp_path) == []


def test_a_damaged_store_gives_no_pack(tmp_path: Path) -> None:
    with BlockStore(tmp_path / "origin") as store:
        fill(store)
        ref = small_blocks()[0][0].segments[0]
        Path(store.segments.where(ref.sha256)).unlink()
        with pytest.raises(MissingSegment):
            create_pack(store, tmp_path / "p")
    assert not (tmp_path / "p").exists()
    assert all(not name.endswith(".tmp") for name in contents(tmp_path))


def test_the_index_is_checked_before_it_is_written(pack: Path) -> None:
    with open_pack(pack) as opened:
        index, limits = opened.index, opened.limits
        assert encode_index(index, limits)
        wrong = index.model_copy(update={"names": tuple(reversed(index.names))})
        with pytest.raises(ValueError, match="not sorted"):
            encode_index(wrong, limits)


def test_the_example_in_the_packages_docstring_runs() -> None:
    result = doctest.testmod(packs)
    assert result.attempted > 5
    assert result.failed == 0


def test_a_text_too_long_for_a_pack(tmp_path: Path) -> None:
    with BlockStore(tmp_path / "origin") as store:
        fill(store)
        with pytest.raises(UsageError, match=r"sources/.*limit"):
            create_pack(store, tmp_path / "p", limits=PackLimits(text_bytes=10))
