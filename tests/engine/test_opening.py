"""With which engine a store is opened: caller, environment, store, default, in this order; in Python as on the line."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from agentkv import AgentKVWarning, AgentMemory, BlockStore, FakeEngine
from agentkv.engine.opening import choose, expected_fingerprint, from_environment, is_fake, open_engine
from agentkv.engine.settings import EngineSettings
from agentkv.errors import NoGpu, UsageError
from agentkv.models.catalogue import DEFAULT
from agentkv.records import EngineChoice
from agentkv.store.files import SETTINGS


@pytest.fixture(autouse=True)
def bare(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in EngineChoice.model_fields:
        monkeypatch.delenv(f"AGENTKV_{name.upper()}", raising=False)


def test_the_caller_wins_over_the_environment_over_the_store_over_the_default(monkeypatch: pytest.MonkeyPatch) -> None:
    assert choose({}, EngineChoice()) == (DEFAULT, EngineSettings())
    stored = EngineChoice(model="gemma-3-270m", kv_type="f32", threads=3)
    assert choose({"model": None}, stored) == ("gemma-3-270m", EngineSettings(kv_type="f32", threads=3))
    monkeypatch.setenv("AGENTKV_KV_TYPE", "q8_0")
    monkeypatch.setenv("AGENTKV_FLASH_ATTENTION", "on")
    assert choose({}, stored)[1] == EngineSettings(kv_type="q8_0", flash_attention=True, threads=3)
    given = {"kv_type": "f16", "flash_attention": False, "model": "fake"}
    assert choose(given, stored) == ("fake", EngineSettings(threads=3))


@pytest.mark.parametrize(
    ("name", "text", "value"),
    [
        ("model", "fake", "fake"),
        ("window", "512", 512),
        ("kv_type", "f32", "f32"),
        ("flash_attention", "TRUE", True),
        ("flash_attention", "0", False),
        ("gpu_layers", "7", 7),
        ("threads", "2", 2),
    ],
)
def test_each_has_a_variable(name: str, text: str, value: Any) -> None:
    assert from_environment({f"AGENTKV_{name.upper()}": text}) == {name: value}
    assert from_environment({f"AGENTKV_{name.upper()}": " "}) == {}


@pytest.mark.parametrize(
    ("variable", "text"),
    [
        ("AGENTKV_WINDOW", "many"),
        ("AGENTKV_WINDOW", "1"),
        ("AGENTKV_KV_TYPE", "q4_0"),
        ("AGENTKV_FLASH_ATTENTION", "maybe"),
        ("AGENTKV_GPU_LAYERS", "-1"),
        ("AGENTKV_THREADS", "0"),
    ],
)
def test_a_wrong_value_is_refused_by_its_variables_name(variable: str, text: str) -> None:
    with pytest.raises(UsageError, match=variable):
        from_environment({variable: text})


def test_a_memory_follows_its_store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with BlockStore(tmp_path) as store:
        store.set_budget(10**9)
        store.set_engine_choice(EngineChoice(model="fake:b", kv_type="f32"))
        assert store.budget == 10**9
    with AgentMemory(tmp_path) as memory:
        assert (memory.engine.info.name, memory.blocks.fingerprint.content["kv_type"]) == ("fake:b", "f32")
        assert expected_fingerprint("fake:b", EngineSettings(kv_type="f32")) == memory.blocks.fingerprint
    with AgentMemory(tmp_path, "fake", kv_type="f16") as memory:
        assert (memory.engine.info.name, memory.blocks.fingerprint) == ("fake", FakeEngine().fingerprint())
    monkeypatch.setenv("AGENTKV_MODEL", "fake:c")
    with AgentMemory(tmp_path) as memory:
        assert memory.engine.info.name == "fake:c"
    with BlockStore(tmp_path) as store:
        store.set_engine_choice(EngineChoice())
        assert (store.engine_choice, store.budget) == (EngineChoice(), 10**9)


def test_corrupt_settings_are_passed_over_with_a_warning(tmp_path: Path) -> None:
    with BlockStore(tmp_path) as store:
        (store.root / SETTINGS).write_bytes(b"corrupt")
        with pytest.warns(AgentKVWarning, match="set them again with `agentkv settings`"):
            assert store.engine_choice == EngineChoice()
        store.set_engine_choice(EngineChoice(threads=2))
        assert store.engine_choice == EngineChoice(threads=2)


def test_a_gpu_setting_that_nothing_takes_is_refused() -> None:
    with pytest.raises(NoGpu, match=r"gpu_layers = 99, but this build of llama\.cpp uses no GPU") as caught:
        FakeEngine(settings=EngineSettings(gpu_layers=99))
    assert (caught.value.exit_code, caught.value.gpu_layers) == (15, 99)
    with FakeEngine(settings=EngineSettings(gpu_layers=99), has_gpu=True) as engine:
        assert engine.fingerprint().numerics["gpu_layers"] == 99


def test_the_real_engine_refuses_before_it_looks_at_the_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import llama_cpp

    from agentkv.engine.llama.engine import LlamaEngine

    monkeypatch.setattr(llama_cpp, "llama_supports_gpu_offload", lambda: False)
    with pytest.raises(NoGpu):
        LlamaEngine(tmp_path / "none.gguf", EngineSettings(gpu_layers=1))


def test_the_fakes_names() -> None:
    assert [is_fake(name) for name in ("fake", "fake:b", "faker", Path("fake"))] == [True, True, False, False]
    with open_engine("fake:b", EngineSettings(window=512)) as engine:  # type: ignore[attr-defined]
        assert (engine.info.name, engine.info.spec, engine.window) == ("fake:b", "fake:b", 512)
