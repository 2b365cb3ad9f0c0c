"""A block that cannot be restored: the answer comes by reading, byte for byte the same, and the record says why."""

from __future__ import annotations

import errno
import shutil
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from pathlib import Path

import numpy as np
import pytest

from agentkv import AgentMemory, FakeEngine, Turn
from agentkv.documents.corpus import Corpus
from agentkv.engine import layout as blobs
from agentkv.engine.base import Cancellation, Logits, State
from agentkv.engine.fake import LAYOUT
from agentkv.engine.values import first_non_number, rows_bytes
from agentkv.errors import CorruptBlock, InvalidState, NativeRefusal, StoreReadError, UnknownBlock, UnknownSkill
from agentkv.notices import AgentKVWarning
from agentkv.records import Manifest, NamedBlock, Planes, StateLayout
from agentkv.store.catalog import BlockStore
from agentkv.store.findings import Kind
from agentkv.store.format import encode_manifest
from tests.store.faults import refused

TEXT = "Returns are accepted for 7 days.\n"
ASKED = "For how many days are returns accepted?"


def reply(prompt: str) -> str:
    return "7 days" if "7 days" in prompt else "I do not know"


class Refusing(FakeEngine):
    """Refuses to restore states of ``refuses`` tokens, as a setter or a check in front of it does."""

    def __init__(self, refuses: set[int], error: Exception) -> None:
        super().__init__(replies=reply)
        self._refuses, self._error = refuses, error

    def restore(self, state: State) -> None:
        if len(state.tokens) in self._refuses:
            raise self._error
        super().restore(state)

    def capture(self) -> State:
        """What is computed here may come back."""
        self._refuses.discard(len(self.tokens))
        return super().capture()


class Poisoned(FakeEngine):
    """Like llama.cpp after a state of NaN: it is set, and the next logits are a NativeRefusal."""

    def __init__(self, poison: set[int]) -> None:
        super().__init__(replies=reply)
        self._poison, self._is_poisoned = poison, False

    def clear(self) -> None:
        super().clear()
        self._is_poisoned = False

    def restore(self, state: State) -> None:
        super().restore(state)
        self._is_poisoned = len(state.tokens) in self._poison

    def capture(self) -> State:
        """What is computed here is sound."""
        self._poison.discard(len(self.tokens))
        return super().capture()

    def extend(self, tokens: object, cancellation: Cancellation | None = None) -> Logits:
        if self._is_poisoned:
            self.clear()
            raise NativeRefusal("llama_decode", "the logits are not numbers")
        return super().extend(tokens, cancellation)  # type: ignore[arg-type]


def filled(root: Path) -> AgentMemory:
    memory = AgentMemory(root, FakeEngine(replies=reply))
    memory.deposit_text("returns", TEXT, "How long goods can be returned.")
    return memory


@pytest.fixture
def root(tmp_path: Path) -> Path:
    filled(tmp_path / "store").close()
    return tmp_path / "store"


def whole(root: Path, tmp_path: Path) -> Turn:
    """The answer with everything in order."""
    shutil.copytree(root, tmp_path / "whole")
    return AgentMemory(tmp_path / "whole", FakeEngine(replies=reply)).ask(ASKED, skill="returns")


def named(store: BlockStore) -> NamedBlock:
    (found,) = store.names()
    return found


def manual(root: Path) -> Manifest:
    with BlockStore(root) as store:
        return store.verify(named(store).block_id)


def files_of(root: Path, which: str) -> list[Path]:
    """Files of the manual's block, or of its parent's."""
    with BlockStore(root) as store:
        manifest = store.verify(named(store).block_id)
        parent = store.verify(manifest.parent_id or "")
        shared = {ref.sha256 for ref in parent.segments}
        places = {
            "manifest": [store.files.manifests.path(manifest.block_id)],
            "prefix": [store.files.manifests.path(parent.block_id)],
            "segment": [Path(store.segments.where(r.sha256)) for r in manifest.segments if r.sha256 not in shared],
        }
    return places[which]


def zeroed(path: Path) -> None:
    path.write_bytes(bytes(path.stat().st_size))


def cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-1])


def a_folder(path: Path) -> None:
    path.unlink()
    path.mkdir()


SPOILT: dict[str, Callable[[Path], None]] = {"zeroed": zeroed, "cut": cut, "gone": Path.unlink, "folder": a_folder}


@pytest.mark.parametrize("which", ["manifest", "prefix", "segment"])
@pytest.mark.parametrize("how", SPOILT)
def test_a_spoilt_file_costs_a_reading_and_nothing_else_and_a_deposit_mends_it(
    root: Path, tmp_path: Path, which: str, how: str
) -> None:
    right, places = whole(root, tmp_path), files_of(root, which)
    for path in places:
        SPOILT[how](path)
    memory = AgentMemory(root, FakeEngine(replies=reply))
    is_miss = (which, how) == ("prefix", "gone")
    with nullcontext() if is_miss else pytest.warns(AgentKVWarning):
        turn = memory.ask(ASKED, skill="returns")
    assert (turn.text, turn.logits_sha256) == (right.text, right.logits_sha256)
    assert sum((turn.tokens.restored, turn.tokens.prefilled)) == right.tokens.restored + right.tokens.prefilled
    if not is_miss:
        assert turn.tokens.restored < right.tokens.restored or which == "prefix"
        assert turn.notes or which == "prefix"
    assert any(finding.damage for finding in memory.store.check().findings)
    for path in places:
        if path.is_dir():
            path.rmdir()  # nothing writes over a folder that is not its own
    assert memory.deposit_text("returns", TEXT, "How long goods can be returned.").manifest == manual_of(memory)
    again = AgentMemory(root, FakeEngine(replies=reply)).ask(ASKED, skill="returns")
    assert (again.tokens, again.not_restored, again.notes) == (right.tokens, None, ())
    assert memory.store.check().damage == ()


def manual_of(memory: AgentMemory) -> Manifest:
    return memory.store.verify(memory.routing.named("returns").block_id)


@pytest.mark.parametrize("number", [errno.EMFILE, errno.EIO, errno.EACCES])
@pytest.mark.parametrize("folder", ["/segments/", "/manifests/"])
def test_what_the_system_will_not_read_is_read_from_the_text(
    root: Path, tmp_path: Path, number: int, folder: str
) -> None:
    right = whole(root, tmp_path)
    memory = AgentMemory(root, FakeEngine(replies=reply))
    with refused(number, folder) as seen, pytest.warns(AgentKVWarning):
        turn = memory.ask(ASKED, skill="returns")
    assert seen
    assert (turn.text, turn.logits_sha256, turn.tokens.restored) == (right.text, right.logits_sha256, 0)
    assert "passed over" in (turn.not_restored or "")
    assert turn.notes
    assert memory.ask(ASKED, skill="returns").tokens == right.tokens  # nothing is taken for damaged
    assert memory.store.check().damage == ()


@pytest.mark.parametrize("number", [errno.EMFILE, errno.EIO, errno.EACCES])
@pytest.mark.parametrize("calls", [("open",), ("open", "scandir")])
@pytest.mark.filterwarnings("ignore::agentkv.notices.AgentKVWarning")
def test_with_nothing_of_the_store_to_be_read_what_was_read_before_is_used(
    root: Path, tmp_path: Path, number: int, calls: tuple[str, ...]
) -> None:
    right = whole(root, tmp_path)
    memory = AgentMemory(root, FakeEngine(replies=reply))
    assert memory.ask(ASKED).decision.pick == "returns"
    memory.ask(ASKED, skill="returns")
    with refused(number, "/store/", calls=calls) as seen:
        turn, routed = memory.ask(ASKED, skill="returns"), memory.ask(ASKED)
    assert seen
    assert (turn.text, turn.logits_sha256, turn.tokens.restored) == (right.text, right.logits_sha256, 0)
    assert turn.notes
    assert (routed.decision.pick, routed.text) == ("returns", "7 days")
    assert memory.ask(ASKED, skill="returns").tokens == right.tokens


@pytest.mark.parametrize("error", [InvalidState("its layout is another"), NativeRefusal("llama_set", "0 bytes")])
@pytest.mark.parametrize("which", ["manual", "prefix", "both"])
def test_a_state_that_the_engine_refuses_is_noted_and_mended_by_a_deposit(
    root: Path, tmp_path: Path, error: Exception, which: str
) -> None:
    right, block = whole(root, tmp_path), manual(root)
    own, above = block.n_tokens, block.n_tokens - len(block.tokens)
    refuses = {"manual": {own}, "prefix": {above}, "both": {own, above}}[which]
    memory = AgentMemory(root, Refusing(refuses, error))
    with nullcontext() if which == "prefix" else pytest.warns(AgentKVWarning, match="a stored block"):
        turn = memory.ask(ASKED, skill="returns")
    assert (turn.text, turn.logits_sha256) == (right.text, right.logits_sha256)
    assert turn.tokens.restored == {"manual": above, "prefix": own, "both": 0}[which]
    if which == "prefix":
        return
    assert "passed over" in (turn.not_restored or "")
    found = {finding.path.stem for finding in memory.store.check().of(Kind.CORRUPT)}
    assert block.block_id in found
    later = AgentMemory(root, FakeEngine(replies=reply))  # it is not tried again until it is mended
    with pytest.warns(AgentKVWarning, match="a stored block"):
        assert later.ask(ASKED, skill="returns").tokens == turn.tokens
    later.deposit_text("returns", TEXT, "How long goods can be returned.")
    assert later.ask(ASKED, skill="returns").tokens == right.tokens
    assert later.store.check().damage == ()


def test_a_repair_moves_a_refused_block_aside(root: Path) -> None:
    block = manual(root)
    with BlockStore(root) as store:
        store.refuse(block, "its layout is another")
        done = store.repair(store.check())
        assert [lost.block_id for lost in done.blocks] == [block.block_id]
        assert store.check().damage == ()
        assert store.refusal(block) is None


def test_a_refusal_is_of_one_state_only(root: Path) -> None:
    block = manual(root)
    other = block.model_copy(update={"state_sha256": "0" * 64})
    with BlockStore(root) as store:
        store.refuse(other, "its layout is another")
        assert store.refusal(block) is None
        assert store.verify(block.block_id) == block


def test_a_state_without_logits_is_read_instead(root: Path, tmp_path: Path) -> None:
    right, block = whole(root, tmp_path), manual(root)
    memory = AgentMemory(root, Poisoned({block.n_tokens, block.n_tokens - len(block.tokens)}))
    with pytest.warns(AgentKVWarning, match="not numbers"):
        turn = memory.ask(ASKED, skill="returns", keep=True)
    assert (turn.text, turn.logits_sha256) == (right.text, right.logits_sha256)
    assert (turn.tokens.restored, turn.block_id) == (0, None)
    assert turn.tokens.prefilled == right.tokens.restored + right.tokens.prefilled
    assert AgentMemory(root, FakeEngine(replies=reply)).ask(ASKED, skill="returns").tokens == right.tokens


def test_a_forged_state_in_the_place_of_a_parent_does_not_reach_what_is_deposited_behind_it(root: Path) -> None:
    block = manual(root)
    above = block.n_tokens - len(block.tokens)
    memory = AgentMemory(root, Poisoned({above}))
    made = memory.deposit_text("other", "Something else.\n")
    fresh = AgentMemory(root.with_name("fresh"), FakeEngine(replies=reply)).deposit_text("other", "Something else.\n")
    assert made.manifest.state_sha256 == fresh.manifest.state_sha256


@contextmanager
def reading_cards() -> Iterator[None]:
    with pytest.warns(AgentKVWarning, match="a router card"):
        yield


def test_router_cards_are_read_where_they_cannot_be_restored(root: Path) -> None:
    block = manual(root)
    with BlockStore(root) as store:
        cards = [store.verify(key).n_tokens for key in store.block_ids() if key != block.block_id]
    right = AgentMemory(root, FakeEngine(replies=reply)).route(ASKED)
    memory = AgentMemory(root, Refusing(set(cards), InvalidState("its layout is another")))
    with reading_cards():
        decision = memory.route(ASKED)
    assert (decision.pick, decision.scores) == (right.pick, right.scores)
    with refused(errno.EIO, "/segments/"), reading_cards():
        assert AgentMemory(root, FakeEngine(replies=reply)).route(ASKED).scores == right.scores


# --- the whole folder, the manifest, the text -------------------------------------------------------


def test_a_store_that_is_removed_is_answered_from_ram_and_made_again(root: Path, tmp_path: Path) -> None:
    right = whole(root, tmp_path)
    memory = filled(root)
    shutil.rmtree(root)
    with pytest.warns(AgentKVWarning, match="cannot be used"):
        turn = memory.ask(ASKED, skill="returns")
    assert (turn.text, turn.logits_sha256, turn.tokens.restored) == (right.text, right.logits_sha256, 0)
    assert turn.not_restored == "the agent prefix is not stored"
    assert "kept text was tokenised again" in turn.notes[0]
    with pytest.warns(AgentKVWarning, match="cannot be used"):
        assert memory.ask("How long can goods be returned?").decision.pick == "returns"
    assert not root.exists()
    with pytest.warns(AgentKVWarning, match="made again"):
        memory.deposit_text("returns", TEXT, "How long goods can be returned.")
    assert memory.ask(ASKED, skill="returns").tokens == right.tokens
    assert BlockStore(root, create=False).check().damage == ()


def test_a_memory_that_has_only_asked_goes_on_too(root: Path, tmp_path: Path) -> None:
    right = whole(root, tmp_path)
    memory = AgentMemory(root, FakeEngine(replies=reply))
    memory.names()
    memory.ask(ASKED, skill="returns")
    shutil.rmtree(root)
    with pytest.warns(AgentKVWarning, match="those of a moment ago"):
        assert memory.ask(ASKED, skill="returns").logits_sha256 == right.logits_sha256
    with pytest.raises(UnknownSkill):
        memory.ask(ASKED, skill="another")


def test_a_folder_of_somebody_else_in_its_place_is_left_alone(root: Path) -> None:
    memory = filled(root)
    shutil.rmtree(root)
    root.mkdir()
    (root / "letter.txt").write_text("mine")
    with pytest.raises(Exception, match="holds other files"):
        memory.deposit_text("new", "Something else.\n")
    assert (root / "letter.txt").read_text() == "mine"
    assert not (root / "manifests").exists()


@pytest.mark.parametrize("how", ["zeroed", "gone"])
def test_with_neither_manifest_nor_text_the_error_names_the_remedy(root: Path, how: str) -> None:
    for path in files_of(root, "manifest"):
        SPOILT[how](path)
    shutil.rmtree(root / "texts")
    memory = AgentMemory(root, FakeEngine(replies=reply))
    with pytest.raises((CorruptBlock, UnknownBlock), match="deposit"):
        memory.ask(ASKED, skill="returns")


@pytest.mark.filterwarnings("ignore::agentkv.notices.AgentKVWarning")
def test_a_routed_skill_whose_block_is_gone_is_still_picked(root: Path) -> None:
    for path in files_of(root, "manifest"):
        zeroed(path)
    turn = AgentMemory(root, FakeEngine(replies=reply)).ask("For how long can goods be returned?")
    assert (turn.decision.pick, turn.text, turn.decision.left_out) == ("returns", "7 days", {})
    assert any("kept text was tokenised again" in note for note in turn.notes)


# --- chunks of documents ------------------------------------------------------------------------------


def corpus_of(root: Path, engine: FakeEngine) -> Corpus:
    return Corpus(AgentMemory(root, engine), chunk_tokens=256, overlap=0)


@pytest.fixture
def documents(tmp_path: Path) -> Path:
    (tmp_path / "returns.md").write_text("# Returns\n\nReturns are accepted for 7 days.\n")
    corpus_of(tmp_path / "documents", FakeEngine(replies=reply)).add([tmp_path / "returns.md"])
    return tmp_path / "documents"


def a_broken_segment(root: Path) -> tuple[FakeEngine, AbstractContextManager[object]]:
    for path in (root / "segments").rglob("*.seg"):
        cut(path)
    return FakeEngine(replies=reply), nullcontext()


def chunk_tokens(root: Path) -> set[int]:
    with BlockStore(root) as store:
        return {store.verify(key).n_tokens for key in store.block_ids()}


Fault = Callable[[Path], tuple[FakeEngine, AbstractContextManager[object]]]


def a_refusing_engine(root: Path) -> tuple[FakeEngine, AbstractContextManager[object]]:
    return Refusing(chunk_tokens(root), InvalidState("its layout is another")), nullcontext()


def a_poisoned_engine(root: Path) -> tuple[FakeEngine, AbstractContextManager[object]]:
    return Poisoned(chunk_tokens(root)), nullcontext()


def no_descriptors(root: Path) -> tuple[FakeEngine, AbstractContextManager[object]]:
    return FakeEngine(replies=reply), refused(errno.EMFILE, "/segments/", "/manifests/")


@pytest.mark.parametrize("fault", [a_broken_segment, a_refusing_engine, a_poisoned_engine, no_descriptors])
@pytest.mark.filterwarnings("ignore::agentkv.notices.AgentKVWarning")
def test_a_chunk_that_cannot_be_restored_is_read(documents: Path, fault: Fault) -> None:
    right = corpus_of(documents, FakeEngine(replies=reply)).ask(ASKED)
    engine, during = fault(documents)
    with during:
        found = corpus_of(documents, engine).ask(ASKED)
    assert (found.answer, found.evidence) == (right.answer, right.evidence)
    again = corpus_of(documents, FakeEngine(replies=reply)).ask(ASKED)
    assert (again.answer, again.evidence) == (right.answer, right.evidence)


# --- sizes and values ---------------------------------------------------------------------------------


@pytest.mark.parametrize("what", ["rows", "tokens"])
def test_a_layout_of_128_gib_is_corrupt_and_nothing_is_allocated(root: Path, what: str) -> None:
    memory = AgentMemory(root, FakeEngine(replies=reply))
    block = manual_of(memory)
    section = block.layout.sections[0]
    wide = section.model_copy(
        update={"keys": (Planes(ggml_type=1, token_major=True, row_bytes=2**37 // block.n_tokens),)}
    )
    layout = StateLayout(architecture="fake", sections=(wide, block.layout.sections[1]))
    forged = block.model_copy(update={"layout": layout} if what == "rows" else {"n_tokens": 2**31})
    with pytest.raises(CorruptBlock, match="its layout takes"):
        memory.blocks.state(forged)


def test_a_layout_unlike_its_segments_is_shown_by_check_and_mended_by_a_deposit(root: Path) -> None:
    block = manual(root)
    section = block.layout.sections[0]
    wide = section.model_copy(update={"keys": (Planes(ggml_type=1, token_major=True, row_bytes=2**27),)})
    layout = StateLayout(architecture="fake", sections=(wide, block.layout.sections[1]))
    forged = block.model_copy(update={"layout": layout})
    with BlockStore(root) as store:
        store.files.manifests.path(block.block_id).write_bytes(encode_manifest(forged, store.limits))
    memory = AgentMemory(root, FakeEngine(replies=reply))
    with pytest.warns(AgentKVWarning, match="its layout takes"):
        assert memory.ask(ASKED, skill="returns").text == reply(TEXT)
    assert [finding.blocks for finding in memory.store.check().damage] == [(block.block_id,)]
    memory.deposit_text("returns", TEXT, "How long goods can be returned.")
    assert memory.ask(ASKED, skill="returns").tokens.restored >= block.n_tokens
    assert not memory.store.check().damage


def test_a_state_larger_than_what_is_stored_or_than_memory_is_refused(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    memory = AgentMemory(root, FakeEngine(replies=reply))
    block = manual_of(memory)
    monkeypatch.setattr("agentkv.blocks.restoring._LARGE", 16)
    monkeypatch.setattr("agentkv.blocks.restoring.available_memory", lambda: 1000)
    with pytest.raises(StoreReadError, match="1,000 are free"):
        memory.blocks.state(block)
    monkeypatch.setattr("agentkv.blocks.restoring._EXPANSION", 0)
    with pytest.raises(CorruptBlock, match="no model computes such"):
        memory.blocks.state(block)


def test_rows_are_counted_as_they_are_cut(root: Path) -> None:
    block = manual(root)
    assert rows_bytes(block.layout, block.n_tokens) == sum(ref.n_bytes for ref in block.segments)


@pytest.mark.parametrize(
    ("ggml_type", "row", "at", "nan"),
    [
        (0, 32, 8, b"\x00\x00\xc0\x7f"),
        (1, 32, 6, b"\x01\xfc"),
        (30, 32, 6, b"\x81\xff"),
        (8, 34, 0, b"\x00\x7e"),
    ],
)
def test_what_is_no_number_is_found_in_every_type(ggml_type: int, row: int, at: int, nan: bytes) -> None:
    keys = Planes(ggml_type=ggml_type, token_major=True, row_bytes=row)
    section = LAYOUT.sections[0].model_copy(update={"v_trans": False, "keys": (keys,), "values": (keys,)})
    layout = StateLayout(architecture="t", sections=(section,))
    blob = blobs.Assembly(layout, 3).blob
    assert first_non_number(blob, layout, 3) is None
    start = len(blob) - 2 * row  # the second row of the values
    blob[start + at : start + at + len(nan)] = np.frombuffer(nan, np.uint8)
    assert first_non_number(blob, layout, 3) == len(blob) - 3 * row
    infinity = {0: b"\x00\x00\x80\x7f", 1: b"\x00\x7c", 30: b"\x80\x7f", 8: b"\x00\xfc"}[ggml_type]
    blob[start + at : start + at + len(nan)] = np.frombuffer(infinity, np.uint8)
    assert first_non_number(blob, layout, 3) == len(blob) - 3 * row
    largest = {0: b"\xff\xff\x7f\x7f", 1: b"\xff\x7b", 30: b"\x7f\x7f", 8: b"\xff\xfb"}[ggml_type]
    blob[start + at : start + at + len(nan)] = np.frombuffer(largest, np.uint8)
    assert first_non_number(blob, layout, 3) is None
