"""``agentkv stats``: what a store holds, what that takes, what it saved; by day, by skill or by block.

Loads no model and reads no state.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, Any

import typer

from agentkv.cli.command import Result
from agentkv.cli.engines import expected, model_of_digest, say_note
from agentkv.cli.inventory import Survey, iso, names_by_block, since, survey
from agentkv.cli.options import StoreOptions
from agentkv.cli.output import Column, count, facts, number, say, show_rows, size
from agentkv.errors import StoreReadError

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable

    from agentkv.blocks.turnlog import LoggedTurn, Saved, Savings
    from agentkv.errors import AgentKVError
    from agentkv.records import NamedBlock
    from agentkv.store.catalog import BlockStore
    from agentkv.store.uses import Use


_SHOWN = 3


def stats(
    *,
    by: Annotated[
        By | None, typer.Option("--by", help="What was saved, by day (UTC), by skill or by restored block.")
    ] = None,
    since: Annotated[
        datetime | None, typer.Option(metavar="DATE", formats=["%Y-%m-%d"], help="Turns from that day on (UTC).")
    ] = None,
    store: StoreOptions,
) -> Result:
    """Count blocks and bytes: what is shared, what compression saves, what is used, what could go, what was saved.

    Tokens saved are those restored instead of prefilled. Seconds saved are an estimate: restored tokens times what the
    prefill of a token took in this store, less what restoring took.
    """
    from agentkv.blocks.mismatch import fields_counted

    day = "" if since is None else f"{since:%Y-%m-%d}"
    if by is not None:
        with store.open() as opened:
            grouped = saved_record(opened, by, day)
        return Result(grouped, lambda: show_saved(grouped))
    with store.open() as opened:
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
            record["saved"] = total(opened, day)
        except StoreReadError as error:
            failures.append(error)

    def show() -> None:
        _show(record)
        say_note(meant, note)

    return Result(record, show, failures)


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
    for block in found.blocks.values():
        row = by_model.setdefault(block.model or "?", {"blocks": 0, "names": 0, "own_bytes": 0})
        row["blocks"], row["own_bytes"] = row["blocks"] + 1, row["own_bytes"] + (block.own_bytes or 0)
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
    from agentkv.store.findings import tree_bytes
    from agentkv.store.registry import ADAPTERS
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

    needed = {named.source_sha256 for named in names}
    digests = [digest for digest in store.files.texts.digests() if digest not in needed]
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
    moved = record["quarantine"]
    if moved["files"]:
        text = f"{count(moved['files'], 'file')}, {size(moved['bytes'])}; `agentkv gc --quarantine` deletes them"
        rows += [("quarantine", text)]
    rows += [("saved", line(record["saved"]))] if record["saved"] else []
    recent = record["recent"]
    rows += [("used last", _used(recent["most"]))]
    rows += [("long unused", _used(recent["least"]))] if recent["least"] != recent["most"][::-1] else []
    rows += [("never used", count(recent["never"], "named block"))] if recent["never"] else []
    facts(rows)


def _counted(blocks: dict[str, int]) -> str:
    unnamed = blocks["all"] - blocks["named"]
    parts = [f"{blocks['all']:,}: {blocks['named']:,} with a name, {unnamed:,} prefixes, cards and older ones"]
    parts += [f"{blocks[what]:,} {what}" for what in ("pinned", "imported") if blocks[what]]
    parts += [f"{blocks['damaged']:,} CORRUPT"] if blocks["damaged"] else []
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
    listed = ", ".join(f"{size(parts[name])} of {_BESIDE[name]}" for name in largest)
    rows = [("beside", listed)] if listed else []
    return [*rows, ("in all", f"{size(disk['total'])} in the store's folder")]


def _budget_line(budget: dict[str, int | None]) -> str:
    limit, used = budget["budget_bytes"], budget["in_use_bytes"] or 0
    if limit is None:
        return "none (`agentkv gc --set-budget 20GB` sets one)"
    return f"{size(used)} of {size(limit)} in use{_percent(used, limit)}"


def _left_line(left: dict[str, int] | None) -> str:
    if left is None:
        return "not known while something is corrupt; run `agentkv check`"
    parts = [count(left[key], noun) for key, noun in _LEFT if left[key]]
    return f"{', '.join(parts)}: {size(left['bytes'])}; `agentkv gc` removes them" if parts else "nothing"


_LEFT = (("segments", "segment"), ("texts", "text"), ("temporaries", "unfinished file"))


def _used(rows: list[dict[str, Any]]) -> str:

    shown = [f"{row['name']} ({since(row['last_use'])}, {count(row['hits'], 'hit')})" for row in rows]
    return "; ".join(shown) or "none yet"


# --- what restoring saved -------------------------------------------------------------------------


_DAYS, _ROWS = 31, 20


class By(StrEnum):
    """What turns are grouped by."""

    DAY = "day"
    SKILL = "skill"
    BLOCK = "block"


def total(store: BlockStore, since: str) -> dict[str, Any]:
    """All turns together. Raises StoreReadError."""
    from agentkv.blocks.turnlog import TurnLog, savings

    found = savings(TurnLog(store.root).read(), lambda line: None, since)
    return _figures(found.total) | _beside(store, found, since)


def saved_record(store: BlockStore, by: By, since: str) -> dict[str, Any]:
    """The whole answer to ``agentkv stats --by``. Raises StoreReadError."""
    from agentkv.blocks.turnlog import TurnLog, savings

    found: Savings[Any] = savings(TurnLog(store.root).read(), _key(by), since)
    called = names_by_block(store) if by is By.BLOCK else {}
    rows = [_identity(store, by, key, called) | _figures(sums) for key, sums in found.rows.items()]
    if by is By.DAY:
        rows.sort(key=lambda row: str(row["day"]))
    else:
        rows.sort(key=lambda row: (-(row["seconds_saved"] or 0.0), -row["tokens_restored"], row["called"]))
    return {"store": store.root, "by": by.value, "rows": rows, "total": _figures(found.total)} | _beside(
        store, found, since
    )


def _key(by: By) -> Callable[[LoggedTurn], Hashable]:
    if by is By.DAY:
        return lambda line: line.day
    if by is By.SKILL:
        return lambda line: (line.kind, line.skill)
    return lambda line: (line.kind if line.block_id else "turn", line.block_id)


def _identity(store: BlockStore, by: By, key: Any, names: Mapping[str, str]) -> dict[str, Any]:
    if by is By.DAY:
        return {"day": key}
    kind, what = key
    if by is By.SKILL:
        called = what or ("(documents)" if kind == "window" else "(no skill)")
        return {"skill": what, "kind": kind, "called": called}
    return {"block_id": what, "kind": kind, "called": _called(store, what, kind, names)}


def _called(store: BlockStore, block_id: str | None, kind: str, names: Mapping[str, str]) -> str:
    """A block as a person knows it; what has no name is a prefix, a chunk of a document or a conversation's state."""
    from agentkv.errors import StoreError

    if block_id is None:
        return "(nothing restored)"
    if block_id in names:
        return names[block_id]
    try:
        summary = store.files.summary(block_id)
    except StoreError:
        return f"{block_id[:12]}, corrupt"
    if summary is None:
        return f"{block_id[:12]}, gone"
    prefix = "prefix" if summary.parent_id is None else "conversation"
    return f"{'chunk' if kind == 'window' else prefix} {block_id[:12]}"


def _figures(sums: Saved) -> dict[str, Any]:
    return {
        "turns": sums.turns,
        "turns_restored": sums.hits,
        "turns_asked_to_read": sums.ungrafted,
        "turns_without_estimate": sums.unknown,
        "hit_rate": sums.hit_rate,
        "tokens_restored": sums.restored,
        "tokens_read": sums.read,
        "tokens_generated": sums.generated,
        "seconds_saved": None if sums.saved_ms is None else sums.saved_ms / 1e3,
        "restore_seconds": sums.restore_ms / 1e3,
        "route_seconds": sums.route_ms / 1e3,
        "keep_seconds": sums.keep_ms / 1e3,
    }


def _beside(store: BlockStore, found: Savings[Any], since: str) -> dict[str, Any]:

    rates = [
        {
            "fingerprint_id": fingerprint,
            "model": model_of_digest(rate.model_sha256, store),
            "ms_a_token": rate.ms,
            "readings": rate.readings,
            "tokens": rate.tokens,
            "shortest": rate.shortest,
        }
        for fingerprint, rate in sorted(found.rates.items())
    ]
    deposits = {"readings": found.deposits, "tokens": found.deposited, "seconds": found.deposit_ms / 1e3}
    return {"since": since or None, "oldest": found.oldest, "reading": rates, "deposits": deposits}


# --- the screen -----------------------------------------------------------------------------------


def line(figures: dict[str, Any]) -> str:
    """All turns in one line."""
    if not figures["turns"]:
        return "no turn on record" + (f" since {figures['since']}" if figures["since"] else "")
    since = figures["since"] or figures["oldest"][:10]
    hits = f"{figures['turns_restored']:,} of {count(figures['turns'], 'turn')} ({figures['hit_rate']:.0%}) restored"
    return f"{figures['tokens_restored']:,} tokens, {_saved(figures)}, since {since}: {hits}; see --by day"


def show_saved(whole: dict[str, Any]) -> None:
    """The table, its sum, and how the seconds were estimated."""
    by, rows = whole["by"], whole["rows"]
    if not rows:
        say(line(whole["total"] | {"since": whole["since"], "oldest": whole["oldest"]}))
        return
    shown = rows[-_DAYS:] if by == By.DAY else rows[:_ROWS]
    key, title = ("day", "day (UTC)") if by == By.DAY else ("called", by)
    show_rows((Column(title, key, wraps=True), *_COLUMNS), [*shown, {key: "all", **whole["total"]}])
    if len(shown) < len(rows):
        say(f"{len(rows) - len(shown):,} more are in --json.", dim=True)
    for text in _notes(whole):
        say(text, dim=True)


def _saved(figures: dict[str, Any]) -> str:
    seconds = figures["seconds_saved"]
    if seconds is None:
        return "not known"
    if abs(seconds) >= 600:
        text = f"{seconds / 60:,.0f} min"
    else:
        text = f"{round(seconds, 2) + 0.0:.2f} s" if abs(seconds) < 10 else f"{seconds:.1f} s"
    return f"{text} or more" if figures["turns_without_estimate"] else text


_COLUMNS = (
    number("turns"),
    number("restored", "turns_restored"),
    number("hit rate", lambda row: "–" if row["hit_rate"] is None else f"{row['hit_rate']:.0%}"),
    number("tokens restored", "tokens_restored"),
    number("tokens prefilled", "tokens_read"),
    number("saved", _saved),
)


def _notes(whole: dict[str, Any]) -> list[str]:
    """How the seconds were estimated, and what is not taken off."""
    rates = [
        f"{rate['ms_a_token']:.2f} ms with {rate['model']} ({count(rate['readings'], 'prefill')}, "
        f"{rate['tokens']:,} tokens)"
        for rate in whole["reading"]
    ]
    notes = [
        "saved: tokens restored, times what the prefill of a token took here, less what restoring took. "
        + (f"A token of prefill took {'; '.join(rates)}." if rates else "No prefill is on record.")
    ]
    of, deposits = whole["total"], whole["deposits"]
    notes += [
        f"Not taken off: {deposits['seconds']:.1f} s of prefill for {count(deposits['readings'], 'deposit')}, "
        f"{of['route_seconds']:.1f} s of routing, {of['keep_seconds']:.1f} s of storing conversations."
    ]
    return notes
