from __future__ import annotations

import pytest

from agentkv.engine.fake import END, FakeEngine
from agentkv.engine.generate import first_difference, generate, greedy_hashes
from agentkv.engine.settings import EngineSettings
from agentkv.errors import EngineClosed, InvalidGrammar, UsageError
from tests.engine.contract import EngineContract


class TestFakeEngine(EngineContract):
    @pytest.fixture
    def engine(self) -> FakeEngine:
        return FakeEngine(window=1024)


def say(engine: FakeEngine, prompt: str, **options: object) -> tuple[list[str], str | None]:
    engine.clear()
    logits = engine.extend(engine.tokenize(prompt + "<answer>", special=True))
    pieces = list(generate(engine, logits, **{"max_new": 60, **options}))  # type: ignore[arg-type]
    return [p.text for p in pieces], pieces[-1].finish


def test_a_flipped_visible_byte_changes_the_logits() -> None:
    engine = FakeEngine()
    ids = list(range(100))
    engine.extend(ids)
    state = engine.capture()
    fresh = greedy_hashes(engine, 5, 4)
    state.blob[-1] ^= 1
    engine.restore(state)
    assert first_difference(fresh, greedy_hashes(engine, 5, 4)) == 1


def test_replies_are_spoken_and_streams_hold_whole_characters() -> None:
    engine = FakeEngine(replies=lambda prompt: "naïve 🙂 " + prompt[-2:])
    pieces, finish = say(engine, "say hi")
    assert "".join(pieces) == "naïve 🙂 hi"
    assert finish == "stop"
    assert not any("�" in piece for piece in pieces)


def test_stop_strings_are_held_back_and_cut() -> None:
    engine = FakeEngine(replies=lambda _: "one ST two STOP three")
    pieces, finish = say(engine, "x", stop=["STOP"])
    assert "".join(pieces) == "one ST two "
    assert finish == "stop_string"
    assert "".join(say(engine, "x", stop=["STOPPED"])[0]) == "one ST two STOP three"
    with pytest.raises(UsageError):
        say(engine, "x", stop=[""])


def test_a_cut_answer_says_so() -> None:
    pieces, finish = say(FakeEngine(replies=lambda _: "abcdef"), "x", max_new=3)
    assert ("".join(pieces), finish) == ("abc", "length")


def test_logprobs_are_of_the_whole_distribution() -> None:
    engine = FakeEngine(replies=lambda _: "ab")
    logits = engine.extend(engine.tokenize("q<answer>", special=True))
    pieces = list(generate(engine, logits, max_new=5, logprobs=True))
    assert pieces[-1].token == END
    assert all(p.logprob is not None and -1 < p.logprob < 0 for p in pieces)


def test_divergence_aid_diverges_after_a_restore_only() -> None:
    engine = FakeEngine(diverge_after=4)
    engine.extend([1, 2, 3])
    state = engine.capture()
    fresh = greedy_hashes(engine, 1, 10)
    engine.restore(state)
    assert first_difference(fresh, greedy_hashes(engine, 1, 10)) == 5


def test_no_grammar_and_no_use_after_close() -> None:
    engine = FakeEngine()
    logits = engine.extend([1])
    with pytest.raises(InvalidGrammar):
        next(generate(engine, logits, max_new=1, grammar='root ::= "a"'))
    engine.close()
    engine.close()
    with pytest.raises(EngineClosed):
        engine.extend([1])


def test_a_fake_as_usual_is_the_engine_that_it_was_before_it_had_settings() -> None:
    with FakeEngine(settings=EngineSettings(threads=3)) as engine:
        found = engine.fingerprint()
    assert (set(found.content), set(found.numerics)) == ({"engine", "model_sha256"}, {"agentkv"})
    with FakeEngine(settings=EngineSettings(kv_type="q8_0", flash_attention=True)) as engine:
        other = engine.fingerprint()
    assert found.differences(other) == {"kv_type": ("f16", "q8_0"), "flash_attention": (False, True)}
    assert found.first_difference(other) == ("flash_attention", False, True)
