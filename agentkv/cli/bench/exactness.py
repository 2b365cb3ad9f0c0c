"""``agentkv bench exactness``: asks for the benchmark and shows its result."""

from __future__ import annotations

from typing import Any

from agentkv.cli import options
from agentkv.cli.bench import common
from agentkv.cli.output import say, table


def exactness(
    model: options.BenchModel = options.DEFAULT_MODEL,
    lengths: common.Lengths = None,
    small: common.Small = False,
    threads: options.Threads = None,
    flash_attention: options.FlashAttention = False,
    kv_type: options.KvType = "f16",
    gpu_layers: options.GpuLayers = 0,
    out: common.Out = None,
    ledger: options.Ledger = None,
    as_json: options.Json = False,
) -> None:
    """Is a graft in a new process the same computation as reading? 48 greedy steps a length, every logit byte."""
    from agentkv.bench import exactness as bench

    options.fetch_model(model)
    chosen = options.numbers(lengths) or ([1, 257, 600] if small else list(bench.LENGTHS))
    settings = {
        "threads": threads,
        "flash_attention": flash_attention,
        "kv_type": kv_type,
        "gpu_layers": gpu_layers,
    }
    recorded = common.begin(ledger, "exactness", {"model": model, "lengths": chosen, "small": small, **settings})
    result = bench.run(
        model, common.manual_texts(), lengths=chosen, samples=5 if small else bench.SAMPLES, settings=settings
    )
    common.end(result, out, as_json, _show, bench.check, recorded)


def _show(result: dict[str, Any]) -> None:
    steps = result["settings"]["steps"]
    rows = [
        (
            f"{row['n']:,}",
            f"{row['equal_steps']}/{steps}",
            "yes" if row["recaptured_equal"] else "no",
            "not windowed" if row["control_equal_steps"] is None else f"{row['control_equal_steps']}/{steps}",
        )
        for row in result["lengths"]
    ]
    table(
        ("tokens", "graft = fresh", "re-captured equal", "control: plain per-sequence state"), rows, right=("tokens",)
    )
    say()
    names = {"0": "graft at its own position"}
    cells = [
        (
            names.get(name, f"moved by {name}" if name.isdigit() else name),
            f"{row['equal']}/{row['n']}",
            f"{row['kl_median']:.3g}",
            f"{row['kl_p99']:.3g}",
            f"{row['argmax_flips']}/{row['n']}",
        )
        for name, row in result["samples"].items()
    ]
    columns = ("real text, against fresh", "equal bytes", "KL median", "KL p99", "argmax flips")
    table(columns, cells, right=columns[1:])
