"""Where conversations are cut, what a self-test proves, what is kept and why something is not."""

from __future__ import annotations

from pathlib import Path

import pytest

from agentkv import AgentMemory, FakeEngine
from agentkv.blocks.checkpoints import (
    MIN_PIECE,
    SELF_TEST_STEPS,
    Checkpoints,
    begins_with_opening,
    divide,
    run_self_test,
)
from agentkv.engine.base import Cancellation
from agentkv.engine.prompt import Message, Prompt, PromptBuilder
from agentkv.errors import Cancelled, InexactBlock, StoreFull, WindowOverflow
from agentkv.records import Exactness, Import

HEAD, USER, OPEN = (1,) * 8, (2,) * 11, (3, 4, 5)
ANSWER = (*OPEN, 6, 6, 6, 6, 6, 6)


def prompt(*pieces: tuple[int, ...]) -> Prompt:
    return Prompt(HEAD, (), tuple(token for piece in pieces for token in piece), pieces=pieces)


def lengths(cut: Prompt, roles: str, **how: object) -> list[int]:
    names = {"u": "user", "a": "assistant", "t": "tool"}
    division = divide(cut, [names[role] for role in roles], **{"opens": True, **how})  # type: ignore[arg-type]
    assert sum(division.parts, ()) + division.rest == cut.tokens
    return [len(piece) for piece in division.pieces] + [len(division.rest)]


def test_cuts_fall_in_front_of_each_answer_those_given_and_the_one_to_come() -> None:
    assert lengths(prompt(USER, OPEN), "u") == [14, 0]
    assert lengths(prompt(USER, ANSWER, USER, OPEN), "uau") == [14, 6 + 11 + 3, 0]
    assert lengths(prompt(USER, ANSWER, USER, USER, OPEN), "uatt") == [14, 6 + 22 + 3, 0]
    assert lengths(prompt(ANSWER, USER, OPEN), "au") == [9 + 14, 0]


def test_a_longer_conversation_is_cut_as_the_shorter_one_was() -> None:
    short = divide(prompt(USER, OPEN), ["user"], opens=True)
    for alignment in (1, 4):
        before: tuple[tuple[int, ...], ...] = ()
        for n in range(6):
            pieces = (USER, ANSWER) * n + (USER, OPEN)
            cut = divide(prompt(*pieces), ["user", "assistant"] * n + ["user"], opens=True, alignment=alignment)
            assert cut.pieces[: len(before)] == before
            before = cut.pieces
    assert short.pieces[0] == (*USER, *OPEN)


def test_behind_another_opening_the_cut_is_before_it() -> None:
    answer = (9, 9, *ANSWER)
    assert lengths(prompt(USER, answer, USER, OPEN), "uau", opens=False) == [11, 11 + 11, 3]


def test_with_an_alignment_every_piece_is_long_and_ends_at_a_multiple_of_it() -> None:
    for n_user in range(1, 40):
        user = (2,) * n_user
        cut = prompt(user, ANSWER, user, ANSWER, user, OPEN)
        *pieces, rest = lengths(cut, "uauau", alignment=4)
        assert all(piece >= MIN_PIECE and piece % 4 == 0 for piece in pieces)
        assert rest >= MIN_PIECE
        if n_user > MIN_PIECE + 4:
            assert len(pieces) == 3
            assert rest <= MIN_PIECE + 3


@pytest.mark.parametrize("cut", [prompt(USER, ()), Prompt(HEAD, (), USER), prompt((), (*USER, *USER), OPEN)])
def test_where_an_answer_begins_is_not_guessed(cut: Prompt) -> None:
    roles = ["user"] * max(0, len(cut.pieces) - 1)
    division = divide(cut, roles, opens=True)
    assert len(division.pieces) <= 1
    assert sum(division.parts, ()) + division.rest == cut.tokens
    if not cut.pieces or not cut.pieces[-1]:
        assert division.pieces == ()


def test_a_long_opening_is_shared_where_answers_begin_with_it() -> None:
    opening = tuple(range(20, 34))
    cut = prompt((2,) * 16, (*opening, 6, 6), (2,) * 16, opening)
    assert lengths(cut, "uau", alignment=4) == [20, 4 + 8 + 2 + 16 + 4 - 2, 10]
    assert lengths(cut, "uau", alignment=4, opens=False) == [16, 32, 14]


def test_the_fake_template_opens_answers_as_it_asks_for_them() -> None:
    builder = PromptBuilder(FakeEngine())
    messages = [Message("user", "a"), Message("assistant", "b"), Message("user", "c")]
    assert begins_with_opening(builder.build("", "", messages))
    assert not begins_with_opening(builder.build("", "", messages[:1]))


# --- self-test ----------------------------------------------------------------------------------------


def test_a_self_test_covers_several_lengths_and_goes_past_the_window() -> None:
    test = run_self_test(FakeEngine(), "ab" * 32)
    assert test.steps == SELF_TEST_STEPS >= 48
    assert len(test.lengths) >= 2
    assert max(test.lengths) > 64 + SELF_TEST_STEPS


@pytest.mark.parametrize("after", [0, 5, 40, SELF_TEST_STEPS - 1])
def test_a_self_test_fails_where_states_diverge(after: int) -> None:
    with pytest.raises(InexactBlock) as caught:
        run_self_test(FakeEngine(diverge_after=after), "ab" * 32)
    assert caught.value.step == after + 1


def test_a_self_test_fails_where_a_state_is_not_captured_again(monkeypatch: pytest.MonkeyPatch) -> None:
    engine = FakeEngine()
    restore = engine.restore

    def other(state: object) -> None:
        restore(state)  # type: ignore[arg-type]
        engine._keys[0][0][0] ^= 1

    monkeypatch.setattr(engine, "restore", other)
    with pytest.raises(InexactBlock):
        run_self_test(engine, "ab" * 32)


def test_small_windows_are_tested_too_and_smaller_ones_refused() -> None:
    assert run_self_test(FakeEngine(window=100), "ab" * 32).lengths == (26, 52)
    with pytest.raises(WindowOverflow):
        run_self_test(FakeEngine(window=40), "ab" * 32)


def test_the_self_test_is_made_once_for_a_store_and_again_if_its_record_is_damaged(tmp_path: Path) -> None:
    def cost() -> int:
        memory = AgentMemory(tmp_path, FakeEngine())
        memory.self_test()
        assert memory.engine.tokens == ()
        return memory.engine.counters.decoded

    assert cost() > 2 * 2 * SELF_TEST_STEPS
    assert cost() == 0
    (path,) = (tmp_path / "selftests").iterdir()
    path.write_bytes(path.read_bytes()[:-1])
    assert AgentMemory(tmp_path, FakeEngine()).store.check().damage
    assert cost() > 0
    assert cost() == 0


def test_another_model_has_a_test_of_its_own(tmp_path: Path) -> None:
    AgentMemory(tmp_path, FakeEngine()).self_test()
    other = AgentMemory(tmp_path, FakeEngine(weights="b"))
    assert other.store.selftest(other.blocks.fingerprint.id) is None
    cancelled = Cancellation()
    cancelled.cancel()
    with pytest.raises(Cancelled):
        other.self_test(cancelled)
    assert other.store.selftest(other.blocks.fingerprint.id) is None


# --- kept, or not -------------------------------------------------------------------------------------


def reply(text: str) -> str:
    return f"{len(text)} letters"


@pytest.fixture
def memory(tmp_path: Path) -> AgentMemory:
    return AgentMemory(tmp_path / "store", FakeEngine(replies=reply))


def test_a_checkpoint_is_exact_by_config_and_its_parents_are_known(memory: AgentMemory) -> None:
    turn = memory.ask("How many letters?", skill=None, keep=True)
    manifest = memory.store.verify(turn.checkpoint or "")
    assert (manifest.exactness, manifest.probe) == (Exactness.EXACT_BY_CONFIG, None)
    assert manifest.n_tokens == turn.deposited == turn.tokens.prefilled
    prefix = memory.store.verify(manifest.parent_id or "")
    assert prefix.tokens == memory.prompt([Message("user", "x")], None).prefix, "threads share the agent's prefix"
    other = memory.ask("Something else?", skill=None)
    assert other.tokens.restored == len(prefix.tokens)
    assert not memory.store.check().findings


def test_what_is_kept_does_not_depend_on_what_is_in_ram(tmp_path: Path) -> None:
    """With the state before in RAM only new rows are cut and hashed; the store has the same bytes."""
    messages = [
        Message("user", "How many letters? " * 30),
        Message("assistant", "540 letters"),
        Message("user", "And now?"),
    ]
    found = []
    for name in ("ram", "none"):
        memory = AgentMemory(tmp_path / name, FakeEngine(replies=reply))
        kept = []
        for n in (1, 3):
            kept.append(memory.store.verify(memory.ask(messages[:n], skill=None, keep=True).checkpoint or ""))
            if name == "none":
                memory.store.cache.clear()
        found.append(kept)
    assert found[0] == found[1]


def test_a_state_in_ram_is_that_of_its_manifest_or_not_used(memory: AgentMemory) -> None:
    manifest = memory.deposit_text("shop", "Open from 9 to 5.").manifest
    state = memory.blocks.held(manifest)
    assert state is not None
    another = manifest.model_copy(update={"state_sha256": "ab" * 32})
    assert memory.blocks.held(another) is None
    memory.blocks.hold(another, state)
    assert memory.blocks.held(manifest) is None
    assert memory.blocks.state(manifest) is not state


def test_a_segment_lost_meanwhile_is_written_again(memory: AgentMemory) -> None:
    first = memory.store.verify(memory.ask("How many letters?", skill=None, keep=True).checkpoint or "")
    for ref in first.segments:
        memory.store.segments.remove(ref.sha256)
    messages = [Message("user", "How many letters?"), Message("assistant", "17 letters"), Message("user", "And now?")]
    turn = memory.ask(messages, skill=None, keep=True)
    assert memory.store.verify(turn.checkpoint or "").n_tokens > first.n_tokens


def test_nothing_is_kept_unasked(memory: AgentMemory) -> None:
    turn = memory.ask("How many letters?", skill=None)
    assert (turn.checkpoint, turn.deposited, turn.not_kept) == (None, 0, None)
    assert list(memory.store.block_ids()) == []
    assert memory.store.selftest(memory.blocks.fingerprint.id) is None


def test_the_same_prompt_again_finds_its_checkpoint_and_reads_the_last_piece_only(memory: AgentMemory) -> None:
    first = memory.ask("How many letters?", skill=None, keep=True)
    again = memory.ask("How many letters?", skill=None, keep=True)
    assert (again.checkpoint, again.deposited, again.not_kept) == (first.checkpoint, 0, None)
    assert again.logits_sha256 == first.logits_sha256
    assert again.tokens.prefilled == len(memory.prompt([Message("user", "How many letters?")], None).turn)


def test_an_inexact_engine_answers_and_keeps_nothing(tmp_path: Path) -> None:
    memory = AgentMemory(tmp_path, FakeEngine(replies=reply, diverge_after=40))
    turn = memory.ask("How many letters?", skill=None, keep=True)
    assert turn.text.endswith("letters")
    assert turn.checkpoint is None
    assert "step 41 of 48" in (turn.not_kept or "")
    decoded = memory.engine.counters.decoded
    again = memory.ask("How many letters?", skill=None, keep=True)
    assert memory.engine.counters.decoded - decoded < again.tokens.prefilled + again.tokens.generated + 1
    assert list(memory.store.block_ids()) == []


def test_a_full_disk_costs_the_checkpoint_not_the_answer(memory: AgentMemory, monkeypatch: pytest.MonkeyPatch) -> None:
    expected = memory.ask("How many letters?", skill=None)

    def full(*_: object, **__: object) -> bool:
        raise StoreFull(memory.store.root, 100, 7)

    monkeypatch.setattr(memory.store, "put", full)
    turn = memory.ask("How many letters?", skill=None, keep=True)
    assert turn.logits_sha256 == expected.logits_sha256
    assert turn.checkpoint is None
    assert "no space" in (turn.not_kept or "")
    monkeypatch.undo()
    assert memory.ask("How many letters?", skill=None, keep=True).not_kept is None


def test_a_budget_too_small_costs_the_checkpoint_not_the_answer(tmp_path: Path) -> None:
    memory = AgentMemory(tmp_path, FakeEngine(replies=reply))
    memory.self_test()
    memory.store.set_budget(3000)
    turn = memory.ask("How many letters?", skill=None, keep=True)
    assert turn.text.endswith("letters")
    assert "budget" in (turn.not_kept or "")
    assert list(memory.store.block_ids()) == []


def test_nothing_is_kept_behind_a_strangers_state_or_an_inexact_one(memory: AgentMemory) -> None:
    block = memory.deposit_text("shop", "Open from 9 to 5.").manifest
    memory.store.set_import(Import(block_id=block.block_id, pack_sha256="ab" * 32, signed_by=None, decision="unsigned"))
    turn = memory.ask("When?", skill="shop", keep=True)
    assert turn.checkpoint is None
    assert "trusted" in (turn.not_kept or "")
    memory.store.forget_import(block.block_id)
    assert memory.ask("When?", skill="shop", keep=True).not_kept is None
    inexact = block.model_copy(update={"exactness": Exactness.INEXACT})
    memory.store.put(inexact, lambda ref: memory.store.segments.get(ref), replace=True)  # type: ignore[arg-type,return-value]
    assert "not exact" in (memory.ask("And when not?", skill="shop", keep=True).not_kept or "")


def test_a_state_that_is_not_captured_again_is_not_kept(memory: AgentMemory, monkeypatch: pytest.MonkeyPatch) -> None:
    memory.self_test()
    capture, calls = memory.engine.capture, list[int]()

    def other() -> object:
        calls.append(1)
        state = capture()
        if len(calls) > 2:  # after the prefix and after the turn; then again
            state.blob[-1] ^= 1
        return state

    monkeypatch.setattr(memory.engine, "capture", other)
    turn = memory.ask("How many letters?", skill=None, keep=True)
    assert "captured again" in (turn.not_kept or "")
    assert list(memory.store.block_ids()) == []


def test_keeping_asks_no_token_more_than_answering(memory: AgentMemory) -> None:
    memory.self_test()
    Checkpoints(memory.blocks).self_test()
    before = memory.engine.counters.decoded
    turn = memory.ask("How many letters?", skill=None, keep=True)
    assert memory.engine.counters.decoded - before == turn.tokens.prefilled + turn.tokens.generated - 1
