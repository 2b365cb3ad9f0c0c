"""``interrupt``: a deposit of documents, killed at random moments and gone on with: the same bytes?

Once without a kill, for the store to compare with and for how long it takes. Then again and again: a process begins or
goes on, and after a random time, up to half of that, gets SIGKILL, until as many kills as asked for have landed; a
deposit that comes to its end is compared, and the next one begins in a new store. The moments are counted from when
the process has its model open, so that they fall into planning, records, index, self-test and windows, not start-up.

After each kill the store is looked at (``check``, every segment decoded and hashed): nothing may be damaged. At the end
what a killed process left behind is collected, and every file is compared by its SHA-256, but for these:

``agentkv-uses.sqlite``   when and how often a block was used
``turns/``                the log of what was restored and read, with times
``documents/index/``      SQLite's pages, whose order follows from that of the writes; compared by contents instead

Not shown: what a power failure leaves (``agentkv bench integrity``).
"""

from __future__ import annotations

import contextlib
import json
import random
import shutil
import signal
import sqlite3
import subprocess
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from agentkv.bench import measured
from agentkv.bench.process import command
from agentkv.bench.report import now, origin, say
from agentkv.errors import GuaranteeViolated, UsageError, WorkerFailed
from agentkv.io.hashing import canonical_json, file_sha256, sha256
from agentkv.store.catalog import BlockStore
from agentkv.store.files import TEMPORARIES, TURNS
from agentkv.store.uses import USES

KILLS = 20
WINDOW, OVERLAP = 256, 24
FAKE = "fake"
"""The engine without a model: many more moments a minute, the same code around it."""

_BEGUN = "begun"
_INDEX = "documents/index/"
_MOST_RUNS = 10


def run(
    model: str,
    texts: Sequence[str],
    *,
    kills: int = KILLS,
    seed: int = 6,
    window: int = WINDOW,
    settings: dict[str, Any] | None = None,
    folder: Path | None = None,
) -> dict[str, Any]:
    """The whole benchmark; ``texts`` become one document each. ``model`` may be ``fake``."""
    if not texts:
        raise UsageError("there is no document to deposit")
    started = now()
    with tempfile.TemporaryDirectory(prefix="agentkv-interrupt-", dir=folder) as temporary:
        home = Path(temporary)
        (home / "documents").mkdir()
        for number, text in enumerate(texts):
            (home / "documents" / f"{number:03}.md").write_text(text, encoding="utf-8")
        payload = {"model": model, "folder": str(home), "window": window, "settings": settings or {}}
        whole = _deposit({**payload, "store": "whole"}, None)
        assert whole is not None
        say(f"undisturbed: {whole['windows']} windows in {whole['seconds']:.1f} s")
        raw = {"undisturbed": {**whole, **_closed(home / "whole")}}
        raw |= _interrupted(payload, home, whole["seconds"], kills, random.Random(seed))
    inputs = canonical_json([list(texts), seed])
    asked = {"kills": kills, "window": window, "overlap": OVERLAP, "seed": seed, **(settings or {})}
    header = origin("interrupt", model, whole["model_sha256"], inputs, started=started, **asked)
    return measured.result(header, raw)


def check(result: dict[str, Any]) -> None:
    """Raise GuaranteeViolated unless every kill was got over and every store is the undisturbed one."""
    if result["damaged_after_a_kill"]:
        raise GuaranteeViolated(f"damage after {result['damaged_after_a_kill']} kills")
    if result["kills"] < result["kills_wanted"]:
        raise GuaranteeViolated(f"only {result['kills']} of {result['kills_wanted']} kills landed in a deposit")
    identical = result["identical"]
    if identical["k"] != identical["n"] or not identical["n"]:
        raise GuaranteeViolated(
            f"{identical['k']} of {identical['n']} stores are the undisturbed one: {result['other']}"
        )


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
    target, pipe = f"{__name__}:deposit", subprocess.PIPE
    with subprocess.Popen(command(target), stdin=pipe, stdout=pipe, stderr=pipe, text=True) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdin.write(json.dumps(payload))
        process.stdin.close()
        said = []
        for line in process.stderr:
            said.append(line)
            if line.strip() == _BEGUN:
                break
        if delay is not None:
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(delay)
            process.send_signal(signal.SIGKILL)
        result = process.stdout.read()
        said.append(process.stderr.read())
    if process.returncode == -signal.SIGKILL:
        return None
    if process.returncode != 0:
        say("".join(said))
        raise WorkerFailed(target, process.returncode)
    found: dict[str, Any] = json.loads(result)
    return found


def _after_kill(root: Path) -> dict[str, Any]:
    """What a kill left behind, and what the store looks like to whoever opens it then."""
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
    """Deposit the folder's documents, or go on with it."""
    from agentkv.documents import Corpus
    from agentkv.engine.fake import FakeEngine
    from agentkv.memory.memory import AgentMemory

    home, window = Path(payload["folder"]), payload["window"]
    wide = window + 512
    model: Any = FakeEngine(window=wide) if payload["model"] == FAKE else payload["model"]
    settings = {} if payload["model"] == FAKE else {**payload["settings"], "window": wide}
    with AgentMemory(home / payload["store"], model, **settings) as memory:
        say(_BEGUN)
        begun = time.perf_counter()
        corpus = Corpus(memory, chunk_tokens=window, overlap=OVERLAP, keep="eager")
        report = corpus.carry_out(corpus.plan([home / "documents"]))
        return {
            "seconds": time.perf_counter() - begun,
            "windows": report.plan.n_chunks,
            "read": report.prefilled,
            "model_sha256": memory.engine.info.sha256,
        }
