"""Names that file systems confuse, links in the store, and no way to run what was stored (B14, B15, B17)."""

from __future__ import annotations

import os
import re
import unicodedata
from pathlib import Path

import pytest

from agentkv.errors import CorruptBlock, StoreError, StoreReadError
from agentkv.records import NamedBlock
from agentkv.store import catalog
from agentkv.store.catalog import BlockStore
from tests.store.blocks import FINGERPRINT, block, contents, named

TRICKY = [
    "Parse-PDF", "parse-pdf", "straße", "STRASSE", "caf\u00e9", "cafe\u0301", "../../evil", "/abs", "C:\\x",
    "CON",
    "a/b", ".", "..", " ", "a\nb", "a\x00b", "x" * 512, "日本語", "name.", "name ",
]  # fmt: skip


def test_b15_names_that_file_systems_confuse_stay_apart(tmp_path: Path) -> None:
    store = BlockStore(tmp_path / "store")
    blocks = [block([number]) for number in range(len(TRICKY))]
    for name, (manifest, segments) in zip(TRICKY, blocks, strict=True):
        store.put(manifest, segments)
        store.set_name(named(manifest, name))
    for name, (manifest, _) in zip(TRICKY, blocks, strict=True):
        found = store.name("skill", name, FINGERPRINT.id)
        assert found is not None
        assert (found.name, found.block_id) == (name, manifest.block_id)
    assert sorted(found.name for found in store.names()) == sorted(TRICKY)
    on_disk = [path.name for path in (store.root / "names").iterdir()]
    assert all(re.fullmatch(r"[0-9a-f]{64}\.json", name) for name in on_disk)
    folded = {unicodedata.normalize("NFKC", name.casefold()) for name in on_disk}
    assert len(folded) == len(TRICKY)
    assert {path.name for path in tmp_path.iterdir()} == {"store"}


@pytest.mark.parametrize("level", ["file", "shard", "folder"])
def test_b14_a_linked_manifest_is_refused_and_its_victim_kept(tmp_path: Path, level: str) -> None:
    manifest, segments = block([1])
    victim = tmp_path / "outside" / manifest.block_id[:2] / f"{manifest.block_id}.json"
    victim.parent.mkdir(parents=True)
    victim.write_text("keep")
    store = BlockStore(tmp_path / "store")
    path = store.root / "manifests" / manifest.block_id[:2] / f"{manifest.block_id}.json"
    link, target = {
        "file": (path, victim),
        "shard": (path.parent, victim.parent),
        "folder": (path.parent.parent, victim.parent.parent),
    }[level]
    link.parent.mkdir(parents=True, exist_ok=True)
    link.symlink_to(target)
    before = contents(tmp_path / "outside")
    for call in (
        lambda: store.put(manifest, segments),
        lambda: store.manifest(manifest.block_id),
        lambda: store.has(manifest.block_id),
        lambda: store.verify(manifest.block_id),
    ):
        with pytest.raises(StoreReadError):
            call()
    assert contents(tmp_path / "outside") == before == {f"{manifest.block_id[:2]}/{victim.name}": b"keep"}


@pytest.mark.parametrize("kind", ["fifo", "dangling", "directory"])
def test_b14_other_kinds_of_files_never_hang(tmp_path: Path, kind: str) -> None:
    store = BlockStore(tmp_path / "store")
    manifest, segments = block([1])
    store.put(manifest, segments)
    store.set_name(named(manifest))
    (name_file,) = (store.root / "names").iterdir()
    manifest_file = store.root / "manifests" / manifest.block_id[:2] / f"{manifest.block_id}.json"
    for path in (
        name_file,
        manifest_file,
        store.root / "agentkv-store.json",
        store.root / "agentkv-store.lock",
    ):
        path.unlink()
        if kind == "fifo":
            os.mkfifo(path)
        elif kind == "dangling":
            path.symlink_to(tmp_path / "nowhere")
        else:
            path.mkdir()
    for call in (
        lambda: store.manifest(manifest.block_id),
        lambda: store.name("skill", "parse-pdf", FINGERPRINT.id),
        lambda: store.put(*block([2])),
        lambda: BlockStore(store.root),
    ):
        with pytest.raises(StoreError):
            call()
    assert not (tmp_path / "nowhere").exists()


def test_a_linked_root_is_the_directory_that_it_points_to(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "real")
    store = BlockStore(tmp_path / "link")
    assert store.root == tmp_path / "real"
    store.put(*block([1]))
    assert len(list(BlockStore(tmp_path / "real").block_ids())) == 1


class Trap:
    """What a pickle would run."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> tuple[object, tuple[str]]:
        return os.mkdir, (str(self.path),)


def test_b17_a_pickle_in_place_of_any_file_is_refused_and_not_run(tmp_path: Path) -> None:
    dumps = __import__("pickle").dumps
    store = BlockStore(tmp_path / "store", verify="always")
    manifest, segments = block([1])
    store.put(manifest, segments)
    store.set_name(named(manifest))
    planted = dumps(Trap(tmp_path / "pwned"))
    for path in [path for path in store.root.rglob("*") if path.suffix in (".seg", ".json")]:
        path.write_bytes(planted)
    for call in (
        lambda: store.manifest(manifest.block_id),
        lambda: store.read(manifest, lambda ref, raw: None),
        lambda: store.name("skill", "parse-pdf", manifest.fingerprint.id),
    ):
        with pytest.raises(CorruptBlock):
            call()
    with pytest.raises(StoreError):
        BlockStore(store.root)
    assert not (tmp_path / "pwned").exists()


def test_b17_nothing_in_the_package_loads_objects() -> None:
    banned = re.compile(
        r"\b(pickle|shelve|marshal|diskcache|dill|joblib|allow_pickle|eval|exec)\b\s*[.(]|import pickle"
    )
    folder = Path(catalog.__file__).parent
    files = [*folder.glob("*.py"), *(folder.parent / "io").glob("*.py")]
    assert len(files) > 8
    assert [path.name for path in files if banned.search(path.read_text())] == []


def test_the_stores_layer_imports_nothing_above_it() -> None:
    folder = Path(catalog.__file__).parent
    allowed = {"errors", "io", "notices", "records", "store"}
    for path in [*folder.glob("*.py"), *(folder.parent / "io").glob("*.py")]:
        imported = set(re.findall(r"^\s*(?:from|import) agentkv\.(\w+)", path.read_text(), re.MULTILINE))
        assert imported <= allowed, path.name


def test_a_name_record_keeps_its_spelling() -> None:
    ref = NamedBlock(kind="skill", name="cafe\u0301", fingerprint_id="0" * 64, block_id="0" * 64)
    assert NamedBlock.model_validate_json(ref.model_dump_json()).name == "cafe\u0301"
