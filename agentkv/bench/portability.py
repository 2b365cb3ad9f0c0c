"""``agentkv bench portability``: a pack made here and imported elsewhere holds the same states, byte for byte.

*Elsewhere* is another process with another home, working directory, locale, time zone and umask, and as another user
where this one is root. There the pack is imported, every segment's raw bytes are hashed, every block's 32-step probe is
repeated by the model, every block is prefilled again from its tokens, and a pack is made again. Not covered: another
machine; run ``agentkv pack verify --recompute`` there.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from agentkv.bench.base import Benchmark, ModelSettings, Row, option
from agentkv.bench.measured import Raw
from agentkv.bench.process import in_new_process
from agentkv.bench.results import say
from agentkv.bench.texts import skills_folder
from agentkv.engine.base import Engine
from agentkv.engine.prompt import PromptBuilder
from agentkv.errors import GuaranteeViolated, UsageError
from agentkv.figures import share
from agentkv.io.hashing import file_sha256, sha256
from agentkv.memory.memory import AgentMemory
from agentkv.packs import create_pack, import_pack, open_pack, prove_pack
from agentkv.packs.check import check as check_pack
from agentkv.signing.trust import Trust
from agentkv.skills.manual import load_manuals
from agentkv.store.catalog import BlockStore

FAKE = "fake"
ELSEWHERE = {"TZ": "Pacific/Kiritimati", "LC_ALL": "C", "LANG": "C", "PYTHONHASHSEED": "12345"}
_NOBODY = 65534
_WINDOW = 4096
_PARTS = ("segments", "probes", "states")
_HOWS: tuple[Any, ...] = ("prove", "recompute")


class Facts(Row):
    """A raw record. By id or digest: SHA-256 of a segment's raw bytes, of a block's probe, of its state. ``prove``,
    ``recompute``: how many blocks hold there."""

    segments: dict[str, str]
    probes: dict[str, str | None]
    states: dict[str, str]
    pack_sha256: Any
    prove: Any = None
    recompute: Any = None
    user: str | None = None

    def shared(self, other: Facts, part: str) -> dict[str, Any]:
        """How many of ``part`` are equal."""
        here, there = getattr(self, part), getattr(other, part)
        return share(sum(there.get(key) == value for key, value in here.items()), len(here))


@dataclass(frozen=True, kw_only=True)
class Settings(ModelSettings):
    """``skills``: a folder of them; those that come along by default."""

    skills: Path | None = option(
        None, "A folder of skill folders.", metavar="DIR", shown="those that come with agentkv"
    )
    manuals: int = option(2, "How many manuals.", name="skills-count", metavar="N", least=1, small=1)


class Portability(Benchmark[Settings]):
    """A pack imported in another folder, home, user, locale, umask and time zone: the same bytes, the same proofs."""

    name = "portability"

    def run(self) -> dict[str, Any]:
        """Deposit the first manuals, pack them, and look at them elsewhere."""
        model, threads, count = self.settings.model, self.settings.threads, self.settings.manuals
        folder = self.settings.skills
        if folder is not None and not folder.is_dir():
            raise UsageError(f"--skills {folder} is not a directory")
        manuals = load_manuals([folder.absolute() if folder else skills_folder()]).loaded[:count]
        with tempfile.TemporaryDirectory(prefix="agentkv-portability-") as temporary:
            place = Path(temporary).resolve()
            place.chmod(0o777)
            engine = _engine(model, threads)
            with BlockStore(place / "here") as store:
                memory = AgentMemory(store, engine)
                for manual in manuals:
                    memory.deposit_skill(manual)
                    say(f"deposited {manual.name}")
                here = _facts(store)
                pack = create_pack(store, place / "here.akvpack").path
            digest = engine.info.sha256
            engine.close()
            payload = {"model": model, "threads": threads, "pack": str(pack), "folder": str(place / "there")}
            there = in_new_process(f"{__name__}:elsewhere", payload, {**ELSEWHERE, "HOME": str(place / "home")})
            raw = {"here": {**here, "pack_sha256": file_sha256(pack)}, "there": there}
        inputs, settings = [manual.sha256 for manual in manuals], {"per": count, "threads": threads}
        return self.result(raw, model=model, model_sha256=digest, inputs=inputs, settings=settings)

    @staticmethod
    def figures(raw: Raw) -> dict[str, Any]:
        """Both records, and ``same``: segments, probes, proofs repeated there, blocks prefilled again, the pack."""
        here, there = (Facts.model_validate(raw[place]) for place in ("here", "there"))
        blocks = len(here.probes)
        equal = {
            **{part: here.shared(there, part) for part in _PARTS},
            **{how: share(getattr(there, how), blocks) for how in _HOWS},
            "pack": here.pack_sha256 == there.pack_sha256,
        }
        return {"here": raw["here"], "there": raw["there"], "same": equal}

    @staticmethod
    def check(result: dict[str, Any]) -> None:
        """Segments, probes and the pack made again are those of here."""
        here, there = (Facts.model_validate(result[place]) for place in ("here", "there"))
        for part in _PARTS:
            if getattr(here, part) != getattr(there, part):
                raise GuaranteeViolated(f"{part} differ elsewhere")
        if here.pack_sha256 != there.pack_sha256:
            raise GuaranteeViolated("a pack made again elsewhere has other bytes")
        for how in _HOWS:
            if getattr(there, how) != len(here.probes):
                raise GuaranteeViolated(f"{how}: {getattr(there, how)} of {len(here.probes)} blocks hold elsewhere")

    @staticmethod
    def notes(result: dict[str, Any]) -> Iterable[str]:
        """What is the same there."""
        same = {name: f"{part['k']}/{part['n']}" for name, part in result["same"].items() if name != "pack"}
        yield f"segments equal          {same['segments']}"
        yield f"probe hashes equal      {same['probes']}; repeated there {same['prove']}"
        yield f"prefilled again, equal  {same['recompute']}"
        yield f"the pack made again     {'the same bytes' if result['same']['pack'] else 'OTHER BYTES'}"
        yield f"there: another folder, home, locale, time zone, umask; {result['there']['user']}"


def elsewhere(payload: dict[str, Any]) -> dict[str, Any]:
    """What the other process finds; it has its own environment already, and takes on what is left here."""
    engine = _engine(payload["model"], payload["threads"])  # its file may be the first user's only, and what Python
    PromptBuilder(engine)  # loads late for templates too
    folder = Path(payload["folder"])
    folder.mkdir()
    user = _become_another(folder)
    os.umask(0o077)
    os.chdir(folder)
    with BlockStore(folder / "store") as store, open_pack(payload["pack"]) as pack:
        trust = Trust(folder / "trust.json")
        import_pack(pack, store, fingerprint=engine.fingerprint(), trust=trust, allow_unsigned=True)
        contents = check_pack(pack)
        held = {how: sum(proof.error is None for proof in prove_pack(pack, contents, engine, how)) for how in _HOWS}
        again = create_pack(store, folder / "again.akvpack").path
        facts = _facts(store)
    engine.close()
    return {**facts, **held, "pack_sha256": file_sha256(again), "user": user}


def _become_another(folder: Path) -> str:
    """Another user, if this one is root; who it is now."""
    if hasattr(os, "getuid") and os.getuid() == 0:
        os.chown(folder, _NOBODY, _NOBODY)
        os.setgroups([])
        os.setgid(_NOBODY)
        os.setuid(_NOBODY)
        return f"user {_NOBODY} instead of root"
    return "the same user"


def _facts(store: BlockStore) -> dict[str, Any]:
    """Of the named blocks and their parents: SHA-256 over the raw bytes of each segment as they are read, and more."""
    segments: dict[str, str] = {}
    probes, states = {}, {}
    for block_id in _with_parents(store):
        manifest = store.manifest(block_id)
        assert manifest is not None
        store.read(manifest, lambda ref, raw: segments.__setitem__(ref.sha256, sha256(raw.data)))
        probes[block_id] = manifest.probe.sha256 if manifest.probe else None
        states[block_id] = manifest.state_sha256
    return {"segments": dict(sorted(segments.items())), "probes": probes, "states": states}


def _with_parents(store: BlockStore) -> list[str]:
    ids: set[str] = set()
    for named in store.names():
        here: str | None = named.block_id
        while here is not None:
            ids.add(here)
            manifest = store.manifest(here)
            here = manifest.parent_id if manifest else None
    return sorted(ids)


def _engine(model: str, threads: int | None) -> Engine:
    if model == FAKE:
        from agentkv.engine.fake import FakeEngine

        return FakeEngine(window=1 << 16)
    from agentkv.engine.llama.engine import LlamaEngine
    from agentkv.engine.settings import EngineSettings

    return LlamaEngine.open(model, EngineSettings(window=_WINDOW, threads=threads))
