"""The README's tables, each from result files of one benchmark. Pure; every share and ratio is one of a single run.

A table takes the results of its benchmark in the order in which rows shall stand and gives Markdown. Knows what each
benchmark calls its figures; refuses to compute any from two results.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from agentkv.bench.errors import InvalidResult
from agentkv.bench.report import markdown
from agentkv.bench.results import Result

MODELS = ("smollm2-135m", "gemma-3-270m", "qwen2.5-coder-1.5b")
"""The order of rows; other models come behind, by name."""

STEPS = ("read + SHA-256", "decompress", "place", "native set")
CODECS = ("live rows", "zstd 1", "planes 1", "planes 3", "order-0 bound")
SIZE_FROM = 1500
"""The size table leaves shorter states out: a short one is mostly header."""


@dataclass(frozen=True)
class Table:
    """``name``: between the README's markers; ``benchmark``: whose results it is made of."""

    name: str
    benchmark: str
    render: Callable[[Sequence[Result]], str]

    def markdown(self, results: Sequence[Result]) -> str:
        """The table. Raises InvalidResult if there is no result, or one lacks a figure."""
        mine = sorted((one for one in results if one.benchmark == self.benchmark), key=_place)
        if not mine:
            raise InvalidResult(f"the table {self.name}", f"there is no result of {self.benchmark}")
        try:
            return self.render(mine)
        except (KeyError, IndexError, TypeError, StopIteration, ValueError) as error:
            names = ", ".join(one.where for one in mine)
            raise InvalidResult(names, f"a figure of the table {self.name} is missing ({error!r})") from error


def _place(result: Result) -> tuple[int, str, str]:
    known = MODELS.index(result.model) if result.model in MODELS else len(MODELS)
    return known, result.model, result.where


# --- exactness --------------------------------------------------------------------------------------


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


# --- subsidy ----------------------------------------------------------------------------------------


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


# --- answers ----------------------------------------------------------------------------------------


def answers(results: Sequence[Result]) -> str:
    """A row a model."""
    rows = []
    for one in results:
        found = one.data["summary"]
        parts = ("routed", "answered", "answered_when_routed", "identical", "abstained_on_uncovered")
        decision = f"{found['median_router_tokens']:.0f} tokens, {_duration(found['median_router_ms'])}"
        rows.append([one.model, *(_share(found[part]) for part in parts), decision])
    headings = ("model", "routed rightly", "answered rightly", "… where routed rightly")
    rest = ("grafted = re-read (ids and logits)", "no block, where no skill covers it", "a decision")
    return markdown((*headings, *rest), rows)


def _share(part: dict[str, Any]) -> str:
    low, high = part["wilson_95"]
    return f"{part['k']}/{part['n']} = {part['share']:.3f} ({low:.3f}–{high:.3f})"


# --- the store --------------------------------------------------------------------------------------


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
            f"{_ms(asked[name]['first_ms']['median'])} / {_ms(asked[name]['again_ms']['median'])}"
            for name in ("names", "name", "resolve", "manifest", "route")
        ]
        rows.append([f"{row['blocks']:,}", *cells, _ms(asked["list"]["first_ms"]["median"])])
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
    told = "not measured" if cold is None else f"{_ms(cold['ms']['median'])} ({cold['of_disk']:.2f})"
    return " / ".join([told, *(_ms(modes[name]["ms"]["median"]) for name in ("warm first", "warm again"))])


# --- the router -------------------------------------------------------------------------------------


def route(results: Sequence[Result]) -> str:
    """A row a library size, and one after lessons."""
    rows = []
    for one in results:
        for row in [*one.data["sizes"], *([one.data["learned"]] if one.data["learned"] else [])]:
            low, high = row["right"]["wilson_95"]
            parts = ("right_in_top_5", "abstained_on_uncovered", "abstained_on_covered")
            rows.append(
                [
                    _library(row),
                    f"{row['right']['k']}/{row['right']['n']} ({low:.2f}–{high:.2f})",
                    *(f"{row[part]['k']}/{row[part]['n']}" for part in parts),
                    f"{row['tokens']['median']:.0f}, {row['ms']['median'] / 1e3:.2f} s",
                ]
            )
    headings = ("library", "right (95 %)", "among the five best", "none, where none fits", "none, though one fits")
    return markdown((*headings, "tokens, time"), rows)


def _library(row: dict[str, Any]) -> str:
    if row.get("lessons"):
        return f"{row['size']:,}, after {row['lessons']} labelled questions"
    return f"{row['size']:,}" + (f" ({row['made_up']:,} made up)" if row["made_up"] else "")


def route_evaluate(results: Sequence[Result]) -> str:
    """A row a router, over one file of questions: results of another file are refused."""
    asked = {one.data["questions_sha256"] for one in results}
    if len(asked) > 1:
        raise ValueError(f"the results are about {len(asked)} files of questions")
    rows = []
    for one in results:
        (row,) = one.data["sizes"]
        low, high = (round(100 * end) for end in row["right"]["wilson_95"])
        silent = row["tokens"]["median"] == 0  # a router that asks no language model
        rows.append(
            [
                one.data["settings"]["classifier"] if silent else f"{one.model}: {one.data['settings']['classifier']}",
                f"{row['right']['k']} of {row['right']['n']} ({low}–{high} %)",
                f"{row['right_in_top_5']['k']}",
                f"{row['abstained_on_covered']['k']}",
                f"{row['tokens']['median']:.0f}, {_duration(row['ms']['median'])}",
            ]
        )
    headings = ("router", "right", "among the five best", "no block, though one fits", "tokens, time a decision")
    return markdown(headings, rows)


# --- an agent ---------------------------------------------------------------------------------------


def agent(results: Sequence[Result]) -> str:
    """The conversation: a row a model and arm; arms that were skipped are left out."""
    rows = []
    for one in results:
        if one.data["settings"]["part"] != "conversation":
            continue
        for name, arm in one.data["arms"].items():
            if "skipped" not in arm:
                rows.append([one.model, *_agent_row(arm, one.data["against"].get(name))])
    headings = ("model", "arm", "tokens read a turn", "first token", "after the kill: tokens read", "first token")
    rest = ("whole conversation", "reading before it", "its time / agentkv's", "answers as agentkv's")
    return markdown((*headings, *rest), rows)


def _agent_row(arm: dict[str, Any], against: dict[str, Any] | None) -> list[str]:
    whole = arm.get("whole_ms")
    ratio = against["whole_ms"]["measured"] if against and "whole_ms" in against else None
    equal = against["answers_equal"] if against else None
    return [
        arm["label"],
        f"{arm['usual']['evaluated']:,.0f}",
        _duration(arm["usual"]["first_ms"]),
        f"{arm['restarted']['evaluated']:,}",
        _duration(arm["restarted"]["first_ms"]),
        "not every turn" if whole is None else _duration(whole["measured"]),
        "" if not arm["prepare"] else _duration(arm["prepare"]["total_ms"]),
        "" if ratio is None else f"{ratio:.2f}",
        "" if equal is None else f"{equal['k']} of {equal['n']}",
    ]


# --- documents --------------------------------------------------------------------------------------


def widen(results: Sequence[Result]) -> str:
    """A row a result, and the paper's."""
    rows = []
    for one in results:
        data = one.data
        ratio, corpus, paper = data["ratio"], data["corpus"], data["paper"]
        rows.append(
            [
                f"{one.model}, {corpus['documents']:,} documents",
                f"{data['blocks']:,} of {corpus['windows']:,}",
                f"{data['tokens']:,}",
                f"{ratio['trained window']:.1f} × {corpus['train_window']:,}",
                f"{ratio['serving window']:,.0f} × {corpus['context']:,}",
                _gigabytes(data["bytes"]),
                f"{data['tokens_a_second']:.0f}",
                f"{data['prefill_share']:.0%}",
            ]
        )
    window = f"{paper['ratio']} × {paper['window']:,}"
    rows.append(["the paper", paper["blocks"], f"{paper['tokens']:,}", "", window, _gigabytes(paper["bytes"]), "", ""])
    headings = ("", "blocks", "tokens of the documents", "trained windows", "serving windows", "on disk")
    return markdown((*headings, "tokens a second", "of that in prefill"), rows)


def _gigabytes(count: float) -> str:
    return f"{count / 1e9:.1f} GB"


def needles(results: Sequence[Result]) -> str:
    """A row a model."""
    rows = []
    for one in results:
        data = one.data
        ms, prefilled = data["ms"], data["prefilled"]
        shares = ("retrieved", "quote_right", "said", "control_own", "control_other")
        rows.append(
            [
                one.model,
                f"windows {data['depth']['first']:,} to {data['depth']['last']:,} of {data['depth']['of']:,}",
                *(_share(data[key]) for key in shares),
                f"{prefilled['median']:.0f} (at most {prefilled['max']:.0f})",
                " + ".join(f"{_ms(ms[key]['median'])}" for key in ("find", "restore", "answer")) + " ms",
            ]
        )
    headings = ("model", "depth", "window found first", "quoted sentence right", "answer is the value alone")
    controls = ("free answer behind its window", "free answer behind another")
    return markdown((*headings, *controls, "tokens prefilled", "find + restore + answer"), rows)


def depth(results: Sequence[Result]) -> str:
    """A row a store, and how flat all is."""
    rows = []
    for one in results:
        kinds = [kind for kind in ("cold", "warm") if f"{kind} restore" in one.data["flat"]]
        stages = [f"{kind} {stage}" for kind in kinds for stage in ("restore", "both")]
        for store in one.data["stores"]:
            first, last = store["depths"]
            times = [f"{_ms(store['ms'][stage])} ms" for stage in stages]
            rows.append([one.model, f"{store['windows']:,}", f"{first:,} to {last:,}", *times])
        flat = [f"{one.data['flat'][stage]['max_of_median']:.2f}" for stage in stages]
        rows.append([one.model, "largest / median of all", "", *flat])
    words = [f"{kind}: {stage}" for kind in kinds for stage in ("restore", "to the first token")]
    return markdown(("model", "windows in the store", "depth", *words), rows)


def _ms(value: float) -> str:
    """Three digits of a number of milliseconds at most: ``0.02``, ``4.9``, ``58``, ``1,470``."""
    if value < 0.1:
        return f"{value:.2f}"
    if value < 10:
        return f"{value:.1f}"
    return f"{value:.0f}" if value < 1000 else f"{float(f'{value:.3g}'):,.0f}"


def _duration(ms: float) -> str:
    if ms < 1000:
        return f"{ms:.0f} ms"
    return f"{ms / 1e3:.1f} s"


TABLES = (
    Table("exactness", "exactness", exactness),
    Table("subsidy", "subsidy", subsidy),
    Table("answers", "answers", answers),
    Table("integrity", "integrity", integrity),
    Table("size", "size", size),
    Table("restore", "restore", restore),
    Table("catalogue", "catalogue", catalogue),
    Table("route-evaluate", "route evaluate", route_evaluate),
    Table("route", "route", route),
    Table("agent", "agent", agent),
    Table("widen", "widen", widen),
    Table("needles", "needles", needles),
    Table("depth", "depth", depth),
)
