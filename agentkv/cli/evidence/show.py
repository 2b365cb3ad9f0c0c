"""``agentkv evidence show``: one run, as it was recorded."""

from __future__ import annotations

from typing import Annotated, Any

import orjson
import typer

from agentkv.cli import options
from agentkv.cli.evidence import common
from agentkv.cli.evidence.list_ import record
from agentkv.cli.output import count, finish, one_line, say, table


def show(
    run: common.RunId,
    ledger: common.LedgerFolder = None,
    items: Annotated[bool, typer.Option("--items", help="Also the raw generations that are in the ledger.")] = False,
    as_json: options.Json = False,
) -> None:
    """Show one run: settings, inputs, code, verdicts and scores."""
    opened = common.open_ledger(ledger)
    found = opened.find(run)
    whole = record(found)
    bodies = [body.model_dump(mode="json") for body in found.items]
    if items:
        whole["raw_items"] = bodies

    def screen() -> None:
        say(f"run {found.id}: {found.kind}/{found.body.version}, {found.status}, began {found.time}")
        if found.error:
            say(f"ended with {one_line(found.error, 160)}")
        code = found.body.code
        say(f"agentkv {code.version}, source tree {code.tree_sha256[:16]}…, {count(len(code.files), 'file')}")
        say(f"settings: {_json(found.body.settings)}")
        table(("input", "SHA-256"), sorted(found.body.inputs.items()))
        if found.verdicts:
            rows = [(verdict.name, "passed" if verdict.passed else "FAILED") for verdict in found.verdicts]
            table(("verdict", ""), rows, wraps=("verdict",))
        if found.scores is not None:
            say(f"scores as reported: {_json(found.scores)}")
        say(
            f"{count(len(found.items), 'item')}; `agentkv evidence score {found.id}` computes the scores anew", dim=True
        )
        for body in bodies if items else []:
            say(_json(body))

    finish(whole, as_json, screen)


def _json(value: Any) -> str:
    return orjson.dumps(value).decode()
