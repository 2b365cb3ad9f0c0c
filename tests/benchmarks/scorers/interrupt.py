"""The figures of ``interrupt``: records of the undisturbed store, of each kill, and of each store."""

from __future__ import annotations

from typing import Any

from agentkv.bench.measured import Raw, measured
from agentkv.figures import share, spread


@measured("interrupt")
def figures(raw: Raw) -> dict[str, Any]:
    """How many kills landed, and how many of the stores are the undisturbed one, file by file."""
    whole = raw["undisturbed"]
    kills = [record for key, record in raw.items() if key.startswith("kill/")]
    stores = {key: record for key, record in raw.items() if key.startswith("store/")}
    other = {key: _differing(whole["files"], record["files"]) for key, record in stores.items()}
    return {
        "windows": whole["windows"],
        "seconds": whole["seconds"],
        "files_compared": len(whole["files"]),
        "kills": len(kills),
        "kills_wanted": raw["wanted"]["kills"],
        "delay_s": spread([kill["delay_s"] for kill in kills]),
        "blocks_at_a_kill": spread([kill["blocks"] for kill in kills]),
        "kills_with_left_overs": sum(kill["left_over"] > 0 for kill in kills),
        "damaged_after_a_kill": sum(bool(kill["damage"]) for kill in kills),
        "runs_a_store": spread([record["runs"] for record in stores.values()]),
        "identical": share(
            sum(not other[key] and not record["findings"] for key, record in stores.items()), len(stores)
        ),
        "other": {key: files for key, files in other.items() if files},
    }


def _differing(first: dict[str, str], second: dict[str, str]) -> list[str]:
    return sorted(path for path in first.keys() | second.keys() if first.get(path) != second.get(path))
