"""The engine and the store: exactness, what reading costs, bytes and milliseconds, faults."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from agentkv.bench.report import markdown
from agentkv.bench.results import Result
from tests.benchmarks.tables.base import milliseconds

STEPS = ("read + SHA-256", "decompress", "place", "native set")
CODECS = ("live rows", "zstd 1", "planes 1", "planes 3", "order-0 bound")
SIZE_FROM = 1500
"""The size table leaves shorter states out: a short one is mostly header."""


def exactness(results: Sequence[Result]) -> str:
    """One row a model; runs with flash attention have a fingerprint of their own and are left out."""
    rows = [_exactness_row(one.data) for one in results if not one.data["settings"].get("flash_attention")]
    headings = ("model", "steps equal", "KL median / p99", "argmax flips", "equal to one pass", "… cut at 158 tokens")
    moved = ("moved by 8: KL median (flips)", "by 128", "by 1,024")
    return markdown((*headings, *moved, "control: plain per-sequence state"), rows)


def _exactness_row(data: dict[str, Any]) -> list[str]:
    steps, samples, own = data["settings"]["steps"], data["samples"], data["samples"]["0"]
    equal = sum(row["equal_steps"] for row in data["lengths"])
    passes = [f"{samples[name]['equal']}/{samples[name]['n']}" for name in ("one pass", "one pass, cut unaligned")]
    moved = [f"{samples[by]['kl_median']:.1e} ({samples[by]['argmax_flips']})" for by in ("8", "128", "1024")]
    failed = [row for row in data["lengths"] if row["control_equal_steps"] not in (None, steps)]
    control = ", ".join(f"{row['control_equal_steps']}/{steps} at {row['n']:,}" for row in failed)
    return [
        data["model"],
        f"{equal}/{steps * len(data['lengths'])}",
        f"{own['kl_median']:.2g} / {own['kl_p99']:.2g}",
        f"{own['argmax_flips']}/{own['n']}",
        *passes,
        *moved,
        (control or "equal throughout") if data["sliding_window"] else "not windowed",
    ]


def subsidy(results: Sequence[Result]) -> str:
    """A row a length that was measured, and one a length that was left out."""
    rows = []
    for one in results:
        rows += [_subsidy_row(one.model, row) for row in one.data["lengths"]]
        rows += [[one.model, f"{int(n):,}", why, *[""] * 7] for n, why in one.data["left_out"].items()]
    headings = (
        *("model", "tokens", "read", "RAM restore (of it clearing the window) + first token", "subsidy"),
        *("restore as a share of memcpy speed", "warm disk, all hashes checked", "subsidy"),
        *("of it: read + SHA-256 / decompress / place / native", "capture + store add"),
    )
    return markdown(headings, rows)


def _subsidy_row(model: str, row: dict[str, Any]) -> list[str]:
    cleared = f" ({row['clear_cache_ms']['median']:.1f})" if "clear_cache_ms" in row else ""
    disk = row["restore_disk"]
    return [
        model,
        f"{row['n']:,}",
        f"{row['cold_prefill_ms'] / 1e3:.1f} s",
        f"{row['restore_ram_ms']['median']:.1f}{cleared} + {row['first_token_ms']:.0f} ms",
        f"{row['subsidy_ram']:,.0f} ×",
        f"{row['ram_share_of_memcpy']:.2f}",
        f"{disk['first_read_ms']:.0f} ms",
        f"{row['subsidy_disk']:,.0f} ×",
        " / ".join(f"{disk['share'][step]:.0%}" for step in STEPS),
        f"{row['deposit_overhead']:.1%}",
    ]


def integrity(results: Sequence[Result]) -> str:
    """A row an operation, and one for the power failures in all of them."""
    (one,) = results
    rows = []
    faults = one.data["faults"]
    for operation in dict.fromkeys(row["operation"] for row in faults):
        mine = [row for row in faults if row["operation"] == operation]
        killed = sum(row["cases"] for row in mine if row["mode"].startswith("SIGKILL"))
        cases = sum(row["cases"] for row in mine)
        rows.append([operation, f"{mine[0]['steps']}", f"{cases - killed:,} / {killed:,}", *_wrong(mine)])
    power = one.data["power"]
    waited, states = (sum(row[key] for row in power) for key in ("waited_for_collect", "states"))
    *wrong, left_over = _wrong(power)
    left_over += f" after `gc` (in {waited:,} of them something waited for it)"
    moments = sum(row["prefixes"] for row in power)
    label = f"power failures at {moments:,} moments of these: states that a disk may be left in"
    rows.append([label, "", f"{states:,}, more or fewer by the order in which threads write", *wrong, left_over])
    fails = "each fails (EIO, disk full, EIO for ever, Ctrl-C before and after) / SIGKILL before and after"
    headings = ("", "file-system steps", fails, "lost blocks", "half blocks")
    return markdown((*headings, "left over after the next open"), rows)


def _wrong(rows: Sequence[dict[str, Any]]) -> list[str]:
    return [f"{sum(row[kind] for row in rows):,}" for kind in ("lost", "half", "leftovers")]


def catalogue(results: Sequence[Result]) -> str:
    """A row a number of blocks: milliseconds, first / again; of the whole command the first."""
    (one,) = results
    rows = []
    for row in one.data["counts"]:
        asked = row["questions"]
        cells = [
            f"{milliseconds(asked[name]['first_ms']['median'])} / {milliseconds(asked[name]['again_ms']['median'])}"
            for name in ("names", "name", "resolve", "manifest", "route")
        ]
        rows.append([f"{row['blocks']:,}", *cells, milliseconds(asked["list"]["first_ms"]["median"])])
    headings = ("blocks", "all names", "one name", "id by its start", "manifest", "a router's candidates")
    return markdown((*headings, "`agentkv list --json`, whole command"), rows)


def size(results: Sequence[Result]) -> str:
    """Bytes a token, and as a share of what llama.cpp hands over."""
    rows = []
    for one in results:
        for row in one.data["codecs"]:
            if row["n"] < SIZE_FROM:
                continue
            by = {codec["codec"]: codec for codec in row["codecs"]}
            cells = [f"{by[name]['bytes'] / row['n']:,.0f} ({by[name]['of_raw']:.3f})" for name in CODECS]
            tokens, raw = f"{row['n']:,}", f"{row['raw_bytes'] / row['n']:,.0f}"
            rows.append([one.model, tokens, raw, *cells, f"{by['planes 1']['over_bound']:.3f}"])
    headings = ("model", "tokens", "llama.cpp", "masked rows dropped", "zstd 1", "planes 1 (default)", "planes 3")
    return markdown((*headings, "order-0 bound of the planes", "planes 1 / bound"), rows)


def restore(results: Sequence[Result]) -> str:
    """Milliseconds by length and setting; in brackets shares of the yardsticks of the same run."""
    rows = []
    for one in results:
        for row in one.data["lengths"]:
            if row["native_ms"] is None:
                continue
            ways = {way["setting"]: way["modes"] for way in row["settings"]}
            ram = f"{row['native_ms']['median']:.1f} ({row['ram_of_memcpy']:.2f})"
            cells = [_modes(ways[name]) for name in ("planes 1", "raw")]
            rows.append([one.model, f"{row['n']:,}", f"{row['state_bytes'] / 1e6:.0f} MB", ram, *cells])
    headings = ("model", "tokens", "state", "from RAM, native set (of memcpy)")
    kinds = "cold first / warm first / warm again"
    return markdown((*headings, f"planes 1: {kinds}", f"raw: {kinds}"), rows)


def _modes(modes: dict[str, Any]) -> str:
    cold = modes.get("cold first")
    told = "not measured" if cold is None else f"{milliseconds(cold['ms']['median'])} ({cold['of_disk']:.2f})"
    return " / ".join([told, *(milliseconds(modes[name]["ms"]["median"]) for name in ("warm first", "warm again"))])
