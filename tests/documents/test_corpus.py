"""Corpus: adding, finding, removing, interrupted work, and corpora of another engine."""

from __future__ import annotations

import gzip
import os
import random
import shutil
import signal
import subprocess
import sys
import time
import tracemalloc
from pathlib import Path
from typing import Any

import pytest

from agentkv import AgentKVWarning, AgentMemory, BlockStore, Cancellation, FakeEngine
from agentkv.documents import Corpus, find_shelf
from agentkv.documents import records as corpora
from agentkv.documents.adding import Forecast
from agentkv.documents.corpus import deposit_again, find
from agentkv.documents.index import digest_of
from agentkv.documents.readers import readable
from agentkv.documents.records import DOCUMENT_MAGIC, decode_document
from agentkv.documents.shelf import shelves
from agentkv.engine.settings import EngineSettings
from agentkv.errors import (
    Cancelled,
    InexactBlock,
    InvalidDocument,
    OverBudget,
    StaleDocument,
    UnknownCorpus,
    UsageError,
    WindowOverflow,
)
from agentkv.io.hashing import canonical_json
from agentkv.records import Exactness
from agentkv.store.budget import stored_bytes
from agentkv.store.format import Malformed, seal
from tests.benchmarks.adding import ratios, seconds

from .conftest import GUIDE


def ids(corpus: Corpus) -> list[str]:
    return [chunk.block_id for record in corpus.shelf.all().values() for chunk in record.chunks]


def contents(root: Path) -> dict[str, bytes]:
    """Every file of a store that a crash must not change, by its place."""
    parts = ("manifests", "segments", "documents/corpora", "documents/files", "documents/sources")
    return {str(f.relative_to(root)): f.read_bytes() for part in parts for f in (root / part).rglob("*") if f.is_file()}


def test_every_chunk_is_stored_and_none_is_named(corpus: Corpus, folder: Path) -> None:
    report = corpus.add([folder])
    assert report.prefilled == len(ids(corpus)) == report.plan.n_chunks > 3
    assert all(corpus.memory.store.exists(block_id) for block_id in ids(corpus))
    assert corpus.memory.names() == []
    assert [d.path for d in sorted(corpus.shelf.all().values(), key=lambda d: d.path)] == [
        "docs/deep/trains.rst",
        "docs/guide.md",
        "docs/page.html",
    ]


def test_chunks_are_exact_by_config_and_a_sample_is_probed(
    corpus: Corpus, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("agentkv.documents.chunks.SAMPLED", 2)
    corpus.add([folder])
    manifests = [corpus.memory.store.manifest(block_id) for block_id in ids(corpus)]
    levels = {m.block_id: m.exactness for m in manifests if m is not None}
    sampled = {block_id for block_id in levels if int(block_id[:8], 16) % 2 == 0}
    assert levels == {
        block_id: Exactness.EXACT if block_id in sampled else Exactness.EXACT_BY_CONFIG for block_id in levels
    }
    assert len(levels) == len(manifests)


def test_what_is_not_exact_is_not_stored(tmp_path: Path, folder: Path) -> None:
    engine = FakeEngine(window=2048, diverge_after=5)
    with AgentMemory(tmp_path / "store", engine) as memory:
        corpus = Corpus(memory, chunk_tokens=160, overlap=0)
        with pytest.raises(InexactBlock):
            corpus.add([folder])
        assert corpus.shelf.stored() == set()
        assert corpus.find("returns")


def test_unchanged_files_cost_a_hash(corpus: Corpus, folder: Path) -> None:
    corpus.add([folder])
    before = contents(corpus.memory.store.root)
    decoded = corpus.memory.engine.counters.decoded
    report = corpus.add([folder])
    assert (report.prefilled, len(report.plan.unchanged), report.plan.planned) == (0, 3, ())
    assert corpus.memory.engine.counters.decoded == decoded
    assert contents(corpus.memory.store.root) == before


def test_changed_files_are_cut_anew_and_gone_ones_retired(corpus: Corpus, folder: Path) -> None:
    corpus.add([folder])
    old = set(ids(corpus))
    (folder / "guide.md").write_text(GUIDE.replace("seven", "7").replace("7 days", "30 days"))
    (folder / "page.html").unlink()
    (folder / "new.txt").write_text("A new file about gardens.")
    report = corpus.add([folder])
    changes = {item.record.path: item.change for item in report.plan.planned}
    assert changes == {"docs/guide.md": "changed", "docs/new.txt": "new"}
    assert [record.path for record in report.plan.removed.values()] == ["docs/page.html"]
    now = set(ids(corpus))
    assert report.retired_blocks == len(old - now) > 0
    assert not any(corpus.memory.store.exists(block_id) for block_id in old - now)
    assert corpus.find("how long are returns accepted?")[0].text.count("30 days") == 1
    assert corpus.find("pump litres") == []
    assert len(list(corpus.shelf.sources.digests())) == 3


def test_a_file_that_is_only_filtered_out_stays(corpus: Corpus, folder: Path) -> None:
    corpus.add([folder])
    report = corpus.add([folder], include=["*.md"])
    assert report.plan.removed == {}
    assert len(corpus.shelf.all()) == 3


def test_another_chunk_size_cuts_everything_anew(memory: AgentMemory, corpus: Corpus, folder: Path) -> None:
    corpus.add([folder])
    old = set(ids(corpus))
    wider = Corpus(memory, chunk_tokens=400)
    assert (wider.record.chunk_tokens, wider.record.overlap) == (400, 96)
    report = wider.add([folder])
    assert len(report.plan.planned) == 3
    assert not any(memory.store.exists(block_id) for block_id in old - set(ids(wider)))
    assert Corpus(memory).record == wider.record


def test_a_chunk_that_two_corpora_have_stays_for_the_other(memory: AgentMemory, folder: Path) -> None:
    one, two = Corpus(memory, "one", chunk_tokens=160, overlap=0), Corpus(memory, "two", chunk_tokens=160, overlap=0)
    one.add([folder])
    assert two.add([folder]).prefilled == 0
    assert one.shelf.remove() == 0
    assert all(memory.store.exists(block_id) for block_id in ids(two))
    assert two.find("returns")
    shared = set(ids(two))
    assert two.shelf.remove() == len(shared)
    assert [shelf.record for shelf in shelves(memory.store)] == []
    assert list(two.shelf.sources.digests()) == []


def test_pinned_named_and_parent_blocks_are_not_removed(corpus: Corpus, folder: Path) -> None:
    corpus.add([folder])
    (folder / "page.html").unlink()
    (record,) = [record for record in corpus.shelf.all().values() if record.path == "docs/page.html"]
    kept = record.chunks[0].block_id
    corpus.memory.store.pin(kept)
    corpus.add([folder])
    assert corpus.memory.store.exists(kept)


def test_lazy_chunks_are_read_when_first_needed(memory: AgentMemory, folder: Path) -> None:
    corpus = Corpus(memory, chunk_tokens=160, overlap=0, keep="lazy")
    assert corpus.add([folder]).prefilled == 0
    assert corpus.shelf.stored() == set()
    first = corpus.ask("how long are returns accepted?", k=1)
    assert [attempt.prefilled_now for attempt in first.attempts] == [True]
    assert len(corpus.shelf.stored()) == 1
    again = corpus.ask("how long are returns accepted?", k=1)
    assert [(attempt.prefilled_now, attempt.kept) for attempt in again.attempts] == [(False, True)]
    assert (again.answer, again.evidence) == (first.answer, first.evidence)


def test_top_keeps_the_chunks_used_last(memory: AgentMemory, folder: Path) -> None:
    corpus = Corpus(memory, chunk_tokens=160, overlap=0, top=2)
    corpus.add([folder])
    for question in ("returns restocking fee", "pump litres", "cutoff monday"):
        used = corpus.ask(question, k=1).attempts[0].hit.chunk.block_id
        assert len(corpus.shelf.stored()) <= 2
        assert used in corpus.shelf.stored()


def test_a_bad_file_keeps_no_other_out_and_its_old_version_stays(corpus: Corpus, folder: Path) -> None:
    corpus.add([folder])
    (folder / "guide.md").write_bytes(b"\x89PNG\0\xff\0")
    (folder / "extra.txt.gz").write_bytes(gzip.compress(b"Packed words about turtles.")[:-5])
    (folder / "good.txt.gz").write_bytes(gzip.compress(b"Packed words about lizards."))
    report = corpus.add([folder])
    assert [type(error) for error in report.plan.failed] == [InvalidDocument, InvalidDocument]
    assert corpus.find("lizards")
    assert corpus.find("restocking fee")


def test_what_is_passed_over(corpus: Corpus, folder: Path) -> None:
    (folder / ".hidden.md").write_text("x")
    (folder / "image.png").write_bytes(b"x")
    (folder / "_static").mkdir()
    (folder / "_static" / "a.md").write_text("x")
    (folder / "link.md").symlink_to(folder / "guide.md")
    plan = corpus.plan([folder])
    assert len(plan.planned) == 3
    assert [path.name for path in plan.passed_over] == ["image.png"]
    with pytest.raises(UsageError):
        corpus.plan([folder / "absent"])


def test_a_plan_writes_nothing(corpus: Corpus, folder: Path) -> None:
    before = contents(corpus.memory.store.root)
    plan = corpus.plan([folder])
    sample = corpus.sample(plan)
    assert sample is not None
    assert sample.n_bytes > 0
    assert contents(corpus.memory.store.root) == before
    assert not corpus.exists


def test_cancelled_and_gone_on_with(memory: AgentMemory, corpus: Corpus, folder: Path) -> None:
    cancellation = Cancellation()
    plan = corpus.plan([folder])

    def on_chunk(*_: Any) -> None:
        if len(corpus.shelf.stored()) == 2:
            cancellation.cancel()

    with pytest.raises(Cancelled):
        corpus.carry_out(plan, on_chunk=on_chunk, cancellation=cancellation)
    assert len(corpus.shelf.stored()) == 2
    assert corpus.find("returns")
    report = corpus.add([folder])
    assert report.prefilled == len(ids(corpus)) - 2


DEPOSIT = """
import sys
from agentkv import AgentMemory, FakeEngine
from agentkv.documents import Corpus
with AgentMemory(sys.argv[1], FakeEngine(window=2048)) as memory:
    corpus = Corpus(memory, chunk_tokens=160, overlap=16)
    corpus.carry_out(corpus.plan([sys.argv[2]]), on_chunk=lambda record, chunk: print("chunk", flush=True))
print("done")
"""


def test_killed_at_any_moment_and_gone_on_with_gives_the_same_store(tmp_path: Path, folder: Path) -> None:
    for index in range(6):
        (folder / f"more{index}.txt").write_text(f"File {index}. " + "Words about rivers and bridges. " * 20)
    chance, kills = random.Random(6), 0
    for chunks in (1, 2, 1, 3, 1, None):  # killed while it reads that one of those still to be read; then not at all
        with subprocess.Popen(
            [sys.executable, "-c", DEPOSIT, tmp_path / "killed", folder], stdout=subprocess.PIPE, text=True
        ) as process:
            assert process.stdout is not None
            if chunks is None:
                assert process.stdout.read().endswith("done\n")
                continue
            for _ in range(chunks):
                assert process.stdout.readline() == "chunk\n"
            time.sleep(chance.uniform(0.0, 0.02))
            process.send_signal(signal.SIGKILL)
            kills += process.wait() == -signal.SIGKILL
    assert kills >= 2
    subprocess.run([sys.executable, "-c", DEPOSIT, tmp_path / "whole", folder], check=True, stdout=subprocess.PIPE)
    with BlockStore(tmp_path / "killed") as store:
        assert store.check().damage == ()
        store.collect()
        assert store.check().findings == ()
    assert contents(tmp_path / "killed") == contents(tmp_path / "whole")


def test_a_budget_stops_reading_and_the_rest_stays_indexed(tmp_path: Path, folder: Path) -> None:
    with BlockStore(tmp_path / "whole") as store:
        Corpus(AgentMemory(store, FakeEngine(window=2048)), chunk_tokens=160, overlap=0).add([folder])
        room = stored_bytes(store.files) * 2 // 3
    with BlockStore(tmp_path / "store", budget_bytes=room) as store:
        corpus = Corpus(AgentMemory(store, FakeEngine(window=2048)), chunk_tokens=160, overlap=0)
        report = corpus.add([folder])
        assert isinstance(report.stopped, OverBudget)
        assert 0 < len(corpus.shelf.stored()) < len(ids(corpus))
        assert corpus.ask("pump litres", k=1).attempts[0].tokens.restored > 0


def test_a_chunk_that_leaves_no_room_is_refused_at_once(tmp_path: Path) -> None:
    with AgentMemory(tmp_path / "store", FakeEngine(window=1024)) as memory, pytest.raises(WindowOverflow):
        Corpus(memory, chunk_tokens=900, overlap=0)


@pytest.mark.parametrize(
    "settings",
    [{"top": 0}, {"keep": "top"}, {"keep": "lazy", "top": 3}, {"name": " "}, {"chunk_tokens": 10}, {"overlap": 999}],
)
def test_settings_that_make_no_sense(memory: AgentMemory, settings: dict[str, Any]) -> None:
    with pytest.raises(UsageError):
        Corpus(memory, **settings)


def test_removing_by_name_and_folder(corpus: Corpus, folder: Path) -> None:
    corpus.add([folder])
    assert corpus.remove(["docs/deep"]) == (1, 1)
    assert corpus.find("cutoff") == []
    with pytest.raises(UsageError):
        corpus.remove(["docs/deep"])


def test_an_unknown_corpus(memory: AgentMemory) -> None:
    with pytest.raises(UnknownCorpus):
        Corpus(memory, "nothing").find("x")
    with pytest.raises(UnknownCorpus):
        find_shelf(memory.store, "nothing")


# --- the store's side -----------------------------------------------------------------------------


def test_check_knows_the_places_and_finds_damage_and_repair_moves_it(corpus: Corpus, folder: Path) -> None:
    corpus.add([folder])
    corpus.find("returns")
    store = corpus.memory.store
    assert store.check().findings == ()
    home = store.root / corpora.DOCUMENTS
    record, source = next((home / "files").rglob("*.json")), next((home / "sources").rglob("*.zst"))
    for file in (record, source):
        data = bytearray(file.read_bytes())
        data[len(data) // 2] ^= 1
        file.write_bytes(data)
    (home / "stranger").write_text("x")
    report = store.check()
    assert {finding.path for finding in report.damage} == {record, source}
    assert {finding.path for finding in report.findings} == {record, source, home / "stranger"}
    store.repair(report)
    assert store.check().damage == ()
    assert not corpus.add([folder]).plan.failed
    assert len(corpus.find("returns pump cutoff", k=9)) >= 3
    assert store.check().damage == ()


def test_collection_leaves_chunks_and_another_process_finds_them(corpus: Corpus, folder: Path) -> None:
    corpus.add([folder])
    store = corpus.memory.store
    collected = store.collect(min_age_s=0)
    assert collected.segments == 0
    with BlockStore(store.root) as other:
        hit = find(find_shelf(other, "documents"), "restocking fee", k=1)[0]
        assert other.exists(hit.chunk.block_id)


def test_no_time_is_kept(corpus: Corpus, folder: Path) -> None:
    corpus.add([folder])
    before = contents(corpus.memory.store.root)
    later = time.time() + 5000
    for file in folder.rglob("*"):
        if file.is_file():
            os.utime(file, (later, later))
    corpus.add([folder])
    assert contents(corpus.memory.store.root) == before


def test_an_answer_does_not_need_a_chunk_kept(tmp_path: Path, folder: Path) -> None:
    with BlockStore(tmp_path / "store", budget_bytes=1000) as store:
        corpus = Corpus(AgentMemory(store, FakeEngine(window=2048)), chunk_tokens=160, overlap=0, keep="lazy")
        corpus.add([folder])
        (attempt,) = corpus.ask("pump litres", k=1).attempts
        assert (attempt.kept, attempt.prefilled_now, attempt.tokens.restored) == (False, False, 0)
        assert corpus.shelf.stored() == set()
    with AgentMemory(tmp_path / "roomy", FakeEngine(window=2048)) as memory:
        roomy = Corpus(memory, chunk_tokens=160, overlap=0)
        roomy.add([folder])
        (kept,) = roomy.ask("pump litres", k=1).attempts
        assert (kept.answer, kept.confidence) == (attempt.answer, attempt.confidence)


# --- files that moved, went, or are read otherwise --------------------------------------------------


@pytest.mark.parametrize("order", [("folder", "file"), ("file", "folder")])
@pytest.mark.parametrize("again", ["folder", "file"])
def test_a_file_added_by_two_paths_goes_when_it_is_deleted(
    corpus: Corpus, folder: Path, order: tuple[str, ...], again: str
) -> None:
    paths = {"folder": folder, "file": folder / "guide.md"}
    for name in order:
        corpus.add([paths[name]])
    assert [d.path for d in corpus.shelf.all().values() if "guide" in d.path] == ["docs/guide.md"]
    (folder / "guide.md").unlink()
    report = corpus.add([paths[again]])
    assert [record.path for record in report.plan.removed.values()] == ["docs/guide.md"]
    assert report.retired_blocks > 0
    assert corpus.find("restocking fee") == []
    with pytest.raises(UsageError, match="no file or folder"):
        corpus.add([folder / "guide.md"])


def test_a_file_of_an_old_store_recorded_by_its_own_path_goes_with_its_folder(corpus: Corpus, folder: Path) -> None:
    corpus.add([folder / "guide.md"])
    assert [record.root for record in corpus.shelf.all().values()] == [str(folder / "guide.md")]
    (folder / "guide.md").unlink()
    assert [record.path for record in corpus.add([folder]).plan.removed.values()] == ["guide.md"]


def test_a_known_file_that_is_named_by_itself_is_neither_cut_nor_read_again(corpus: Corpus, folder: Path) -> None:
    corpus.add([folder])
    before = contents(corpus.memory.store.root)
    report = corpus.add([folder / "guide.md"])
    assert (report.plan.planned, report.prefilled) == ((), 0)
    assert contents(corpus.memory.store.root) == before


def test_what_an_earlier_version_read_otherwise_is_cut_anew(
    corpus: Corpus, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("agentkv.documents.adding.VERSION", 1)
    corpus.add([folder])
    monkeypatch.undo()
    report = corpus.add([folder])
    assert {item.change for item in report.plan.planned} == {"recut"}
    assert report.prefilled == 0  # whose chunks are the same are there
    assert corpus.add([folder]).plan.planned == ()


def stale_chunk(corpus: Corpus, path: str) -> None:
    """Have the chunks of a file recorded as those of another reading."""
    for key, record in corpus.shelf.all().items():
        if record.path == path:
            chunks = tuple(w.model_copy(update={"block_id": f"{n:064x}"}) for n, w in enumerate(record.chunks))
            data = corpus.shelf.sources.read(record.sha256)
            assert data is not None
            corpus.shelf.put(key, record.model_copy(update={"chunks": chunks, "reader": 1}), data)


def test_a_stale_chunk_is_passed_over_with_a_note_and_adding_again_mends_it(corpus: Corpus, folder: Path) -> None:
    (folder / "other.md").write_text("# Other shop\n\nReturns are accepted for 9 days.\n")
    corpus.add([folder])
    stale_chunk(corpus, "docs/guide.md")
    with pytest.warns(AgentKVWarning, match=r"a chunk was passed over: docs/guide\.md: .* add"):
        reply = corpus.ask("returns accepted", k=4, votes=True, max_new=48)
    assert [attempt.hit.path for attempt in reply.attempts] == ["docs/other.md"]
    assert "docs/guide.md" in reply.notes[0]
    with pytest.warns(AgentKVWarning, match="a chunk was passed over"):
        ranked = corpus.find("returns accepted", k=4, rerank_from=4)
    assert [hit.path for hit in ranked] == ["docs/other.md"]
    with pytest.raises(StaleDocument, match="docs add"):
        corpus.ask("restocking fee of an opened reader", k=1)
    corpus.add([folder])
    reply = corpus.ask("returns accepted", k=4, votes=True, max_new=48)
    assert {attempt.hit.path for attempt in reply.attempts} >= {"docs/other.md", "docs/guide.md"}
    assert reply.notes == ()


def test_a_source_that_is_gone_leaves_the_other_chunks(corpus: Corpus, folder: Path) -> None:
    (folder / "other.md").write_text("# Other shop\n\nReturns are accepted for 9 days.\n")
    corpus.add([folder])
    corpus.find("returns")
    (record,) = [record for record in corpus.shelf.all().values() if record.path == "docs/guide.md"]
    corpus.shelf.sources.remove(record.sha256)
    fresh = Corpus(corpus.memory)
    with pytest.warns(AgentKVWarning, match="its kept source is gone"):
        assert [hit.path for hit in fresh.find("returns accepted")] == ["docs/other.md"]


def test_records_of_earlier_versions_are_read(corpus: Corpus, folder: Path) -> None:
    corpus.add([folder])
    for key, record in corpus.shelf.all().items():
        body = record.model_dump(mode="json", by_alias=True, exclude={"encoding_by", "reader", "columns"})
        for chunk in body["windows"]:
            del chunk["columns"]
        old = decode_document(seal(DOCUMENT_MAGIC, canonical_json(body)), key)
        assert (old.encoding_by, old.reader, old.columns) == ("known", 1, ())
        assert old.chunks == record.chunks
        assert digest_of(old) == digest_of(record)  # so that no index of it is rebuilt
        with pytest.raises(Malformed, match="canonical"):
            decode_document(seal(DOCUMENT_MAGIC, b" " + canonical_json(body)), key)


# --- what reading takes -----------------------------------------------------------------------------


def test_a_new_corpus_is_lazy_where_reading_would_take_long(
    memory: AgentMemory, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (folder / "long.txt").write_text("".join(f"River {n} has {n} bridges. " for n in range(250)))
    monkeypatch.setattr("agentkv.documents.adding._MUCH_SECONDS", 0.0)
    corpus = Corpus(memory, chunk_tokens=160, overlap=0)
    with pytest.warns(AgentKVWarning, match=r"so they are only indexed.*keep='eager'"):
        report = corpus.add([folder])
    assert (report.prefilled, corpus.record.keep, Corpus(memory).record.keep) == (0, "lazy", "lazy")
    assert corpus.ask("restocking fee", k=1).attempts[0].prefilled_now
    asked = Corpus(memory, "asked for", chunk_tokens=160, overlap=0, keep="eager")
    assert asked.add([folder]).prefilled > 30
    assert asked.record.keep == "eager"


@pytest.mark.parametrize(("seconds", "n_bytes", "much"), [(59, 9e8, False), (61, 1, True), (1, 1.1e9, True)])
def test_what_is_much(seconds: float, n_bytes: float, much: bool) -> None:
    assert Forecast(seconds, n_bytes).is_much is much


# --- size -------------------------------------------------------------------------------------------


def test_looking_for_a_place_copies_no_array() -> None:
    text = "".join(f"## Section {n}\n\nWords and more words.\n\n" for n in range(40_000))
    document = readable(Path("a.md"), text.encode(), "markdown")
    document.heading_path(0)
    tracemalloc.start()
    for number in range(200):
        start, stop = document.byte_range(7_000 * number, 7_000 * number + 900)
        assert document.characters(start, stop) == (7_000 * number, 7_000 * number + 900)
        assert len(document.heading_path(7_000 * number)) == 1
        assert len(document.headings_within(7_000 * number, 7_000 * number + 900)) > 20
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 100_000 < document.starts.nbytes
    started = time.process_time()
    for _ in range(2_000):
        document.heading_path(len(text) - 1)
    assert time.process_time() - started < 2  # walking 40,000 headings each time takes a minute


def test_adding_is_linear() -> None:
    times = {size: min(seconds("markdown", size) for _ in range(2)) for size in (0.25, 1.0)}
    assert ratios(times)[1.0] < 2.5  # 4 if it were quadratic


# --- corpora of another engine --------------------------------------------------------------------


FLASH = EngineSettings(flash_attention=True)


@pytest.fixture
def store(tmp_path: Path) -> Path:
    folder = tmp_path / "docs"
    folder.mkdir()
    (folder / "returns.md").write_text("# Returns\n\nReturns are accepted for 7 days.\n")
    (folder / "fees.md").write_text("# Fees\n\nThe fee is 12%.\n")
    with AgentMemory(tmp_path / "store", FakeEngine()) as memory:
        Corpus(memory, chunk_tokens=256, overlap=0).add([folder])
        Corpus(memory, "lazy", chunk_tokens=128, overlap=0, keep="lazy").add([folder / "fees.md"])
    return tmp_path / "store"


def test_a_corpus_of_another_engine_is_said_to_be_that(store: Path) -> None:
    with AgentMemory(store, FakeEngine(settings=FLASH)) as memory:
        for name in ("documents", "lazy"):
            with pytest.raises(UnknownCorpus, match="flash_attention = False, here True") as caught:
                Corpus(memory, name).find("returns")
            assert "agentkv migrate --store" in caught.value.message
            assert "agentkv.documents.corpus.deposit_again(memory)" in caught.value.message
        with pytest.raises(UnknownCorpus, match="There are: documents, lazy"):
            Corpus(memory, "nothing").find("returns")
    other = Corpus(AgentMemory(store, FakeEngine(weights="b")))
    with pytest.raises(UnknownCorpus, match="model_sha256 = fake, here fake:b"):
        other.find("returns")


def test_it_is_cut_again_as_it_was_wherever_the_files_are_now(store: Path) -> None:
    shutil.rmtree(store.parent / "docs")
    with AgentMemory(store, FakeEngine(settings=FLASH)) as memory:
        done = {one.name: one for one in deposit_again(memory)}
        assert (done["documents"].files, done["lazy"].files) == (2, 1)
        assert all(one.failed == () for one in done.values())
        corpus = Corpus(memory)
        assert (corpus.record.chunk_tokens, corpus.record.keep, Corpus(memory, "lazy").record.keep) == (
            256,
            "eager",
            "lazy",
        )
        assert corpus.find("how many days for returns?", k=1)[0].path == "docs/returns.md"
        assert corpus.shelf.stored() == set(), "no chunk was read"
        assert memory.engine.counters.decoded == 0
        assert deposit_again(memory) == []


def test_a_lost_source_keeps_no_other_out(store: Path) -> None:
    with AgentMemory(store, FakeEngine(settings=FLASH)) as memory:
        corpus = Corpus(AgentMemory(memory.store, FakeEngine()))
        record = next(one for one in corpus.shelf.all().values() if one.path.endswith("returns.md"))
        corpus.shelf.sources.remove(record.sha256)
        done = {one.name: one for one in deposit_again(memory)}
        assert (done["documents"].files, done["lazy"].files) == (1, 1)
        ((path, error),) = done["documents"].failed
        assert (path, type(error)) == ("docs/returns.md", StaleDocument)
