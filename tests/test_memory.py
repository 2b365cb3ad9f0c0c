from __future__ import annotations

from pathlib import Path

import pytest

from agentkv import AgentMemory, FakeEngine, Turn
from agentkv.engine.base import Cancellation
from agentkv.engine.prompt import Message
from agentkv.errors import Cancelled, InvalidManual, UnknownSkill, UsageError, WindowOverflow
from agentkv.router.base import NONE, Classification
from agentkv.router.classifier import SHORTLIST
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


def test_grafted_and_reread_turns_are_the_same_turn(memory: AgentMemory) -> None:
    fill(memory)
    grafted = memory.ask("What is the vault code?", skill="site-3")
    reread = memory.ask("What is the vault code?", skill="site-3", graft=False)
    assert grafted.text == reread.text == VAULTS["site-3"]
    assert grafted.logits_sha256 == reread.logits_sha256
    assert grafted.token_ids == reread.token_ids
    assert grafted.tokens.restored + grafted.tokens.prefilled == reread.tokens.prefilled
    assert reread.tokens.restored == 0
    assert reread.block_id is None


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
