"""``agentkv demo``: the whole idea on one screen. Manuals are prefilled once; a new process answers from their states.

Two processes, so that nothing can be left over in memory: this one deposits; ``_demo-ask`` has prefilled no manual and
answers each skill's first question from a graft, and some of them by a cold prefill too, with the same pick and the
same engine. The logits of both ways are compared to the last bit. Ends with GuaranteeViolated if they differ.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import orjson
import typer

from agentkv.cli import demo_screen, options
from agentkv.cli.command import Result
from agentkv.cli.deposit import Row, deposit_all, manuals_in, summary
from agentkv.cli.engines import quoted
from agentkv.cli.options import EngineOptions, StoreOptions
from agentkv.cli.output import count, print_json, say, tell
from agentkv.cli.progress import steps_bar
from agentkv.errors import AgentKVError, GuaranteeViolated, UsageError

if TYPE_CHECKING:
    from agentkv.cli.inventory import Usage
    from agentkv.engine.settings import EngineSettings
    from agentkv.skills.questions import Route


def demo(
    *,
    skills: options.Skills = None,
    max_new: Annotated[int, typer.Option(metavar="N", min=1, help=options.MAX_NEW_HELP)] = 48,
    picture: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Also write the last screen to this .html or .png file.")
    ] = None,
    as_json: bool,
    engine: EngineOptions,
    store: StoreOptions,
) -> Result:
    """Prefill the manuals once, then answer from their stored states in a new process, and prove it."""
    model, settings = engine.chosen(store)
    folder = options.skills_folder(skills)
    where = store.path
    paste = _commands(store.store, where, model)
    if picture is not None:
        demo_screen.check_picture(picture)
    tell_person = (lambda _: None) if as_json else say
    # 1. The model, the manuals: what is there already costs a hash.
    tell_person(demo_screen.opening(model))
    start = time.perf_counter()
    rows, usage = _deposit(folder, where, model, settings)
    tell_person(f"\n1. {count(len(rows), 'manual')} stored in {where}")
    tell_person(f"   {summary(rows)} ({time.perf_counter() - start:.1f} s with loading the model)")
    # 2. The questions, in a process that has prefilled nothing.
    asked = _questions(folder)
    tell_person(demo_screen.fresh_process(len(asked)))
    given = {"--skills": folder, "--max-new": max_new, "--model": model, "--store": where}
    arguments = [str(text) for pair in given.items() for text in pair] + _as_options(settings)
    with _answers(arguments, as_json) as lines:
        shown = steps_bar(lines, len(asked), "question", lambda index: asked[index])
        answers = [demo_screen.Answer.of(line) for line in shown]
    # 3. The table, the sums, the proof.
    totals = demo_screen.totals(answers, usage)
    record = {
        "model": model,
        "store": where,
        "manuals": [asdict(row) for row in rows],
        "questions": [answer.record() for answer in answers],
        "totals": totals,
    }
    differ = totals["identical"] != totals["compared"]
    failures = [_violated(totals["identical"], totals["compared"])] if differ else []
    if picture is not None:
        demo_screen.write_picture(picture, f"agentkv demo, {model}", answers, totals, paste)
    return Result(record, lambda: demo_screen.show(answers, totals, paste), failures)


def _commands(store: Path | None, where: Path, model: str) -> list[tuple[str, str]]:
    """What to paste next: skills, documents and an agent of one's own, in the same store with the same model."""
    of = f"{'' if store is None else f' --store {quoted(str(where))}'} --model {quoted(model)}"
    agent = f"from agentkv import AgentMemory as M; print(M({str(where)!r}, {model!r}).ask('YOUR QUESTION').text)"
    return [
        ("skills", f'agentkv deposit{of} PATH/TO/SKILLS && agentkv ask{of} "YOUR QUESTION"'),
        ("documents", f'agentkv docs add{of} PATH/TO/DOCUMENTS && agentkv docs ask{of} "YOUR QUESTION"'),
        ("agent", f'{quoted(sys.executable)} -c "{agent}"'),
    ]


def _deposit(folder: Path, store: Path, model: str, settings: EngineSettings) -> tuple[list[Row], Usage]:
    from agentkv.cli.inventory import usage

    items, failures = manuals_in([folder])
    if not items:
        raise failures[0][1]
    with options.open_memory(StoreOptions(store), model, settings, create=True) as memory:
        rows, more = deposit_all(memory, items)
        manifests = [memory.store.manifest(row.block_id) for row in rows]
        used = usage(memory.store, [manifest for manifest in manifests if manifest is not None])
    for _, error in failures + more:
        tell(f"left out: {error.message}")
    if not rows:
        raise more[0][1]
    return rows, used


def _questions(folder: Path) -> list[str]:
    found = [route.query for route in questions(folder)]
    if not found:
        raise UsageError(f"no skill in {folder} has a routes.jsonl with a question")
    return found


def _as_options(settings: EngineSettings) -> list[str]:
    """The settings as the second process takes them."""
    given = {"--window": settings.window, "--threads": settings.threads, "--kv-type": settings.kv_type}
    given["--gpu-layers"] = settings.gpu_layers
    texts = [text for name, value in given.items() if value is not None for text in (name, str(value))]
    return [*texts, "--flash-attention"] if settings.flash_attention else texts


@contextmanager
def _answers(arguments: list[str], as_json: bool) -> Iterator[Iterator[dict[str, Any]]]:
    """The lines of the second process. It has a session of its own, so that Ctrl-C is reported once, here."""
    import agentkv

    home = str(Path(agentkv.__file__).parent.parent)
    path = os.pathsep.join(filter(None, (home, os.environ.get("PYTHONPATH"))))
    command = [sys.executable, "-P", "-m", "agentkv", "_demo-ask", "--json", *arguments]
    # Its stderr goes through a file: two processes must not draw on one terminal line.
    with tempfile.TemporaryFile() as messages:
        child = subprocess.Popen(
            command,
            stdout=subprocess.PIPE,
            stderr=messages,
            env=os.environ | {"PYTHONPATH": path},
            start_new_session=True,
        )
        try:
            yield _lines(child, as_json)
        finally:
            if child.poll() is None:
                child.terminate()
            child.wait()
            if child.stdout is not None:
                child.stdout.close()
            messages.seek(0)
            typer.echo(messages.read().decode("utf-8", "replace"), err=True, nl=False)


def _lines(child: subprocess.Popen[bytes], as_json: bool) -> Iterator[dict[str, Any]]:
    """Its records, checked; what it reports as an error ends this command with the same exit code."""
    assert child.stdout is not None
    for line in child.stdout:
        record = orjson.loads(line)
        if "error" in record:
            if as_json:
                print_json(record)
            raise typer.Exit(record["error"]["exit_code"])
        yield record
    if child.wait() != 0:
        raise AgentKVError(f"the answering process ended with {child.returncode}; run the command again")


def _violated(identical: int, total: int) -> GuaranteeViolated:
    return GuaranteeViolated(
        f"{total - identical} of {total} answers differ between a graft and a cold prefill: this model and "
        "setting are not exact here. Run `agentkv verify --prove`, and please report it."
    )


# --- the second process ---------------------------------------------------------------------------


def questions(skills: Path) -> list[Route]:
    """The first labelled question of each skill at or below ``skills``, in the order of their folders."""
    from agentkv.skills.questions import load_routes

    items, _ = manuals_in([skills])
    return [route for item in items for route in load_routes(item.path)[:1]]


def demo_ask(
    *,
    skills: Annotated[Path, typer.Option()],
    max_new: Annotated[int, typer.Option(min=1)],
    as_json: bool = True,
    engine: EngineOptions,
    store: StoreOptions,
) -> None:
    """Answer the demo's questions, from a graft and by a cold prefill, a JSON line each; for `agentkv demo`."""
    with options.open_memory(store, *engine.chosen(store)) as memory:
        asked = questions(skills)
        twice = demo_screen.compared(len(asked))
        for number, route in enumerate(asked):
            grafted, cold = memory.ask(route.query, max_new=max_new), None
            if number in twice:
                cold = memory.ask(route.query, skill=grafted.decision.pick, graft=False, max_new=max_new)
            line = {
                "question": route.query,
                "skill": route.skill,
                "accepted": list(route.answers),
                "grafted": grafted.model_dump(mode="json"),
                "reread": cold and cold.model_dump(mode="json"),
            }
            print_json(line, indent=False)
