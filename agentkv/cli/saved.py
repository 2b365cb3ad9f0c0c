"""What restoring saved, for ``agentkv stats``: rows for scripts and for people, by day, by skill or by block."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import TYPE_CHECKING, Any

from agentkv.cli.output import count, say, table

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable

    from agentkv.blocks.turnlog import LoggedTurn, Saved, Savings
    from agentkv.store.catalog import BlockStore

_DAYS, _ROWS = 31, 20
_COLUMNS = ("turns", "restored", "hit rate", "tokens restored", "tokens read", "saved")


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


def record(store: BlockStore, by: By, since: str) -> dict[str, Any]:
    """The whole answer to ``agentkv stats --by``. Raises StoreReadError."""
    from agentkv.blocks.turnlog import TurnLog, savings
    from agentkv.cli.inventory import names_by_block

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
    """A block as a person knows it; what has no name is a prefix, a window or a conversation's state."""
    from agentkv.errors import StoreError

    if block_id is None:
        return "(nothing restored)"
    if block_id in names:
        return names[block_id]
    try:
        summary = store.files.summary(block_id)
    except StoreError:
        return f"{block_id[:12]}, damaged"
    if summary is None:
        return f"{block_id[:12]}, gone"
    prefix = "prefix" if summary.parent_id is None else "conversation"
    return f"{'window' if kind == 'window' else prefix} {block_id[:12]}"


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
    from agentkv.cli.inventory import model_of_digest

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


def show(whole: dict[str, Any]) -> None:
    """The table, its sum, and how the seconds were estimated."""
    by, rows = whole["by"], whole["rows"]
    if not rows:
        say(line(whole["total"] | {"since": whole["since"], "oldest": whole["oldest"]}))
        return
    shown = rows[-_DAYS:] if by == By.DAY else rows[:_ROWS]
    first = "day (UTC)" if by == By.DAY else by
    cells = [(row["day"] if by == By.DAY else row["called"], *_cells(row)) for row in shown]
    table((first, *_COLUMNS), [*cells, ("all", *_cells(whole["total"]))], right=_COLUMNS, wraps=(first,))
    if len(shown) < len(rows):
        say(f"{len(rows) - len(shown):,} more are in --json.", dim=True)
    for text in _notes(whole):
        say(text, dim=True)


def _cells(row: dict[str, Any]) -> tuple[str, ...]:
    numbers = [f"{row[key]:,}" for key in ("turns", "turns_restored", "tokens_restored", "tokens_read")]
    rate = "–" if row["hit_rate"] is None else f"{row['hit_rate']:.0%}"
    return numbers[0], numbers[1], rate, numbers[2], numbers[3], _saved(row)


def _saved(figures: dict[str, Any]) -> str:
    seconds = figures["seconds_saved"]
    if seconds is None:
        return "not known"
    if abs(seconds) >= 600:
        text = f"{seconds / 60:,.0f} min"
    else:
        text = f"{round(seconds, 2) + 0.0:.2f} s" if abs(seconds) < 10 else f"{seconds:.1f} s"
    return f"{text} or more" if figures["turns_without_estimate"] else text


def _notes(whole: dict[str, Any]) -> list[str]:
    """How the seconds were estimated, and what is not taken off."""
    rates = [
        f"{rate['ms_a_token']:.2f} ms with {rate['model']} ({count(rate['readings'], 'reading')}, "
        f"{rate['tokens']:,} tokens)"
        for rate in whole["reading"]
    ]
    notes = [
        "saved: tokens restored, times what reading a token took here, less what restoring took. "
        + (f"Reading a token took {'; '.join(rates)}." if rates else "No reading is on record.")
    ]
    of, deposits = whole["total"], whole["deposits"]
    notes += [
        f"Not taken off: {deposits['seconds']:.1f} s of reading for {count(deposits['readings'], 'deposit')}, "
        f"{of['route_seconds']:.1f} s of routing, {of['keep_seconds']:.1f} s of storing conversations."
    ]
    return notes
