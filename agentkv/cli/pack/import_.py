"""``agentkv pack import``: all of a pack is checked, then its blocks go into the store.

Order: trust and every byte first, without a store or a model; then the model, whose fingerprint has to be that of
the blocks; then names; then writing. A refusal leaves the store as it was.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from agentkv.cli import evictions, options
from agentkv.cli.interrupt import cancelled_by_ctrl_c
from agentkv.cli.output import count, finish, say
from agentkv.cli.pack.show import PackFile, signature, signer_line
from agentkv.cli.progress import bytes_bar, reading_bar, status
from agentkv.errors import AgentKVError, IncompatibleFingerprint, InexactBlock, Interrupted, OverBudget, UsageError

if TYPE_CHECKING:
    from agentkv.engine.settings import EngineSettings
    from agentkv.packs import ImportedPack, Pack
    from agentkv.packs.check import Contents
    from agentkv.signing.trust import Verdict
    from agentkv.store.catalog import BlockStore


def import_(
    pack: PackFile,
    any_model: Annotated[
        bool, typer.Option("--any-model", help="Store the blocks for whatever model they are of; loads none.")
    ] = False,
    source_only: Annotated[
        bool, typer.Option("--source-only", help="Take only the texts and read them anew with --model.")
    ] = False,
    allow_unsigned: Annotated[
        bool, typer.Option("--allow-unsigned", help="This once, without a signature by a trusted key.")
    ] = False,
    replace: Annotated[
        bool, typer.Option("--replace", help="Point names that are taken to the pack's blocks.")
    ] = False,
    model: options.Model = None,
    store: options.Store = None,
    window: options.Window = None,
    threads: options.Threads = None,
    kv_type: options.KvType = None,
    flash_attention: options.FlashAttention = None,
    gpu_layers: options.GpuLayers = None,
    as_json: options.Json = False,
) -> None:
    """Check a pack and store its blocks, names and texts; nothing is written if anything is wrong."""
    from agentkv.packs import open_pack
    from agentkv.packs.importing import admit

    if any_model and source_only:
        raise UsageError("--source-only reads the texts with a model, --any-model loads none; pass one of them")
    model, settings = options.chosen(store, model, window, threads, kv_type, flash_attention, gpu_layers)
    with open_pack(pack) as opened:
        with bytes_bar("") as progress:
            verdict, contents = admit(opened, allow_unsigned=allow_unsigned, progress=progress)
        job = _Job(opened, contents, verdict, replace, store, model, settings)
        if source_only:
            record = job.read_texts()
        else:
            record = job.store_blocks(any_model)
        record |= {"pack": opened.path, "sha256": opened.sha256, "decision": verdict.decision} | signature(opened)
    finish(record, as_json, lambda: _show(record), job.failures)


@dataclass(frozen=True)
class _Job:
    pack: Pack
    contents: Contents
    verdict: Verdict
    replace: bool
    store: Path | None
    model: str
    settings: EngineSettings
    failures: list[AgentKVError] = field(default_factory=list)

    def store_blocks(self, any_model: bool) -> dict[str, Any]:
        if any_model:
            with options.open_store(self.store, create=True) as opened:
                return self._told(opened, _record(self._into(opened, None), opened.root, None))
        with options.open_memory(self.store, self.model, self.settings, create=True) as memory:
            try:
                done = self._into(memory.store, memory.blocks.fingerprint)
            except IncompatibleFingerprint as error:
                raise self._with_hint(error) from None
            try:
                with status("reading router cards"):
                    cards = memory.deposit_cards()
            except (InexactBlock, OverBudget) as error:  # the import itself is done; only routing lacks something
                self.failures.append(error)
                cards = None
            return self._told(memory.store, _record(done, memory.store.root, cards))

    def _told(self, store: BlockStore, record: dict[str, Any]) -> dict[str, Any]:
        """The record with what went for the budget; a failure if it is something of this pack."""
        self.failures.extend(evictions.gone(store, [named.name for named in self.contents.names]))
        return record | {"evicted": evictions.evicted(store)}

    def _into(self, store: Any, fingerprint: Any) -> ImportedPack:
        from agentkv.packs.importing import store_pack

        with bytes_bar("") as progress:
            return store_pack(
                self.pack,
                self.contents,
                self.verdict,
                store,
                fingerprint=fingerprint,
                replace=self.replace,
                progress=progress,
            )

    def _with_hint(self, error: IncompatibleFingerprint) -> IncompatibleFingerprint:
        from agentkv.cli.inventory import model_name

        models = sorted({model_name(fingerprint) for fingerprint in self.contents.fingerprints.values()})
        told = IncompatibleFingerprint(error.field, error.block, error.engine)
        told.message = (
            f"the pack's blocks are of {', '.join(models)}, made with {error.field} = {error.block}; {self.model} with "
            f"these settings has {error.field} = {error.engine}. Nothing was imported. Pass the model and settings of "
            "the pack; or --source-only to read its texts anew with this model; or --any-model to store the blocks "
            "as they are, for another model or machine."
        )
        told.args = (told.message,)
        return told

    def read_texts(self) -> dict[str, Any]:
        """Deposit the pack's texts with this model. Each that is done stays if a later one fails."""
        from agentkv.packs.importing import plan_sources, sources_of

        texts = sources_of(self.pack, self.contents)
        with options.open_memory(self.store, self.model, self.settings, create=True) as memory:
            plan_sources(self.pack.path, [named for named, _ in texts], memory.names(), replace=self.replace)
            engine, done = memory.engine, []
            lengths = [len(engine.tokenize(text(), special=False)) for _, text in texts]
            with reading_bar(sum(lengths), lambda: engine.counters.decoded) as bar:
                try:
                    with cancelled_by_ctrl_c() as cancellation:
                        for (named, text), length in zip(texts, lengths, strict=True):
                            bar.begin(named.name, length)
                            made = memory.deposit_source(named, text(), cancellation=cancellation)
                            done.append({"name": named.name, "new": made.created, "block_id": made.manifest.block_id})
                except KeyboardInterrupt:
                    raise _interrupted(len(done), len(texts)) from None
            record = {"store": memory.store.root, "texts": done, "read": engine.counters.decoded}
            return self._told(memory.store, record)


def _interrupted(done: int, total: int) -> Interrupted:
    message = f"interrupted: {done} of {total} texts are stored and stay; the same command goes on with the rest"
    return Interrupted(message, done=done, total=total)


def _record(done: ImportedPack, root: Path, cards: int | None) -> dict[str, Any]:
    return {
        "store": root,
        "created": list(done.created),
        "known": list(done.known),
        "kept": list(done.kept),
        "names": list(done.names),
        "known_names": list(done.known_names),
        "cards": cards,
    }


def _show(record: dict[str, Any]) -> None:
    if "texts" in record:
        new = sum(text["new"] for text in record["texts"])
        known = len(record["texts"]) - new
        say(f"{count(len(record['texts']), 'text')} in {record['store']}: {new} read anew, {known} known")
    else:
        blocks = f"{count(len(record['created']), 'block')} new, {len(record['known'])} known"
        names = f"{count(len(record['names']), 'name')} set, {len(record['known_names'])} known"
        say(f"{names}; {blocks} in {record['store']}")
        for block_id in record["kept"]:
            say(f"block {block_id[:12]} is here with another state than in the pack; the one here stays")
        if record["cards"] is None and record["created"]:
            say("its skills are routed once their cards are read: `agentkv pack import` without --any-model", dim=True)
    evictions.tell(record["evicted"])
    say(f"{signer_line(record)}; let in as {record['decision']}", dim=True)
