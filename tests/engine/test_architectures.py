"""Which of llama.cpp's architectures graft exactly: measured on tiny models with random weights, one of each kind.

The pins here are the claims of the README: a change of llama.cpp that breaks one of them fails here.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from agentkv.blocks.blocks import Blocks
from agentkv.engine import layout as blobs
from agentkv.engine.base import Engine
from agentkv.engine.generate import first_difference, greedy_hashes
from agentkv.engine.llama.engine import LlamaEngine
from agentkv.engine.settings import EngineSettings
from agentkv.errors import AgentKVError, IncompatibleFingerprint, InvalidState, ModelUnreadable, UsageError
from agentkv.io.hashing import sha256
from agentkv.records import Exactness
from agentkv.store.catalog import BlockStore
from tests.benchmarks.tiny import ARCHITECTURES, SLIDING, write_tiny, write_tiny_lora

pytestmark = pytest.mark.model

FULL, WINDOWED, RECURRENT = ("attention", 0), ("attention", SLIDING), ("recurrent", 0)

EXACT = {
    "llama": [FULL],
    "llama-q8_0": [FULL],
    "llama-moe": [FULL],
    "qwen2moe": [FULL],
    "gemma3": [FULL, WINDOWED],
    "gpt-oss": [FULL, WINDOWED],
    "llama4": [FULL, ("attention", 8192)],
    "deepseek2": [FULL],
    "qwen2vl": [FULL],
    "mamba": [RECURRENT],
    "mamba2": [RECURRENT],
    "rwkv7": [RECURRENT],
    "jamba": [FULL, RECURRENT],
    "granitehybrid": [FULL, RECURRENT],
    "falcon-h1": [FULL, RECURRENT],
    "lfm2": [FULL, RECURRENT],
    "lfm2-windowed": [FULL, WINDOWED, RECURRENT],
    "qwen35": [FULL, RECURRENT],
}
"""Architectures whose blocks are exact, with the sections of their state (kind, sliding window)."""

NOT_OPENED = ["dream"]
"""Architectures without a state: no engine for them."""

LENGTHS = (1, 2, 31, SLIDING, 200, 600)
STEPS = 48

Open = Callable[..., LlamaEngine]


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("tiny")
    return {name: write_tiny(folder / f"{name}.gguf", name) for name in ARCHITECTURES}


@pytest.fixture
def open_tiny(models: dict[str, Path]) -> Iterator[Open]:
    engines: list[LlamaEngine] = []

    def opened(name: str, **settings: object) -> LlamaEngine:
        options = {"window": 1024, "threads": 1, **settings}
        engines.append(LlamaEngine(models[name], EngineSettings(**options)))  # type: ignore[arg-type]
        return engines[-1]

    yield opened
    for engine in engines:
        engine.close()


def text(n: int, seed: int = 0) -> list[int]:
    return [int(byte) for byte in np.random.default_rng([n, seed]).integers(0, 256, n)]


def fresh(engine: Engine, *parts: list[int], steps: int = STEPS) -> list[str]:
    """The hashes of a cold prefill that nothing captures, each part decoded as one piece."""
    engine.clear()
    for part in parts:
        engine.extend(part)
    return greedy_hashes(engine, parts[-1][0], steps)


def test_every_architecture_is_pinned() -> None:
    assert [*EXACT, *NOT_OPENED] == sorted(ARCHITECTURES, key=[*EXACT, *NOT_OPENED].index)


@pytest.mark.parametrize("flash_attention", [False, True])
@pytest.mark.parametrize("name", EXACT)
def test_blocks_are_exact(open_tiny: Open, tmp_path: Path, name: str, flash_attention: bool) -> None:
    engine = open_tiny(name, flash_attention=flash_attention)
    assert [(section.kind, section.window) for section in engine.layout.sections] == EXACT[name]
    with BlockStore(tmp_path / "store", cache_bytes=0) as store:
        blocks = Blocks(engine, store)
        for n in LENGTHS:
            ids = text(n)
            uninterrupted = fresh(engine, ids)
            manifest = blocks.deposit(ids).manifest
            assert manifest.exactness is Exactness.EXACT
            assert engine.tokens == ()
            blocks.graft(manifest)
            assert sha256(engine.capture().blob.data) == manifest.state_sha256
            assert first_difference(uninterrupted, greedy_hashes(engine, ids[0], STEPS)) is None, n
            assert blocks.reprove(manifest)
            assert fresh(engine, ids) == uninterrupted


@pytest.mark.parametrize("name", EXACT)
def test_chains_are_exact(open_tiny: Open, tmp_path: Path, name: str) -> None:
    engine = open_tiny(name)
    with BlockStore(tmp_path / "store", cache_bytes=0) as store:
        blocks = Blocks(engine, store)
        for n_parent, n_child, n_last in ((1, 2, 1), (300, 150, 3), (30, 5, 290)):
            parts = [text(n_parent, 1), text(n_child, 2), text(n_last, 3)]
            uninterrupted = fresh(engine, *parts)
            parent = blocks.deposit(parts[0]).manifest
            child = blocks.deposit(parts[1], parent=parent).manifest
            last = blocks.deposit(parts[2], parent=child).manifest
            assert {link.exactness for link in (parent, child, last)} == {Exactness.EXACT}
            blocks.graft(last)
            assert engine.tokens == (*parts[0], *parts[1], *parts[2])
            assert sha256(engine.capture().blob.data) == last.state_sha256
            assert first_difference(uninterrupted, greedy_hashes(engine, parts[2][0], STEPS)) is None


@pytest.mark.parametrize("name", EXACT)
def test_the_logits_depend_on_the_first_token(open_tiny: Open, name: str) -> None:
    """Without this a graft of anything would pass. Past all windows nothing reaches far, so it is asked nearer."""
    engine = open_tiny(name)
    n = SLIDING // 2 if name == "lfm2-windowed" else 600
    ids = text(n)
    engine.clear()
    one = engine.extend(ids)
    engine.clear()
    other = engine.extend([(ids[0] + 1) % 256, *ids[1:]])
    assert np.abs(one - other).max() > 1e-3
    assert one.std() > 1


@pytest.mark.parametrize("name", NOT_OPENED)
def test_a_model_without_a_state_is_not_opened(open_tiny: Open, name: str) -> None:
    with pytest.raises(ModelUnreadable, match="no KV cache to store"):
        open_tiny(name)


def test_states_of_one_architecture_are_refused_by_all_others(open_tiny: Open, tmp_path: Path) -> None:
    engines = {name: open_tiny(name, window=128) for name in EXACT}
    states = {}
    for name, engine in engines.items():
        engine.extend(text(9))
        states[name] = engine.capture()
    same = {"llama", "llama-q8_0", "llama-moe"}  # one layout, so only the fingerprint tells them apart
    for name, engine in engines.items():
        for other, state in states.items():
            if name != other and not {name, other} <= same:
                with pytest.raises(InvalidState):
                    engine.restore(state)
        assert engine.tokens == tuple(text(9))
    with BlockStore(tmp_path / "store") as store:
        manifest = Blocks(engines["llama"], store).deposit(text(20)).manifest
        for name in EXACT.keys() - {"llama"}:
            with pytest.raises(IncompatibleFingerprint):
                Blocks(engines[name], store).graft(manifest)


@pytest.mark.parametrize("name", EXACT)
def test_corrupt_structure_never_reaches_native_code(open_tiny: Open, name: str) -> None:
    engine = open_tiny(name, window=128)
    ids = text(7)
    engine.extend(ids)
    uninterrupted = greedy_hashes(engine, 5, 4)
    engine.clear()
    engine.extend(ids)
    state = engine.capture()
    heads = [0, 4 + len(state.layout.architecture)]
    heads += [at for at, item in blobs._walk(state.layout, 7) if not isinstance(item, bytes)]
    refused = 0
    for at in sorted({min(head + i, len(state.blob) - 1) for head in heads for i in range(28)}):
        blob = state.blob.copy()
        blob[at] ^= 0x81
        try:
            engine.restore(replace(state, blob=blob))
        except InvalidState:
            refused += 1
            assert engine.tokens == tuple(ids)
    assert refused > 20
    for blob in (state.blob[:-1].copy(), np.append(state.blob, np.uint8(0)), state.blob[:9].copy()):
        with pytest.raises(InvalidState):
            engine.restore(replace(state, blob=blob))
    engine.restore(state)
    assert greedy_hashes(engine, 5, 4) == uninterrupted


def test_a_recurrent_state_of_other_shapes_is_refused(open_tiny: Open) -> None:
    """Same size, well formed, other layers: only comparing with a state of the engine's own can tell."""
    engine = open_tiny("mamba")
    engine.extend(text(9))
    state = engine.capture()
    blob = state.blob.copy()
    start = next(offset for offset, item in blobs._walk(state.layout, 9) if not isinstance(item, bytes))
    at = start + 4 + 16 + 8  # after the cell count, one cell of two sequences, s_trans and the layer count
    assert blob[at] == 0  # ggml type of the first tensor: f32
    blob[at] = 1
    blobs.check(blob, state.layout, 9)
    with pytest.raises(InvalidState, match="another model"):
        engine.restore(replace(state, blob=blob))
    assert engine.tokens == tuple(text(9))


@pytest.mark.parametrize("name", ["mamba", "jamba", "qwen35"])
def test_recurrent_contexts_cannot_be_cut_and_say_so(open_tiny: Open, name: str) -> None:
    engine = open_tiny(name)
    engine.extend(text(50))
    engine.restore(engine.capture())
    assert not engine.truncate(49)
    assert len(engine.tokens) == 50


@pytest.mark.parametrize("name", ["mamba", "mamba2", "rwkv7", "jamba", "lfm2", "qwen35", "llama", "gemma3"])
def test_a_block_has_one_state_whatever_turn_was_before(open_tiny: Open, name: str) -> None:
    engine = open_tiny(name)
    for n in (1, 2, 3, 40):
        engine.clear()
        engine.extend(text(n))
        first = engine.capture().blob.copy()
        for seed in range(3):
            engine.clear()
            engine.extend(text(70, 5 + seed))
            engine.clear()
            engine.extend(text(n))
            assert np.array_equal(engine.capture().blob, first), (n, seed)


def test_capture_after_capture_of_a_recurrent_context(open_tiny: Open) -> None:
    """The copy that a capture shares out is given up by the next token; the next capture takes it back."""
    engine = open_tiny("jamba")
    for part in (text(40, 1), text(1, 2), text(1, 3), text(90, 4)):
        engine.extend(part)
        state = engine.capture()
    expected = fresh(engine, text(40, 1), text(1, 2), text(1, 3), text(90, 4))
    engine.restore(state)
    assert greedy_hashes(engine, text(90, 4)[0], STEPS) == expected


def test_lora_is_another_computation_and_grafts_exactly(open_tiny: Open, tmp_path: Path) -> None:
    adapter = write_tiny_lora(tmp_path / "lora.gguf")
    plain = open_tiny("llama")
    with BlockStore(tmp_path / "store", cache_bytes=0) as store:
        ids = text(300)
        uninterrupted = fresh(plain, ids)
        block = Blocks(plain, store).deposit(ids).manifest
        seen = {plain.fingerprint().id: uninterrupted}
        for scale in (1.0, 0.5):
            engine = open_tiny("llama", lora=((adapter, scale),))
            blocks = Blocks(engine, store)
            seen[engine.fingerprint().id] = fresh(engine, ids)
            with pytest.raises(IncompatibleFingerprint) as caught:
                blocks.graft(block)
            assert caught.value.field == "lora"
            own = blocks.deposit(ids).manifest
            assert own.exactness is Exactness.EXACT
            blocks.graft(own)
            assert greedy_hashes(engine, ids[0], STEPS) == seen[engine.fingerprint().id]
            engine._rebuild()  # as after a native refusal: the adapter has to come back
            assert fresh(engine, ids) == seen[engine.fingerprint().id]
        assert len(seen) == 3
        assert len({hashes[0] for hashes in seen.values()}) == 3


def test_lora_of_another_architecture_is_a_typed_error(open_tiny: Open, tmp_path: Path) -> None:
    adapter = write_tiny_lora(tmp_path / "lora.gguf")
    with pytest.raises(AgentKVError):
        open_tiny("gemma3", lora=((adapter, 1.0),))


@pytest.mark.parametrize(
    ("name", "settings"),
    [(name, options) for name in ("llama-q8_0", "gemma3", "qwen35") for options in ({"batch": 32}, {"window": 2048})]
    + [("gemma3", {"threads": 2})],
)
def test_without_flash_attention_settings_do_not_change_bits(
    open_tiny: Open, name: str, settings: dict[str, int]
) -> None:
    steps = 2 if "threads" in settings else 8  # two threads on a busy machine wait for each other at every node
    ids = text(600)
    base, other = open_tiny(name), open_tiny(name, **settings)
    expected = fresh(base, ids, steps=steps)
    base.clear()
    base.extend(ids)
    state = base.capture()
    assert fresh(other, ids, steps=steps) == expected
    other.restore(state)
    assert greedy_hashes(other, ids[0], steps) == expected


def test_tiny_models_are_the_same_bytes_each_time(tmp_path: Path, models: dict[str, Path]) -> None:
    for name in ("llama", "llama-q8_0", "jamba"):
        again = write_tiny(tmp_path / f"{name}.gguf", name)
        assert again.read_bytes() == models[name].read_bytes()
    assert write_tiny(tmp_path / "x.gguf", "llama", seed=1).read_bytes() != models["llama"].read_bytes()
    with pytest.raises(UsageError, match="no tiny model"):
        write_tiny(tmp_path / "y.gguf", "nonesuch")
