"""Ledgers to damage, and the lines of one."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import orjson

from agentkv.evidence import Ledger
from agentkv.evidence.files import FILE, HEAD
from agentkv.evidence.records import NOTHING, Anchor, SignedAnchor, sealed_entry
from agentkv.io.hashing import canonical_json
from agentkv.store.format import encode_record


def filled(folder: Path, *, runs: int = 2, payloads: Any = "inline") -> Ledger:
    """A ledger of some runs with two items and a verdict each."""
    ledger = Ledger(folder, payloads=payloads)
    for number in range(runs):
        with ledger.run("demo", settings={"seed": number}, inputs={"questions": b"1 + 1"}) as run:
            for key, text in (("a", "It is 2."), ("b", "Zwölf, or 12.5 \n twelve")):
                run.record(key, {"text": text, "p": 0.1}, expected={"answers": ["2"]}, tokens={"generated": 3})
            run.verdict("answered", True, {"of": 2})
            run.scores({"right": 1})
    return ledger


def lines(folder: Path) -> list[bytes]:
    return (folder / FILE).read_bytes().splitlines(keepends=True)


def put(folder: Path, *new: bytes) -> None:
    (folder / FILE).write_bytes(b"".join(new))


def remade(folder: Path, old: list[dict[str, Any]], *, first: int = 0) -> list[bytes]:
    """Lines with every digest computed again from ``first`` on, as a forger with this package would."""
    made, previous = [], NOTHING if first == 0 else old[first - 1]["digest"]
    for seq, entry in enumerate(old):
        if seq < first:
            made.append(canonical_json(entry) + b"\n")
            continue
        sealed, line = sealed_entry(seq, previous, entry["run"], entry["type"], entry["time"], entry["body"])
        made.append(line)
        previous = sealed.digest
    return made


def parsed(folder: Path) -> list[dict[str, Any]]:
    return [orjson.loads(line) for line in lines(folder)]


def forge_head(folder: Path) -> None:
    """Write head.json again for the lines that are there."""
    last = parsed(folder)[-1]
    ledger = parsed(folder)[0]["body"]["ledger"]
    anchor = Anchor(ledger=ledger, count=last["seq"] + 1, head=last["digest"], time="")
    (folder / HEAD).write_bytes(encode_record("agentkv-ledger-anchor 1", SignedAnchor(anchor=anchor)))
