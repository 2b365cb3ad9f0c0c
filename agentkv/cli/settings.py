"""``agentkv settings``: with which engine a store is opened where no option says, shown and changed. Loads no model.

What is in the fingerprint decides which blocks are found; set once here, it need not be said with every command.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from agentkv.cli.command import Result
from agentkv.cli.engines import warn_of_others
from agentkv.cli.options import StoreOptions
from agentkv.cli.output import Column, say, show_rows
from agentkv.errors import UsageError

if TYPE_CHECKING:
    from agentkv.records import EngineChoice

_DEFAULTS = {
    "window": "the model's, at most 8,192",
    "kv_type": "f16",
    "flash_attention": "off",
    "gpu_layers": "0",
    "threads": "all",
}


def settings(
    *,
    values: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[NAME=VALUE]...",
            help="model, window, kv-type, flash-attention, gpu-layers or threads, as in kv-type=q8_0.",
            show_default=False,
        ),
    ] = None,
    unset: Annotated[
        list[str] | None, typer.Option(metavar="NAME", help="Take this setting away; may be given again.")
    ] = None,
    store: StoreOptions,
) -> Result:
    """Show with which engine this store is opened, and set it once instead of by options.

    An option wins over the environment (AGENTKV_MODEL, AGENTKV_KV_TYPE …), that over the store's settings, these over
    the default; so too for AgentMemory in Python.
    """
    from agentkv.engine.opening import choose, require_usable
    from agentkv.records import EngineChoice

    changes: dict[str, Any] = dict(_pair(value) for value in values or ())
    changes |= dict.fromkeys(_name(name) for name in unset or ())
    if changes:
        with store.open(create=True) as opened:
            choice = EngineChoice.model_validate({**opened.engine_choice.model_dump(), **changes})
            # What does not go together, or is not here, is refused now, not at the next command.
            require_usable(*choose(choice.model_dump(), EngineChoice()))
            opened.set_engine_choice(choice)
    rows = _rows(store.engine_choice())
    record = {"store": store.path, "engine": {row["name"]: row for row in rows}}
    warn_of_others(store)
    return Result(record, lambda: _show(store, rows))


def _pair(text: str) -> tuple[str, Any]:
    from agentkv.engine.opening import is_fake, parsed
    from agentkv.models import CATALOGUE

    key, sign, value = text.partition("=")
    name = _name(key)
    if not sign or not value.strip():
        raise UsageError(f"{text!r}: write it like kv-type=q8_0; --unset {key} takes a setting away")
    found = parsed(name, value, key)
    is_path = name == "model" and found not in CATALOGUE and not is_fake(found) and not found.startswith("hf:")
    return name, str(Path(found).expanduser().absolute()) if is_path else found


def _name(text: str) -> str:
    from agentkv.records import EngineChoice

    name = text.strip().removeprefix("--").replace("-", "_")
    if name not in EngineChoice.model_fields:
        known = ", ".join(field.replace("_", "-") for field in EngineChoice.model_fields)
        raise UsageError(f"there is no setting {text!r}; there are {known}")
    return name


def _rows(stored: EngineChoice) -> list[dict[str, Any]]:
    """Each setting with its value now, and who says so."""
    from agentkv.engine.opening import VARIABLES, from_environment
    from agentkv.models.catalogue import DEFAULT

    environment, rows = from_environment(), []
    for name, value in stored.model_dump().items():
        by = f"${VARIABLES[name]}" if name in environment else "the store" if value is not None else "default"
        now = environment.get(name, value)
        rows.append(
            {"name": name, "value": now, "by": by, "stored": value, "default": {"model": DEFAULT, **_DEFAULTS}[name]}
        )
    return rows


def _show(store: StoreOptions, rows: list[dict[str, Any]]) -> None:
    say(f"{store.path} is opened with")
    show_rows(_COLUMNS, rows)


def _value(row: dict[str, Any]) -> str:
    value = row["default"] if row["value"] is None else row["value"]
    return {True: "on", False: "off"}[value] if isinstance(value, bool) else str(value)


_COLUMNS = (
    Column("setting", lambda row: row["name"].replace("_", "-")),
    Column("value", _value, wraps=True),
    Column("set by", "by"),
)
