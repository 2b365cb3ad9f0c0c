"""The figures of ``agentkv bench portability``: what of here is the same there. Two records, ``here`` and ``there``."""

from __future__ import annotations

from typing import Any

from agentkv.bench.measured import Raw, measured
from agentkv.figures import share


@measured("portability")
def figures(raw: Raw) -> dict[str, Any]:
    """Both records, and ``same``: segments, probe hashes, proofs repeated there, blocks read anew, the pack."""
    here, there = raw["here"], raw["there"]
    blocks = len(here["probes"])

    def same(part: str) -> dict[str, Any]:
        return share(sum(there[part].get(key) == value for key, value in here[part].items()), len(here[part]))

    equal = {
        "segments": same("segments"),
        "probes": same("probes"),
        "states": same("states"),
        "prove": share(there["prove"], blocks),
        "recompute": share(there["recompute"], blocks),
        "pack": here["pack_sha256"] == there["pack_sha256"],
    }
    return {"here": here, "there": there, "same": equal}
