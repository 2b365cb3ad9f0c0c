"""Sound packs, manifests, names, segments and key stores, and ways to make them unsound.

Half of the mutations are blind; the other half know the format and make every outer digest right again, so that the
checks after the digests are reached. ``Fuzzer.one`` runs one input through its reader: a typed error or a valid
result may come out, nothing else.
"""

from __future__ import annotations

import hashlib
import io
import shutil
import struct
import tempfile
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import orjson
import zstandard

from agentkv.errors import AgentKVError
from agentkv.io.hashing import sha256
from agentkv.packs import Trust, create_pack, import_pack
from agentkv.packs.check import check
from agentkv.packs.format import (
    SIGNATURE_MAGIC,
    SIGNED_CONTEXT,
    PackLimits,
    decode_segment,
    decode_signature,
    encode_segment,
)
from agentkv.packs.reader import Pack
from agentkv.records import SegmentRef
from agentkv.signing.trust import TrustedKey, TrustRecord
from agentkv.store import format as formats
from agentkv.store.catalog import BlockStore
from agentkv.store.format import Limits, Malformed, decode_record, encode_record
from tests.store.blocks import block, named

from .packing import Members, archive, body_of, fill, json_bytes, key, members_of, rebuilt

ODD: list[Any] = [None, True, -1, 0, 1, 2, 2**31, 2**53, 2**63, 2**64 - 1, 0.5, 1e308, "", "x", "../evil", "ab" * 32]
ODD += ["0" * 64, "\0", "é", "e\u0301", "A" * 70_000, [], {}, [[]], {"a": {}}, "ed25519:" + "0" * 64, "skill", "none"]
LIMITS = Limits()


class Fuzzer:
    """Inputs by number; ``outcomes`` counts what came of them, by target, kind of mutation and result."""

    def __init__(self, seed: int) -> None:
        self.random, self.outcomes = Random(seed), Counter[tuple[str, str, str]]()
        self._folder = Path(tempfile.mkdtemp(prefix="agentkv-fuzz-"))
        self._trust = Trust(self._folder / "trust.json")
        self._trust.set_policy("allow-unsigned")
        self._packs = self._make_packs()
        self._parts = [item for pack in self._packs for item in members_of(pack)]
        self._targets: list[tuple[str, Callable[[], str]]] = [
            ("pack, raw", self._raw_pack),
            ("pack, index", self._index),
            ("pack, member", self._member),
            ("pack, members", self._members),
            ("pack, forged state", self._forged),
            ("pack, signature", self._pack_signature),
            ("manifest", self._manifest),
            ("name", self._name),
            ("segment", self._segment),
            ("signature", self._signature),
            ("trust", self._trust_file),
        ]
        self._accepted = 0

    def close(self) -> None:
        shutil.rmtree(self._folder, ignore_errors=True)

    def one(self, random: Random | None = None) -> None:
        """One input. Raises whatever is not a typed error."""
        if random is not None:
            self.random = random
        name, target = self._targets[self.random.randrange(len(self._targets))]
        self.kind = ""
        try:
            result = target()
        except (AgentKVError, Malformed) as error:
            result = type(error).__name__
        self.outcomes[name, self.kind, result] += 1

    # --- targets ---

    def _read_pack(self, data: bytes) -> str:
        pack = Pack(Path("fuzzed"), io.BytesIO(data), len(data), PackLimits(), LIMITS)
        check(pack)
        self._accepted += 1
        if self._accepted % 50 == 1:
            self._import(pack)
        return "accepted"

    def _import(self, pack: Pack) -> None:
        """What was let in has to be whole in a store too."""
        with tempfile.TemporaryDirectory(dir=self._folder) as folder, BlockStore(folder) as store:
            import_pack(pack, store, fingerprint=None, trust=self._trust)
            for block_id in store.block_ids():
                store.verify(block_id)

    def _raw_pack(self) -> str:
        valid = self.random.choice(self._packs)
        data = self._blind(valid)
        result = self._read_pack(data)
        assert data == valid, f"a pack with other bytes was accepted ({self.kind})"
        return result

    def _index(self) -> str:
        self.kind = "fields, resealed"
        signer = key() if self.random.random() < 0.3 else None
        return self._read_pack(rebuilt(self.random.choice(self._packs), index=self._fields, signer=signer))

    def _member(self) -> str:
        """One member changed; its digest in the index is the right one."""

        def change(members: Members) -> Members:
            at = self.random.randrange(len(members))
            name, data = members[at]
            folder = name.split("/")[0]
            if folder == "manifests" and self.random.random() < 0.8:
                data = self._resealed("agentkv-manifest 1", data)
            elif folder == "segments" and self.random.random() < 0.8:
                data = self._segment_file(data)
            else:
                data = self._blind(data)
            return [*members[:at], (name, data), *members[at + 1 :]]

        return self._read_pack(rebuilt(self.random.choice(self._packs), change))

    def _members(self) -> str:
        """Members in another order, twice, absent or renamed; the index is that of the result."""

        def change(members: Members) -> Members:
            made, at, other = list(members), *(self.random.randrange(len(members)) for _ in "ab")
            self.kind = self.random.choice(["swap", "twice", "drop", "rename", "foreign", "raw archive"])
            match self.kind:
                case "swap":
                    made[at], made[other] = made[other], made[at]
                case "twice":
                    made.insert(other, made[at])
                case "drop":
                    del made[at]
                case "rename":
                    made[at] = (self._bad_name(made[at][0]), made[at][1])
                case "foreign":
                    made.insert(at, self.random.choice(self._parts))
            return made

        data = rebuilt(self.random.choice(self._packs), change)
        if self.kind == "raw archive":
            members = members_of(data)
            self.random.shuffle(members)
            data = archive(members)
        return self._read_pack(data)

    def _forged(self) -> str:
        """Other state bytes under their own right digests everywhere: valid to the eye, only a model sees it."""
        self.kind = "all digests right"

        def change(members: Members) -> Members:
            at = self.random.choice([i for i, (name, _) in enumerate(members) if name.startswith("segments/")])
            old = members[at][0][9:73]
            width, size = self.random.choice([1, 2, 4]), self.random.choice([0, 1, 2, 64, 4096])
            raw = np.frombuffer(self.random.randbytes(size), np.uint8) & np.uint8(self.random.choice([0, 1, 255]))
            digest = sha256(raw.tobytes())
            ref = SegmentRef(section=0, start=0, stop=1, sha256=digest, n_bytes=size, element_bytes=width)  # type: ignore[arg-type]
            file = b"".join(bytes(p) for p in encode_segment(raw, ref, self.random.choice(["planes", "zstd", "raw"])))

            def swap(body: dict[str, Any]) -> None:
                for entry in body["segments"]:
                    if entry["sha256"] == old:
                        entry |= {"sha256": digest, "n_bytes": size, "element_bytes": width}

            made = []
            for name, data in members:
                if name.startswith("manifests/"):
                    body = body_of(data)
                    swap(body)
                    data = formats.seal("agentkv-manifest 1", json_bytes(body))
                made.append((name, data) if name[9:73] != old else (f"segments/{digest}.seg", file))
            heads = [item for item in made if not item[0].startswith("segments/")]
            segments = sorted({item for item in made if item[0].startswith("segments/")})
            count = sum(name.startswith("manifests/") for name, _ in heads)
            return heads[:count] + segments + heads[count:]

        return self._read_pack(rebuilt(self.random.choice(self._packs), change, signer=key()))

    def _pack_signature(self) -> str:
        """A signed pack with another signature, or an honest one over another index."""
        (index, head), *rest = members_of(rebuilt(self._packs[1], signer=key()))
        (name, data), *rest = rest
        self.kind = self.random.choice(["fields", "of another pack", "by another key", "blind"])
        match self.kind:
            case "fields":
                data = self._resealed(SIGNATURE_MAGIC, data)
            case "of another pack":
                data = encode_record(SIGNATURE_MAGIC, key().sign(self.random.randbytes(8), SIGNED_CONTEXT))
            case "by another key":
                other = key(2).sign(head, SIGNED_CONTEXT).model_copy(update={"key": key().public})
                data = encode_record(SIGNATURE_MAGIC, other)
            case _:
                data = self._blind(data)
        return self._read_pack(archive([(index, head), (name, data), *rest]))

    def _manifest(self) -> str:
        name, data = self.random.choice([item for item in self._parts if item[0].startswith("manifests/")])
        data = self._resealed("agentkv-manifest 1", data) if self.random.random() < 0.7 else self._blind(data)
        formats.decode_manifest(data, name[10:74], LIMITS)
        return "accepted"

    def _name(self) -> str:
        entry = named(block([1, 2])[0], self.random.choice(["a", "straße", "x" * 500]))
        data = formats.encode_name(entry, LIMITS)
        data = self._resealed("agentkv-name 1", data) if self.random.random() < 0.7 else self._blind(data)
        formats.decode_name(data, formats.name_key(entry.kind, entry.name, entry.fingerprint_id), LIMITS)
        return "accepted"

    def _segment(self) -> str:
        name, data = self.random.choice([item for item in self._parts if item[0].startswith("segments/")])
        raw_bytes = struct.unpack_from("<Q", data, 16)[0]
        ref = SegmentRef(section=0, start=0, stop=1, sha256=name[9:73], n_bytes=raw_bytes, element_bytes=2)
        data = self._segment_file(data) if self.random.random() < 0.8 else self._blind(data)
        decode_segment(np.frombuffer(data, np.uint8), ref)
        return "accepted"

    def _signature(self) -> str:
        data = encode_record(SIGNATURE_MAGIC, key().sign(b"x", SIGNED_CONTEXT))
        data = self._resealed(SIGNATURE_MAGIC, data) if self.random.random() < 0.7 else self._blind(data)
        decode_signature(data)
        return "accepted"

    def _trust_file(self) -> str:
        record = TrustRecord(keys=(TrustedKey(name="me", key=key().public),))
        data = encode_record("agentkv-trust 1", record)
        data = self._resealed("agentkv-trust 1", data) if self.random.random() < 0.7 else self._blind(data)
        decode_record("agentkv-trust 1", data, TrustRecord)
        return "accepted"

    # --- mutations ---

    def _blind(self, data: bytes) -> bytes:
        made = bytearray(data)
        self.kind = self.random.choice(["flip", "set", "cut", "insert", "delete", "copy", "zero", "number"])
        for _ in range(self.random.choice([1, 1, 1, 2, 8])):
            at, n = self.random.randrange(len(made) + 1), self.random.choice([1, 2, 8, 64, 512, 600])
            match self.kind:
                case "flip" if at < len(made):
                    made[at] ^= 1 << self.random.randrange(8)
                case "set" if at < len(made):
                    made[at] = self.random.randrange(256)
                case "cut":
                    del made[at:]
                case "insert":
                    made[at:at] = self.random.randbytes(n)
                case "delete":
                    del made[at : at + n]
                case "copy":
                    made[at : at + n] = made[: self.random.randrange(len(made) + 1)][-n:]
                case "zero":
                    made[at : at + n] = bytes(n)
                case "number":
                    odd = self.random.choice([0, 1, 2**31 - 1, 2**32, 2**63, 2**64 - 1])
                    made[at : at + 8] = struct.pack("<Q", odd)
        return bytes(made)

    def _resealed(self, magic: str, data: bytes) -> bytes:
        """Another body under the right seal: other fields, or JSON that is not canonical, or no JSON."""
        body = data.split(b"\n", 1)[1]
        if self.random.random() < 0.2:
            body = self._blind(body)
            self.kind = f"body {self.kind}, resealed"
        elif self.random.random() < 0.1:
            self.kind = "odd JSON, resealed"
            depth = self.random.choice([10, 2_000, 100_000])
            last = body.rindex(b"}")
            twice = body[:-1] + b',"format":1}'
            spaced = body[:last] + b" " + body[last:]
            body = self.random.choice([b"[" * depth, b"[" * depth + b"]" * depth, b'{"a":' * depth, twice, spaced, b""])
        else:
            self.kind = "fields, resealed"
            made = orjson.loads(body)
            self._fields(made)
            body = json_bytes(made)
        return formats.seal(magic, body)

    def _fields(self, body: dict[str, Any]) -> None:
        for _ in range(self.random.choice([1, 1, 2, 4])):
            self._one_field(body)

    def _one_field(self, node: Any) -> None:
        while True:
            keys = list(node) if isinstance(node, dict) else list(range(len(node)))
            if not keys:
                return
            at = self.random.choice(keys)
            if isinstance(node[at], dict | list) and node[at] and self.random.random() < 0.8:
                node = node[at]
                continue
            match self.random.randrange(6):
                case 0:
                    del node[at]
                case 1 if isinstance(node, list):
                    node.insert(0, node[at])
                case 1:
                    node["more"] = node[at]
                case 2 if isinstance(node[at], int):
                    node[at] += self.random.choice([-1, 1, 256])
                case 3 if isinstance(node[at], str) and node[at]:
                    where = self.random.randrange(len(node[at]))
                    node[at] = node[at][:where] + self.random.choice("0aF\n/") + node[at][where + 1 :]
                case 4 if isinstance(node, list):
                    self.random.shuffle(node)
                case _:
                    node[at] = self.random.choice(ODD)
            return

    def _segment_file(self, data: bytes) -> bytes:
        """A segment file with another header or payload and the right trailer."""
        made = bytearray(data[:-32])
        self.kind = self.random.choice(["header", "payload", "bomb", "two frames", "half frame"])
        match self.kind:
            case "header":
                kind, at = self.random.choice([("B", 10), ("B", 11), ("H", 8), ("I", 12), ("Q", 16), ("Q", 24)])
                odd = self.random.choice([0, 1, 2, 3, 4, 255, 2**16 - 1, 2**32 - 1, 2**40, 2**64 - 1])
                struct.pack_into("<" + kind, made, at, odd & (2 ** (8 * struct.calcsize(kind)) - 1))
            case "payload":
                made[64:] = self._blind(bytes(made[64:]) or b"x")
                self.kind = "payload"
            case _:
                raw = struct.unpack_from("<Q", made, 16)[0]
                size = 1 << 24 if self.kind == "bomb" else raw
                frame = zstandard.ZstdCompressor(level=1, write_content_size=self.random.random() < 0.7).compress(
                    bytes(size)
                )
                frame = (
                    frame * 2
                    if self.kind == "two frames"
                    else frame[: len(frame) // 2]
                    if self.kind == "half frame"
                    else frame
                )
                made[64:] = frame
                made[10] = self.random.choice([1, 2])
        if self.random.random() < 0.7:
            struct.pack_into("<Q", made, 24, len(made) - 64)
        return bytes(made) + hashlib.sha256(made).digest()

    def _bad_name(self, name: str) -> str:
        bad = [
            "../evil",
            "/abs",
            "C:\\x",
            "segments/../../y",
            name.upper(),
            name + "x",
            "pack.json",
            "signature.json",
            "x",
        ]
        return self.random.choice(
            [*bad, name.replace("/", "\\"), "segments/" + "ab" * 32 + ".seg", name.replace(".", "/.")]
        )

    # --- what is valid ---

    def _make_packs(self) -> list[bytes]:
        made = []
        with BlockStore(self._folder / "origin") as store:
            fill(store)
            made.append(create_pack(store, self._folder / "a", licenses=["Free.\n"]).path.read_bytes())
            made.append(create_pack(store, self._folder / "b", signer=key(), sources=False).path.read_bytes())
            smooth, segments = self._smooth()
            store.put(smooth, segments)
            store.set_name(named(smooth, "smooth"))
            made.append(create_pack(store, self._folder / "c", names=[named(smooth, "smooth")]).path.read_bytes())
        return made

    @staticmethod
    def _smooth() -> tuple[Any, dict[str, bytes]]:
        """A block whose segment is worth compressing, so that there is a zstd frame to damage."""
        manifest, _ = block([77, 78], n_bytes=4096)
        raw = np.linspace(0, 1, 2048).astype("<f2").tobytes()
        ref = manifest.segments[0].model_copy(update={"sha256": sha256(raw)})
        return manifest.model_copy(update={"segments": (ref,), "state_sha256": sha256(raw)}), {sha256(raw): raw}
