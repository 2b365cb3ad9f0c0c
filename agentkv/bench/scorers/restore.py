"""The figures of ``agentkv bench restore``: yardsticks, shares of them, the setting that is recommended, aims.

``length/N`` has every time that was taken, in milliseconds, and SHA-256 of the state as it was and as it came back;
``disk_ms`` two lists, of before and after. ``default``: the store's default setting then.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from typing import Any

from agentkv.bench.measured import Raw, measured
from agentkv.bench.report import told
from agentkv.errors import UsageError

AIMS = {"from RAM, of memcpy": 0.8, "cold raw assembly, of disk": 0.6}


@measured("restore")
def figures(raw: Raw) -> dict[str, Any]:
    """``lengths``, ``aims`` and ``recommended``."""
    rows = [_length(record) for key, record in raw.items() if key.startswith("length/")]
    return {"lengths": rows, "aims": _aims(rows), "recommended": recommend(rows, raw["default"])}


def _length(record: dict[str, Any]) -> dict[str, Any]:
    memcpy = told(record["memcpy_ms"])
    ram = None if record["native_ms"] is None else told(record["native_ms"])
    disk = {key: _pooled(*pair) for key, pair in record["disk_ms"].items()}
    return {
        **{key: record[key] for key in ("n", "state_bytes", "segments")},
        "memcpy_ms": memcpy,
        "disk_ms": disk,
        "native_ms": ram,
        "ram_of_memcpy": memcpy["median"] / ram["median"] if ram else None,
        "settings": [_setting(way, record, memcpy["median"], ram, disk) for way in record["settings"]],
    }


def _setting(
    way: dict[str, Any],
    record: dict[str, Any],
    memcpy: float,
    ram: dict[str, float] | None,
    disk: dict[str, dict[str, float] | None],
) -> dict[str, Any]:
    left = way["pages_left"]
    modes = {}
    for name, taken in way["modes"].items():
        if left and name.startswith("cold"):
            continue
        read, found = disk[name.split()[0]], told(taken)
        median = found["median"]
        modes[name] = {
            "ms": found,
            "of_memcpy": memcpy / median,
            "of_disk": read["median"] / median if read else None,
        }
        if ram and read:
            modes[name]["with_native_of_disk"] = read["median"] / (median + ram["median"])
    return {
        "setting": way["setting"],
        "stored_bytes": way["stored_bytes"],
        "of_raw": way["stored_bytes"] / record["state_bytes"],
        "put_ms": way["put_ms"],
        "modes": modes,
        "warm_again_into_touched_memory_ms": told(way["touched_ms"]),
        "cold": f"left out: {left:.0%} of the pages stay in the page cache" if left else "no page was left",
        "device_share": statistics.median(way["device_shares"]) if way["device_shares"] and not left else None,
        "equal": set(way["read_sha256"]) == {record["state_sha256"]},
    }


def _pooled(first: list[float] | None, second: list[float] | None) -> dict[str, float] | None:
    """Both lists told as one; its median is the middle between theirs, for disks do not keep one speed."""
    if first is None or second is None:
        return None
    middle = (statistics.median(first) + statistics.median(second)) / 2
    return {**told([*first, *second]), "median": middle}


def recommend(rows: Sequence[dict[str, Any]], default: str) -> dict[str, Any]:
    """The setting of the least time × bytes, by the rule in the benchmark's text, and whether it is the default.

    Raises UsageError for no rows.
    """
    names = [way["setting"] for way in rows[0]["settings"]] if rows else []
    if not names:
        raise UsageError("nothing was measured")
    time_of: dict[str, dict[str, list[float]]] = {}
    bytes_of: dict[str, list[float]] = {name: [] for name in names}
    for row in rows:
        native = row["native_ms"]["median"] if row["native_ms"] else 0.0
        ways = {way["setting"]: way for way in row["settings"]}
        for mode in ways[names[0]]["modes"]:
            taken = {
                name: ways[name]["modes"][mode]["ms"]["median"] + native
                for name in names
                if mode in ways[name]["modes"]
            }
            for name, ms in taken.items():
                time_of.setdefault(mode, {}).setdefault(name, []).append(ms / min(taken.values()))
        least = min(way["stored_bytes"] for way in ways.values())
        for name in names:
            bytes_of[name].append(ways[name]["stored_bytes"] / least)
    whole = [mode for mode, by in time_of.items() if all(len(by.get(name, ())) == len(rows) for name in names)]
    cold = "cold first" if "cold first" in whole else "warm first"
    sizes = {name: _mean(values) for name, values in bytes_of.items()}
    slower = {name: _mean([*time_of[cold][name], *time_of["warm again"][name]]) for name in names}
    best = min(names, key=lambda name: slower[name] * sizes[name])
    return {
        "setting": best,
        "default": default,
        "agrees": best == default,
        "scores": {
            name: {
                "time": slower[name],
                "bytes": sizes[name],
                "time × bytes": slower[name] * sizes[name],
                "by_mode": {mode: _mean(time_of[mode][name]) * sizes[name] for mode in whole},
            }
            for name in names
        },
    }


def _mean(values: Sequence[float]) -> float:
    """Geometric mean."""
    return math.exp(statistics.fmean(map(math.log, values)))


def _aims(rows: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    found = []
    for row in rows:
        values = {"from RAM, of memcpy": row["ram_of_memcpy"]}
        for way in row["settings"]:
            if way["setting"] == "raw" and "cold first" in way["modes"]:
                values["cold raw assembly, of disk"] = way["modes"]["cold first"]["of_disk"]
        for name, value in values.items():
            if value is not None:
                found.append({"aim": name, "n": row["n"], "least": AIMS[name], "value": value})
    return [{**one, "met": one["value"] >= one["least"]} for one in found]
