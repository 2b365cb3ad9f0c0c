"""Pictures of results with matplotlib: one file a result and picture, so that a picture shows one run only.

``restore``: a cold prefill against restoring by length (subsidy); ``depth``: time to the first token by how deep into
its conversation a turn is (agent); ``windows``: by how deep in a store of documents a window lies (depth); ``files``:
from files to a whole state by length, setting and cache (restore); ``bytes``: bytes a token (size); ``accuracy``: the
router by library size (route); ``evaluated``: the same of a user's own questions (route evaluate).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from agentkv.bench import restore, size, subsidy
from agentkv.bench.base import rows_of
from agentkv.bench.results import Result
from agentkv.errors import InvalidResult
from agentkv.notices import warn
from tests.benchmarks.agent.conversation import arms_of
from tests.benchmarks.errors import PlotsUnavailable

FORMATS = ("svg", "png")


def plot(results: Sequence[Result], folder: Path, kind: str = "svg") -> list[Path]:
    """Draw every picture that there is for ``results``; the files. Raises PlotsUnavailable, InvalidResult.

    Results of benchmarks without a picture are left out, with a warning that names them; if all are, that is an
    InvalidResult, as is a missing figure.
    """
    try:
        from matplotlib.figure import Figure
    except ImportError as error:
        raise PlotsUnavailable from error
    drawn = [one for one in results if one.benchmark in PICTURES]
    others = [f"{one.where} ({one.benchmark})" for one in results if one.benchmark not in PICTURES]
    known = f"pictures are there of {', '.join(PICTURES)}"
    if not drawn:
        raise InvalidResult(", ".join(others), f"no picture of such a result; {known}")
    if others:
        warn(f"no picture of {', '.join(others)}; {known}.")
    folder.mkdir(parents=True, exist_ok=True)
    files = []
    for one in drawn:
        name, draw = PICTURES[one.benchmark]
        figure = Figure(figsize=(7, 4.5), layout="constrained")
        axes = figure.add_subplot()
        try:
            draw(axes, one.data)
        except (KeyError, IndexError, TypeError, ValueError) as error:
            raise InvalidResult(one.where, f"a figure of the picture {name} is missing ({error!r})") from error
        axes.set_title(f"{one.model}, {one.data['machine']['processor']}, {one.data['machine']['cores']} cores")
        axes.grid(visible=True, alpha=0.3)
        axes.legend()
        path = folder / f"{name}-{re.sub(r'[^A-Za-z0-9.]+', '-', one.model)}-{one.data['run'][:8]}.{kind}"
        figure.savefig(path, metadata={"Date": None} if kind == "svg" else None)
        files.append(path)
    return files


def _restore(axes: Any, data: Mapping[str, Any]) -> None:
    rows = rows_of(subsidy.Length, "lengths")(data)
    lengths, first = [row.n for row in rows], [row.first_token_ms for row in rows]
    lines = {
        "cold prefill": [row.cold_prefill_ms for row in rows],
        "restored from a warm disk, every hash checked": [row.restore_disk.first_read_ms for row in rows],
        "restored from RAM": [row.restore_ram_ms.median for row in rows],
    }
    for label, times in lines.items():
        axes.plot(lengths, [ms + token for ms, token in zip(times, first, strict=True)], marker="o", label=label)
    axes.set(xscale="log", yscale="log", xlabel="tokens of the block", ylabel="ms to the first token's logits")
    _ticks(axes, lengths)


def _depth(axes: Any, data: Mapping[str, Any]) -> None:
    for arm in arms_of(data):
        prompts, times = [row.prompt for row in arm.rows], [row.first_ms for row in arm.rows]
        if arm.skipped is None:
            axes.plot(prompts, times, marker="o", ls="-" if arm.all_turns else ":", label=arm.label)
    axes.set(yscale="log", xlabel="tokens of the turn's prompt", ylabel="ms to the first token")


def _windows(axes: Any, data: Mapping[str, Any]) -> None:
    for n in dict.fromkeys(point["windows"] for point in data["points"]):
        rows = sorted((point for point in data["points"] if point["windows"] == n), key=lambda point: point["depth"])
        places = [row["depth"] / max(1, n - 1) for row in rows]
        for home, style in (("cold", "-"), ("warm", "--")):
            times = [row["ms"][home]["both"] for row in rows]
            axes.plot(places, times, ls=style, marker="o", label=f"{n:,} windows, {home}")
    axes.set(xlabel="depth of the window in its store", ylabel="ms to the first token", ylim=(0, None))


def _files(axes: Any, data: Mapping[str, Any]) -> None:
    rows = rows_of(restore.Length, "lengths")(data)
    for setting in [way.setting for way in rows[0].settings]:
        for mode, style in (("cold first", "-"), ("warm again", "--")):
            ways = [(row.n, way) for row in rows for way in row.settings if way.setting == setting]
            points = [(n, way.modes[mode].ms) for n, way in ways if mode in way.modes]
            if points:
                medians = [ms.median for _, ms in points]
                spans = [ms.median - ms.min for _, ms in points], [ms.max - ms.median for _, ms in points]
                lengths = [n for n, _ in points]
                axes.errorbar(lengths, medians, spans, ls=style, marker="o", capsize=3, label=f"{setting}, {mode}")
    axes.set(xscale="log", yscale="log", xlabel="tokens of the state", ylabel="ms from files to a whole state")
    _ticks(axes, [row.n for row in rows])


def _bytes(axes: Any, data: Mapping[str, Any]) -> None:
    rows = rows_of(size.StateSizes, "codecs")(data)
    for codec in [one.codec for one in rows[0].codecs]:
        found = [(row.n, one.bytes / row.n) for row in rows for one in row.codecs if one.codec == codec]
        dotted = ":" if codec == "order-0 bound" else "-"
        axes.plot(*zip(*found, strict=True), ls=dotted, marker="o", label=codec)
    axes.set(xlabel="tokens of the state", ylabel="bytes a token", ylim=(0, None))


def _accuracy(axes: Any, data: Mapping[str, Any]) -> None:
    rows = data["sizes"]
    for key, label in (("right", "right"), ("right_in_top_5", "among the five best")):
        shares = [row[key]["share"] for row in rows]
        below = [max(0.0, row[key]["share"] - row[key]["wilson_95"][0]) for row in rows]
        above = [max(0.0, row[key]["wilson_95"][1] - row[key]["share"]) for row in rows]
        axes.errorbar([row["size"] for row in rows], shares, (below, above), marker="o", capsize=3, label=label)
    axes.set(xscale="log", xlabel="skills in the library", ylabel="share of questions, Wilson 95 %", ylim=(0, 1.02))
    _ticks(axes, [row["size"] for row in rows])


def _ticks(axes: Any, values: Sequence[int]) -> None:
    axes.set_xticks(values, [f"{value:,}" for value in values])
    axes.minorticks_off()


PICTURES: dict[str, tuple[str, Callable[[Any, Mapping[str, Any]], None]]] = {
    "subsidy": ("restore", _restore),
    "agent": ("depth", _depth),
    "depth": ("windows", _windows),
    "restore": ("files", _files),
    "size": ("bytes", _bytes),
    "route": ("accuracy", _accuracy),
    "route evaluate": ("evaluated", _accuracy),
}
"""By benchmark: the picture's name, and what draws it."""
