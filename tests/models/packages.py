"""A model catalogue with small fake models in wheels that are built here; nothing reaches a network."""

from __future__ import annotations

import hashlib
import itertools
import os
import random
import struct
import time
import zipfile
from collections.abc import Callable
from pathlib import Path

from agentkv import models

NAME = "tiny"


def text(value: str) -> bytes:
    return struct.pack("<Q", len(value)) + value.encode()


def tiny_gguf(
    *,
    version: int = 3,
    kind: int = 0,
    dimensions: tuple[int, ...] = (32, 4),
    data: int = 512,
    metadata: tuple[bytes, ...] = (),
    offset: int = 0,
    alignment: int = 32,
    tensors: int = 1,
) -> bytes:
    """A GGUF with one tensor, put together by hand."""
    entries = [
        text("general.architecture") + struct.pack("<I", 8) + text("llama"),
        text("general.alignment") + struct.pack("<II", 4, alignment),
        text("tokenizer.ggml.tokens") + struct.pack("<IIQ", 9, 8, 24) + b"".join(text(f"t{n}") for n in range(24)),
        text("tokenizer.ggml.scores") + struct.pack("<IIQ", 9, 6, 24) + bytes(4 * 24),
        text("some.flag") + struct.pack("<IB", 7, 1),
        *metadata,
    ]
    head = b"GGUF" + struct.pack("<IQQ", version, tensors, len(entries)) + b"".join(entries)
    if tensors:
        head += text("blk.0.weight") + struct.pack(f"<I{len(dimensions)}Q", len(dimensions), *dimensions)
        head += struct.pack("<IQ", kind, offset)
    head += bytes(-len(head) % alignment)
    return head + random.Random(7).randbytes(data)


MODEL = tiny_gguf()


def wheel_bytes(path: Path, requirement: str, member: str, content: bytes) -> None:
    """A wheel that pip accepts, with ``content`` in it."""
    name, version = requirement.split("==")
    name = name.replace("-", "_")
    info = f"{name}-{version}.dist-info"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr(member, content)
        archive.writestr(f"{name}/__init__.py", "raise SystemExit('a model package was imported')")
        archive.writestr(f"{info}/METADATA", f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")
        archive.writestr(f"{info}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        archive.writestr(f"{info}/RECORD", "")


class Index:
    """A package index in a folder, in the place of pip; counts what is fetched and may be made to fail."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.fetched: list[str] = []
        self.fail_at: int | None = None
        self.failure: BaseException = KeyboardInterrupt()
        self.pause = 0.0

    def fetch_wheel(self, model: str, requirement: str, folder: Path, on_bytes: Callable[[int], None]) -> Path:
        if self.fail_at == len(self.fetched):
            (folder / "half.whl").write_bytes(b"PK half a wheel")
            raise self.failure
        time.sleep(self.pause)
        self.fetched.append(requirement)
        source = self.folder / wheel_name(requirement)
        on_bytes(source.stat().st_size // 2)
        target = folder / source.name
        target.write_bytes(source.read_bytes())
        return target


def wheel_name(requirement: str) -> str:
    name, version = requirement.split("==")
    return f"{name.replace('-', '_')}-{version}-py3-none-any.whl"


def publish(folder: Path, content: bytes, pieces: int = 3) -> models.ModelEntry:
    """Put ``content`` into ``pieces`` wheels under ``folder``; the catalogue entry for it."""
    folder.mkdir(exist_ok=True)
    cuts = [len(content) * n // pieces for n in range(pieces + 1)]
    parts = []
    for number, (start, stop) in enumerate(itertools.pairwise(cuts), start=1):
        requirement, member = f"tiny-part{number}==1.0", f"tiny_part{number}/data/part{number}.bin"
        path = folder / wheel_name(requirement)
        wheel_bytes(path, requirement, member, content[start:stop])
        parts.append(models.Part(requirement, member, stop - start, path.stat().st_size))
    digest = hashlib.sha256(content).hexdigest()
    return models.ModelEntry(
        NAME, "a tiny one", "CC0", len(content), digest, tuple(parts), train_window=64, good_for="tests"
    )


def left_in(folder: Path) -> list[str]:
    return sorted(path.relative_to(folder).as_posix() for path in folder.rglob("*"))


PULLED = ["tiny.gguf", "tiny.gguf.json", "tiny.lock"]


def flip(path: Path, position: int) -> None:
    content = bytearray(path.read_bytes())
    content[position] ^= 1
    path.write_bytes(content)
    # Where the clock is coarse, two writes may share an mtime.
    os.utime(path, ns=(0, random.randrange(1, 10**18)))
