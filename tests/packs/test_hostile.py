"""Files that are nearly packs: each is refused with a typed error, and the store is as it was (B12, B13, B16, B17)."""

from __future__ import annotations

import io
import pickle
import struct
import subprocess
import sys
import tarfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import zstandard

from agentkv.errors import AgentKVError, BadSignature, InvalidPack, UsageError
from agentkv.io.hashing import canonical_json, sha256
from agentkv.packs import Trust, import_pack, open_pack
from agentkv.packs.check import check
from agentkv.packs.format import INDEX, INDEX_MAGIC, SIGNATURE, SIGNATURE_MAGIC, PackLimits
from agentkv.packs.importing import admit, store_pack
from agentkv.store.catalog import BlockStore
from agentkv.store.format import seal
from tests.store.blocks import contents

from .packing import Members, archive, body_of, key, members_of, rebuilt, resealed_manifest, small_pack

REPOSITORY = Path(__file__).resolve().parents[2]


@pytest.fixture
def refused(tmp_path: Path, store: BlockStore, trust: Trust) -> Callable[..., Any]:
    """Import bytes that must be refused; the error. Nothing may change in the store or beside it."""
    before = contents(store.root)

    def attempt(data: bytes, kind: type[AgentKVError] = InvalidPack, **how: Any) -> Any:
        path = tmp_path / "hostile.akvpack"
        path.write_bytes(data)
        files = sorted(tmp_path.iterdir())
        with pytest.raises(kind) as caught:
            import_pack(path, store, fingerprint=None, trust=trust, **how)
        assert contents(store.root) == before
        assert sorted(tmp_path.iterdir()) == files
        return caught.value

    return attempt


def test_every_byte_flipped(tmp_path: Path, store: BlockStore, trust: Trust) -> None:
    data = small_pack(tmp_path, signer=key()).read_bytes()
    before, path = contents(store.root), tmp_path / "flipped"
    path.write_bytes(data)
    with path.open("r+b", buffering=0) as file:
        for at, byte in enumerate(data):
            _set(file, at, byte ^ (1 << at % 8))
            with pytest.raises((InvalidPack, BadSignature)):
                import_pack(path, store, fingerprint=None, trust=trust)
            _set(file, at, byte)
    assert path.read_bytes() == data
    assert contents(store.root) == before


def _set(file: Any, at: int, byte: int) -> None:
    file.seek(at)
    file.write(bytes([byte]))


def test_truncated_and_extended(pack: Path, refused: Callable[..., Any]) -> None:
    data = pack.read_bytes()
    cuts = {0, 1, 511, len(data) - 1, len(data) - 512, len(data) - 1024, *range(0, len(data), 512)}
    for cut in sorted(cuts):
        refused(data[:cut])
    for more in (b"\0", b"x", bytes(512), bytes(10_240), data):
        refused(data + more)


@pytest.mark.parametrize("change", ["swap", "twice", "drop", "rename", "more"])
def test_members_in_another_order_or_number(pack: Path, refused: Callable[..., Any], change: str) -> None:
    data = pack.read_bytes()
    members = members_of(data)
    for at in range(1, len(members)):
        made = list(members)
        if change == "swap":
            made[at - 1], made[at] = made[at], made[at - 1]
        elif change == "twice":
            made.insert(at, made[at])
        elif change == "drop":
            del made[at]
        elif change == "rename":
            made[at] = (made[at][0].replace("a", "b").replace("0", "1"), made[at][1])
        else:
            made.insert(at, ("segments/" + "ab" * 32 + ".seg", b"more"))
        if made == members:
            continue
        refused(archive(made))
        if (change, at) == ("swap", 1) or (change == "drop" and members[at][0].endswith(".txt")):
            continue  # a pack without its texts is one, if its index says so
        # and once more with an index that agrees
        refused(rebuilt(data, lambda _, made=made: [item for item in made if item[0] != INDEX]))  # type: ignore[misc]


@pytest.mark.parametrize(
    "name",
    [
        "../evil.txt",
        "/abs.txt",
        "C:\\x.txt",
        "segments/..\\..\\y",
        "manifests/../../x.json",
        "segments/x.seg",
        "lnk/z",
        "segments/" + "AB" * 32 + ".seg",
        "sources/" + "ab" * 32 + ".json",
        "x/" + "ab" * 32 + ".seg",
        "pack.json",
    ],
)
def test_names_that_lead_elsewhere(pack: Path, refused: Callable[..., Any], name: str) -> None:
    error = refused(rebuilt(pack.read_bytes(), lambda members: [*members, (name, b"evil")]))
    assert error.member == name
    assert name in error.message


@pytest.mark.parametrize("kind", [b"1", b"2", b"3", b"4", b"5", b"6", b"7", b"g", b"x", b"L", b"K", b"S", b"\0"])
@pytest.mark.parametrize("which", [0, 1, 2])
def test_links_directories_and_extensions(pack: Path, refused: Callable[..., Any], kind: bytes, which: int) -> None:
    data = bytearray(pack.read_bytes())
    at = [at for at in range(0, len(data), 512) if data[at + 257 : at + 262] == b"ustar"][which]
    head = data[at : at + 148] + b" " * 8 + kind + data[at + 157 : at + 512]
    data[at : at + 512] = head[:148] + b"%06o\0 " % sum(head) + head[156:]
    assert tarfile.TarInfo.frombuf(bytes(data[at : at + 512]), "ascii", "strict").type == kind
    assert "plain file" in refused(bytes(data)).reason


@pytest.mark.parametrize(
    "fields", [{"mode": 0o600}, {"uid": 5}, {"mtime": 9}, {"uname": "me"}, {"linkname": "x"}, {"name": "PACK.json"}]
)
def test_another_spelling_of_a_header(pack: Path, refused: Callable[..., Any], fields: dict[str, Any]) -> None:
    data = pack.read_bytes()
    info = tarfile.TarInfo.frombuf(data[:512], "ascii", "strict")
    for field, value in fields.items():
        setattr(info, field, value)
    refused(info.tobuf(tarfile.USTAR_FORMAT) + data[512:])


def test_other_archives(refused: Callable[..., Any], pack: Path) -> None:
    for form in (tarfile.PAX_FORMAT, tarfile.GNU_FORMAT):
        buffer = io.BytesIO()
        with tarfile.open(fileobj=buffer, mode="w", format=form) as made:
            for name, data in members_of(pack.read_bytes()):
                info = tarfile.TarInfo(name)
                info.size, info.mtime = len(data), 1.5 if form == tarfile.PAX_FORMAT else 1
                made.addfile(info, io.BytesIO(data))
        refused(buffer.getvalue())
    for junk in (b"", b"\0", bytes(1024), bytes(10_240), b"PK\x03\x04" + bytes(4096), b"x" * 5000):
        refused(junk)


def test_no_pickle_is_loaded(tmp_path: Path, pack: Path, refused: Callable[..., Any]) -> None:
    target = tmp_path / "pwned"
    evil = pickle.dumps(_Evil(str(target)))
    data = pack.read_bytes()
    refused(evil)
    refused(archive([(INDEX, evil)]))
    refused(archive([(INDEX, seal(INDEX_MAGIC, evil))]))
    refused(archive([members_of(data)[0], (SIGNATURE, evil)]))
    for at in range(len(members_of(data)) - 1):
        refused(rebuilt(data, lambda m, at=at: [*m[:at], (m[at][0], evil), *m[at + 1 :]]))  # type: ignore[misc]
    assert not target.exists()


class _Evil:
    def __init__(self, path: str) -> None:
        self.path = path

    def __reduce__(self) -> Any:
        return open, (self.path, "w")


# --- with every outer digest right ---


def _manifest_with(change: Callable[[dict[str, Any]], None], which: int = 1) -> Callable[[Members], Members]:
    """The members with one manifest changed and sealed again."""
    return lambda m: [(n, resealed_manifest(d, change) if i == which else d) for i, (n, d) in enumerate(m)]


@pytest.mark.parametrize(
    "change",
    [
        lambda body: body.update(n_tokens=body["n_tokens"] + 1),
        lambda body: body.update(parent_id=None),
        lambda body: body["tokens"].append(9),
        lambda body: body["segments"].pop(),
        lambda body: body["segments"][0].update(n_bytes=10**9),
        lambda body: body["segments"][0].update(sha256="ab" * 32),
        lambda body: body["fingerprint"]["numerics"].update(threads=3),
        lambda body: body.update(state_sha256="x"),
        lambda body: body.update(more=1),
        lambda body: body["probe"].update(token=-1),
    ],
)
def test_a_manifest_that_is_none(
    pack: Path, refused: Callable[..., Any], change: Callable[[dict[str, Any]], None]
) -> None:
    error = refused(rebuilt(pack.read_bytes(), _manifest_with(change)))
    assert (error.member or "").startswith("manifests/")


@pytest.mark.parametrize(
    "change",
    [
        lambda body: body["names"][0].update(block_id="ab" * 32),
        lambda body: body["names"][0].update(fingerprint_id="ab" * 32),
        lambda body: body["names"][0].update(source="/home/me/x"),
        lambda body: body["names"][0].update(name="None of THESE"),
        lambda body: body["names"][0].update(name=" a"),
        lambda body: body["names"][1].update(name="RETURNS"),
        lambda body: body["names"].reverse(),
        lambda body: body["names"].append(body["names"][1]),
        lambda body: body["names"].clear(),  # then nobody tells of the text
        lambda body: body["blocks"].reverse(),
        lambda body: body["blocks"].pop(),
        lambda body: body["blocks"].append(body["blocks"][0]),
        lambda body: body.update(blocks=[]),
        lambda body: body.update(format=2),
        lambda body: body["members"][0].update(size=8**11),
        lambda body: body["members"][0].update(size=-1),
        lambda body: body["members"][0].update(sha256="ab" * 32),
        lambda body: body["members"].pop(),
    ],
)
def test_an_index_that_is_none(
    pack: Path, refused: Callable[..., Any], change: Callable[[dict[str, Any]], None]
) -> None:
    refused(rebuilt(pack.read_bytes(), index=change))
    refused(rebuilt(pack.read_bytes(), index=change, signer=key()))


def test_a_child_without_its_parent(pack: Path, refused: Callable[..., Any]) -> None:
    def orphan(body: dict[str, Any]) -> None:
        del body["blocks"][0]
        body["names"] = body["names"][:1]

    error = refused(rebuilt(pack.read_bytes(), lambda m: m[1:], orphan))
    assert "parent" in error.reason


def test_a_segment_that_nobody_needs(pack: Path, refused: Callable[..., Any]) -> None:
    def add(members: Members) -> Members:
        at = next(i for i, (name, _) in enumerate(members) if name.startswith("segments/"))
        return [*members[:at], ("segments/" + "0" * 64 + ".seg", members[at][1]), *members[at:]]

    assert refused(rebuilt(pack.read_bytes(), add)).member == "segments/" + "0" * 64 + ".seg"


@pytest.mark.parametrize("text", [b"\xff\xfe", b"other text"])
def test_a_text_that_is_another_or_no_text(pack: Path, refused: Callable[..., Any], text: bytes) -> None:
    data = pack.read_bytes()
    refused(rebuilt(data, lambda m: [(n, text if n.startswith("sources/") else d) for n, d in m]))
    renamed = [(f"licenses/{sha256(text)}.txt", text)]
    if text == b"\xff\xfe":
        refused(rebuilt(data, lambda m: [item for item in m if not item[0].startswith("licenses/")] + renamed))


def segment_with(payload: bytes, codec: int, raw_bytes: int | None = None, stored: int | None = None) -> Any:
    """The members with the first segment's file made again: payload, codec, sizes; its trailer is right."""

    def change(members: Members) -> Members:
        at = next(i for i, (name, _) in enumerate(members) if name.startswith("segments/"))
        head = bytearray(members[at][1][:64])
        head[10] = codec
        if raw_bytes is not None:
            struct.pack_into("<Q", head, 16, raw_bytes)
        struct.pack_into("<Q", head, 24, len(payload) if stored is None else stored)
        body = bytes(head) + payload
        return [*members[:at], (members[at][0], body + bytes.fromhex(sha256(body))), *members[at + 1 :]]

    return change


def test_frames_that_are_not_exactly_one(pack: Path, refused: Callable[..., Any]) -> None:
    data, raw = pack.read_bytes(), bytes(64)
    frame = zstandard.ZstdCompressor(level=19).compress(raw)
    unsized = zstandard.ZstdCompressor(write_content_size=False).compress(raw)
    two = bytes.fromhex("28b52ffd20073900007b2276223a317d") * 2
    for payload in (frame, frame * 2, frame[: len(frame) // 2], frame + b"Z", unsized, two, b"", bytes(16)):
        for codec in (1, 2):
            error = refused(rebuilt(data, segment_with(payload, codec)))
            assert error.member.startswith("segments/")


BOMB = """
import resource, sys
from pathlib import Path
from agentkv.errors import InvalidPack
from agentkv.packs import Trust, import_pack
from agentkv.store.catalog import BlockStore
trust = Trust(Path(sys.argv[1]) / "t")
trust.set_policy("allow-unsigned")
with BlockStore(Path(sys.argv[1]) / "target") as store:
    import_pack(sys.argv[2], store, fingerprint=None, trust=trust)  # the same code, before anything is measured
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    for path in sys.argv[3:]:
        try:
            import_pack(path, store, fingerprint=None, trust=trust)
        except InvalidPack as error:
            print(error.message)
        else:
            raise SystemExit("a bomb was let in")
    growth = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
    assert growth < 32 * 1024, growth
"""


def test_bombs_do_not_grow_the_process(tmp_path: Path, pack: Path) -> None:
    size = 256 << 20
    frame = zstandard.ZstdCompressor(level=19).compress(bytes(size))
    assert len(frame) < 10_000
    data = pack.read_bytes()

    def big(body: dict[str, Any]) -> None:
        body["segments"][0]["n_bytes"] = size

    def consistent(members: Members) -> Members:
        """Manifest, header and frame agree on 256 MiB: only the limit on expansion is left."""
        changed = segment_with(frame, 1, raw_bytes=size)(members)
        first = next(name for name, _ in changed if name.startswith("segments/"))[9:73]

        def grown(body: dict[str, Any]) -> None:
            for ref in body["segments"]:
                if ref["sha256"] == first:
                    ref["n_bytes"] = size

        return [(n, resealed_manifest(d, grown) if n.startswith("manifests/") else d) for n, d in changed]

    bombs = {
        "frame": rebuilt(data, segment_with(frame, 1)),
        "header": rebuilt(data, segment_with(frame, 1, raw_bytes=size)),
        "manifest": rebuilt(data, _manifest_with(big)),
        "all": rebuilt(data, consistent),
        "sizes": rebuilt(data, index=lambda body: [m.update(size=2**30) for m in body["members"]] and None),
    }
    for name, bomb in bombs.items():
        (tmp_path / name).write_bytes(bomb)
    command = [sys.executable, "-c", BOMB, str(tmp_path), str(pack), *(str(tmp_path / name) for name in bombs)]
    done = subprocess.run(command, cwd=REPOSITORY, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert len(lines) == len(bombs)
    assert "no model computes such" in lines[3]


def test_limits_are_checked_first(pack: Path) -> None:
    size = pack.stat().st_size
    for limits in (
        PackLimits(pack_bytes=size - 1),
        PackLimits(index_bytes=100),
        PackLimits(members=3),
        PackLimits(segment_bytes=8),
        PackLimits(text_bytes=3),
        PackLimits(licenses=0),
        PackLimits(fingerprints=0),
        PackLimits(fingerprint_bytes=10),
        PackLimits(expansion=0, expansion_free=10),
    ):
        with pytest.raises(InvalidPack), open_pack(pack, limits=limits) as opened:
            check(opened)


# --- signatures ---


def test_signatures_that_are_not_its_own(tmp_path: Path, refused: Callable[..., Any]) -> None:
    data = small_pack(tmp_path, signer=key()).read_bytes()
    (index, head), (_, signature), *rest = members_of(data)
    other = rebuilt(data, index=lambda body: body["names"].pop(), signer=key())
    moved = members_of(other)[1][1]
    by_another = canonical_json(body_of(signature) | {"key": key(2).public})
    for wrong in (moved, seal(SIGNATURE_MAGIC, by_another)):
        refused(archive([(index, head), (SIGNATURE, wrong), *rest]), BadSignature)
    error = refused(archive([(index, head), (SIGNATURE, moved), *rest]), BadSignature)
    assert error.key == key().public
    for late in (2, len(rest)):
        made = [(index, head), *rest]
        made.insert(late, (SIGNATURE, signature))
        refused(archive(made))


# --- files that are none, or change ---


def test_paths_that_are_no_packs(tmp_path: Path, store: BlockStore, trust: Trust) -> None:
    with pytest.raises(UsageError):
        import_pack(tmp_path / "absent", store, fingerprint=None, trust=trust)
    with pytest.raises(UsageError, match="is a folder; a pack is one file"):
        import_pack(tmp_path, store, fingerprint=None, trust=trust)


@pytest.mark.parametrize("kept", [0, 7, 100, 511, 512, 600])
@pytest.mark.parametrize("signed", [False, True])
def test_a_pack_that_ends_early_names_the_member_that_comes_there(tmp_path: Path, signed: bool, kept: int) -> None:
    whole = small_pack(tmp_path, signer=key() if signed else None)
    data = whole.read_bytes()
    (_, head), (second, _), *_ = members_of(data)
    whole.write_bytes(data[: 512 + len(head) + -len(head) % 512 + kept])
    with pytest.raises(InvalidPack) as caught, open_pack(whole):
        pass
    assert (second == "signature.json") is signed
    is_named = kept > 0 if signed else 0 < kept < 512
    assert caught.value.member == (second if is_named else None)
    if not is_named:
        assert f"{len(whole.read_bytes()):,}" in caught.value.message


def test_a_file_that_changes_after_it_was_checked(pack: Path, store: BlockStore, trust: Trust) -> None:
    data = pack.read_bytes()
    with open_pack(pack) as opened:
        verdict, found = admit(opened, trust=trust)
        at = data.rindex(b"AKVSEG") + 70
        with pack.open("r+b") as file:
            file.seek(at)
            file.write(bytes([data[at] ^ 1]))
        with pytest.raises(InvalidPack, match="nothing was imported"):
            store_pack(opened, found, verdict, store, fingerprint=None)
    assert store.names() == []
    assert list(store.block_ids()) == []
    for block_id in store.block_ids():
        store.verify(block_id)
