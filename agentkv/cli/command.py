"""How a command is declared, run and ended.

A command is a function with Typer's annotations. :class:`App` adds what all have in common:

* a parameter whose type is an option group (a dataclass of annotated options, see ``options.py``) becomes one option a
  field, and the function gets the group;
* every command gets ``--json``; a function that behaves otherwise with it takes ``as_json: bool``;
* a function returns a :class:`Result`, which is printed as one JSON document or shown on the screen.

An AgentKVError ends as one line on stderr and its own exit code; anything else is a defect and keeps its traceback.
"""

from __future__ import annotations

import contextlib
import dataclasses
import errno
import functools
import inspect
import os
import sys
import warnings
from collections.abc import Callable, Sequence
from typing import Annotated, Any, TypeVar, get_type_hints

import typer
from typer.core import TyperGroup

from agentkv.cli.output import error_record, finish, print_json, report, show_warnings
from agentkv.errors import AgentKVError, Interrupted, StoreReadError, UsageError

F = TypeVar("F", bound=Callable[..., Any])

Json = Annotated[bool, typer.Option("--json", help="Print JSON on stdout, and nothing else there.")]

PANELS = (
    "Every day",
    "Skills, documents, conversations",
    "What the store holds",
    "Care of the store",
    "Learning, routing, sharing",
    "Models and measurements",
)
"""The groups of ``agentkv --help``, in their order."""

_JSON = "as_json"
_WRITE_FAILED = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO, errno.EBADF}
_WrongUse: Any = typer.BadParameter.__base__
"""click's UsageError; Typer brings a click of its own from some version on."""


@dataclasses.dataclass(frozen=True)
class Result:
    """What a command found: ``record`` for scripts, ``show`` for people, ``failures`` where part of it failed.

    The command ends with the exit code of the first failure, which ``record`` gets as its member ``error``.
    """

    record: dict[str, Any]
    show: Callable[[], None]
    failures: Sequence[AgentKVError] = ()


class App(typer.Typer):
    """Commands that take option groups and ``--json``, and return a :class:`Result`."""

    def command(self, name: str | None = None, **settings: Any) -> Callable[[F], F]:
        """Register a function as a command; the function itself stays as it is."""
        register = super().command(name, **settings)

        def decorate(function: F) -> F:
            register(expanded(function))
            return function

        return decorate


def expanded(function: Callable[..., Any]) -> Callable[..., None]:
    """``function`` with the fields of its option groups as parameters, and ``--json``, as Typer reads them."""
    hints = get_type_hints(function, include_extras=True)
    groups: dict[str, Any] = {}
    parameters: list[inspect.Parameter] = []
    takes_json, default = False, False
    for name, declared in inspect.signature(function).parameters.items():
        if name == _JSON:
            takes_json, default = True, declared.default is True
        elif dataclasses.is_dataclass(hints[name]):
            groups[name] = hints[name]
            parameters += fields_of(hints[name])
        else:
            parameters.append(_parameter(name, hints[name], declared.default))
    parameters.append(_parameter(_JSON, Json, default))

    @functools.wraps(function)
    def run(**values: Any) -> None:
        as_json = values.pop(_JSON)
        for name, group in groups.items():
            values[name] = group(**{field.name: values.pop(field.name) for field in dataclasses.fields(group)})
        result = function(**values, **({_JSON: as_json} if takes_json else {}))
        if isinstance(result, Result):
            finish(result.record, as_json, result.show, result.failures)

    run.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    run.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
    return run


@functools.cache
def fields_of(group: Any) -> tuple[inspect.Parameter, ...]:
    """The fields of an option group as parameters."""
    hints = get_type_hints(group, include_extras=True)
    return tuple(
        _parameter(field.name, hints[field.name], _EMPTY if field.default is dataclasses.MISSING else field.default)
        for field in dataclasses.fields(group)
    )


_EMPTY = inspect.Parameter.empty


def _parameter(name: str, annotation: Any, default: Any) -> inspect.Parameter:
    return inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=annotation)


class Commands(TyperGroup):
    """The root: the one place where an error becomes a message and an exit code; its help is in groups."""

    def list_commands(self, ctx: Any) -> list[str]:
        """The commands in the order of their groups in the help; Typer puts groups of commands last otherwise."""
        panels = [self._panel(name) for name in super().list_commands(ctx)]
        known = [panel for panel in PANELS if panel in panels]
        return sorted(super().list_commands(ctx), key=lambda name: ([*known, *panels]).index(self._panel(name)))

    def _panel(self, name: str) -> str:
        return str(getattr(self.commands[name], "rich_help_panel", ""))

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        own = args[: args.index("--")] if "--" in args else args
        ctx.meta["agentkv.json"] = "--json" in own
        return super().parse_args(ctx, args)

    def invoke(self, ctx: Any) -> Any:
        try:
            with warnings.catch_warnings():
                show_warnings()
                return super().invoke(ctx)
        except AgentKVError as error:
            failure = error
        except KeyboardInterrupt:
            failure = Interrupted()
        except _WrongUse as error:
            if ctx.meta["agentkv.json"]:
                found = {"type": UsageError.__name__, "message": error.format_message(), "exit_code": error.exit_code}
                print_json({"error": found}, indent=False)
            raise
        report(failure)
        if ctx.meta["agentkv.json"]:
            print_json({"error": error_record(failure)}, indent=False)
        raise typer.Exit(failure.exit_code)


def run(app: typer.Typer) -> None:
    """Run a command line as this process's own.

    Where the output cannot be written (``>`` on a full disk), that is one line and the exit code of StoreReadError.
    """
    if sys.stdout is None:  # closed by the caller: nobody reads
        sys.stdout = open(os.devnull, "w")  # noqa: SIM115, PTH123 - until the process ends
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(AttributeError, ValueError):
            stream.reconfigure(errors="replace")  # type: ignore[union-attr]
    try:
        try:
            app()
        finally:
            _flush()
    except OSError as error:
        if error.filename is not None or error.errno not in _WRITE_FAILED:
            raise  # not of a stream: a defect
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # or the interpreter tries once more at its end
        with contextlib.suppress(OSError):
            typer.echo(f"error: the output cannot be written: {error.strerror}", err=True)
        sys.exit(StoreReadError.exit_code)


def _flush() -> None:
    """Flush now, so that a reader that has gone (`| head`) does not fail at the interpreter's end."""
    try:
        sys.stdout.flush()
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
