"""Packs into stores: what is stored, what is said, what a crash or a second process leaves."""

from __future__ import annotations

import errno
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from agentkv import AgentMemory, FakeEngine
from agentkv.errors import IncompatibleFingerprint, NameConflict, OverBudget, StoreError, UntrustedPack, UsageError
from agentkv.packs import Trust, create_pack, import_pack, open_pack
from agentkv.packs.importing import admit, plan_sources, sources_of
from agentkv.store.catalog import BlockStore
from tests.store.blocks import FINGERPRINT, block, contents, named, temporaries
from tests.store.faults import Fault, injected

from .packing import TEXT, key, small_blocks, small_names, small_pack

REPOSITORY = Path(__file__).resolve().parents[2]


def test_what_is_stored(pack: Path, store: BlockStore, trust: Trust) -> None:
    done = import_pack(pack, store, fingerprint=FINGERPRINT, trust=trust)
    parent, child = (manifest for manifest, _ in small_blocks())
    assert (done.created, done.known, done.kept) == ((parent.block_id, child.block_id), (), ())
    assert (done.names, done.known_names) == (("returns", "prefix"), ())
    assert (done.verdict.decision, done.verdict.signed_by) == ("unsigned", None)
    for manifest, segments in small_blocks():
        assert store.verify(manifest.block_id) == manifest
        got: dict[str, bytes] = {}
        store.read(manifest, lambda ref, raw, got=got: got.update({ref.sha256: raw.tobytes()}))  # type: ignore[misc]
        assert segments.items() <= got.items()
        record = store.imported(manifest.block_id)
        assert record is not None
        assert (record.pack_sha256, record.signed_by, record.decision) == (done.sha256, None, "unsigned")
    expected = [entry.model_copy(update={"source": ""}) for entry in small_names(parent, child)]
    assert sorted(store.names(), key=lambda n: n.name) == expected
    assert store.text(expected[1].source_sha256 or "") == TEXT


def test_again_and_back(tmp_path: Path, pack: Path, store: BlockStore, trust: Trust) -> None:
    import_pack(pack, store, fingerprint=None, trust=trust)
    before = contents(store.root)
    done = import_pack(pack, store, fingerprint=None, trust=trust)
    assert (done.created, len(done.known), done.names, len(done.known_names)) == ((), 2, (), 2)
    assert contents(store.root) == before
    back = create_pack(store, tmp_path / "back", licenses=["Do as you like.\n"])
    assert back.path.read_bytes() == pack.read_bytes()


def test_another_fingerprint(pack: Path, store: BlockStore, trust: Trust) -> None:
    before = contents(store.root)
    other = FINGERPRINT.model_copy(update={"content": FINGERPRINT.content | {"kv": "q8_0"}})
    with pytest.raises(IncompatibleFingerprint, match="kv = f16"):
        import_pack(pack, store, fingerprint=other, trust=trust)
    assert contents(store.root) == before


@pytest.mark.parametrize("replace", [False, True])
def test_a_name_that_is_taken(pack: Path, store: BlockStore, trust: Trust, replace: bool) -> None:
    mine, segments = block([70, 71])
    store.put(mine, segments)
    store.set_name(named(mine, "returns"))
    before = contents(store.root)
    if not replace:
        with pytest.raises(NameConflict, match=mine.block_id[:12]) as caught:
            import_pack(pack, store, fingerprint=None, trust=trust)
        assert "--replace" in caught.value.message
        assert contents(store.root) == before
        return
    import_pack(pack, store, fingerprint=None, trust=trust, replace=True)
    assert {entry.name: entry.block_id for entry in store.names()}["returns"] == small_blocks()[1][0].block_id
    assert store.has(mine.block_id)


def test_a_name_of_another_kind_or_description(pack: Path, store: BlockStore, trust: Trust) -> None:
    parent, segments = small_blocks()[0]
    store.put(parent, segments)
    store.set_name(named(parent, "prefix", "skill"))
    with pytest.raises(NameConflict, match="kind"):
        import_pack(pack, store, fingerprint=None, trust=trust)
    import_pack(pack, store, fingerprint=None, trust=trust, replace=True)
    assert [entry.kind for entry in store.names() if entry.name == "prefix"] == ["text"]
    store.set_name(named(parent, "prefix", "text").model_copy(update={"description": "mine"}))
    with pytest.raises(NameConflict, match="description"):
        import_pack(pack, store, fingerprint=None, trust=trust)


@pytest.mark.parametrize("mine", ["Returns", "RETURNS", "ｒｅｔｕｒｎｓ"])
def test_a_name_too_much_like_another(pack: Path, store: BlockStore, trust: Trust, mine: str) -> None:
    manifest, segments = block([70, 71])
    store.put(manifest, segments)
    store.set_name(named(manifest, mine))
    before = contents(store.root)
    for replace in (False, True):
        with pytest.raises(NameConflict, match=mine):
            import_pack(pack, store, fingerprint=None, trust=trust, replace=replace)
    assert contents(store.root) == before


def test_a_block_with_another_state_stays(tmp_path: Path, pack: Path, store: BlockStore, trust: Trust) -> None:
    mine, segments = block([1, 2, 3, 4], n_bytes=64, salt=9)
    store.put(mine, segments)
    done = import_pack(pack, store, fingerprint=None, trust=trust)
    assert done.kept == (mine.block_id,)
    assert store.manifest(mine.block_id) == mine
    assert store.imported(mine.block_id) is None
    assert store.imported(done.created[0]) is not None


def test_a_trusted_record_is_not_weakened(tmp_path: Path, pack: Path, store: BlockStore, trust: Trust) -> None:
    (tmp_path / "s").mkdir()
    signed = small_pack(tmp_path / "s", signer=key())
    import_pack(pack, store, fingerprint=None, trust=trust)
    trust.add("me", key().public)
    assert import_pack(signed, store, fingerprint=None, trust=trust).verdict.name == "me"
    block_id = small_blocks()[0][0].block_id
    record = store.imported(block_id)
    assert record is not None
    assert (record.decision, record.signed_by) == ("trusted", key().public)
    import_pack(pack, store, fingerprint=None, trust=trust)
    assert store.imported(block_id) == record


def test_the_policy(tmp_path: Path, store: BlockStore, pack: Path) -> None:
    (tmp_path / "s").mkdir()
    signed, trust = small_pack(tmp_path / "s", signer=key()), Trust(tmp_path / "t.json")
    before = contents(store.root)
    with pytest.raises(UntrustedPack, match="--allow-unsigned"):
        import_pack(pack, store, fingerprint=None, trust=trust)
    with pytest.raises(UntrustedPack, match=f"agentkv pack trust add NAME {key().public}"):
        import_pack(signed, store, fingerprint=None, trust=trust)
    assert contents(store.root) == before
    once = import_pack(signed, store, fingerprint=None, trust=trust, allow_unsigned=True)
    assert once.verdict.decision == "unknown-key"
    trust.add("me", key().public)
    assert import_pack(signed, store, fingerprint=None, trust=trust).verdict.decision == "trusted"
    with pytest.raises(UntrustedPack):
        import_pack(pack, store, fingerprint=None, trust=trust)


def test_texts_for_another_model(tmp_path: Path) -> None:
    trust = Trust(tmp_path / "t.json")
    trust.set_policy("allow-unsigned")
    with AgentMemory(tmp_path / "a", FakeEngine(weights="one")) as memory:
        memory.deposit_text("returns", TEXT, "How to return.")
        path = create_pack(memory.store, tmp_path / "p").path
        bare = create_pack(memory.store, tmp_path / "q", sources=False).path
    with AgentMemory(tmp_path / "b", FakeEngine(weights="two")) as memory, open_pack(path) as opened:
        _, found = admit(opened, trust=trust)
        with pytest.raises(IncompatibleFingerprint):
            import_pack(opened, memory.store, fingerprint=memory.engine.fingerprint(), trust=trust)
        texts = sources_of(opened, found)
        assert [(entry.name, text()) for entry, text in texts] == [("returns", TEXT)]
        plan_sources(path, [entry for entry, _ in texts], memory.names())
        for entry, text in texts:
            assert memory.deposit_source(entry, text()).created
        assert memory.ask("How?", skill="returns", max_new=1).tokens.restored > 0
        plan_sources(path, [entry for entry, _ in texts], memory.names())
        memory.deposit_text("returns", "something else")
        with pytest.raises(NameConflict):
            plan_sources(path, [entry for entry, _ in texts], memory.names())
    with open_pack(bare) as opened, pytest.raises(UsageError, match="no source text"):
        sources_of(opened, admit(opened, trust=trust)[1])


IMPORT = """
import sys
from pathlib import Path
from agentkv.packs import Trust, import_pack
from agentkv.store.catalog import BlockStore
with BlockStore(sys.argv[1]) as store:
    print("ready", flush=True)
    sys.stdin.readline()
    import_pack(sys.argv[2], store, fingerprint=None, trust=Trust(Path(sys.argv[3])))
"""


def _start(code: str, *arguments: object, **environment: str) -> subprocess.Popen[str]:
    pipes: Any = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    command = [sys.executable, "-c", code, *map(str, arguments)]
    return subprocess.Popen(command, cwd=REPOSITORY, env={**os.environ, **environment}, **pipes)


def test_four_processes_import_the_same_pack(tmp_path: Path, pack: Path, trust: Trust) -> None:
    target = tmp_path / "shared"
    processes = [_start(IMPORT, target, pack, trust.path) for _ in range(4)]
    for process in processes:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
    ends = [process.communicate("go\n", timeout=60) for process in processes]
    assert [process.returncode for process in processes] == [0] * 4, ends
    with BlockStore(target, create=False) as store:
        assert len(store.names()) == 2
        for block_id in store.block_ids():
            store.verify(block_id)
            assert store.imported(block_id) is not None
        assert temporaries(target) == []


KILLED = """
import os, signal, sys
from agentkv.io import fsio
left, replace = int(os.environ["LEFT"]), fsio.replace
def killing(source, target):
    global left
    left -= 1
    if left < 0:
        os.kill(os.getpid(), signal.SIGKILL)
    replace(source, target)
fsio.replace = killing
"""


def test_killed_at_every_rename_and_run_again(tmp_path: Path, pack: Path, trust: Trust) -> None:
    clean = tmp_path / "clean"
    with BlockStore(clean) as store:
        import_pack(pack, store, fingerprint=None, trust=trust)
    whole = contents(clean)
    for left in range(1, 40):
        target = tmp_path / f"killed{left}"
        process = _start(KILLED + IMPORT, target, pack, trust.path, LEFT=str(left))
        process.communicate("go\n", timeout=60)
        if process.returncode == 0:
            break
        assert process.returncode == -signal.SIGKILL
        if not (target / "agentkv-store.json").exists():
            continue
        with BlockStore(target) as store:
            for block_id in store.block_ids():
                store.verify(block_id)
            for entry in store.names():
                assert store.has(entry.block_id)
            import_pack(pack, store, fingerprint=None, trust=trust)
            store.collect(min_age_s=0.0)
        after = contents(target)
        assert {name: data for name, data in after.items() if name in whole} == whole
        assert not [name for name in after if name.endswith(".tmp")]
    assert left > 5


def test_a_pack_over_the_budget_is_refused_before_anything_goes(tmp_path: Path) -> None:
    engine = FakeEngine()
    with AgentMemory(tmp_path / "theirs", engine) as theirs:
        for k in range(4):
            theirs.deposit_text(f"text-{k}", f"text number {k} " * 20, "A text.")
        pack = create_pack(theirs.store, tmp_path / "texts.akvpack").path
    with AgentMemory(tmp_path / "mine", engine) as mine:
        mine.deposit_text("own", "my own text " * 20, "Mine.")
        budget = mine.store.evict(10**9, dry_run=True).stored + 100
    before = contents(tmp_path / "mine")
    how: Any = {"fingerprint": None, "trust": Trust(tmp_path / "trust.json"), "allow_unsigned": True}
    with BlockStore(tmp_path / "mine", budget_bytes=budget) as store, pytest.raises(OverBudget):
        import_pack(pack, store, **how)
    assert contents(tmp_path / "mine") == before
    with BlockStore(tmp_path / "mine", budget_bytes=4 * budget) as store:
        import_pack(pack, store, **how)
        assert {entry.name for entry in store.names()} >= {f"text-{k}" for k in range(4)}
        for entry in store.names():
            store.verify(entry.block_id)


@pytest.mark.parametrize("error", [OSError(errno.ENOSPC, "No space left on device"), KeyboardInterrupt()])
def test_an_import_that_fails_half_way_leaves_the_store_as_it_was(
    tmp_path: Path, pack: Path, trust: Trust, error: BaseException
) -> None:
    own, segments = block([100, 101])
    template = tmp_path / "template"
    with BlockStore(template) as store:
        store.put(own, segments)
        store.set_name(named(own, "returns"))
        count = Fault(None, lambda: None)
        shutil.copytree(template, tmp_path / "count")
        with BlockStore(tmp_path / "count") as counted, injected(count):
            import_pack(pack, counted, fingerprint=None, trust=trust, replace=True)
    assert len(count.calls) > 40
    for k in range(len(count.calls)):
        root = shutil.copytree(template, tmp_path / str(k))

        def fail() -> None:
            raise error

        with BlockStore(root) as store:
            with injected(Fault(k, fail)), pytest.raises((StoreError, KeyboardInterrupt)):
                import_pack(pack, store, fingerprint=None, trust=trust, replace=True)
            left = {name: data for name, data in contents(root).items() if "lock" not in name}
            before = {name: data for name, data in contents(template).items() if "lock" not in name}
            assert left == before, count.calls[k]
            import_pack(pack, store, fingerprint=None, trust=trust, replace=True)


def test_a_block_that_could_not_be_restored_is_replaced(pack: Path, store: BlockStore, trust: Trust) -> None:
    parent, segments = small_blocks()[0]
    forged = parent.model_copy(update={"state_sha256": "0" * 64})
    store.put(forged, segments)
    store.refuse(forged, "its layout is another")
    import_pack(pack, store, fingerprint=FINGERPRINT, trust=trust)
    assert store.verify(parent.block_id) == parent
    assert store.check().damage == ()
