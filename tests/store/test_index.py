"""The catalogue's index: it answers as the files do, whatever happened to it, and opens none of them."""

from __future__ import annotations

import os
import random
import sqlite3
import subprocess
import sys
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from agentkv.io import sqlitefiles
from agentkv.io.hashing import sha256
from agentkv.notices import AgentKVWarning
from agentkv.records import Manifest, NamedBlock
from agentkv.store import budget as budgets
from agentkv.store import index as indexes
from agentkv.store.budget import stored_bytes
from agentkv.store.catalog import BlockStore
from agentkv.store.findings import Kind
from agentkv.store.index import INDEX
from agentkv.store.indexcheck import index_fault
from agentkv.store.indexed import Selection
from tests.store.blocks import FINGERPRINT, block, contents, named


@pytest.fixture(autouse=True)
def _always_indexed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(indexes, "LEAST", 0)


@pytest.fixture
def store(tmp_path: Path) -> Iterator[BlockStore]:
    with BlockStore(tmp_path / "store") as opened:
        fill(opened, 6)
        assert len(opened.names()) == 6
        assert (opened.root / INDEX).exists()
        yield opened


def fill(store: BlockStore, n: int, first: int = 0) -> list[Manifest]:
    """A root, and ``n`` named blocks on top of it, those of even number with a description and a text."""
    root, segments = block([1, 2, 3, 4])
    store.put(root, segments)
    made = []
    for number in range(first, first + n):
        manifest, segments = block([5, 6, number], parent=root)
        store.put(manifest, segments)
        entry = named(manifest, f"name-{number:03d}", "text" if number % 3 else "skill")
        text = f"What number {number} is about."
        store.set_name(entry if number % 2 else described(entry, text), None if number % 2 else text)
        made.append(manifest)
    return made


def described(entry: NamedBlock, text: str) -> NamedBlock:
    return entry.model_copy(update={"description": f"About {entry.name}.", "source_sha256": sha256(text.encode())})


@contextmanager
def unindexed(root: Path) -> Iterator[BlockStore]:
    """The store as a version sees it that knows nothing of an index: reads files, and tells nobody what it writes."""
    with BlockStore(root) as opened:
        for folder in (opened.files.manifests, opened.files.names, opened.files.ancestors):
            folder.follower = None
        opened.files.index._paused, opened.files.index._warned = float("inf"), True  # never used
        yield opened


def answers(store: BlockStore) -> dict[str, Any]:
    """Everything that the index is asked."""
    files = store.files
    return {
        "names": store.names(on_error=lambda _: None),
        "skills": store.names("skill", FINGERPRINT.id),
        "page": store.names(limit=3, after=(store.names() or [None])[0]),  # type: ignore[list-item]
        "described": [entry for entry, _ in store.described()],
        "texts": {entry.name: text or store.text(entry.source_sha256 or "") for entry, text in store.described()},
        "summaries": sorted(files.summaries()),
        "parents": files.parents(),
        "children": {block_id: store.children(block_id) for block_id in store.block_ids()},
        "of": {block_id: files.names_of(block_id) for block_id in store.block_ids()},
        "referenced": files.referenced(),
        "stored": stored_bytes(files),
        "plan": [evicted(store, share) for share in (0.0, 0.4, 0.8)],
        "collected": store.collect(dry_run=True),
    }


WHOLE = ("names", "summaries", "parents", "referenced", "collected")
"""Answers that are compared with counts and checksums, and what goes by them."""


def evicted(store: BlockStore, share: float) -> Any:
    """What would go, times rounded: those of the index are nanoseconds, those of files floats."""
    plan = store.evict(int(stored_bytes(store.files) * share), dry_run=True)
    return plan.kept, plan.stored, [(v.block_id, v.names, round(v.last, 3), v.hits, v.bytes) for v in plan.victims]


def require_same(store: BlockStore) -> None:
    """The index is used, right, and answers as the files do."""
    store.uses()
    with unindexed(store.root) as files:
        expected = answers(files)
        assert answers(store) == expected
    assert index_fault(store.files.index) is None
    assert (store.root / INDEX).exists()


@contextmanager
def opened_files() -> Iterator[list[str]]:
    real, seen = os.open, list[str]()

    def noted(path: Any, *rest: Any, **options: Any) -> int:
        seen.append(os.fspath(path))
        return real(path, *rest, **options)

    os.open = noted
    try:
        yield seen
    finally:
        os.open = real


def test_it_answers_as_the_files_do_after_any_work(tmp_path: Path) -> None:
    rng = random.Random(7)
    with BlockStore(tmp_path / "store") as store:
        made = fill(store, 5)
        require_same(store)
        for step in range(12):
            one = rng.choice(made)
            work = rng.randrange(6)
            if work == 0:
                made += fill(store, 2, 10 + 2 * step)
            elif work == 1 and store.has(one.block_id):
                child, segments = block([step], parent=one)
                store.put(child, segments)
                made.append(child)
            elif work == 2:
                store.used(one.block_id)
            elif work == 3:
                store.take_away([one.block_id])
            elif work == 4 and store.has(one.block_id):
                store.pin(one.block_id)
            else:
                store.evict(int(stored_bytes(store.files) * 0.9))
            require_same(store)


@pytest.mark.parametrize("opened", ["this", "new"])
def test_no_file_of_a_block_is_opened(store: BlockStore, opened: str) -> None:
    with BlockStore(store.root) if opened == "new" else store as used, opened_files() as seen:
        assert len(used.names()) == 6
        assert len(used.names(limit=2)) == 2
        assert [text for _, text in used.described()] == [f"What number {n} is about." for n in (0, 2, 4)]
        assert len(dict(used.files.summaries())) == 7
        used.evict(stored_bytes(used.files), dry_run=True)
        used.evict(0, dry_run=True)
        assert used.collect(dry_run=True).segments == 0
    folders = ("manifests", "names", "texts", "ancestors", "segments")
    assert [path for path in seen if any(f"/{folder}/" in path for folder in folders)] == []


def test_what_another_version_writes_is_noticed(store: BlockStore) -> None:
    first = store.names()[0]
    with unindexed(store.root) as other:
        added = fill(other, 2, 20)
        other.remove_name(first.kind, first.name, first.fingerprint_id)
        other.set_name(named(added[0], "name-001", "text"))  # it pointed elsewhere
        require_same(store)
        other.take_away([added[1].block_id])
        require_same(store)
    assert first not in store.names()
    assert store.name("text", "name-001", FINGERPRINT.id) in store.names()


def test_a_change_right_after_ones_own_is_noticed(store: BlockStore) -> None:
    """Within one tick of the clock, so that the folder's mtime would be the same."""
    with unindexed(store.root) as other:
        for number in range(20):
            store.set_name(named(store.manifest(next(store.block_ids())), f"own-{number}"))  # type: ignore[arg-type]
            other.set_name(named(other.manifest(next(other.block_ids())), f"other-{number}"))  # type: ignore[arg-type]
            assert {f"own-{number}", f"other-{number}"} <= {entry.name for entry in store.names()}


def test_where_a_folder_belongs_to_somebody_else_it_is_listed_until_it_is_old(
    store: BlockStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refused(*_: object, **__: object) -> None:
        raise PermissionError

    monkeypatch.setattr(os, "utime", refused)
    fill(store, 2, 30)
    require_same(store)
    with unindexed(store.root) as other:
        fill(other, 2, 40)
        require_same(store)


@pytest.mark.parametrize("when", ["renamed", "committed"])
def test_a_process_that_dies_beside_the_index(store: BlockStore, when: str) -> None:
    """Killed between the rename and the row, and between the row and the end of the call."""
    program = """
import os, sys
from agentkv.store import index
from agentkv.store.catalog import BlockStore
from tests.store.blocks import block
from tests.store.test_index import fill
when = sys.argv[2]
index.LEAST = 0
store = BlockStore(sys.argv[1])
real_note, real_close = index._move_on, None
if when == "renamed":
    index._move_on = lambda *_: os._exit(9)
else:
    os.fsync = lambda fd: None if len(list(store.block_ids())) < 8 else os._exit(9)
fill(store, 3, 50)
"""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}
    done = subprocess.run([sys.executable, "-c", program, str(store.root), when], env=environment, check=False)
    assert done.returncode == 9
    require_same(store)
    with BlockStore(store.root) as again:
        require_same(again)
        assert not again.check().damage


def test_a_deleted_index_is_made_again_by_whoever_has_it_open(store: BlockStore) -> None:
    with BlockStore(store.root) as other:
        assert other.names() == store.names()
        for path in store.root.glob(f"{INDEX}*"):
            path.unlink()
        fill(other, 1, 60)
        require_same(store)
        fill(store, 1, 61)
        require_same(other)


def test_an_index_of_another_version_or_kind_is_replaced_or_left(store: BlockStore) -> None:
    store.files.index.close()
    with sqlite3.connect(store.root / INDEX) as other:
        other.execute("PRAGMA user_version = 99")
    other.close()
    require_same(store)
    store.files.index.discard()
    (store.root / INDEX).write_bytes(b"no database at all" * 100)
    require_same(store)
    store.files.index.discard()
    (store.root / INDEX).symlink_to("/etc/hostname")
    with unindexed(store.root) as files, warnings.catch_warnings(record=True):
        warnings.simplefilter("always")
        assert answers(store) == answers(files)
    assert (store.root / INDEX).is_symlink()


def test_any_flipped_bytes_of_the_index_harm_nothing(store: BlockStore, tmp_path: Path) -> None:
    store.take_away([store.names()[0].block_id])
    store.collect()
    with unindexed(store.root) as files:
        expected, before = answers(files), contents(store.root / "segments")
    store.files.index.close()
    whole = (store.root / INDEX).read_bytes()
    rng, found = random.Random(3), 0
    for case in range(30):
        data = bytearray(whole)
        for _ in range(rng.choice([1, 1, 8])):
            data[rng.randrange(len(data))] ^= 1 << rng.randrange(8)
        store.files.index.discard()
        (store.root / INDEX).write_bytes(data)
        found += index_fault(store.files.index) is not None
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", AgentKVWarning)
            got = {key: value for key, value in answers(store).items() if key in WHOLE}
            assert got == {key: expected[key] for key in WHOLE}, case
            store.evict(stored_bytes(store.files))
            store.collect()
        assert contents(store.root / "segments") == before, case
        store.files.index.close()
    assert found > 3


def test_a_check_finds_a_wrong_index_and_a_repair_deletes_it(store: BlockStore) -> None:
    assert not store.check().findings
    store.files.index.close()
    with sqlite3.connect(store.root / INDEX) as other:
        other.execute("DROP TRIGGER name_out")
        other.execute("DELETE FROM names WHERE name = 'name-001'")
    other.close()
    (finding,) = store.check().findings
    assert (finding.kind, finding.path) == (Kind.CORRUPT, store.root / INDEX)
    repaired = store.repair(store.check())
    assert (repaired.moved, repaired.left) == ((), ())
    assert not (store.root / INDEX).exists()
    require_same(store)


def test_a_full_disk_costs_the_row_and_nothing_else(store: BlockStore, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(indexes, "_PAUSE_S", 0.0)
    connection = store.files.index._open["connection"]
    pages = connection.execute("PRAGMA page_count").fetchone()[0]
    connection.execute(f"PRAGMA max_page_count = {pages}")
    made = fill(store, 40, 100)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", AgentKVWarning)
        assert {one.block_id for one in made} <= {entry.block_id for entry in store.names()}
    connection.execute("PRAGMA max_page_count = 1000000")
    require_same(store)


@pytest.mark.parametrize("why", ["network", "no log", "read-only"])
def test_where_it_cannot_be_used_files_are_read_and_it_is_said_once(
    store: BlockStore, monkeypatch: pytest.MonkeyPatch, why: str
) -> None:
    store.files.index.discard()
    with unindexed(store.root) as files:
        expected = answers(files)

    def refused(*_: object, **__: object) -> Any:
        raise sqlite3.OperationalError("attempt to write a readonly database")

    if why == "network":
        monkeypatch.setattr(indexes, "is_network", lambda _: True)
    elif why == "no log":
        real = sqlitefiles.connect
        monkeypatch.setattr(sqlitefiles, "connect", lambda *_, **how: real(":memory:", isolation_level=None))
    else:
        monkeypatch.setattr(sqlitefiles, "connect", refused)
    monkeypatch.setattr(indexes, "LEAST", 3)
    with BlockStore(store.root) as other:
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            assert answers(other) == expected
        reason = {"network": "network file system", "no log": "write-ahead log", "read-only": "readonly"}[why]
        assert [reason in str(one.message) for one in caught] == [True]
        fill(other, 1, 70)


def test_few_blocks_need_no_index(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(indexes, "LEAST", 20)
    monkeypatch.setattr(indexes, "_SMALL_S", 0.0)
    with BlockStore(tmp_path / "store") as store:
        fill(store, 3)
        assert len(store.names()) == 3
        assert not (store.root / INDEX).exists()
        fill(store, 20)
        assert len(store.names()) == 20
        assert (store.root / INDEX).exists()


def test_several_processes_at_once(tmp_path: Path) -> None:
    program = """
import sys
from agentkv.store import index
from agentkv.store.catalog import BlockStore
from tests.store.test_index import fill
index.LEAST = 0
with BlockStore(sys.argv[1]) as store:
    for number in range(8):
        fill(store, 1, int(sys.argv[2]) + number)
        assert f"name-{int(sys.argv[2]) + number:03d}" in {entry.name for entry in store.names()}
"""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}
    root = str(tmp_path / "store")
    running = [
        subprocess.Popen([sys.executable, "-W", "error", "-c", program, root, str(first)], env=environment)
        for first in (100, 200)
    ]
    assert [process.wait() for process in running] == [0, 0]
    with BlockStore(root) as store:
        assert len(store.names()) == 16
        require_same(store)


def test_a_removed_name_can_be_read_in_no_byte_of_the_index(store: BlockStore) -> None:
    manifest = store.manifest(store.names()[0].block_id)
    assert manifest is not None
    store.set_name(named(manifest, "a-very-private-name"))
    assert "a-very-private-name" in {entry.name for entry in store.names()}
    store.remove_name("skill", "a-very-private-name", FINGERPRINT.id)
    store.collect()
    assert sqlitefiles.scrub_all(store.root, again=True) == []
    assert not any(b"a-very-private-name" in data for data in contents(store.root).values())


def test_a_child_of_a_fork_leaves_it_alone(store: BlockStore) -> None:
    pid = os.fork()
    if pid == 0:
        try:
            right = store.files.index.ask(lambda _: True) is None
            store.files.index.close()
        except BaseException:
            os._exit(3)
        os._exit(0 if right else 4)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
    fill(store, 1, 80)
    require_same(store)


def test_pages_are_the_whole_list(store: BlockStore) -> None:
    whole, paged = store.names(), list[NamedBlock]()
    while page := store.names(after=paged[-1] if paged else None, limit=4):
        paged += page
    assert paged == whole
    assert store.names(limit=0) == []
    assert store.files.all_names(Selection(kind="skill", limit=1)).found == store.names("skill")[:1]


def test_the_first_use_after_many_changes_says_that_it_took_long(
    store: BlockStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(indexes, "_LONG_S", 0.0)
    store.files.index.discard()
    with pytest.warns(AgentKVWarning, match="was made from its files"):
        store.names()


def test_a_plan_by_files_is_the_same(store: BlockStore) -> None:
    plan = budgets._Plan(store.files, store._uses, (), False, None).until(0)
    by_index = store.evict(0, dry_run=True)
    assert [v.block_id for v in plan.victims] == [v.block_id for v in by_index.victims]
    assert (plan.stored, plan.kept, plan.left) == (by_index.stored, by_index.kept, by_index.left)


def test_pages_of_a_kind_begin_after_names_of_any(store: BlockStore) -> None:
    for after in store.names():
        for kind in ("skill", "text"):
            expected = [entry for entry in store.names(kind) if store.names().index(entry) > store.names().index(after)]
            assert store.names(kind, after=after) == expected


def test_no_query_of_a_hot_path_looks_at_every_row(store: BlockStore) -> None:
    """By what SQLite says of each statement: no scan but of partial indexes, of what is empty as a rule, and of small
    tables."""
    store.files.index.close()
    queries: list[str] = []
    assert store.files.index.ask(lambda db: db.set_trace_callback(queries.append) or True)  # type: ignore[func-returns-value]
    manifest, segments = block([9, 9, 9])
    store.put(manifest, segments)
    store.set_name(named(manifest, "hot"))
    store.names("text", FINGERPRINT.id, after=store.names(limit=1)[0], limit=2)
    store.evict(stored_bytes(store.files) - 1)
    assert store.files.index.ask(lambda db: db.set_trace_callback(None) or True)  # type: ignore[func-returns-value]
    allowed: tuple[str, ...] = ("places", "totals", "fingerprints", "ancestors", "a")
    allowed += ("segments USING INDEX segments_unneeded", "blocks USING INDEX blocks_unread")
    allowed += ("names USING INDEX names_unread", "names USING INDEX names_order")  # the first of all names
    wrong = set()
    with sqlite3.connect(store.root / INDEX) as db:
        db.create_function("seal", -1, lambda *_: 0, deterministic=True)
        for query in {query for query in queries if query.startswith(("SELECT", "UPDATE", "DELETE"))}:
            for _, _, _, plan in db.execute(f"EXPLAIN QUERY PLAN {query}"):
                if (plan.startswith("SCAN ") and not plan[5:].startswith(allowed)) or "FOR IN-OPERATOR" in plan:
                    wrong.add((plan, query))
    db.close()
    assert len(queries) > 50
    assert wrong == set()
