"""``agentkv bench``: the benchmarks, one command each. Exit code 60 when the guarantee measured does not hold."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

import typer

from agentkv.cli import options
from agentkv.cli.output import finish, say, table
from agentkv.errors import GuaranteeViolated

app = typer.Typer(no_args_is_help=True, help="Measure what agentkv promises, on this machine.")

Out = Annotated[Path | None, typer.Option("--out", metavar="FILE", help="Also write the whole result as JSON.")]
Lengths = Annotated[
    str | None, typer.Option("--lengths", metavar="N,N,…", help="Block lengths in tokens, instead of the usual ones.")
]
Small = Annotated[bool, typer.Option("--small", help="A part of it that takes a minute or two.")]
Skills = Annotated[
    Path | None, typer.Option("--skills", metavar="DIR", help="Skill folders; by default those that come along.")
]


@app.command()
def exactness(
    model: options.Model = options.DEFAULT_MODEL,
    lengths: Lengths = None,
    small: Small = False,
    threads: options.Threads = None,
    flash_attention: options.FlashAttention = False,
    kv_type: options.KvType = "f16",
    out: Out = None,
    as_json: options.Json = False,
) -> None:
    """Is a graft in a new process the same computation as reading? 48 greedy steps a length, every logit byte."""
    from agentkv.bench import exactness as bench
    from agentkv.skills.manual import load_manuals

    options.fetch_model(model)
    texts = [manual.text for manual in load_manuals([options.skills_folder(None)]).loaded]
    chosen = options.numbers(lengths) or ([1, 257, 600, 1024] if small else list(bench.LENGTHS))
    settings = {"threads": threads, "flash_attention": flash_attention, "kv_type": kv_type}
    result = bench.run(model, texts, lengths=chosen, samples=10 if small else bench.SAMPLES, settings=settings)
    _end(result, out, as_json, _show_exactness, bench.check)


def _show_exactness(result: dict[str, Any]) -> None:
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


@app.command()
def architectures(
    model: Annotated[
        list[str] | None, typer.Option("--model", metavar="NAME", help="Real models, instead of the tiny ones.")
    ] = None,
    out: Out = None,
    as_json: options.Json = False,
) -> None:
    """Which kinds of model graft exactly, and what changes their bits: tiny random models of every kind."""
    from agentkv.bench import architectures as bench

    for name in model or ():
        options.fetch_model(name)
    _end(bench.run(model or ()), out, as_json, _show_architectures, bench.check)


def _show_architectures(result: dict[str, Any]) -> None:
    rows = []
    for row in result["rows"]:
        flash = "on" if row["flash_attention"] else "off"
        if row["verdict"] == "refused":
            rows.append((row["name"], flash, "refused", "", row["reason"], ""))
            continue
        same = [name for name, equal in row["unchanged_by"].items() if equal]
        changed = [name for name, equal in row["unchanged_by"].items() if not equal]
        steps = f"{row['steps']}/{result['settings']['steps']}"
        rows.append((row["name"], flash, row["verdict"], steps, ", ".join(same), ", ".join(changed)))
    columns = ("model", "flash", "graft", "steps", "bits unchanged by", "bits changed by")
    table(columns, rows, wraps=columns[-2:])


@app.command()
def subsidy(
    model: options.Model = options.DEFAULT_MODEL,
    lengths: Lengths = None,
    small: Small = False,
    threads: options.Threads = None,
    out: Out = None,
    as_json: options.Json = False,
) -> None:
    """What reading costs against restoring, up to the first token; ratios of one run."""
    from agentkv.bench import subsidy as bench

    options.fetch_model(model)
    chosen = options.numbers(lengths) or ([512, 2048] if small else list(bench.LENGTHS))
    result = bench.run(model, lengths=chosen, settings={"threads": threads})
    _end(result, out, as_json, _show_subsidy, bench.check)


def _show_subsidy(result: dict[str, Any]) -> None:
    rows = []
    for row in result["lengths"]:
        share = " ".join(f"{name} {part:.0%}" for name, part in row["restore_disk"]["share"].items())
        rows.append(
            (
                f"{row['n']:,}",
                f"{row['cold_prefill_ms'] / 1e3:.1f} s",
                f"{row['first_token_ms']:.0f} ms",
                f"{row['restore_ram_ms']['median']:.1f} ms ({row['clear_cache_ms']['median']:.1f})",
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


@app.command()
def answers(
    model: options.Model = options.DEFAULT_MODEL,
    skills: Skills = None,
    per_skill: Annotated[int | None, typer.Option(min=1, help="Only the first so many questions a skill.")] = None,
    reread: Annotated[bool, typer.Option(help="Also answer by reading the manual, and compare.")] = True,
    store: options.Store = None,
    threads: options.Threads = None,
    out: Out = None,
    as_json: options.Json = False,
) -> None:
    """The skills' own labelled questions: routed rightly, answered rightly, grafted and re-read alike."""
    from agentkv.bench import answers as bench

    options.fetch_model(model)
    folder = options.skills_folder(skills)
    chosen = options.store_path(store) if store else None
    result = bench.run(model, folder, per_skill=per_skill, reread=reread, store=chosen, settings={"threads": threads})
    _end(result, out, as_json, _show_answers, bench.check)


def _show_answers(result: dict[str, Any]) -> None:
    names = {
        "routed": "routed rightly",
        "answered": "answered rightly",
        "answered_when_routed": "answered rightly, where routed rightly",
        "identical": "grafted answer identical to the re-read one",
        "abstained_on_covered": "no block, though a skill covers it",
        "abstained_on_uncovered": "no block, where no skill covers it",
    }
    summary = result["summary"]
    rows = []
    for key, name in names.items():
        part = summary[key]
        if part["n"]:
            low, high = part["wilson_95"]
            rows.append((name, f"{part['k']}/{part['n']}", f"{part['share']:.3f}", f"{low:.3f} to {high:.3f}"))
    table(("", "questions", "share", "Wilson 95 %"), rows, right=("questions", "share"))
    first = summary["median_ms_to_first_token"]
    say()
    say(
        f"first token after {first['graft']:,.0f} ms from a graft"
        + (f", {first['reread']:,.0f} ms by reading (medians)" if first["reread"] is not None else " (median)")
    )
    say(f"a decision: {summary['median_router_tokens']:.0f} tokens, {summary['median_router_ms']:,.0f} ms (medians)")


def _end(
    result: dict[str, Any],
    out: Path | None,
    as_json: bool,
    show: Callable[[dict[str, Any]], None],
    check: Callable[[dict[str, Any]], None],
) -> None:
    from agentkv.bench.report import save

    save(result, out)
    failures = []
    try:
        check(result)
    except GuaranteeViolated as error:
        failures.append(error)
    finish(result, as_json, lambda: show(result), failures)
