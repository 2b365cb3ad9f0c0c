"""What another engine has made: every path says so, with field, values and remedy."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import pytest

from agentkv import AgentKVWarning, AgentMemory, FakeEngine, SkillLibrary
from agentkv.blocks.mismatch import fields_counted, others
from agentkv.engine import fake
from agentkv.engine.settings import EngineSettings
from agentkv.errors import IncompatibleFingerprint, SkillsLeftOut

FEES = "The restocking fee of an opened reader is 12%."
FLASH = EngineSettings(flash_attention=True)


def engine(settings: EngineSettings | None = None, **how: Any) -> FakeEngine:
    return FakeEngine(replies=lambda prompt: "12%" if "12%" in prompt else "no idea", settings=settings, **how)


@pytest.fixture
def store(tmp_path: Path) -> Path:
    with AgentMemory(tmp_path / "store", engine()) as memory:
        memory.deposit_text("fees", FEES, "Fees of returned readers, restocking fee.")
        memory.deposit_text("plain", "A text without a description is never routed to.")
    return tmp_path / "store"


OTHERS = [
    (engine(FLASH), "flash_attention = False, here True", "--flash-attention"),
    (engine(EngineSettings(kv_type="f32")), "kv_type = f16, here f32", "--kv-type f32"),
    (engine(EngineSettings(gpu_layers=99), has_gpu=True), "gpu_layers = 0, here 99", "--gpu-layers 99"),
    (engine(weights="b"), "model_sha256 = fake, here fake:b", "--model fake:b"),
]


@pytest.mark.parametrize(("other", "field", "flag"), OTHERS, ids=lambda value: str(value)[:20])
def test_a_question_says_what_is_left_out(store: Path, other: FakeEngine, field: str, flag: str) -> None:
    with AgentMemory(store, other) as memory:
        with pytest.warns(AgentKVWarning) as caught:
            turn = memory.ask("What is the restocking fee?")
        (note,) = turn.notes
        assert [str(warning.message) for warning in caught] == [note]
        assert f"1 stored skill or text is left out, since another engine has made them: fees ({field})" in note
        assert "Open the store as then (--model fake), or: `agentkv migrate --store" in note
        assert f"--store {store}" in note
        assert flag in note
        assert turn.decision.left_out == {"fees": f"stored for another engine: {field}"}
        assert turn.decision.fallback == "no skill is stored for this engine: no block"
        with pytest.warns(AgentKVWarning, match="left out"):
            assert memory.route("What is the restocking fee?").notes == (note,)


def test_an_upgrade_of_the_runtime_has_no_way_back_but_one_ahead(store: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fake, "__version__", "9.9")
    with AgentMemory(store, engine()) as memory, pytest.warns(AgentKVWarning) as caught:
        memory.ask("What is the restocking fee?")
    warning = str(caught[0].message)
    assert "fees (agentkv = 0." in warning
    assert "here 9.9" in warning
    assert "Open the store as then" not in warning
    assert "agentkv migrate" in warning


def test_what_is_stored_for_both_is_not_missing(store: Path) -> None:
    with AgentMemory(store, engine(FLASH)) as memory, warnings.catch_warnings():
        warnings.simplefilter("error")
        assert len(memory.deposit_again().done) == 2
        assert memory.ask("What is the restocking fee?").notes == ()
        assert memory.ask("Anything", skill=None).notes == ()


def test_some_are_left_out_and_some_not(store: Path) -> None:
    with AgentMemory(store, engine(FLASH)) as memory:
        memory.deposit_text("release", "The release train leaves on Tuesday.", "When the release train leaves.")
        with pytest.warns(AgentKVWarning, match="1 stored skill or text is left out"):
            turn = memory.ask("When does the release train leave?")
    assert turn.decision.fallback is None
    assert set(turn.decision.left_out) == {"fees"}


def test_strict_is_a_failure_before_anything_is_decoded(store: Path) -> None:
    with AgentMemory(store, engine(FLASH), strict=True) as memory:
        for call in (memory.ask, memory.route, lambda text: list(memory.stream(text))):
            with pytest.raises(SkillsLeftOut, match=r"flash_attention = False, here True\)") as caught:
                call("What is the restocking fee?")
            assert (caught.value.names, caught.value.exit_code) == (["fees"], 55)
        assert memory.engine.counters.decoded == 0
        assert memory.ask("Hello", skill=None).text == "no idea"
        memory.deposit_again()
        assert memory.ask("What is the restocking fee?", skill="fees").text == "12%"
        assert memory.route("What is the restocking fee?").notes == ()


def test_a_refusal_names_the_nearest_engine_and_how_many_there_are(store: Path) -> None:
    with AgentMemory(store, engine(weights="b")) as far:
        far.deposit_text("fees", FEES, "Fees.")
    with AgentMemory(store, engine(FLASH)) as memory:
        for skill in ("fees",):
            with pytest.raises(IncompatibleFingerprint) as caught:
                memory.ask("How much?", skill=skill)
        error = caught.value
        assert (error.field, error.block, error.engine) == ("flash_attention", False, True)
        assert "2 other engines (2 by flash_attention, 1 by model_sha256; the nearest follows)" in error.message
        assert "agentkv migrate" in error.message


def test_the_parts_of_a_skill_are_not_forgotten(tmp_path: Path) -> None:
    home = tmp_path / "skills" / "big"
    (home / "references").mkdir(parents=True)
    (home / "SKILL.md").write_text("---\nname: big\ndescription: Big.\n---\nSay hello.")
    (home / "references" / "more.md").write_text("More on it.\n")
    with AgentMemory(tmp_path / "store", engine()) as memory:
        SkillLibrary(memory, tmp_path / "skills", references=True).sync()
    with AgentMemory(tmp_path / "store", engine(FLASH)) as memory:
        with pytest.warns(AgentKVWarning, match="prefilled again for this one"):
            SkillLibrary(memory, tmp_path / "skills").sync()
        with pytest.warns(
            AgentKVWarning, match=r"left out, since another engine has made them: big/references/more\.md"
        ):
            assert len(memory.ask("How?", within="big").notes) == 1
        memory.strict = True
        with pytest.raises(SkillsLeftOut):
            memory.ask("How?", within="big")
        for name in memory.names():
            memory.store.remove_name(name.kind, name.name, name.fingerprint_id)
        memory.store.remove_name("skill", "big", engine().fingerprint().id)
        with pytest.raises(IncompatibleFingerprint, match=r"'big/references/more.md' is stored for another engine"):
            memory.ask("How?", skill="big")


def test_what_is_routed_among_is_said_to_lack_them(store: Path) -> None:
    with AgentMemory(store, engine(FLASH)) as memory, pytest.warns(AgentKVWarning, match="left out"):
        assert memory.candidates() == {}


def test_a_conversation_behind_a_skill_of_another_engine_says_so(store: Path) -> None:
    with AgentMemory(store, engine()) as memory:
        memory.thread("t").ask("How much?", skill="fees")
    with AgentMemory(store, engine(FLASH)) as memory:
        with pytest.raises(IncompatibleFingerprint, match="agentkv migrate"):
            memory.thread("t").ask("And now?")
        memory.deposit_again()
        assert memory.thread("t").ask("And now?").decision.pick == "fees"


def test_a_conversation_begun_without_its_skills_goes_on_saying_so_and_has_them_once_they_are_there(
    store: Path,
) -> None:
    for _ in range(2):
        with AgentMemory(store, engine(FLASH)) as memory, pytest.warns(AgentKVWarning, match="left out"):
            assert "left out" in memory.thread("t").ask("What is the restocking fee?").notes[0]
    with AgentMemory(store, engine(FLASH), strict=True) as memory, pytest.raises(SkillsLeftOut):
        memory.thread("t").ask("What is the restocking fee?")
    with AgentMemory(store, engine()) as memory:
        thread = memory.thread("t")
        assert thread.ask("What is the restocking fee?").decision.pick == "fees"
        assert [turn.lacking for turn in thread.turns] == [True, True, False]
        assert thread.ask("And now?").decision.pick == "fees"


def test_a_conversation_that_wants_no_skill_lacks_none(store: Path) -> None:
    with AgentMemory(store, engine(FLASH)) as memory:
        memory.thread("t").ask("Hello", skill=None)
        assert memory.thread("t").ask("What is the restocking fee?").notes == ()


def test_a_library_says_why_it_reads_again(tmp_path: Path) -> None:
    (tmp_path / "skills" / "greet").mkdir(parents=True)
    (tmp_path / "skills" / "greet" / "SKILL.md").write_text("---\nname: greet\ndescription: Greets.\n---\nSay hello.")
    with AgentMemory(tmp_path / "store", engine()) as memory:
        assert SkillLibrary(memory, tmp_path / "skills").sync().added == ("greet",)
    with AgentMemory(tmp_path / "store", engine(FLASH)) as memory:
        with pytest.warns(
            AgentKVWarning, match=r"greet: stored for another engine \(flash_attention = False, here True"
        ):
            assert SkillLibrary(memory, tmp_path / "skills").sync().added == ("greet",)
        assert SkillLibrary(memory, tmp_path / "skills").sync().unchanged == ("greet",)


def test_each_name_once_with_the_nearest_engine(store: Path) -> None:
    with AgentMemory(store, engine(weights="b")) as far:
        far.deposit_text("fees", FEES, "Fees.")
        far.deposit_text("only", "Only there.", "Only there.")
    with AgentMemory(store, engine(FLASH)) as memory:
        found = others(memory.store, memory.blocks.fingerprint, memory.store.names())
        assert [(sorted(named.name for named in one.names), list(one.fields)) for one in found] == [
            (["fees", "plain"], ["flash_attention"]),
            (["only"], ["flash_attention", "model_sha256"]),
        ]


def test_consequences_are_no_differences() -> None:
    plain, flash = engine().fingerprint(), engine(EngineSettings(flash_attention=True, threads=2)).fingerprint()
    assert plain.differences(flash) == {"flash_attention": (False, True)}
    three = engine(EngineSettings(flash_attention=True, threads=3)).fingerprint()
    assert flash.differences(three) == {"threads": (2, 3)}
    assert plain.differences(plain) == {}
    assert fields_counted([{"a": 1}, {"a": 1, "b": 1}]) == "2 by a, 1 by b"
