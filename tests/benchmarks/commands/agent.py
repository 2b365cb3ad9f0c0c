"""``agent``: asks for the benchmark and shows its result."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from agentkv.cli import options
from agentkv.cli.output import duration, say, table
from tests.benchmarks.commands import common


def agent(
    part: Annotated[str, typer.Option(metavar="PART", help="conversation, secrets or threads.")] = "conversation",
    model: Annotated[
        str | None,
        typer.Option(
            "--model",
            metavar="NAME|PATH",
            envvar="AGENTKV_MODEL",
            show_default="qwen2.5-coder-1.5b for the conversation, else smollm2-135m",
            help="A name of `agentkv models list`, a .gguf file or hf:OWNER/REPO/FILE.",
        ),
    ] = None,
    turns: Annotated[int | None, typer.Option(min=2, show_default="20, 200, 40", help="Turns of the part.")] = None,
    answer: Annotated[
        int | None, typer.Option(min=2, show_default="16, 12, 12", help="Tokens of an answer, at most.")
    ] = None,
    manual: Annotated[
        int | None, typer.Option(min=64, metavar="TOKENS", show_default="3000", help="Length of the manual.")
    ] = None,
    arm: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME",
            show_default="all but llamacpp-ram",
            help="Of agentkv, llamacpp, llamacpp-ram, llamacpp-disk, deepagents, reread; repeat for more.",
        ),
    ] = None,
    work: Annotated[
        Path | None, typer.Option(metavar="DIR", help="Keep each finished arm here, and go on with those kept.")
    ] = None,
    small: common.Small = False,
    threads: options.Threads = None,
    out: common.Out = None,
    ledger: options.Ledger = None,
    as_json: options.Json = False,
) -> None:
    """An agent's conversation with its process killed in the middle, against ChatLlamaCpp; secrets; forked threads."""
    from agentkv.errors import UsageError
    from tests.benchmarks import agent as bench

    if part not in bench.PARTS:
        raise UsageError(f"there is no part {part!r}; there are {', '.join(bench.PARTS)}")
    chosen = model or bench.MODELS[part]
    options.fetch_model(chosen)
    recorded = common.begin(
        ledger, "agent", {"part": part, "model": chosen, "small": small, "turns": turns, "answer": answer}
    )
    result = bench.run(
        part,
        chosen,
        texts=common.manual_texts(),
        small=small,
        chosen=arm or bench.arms.USUAL,
        work=work,
        turns=turns,
        answer=answer,
        manual=manual,
        threads=threads,
    )
    common.end(result, out, as_json, _SHOW[part], bench.check, recorded)


def _show_conversation(result: dict[str, Any]) -> None:
    settings = result["settings"]
    say(
        f"{result['model']}: a manual of {result['manual_tokens']:,} tokens, {settings['turns']} turns, answers of "
        f"{settings['answer']} tokens, killed after turn {settings['turns'] // 2}\n"
    )
    rows = [_row(arm, result["against"].get(name)) for name, arm in result["arms"].items() if "skipped" not in arm]
    columns = (
        "arm",
        "tokens a turn",
        "first token",
        "after the kill: tokens",
        "first token ",
        "whole",
        "read before",
        "answers as agentkv's",
    )
    table(columns, rows, right=columns[1:], wraps=("arm",))
    say()
    for name, arm in result["arms"].items():
        if "skipped" in arm:
            say(f"{arm['label']}: skipped, {arm['skipped']}", dim=True)
            continue
        if not arm["all_turns"]:
            told = ", ".join(str(row["turn"]) for row in arm["rows"])
            say(f"{arm['label']}: only turns {told} were measured, so there is no sum", dim=True)
        if arm["prepare"] and arm["prepare"].get("restore_ms") is not None:
            kept = duration(arm["prepare"]["keep_ms"])
            say(
                f"{arm['label']}: {kept} of the reading before were keeping, with the test that a store needs once",
                dim=True,
            )
        if arm.get("resumed"):
            say(f"{arm['label']}: measured in an earlier run", dim=True)
        against = result["against"].get(name)
        if against is not None:
            say(f"{arm['label']} / agentkv: {_ratios(against)}")


def _row(arm: dict[str, Any], against: dict[str, Any] | None) -> tuple[str, ...]:
    equal = against["answers_equal"] if against else None
    return (
        arm["label"],
        f"{arm['usual']['evaluated']:,.0f}",
        duration(arm["usual"]["first_ms"]),
        f"{arm['restarted']['evaluated']:,}",
        duration(arm["restarted"]["first_ms"]),
        duration(arm["whole_ms"]["measured"]) if "whole_ms" in arm else "",
        duration(arm["prepare"]["total_ms"]) if arm["prepare"] else "",
        f"{equal['k']} of {equal['n']}" if equal else "",
    )


def _ratios(against: dict[str, Any]) -> str:
    parts = [f"first token after the kill {against['first_after_restart']:.1f} ×"]
    for key, label in (("whole_ms", "whole"), ("whole_with_prepare_ms", "with the reading before")):
        if key in against:
            whole = against[key]
            told = ", ".join(f"at {n} tokens an answer {ratio:.2f} ×" for n, ratio in whole.items() if n != "measured")
            parts.append(f"{label} {whole['measured']:.2f} × (computed: {told})")
    return "; ".join(parts)


def _show_secrets(result: dict[str, Any]) -> None:
    settings = result["settings"]
    say(f"{result['asked']} turns over {settings['blocks']} blocks by two threads and two event loops on one model")
    say(f"answers with another block's secret: {len(result['leaks'])}")
    say(f"answers or logits other than of the turn asked alone: {len(result['unequal'])}")
    say(f"answers with their own block's secret: {result['own_secret']}")


def _show_threads(result: dict[str, Any]) -> None:
    settings, compared = result["settings"], result["compared"]
    say(
        f"{settings['turns']} turns, a fork at {settings['fork']}, a rewind to {settings['rewind']}, "
        f"{settings['after']} turns behind each"
    )
    say(f"as in a fresh conversation, read from its first token: {compared['k']} of {compared['n']} turns compared")
    say(f"most tokens read in a turn: {result['most_prefilled']}")
    say(f"the original thread is {'untouched' if result['original_untouched'] else 'CHANGED'}")


_SHOW = {"conversation": _show_conversation, "secrets": _show_secrets, "threads": _show_threads}
