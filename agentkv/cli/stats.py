"""``agentkv stats``: what a store holds, what that takes, what it saved. Loads no model and reads no state."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import TYPE_CHECKING, Annotated, Any

import typer

from agentkv.cli import options, saved
from agentkv.cli.output import count, finish, size, table
from agentkv.errors import StoreReadError

if TYPE_CHECKING:
    from agentkv.cli.inventory import Survey
    from agentkv.errors import AgentKVError
    from agentkv.records import NamedBlock
    from agentkv.store.catalog import BlockStore
    from agentkv.store.uses import Use

_SHOWN = 3


def stats(
    by: Annotated[
        saved.By | None, typer.Option("--by", help="What was saved, by day (UTC), by skill or by restored block.")
    ] = None,
    since: Annotated[
        datetime | None, typer.Option(metavar="DATE", formats=["%Y-%m-%d"], help="Turns from that day on (UTC).")
    ] = None,
    store: options.Store = None,
    as_json: options.Json = False,
) -> None:
    """Count blocks and bytes: what is shared, what compression saves, what is used, what could go, what was saved.

    Tokens saved are those restored instead of read. Seconds saved are an estimate: restored tokens times what reading
    a token took in this store, less what restoring took.
    """
    from agentkv.blocks.mismatch import fields_counted
    from agentkv.cli.differing import expected, say_note
    from agentkv.cli.inventory import survey

    day = "" if since is None else f"{since:%Y-%m-%d}"
    if by is not None:
        with options.open_store(store) as opened:
            grouped = saved.record(opened, by, day)
        finish(grouped, as_json, lambda: saved.show(grouped))
        return
    with options.open_store(store) as opened:
        failures: list[AgentKVError] = []
        names = opened.names(on_error=failures.append)
        found, uses = survey(opened), opened.uses()
        failures += [facts.fault for facts in found.blocks.values() if facts.fault is not None]
        record: dict[str, Any] = {
            "store": opened.root,
            "blocks": _blocks(opened, found, names),
            "models": _models(found, names),
            "bytes": _bytes(opened, found),
            "disk": _disk(opened, found),
            "budget": _budget(opened, found),
            "leftovers": None if failures else _leftovers(opened, found, names),
            "quarantine": _quarantine(opened),
            "recent": _recent(found, uses, names),
            "saved": None,
        }
        meant = expected(opened, None)
        fields = {key: meant.fields(facts.fingerprint) for key, facts in found.blocks.items()}
        note = meant.note((entry.name, fields.get(entry.block_id, {})) for entry in names)
        others = [one for one in fields.values() if one]
        record["other_engine"] = {"blocks": len(others), "fields": fields_counted(others), "note": note or None}
        try:
            record["saved"] = saved.total(opened, day)
        except StoreReadError as error:
            failures.append(error)

    def show() -> None:
        _show(record)
        say_note(meant, note)

    finish(record, as_json, show, failures)


def _blocks(store: BlockStore, found: Survey, names: list[NamedBlock]) -> dict[str, int]:
    named = {entry.block_id for entry in names} & found.blocks.keys()
    return {
        "all": len(found.blocks),
        "named": len(named),
        "names": len(names),
        "pinned": len(store.pinned() & found.blocks.keys()),
        "imported": len(set(store.files.imports.digests()) & found.blocks.keys()),
        "damaged": sum(facts.fault is not None for facts in found.blocks.values()),
    }


def _models(found: Survey, names: list[NamedBlock]) -> list[dict[str, Any]]:
    """By model: how many blocks and names, and what the blocks take beyond their parents."""
    by_model: dict[str, dict[str, Any]] = {}
    for facts in found.blocks.values():
        row = by_model.setdefault(facts.model or "?", {"blocks": 0, "names": 0, "own_bytes": 0})
        row["blocks"], row["own_bytes"] = row["blocks"] + 1, row["own_bytes"] + (facts.own_bytes or 0)
    for named in names:
        there = found.blocks.get(named.block_id)
        if there is not None:
            by_model[there.model or "?"]["names"] += 1
    return [{"model": model, **row} for model, row in sorted(by_model.items())]


def _bytes(store: BlockStore, found: Survey) -> dict[str, int]:
    usage, files = found.usage, store.files
    texts = sum(n_bytes for _, n_bytes in files.texts.sizes())
    return {
        "states": usage.states,
        "raw": usage.raw,
        "stored": usage.stored,
        "saved_by_sharing": usage.states - usage.raw,
        "saved_by_compression": usage.raw - usage.stored,
        "manifests": found.manifests,
        "texts": texts,
        "uses": _size_of(store),
    }


def _size_of(store: BlockStore) -> int:
    from agentkv.store.findings import tree_bytes
    from agentkv.store.uses import USES

    return tree_bytes(store.root / USES)


def _disk(store: BlockStore, found: Survey) -> dict[str, Any]:
    """Bytes of every part of the store's folder, the whole of it, and each database of an adapter."""
    from agentkv.store.adapters import ADAPTERS
    from agentkv.store.findings import tree_bytes
    from agentkv.store.uses import USES

    parts = {"segments": found.usage.stored + sum(found.unneeded.values())}
    for path in sorted(store.root.iterdir()):
        if path.name != "segments":
            name = "uses" if path.name.startswith(USES) else path.name if path.name in _PARTS else "rest"
            parts[name] = parts.get(name, 0) + tree_bytes(path)
    folder = store.root / ADAPTERS
    databases = {path.name: tree_bytes(path) for path in sorted(folder.iterdir())} if folder.is_dir() else {}
    return {"total": sum(parts.values()), "parts": parts, "adapters": databases}


_BESIDE = {
    "documents": "documents",
    "threads": "conversations",
    "flywheel": "solutions",
    "adapters": "adapters",
    "decisions": "the router's log",
    "router": "what the router learned",
    "turns": "the turn log",
}
_PARTS = {*_BESIDE, "manifests", "ancestors", "names", "texts", "quarantine", "tmp"}


def _budget(store: BlockStore, found: Survey) -> dict[str, int | None]:
    return {"budget_bytes": store.budget, "in_use_bytes": found.usage.stored + found.manifests}


def _leftovers(store: BlockStore, found: Survey, names: list[NamedBlock]) -> dict[str, int]:
    """What a collection would take, counted without waiting for its lock: deposits under way show for a moment."""
    from agentkv.io.fsio import files_in

    wanted = {named.source_sha256 for named in names}
    digests = [digest for digest in store.files.texts.digests() if digest not in wanted]
    texts = {digest: store.files.texts.stored_bytes(digest) or 0 for digest in digests}
    temporaries = list(files_in(store.files.temporaries))
    n_bytes = sum(found.unneeded.values()) + sum(texts.values()) + sum(size for _, size in temporaries)
    return {
        "segments": len(found.unneeded),
        "texts": len(texts),
        "temporaries": len(temporaries),
        "bytes": n_bytes,
    }


def _quarantine(store: BlockStore) -> dict[str, int]:
    from agentkv.store.repair import quarantined

    files, n_bytes = quarantined(store.files)
    return {"files": files, "bytes": n_bytes}


def _recent(found: Survey, uses: Mapping[str, Use], names: list[NamedBlock]) -> dict[str, Any]:
    """The named blocks used last and, of all that were ever used, those used longest ago; how many never were."""
    from agentkv.cli.inventory import iso

    called: dict[str, list[str]] = {}
    for named in names:
        if named.block_id in found.blocks:
            called.setdefault(named.block_id, []).append(named.name)
    used = sorted((block_id for block_id in called if block_id in uses), key=lambda block_id: uses[block_id].last)
    rows = [
        {"name": ", ".join(called[b]), "block_id": b, "hits": uses[b].hits, "last_use": iso(uses[b].last)} for b in used
    ]
    return {"most": rows[::-1][:_SHOWN], "least": rows[:_SHOWN], "never": len(called) - len(used)}


# --- the screen -----------------------------------------------------------------------------------


def _show(record: dict[str, Any]) -> None:
    blocks, of = record["blocks"], record["bytes"]
    rows = [("store", str(record["store"])), ("blocks", _counted(blocks))]
    if len(record["models"]) > 1:
        rows += [("", f"{row['model']}: {_by_model(row)}") for row in record["models"]]
    elif record["models"]:
        rows += [("model", record["models"][0]["model"])]
    other = record["other_engine"]
    rows += [("other engine", f"{count(other['blocks'], 'block')}, {other['fields']}")] if other["blocks"] else []
    rows += [
        ("states", f"{size(of['states'])}, if each block were kept whole"),
        ("shared", f"{size(of['saved_by_sharing'])} saved{_percent(of['saved_by_sharing'], of['states'])}"),
        ("compressed", _compressed(of)),
        ("on disk", f"{size(of['stored'])} of segments, {_rest(of)}"),
        *_beside_rows(record["disk"]),
        ("budget", _budget_line(record["budget"])),
        ("left over", _left_line(record["leftovers"])),
    ]
    aside = record["quarantine"]
    if aside["files"]:
        text = f"{count(aside['files'], 'file')}, {size(aside['bytes'])}; `agentkv gc --quarantine` deletes them"
        rows += [("quarantine", text)]
    rows += [("saved", saved.line(record["saved"]))] if record["saved"] else []
    recent = record["recent"]
    rows += [("used last", _used(recent["most"]))]
    rows += [("long unused", _used(recent["least"]))] if recent["least"] != recent["most"][::-1] else []
    rows += [("never used", count(recent["never"], "named block"))] if recent["never"] else []
    table(("", " "), rows, wraps=(" ",), header=False)


def _counted(blocks: dict[str, int]) -> str:
    unnamed = blocks["all"] - blocks["named"]
    parts = [f"{blocks['all']:,}: {blocks['named']:,} with a name, {unnamed:,} prefixes, cards and older ones"]
    parts += [f"{blocks[what]:,} {what}" for what in ("pinned", "imported") if blocks[what]]
    parts += [f"{blocks['damaged']:,} DAMAGED"] if blocks["damaged"] else []
    return "; ".join(parts)


def _by_model(row: dict[str, Any]) -> str:
    return f"{count(row['blocks'], 'block')}, {count(row['names'], 'name')}, {size(row['own_bytes'])}"


def _percent(part: int, whole: int) -> str:
    return f" ({part / whole:.0%})" if whole else ""


def _compressed(of: dict[str, int]) -> str:
    saved, raw = of["saved_by_compression"], of["raw"]
    if saved >= 0:
        return f"{size(saved)} saved{_percent(saved, raw)}"
    return f"nothing saved: the headers of many small files take {size(-saved)} more than that{_percent(-saved, raw)}"


def _rest(of: dict[str, int]) -> str:
    return f"{size(of['manifests'])} of manifests, {size(of['texts'])} of texts, {size(of['uses'])} of use counts"


def _beside_rows(disk: dict[str, Any]) -> list[tuple[str, str]]:
    """What other parts keep beside the blocks, largest first, and the whole folder."""
    parts = {name: disk["parts"].get(name, 0) for name in _BESIDE}
    largest = sorted((name for name in parts if parts[name]), key=lambda name: -parts[name])
    told = ", ".join(f"{size(parts[name])} of {_BESIDE[name]}" for name in largest)
    rows = [("beside", told)] if told else []
    return [*rows, ("in all", f"{size(disk['total'])} in the store's folder")]


def _budget_line(budget: dict[str, int | None]) -> str:
    limit, used = budget["budget_bytes"], budget["in_use_bytes"] or 0
    if limit is None:
        return "none (`agentkv gc --set-budget 20GB` sets one)"
    return f"{size(used)} of {size(limit)} in use{_percent(used, limit)}"


def _left_line(left: dict[str, int] | None) -> str:
    if left is None:
        return "not known while something is damaged; run `agentkv check`"
    parts = [count(left[key], noun) for key, noun in _LEFT if left[key]]
    return f"{', '.join(parts)}: {size(left['bytes'])}; `agentkv gc` removes them" if parts else "nothing"


_LEFT = (("segments", "segment"), ("texts", "text"), ("temporaries", "unfinished file"))


def _used(rows: list[dict[str, Any]]) -> str:
    from datetime import datetime

    from agentkv.cli.inventory import ago

    shown = [
        f"{row['name']} ({ago(datetime.fromisoformat(row['last_use']).timestamp())}, {count(row['hits'], 'hit')})"
        for row in rows
    ]
    return "; ".join(shown) or "none yet"
