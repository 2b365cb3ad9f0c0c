"""Literal bytes of format 1: what was written once must be read, and written alike, for ever."""

from __future__ import annotations

from pathlib import Path

import pytest

from agentkv.io.hashing import sha256
from agentkv.memory.threadlog import ThreadLog
from agentkv.records import (
    Ancestor,
    EngineChoice,
    Exactness,
    Fingerprint,
    Import,
    Manifest,
    ModelName,
    NamedBlock,
    Pin,
    Planes,
    Probe,
    Refused,
    Section,
    SegmentRef,
    SelfTest,
    StateLayout,
    StoreSettings,
    ThreadEntry,
)
from agentkv.store.catalog import BlockStore
from agentkv.store.format import (
    THREAD_MAGIC,
    Limits,
    Malformed,
    decode_ancestor,
    decode_entry,
    decode_manifest,
    decode_mark,
    decode_model,
    decode_name,
    decode_selftest,
    decode_text,
    encode_ancestor,
    encode_entry,
    encode_manifest,
    encode_mark,
    encode_marker,
    encode_model,
    encode_name,
    encode_record,
    encode_selftest,
    encode_text,
    thread_key,
)
from agentkv.store.segments import FileSegmentStore

GOLDEN_MARKER = b'{"format":1}\n'

RAW = bytes.fromhex("003c00400042004400450046")  # 1.0, 2.0, 3.0, 4.0, 5.0, 6.0 in half precision
RAW_DIGEST = "998aaf9742cf3f3881d8d90dff05f1c1b931c8fc501647bb1badea090ee55177"
GOLDEN_RAW = bytes.fromhex(
    "414b565345470d0a01000002000000000c000000000000000c00000000000000998aaf9742cf3f3881d8d90dff05f1c1"
    "b931c8fc501647bb1badea090ee55177003c0040004200440045004671378536986da7bd0b89e0e1dc8fab23add91d86"
    "57e73a65eccc5102ca15647b"
)

ZEROS = bytes(64) + bytes.fromhex("003c") * 32
ZEROS_DIGEST = "129d3847051aca1c12547e907c0c30c438bb7736a57dc5ce86f42a71722a614a"
GOLDEN_PLANES = bytes.fromhex(
    "414b565345470d0a010002020000000080000000000000001600000000000000129d3847051aca1c12547e907c0c30c4"
    "38bb7736a57dc5ce86f42a71722a614a28b52ffd20806d00002000003c0003100094a4b9221693ecea428c42e7696d11"
    "3fa25510a59b7eca5b786c9d8020c2441f358215bca9"
)

BLANK_DIGEST = "38723a2e5e8a17aa7950dc008209944e898f69a7bd10a23c839d341e935fd5ca"
GOLDEN_ZEROS = bytes.fromhex(
    "414b565345470d0a01000302000000008000000000000000000000000000000038723a2e5e8a17aa7950dc008209944e"
    "898f69a7bd10a23c839d341e935fd5ca3950fca5f4961f3b9d7075e8869fb124c5d1302d7550d55958d43a2b8743186b"
)

BLOCK_ID = "082448a69abd50e81b99e72aca0ab511905a564e9cef5e424c8682fb383c246e"
GOLDEN_MANIFEST = (
    b'agentkv-manifest 1 e9ee66fb42877db77678588d6e9cb02c087ecd6f5d2978fb94e9c481c3d01e71\n{"bloc'
    b'k_id":"082448a69abd50e81b99e72aca0ab511905a564e9cef5e424c8682fb383c246e","exactness":"exac'
    b't","fingerprint":{"content":{"lora":["a","b"],"model":"smol","none":null,"rope":10000.0,"s'
    b'wa":false},"numerics":{"build":8123}},"format":1,"layout":{"architecture":"llama","section'
    b's":[{"fixed_bytes":0,"keys":[{"channels":1,"ggml_type":1,"row_bytes":4,"token_major":true}'
    b'],"kind":"attention","v_trans":false,"values":[],"window":0}]},"n_tokens":3,"parent_id":nu'
    b'll,"probe":{"sha256":"cdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcd","s'
    b'teps":32,"token":7},"segments":[{"element_bytes":2,"n_bytes":12,"section":0,"sha256":"998a'
    b'af9742cf3f3881d8d90dff05f1c1b931c8fc501647bb1badea090ee55177","start":0,"stop":3}],"state_'
    b'sha256":"998aaf9742cf3f3881d8d90dff05f1c1b931c8fc501647bb1badea090ee55177","tokens":[1,2,3'
    b"]}"
)

TEXT = "Straße\n"
TEXT_DIGEST = "ec05e2ce712b0c64e8769d0c7e7336177523852e30d4561cf6b283e8d7de8dd8"
NAME_KEY = "1148a536194ccaac97f086a2890997b22f283d83eea1f163da9e4fa80fb794a1"
GOLDEN_NAME = (
    b'agentkv-name 1 377202c844756412beb3f640a163b66b13acfbc8d116c3254f8e1ca268bf725e\n{"block_'
    b'id":"082448a69abd50e81b99e72aca0ab511905a564e9cef5e424c8682fb383c246e","description":"Sa'
    b'ys \\"hi\\".","fingerprint_id":"248d2ab7b7aeeeef2ac1f55d35d5d6d05a02d53e30364dcf52210157e1'
    b'bfd212","format":1,"kind":"skill","license":"MIT","name":"stra\xc3\x9fe","source":"","source_s'
    b'ha256":"ec05e2ce712b0c64e8769d0c7e7336177523852e30d4561cf6b283e8d7de8dd8"}'
)
GOLDEN_TEXT = b"agentkv-text 1 ec05e2ce712b0c64e8769d0c7e7336177523852e30d4561cf6b283e8d7de8dd8\nStra\xc3\x9fe\n"
GOLDEN_PIN = (
    b'agentkv-pin 1 a1ea6fe334ef24cbd2b6e19b0295775fc4e9be37f9d3816857e87a6a3d92844c\n{"block_i'
    b'd":"082448a69abd50e81b99e72aca0ab511905a564e9cef5e424c8682fb383c246e","format":1}'
)
GOLDEN_REFUSED = (
    b"agentkv-refused 1 8d8048102e9386f8f904e9915810888e6815d5e288a43b4492a2c467c3c5e6"
    b'30\n{"block_id":"082448a69abd50e81b99e72aca0ab511905a564e9cef5e424c8682fb383c246e'
    b'","format":1,"reason":"its layout is another","state_sha256":"998aaf9742cf3f3881'
    b'd8d90dff05f1c1b931c8fc501647bb1badea090ee55177"}'
)
GOLDEN_IMPORT = (
    b'agentkv-import 1 3c5f024332753fba307aa206b1a2e3d03d8c83313894a3fbcd204138d6ee2cfd\n{"bloc'
    b'k_id":"082448a69abd50e81b99e72aca0ab511905a564e9cef5e424c8682fb383c246e","decision":"tru'
    b'sted","format":1,"pack_sha256":"abababababababababababababababababababababababababababab'
    b'abababab","signed_by":"ed25519:cdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdc'
    b'dcdcdcd"}'
)
GOLDEN_SETTINGS = (
    b'agentkv-settings 1 58ab610c152f570dc4c254b8e06c82acdf052599138715904f57d7578f9c5259\n{"bu'
    b'dget_bytes":1000000000,"format":1}'
)

GOLDEN_ENGINE = (
    b'agentkv-settings 1 f81f2861634659b4c0e7e0f5049a3abe2912e152634f830866f92427c483f7e6\n{"bu'
    b'dget_bytes":null,"engine":{"flash_attention":true,"gpu_layers":null,"kv_type":"q8_0","mod'
    b'el":"smollm2-135m","threads":null,"window":null},"format":1}'
)
GOLDEN_MODEL = (
    b'agentkv-model 1 537a3498db07d35f0cde5f45622754c93d7aa88f1714d408e34827313e2f75da\n{"form'
    b'at":1,"model_sha256":"abababababababababababababababababababababababababababababababab","'
    b'name":"stra\xc3\x9fe"}'
)

GOLDEN_ANCESTOR = (
    b'agentkv-ancestor 1 5bee5cc667a4861170256e658c3429b944f34f86c8120ff57336603b692e2231\n{"bloc'
    b'k_id":"082448a69abd50e81b99e72aca0ab511905a564e9cef5e424c8682fb383c246e","fingerprint_id":'
    b'"248d2ab7b7aeeeef2ac1f55d35d5d6d05a02d53e30364dcf52210157e1bfd212","format":1,"n_tokens":3'
    b',"parent_id":null,"tokens":[1,2,3]}'
)
GOLDEN_SELFTEST = (
    b'agentkv-selftest 1 16369c5ab4fcd04c6d8af00051f9a0354a7b2aec6a0ca17202c8e638e0753376\n{"fing'
    b'erprint_id":"248d2ab7b7aeeeef2ac1f55d35d5d6d05a02d53e30364dcf52210157e1bfd212","format":1,'
    b'"lengths":[96,288],"steps":48}'
)
GOLDEN_THREAD = (
    b'agentkv-thread 1 4b72993ec75b6949e4d793be4aa8fc1c971c2a50c1b5be493eb5d1c19bfe1d8d\n{"after"'
    b':1,"answer":"So.","checkpoint":"082448a69abd50e81b99e72aca0ab511905a564e9cef5e424c8682fb38'
    b'3c246e","finish":"stop","format":1,"question":"Wie?","seq":2,"skill":"stra\xc3\x9fe","thread_id"'
    b':"stra\xc3\x9fe"}'
)
THREAD_KEY = "a8fde7f1d39275c6b63a5f403f1d99205762481bcb48b0d687ef7434043c8003"

MANIFEST = Manifest(
    block_id=BLOCK_ID,
    parent_id=None,
    fingerprint=Fingerprint(
        content={"model": "smol", "rope": 10000.0, "swa": False, "lora": ["a", "b"], "none": None},
        numerics={"build": 8123},
    ),
    tokens=(1, 2, 3),
    n_tokens=3,
    layout=StateLayout(
        architecture="llama",
        sections=(
            Section(
                kind="attention",
                keys=(Planes(ggml_type=1, token_major=True, row_bytes=4),),
            ),
        ),
    ),
    segments=(SegmentRef(section=0, start=0, stop=3, sha256=RAW_DIGEST, n_bytes=12, element_bytes=2),),
    state_sha256=RAW_DIGEST,
    exactness=Exactness.EXACT,
    probe=Probe(steps=32, token=7, sha256="cd" * 32),
)
NAMED = NamedBlock(
    kind="skill",
    name="straße",
    fingerprint_id=MANIFEST.fingerprint.id,
    block_id=BLOCK_ID,
    description='Says "hi".',
    source_sha256=TEXT_DIGEST,
    license="MIT",
)
PIN = Pin(block_id=BLOCK_ID)
REFUSED = Refused(block_id=BLOCK_ID, state_sha256=RAW_DIGEST, reason="its layout is another")
IMPORT = Import(block_id=BLOCK_ID, pack_sha256="ab" * 32, signed_by="ed25519:" + "cd" * 32, decision="trusted")
SETTINGS = StoreSettings(budget_bytes=10**9)
ENGINE = StoreSettings(engine=EngineChoice(model="smollm2-135m", kv_type="q8_0", flash_attention=True))
MODEL = ModelName(model_sha256="ab" * 32, name="straße")
ANCESTOR = Ancestor(
    block_id=BLOCK_ID, parent_id=None, fingerprint_id=MANIFEST.fingerprint.id, tokens=(1, 2, 3), n_tokens=3
)
SELFTEST = SelfTest(fingerprint_id=MANIFEST.fingerprint.id, steps=48, lengths=(96, 288))
ENTRY = ThreadEntry(
    thread_id="straße",
    seq=2,
    after=1,
    question="Wie?",
    answer="So.",
    skill="straße",
    finish="stop",
    checkpoint=BLOCK_ID,
)


def test_the_marker() -> None:
    assert encode_marker() == GOLDEN_MARKER


def test_a_raw_segment_is_written_and_read_as_ever(tmp_path: Path) -> None:
    assert sha256(RAW) == RAW_DIGEST
    store = FileSegmentStore(tmp_path / "segments", codec="raw")
    ref = MANIFEST.segments[0]
    store.put(ref, RAW)
    path = tmp_path / "segments" / RAW_DIGEST[:2] / f"{RAW_DIGEST}.seg"
    assert path.read_bytes() == GOLDEN_RAW
    path.write_bytes(GOLDEN_RAW)
    found = store.get(ref, deep=True)
    assert found is not None
    assert found.tobytes() == RAW


@pytest.mark.parametrize("codec", ["planes", "zstd", "raw"])
def test_a_segment_in_planes_is_read_as_ever(tmp_path: Path, codec: str) -> None:
    # Not compared on writing: another zstd may compress otherwise, and must still be read.
    assert sha256(ZEROS) == ZEROS_DIGEST
    store = FileSegmentStore(tmp_path / "segments", codec=codec)
    path = tmp_path / "segments" / ZEROS_DIGEST[:2] / f"{ZEROS_DIGEST}.seg"
    path.parent.mkdir(parents=True)
    path.write_bytes(GOLDEN_PLANES)
    ref = SegmentRef(section=0, start=0, stop=3, sha256=ZEROS_DIGEST, n_bytes=128, element_bytes=2)
    found = store.get(ref, deep=True)
    assert found is not None
    assert found.tobytes() == ZEROS


@pytest.mark.parametrize("codec", ["planes", "zstd", "raw"])
def test_a_segment_of_zeros_is_written_and_read_as_ever(tmp_path: Path, codec: str) -> None:
    store = FileSegmentStore(tmp_path / "segments", codec=codec)
    ref = SegmentRef(section=0, start=0, stop=3, sha256=BLANK_DIGEST, n_bytes=128, element_bytes=2)
    assert sha256(bytes(128)) == BLANK_DIGEST
    store.put(ref, bytes(128))
    path = tmp_path / "segments" / BLANK_DIGEST[:2] / f"{BLANK_DIGEST}.seg"
    assert path.read_bytes() == GOLDEN_ZEROS
    for deep in (False, True):
        found = store.get(ref, deep=deep)
        assert found is not None
        assert found.tobytes() == bytes(128)


def test_a_manifest_and_a_name_are_written_and_read_as_ever() -> None:
    assert encode_manifest(MANIFEST, Limits()) == GOLDEN_MANIFEST
    assert decode_manifest(GOLDEN_MANIFEST, BLOCK_ID, Limits()) == MANIFEST
    assert encode_name(NAMED, Limits()) == GOLDEN_NAME
    assert decode_name(GOLDEN_NAME, NAME_KEY, Limits()) == NAMED


def test_texts_and_marks_are_written_and_read_as_ever() -> None:
    assert encode_text(TEXT, Limits()) == (TEXT_DIGEST, GOLDEN_TEXT)
    assert decode_text(GOLDEN_TEXT, TEXT_DIGEST) == TEXT
    marks = (PIN, GOLDEN_PIN), (IMPORT, GOLDEN_IMPORT), (REFUSED, GOLDEN_REFUSED), (SETTINGS, GOLDEN_SETTINGS)
    for record, golden in (*marks, (ENGINE, GOLDEN_ENGINE)):
        assert encode_mark(record) == golden
        assert decode_mark(type(record), golden) == record


def test_ancestors_self_tests_and_thread_entries_are_written_and_read_as_ever() -> None:
    assert encode_ancestor(ANCESTOR) == GOLDEN_ANCESTOR
    assert decode_ancestor(GOLDEN_ANCESTOR, BLOCK_ID, Limits()) == ANCESTOR
    assert encode_selftest(SELFTEST) == GOLDEN_SELFTEST
    assert decode_selftest(GOLDEN_SELFTEST, MANIFEST.fingerprint.id) == SELFTEST
    assert encode_model(MODEL) == GOLDEN_MODEL
    assert decode_model(GOLDEN_MODEL, "ab" * 32) == MODEL
    with pytest.raises(Malformed):
        decode_model(GOLDEN_MODEL, "cd" * 32)
    assert thread_key("straße") == THREAD_KEY
    assert encode_entry(ENTRY, Limits()) == GOLDEN_THREAD
    assert decode_entry(GOLDEN_THREAD, THREAD_KEY, 2, Limits()) == ENTRY


@pytest.mark.parametrize(
    "change",
    [
        {"n_tokens": 4},
        {"tokens": (1, 2)},
        {"parent_id": "ab" * 32},
        {"fingerprint_id": "ab" * 32},
        {"n_tokens": 2**23},
        {"block_id": "ab" * 32},
    ],
)
def test_an_ancestor_that_is_not_what_its_name_says_is_refused(change: dict[str, object]) -> None:
    data = encode_ancestor(ANCESTOR.model_copy(update=change))
    with pytest.raises(Malformed):
        decode_ancestor(data, BLOCK_ID, Limits())


@pytest.mark.parametrize("change", [{"seq": 3}, {"after": 2}, {"thread_id": "strasse"}, {"question": None}])
def test_a_thread_entry_that_is_not_in_its_place_is_refused(change: dict[str, object]) -> None:
    entry = ENTRY.model_copy(update=change)
    with pytest.raises(Malformed):
        decode_entry(encode_record(THREAD_MAGIC, entry), THREAD_KEY, 2, Limits())


def test_a_whole_golden_store_opens(tmp_path: Path) -> None:
    for path, data in {
        "agentkv-store.json": GOLDEN_MARKER,
        f"segments/{RAW_DIGEST[:2]}/{RAW_DIGEST}.seg": GOLDEN_RAW,
        f"manifests/{BLOCK_ID[:2]}/{BLOCK_ID}.json": GOLDEN_MANIFEST,
        f"names/{NAME_KEY}.json": GOLDEN_NAME,
        f"texts/{TEXT_DIGEST[:2]}/{TEXT_DIGEST}.txt": GOLDEN_TEXT,
        f"pins/{BLOCK_ID}.json": GOLDEN_PIN,
        f"imports/{BLOCK_ID[:2]}/{BLOCK_ID}.json": GOLDEN_IMPORT,
        f"selftests/{MANIFEST.fingerprint.id}.json": GOLDEN_SELFTEST,
        f"threads/{THREAD_KEY}/00000002.json": GOLDEN_THREAD,
        f"models/{'ab' * 32}.json": GOLDEN_MODEL,
        "agentkv-settings.json": GOLDEN_SETTINGS,
    }.items():
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).write_bytes(data)
    with BlockStore(tmp_path, create=False) as store:
        assert store.verify(BLOCK_ID) == MANIFEST
        assert store.names() == [NAMED]
        assert store.text(TEXT_DIGEST) == TEXT
        assert store.pinned() == {BLOCK_ID}
        assert store.imported(BLOCK_ID) == IMPORT
        assert store.budget == SETTINGS.budget_bytes
        assert store.engine_choice == EngineChoice()
        assert store.model_name("ab" * 32) == "straße"
        assert store.selftest(MANIFEST.fingerprint.id) == SELFTEST
        assert ThreadLog(store.files, "straße").read(2) == ENTRY
        assert not store.check().damage
