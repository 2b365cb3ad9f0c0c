"""One small file of a store zeroed, cut or replaced: nothing else stops; it is reported, mended or quarantined."""

from __future__ import annotations

import contextlib
import shutil
import warnings
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from agentkv import AgentMemory, FakeEngine
from agentkv.documents.corpus import Corpus
from agentkv.engine.embed import FakeEmbedder
from agentkv.engine.prompt import Message
from agentkv.errors import CorruptThread
from agentkv.notices import AgentKVWarning
from agentkv.records import Import
from agentkv.router.evaluate import Labelled
from agentkv.router.files import array_fault
from agentkv.router.vectors import Vectors
from agentkv.store.catalog import BlockStore

ASKED = "For how many days are returns accepted?"
TEXTS = {
    "returns": ("Returns are accepted for 7 days.\n", "How long goods can be returned."),
    "fees": ("The fee is 3 euro.\n", "What an order costs."),
}


def reply(prompt: str) -> str:
    return "7 days" if "7 days" in prompt else "I do not know"


def opened(root: Path) -> AgentMemory:
    return AgentMemory(root, FakeEngine(replies=reply), embedder=FakeEmbedder())


@pytest.fixture(scope="module")
def template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store with a file of every kind that a memory writes."""
    folder = tmp_path_factory.mktemp("template")
    root = folder / "store"
    (folder / "returns.md").write_text("# Returns\n\nReturns are accepted for 7 days.\n")
    with opened(root) as memory:
        for name, (text, description) in TEXTS.items():
            memory.deposit_text(name, text, description)
        memory.learn([Labelled(ASKED, "returns"), Labelled("What does an order cost?", "fees")])
        thread = memory.thread("visitor")
        thread.ask(ASKED, skill="returns")
        thread.ask("And fees?", skill=None)
        memory.route(ASKED)
        first = memory.routing.named("returns").block_id
        memory.store.pin(first)
        memory.store.set_import(Import(block_id=first, pack_sha256="ab" * 32, signed_by=None, decision="unsigned"))
        memory.store.set_budget(10**9)
        messages = [Message("user", "One."), Message("assistant", "Two."), Message("user", "Three.")]
        kept = memory.ask(messages, skill=None, keep=True)
        parent = memory.store.verify(kept.checkpoint or "").parent_id
        memory.store.take_away([parent or ""])
        Corpus(memory, chunk_tokens=256, overlap=0).add([folder / "returns.md"])
        memory.store.uses()
        memory.store.close()
    return root


KINDS = [
    "names", "manifests", "texts", "pins", "imports", "ancestors", "selftests", "models", "router", "threads",
    "documents/corpora", "documents/files", "documents/sources", "agentkv-settings.json", "agentkv-uses.sqlite",
    "agentkv-store.json", "segments", "turns", "decisions",
]  # fmt: skip


WARNED_OF = ("names", "router", "documents/corpora", "documents/files", "agentkv-settings.json", "agentkv-store.json")
"""What each use meets. The others are read where they are needed, or say the safe thing."""


def zeros(data: bytes) -> bytes:
    return bytes(len(data))


def half(data: bytes) -> bytes:
    return data[: len(data) // 2]


def nothing(_: bytes) -> bytes:
    return b""


def foreign(_: bytes) -> bytes:
    return b"%PDF-1.4 nobody's business"


def files_of(root: Path, kind: str) -> list[Path]:
    place = root / kind
    found = [place] if place.is_file() else sorted(path for path in place.rglob("*") if path.is_file())
    return [path for path in found if path.suffix != ".lock" and path.parent.name != "index"]


def test_every_kind_is_there(template: Path) -> None:
    assert all(files_of(template, kind) for kind in KINDS)
    known = {path for kind in KINDS for path in files_of(template, kind)}
    every = {path for path in template.rglob("*") if path.is_file() and path.suffix != ".lock"}
    assert {path.parent.name for path in every - known} <= {"index", "store"}
    assert {path.name for path in every - known if path.parent == template} <= set()


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("spoilt", [zeros, half, nothing, foreign])
def test_one_damaged_file_closes_nothing(
    template: Path, tmp_path: Path, kind: str, spoilt: Callable[[bytes], bytes]
) -> None:
    for number, source in enumerate(files_of(template, kind)[:6]):
        root = Path(shutil.copytree(template, tmp_path / str(number)))
        path = root / source.relative_to(template)
        path.write_bytes(spoilt(path.read_bytes()))
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            found = {finding.path for finding in BlockStore(root, create=False).check().damage}
            use(root)
        if kind not in ("turns", "decisions", "agentkv-uses.sqlite"):
            assert path in found, source
            is_warned_of = any(issubclass(warning.category, AgentKVWarning) for warning in caught)
            assert is_warned_of or kind not in WARNED_OF, source
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", AgentKVWarning)
            with BlockStore(root, create=False) as store:
                store.repair(store.check())
                left = {finding.path for finding in store.check().damage}
        assert path not in left or kind == "texts", source


def use(root: Path) -> None:
    """Everything that a user does; what is damaged may cost its own answer and no other."""
    with opened(root) as memory:
        names = {entry.name for entry in memory.names()}
        assert len(names) >= len(TEXTS) - 1
        for name in names:
            assert memory.ask(ASKED, skill=name).text == ("7 days" if name == "returns" else "I do not know")
        memory.route(ASKED)
        with contextlib.suppress(CorruptThread):
            memory.thread("visitor").ask(ASKED, skill=None)
        assert memory.thread("another").ask(ASKED, skill=None).text
        corpus = Corpus(memory, chunk_tokens=256, overlap=0)
        with contextlib.suppress(Exception):  # its own source may be the damaged file
            corpus.ask(ASKED)
        for name, (text, description) in TEXTS.items():
            memory.deposit_text(name, text, description)
        assert {entry.name for entry in memory.names()} == set(TEXTS)
        for entry in memory.names():
            memory.store.pin(entry.block_id)
        assert memory.store.budget in (10**9, None)
        memory.store.set_budget(10**9)
        memory.store.evict(10**9)


@pytest.mark.parametrize("shape", [(2**34,), (2**62,), (-1,), (3, 2**40)])
def test_an_array_that_claims_more_than_is_there_is_refused_by_its_header(
    tmp_path: Path, shape: tuple[int, ...]
) -> None:
    kind = np.dtype([("text", "S64"), ("vector", "<f4", (8,))])
    header = {"descr": np.lib.format.dtype_to_descr(kind), "fortran_order": False, "shape": shape}
    path = tmp_path / "vectors.npy"
    with path.open("wb") as file:
        np.lib.format.write_array_header_1_0(file, header)
    assert array_fault(path.read_bytes()) is not None
    embedder = FakeEmbedder()
    vectors = Vectors(embedder, tmp_path)
    first = vectors.of(["a"])
    (file_of,) = tmp_path.glob("vectors-*.npy")
    assert array_fault(file_of.read_bytes()) is None
    file_of.write_bytes(path.read_bytes())
    with pytest.warns(AgentKVWarning, match="made again"):
        assert (Vectors(embedder, tmp_path).of(["a"]) == first).all()
