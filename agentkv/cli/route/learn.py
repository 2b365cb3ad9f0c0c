"""``agentkv route learn``: fit the router to labelled questions, and say what that does to questions held out."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from agentkv.cli import options
from agentkv.cli.output import count, finish, say, table
from agentkv.cli.progress import shown
from agentkv.errors import UsageError

if TYPE_CHECKING:
    from agentkv.router.evaluate import Labelled


def learn(
    files: Annotated[
        list[Path] | None,
        typer.Argument(
            metavar="[FILE]...", show_default="routes.jsonl of the skills", help="JSON lines of labelled questions."
        ),
    ] = None,
    skills: Annotated[
        Path | None, typer.Option("--skills", metavar="DIR", help="Skill folders, for their routes.jsonl.")
    ] = None,
    lose: Annotated[
        float | None,
        typer.Option(
            min=0.0,
            max=1.0,
            show_default="0.03",
            help="Share of the questions that may lose their skill so that others, which none fits, get none.",
        ),
    ] = None,
    forget: Annotated[bool, typer.Option("--forget", help="Drop what was learned for this model.")] = False,
    model: options.Model = None,
    embedder: options.Embedder = None,
    router_model: options.RouterModel = None,
    store: options.Store = None,
    window: options.Window = None,
    threads: options.Threads = None,
    as_json: options.Json = False,
) -> None:
    """Learn to route from labelled questions; kept beside the store, for this model."""
    from agentkv.router.evaluate import load_questions
    from agentkv.router.weights import LOSE

    model, settings = options.chosen(store, model, window, threads)
    if forget:
        with options.open_memory(store, model, settings, embedder=embedder, router_model=router_model) as memory:
            gone = memory.routing.forget()
        said = "what was learned is dropped" if gone else "nothing was learned for this model"
        finish({"forgotten": gone}, as_json, lambda: say(said))
        return
    paths = files or sorted(options.skills_folder(skills).rglob("*.jsonl"))
    questions = [question for path in paths for question in load_questions(path)]
    if not questions:
        raise UsageError("there are no labelled questions. Name a file, or --skills with routes.jsonl in them.")

    def progress(items: Iterable[Labelled]) -> Iterable[Labelled]:
        return shown(list(items), "question", lambda question: question.query)

    with options.open_memory(store, model, settings, embedder=embedder, router_model=router_model) as memory:
        memory.deposit_cards()
        live = memory.candidates()
        before = memory.classifier
        learned = memory.learn(questions, progress, lose=LOSE if lose is None else lose)
        unknown = sum(question.label is not None and question.label not in live for question in questions)
    record: dict[str, Any] = {
        "questions": len(questions),
        "of_labels_not_stored": unknown,
        "fitted_on": learned.weights.fitted_on,
        "held_out": {"right_before": learned.right_before, "right_after": learned.right_after},
        "weights": learned.weights.model_dump(mode="json"),
        "before": getattr(before, "weights").model_dump(mode="json"),  # noqa: B009
    }
    finish(record, as_json, lambda: _show(record))


def _show(record: dict[str, Any]) -> None:
    names = {
        "channel": "the model's channel score",
        "fits": "the model's word that it fits",
        "card": "words of name and description",
        "text": "words of the whole text",
        "asked": "words of labelled questions",
        "meaning": "meaning of card and labelled questions",
        "none": "none of these",
    }
    rows = [(name, f"{record['before'][key]:.2f}", f"{record['weights'][key]:.2f}") for key, name in names.items()]
    table(("weight of", "before", "now"), rows, right=("before", "now"))
    right = record["held_out"]
    say(f"\nheld out in five parts: {right['right_before']} right before, {right['right_after']} after")
    if not record["fitted_on"]:
        say("the weights stay as they were: learning from these questions makes others worse")
    else:
        say(f"learned from {count(record['fitted_on'], 'question')}; `agentkv route learn --forget` drops it again")
    if record["of_labels_not_stored"]:
        say(f"{count(record['of_labels_not_stored'], 'question')} left out: nothing is stored under their label")
