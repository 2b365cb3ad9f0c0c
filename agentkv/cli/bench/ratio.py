"""``agentkv bench ratio``: one figure of a result over another of the same run. Measures nothing."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from agentkv.cli import options
from agentkv.cli.output import finish, say
from agentkv.errors import UsageError

if TYPE_CHECKING:
    from agentkv.bench.results import Figure

_PLACE = "FILE:PATH; a path is names and indices with dots, as in lengths.0.cold_prefill_ms."


def ratio(
    figure: Annotated[str, typer.Argument(metavar="FIGURE", help=_PLACE)],
    other: Annotated[str, typer.Argument(metavar="FIGURE", help="What it is divided by.")],
    as_json: options.Json = False,
) -> None:
    """Divide two figures of one run; figures of different runs are refused, with exit code 63."""
    first, second = _figure(figure), _figure(other)
    value = first.over(second)
    result = {"ratio": value, "figure": first.value, "over": second.value, "run": first.run}
    finish(result, as_json, lambda: say(f"{first.value:g} / {second.value:g} = {value:.3g}"))


def _figure(place: str) -> Figure:
    from agentkv.bench.results import read

    file, _, path = place.rpartition(":")
    if not file or not path:
        raise UsageError(f"{place!r} is not {_PLACE}")
    return read(Path(file)).figure(path)
