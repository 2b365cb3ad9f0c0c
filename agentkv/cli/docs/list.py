"""``agentkv docs list``: the corpora of a store. Loads no model."""

from __future__ import annotations

from typing import Any

from agentkv.cli import options
from agentkv.cli.output import finish, say, table
from agentkv.errors import AgentKVError


def list_(store: options.Store = None, as_json: options.Json = False) -> None:
    """List the corpora of a store, of every model."""
    from agentkv.documents import shelves

    failures: list[AgentKVError] = []
    with options.open_store(store) as opened:
        rows = []
        for shelf in shelves(opened, failures.append):
            record, documents = shelf.record, shelf.all().values()
            if record is not None:
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
                        "keep": record.keep if record.top is None else f"{record.keep} {record.top}",
                    }
                )
    record_of: dict[str, Any] = {"store": options.store_path(store), "corpora": sorted(rows, key=_order)}
    finish(record_of, as_json, lambda: _show(record_of["corpora"]), failures)


def _order(row: dict[str, Any]) -> tuple[str, str, str]:
    return row["name"], row["model"], row["fingerprint_id"]


def _show(rows: list[dict[str, Any]]) -> None:
    if not rows:
        say("no documents yet. Run `agentkv docs add PATH`.")
        return
    right = ("files", "windows", "stored", "tokens", "window")
    cells = [(row["name"], row["model"], *(f"{row[column]:,}" for column in right), row["keep"]) for row in rows]
    table(("corpus", "model", *right, "keep"), cells, right=right, wraps=("corpus",))
