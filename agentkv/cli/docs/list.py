"""``agentkv docs list``: the corpora of a store. Loads no model."""

from __future__ import annotations

from typing import Any

from agentkv.cli import options
from agentkv.cli.output import finish, say, table
from agentkv.errors import AgentKVError


def list_(store: options.Store = None, as_json: options.Json = False) -> None:
    """List the corpora of a store, of every model."""
    from agentkv.cli.differing import expected, record_of, say_note
    from agentkv.documents.elsewhere import fields_of
    from agentkv.documents.shelf import shelves

    failures: list[AgentKVError] = []
    with options.open_store(store) as opened:
        rows, meant, of_each = [], expected(opened, None), []
        for shelf in shelves(opened, failures.append):
            record, documents = shelf.record, shelf.all().values()
            if record is not None:
                fields = fields_of(shelf, record, meant.fingerprint, meant.model)
                of_each.append((record.name, fields))
                windows = sum(len(document.windows) for document in documents)
                rows.append(
                    {
                        "name": record.name,
                        "model": record.model,
                        "fingerprint_id": record.fingerprint_id,
                        "files": len(documents),
                        "windows": windows,
                        "stored": len(shelf.stored()),
                        "tokens": sum(document.n_tokens for document in documents),
                        "window": record.window,
                        "overlap": record.overlap,
                        "differs": record_of(fields),
                        "keep": record.keep if record.top is None else f"{record.keep} {record.top}",
                    }
                )
        note = meant.note(of_each)
    result: dict[str, Any] = {
        "store": options.store_path(store),
        "corpora": sorted(rows, key=_order),
        "note": note or None,
    }

    def show() -> None:
        _show(result["corpora"])
        say_note(meant, note)

    finish(result, as_json, show, failures)


def _order(row: dict[str, Any]) -> tuple[str, str, str]:
    return row["name"], row["model"], row["fingerprint_id"]


def _show(rows: list[dict[str, Any]]) -> None:
    if not rows:
        say("no documents yet. Run `agentkv docs add PATH`.")
        return
    right = ("files", "windows", "stored", "tokens", "window")
    cells = [
        (
            *(row["name"], row["model"], *(f"{row[column]:,}" for column in right), row["keep"]),
            ", ".join(row["differs"] or ()),
        )
        for row in rows
    ]
    columns = ("corpus", "model", *right, "keep", "other engine by")
    shown = columns if any(row["differs"] for row in rows) else columns[:-1]
    table(shown, [row[: len(shown)] for row in cells], right=right, wraps=("corpus", columns[-1]))
