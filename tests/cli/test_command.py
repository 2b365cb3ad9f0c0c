"""The framework of the commands: option groups, ``--json``, results, and that an option means the same everywhere."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Annotated, Any

import orjson
import typer
from typer.main import get_command
from typer.testing import CliRunner

from agentkv.cli import app
from agentkv.cli.command import PANELS, App, Commands, Result
from agentkv.cli.output import Column, cells, number, say
from agentkv.errors import UsageError


@dataclass(frozen=True)
class Sums:
    left: Annotated[int, typer.Option("--left", metavar="N", help="The first number.")]
    right: Annotated[int, typer.Option("--right", metavar="N", help="The second number.")] = 2


sums = App(cls=Commands)


@sums.command()
def add(scale: Annotated[int, typer.Argument()], numbers: Sums) -> Result:
    """Add two numbers."""
    total = scale * (numbers.left + numbers.right)
    failures = [UsageError("that is negative")] if total < 0 else []
    return Result({"total": total}, lambda: say(f"total {total:,}"), failures)


@sums.command()
def echo(as_json: bool) -> None:
    """Say whether JSON was asked for."""
    say(str(as_json))


def invoke(*arguments: object) -> Any:
    return CliRunner().invoke(sums, [str(argument) for argument in arguments], catch_exceptions=False)


def test_an_option_group_becomes_options_and_the_result_is_shown_or_printed_as_json() -> None:
    assert invoke("add", 1000, "--left", 1).stdout == "total 3,000\n"
    assert orjson.loads(invoke("add", 3, "--left", 1, "--right", 1, "--json").stdout) == {"total": 6}
    assert invoke("add", 1).exit_code == 2
    assert add(2, Sums(1)).record == {"total": 6}, "the function itself stays as it is"


def test_a_failure_ends_the_command_with_its_exit_code_and_is_in_the_record() -> None:
    result = invoke("add", 1, "--left", -5, "--json")
    found = orjson.loads(result.stdout)
    assert (result.exit_code, found["total"], found["error"]["type"]) == (2, -3, "UsageError")
    assert result.stderr == "error: that is negative\n"


def test_a_command_may_ask_whether_json_is_meant() -> None:
    assert [invoke("echo").stdout, invoke("echo", "--json").stdout] == ["False\n", "True\n"]


def test_columns_make_cells() -> None:
    rows = [{"name": "a", "tokens": 12345, "note": None}, {"name": "b", "tokens": None, "note": None}]
    columns = (Column("name", "name"), number("tokens"), Column("note", "note", optional=True))
    shown, texts = cells((*columns, Column("loud", lambda row: row["name"].upper())), rows)
    assert [column.title for column in shown] == ["name", "tokens", "loud"]
    assert texts == [["a", "12,345", "A"], ["b", "", "B"]]


def commands(command: Any, path: tuple[str, ...] = ()) -> Iterator[tuple[str, Any]]:
    """Every command that the help shows, also those that a group makes only when it is asked."""
    context = typer.Context(command)
    for name in command.list_commands(context):
        sub = command.get_command(context, name)
        if hasattr(sub, "list_commands"):
            yield from commands(sub, (*path, name))
        elif not sub.hidden:
            yield " ".join((*path, name)), sub


HOMONYMS = {
    "--again": {"deposit", "replay run"},
    "--budget": {"gc", "learn"},
    "--license": {"pack create", "pack show"},
    "--out": {"evidence head", "replay plan"},
    "--repair": {"check", "learn"},
    "--skills": {"bench size"},
    "--strict": {"skills validate"},
    "--tokens": {"show", "docs add"},
}
"""Options of these commands share a name by its everyday sense and no more; scripts use them, so they stay."""


def test_an_option_means_the_same_in_every_command() -> None:
    found: dict[str, dict[tuple[Any, ...], list[str]]] = defaultdict(lambda: defaultdict(list))
    for path, command in commands(get_command(app)):
        for parameter in command.params:
            if parameter.param_type_name == "option" and not parameter.hidden:
                what = parameter.help, parameter.metavar, parameter.is_flag
                for name in parameter.opts:
                    if path not in HOMONYMS.get(name, set()):
                        found[name][what].append(path)
    assert {name: dict(uses) for name, uses in found.items() if len(uses) > 1} == {}
    assert len(found) > 100


def test_each_exception_is_an_option_of_that_command() -> None:
    options = {path: {name for p in command.params for name in p.opts} for path, command in commands(get_command(app))}
    assert [(name, path) for name, paths in HOMONYMS.items() for path in paths if name not in options[path]] == []


def test_every_command_has_json_and_every_option_says_what_it_does() -> None:
    for path, command in commands(get_command(app)):
        options = {name: p for p in command.params if p.param_type_name == "option" for name in p.opts if not p.hidden}
        assert "--json" in options, path
        assert [name for name, option in options.items() if not option.help] == [], path


def test_the_help_is_in_six_groups() -> None:
    text = CliRunner().invoke(app, ["--help"]).stdout
    places = [text.index(f"─ {panel} ─") for panel in PANELS]
    assert (len(places), places) == (6, sorted(places))
    assert "─ Commands ─" not in text
