"""A whole store of format 1, written once by agentkv 0.1.0: every later version must read it, state by state.

States are read without an engine's fingerprint, which changes with every version of the package, and put into a fake
engine as they are: only its arithmetic and its layout must stay.
"""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from agentkv import FakeEngine
from agentkv.engine import layout as blobs
from agentkv.engine.base import State
from agentkv.errors import StoreFormatError
from agentkv.io.hashing import sha256
from agentkv.records import Import, Manifest
from agentkv.store.catalog import BlockStore
from agentkv.store.check import check
from agentkv.store.format import Codec

GOLDEN = Path(__file__).resolve().parents[1] / "data" / "store-v1"
LISTING = "98b5500402f534b374ea076c31a788b82a3639e09e3c1aea494e4ae5102c56ac"
"""SHA-256 over a line for each file, in order: its path, a space, the SHA-256 of its bytes."""

# Block: tokens, SHA-256 of the state, SHA-256 of the logits after it and the byte "A".
STATES = {
    "1bcbfa9ac487b2a1cd1d951132c34f504875c7771c36b2a50dc6d878f40e80cf": (
        97,
        "87a2fe627a099e207c77b7722c1f23e9d2aaf90c2dd7846c4d1510842ce0772b",
        "7f64235e1153f2d2a1faecc0c136d562fdbb256cdf041160643e0515daa918ca",
    ),
    "72d75580def75224005102f398403d1bfe590d10d8e17cb9b17a71ef0ab4f7ef": (
        256,
        "34a4575a0974c3eb6d8b781320ec8753dd95252dc13a60b4362ccaf8ed434dc0",
        "6e968ad956725341982385b4e6f963e19545cecc02dda276cea185044603c8cc",
    ),
    "93350e2e32031f8f22b09208859eda83f7867ac72dac91a6efb30669020a4c95": (
        332,
        "e8d0b25622de6eae07d9a82318e4b4eb7e1e6c613f4b99a51a5981883f326eca",
        "832158b0cc49d41c81f9103bc3d04111cef9c9e22974507d073623942a1a1186",
    ),
    "a9cec61d9e537cf4b9b63c045f96baf586b66fa3390506c7255de50718430d2d": (
        44,
        "c22880f0742e448bd246049ba030824db859ab5f99f2d54a197da282653779b3",
        "9bac1d9825b91ba910f92cdb55d9428fbecb7b4e5311b37e5456d3ca9f1945bd",
    ),
    "b3f02a5853b153e12cb5aa5c9a1be817ea2f76efe92d566021d09bd5892f3858": (
        101,
        "f4107d2bd9e30765d661a68179e813569ecf12a478deabc607ddb1e231f111a0",
        "9cb772191764787505e71ce8c225eb6cd7f2c7b2398a0c4a53489ac2dfc2abe0",
    ),
    "cf7b3e674031f56d0e04fd21cf7a8d31ce616db6a1cf75f170e05a0c663a3b51": (
        304,
        "1809db85738126f55bc097ded768d04edecc8f024dffdde1c5d33313517230a2",
        "79fe965b103d4cb47664916ced22e90d24d50c5bd5ab18e356a1eeee84c98b60",
    ),
    "d08751adf4732087a0eeab25360e6a8550338d00bfda52ddaf18baa66075d4e8": (
        51,
        "1990d397b7e2e03c98e8cf8487f87f9000d45d2dde6a83b799da02a2a4d18d7e",
        "b1e10b7194ceca932ce132afbb3571c91649543913af3fe6f6840cc247ed0184",
    ),
}
RETURNS, WARRANTY, NOTES = (
    "cf7b3e674031f56d0e04fd21cf7a8d31ce616db6a1cf75f170e05a0c663a3b51",
    "72d75580def75224005102f398403d1bfe590d10d8e17cb9b17a71ef0ab4f7ef",
    "93350e2e32031f8f22b09208859eda83f7867ac72dac91a6efb30669020a4c95",
)
TEXTS = {
    "returns": "# Manual: returns\n\n" + "Returns are taken back for 30 days. Straße, café, 日本.\n" * 4 + "\n",
    "warranty": "# Manual: warranty\n\n" + "The warranty lasts for 24 months, batteries 6.\n" * 4 + "\n",
    "notes": "A text without a card: 1, 2, 3.\n" * 9,
}


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return Path(shutil.copytree(GOLDEN, tmp_path / "store"))


def chain(store: BlockStore, manifest: Manifest) -> list[Manifest]:
    links = [manifest]
    while (parent_id := links[0].parent_id) is not None:
        parent = store.manifest(parent_id)
        assert parent is not None
        links.insert(0, parent)
    return links


def test_it_is_what_was_written() -> None:
    files = sorted(path for path in GOLDEN.rglob("*") if path.is_file())
    lines = [f"{path.relative_to(GOLDEN).as_posix()} {sha256(path.read_bytes())}\n" for path in files]
    assert sha256("".join(lines).encode()) == LISTING
    codecs = {path.read_bytes()[10] for path in files if path.suffix == ".seg"}
    assert codecs == {Codec.RAW, Codec.ZSTD, Codec.PLANES}


def test_every_block_is_whole_and_computes_what_it_did(root: Path) -> None:
    with BlockStore(root, create=False) as store, FakeEngine(window=1024) as engine:
        assert set(store.block_ids()) == set(STATES)
        for block_id, (n_tokens, state_sha256, logits_sha256) in STATES.items():
            manifest = store.verify(block_id, deep=True)
            assert (manifest.n_tokens, manifest.state_sha256) == (n_tokens, state_sha256)
            assembly = blobs.Assembly(manifest.layout, n_tokens)
            store.read(manifest, assembly.place, deep=True)
            assert sha256(assembly.blob.data) == state_sha256
            tokens = tuple(token for link in chain(store, manifest) for token in link.tokens)
            engine.restore(State(tokens, manifest.layout, assembly.blob))
            assert sha256(engine.extend([ord("A")]).data) == logits_sha256
        assert check(store.files).findings == ()


def test_names_texts_and_marks(root: Path) -> None:
    with BlockStore(root, create=False) as store:
        names = {named.name: named for named in store.names()}
        assert {name: (named.kind, named.block_id) for name, named in names.items()} == {
            "returns": ("skill", RETURNS),
            "warranty": ("skill", WARRANTY),
            "notes": ("text", NOTES),
        }
        assert {name: store.text(named.source_sha256 or "") for name, named in names.items()} == TEXTS
        assert (names["returns"].description, names["returns"].license) == ("Returning goods.", "MIT")
        assert (names["warranty"].source, names["notes"].source) == ("/manuals/warranty", "/notes.txt")
        assert store.pinned() == {RETURNS}
        signed_by = "ed25519:" + "cd" * 32
        record = Import(block_id=WARRANTY, pack_sha256="ab" * 32, signed_by=signed_by, decision="trusted")
        assert store.imported(WARRANTY) == record
        assert store.imported(RETURNS) is None
        assert store.budget == 10**9


def test_it_can_be_written_to(root: Path) -> None:
    with BlockStore(root, create=False) as store:
        assert store.collect().segments == 0
        assert store.remove_block(NOTES)
        assert store.collect().segments > 0
        for block_id in STATES.keys() - {NOTES}:
            store.verify(block_id, deep=True)


@pytest.mark.parametrize("number", [0, 2, 999])
def test_a_store_of_another_format_is_refused_and_not_touched(root: Path, number: int) -> None:
    (root / "agentkv-store.json").write_bytes(b'{"format":%d}\n' % number)
    before = sorted(root.rglob("*"))
    with pytest.raises(StoreFormatError) as caught:
        BlockStore(root, create=False)
    assert (caught.value.found, caught.value.known) == (number, [1])
    assert sorted(root.rglob("*")) == before
