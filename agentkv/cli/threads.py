"""``agentkv threads``: the conversations of a store: list, show, fork, rewind, rm. No model is loaded."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from agentkv.cli import options
from agentkv.cli.command import App, Result
from agentkv.cli.options import StoreOptions
from agentkv.cli.output import Column, confirm, count, number, one_line, say, show_rows

if TYPE_CHECKING:
    from agentkv.memory.threads import Transcript
    from agentkv.records import ThreadEntry
    from agentkv.store.catalog import BlockStore

_SHOWN = 70

Name = Annotated[str, typer.Argument(metavar="THREAD", help="The thread's name.")]

app = App(help="Conversations that are kept in the store.", no_args_is_help=True)


@app.command("list")
def list_(*, store: StoreOptions) -> Result:
    """The store's conversations."""
    from agentkv.errors import CorruptThread
    from agentkv.memory import threads

    rows: list[dict[str, Any]] = []
    failures: list[Any] = []
    with store.open() as opened:
        for name in threads.names(opened):
            try:
                turns = threads.Transcript(opened, name).turns
            except CorruptThread as error:
                failures.append(error)
                continue
            rows.append({"thread": name, "turns": len(turns), **_state(opened, turns)})
        record = {"store": opened.root, "threads": rows}
    return Result(record, lambda: _show_list(rows), failures)


@app.command()
def show(
    *,
    thread: Name,
    history: Annotated[
        bool, typer.Option("--history", help="Every turn ever kept, with its number, what was rewound too.")
    ] = False,
    store: StoreOptions,
) -> Result:
    """What was said in a conversation, and which of its states are there."""
    with store.open() as opened:
        kept = _opened(opened, thread)
        turns = [entry for entry in kept.history if entry.question is not None] if history else list(kept.turns)
        rows = [{**entry.model_dump(mode="json"), "kept": _is_kept(opened, entry)} for entry in turns]
        record = {"store": opened.root, "thread": thread, "turns": rows}
    return Result(record, lambda: _show_turns(rows, history))


@app.command()
def fork(
    *,
    thread: Name,
    new: Annotated[str, typer.Argument(metavar="NEW", help="The new thread's name.")],
    at: Annotated[int | None, typer.Option(metavar="TURN", min=0, help="Its last turn; default: the newest.")] = None,
    store: StoreOptions,
) -> Result:
    """A new conversation that begins as this one; this one stays as it is."""
    with store.open() as opened:
        turns = len(_opened(opened, thread).fork(new, at=at).turns)
        record = {"store": opened.root, "thread": new, "of": thread, "turns": turns}
    return Result(record, lambda: say(f"{new}: {count(turns, 'turn')} of {thread}"))


@app.command()
def rewind(
    *,
    thread: Name,
    to: Annotated[int, typer.Option(metavar="TURN", min=0, help="The turn to go on from; 0: the beginning.")],
    store: StoreOptions,
) -> Result:
    """Go back to an earlier turn; what came after it stays, see `show --history`."""
    with store.open() as opened:
        kept = _opened(opened, thread)
        before = len(kept.turns)
        kept.rewind(to)
        record = {"store": opened.root, "thread": thread, "turns": to, "rewound": before - to}
    return Result(record, lambda: say(f"{thread} goes on from turn {to}; {count(before - to, 'turn')} rewound"))


@app.command()
def rm(*, thread: Name, yes: options.Yes = False, as_json: bool, store: StoreOptions) -> Result:
    """Delete a conversation, with the states that no other one needs; it exists nowhere else, so you are asked."""
    from agentkv.memory import threads
    from agentkv.memory.threadlog import ThreadLog

    with store.open() as opened:
        threads.require(opened, thread)
        turns = len(ThreadLog(opened.files, thread).numbers())
        confirm(f"the conversation {thread!r} (its log has {turns:,} turns and moves)", yes=yes, as_json=as_json)
        blocks = threads.remove(opened, thread)
        record = {"store": opened.root, "thread": thread, "blocks": blocks}
    return Result(record, lambda: say(f"{thread} removed, with {count(blocks, 'block')}"))


def _opened(store: BlockStore, thread: str) -> Transcript:
    from agentkv.memory import threads

    threads.require(store, thread)
    return threads.Transcript(store, thread)


def _is_kept(store: BlockStore, entry: ThreadEntry) -> bool:
    from agentkv.errors import StoreError

    try:
        return entry.checkpoint is not None and store.exists(entry.checkpoint)
    except StoreError:
        return False


def _state(store: BlockStore, turns: tuple[ThreadEntry, ...]) -> dict[str, Any]:
    last = turns[-1] if turns else None
    return {
        "skill": last.skill if last else None,
        "last": last.question if last else None,
        "kept": sum(_is_kept(store, entry) for entry in turns),
    }


def _show_list(rows: list[dict[str, Any]]) -> None:
    if not rows:
        say("no conversations; `agentkv chat` begins one")
        return
    show_rows(_COLUMNS, rows)


_COLUMNS = (
    Column("thread", "thread", wraps=True),
    number("turns"),
    number("states", "kept"),
    Column("skill", "skill"),
    Column("last question", lambda row: one_line(row["last"] or "", _SHOWN)),
)


def _show_turns(rows: list[dict[str, Any]], history: bool) -> None:
    for turn, row in enumerate(rows, 1):
        skill = f", on top of {row['skill']}" if row["skill"] else ""
        at = f"entry {row['seq']}, after {row['after']}" if history else f"turn {turn}"
        say(f"[{at}{skill}, {'state kept' if row['kept'] else 'no state kept'}]", dim=True)
        say(f"> {row['question']}")
        say(f"{row['answer']}{' [… cut]' if row['finish'] == 'length' else ''}\n")
