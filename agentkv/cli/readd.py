"""``agentkv deposit --again``: for this engine, what the store holds for others; texts are read, documents cut anew.

Nothing of the other engines goes. Each deposit before a failure or Ctrl-C stays; the same command does the rest.
"""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from agentkv.cli import evictions, options
from agentkv.cli.interrupt import cancelled_by_ctrl_c
from agentkv.cli.output import count, finish, say, table
from agentkv.cli.progress import reading_bar
from agentkv.errors import AgentKVError, Interrupted

if TYPE_CHECKING:
    from agentkv.documents.again import Recut
    from agentkv.engine.settings import EngineSettings
    from agentkv.memory.again import Again
    from agentkv.memory.memory import AgentMemory
    from agentkv.records import NamedBlock


def deposit_again(
    store: Path | None, model: str, settings: EngineSettings, *, allow_inexact: bool, as_json: bool
) -> None:
    """Do it, and end the command."""
    with options.open_memory(store, model, settings) as memory:
        done, corpora = _done(memory, allow_inexact)
        names = [named.name for named, _ in done.done]
        lost = evictions.gone(memory.store, names)
        record: dict[str, Any] = {
            "store": memory.store.root,
            "model": memory.engine.info.name,
            "deposits": [
                {"name": named.name, "kind": named.kind, "block_id": made.manifest.block_id, "new": made.created}
                for named, made in done.done
            ],
            "corpora": [{"name": one.name, "files": one.files, "windows": one.windows} for one in corpora],
            "evicted": evictions.evicted(memory.store),
            "router_to_learn": _is_unlearned(memory),
            "failed": [{"name": named.name, "reason": error.message} for named, error in done.failed],
        }
    failures: list[AgentKVError] = [error for _, error in done.failed]
    failures += [error for one in corpora for _, error in one.failed]
    finish(record, as_json, lambda: _show(record, corpora), [*lost, *failures])


def _done(memory: AgentMemory, allow_inexact: bool) -> tuple[Again, list[Recut]]:
    from agentkv.documents.again import deposit_again as cut_again
    from agentkv.memory.again import lacking

    wanted = lacking(memory.store, memory.blocks.fingerprint.id)
    texts = {named.name: _length(memory, named) for named in wanted}
    begun = 0
    with reading_bar(sum(texts.values()), lambda: memory.engine.counters.decoded) as bar:

        def on_work(named: NamedBlock) -> None:
            nonlocal begun
            begun += 1
            bar.begin(named.name, texts.get(named.name, 0))

        try:
            with cancelled_by_ctrl_c() as cancellation:
                done = memory.deposit_again(allow_inexact=allow_inexact, on_work=on_work, cancellation=cancellation)
                return done, cut_again(memory, cancellation=cancellation)
        except KeyboardInterrupt:
            raise Interrupted(
                f"interrupted: {max(0, begun - 1)} of {len(texts)} are stored and stay; the same command does the rest",
                done=max(0, begun - 1),
                total=len(texts),
            ) from None


def _is_unlearned(memory: AgentMemory) -> bool:
    """Whether the router has learned for other engines, and not for this one."""
    from agentkv.store.files import ROUTER

    learned = {path.stem for path in (memory.store.root / ROUTER).glob("*.json")}
    return bool(learned) and memory.blocks.fingerprint.id not in learned


def _length(memory: AgentMemory, named: NamedBlock) -> int:
    text = None
    with contextlib.suppress(AgentKVError):
        text = memory.store.text(named.source_sha256) if named.source_sha256 else None
    return len(memory.engine.tokenize(text or "", special=False))


def _show(record: dict[str, Any], corpora: Sequence[Recut]) -> None:
    deposits = record["deposits"]
    if deposits:
        table(("name", "kind"), [(one["name"], one["kind"]) for one in deposits], wraps=("name",))
    for one in corpora:
        if one.files:
            say(
                f"documents {one.name!r}: {count(one.files, 'file')}, {count(one.windows, 'window')}; a window is read "
                "when a question first needs it, or now by `agentkv docs add PATH`"
            )
    if not deposits and not corpora:
        say(f"nothing to do: {record['store']} holds nothing that {record['model']} has not with these settings")
        return
    say(f"\ndeposited for {record['model']}; what other engines have stays, and can go by `agentkv rm BLOCK_ID`")
    evictions.tell(record["evicted"])
    if record["router_to_learn"]:
        say("the router has learned for another engine only; `agentkv route learn FILE` teaches it for this one")
