"""``agentkv route``: what the router makes of a question, how well it does, and what it did.

question.py    one question; the word may be left out: `agentkv route "…"`
evaluate.py    a file of labelled questions
log.py         the decisions of this store, and making them again
"""

from __future__ import annotations

from typing import Any

from typer.core import TyperGroup

from agentkv.cli.command import App
from agentkv.cli.route.evaluate import evaluate
from agentkv.cli.route.learn import learn
from agentkv.cli.route.log import log
from agentkv.cli.route.question import question

DEFAULT = "question"


class _QuestionByDefault(TyperGroup):
    """What is no command of the group is the question itself, or an option before it."""

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        known = args[0] in self.commands
        return super().resolve_command(ctx, args if known else [DEFAULT, *args])


app = App(
    cls=_QuestionByDefault,
    no_args_is_help=True,
    context_settings={"ignore_unknown_options": True},
    help="Show which block the router picks for a question: agentkv route QUESTION [OPTIONS].",
)
app.command(DEFAULT)(question)
app.command()(evaluate)
app.command()(learn)
app.command()(log)
