from __future__ import annotations

import time
from pathlib import Path

import pytest

from agentkv import AgentMemory, FakeEngine, Turn
from agentkv.engine.base import Cancellation
from agentkv.engine.prompt import Message
from agentkv.errors import (
    Cancelled,
    IncompatibleFingerprint,
    InexactBlock,
    InvalidManual,
    OverBudget,
    UnknownSkill,
    UsageError,
    WindowOverflow,
)
from agentkv.notices import AgentKVWarning
from agentkv.records import Manifest
from agentkv.router.base import NONE, Classification
from agentkv.router.classifier import SHORTLIST
from agentkv.store.catalog import BlockStore
from tests.engine.contract import HOSTILE

VAULTS = {f"site-{k}": f"{70001 + 1017 * k}" for k in range(12)}


def vault_reply(prompt: str) -> str:
    """Says the code that stands in the prompt, as a model that reads would."""
    codes = [code for code in VAULTS.values() if code in prompt]
    return " ".join(codes) or "I do not know."


class Fixed:
    """A classifier that always says the same."""

    name, version = "fixed", "1"

    def __init__(self, pick: str) -> None:
        self.pick = pick

    def classify(self, question: str, candidates: object) -> Classification:
        return Classification(self.pick, {self.pick: 0.0}, 0)


@pytest.fixture
def memory(tmp_path: Path) -> AgentMemory:
    return AgentMemory(tmp_path / "store", FakeEngine(replies=vault_reply))


def skill(folder: Path, name: str, body: str, description: str = "What it is for.") -> Path:
    (folder / name).mkdir(parents=True)
    (folder / name / "SKILL.md").write_text(f"---\nname: {name}\ndescription: {description}\n---\n{body}\n")
    return folder / name


def fill(memory: AgentMemory) -> None:
    for site, code in VAULTS.items():
        memory.deposit_text(site, f"The vault code of {site} is {code}.", f"The vault of {site}.")


def test_grafted_and_cold_turns_are_the_same_turn(memory: AgentMemory) -> None:
    fill(memory)
    grafted = memory.ask("What is the vault code?", skill="site-3")
    cold = memory.ask("What is the vault code?", skill="site-3", graft=False)
    assert grafted.text == cold.text == VAULTS["site-3"]
    assert grafted.logits_sha256 == cold.logits_sha256
    assert grafted.token_ids == cold.token_ids
    assert grafted.tokens.restored + grafted.tokens.prefilled == cold.tokens.prefilled
    assert cold.tokens.restored == 0
    assert cold.block_id is None


def test_a_new_process_prefills_the_turn_only(memory: AgentMemory) -> None:
    fill(memory)
    again = AgentMemory(memory.store.root, FakeEngine(replies=vault_reply))
    again.engine.extend(list(b"unrelated words"))
    before = again.engine.counters.decoded
    turn = again.ask("What is the vault code?", skill="site-5")
    prompt = again.prompt([Message("user", "What is the vault code?")], "site-5")
    assert turn.tokens.prefilled == len(prompt.turn)
    assert turn.tokens.restored == len(prompt.prefix + prompt.manual)
    assert again.engine.counters.decoded - before == len(prompt.turn) + turn.tokens.generated - 1
    assert turn.text == VAULTS["site-5"]


def test_no_answer_holds_another_blocks_secret(memory: AgentMemory) -> None:
    fill(memory)
    order = [(i * 7 + i // 5) % 12 for i in range(200)]
    for i, k in enumerate(order):
        turn = memory.ask("What is the vault code?", skill=None if i % 5 == 4 else f"site-{k}", max_new=12)
        assert turn.text == ("I do not kno" if i % 5 == 4 else VAULTS[f"site-{k}"]), i
        assert memory.engine.tokens == ()


def test_hostile_content_cannot_forge_a_turn(memory: AgentMemory, tmp_path: Path) -> None:
    memory.deposit_skill(skill(tmp_path, "hostile", "Say nothing. " + HOSTILE))
    plain = memory.prompt([Message("user", "hi")], None)
    prompt = memory.prompt([Message("user", "hi" + HOSTILE)], "hostile")
    count = sum(map(memory.engine.is_control, plain.tokens))
    assert sum(map(memory.engine.is_control, prompt.tokens)) == count


def test_an_unchanged_skill_is_not_read_again_and_a_changed_one_is(memory: AgentMemory, tmp_path: Path) -> None:
    folder = skill(tmp_path, "refunds", "Take it back within 21 days.")
    assert memory.deposit_skill(folder).created
    assert not memory.deposit_skill(folder).created
    (folder / "SKILL.md").write_text("---\nname: refunds\ndescription: d\n---\nWithin 30 days.\n")
    assert memory.deposit_skill(folder).created
    (entry,) = memory.names()
    assert entry.description == "d"


def test_unknown_names_are_refused_with_the_nearest(memory: AgentMemory) -> None:
    fill(memory)
    with pytest.raises(UnknownSkill) as caught:
        memory.ask("?", skill="site-33")
    assert caught.value.near


@pytest.mark.parametrize(
    "pick",
    ["0", "-1", "13", "site", "site-1x", "the site-1 skill", "site-1\nsite-2", "2 or 3", "", "None", "ｓite-1"],
)
def test_an_invalid_raw_pick_falls_back_to_no_block_and_is_kept(tmp_path: Path, pick: str) -> None:
    memory = AgentMemory(tmp_path, FakeEngine(replies=vault_reply), classifier=Fixed(pick))
    fill(memory)
    turn = memory.ask("What is the vault code?")
    assert turn.decision.raw_pick == pick
    assert turn.decision.pick is None
    assert turn.decision.fallback
    assert turn.text == "I do not know."


@pytest.mark.parametrize(("raw", "pick"), [("site-1", "site-1"), (" SITE-1 ", "site-1"), (NONE, None)])
def test_a_valid_raw_pick_is_what_is_grafted(tmp_path: Path, raw: str, pick: str | None) -> None:
    memory = AgentMemory(tmp_path, FakeEngine(replies=vault_reply), classifier=Fixed(raw))
    fill(memory)
    turn = memory.ask("What is the vault code?")
    assert (turn.decision.raw_pick, turn.decision.pick, turn.decision.fallback) == (raw, pick, None)
    assert turn.text == (VAULTS["site-1"] if pick else "I do not know.")


def test_an_empty_memory_says_so(memory: AgentMemory) -> None:
    decision = memory.route("anything")
    assert decision.pick is None
    assert decision.fallback == "no skill is stored: no block"
    assert memory.ask("anything").tokens.restored == 0


def test_the_channel_scores_live_labels_and_costs_what_it_says(memory: AgentMemory) -> None:
    fill(memory)
    before = memory.engine.counters.decoded
    decision = memory.route("the vault of site-4, please")
    assert set(decision.scores) <= {*VAULTS, NONE}
    assert NONE in decision.scores
    assert len(decision.scores) == SHORTLIST + 1
    assert decision.raw_pick in decision.scores
    assert decision.tokens == memory.engine.counters.decoded - before > 0


def test_the_window_is_checked_before_anything_is_decoded(tmp_path: Path) -> None:
    memory = AgentMemory(tmp_path, FakeEngine(window=600))
    memory.deposit_text("t", "x" * 200)
    decoded = memory.engine.counters.decoded
    with pytest.raises(WindowOverflow) as caught:
        memory.ask("q" * 100, skill="t", max_new=500)
    assert caught.value.window == 600
    assert memory.engine.counters.decoded == decoded
    with pytest.raises(WindowOverflow):
        memory.deposit_text("huge", "x" * 700)
    assert [entry.name for entry in memory.names()] == ["t"]


def test_streaming_gives_the_same_text_and_then_the_record(memory: AgentMemory) -> None:
    fill(memory)
    *pieces, turn = memory.stream("What is the vault code?", skill="site-2")
    assert isinstance(turn, Turn)
    assert "".join(str(piece) for piece in pieces).strip() == turn.text == VAULTS["site-2"]
    assert turn.logits_sha256 == memory.ask("What is the vault code?", skill="site-2").logits_sha256


def test_a_stream_that_is_dropped_leaves_the_next_turn_right(memory: AgentMemory) -> None:
    fill(memory)
    stream = memory.stream("What is the vault code?", skill="site-2")
    next(stream)
    stream.close()  # type: ignore[attr-defined]
    assert memory.ask("What is the vault code?", skill="site-9").text == VAULTS["site-9"]


def test_two_streams_never_share_a_context(memory: AgentMemory) -> None:
    fill(memory)
    stream = memory.stream("What is the vault code?", skill="site-2")
    first = next(stream)
    for intruder in (
        lambda: memory.ask("What is the vault code?", skill="site-9"),
        lambda: memory.route("site-9?"),
        lambda: memory.deposit_text("new", "some text"),
    ):
        with pytest.raises(UsageError):
            intruder()
    *rest, turn = stream
    assert "".join([str(first), *map(str, rest)]) == VAULTS["site-2"]
    assert isinstance(turn, Turn)
    assert memory.ask("What is the vault code?", skill="site-9").text == VAULTS["site-9"]


def test_cancelling_leaves_the_next_turn_right(memory: AgentMemory) -> None:
    fill(memory)
    cancellation = Cancellation()
    cancellation.cancel()
    with pytest.raises(Cancelled):
        memory.ask("What is the vault code?", skill="site-2", cancellation=cancellation)
    assert memory.ask("What is the vault code?", skill="site-2").text == VAULTS["site-2"]


def test_another_prefix_is_another_chain_and_is_read(memory: AgentMemory) -> None:
    fill(memory)
    other = AgentMemory(memory.store.root, FakeEngine(replies=vault_reply), prefix="You are terse.\n")
    turn = other.ask("What is the vault code?", skill="site-1")
    assert turn.text == VAULTS["site-1"]
    assert turn.tokens.restored == 0


def test_bad_requests_are_typed_errors(memory: AgentMemory, tmp_path: Path) -> None:
    for bad in ("", "   "):
        with pytest.raises(UsageError):
            memory.ask(bad)
        with pytest.raises(UsageError):
            memory.deposit_text("name", bad)
    with pytest.raises(InvalidManual):
        memory.deposit_skill(tmp_path)
    with pytest.raises(UsageError):
        AgentMemory(tmp_path / "s", FakeEngine(), window=5)


def test_the_label_for_no_skill_is_no_name(memory: AgentMemory) -> None:
    for name in (NONE, NONE.upper()):
        with pytest.raises(UsageError):
            memory.deposit_text(name, "some text", "A description.")


@pytest.mark.parametrize("pick", ["Parse-PDF", "parse-pdf"])
def test_names_that_differ_in_case_are_two_names(tmp_path: Path, pick: str) -> None:
    memory = AgentMemory(tmp_path, FakeEngine(replies=lambda p: p.rpartition("It is ")[2][:2]), classifier=Fixed(pick))
    memory.deposit_text("Parse-PDF", "It is A1.", "Upper.")
    memory.deposit_text("parse-pdf", "It is b2.", "Lower.")
    turn = memory.ask("Which?")
    assert (turn.decision.pick, turn.text) == (pick, {"Parse-PDF": "A1", "parse-pdf": "b2"}[pick])


def test_a_turn_says_why_something_was_read(memory: AgentMemory) -> None:
    fill(memory)
    assert memory.ask("Code?", skill="site-1").not_restored is None
    assert memory.ask("Code?", skill="site-1", graft=False).not_restored == "graft is off"
    other = AgentMemory(memory.store.root, FakeEngine(replies=vault_reply), prefix="You are terse.\n")
    assert other.ask("Code?", skill="site-1").not_restored == "the agent prefix is not stored"
    other.deposit_text("new", "text")
    assert other.ask("Code?", skill="site-1").not_restored == "the manual is not stored on top of this prefix"


def test_names_of_another_fingerprint_are_said_to_be_that(memory: AgentMemory) -> None:
    fill(memory)
    foreign = AgentMemory(memory.store.root, FakeEngine(weights="changed", replies=vault_reply))
    with pytest.raises(IncompatibleFingerprint) as caught:
        foreign.ask("Code?", skill="site-1")
    assert caught.value.field == "model_sha256"
    with pytest.warns(AgentKVWarning, match="another engine"):
        decision = foreign.route("the vault of site-1")
    assert decision.pick is None
    assert set(decision.left_out) == set(VAULTS)
    assert all("model_sha256" in reason for reason in decision.left_out.values())


def test_one_damaged_name_does_not_stop_the_others(memory: AgentMemory) -> None:
    fill(memory)
    entry = next(e for e in memory.names() if e.name == "site-4")
    (file,) = (memory.store.root / "manifests").rglob(f"{entry.block_id}.json")
    file.write_bytes(file.read_bytes() + b"x")
    again = AgentMemory(memory.store.root, FakeEngine(replies=vault_reply))
    assert again.route("The vault of site-5?").left_out == {}  # its text is kept, by which it is routed and read
    assert again.ask("Code?", skill="site-5").text == VAULTS["site-5"]
    with pytest.warns(AgentKVWarning):
        assert again.ask("Code?", skill="site-4").text == VAULTS["site-4"]
    (text,) = (path for path in (memory.store.root / "texts").rglob(f"{entry.source_sha256}*"))
    text.unlink()
    assert set(AgentMemory(memory.store.root, FakeEngine()).route("The vault of site-5?").left_out) == {"site-4"}
    again.deposit_text("site-4", f"The vault code of site-4 is {VAULTS['site-4']}.", "The vault of site-4.")
    assert again.route("The vault of site-5?").left_out == {}


@pytest.mark.parametrize(
    ("name", "text", "description"),
    [("n" * 600, "t", ""), ("n", "t", "d" * 5000), ("n", "te\udcffxt", ""), ("n\udcff", "t", "d")],
)
def test_a_bad_name_or_text_costs_nothing(memory: AgentMemory, name: str, text: str, description: str) -> None:
    with pytest.raises(UsageError):
        memory.deposit_text(name, text, description)
    assert memory.engine.counters.decoded == 0


def test_an_inexact_model_can_be_used_on_request(tmp_path: Path) -> None:
    memory = AgentMemory(tmp_path, FakeEngine(diverge_after=3, replies=vault_reply))
    with pytest.raises(InexactBlock):
        memory.deposit_text("a", "some text", "d")
    memory.deposit_text("a", "some text", "d", allow_inexact=True)
    assert memory.ask("?", skill="a").exactness == "inexact"


def test_a_window_too_small_for_cards_routes_by_words(tmp_path: Path) -> None:
    memory = AgentMemory(tmp_path, FakeEngine(window=700, replies=vault_reply))
    memory.deposit_text("site-1", "The vault code is 71018.", "d" * 560)
    small = AgentMemory(tmp_path, FakeEngine(window=600, replies=vault_reply))
    assert small.route("Which vault code?").scores["site-1"] > 0


def test_logprobs_come_with_the_turn_where_asked_for(memory: AgentMemory) -> None:
    fill(memory)
    turn = memory.ask("Code?", skill="site-1", logprobs=True)
    assert turn.logprobs is not None
    assert len(turn.logprobs) == turn.tokens.generated
    assert memory.ask("Code?", skill="site-1").logprobs is None


def test_another_process_changes_the_candidates_of_the_next_question(memory: AgentMemory) -> None:
    fill(memory)
    time.sleep(0.15)  # a store that has just changed is looked at again anyway
    assert memory.route("The vault of site-5?").scores.keys() >= {"site-5"}
    again = AgentMemory(memory.store.root, memory.engine)
    again.deposit_text("garage", "The garage code is 99.", "The code of the garage, for cars.")
    assert "garage" in memory.route("The code of the garage, for cars?").scores
    again.store.remove_name("text", "site-5", memory.blocks.fingerprint.id)
    assert "site-5" not in memory.route("The vault of site-5?").scores
    time.sleep(0.15)
    assert "site-5" not in memory.route("The vault of site-5?").scores


def test_a_block_evicted_between_lookup_and_graft_is_a_miss(
    memory: AgentMemory, monkeypatch: pytest.MonkeyPatch
) -> None:
    fill(memory)
    expected = memory.ask("Code?", skill="site-3")
    other = BlockStore(memory.store.root)
    here = AgentMemory(memory.store.root, memory.engine)
    graft = here.blocks.graft

    def evicted(manifest: Manifest) -> None:
        other.evict(0)
        graft(manifest)

    monkeypatch.setattr(here.blocks, "graft", evicted)
    turn = here.ask("Code?", skill="site-3")
    assert (turn.not_restored, turn.tokens.restored, turn.block_id) == ("the block was removed just now", 0, None)
    assert turn.logits_sha256 == expected.logits_sha256
    monkeypatch.undo()
    with pytest.raises(UnknownSkill):
        here.ask("Code?", skill="site-3")


def test_a_graft_counts_as_a_use_and_a_deposit_keeps_its_text_and_licence(memory: AgentMemory, tmp_path: Path) -> None:
    folder = skill(tmp_path, "vault", "The code is 1.")
    file = folder / "SKILL.md"
    file.write_text(file.read_text().replace("---\nThe", "license: MIT\n---\nThe"))
    memory.deposit_skill(folder)
    (entry,) = memory.names()
    assert entry.license == "MIT"
    assert memory.store.text(entry.source_sha256 or "") == "# Manual: vault\n\nThe code is 1.\n"
    assert entry.block_id not in memory.store.uses()
    memory.ask("Code?", skill="vault")
    memory.ask("Code?", skill="vault")
    assert BlockStore(memory.store.root).uses().get(entry.block_id) is None, "a use is written seconds later"
    memory.close()
    memory.store.close()
    assert BlockStore(memory.store.root).uses()[entry.block_id].hits == 2


def test_a_text_of_another_models_store_is_deposited_anew_under_its_name(memory: AgentMemory, tmp_path: Path) -> None:
    memory.deposit_skill(skill(tmp_path, "vault", f"The code is {VAULTS['site-1']}.", "Opening the vault."))
    (entry,) = memory.names()
    text = memory.store.text(entry.source_sha256 or "")
    other = AgentMemory(tmp_path / "other", FakeEngine(weights="changed", replies=vault_reply))
    assert text is not None
    deposit = other.deposit_source(entry, text)
    (copy,) = other.names()
    assert copy.block_id == deposit.manifest.block_id != entry.block_id
    same = ("kind", "name", "description", "source", "source_sha256", "license")
    assert [getattr(copy, field) for field in same] == [getattr(entry, field) for field in same]
    assert other.ask("Code?", skill="vault").text == VAULTS["site-1"]
    assert other.deposit_cards() == 0


def test_a_card_does_not_make_its_own_manual_go(tmp_path: Path) -> None:
    engine = FakeEngine(replies=vault_reply)
    alone = AgentMemory(tmp_path / "alone", engine)
    alone.deposit_text("site-1", f"The code is {VAULTS['site-1']}.", "The vault of site-1.")
    whole = alone.store.evict(10**9, dry_run=True).stored
    for budget in range(whole // 8, whole + whole // 8, whole // 8):
        memory = AgentMemory(BlockStore(tmp_path / str(budget), budget_bytes=budget), engine)
        try:
            memory.deposit_text("site-1", f"The code is {VAULTS['site-1']}.", "The vault of site-1.")
        except OverBudget:
            assert budget < whole
            assert memory.names() == []
            assert list(memory.store.block_ids()) == []
        else:
            assert budget >= whole
            assert memory.ask("Code?", skill="site-1").text == VAULTS["site-1"]


def test_a_text_does_not_take_the_name_of_a_skill(memory: AgentMemory, tmp_path: Path) -> None:
    memory.deposit_skill(skill(tmp_path, "vault", "The code is 1."))
    with pytest.raises(UsageError, match="the name of a skill"):
        memory.deposit_text("vault", "lunch notes")
    (entry,) = memory.names()
    assert entry.kind == "skill"
    assert memory.engine.counters.decoded > 0
