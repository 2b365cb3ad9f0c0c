"""``agentkv bench subsidy``: asks for the benchmark and shows its result."""

from __future__ import annotations

from typing import Any

from agentkv.cli import options
from agentkv.cli.bench import common
from agentkv.cli.output import say, table


def subsidy(
    model: options.BenchModel = options.DEFAULT_MODEL,
    lengths: common.Lengths = None,
    small: common.Small = False,
    threads: options.Threads = None,
    out: common.Out = None,
    ledger: options.Ledger = None,
    as_json: options.Json = False,
) -> None:
    """What reading costs against restoring, up to the first token; ratios of one run."""
    from agentkv.bench import subsidy as bench

    options.fetch_model(model)
    chosen = options.numbers(lengths) or ([512, 2048] if small else list(bench.LENGTHS))
    recorded = common.begin(ledger, "subsidy", {"model": model, "lengths": chosen, "threads": threads})
    result = bench.run(model, lengths=chosen, settings={"threads": threads})
    common.end(result, out, as_json, _show, bench.check, recorded)


def _show(result: dict[str, Any]) -> None:
    rows = []
    for row in result["lengths"]:
        cleared = f" ({row['clear_cache_ms']['median']:.1f})" if "clear_cache_ms" in row else ""
        share = " ".join(f"{name} {part:.0%}" for name, part in row["restore_disk"]["share"].items())
        rows.append(
            (
                f"{row['n']:,}",
                f"{row['cold_prefill_ms'] / 1e3:.1f} s",
                f"{row['first_token_ms']:.0f} ms",
                f"{row['restore_ram_ms']['median']:.1f} ms{cleared}",
                f"{row['subsidy_ram']:,.0f} ×",
                f"{row['ram_share_of_memcpy']:.2f}",
                f"{row['restore_disk']['first_read_ms']:.0f} ms",
                f"{row['subsidy_disk']:,.0f} ×",
                f"{row['deposit_overhead']:.1%}",
                share,
            )
        )
    columns = (
        "tokens",
        "read",
        "first token",
        "RAM (clearing)",
        "",
        "of memcpy",
        "warm disk",
        " ",
        "deposit adds",
        "disk steps",
    )
    table(columns, rows, right=columns[:-1], wraps=("disk steps",))
    for n, reason in result["left_out"].items():
        say(f"{int(n):,} tokens left out: {reason}", dim=True)
