"""``interrupt``: a deposit of documents, killed at random moments and resumed: the same bytes?

Once without a kill, for the store to compare with and for how long it takes. Then again and again: a process begins or
resumes, and after a random time, up to half of that, gets SIGKILL, until as many kills as asked for have landed; a
deposit that comes to its end is compared, and the next one begins in a new store. The moments are counted from when
the process has its model open, so that they fall into planning, records, index, self-test and windows, not start-up.

After each kill the store is looked at (``check``, every segment decoded and hashed): nothing may be damaged. At the end
what a killed process left is collected, and every file is compared by its SHA-256, but for these:

``agentkv-uses.sqlite``   when and how often a block was used
``turns/``                the log of what was restored and read, with times
``documents/index/``      SQLite's pages, whose order follows from that of the writes; compared by contents instead

Not shown: what a power failure leaves (``agentkv bench integrity``).
"""

from __future__ import annotations

import contextlib
import random
import shutil
import sqlite3
import tempfile
import time
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import Field

from agentkv.bench.base import (
    Benchmark,
    Column,
    ModelSettings,
    Row,
    Table,
    interval,
    option,
    records,
    small_option,
)
from agentkv.bench.measured import Raw
from agentkv.bench.results import say
from agentkv.bench.texts import manual_texts
from agentkv.errors import GuaranteeViolated, UsageError
from agentkv.figures import share, spread
from agentkv.io.hashing import canonical_json, file_sha256, sha256
from agentkv.store.catalog import BlockStore
from agentkv.store.files import TEMPORARIES, TURNS
from agentkv.store.uses import USES
from tests.benchmarks.killing import begin, run_or_kill

OVERLAP = 24
FAKE = "fake"
"""The engine without a model: many more moments a minute, the same code around it."""

_INDEX = "documents/index/"
_MOST_RUNS = 10


@dataclass(frozen=True, kw_only=True)
class Settings(ModelSettings):
    """``texts`` become one document each; the manuals by default, or the first three. ``model`` may be ``fake``."""

    kills: int = option(20, "How often a deposit is killed.", metavar="N", least=1, small=3)
    seed: int = option(6, "Which random moments.", metavar="N")
    folder: Path | None = option(None, "For the stores.", metavar="DIR", shown="the system's temporary folder")
    small: bool = small_option()
    window: int = 256
    texts: tuple[str, ...] | None = None


class Kill(Row):
    """The raw record of one kill: which store, when, and what was there then."""

    store: int
    delay_s: float
    blocks: int
    damage: list[str]
    left_over: int


class Stored(Row):
    """The raw record of a finished store: the digest of every file that is compared."""

    files: dict[str, str]
    swept: int = 0
    findings: list[str] = Field(default_factory=list)
    runs: int = 0
    windows: int = 0
    seconds: float = 0.0
    read: int = 0
    model_sha256: str = ""


class Figures(Row):
    """How many kills landed, and how many of the stores are the undisturbed one, file by file."""

    windows: int
    seconds: float
    files_compared: int
    kills: int
    kills_wanted: int
    delay_s: dict[str, int | float]
    blocks_at_a_kill: dict[str, int | float]
    kills_with_left_overs: int
    damaged_after_a_kill: int
    runs_a_store: dict[str, int | float]
    identical: dict[str, Any]
    other: dict[str, list[str]]

    def landed(self) -> str:
        """Kills, and when."""
        blocks = self.blocks_at_a_kill
        return f"{self.kills} of {self.kills_wanted}, at {blocks['min']:.0f} to {blocks['max']:.0f} blocks"


class Interrupt(Benchmark[Settings]):
    """A deposit of documents, killed at random moments and resumed: is the store the same, byte for byte?

    `--model fake` needs no model: the engine that is shipped for tests.
    """

    name = "interrupt"
    tables = (
        Table(
            lambda result: [Figures.in_(result)],
            (
                Column[Figures]("store", lambda row: f"{row.windows:,} windows, {row.files_compared:,} files"),
                Column("SIGKILLs that landed", Figures.landed),
                Column("damaged after one", lambda row: f"{row.damaged_after_a_kill}"),
                Column("resumed: the undisturbed store's bytes", lambda row: interval(row.identical)),
            ),
            name="interrupt",
        ),
    )

    def run(self) -> dict[str, Any]:
        """See the module's text."""
        asked = self.settings
        texts = list(manual_texts()[: 3 if asked.small else None] if asked.texts is None else asked.texts)
        if not texts:
            raise UsageError("there is no document to deposit")
        with tempfile.TemporaryDirectory(prefix="agentkv-interrupt-", dir=asked.folder) as temporary:
            home = Path(temporary)
            (home / "documents").mkdir()
            for number, text in enumerate(texts):
                (home / "documents" / f"{number:03}.md").write_text(text, encoding="utf-8")
            payload = {"model": asked.model, "folder": str(home), "window": asked.window, "threads": asked.threads}
            whole = _deposit({**payload, "store": "whole"}, None)
            assert whole is not None
            say(f"undisturbed: {whole['windows']} windows in {whole['seconds']:.1f} s")
            raw = {"undisturbed": {**whole, **_closed(home / "whole")}}
            raw |= _interrupted(payload, home, whole["seconds"], asked.kills, random.Random(asked.seed))
        amounts = {"kills": asked.kills, "window": asked.window, "overlap": OVERLAP, "seed": asked.seed}
        return self.result(
            raw,
            model=asked.model,
            model_sha256=whole["model_sha256"],
            inputs=[texts, asked.seed],
            settings={**amounts, "threads": asked.threads},
        )

    @staticmethod
    def figures(raw: Raw) -> dict[str, Any]:
        """See :class:`Figures`."""
        whole, kills = Stored.model_validate(raw["undisturbed"]), records(Kill, raw, "kill/")
        stores = {key: Stored.model_validate(record) for key, record in raw.items() if key.startswith("store/")}
        other = {key: _differing(whole.files, store.files) for key, store in stores.items()}
        equal = sum(not other[key] and not store.findings for key, store in stores.items())
        return Figures(
            windows=whole.windows,
            seconds=whole.seconds,
            files_compared=len(whole.files),
            kills=len(kills),
            kills_wanted=raw["wanted"]["kills"],
            delay_s=spread([kill.delay_s for kill in kills]),
            blocks_at_a_kill=spread([kill.blocks for kill in kills]),
            kills_with_left_overs=sum(kill.left_over > 0 for kill in kills),
            damaged_after_a_kill=sum(bool(kill.damage) for kill in kills),
            runs_a_store=spread([store.runs for store in stores.values()]),
            identical=share(equal, len(stores)),
            other={key: files for key, files in other.items() if files},
        ).model_dump()

    @staticmethod
    def check(result: dict[str, Any]) -> None:
        """Every kill was got over, and every store is the undisturbed one."""
        row = Figures.in_(result)
        if row.damaged_after_a_kill:
            raise GuaranteeViolated(f"damage after {row.damaged_after_a_kill} kills")
        if row.kills < row.kills_wanted:
            raise GuaranteeViolated(f"only {row.kills} of {row.kills_wanted} kills landed in a deposit")
        k, n = row.identical["k"], row.identical["n"]
        if k != n or not n:
            raise GuaranteeViolated(f"{k} of {n} stores are the undisturbed one: {row.other}")

    @staticmethod
    def notes(result: dict[str, Any]) -> Iterable[str]:
        """When the kills came, and which files differ."""
        row = Figures.in_(result)
        yield f"killed {row.delay_s['min']:.1f} to {row.delay_s['max']:.1f} s after a start"
        yield f"kills that left something over: {row.kills_with_left_overs}"
        yield from (f"{store}: {', '.join(files[:5])}" for store, files in row.other.items())


def _differing(first: dict[str, str], second: dict[str, str]) -> list[str]:
    return sorted(path for path in first.keys() | second.keys() if first.get(path) != second.get(path))


# --- here: killing --------------------------------------------------------------------------------


def _interrupted(
    payload: dict[str, Any], home: Path, seconds: float, kills: int, chance: random.Random
) -> dict[str, Any]:
    raw: dict[str, Any] = {}
    landed, number, runs = 0, 0, 0
    while landed < kills or runs:
        store = home / f"killed-{number}"
        delay = chance.uniform(0.0, seconds / 2) if landed < kills else None
        done = _deposit({**payload, "store": store.name}, delay)
        runs += 1
        if done is None:
            raw[f"kill/{landed}"] = {"store": number, "delay_s": delay, **_after_kill(store)}
            landed += 1
            if landed % 5 == 0:
                say(f"{landed} of {kills} kills")
            continue
        raw[f"store/{number}"] = {"runs": runs, **_closed(store)}
        shutil.rmtree(store)
        number, runs = number + 1, 0
        if number >= _MOST_RUNS * kills:
            break
    raw["wanted"] = {"kills": kills}
    return raw


def _deposit(payload: dict[str, Any], delay: float | None) -> dict[str, Any] | None:
    """Let another process deposit; its result, or None if it was killed ``delay`` seconds after it had begun."""
    return run_or_kill(f"{__name__}:deposit", payload, delay)


def _after_kill(root: Path) -> dict[str, Any]:
    """What a kill left, and what the store looks like to whoever opens it then."""
    left_over = sum(path.is_file() for path in (root / TEMPORARIES).glob("*"))
    with BlockStore(root, cache_bytes=0) as store:  # which rolls back what was under way
        report = store.check()
        return {
            "blocks": report.blocks,
            "damage": [str(finding) for finding in report.damage],
            "left_over": left_over,
        }


def _closed(root: Path) -> dict[str, Any]:
    """A finished store: swept, and the digest of every file that is compared."""
    with BlockStore(root, cache_bytes=0) as store:
        swept = store.collect()
        damage = [str(finding) for finding in store.check().findings]
    files = {
        path.relative_to(root).as_posix(): file_sha256(path)
        for path in sorted(root.rglob("*"))
        if path.is_file() and not _left_out(path.relative_to(root).as_posix())
    }
    for path in sorted(root.glob(f"{_INDEX}*.sqlite")):
        files[f"contents of {path.relative_to(root).as_posix()}"] = _index_digest(path)
    return {"files": files, "swept": swept.segments + swept.texts + swept.temporaries, "findings": damage}


def _left_out(path: str) -> bool:
    return path.startswith((USES, f"{TURNS}/", _INDEX))


def _index_digest(path: Path) -> str:
    """Over the rows of an index in the order of documents and windows, whatever their numbers."""
    with contextlib.closing(sqlite3.connect(path)) as connection:
        rows = connection.execute(
            "SELECT files.key, files.digest, windows.number, words.path, words.headings, words.body FROM words "
            "JOIN windows ON windows.id = words.rowid JOIN files ON files.id = windows.file "
            "ORDER BY files.key, windows.number"
        ).fetchall()
        rows += connection.execute(
            "SELECT files.key, windows.number, passage_words.body FROM passage_words "
            "JOIN passages ON passages.id = passage_words.rowid JOIN windows ON windows.id = passages.window "
            "JOIN files ON files.id = windows.file ORDER BY files.key, windows.number, passages.id"
        ).fetchall()
    return sha256(canonical_json([list(row) for row in rows]))


# --- there: the process that is killed ----------------------------------------------------------------


def deposit(payload: dict[str, Any]) -> dict[str, Any]:
    """Deposit the folder's documents, or resume that."""
    from agentkv.documents import Corpus
    from agentkv.engine.fake import FakeEngine
    from agentkv.memory.memory import AgentMemory

    home, window = Path(payload["folder"]), payload["window"]
    wide = window + 512
    model: Any = FakeEngine(window=wide) if payload["model"] == FAKE else payload["model"]
    settings = {} if payload["model"] == FAKE else {"threads": payload["threads"], "window": wide}
    with AgentMemory(home / payload["store"], model, **settings) as memory:
        begin()
        start = time.perf_counter()
        corpus = Corpus(memory, chunk_tokens=window, overlap=OVERLAP, keep="eager")
        report = corpus.carry_out(corpus.plan([home / "documents"]))
        return {
            "seconds": time.perf_counter() - start,
            "windows": report.plan.n_chunks,
            "read": report.prefilled,
            "model_sha256": memory.engine.info.sha256,
        }
