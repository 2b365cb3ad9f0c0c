"""``agentkv migrate`` and ``agentkv store status``: what of a store is of another engine, and moving it to this one."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from agentkv.cli import options
from agentkv.cli.command import App, Result
from agentkv.cli.inventory import evicted, gone, say_evicted
from agentkv.cli.output import count, say, size, table, tell
from agentkv.cli.progress import cancelled_by_ctrl_c, prefill_bar
from agentkv.errors import Interrupted

if TYPE_CHECKING:
    from agentkv.cli.engines import Expected
    from agentkv.memory.memory import AgentMemory
    from agentkv.migrate import Done, Plan
    from agentkv.records import Fingerprint
    from agentkv.store.catalog import BlockStore

app = App(help="The store as a whole.", no_args_is_help=True)


def migrate(
    *,
    dry_run: options.DryRun = False,
    allow_inexact: Annotated[
        bool, typer.Option("--allow-inexact", help="Store a block that failed its proof, as `inexact`.")
    ] = False,
    engine: options.EngineOptions,
    store: options.StoreOptions,
    as_json: options.Json = False,
) -> Result:
    """Deposit for the present engine what the store holds for others: skills, texts, documents, threads, solutions.

    For after an upgrade of llama.cpp, another CPU, model or setting. It can be stopped at any time and goes on where it
    was. Where the new build gives the same bits, blocks are adopted without prefill. The other blocks stay until it is
    done, and are then the first to be evicted.
    """
    from agentkv.migrate import plan

    model, settings = engine.chosen(store)
    with options.open_memory(store.store, model, settings) as memory:
        todo = plan(memory)
        record: dict[str, Any] = {"store": memory.store.root, "model": memory.engine.info.name, "dry_run": dry_run}
        record["todo"] = vars(todo)
        if dry_run:
            return Result(record, lambda: say(_forecast(todo)))
        if not todo.is_empty and not as_json:
            tell(_forecast(todo), dim=True)
        done = _done(memory, todo, allow_inexact)
        lost = gone(memory.store, [named.name for named, _ in done.deposits])
        record |= _record(memory, done)
    return Result(record, lambda: _show(record, todo), [*lost, *(error for _, error in done.failed)])


def _done(memory: AgentMemory, todo: Plan, allow_inexact: bool) -> Done:
    from agentkv.migrate import migrate as run

    started = 0
    with prefill_bar(todo.tokens, lambda: memory.engine.counters.decoded) as bar:

        def on_work(what: str, n_tokens: int) -> None:
            nonlocal started
            started += n_tokens > 0
            bar.begin(what, n_tokens)

        try:
            with cancelled_by_ctrl_c() as cancellation:
                return run(memory, allow_inexact=allow_inexact, on_work=on_work, cancellation=cancellation)
        except KeyboardInterrupt:
            finished = max(0, started - 1)
            message = f"interrupted: {finished} of {todo.blocks} are done and stay; `agentkv migrate` does the rest"
            raise Interrupted(message, done=finished, total=todo.blocks) from None


def _record(memory: AgentMemory, done: Done) -> dict[str, Any]:
    from agentkv.cli.deposit import is_unlearned

    return {
        "adopted": [
            {"fingerprint": one.fingerprint, "blocks": one.blocks, "compared": one.compared, "why_not": one.why_not}
            for one in done.adopted
        ],
        "deposits": [
            {"name": named.name, "kind": named.kind, "block_id": made.manifest.block_id, "new": made.created}
            for named, made in done.deposits
        ],
        "corpora": [{"name": one.name, "files": one.files, "chunks": one.chunks} for one in done.corpora],
        "chunks": done.chunks,
        "threads": done.threads,
        "learned": done.learned,
        "superseded": done.superseded,
        "evicted": evicted(memory.store),
        "router_to_learn": is_unlearned(memory),
        "failed": [{"name": name, "reason": error.message} for name, error in done.failed],
    }


def _forecast(todo: Plan) -> str:
    if todo.is_empty:
        return "nothing to do: this engine has all that the store holds for others"
    parts = [
        f"skills and texts: {len(todo.names):,}" if todo.names else "",
        f"document corpora: {len(todo.corpora):,}" if todo.corpora else "",
        f"chunks: {todo.chunks:,}" if todo.chunks else "",
        f"threads: {len(todo.threads):,}" if todo.threads else "",
        f"questions that the router has learned from: {todo.learned:,}" if todo.learned else "",
    ]
    text = ", ".join(filter(None, parts)) or "nothing to prefill"
    if todo.blocks:
        text += f"; {todo.tokens:,} tokens"
        text += f", about {max(1, round(todo.seconds)):,} s" if todo.seconds is not None else ""
        text += f" and {size(todo.n_bytes)}"
    if todo.adoptable:
        text += f". {count(todo.adoptable, 'block')} need no prefill if this build gives the same bits"
    return text


def _show(record: dict[str, Any], todo: Plan) -> None:
    for one in record["adopted"]:
        if one["why_not"]:
            say(f"not adopted: {one['why_not']}")
        else:
            say(f"adopted without prefill, as the bits are the same: {count(one['blocks'], 'block')}")
    if record["deposits"]:
        table(("name", "kind"), [(one["name"], one["kind"]) for one in record["deposits"]], wraps=("name",))
    for one in record["corpora"]:
        say(f"documents {one['name']!r}: {count(one['files'], 'file')}, {count(one['chunks'], 'chunk')}")
    if record["chunks"] or record["threads"]:
        say(f"prefilled: {count(record['chunks'], 'chunk')}, {count(len(record['threads']), 'thread')}")
    if record["learned"]:
        say(f"the router goes by what it had learned: {count(record['learned'], 'question')}")
    say_evicted(record["evicted"])
    if record["failed"]:
        say("not done; the other engine's blocks stay until it is: mend what is named below, then run it again")
    elif todo.is_empty and not record["superseded"]:
        say(_forecast(todo))
    else:
        say(f"\nthe store is {record['model']}'s now; blocks of the others are evicted first (`agentkv store status`)")
    if record["router_to_learn"]:
        say("the router has learned for another engine only; `agentkv route learn FILE` teaches it for this one")


# --- store status ---------------------------------------------------------------------------------


@app.command()
def status(*, model: options.ModelFilter = None, store: options.StoreOptions) -> Result:
    """Blocks by fingerprint: how many, how large, of which model, and by what they differ from the present engine."""
    from agentkv.cli.engines import expected, say_note
    from agentkv.store.images import IMAGES

    with store.open() as opened:
        meant = expected(opened, model)
        rows = fingerprints(opened, meant)
        names = opened.names(on_error=lambda _: None)
        note = meant.note((named.name, meant.of_block(named.block_id)) for named in names)
        images = opened.files.images.bytes()
        record = {"store": opened.root, "model": meant.model, "fingerprints": rows, "note": note or None}
        record["image_bytes"] = images

    def show() -> None:
        columns = ("fingerprint", "model", "blocks", "names", "tokens", "on disk", "differs by")
        cells = [
            (
                row["fingerprint_id"][:12],
                row["model"],
                f"{row['blocks']:,}",
                f"{row['names']:,}",
                f"{row['tokens']:,}",
                size(row["bytes"]),
                "; ".join(filter(None, (row["words"], "evicted first" if row["superseded"] else ""))),
            )
            for row in rows
        ]
        table(columns, cells, right=("blocks", "names", "tokens", "on disk"), wraps=("differs by",))
        if images:
            say(f"beside them {size(images)} of restore images in {opened.root / IMAGES}: made again when deleted")
        say_note(meant, note)

    return Result(record, show if rows else lambda: say("no blocks; `agentkv deposit PATH` stores the first"))


def fingerprints(store: BlockStore, meant: Expected) -> list[dict[str, Any]]:
    """One row for each fingerprint that has blocks, this engine's first. A segment counts for each that needs it."""
    from agentkv.cli.engines import model_name, record_of

    sizes, superseded = dict(store.segments.all()), store.superseded
    groups: dict[str, list[Any]] = {}
    for _, summary in store.files.summaries(store.pass_over):
        groups.setdefault(summary.fingerprint_id, []).append(summary)
    names = [named.fingerprint_id for named in store.names(on_error=lambda _: None)]
    rows = []
    for fingerprint_id, found in groups.items():
        fingerprint = _fingerprint(found[0])
        segments = {digest for summary in found for digest in summary.segments}
        fields = meant.fields(fingerprint)
        rows.append(
            {
                "fingerprint_id": fingerprint_id,
                "model": model_name(fingerprint, store),
                "blocks": len(found),
                "names": names.count(fingerprint_id),
                "tokens": sum(summary.n_tokens for summary in found),
                "bytes": sum(sizes.get(one, 0) for one in segments) + sum(summary.file_bytes for summary in found),
                "present": None if meant.fingerprint is None else not fields,
                "superseded": fingerprint_id in superseded,
                "differs": record_of(fields),
                "words": meant.in_words(fields) or ("" if meant.fingerprint is None else "nothing: the present engine"),
            }
        )
    return sorted(rows, key=lambda row: (not row["present"], row["model"], row["fingerprint_id"]))


def _fingerprint(summary: Any) -> Fingerprint:
    from agentkv.records import Fingerprint

    return Fingerprint.model_validate({"content": summary.content, "numerics": summary.numerics})
