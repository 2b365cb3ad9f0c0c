"""What a model says of a pack: valid ones are proved, forged ones found although every digest is right."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from agentkv import AgentMemory, FakeEngine
from agentkv.blocks.blocks import Blocks
from agentkv.engine.base import State
from agentkv.errors import ForgedBlock, InexactBlock
from agentkv.io.hashing import sha256
from agentkv.packs import Pack, Proof, Trust, create_pack, import_pack, open_pack, prove_pack
from agentkv.packs.check import Contents, check
from agentkv.records import Import
from agentkv.signing.keys import generate_key
from agentkv.store.catalog import BlockStore

TEXT = "Returns are accepted for 30 days.\n"
LIE = "Returns are accepted for 99 days.\n"


@pytest.fixture
def memory(tmp_path: Path) -> Iterator[AgentMemory]:
    with AgentMemory(tmp_path / "origin", FakeEngine()) as opened:
        opened.deposit_text("returns", TEXT)
        yield opened


def proofs(path: Path, how: str, engine: FakeEngine | None = None) -> tuple[Contents, list[Proof]]:
    with open_pack(path) as opened:
        assert isinstance(opened, Pack)
        found = check(opened)
        return found, list(prove_pack(opened, found, engine or FakeEngine(), how))  # type: ignore[arg-type]


@pytest.mark.parametrize("how", ["prove", "recompute"])
def test_a_true_pack(memory: AgentMemory, tmp_path: Path, how: str) -> None:
    _, found = proofs(create_pack(memory.store, tmp_path / "p").path, how)
    assert [proof.error for proof in found] == [None, None]
    words = ["proved"] * 2 if how == "prove" else ["recomputed", "recomputed, text and state"]
    assert [proof.verdict for proof in found] == words
    assert found[1].names == ("returns",)


def test_a_block_of_a_long_text(memory: AgentMemory, tmp_path: Path) -> None:
    memory.deposit_text("long", "word " * 400)
    _, found = proofs(create_pack(memory.store, tmp_path / "p").path, "recompute")
    assert [proof.error for proof in found] == [None] * 3


def forge(memory: AgentMemory, target: Path, *, n_segments: int | None = None) -> Path:
    """A pack in which the block "returns" has the state of other tokens; probe and all digests are in order."""
    honest = memory.store.manifest(memory.names()[0].block_id)
    assert honest is not None
    other = memory.deposit_text("other", LIE).manifest
    assert (other.n_tokens, other.layout) == (honest.n_tokens, honest.layout)
    mixed = other.segments if n_segments is None else (*honest.segments[:-n_segments], *other.segments[-n_segments:])
    forged = honest.model_copy(update={"segments": mixed, "state_sha256": other.state_sha256})
    with BlockStore(target.with_suffix(".store")) as store:
        raw = {}
        for manifest in (honest, other):
            memory.store.read(manifest, lambda ref, data: raw.update({ref.sha256: data}))
        parent = memory.store.manifest(honest.parent_id or "")
        assert parent is not None
        memory.store.read(parent, lambda ref, data: raw.update({ref.sha256: data}))
        store.put(parent, raw)
        store.put(forged, raw)
        store.set_name(memory.store.names()[-1].model_copy(update={"block_id": forged.block_id}), TEXT)
        return create_pack(store, target).path


@pytest.mark.parametrize("n_segments", [None, 1])
def test_the_state_of_other_tokens_is_found(memory: AgentMemory, tmp_path: Path, n_segments: int | None) -> None:
    path = forge(memory, tmp_path / "forged", n_segments=n_segments)
    _, found = proofs(path, "recompute")  # every digest is right: check() inside says nothing
    assert found[0].error is None
    error = found[1].error
    assert isinstance(error, ForgedBlock)
    assert error.block_id in error.message or error.block_id[:12] in error.message
    assert (error.names, error.exit_code) == (["returns"], 74)
    _, found = proofs(path, "prove")
    assert isinstance(found[1].error, InexactBlock)


def test_a_digest_of_another_whole_state_is_found(memory: AgentMemory, tmp_path: Path) -> None:
    named = memory.names()[0]
    honest = memory.store.manifest(named.block_id)
    assert honest is not None
    raw = {}
    memory.store.read(honest, lambda ref, data: raw.update({ref.sha256: data}))
    memory.store.put(honest.model_copy(update={"state_sha256": "ab" * 32}), raw, replace=True)
    _, found = proofs(create_pack(memory.store, tmp_path / "p").path, "recompute")
    assert isinstance(found[1].error, ForgedBlock)


def test_tokens_of_another_text_are_found(memory: AgentMemory, tmp_path: Path) -> None:
    named = memory.names()[0].model_copy(update={"source_sha256": sha256(LIE.encode())})
    memory.store.set_name(named, LIE)
    path = create_pack(memory.store, tmp_path / "p").path
    _, found = proofs(path, "prove")
    assert found[1].error is None
    _, found = proofs(path, "recompute")
    assert isinstance(found[1].error, ForgedBlock)
    assert "not those of the text" in found[1].error.message


def test_tokens_that_the_model_does_not_have(tmp_path: Path) -> None:
    engine = FakeEngine()
    with BlockStore(tmp_path / "s") as store:
        done = Blocks(engine, store).deposit([1, 2, 3, 4]).manifest
        bad = (1, 2, 3, 100_000)
        raw = {}
        store.read(done, lambda ref, data: raw.update({ref.sha256: data}))
        forged = done.model_copy(update={"tokens": bad, "block_id": Blocks(engine, store).id_of(bad)})
        store.put(forged, raw)
        path = create_pack(store, tmp_path / "p", block_ids=[forged.block_id]).path
    for how in ("prove", "recompute"):
        _, found = proofs(path, how)
        assert isinstance(found[0].error, ForgedBlock), how


def test_blocks_of_another_model_are_left_out(memory: AgentMemory, tmp_path: Path) -> None:
    path = create_pack(memory.store, tmp_path / "p").path
    _, found = proofs(path, "recompute", FakeEngine(weights="other"))
    assert [(proof.verdict, proof.error) for proof in found] == [("other model or settings", None)] * 2


def test_a_machine_that_computes_otherwise(memory: AgentMemory, tmp_path: Path) -> None:
    path = create_pack(memory.store, tmp_path / "p").path
    _, found = proofs(path, "prove", FakeEngine(diverge_after=3))
    assert isinstance(found[0].error, InexactBlock)
    assert "computes differently" in found[0].error.message


def test_what_is_deposited_here_does_not_rest_on_a_strangers_state(memory: AgentMemory, tmp_path: Path) -> None:
    """A forged agent prefix in a pack that was let in unsigned: its id is the parent of every skill here."""
    honest = memory.store.manifest(memory.names()[0].block_id)
    assert honest is not None
    assert honest.parent_id is not None
    prefix = memory.store.manifest(honest.parent_id)
    assert prefix is not None
    lie = Blocks(memory.engine, BlockStore(tmp_path / "lies")).deposit(prefix.tokens[::-1]).manifest
    forged = prefix.model_copy(update={"segments": lie.segments, "state_sha256": lie.state_sha256})
    with BlockStore(tmp_path / "lies") as lies, BlockStore(tmp_path / "here") as store:
        raw: dict[str, bytes] = {}
        lies.read(lie, lambda ref, piece: raw.update({ref.sha256: piece.tobytes()}))
        store.put(forged, raw)
        store.set_import(Import(block_id=forged.block_id, pack_sha256="ab" * 32, signed_by=None, decision="unsigned"))
        here = AgentMemory(store, FakeEngine())
        here.deposit_text("returns", TEXT)
        assert store.manifest(prefix.block_id) == prefix
        assert store.manifest(honest.block_id) == honest
        assert store.imported(prefix.block_id) is None


def state_of(store: BlockStore, block_id: str) -> State:
    manifest = store.manifest(block_id)
    assert manifest is not None
    return Blocks(FakeEngine(), store).state(manifest)


def test_a_trusted_pack_takes_the_place_of_a_strangers_state(memory: AgentMemory, tmp_path: Path) -> None:
    forged = forge(memory, tmp_path / "forged")
    signer = generate_key(tmp_path / "me.key")
    signed = create_pack(memory.store, tmp_path / "signed.akvpack", signer=signer).path
    trust = Trust(tmp_path / "trust.json")
    trust.add("me", signer.public)
    with BlockStore(tmp_path / "here") as store:
        how: Any = {"fingerprint": None, "trust": trust, "replace": True}
        import_pack(forged, store, allow_unsigned=True, **how)
        block_id = memory.names()[-1].block_id
        assert store.manifest(block_id) != memory.store.manifest(block_id)
        assert not state_of(store, block_id).is_trusted
        import_pack(signed, store, **how)
        assert store.manifest(block_id) == memory.store.manifest(block_id)
        assert state_of(store, block_id).is_trusted
        record = store.imported(block_id)
        assert record is not None
        assert record.decision == "trusted"
