from __future__ import annotations

import contextlib
import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from agentkv.engine import layout as blobs
from agentkv.engine.base import Engine, Sampling, State
from agentkv.engine.constrain.grammar import json_grammar
from agentkv.engine.generate import generate
from agentkv.engine.llama.engine import LlamaEngine
from agentkv.engine.prompt import Message, PromptBuilder
from agentkv.engine.settings import EngineSettings
from agentkv.errors import EngineClosed, InvalidGrammar, InvalidState, ModelUnreadable, NativeRefusal
from tests.engine.contract import EngineContract

pytestmark = pytest.mark.model


class TestSmolLM2(EngineContract):
    @pytest.fixture
    def engine(self, smollm2: Engine) -> Engine:
        return smollm2


class TestGemmaWindowed(EngineContract):
    n_long = 800

    @pytest.fixture
    def engine(self, gemma: Engine) -> Engine:
        return gemma

    def test_masked_rows_are_zero(self, engine: Engine) -> None:
        ids = self.tokens(engine, 800)
        engine.clear()
        engine.extend(ids)
        state = engine.capture()
        assert state.layout.sections[1].window == 512
        from agentkv.engine.layout import cut

        dead = [raw for ref, raw in cut(state.blob, state.layout, 800, [(0, 288), (288, 800)]) if ref.stop == 288]
        assert dead[0].any()
        assert not dead[1].any()

    def test_a_restored_windowed_state_cannot_be_cut_deeper_than_its_rows(self, engine: Engine) -> None:
        engine.clear()
        engine.extend(self.tokens(engine, 800))
        engine.restore(engine.capture())
        assert not engine.truncate(700)
        assert len(engine.tokens) == 800


def ask(engine: Engine, question: str, **options: object) -> str:
    prompt = PromptBuilder(engine).build("You are a helpful assistant.", "", [Message("user", question)])
    engine.clear()
    pieces = generate(engine, engine.extend(prompt.tokens), **{"max_new": 48, **options})  # type: ignore[arg-type]
    return "".join(piece.text for piece in pieces)


def test_the_model_speaks(smollm2: Engine) -> None:
    assert "Paris" in ask(smollm2, "What is the capital of France?")


def test_json_schema_binds_the_answer(smollm2: Engine) -> None:
    schema = {
        "type": "object",
        "properties": {"city": {"enum": ["Paris", "Rome"]}, "n": {"type": "integer"}},
        "required": ["city", "n"],
        "additionalProperties": False,
    }
    grammar = json_grammar(smollm2, json.dumps(schema))
    for sampling in (Sampling(), Sampling(temperature=1.5, seed=1)):
        answer = json.loads(ask(smollm2, "Capital of France?", grammar=grammar, sampling=sampling, max_new=60))
        assert answer["city"] in ("Paris", "Rome")
        assert isinstance(answer["n"], int)


DEEP = "root ::= " + "(" * 5000 + '"a"' + ")" * 5000
MANY = 'root ::= "a"' + '\nr ::= "b"' * 5000


@pytest.mark.parametrize("grammar", ["", DEEP, MANY, 'rot ::= "a"', "root ::= \0", "x" * (1 << 21)])
def test_a_bad_grammar_is_a_typed_error(smollm2: Engine, grammar: str) -> None:
    with pytest.raises(InvalidGrammar):
        ask(smollm2, "hi", grammar=grammar)
    assert "Paris" in ask(smollm2, "What is the capital of France?")


def test_relevant_scores_are_higher(smollm2: Engine) -> None:
    def score(text: str) -> float:
        smollm2.clear()
        return float(np.mean(smollm2.score(smollm2.tokenize(text, special=False))))

    assert score("The capital of France is Paris.") > score("The capital of purple bottle Paris of.")


@pytest.mark.parametrize("call", ["llama_state_seq_set_data", "llama_state_set_data"])
def test_a_native_refusal_rebuilds_the_context(smollm2: Engine, monkeypatch: pytest.MonkeyPatch, call: str) -> None:
    import llama_cpp

    n_short = smollm2.window // 8
    smollm2.clear()
    smollm2.extend([5 + i % 7 for i in range(n_short + (call == "llama_state_set_data"))])
    state = smollm2.capture()
    with monkeypatch.context() as patched:
        patched.setattr(llama_cpp, call, lambda *_: 0)
        with pytest.raises(NativeRefusal, match=call):
            smollm2.restore(state)
    assert smollm2.tokens == ()
    assert "Paris" in ask(smollm2, "What is the capital of France?")


def poisoned(engine: Engine, n_tokens: int, value: int) -> State:
    """A well-formed untrusted state, of which each key and value is the f16 number with these bits."""
    engine.clear()
    engine.extend([5 + i % 7 for i in range(n_tokens)])
    state = engine.capture()
    cut = blobs.cut(state.blob, state.layout, n_tokens, [(0, n_tokens)])
    rows = [(ref, np.full(raw.nbytes // 2, value, "<u2").view(np.uint8)) for ref, raw in cut]
    return replace(state, blob=blobs.assembled(state.layout, n_tokens, rows), is_trusted=False)


def taken_for_numbers(engine: Engine, state: State) -> None:
    """Have the engine take a state as if it had looked at its values: what follows is the second line of defence."""
    assert isinstance(engine, LlamaEngine)
    engine._numbers[id(state.blob)] = state.blob


NAN, INFINITY, LARGEST = 0x7E00, 0x7C00, 0x7BFF


@pytest.mark.parametrize("name", ["smollm2", "gemma"])
@pytest.mark.parametrize("value", [NAN, INFINITY, LARGEST])
def test_an_untrusted_state_leaves_no_trace(request: pytest.FixtureRequest, name: str, value: int) -> None:
    """Gemma turns NaN into numbers, so nothing tells that a later answer is wrong: the window has to be zeroed."""
    engine: Engine = request.getfixturevalue(name)
    question = engine.tokenize("What is the capital of France?", special=False)
    bad, clear = poisoned(engine, 200, value), engine.clear
    clear()
    engine.extend([9] * 50)
    good = engine.capture()
    right_after_good = engine.extend(question)
    clear()
    right = engine.extend(question)
    if value != LARGEST:
        with pytest.raises(InvalidState, match="not numbers"):
            engine.restore(bad)
        taken_for_numbers(engine, bad)
    for leave in (clear, lambda: engine.restore(good)):
        engine.restore(bad)
        with contextlib.suppress(NativeRefusal):
            engine.extend(question)
            assert not engine.capture().is_trusted
        leave()
        assert np.array_equal(engine.extend(question), right if leave is clear else right_after_good)
        assert engine.capture().is_trusted


def test_logits_that_are_not_numbers_are_a_typed_error(smollm2: Engine) -> None:
    bad = poisoned(smollm2, 200, NAN)
    taken_for_numbers(smollm2, bad)
    smollm2.restore(bad)
    with pytest.raises(NativeRefusal, match="not numbers"):
        smollm2.extend([5, 6, 7])
    assert smollm2.tokens == ()
    assert "Paris" in ask(smollm2, "What is the capital of France?")


def test_states_scored_together_with_a_corrupt_one_are_scored_as_ever(smollm2: Engine) -> None:
    question = smollm2.tokenize("What is the capital of France?", special=False)
    bad = poisoned(smollm2, 200, NAN)
    smollm2.clear()
    smollm2.extend([9] * 50)
    good = smollm2.capture()
    right = smollm2.score_after([good, good], question, 3)
    with pytest.raises(InvalidState, match="not numbers"):
        smollm2.score_after([good, bad], question, 3)
    taken_for_numbers(smollm2, bad)
    with pytest.raises(NativeRefusal, match="not numbers"):
        smollm2.score_after([good, bad], question, 3)
    again = smollm2.score_after([good, good], question, 3)
    assert [each.logits.tobytes() for each in again] == [each.logits.tobytes() for each in right]


def test_a_file_that_llama_cpp_refuses_is_a_typed_error(tmp_path: Path) -> None:
    from agentkv.engine.llama.engine import LlamaEngine

    file = tmp_path / "m.gguf"
    file.write_bytes(b"GGUF" + bytes(100))
    with pytest.raises(ModelUnreadable):
        LlamaEngine(file)


def test_use_after_close_is_a_typed_error() -> None:
    from agentkv.engine.llama.engine import LlamaEngine

    engine = LlamaEngine.open("smollm2-135m", EngineSettings(window=512))
    engine.close()
    engine.close()
    with pytest.raises(EngineClosed):
        engine.extend([1])
    with pytest.raises(EngineClosed):
        engine.tokenize("x", special=False)
