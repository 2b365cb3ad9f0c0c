"""``agentkv pack verify``: is a pack whole? With a model: do its states belong to its tokens and texts? Stores nothing
and asks nobody's trust; goes on past a mismatch and ends with the first one's exit code.

``agentkv pack import``: all of a pack is checked, then its blocks go into the store. Order: trust and every byte first,
without a store or a model; then the model, whose fingerprint has to be that of the blocks; then names; then writing. A
refusal leaves the store as it was.
"""

from __future__ import annotations

import tempfile
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from agentkv.cli import options
from agentkv.cli.command import Result
from agentkv.cli.engines import model_name
from agentkv.cli.inventory import evicted, gone, say_evicted
from agentkv.cli.options import EngineOptions, StoreOptions
from agentkv.cli.output import Column, count, error_record, picked, say, show_rows
from agentkv.cli.pack import PackFile, signature, signer_line
from agentkv.cli.progress import bytes_bar, cancelled_by_ctrl_c, prefill_bar, status, steps_bar
from agentkv.errors import AgentKVError, IncompatibleFingerprint, InexactBlock, Interrupted, OverBudget, UsageError

if TYPE_CHECKING:
    from agentkv.engine.settings import EngineSettings
    from agentkv.packs import ImportedPack, Pack, Proof
    from agentkv.packs.check import Contents
    from agentkv.packs.proof import How
    from agentkv.signing.trust import Verdict
    from agentkv.store.catalog import BlockStore


def verify(
    *,
    pack: PackFile,
    prove: options.Prove = False,
    recompute: Annotated[
        bool, typer.Option("--recompute", help="Prefill all tokens again with --model and compare; finds forgery.")
    ] = False,
    engine: EngineOptions,
) -> Result:
    """Check every byte of a pack; with a model also that its states are what its texts give."""
    from agentkv.packs import open_pack
    from agentkv.packs.check import check

    if prove and recompute:
        raise UsageError("--recompute finds all that --prove finds; pass one of them")
    model, settings = engine.chosen(StoreOptions())
    with open_pack(pack) as opened:
        with bytes_bar("") as progress:
            contents = check(opened, progress=progress)
        how: How | None = "prove" if prove else "recompute" if recompute else None
        proofs = _ask(opened, contents, model, settings, how) if how else []
        signed = signature(opened)
        failures: list[AgentKVError] = [proof.error for proof in proofs if proof.error is not None]
        judged = [proof for proof in proofs if proof.verdict != "other model or settings"]
        if how and not judged:
            raise UsageError(
                f"no block of the pack is of {model} with these settings; `agentkv pack show` lists their models"
            )
        record: dict[str, Any] = {
            "pack": opened.path,
            "sha256": opened.sha256,
            "ok": not failures,
            "blocks": len(contents.blocks),
            "segments": len(contents.segments),
            "signature": signed,
            "proofs": [_proof(proof) for proof in proofs],
        }
    return Result(record, lambda: _show_verify(record, proofs), failures)


def _ask(pack: Pack, contents: Contents, model: str, settings: EngineSettings, how: How) -> list[Proof]:
    from agentkv.packs import prove_pack

    ids = list(contents.blocks)
    names = {named.block_id: named.name for named in contents.names}
    with (
        tempfile.TemporaryDirectory(prefix="agentkv-verify-") as folder,
        options.open_memory(Path(folder) / "store", model, settings, create=True) as memory,
        cancelled_by_ctrl_c() as cancellation,
    ):
        proofs = prove_pack(pack, contents, memory.engine, how, cancellation=cancellation)
        return list(steps_bar(proofs, len(ids), "block", lambda i: names.get(ids[i], ids[i][:12])))


def _proof(proof: Proof) -> dict[str, Any]:
    error = None if proof.error is None else error_record(proof.error)
    return {"block_id": proof.block_id, "names": list(proof.names), "verdict": proof.verdict, "error": error}


_PROOF = (
    Column("block", lambda proof: proof.block_id[:12]),
    Column("name", lambda proof: ", ".join(proof.names) or "(unnamed)", wraps=True),
    Column("verdict", "verdict"),
)


def _show_verify(record: dict[str, Any], proofs: list[Proof]) -> None:
    if proofs:
        show_rows(_PROOF, proofs)
        say()
    whole = f"{count(record['blocks'], 'block')} and {count(record['segments'], 'segment')}"
    say(f"{record['pack']}: every byte as its index says, {whole} decoded")
    say(signer_line(record["signature"]))
    if not proofs:
        say("whether the states belong to the texts, only a model can show: --recompute --model NAME", dim=True)


# --- import ---------------------------------------------------------------------------------------


def import_(
    *,
    pack: PackFile,
    any_model: Annotated[
        bool, typer.Option("--any-model", help="Store the blocks for whatever model they are of; loads none.")
    ] = False,
    source_only: Annotated[
        bool, typer.Option("--source-only", help="Take only the texts, and prefill them with --model.")
    ] = False,
    allow_unsigned: Annotated[
        bool, typer.Option("--allow-unsigned", help="This once, without a signature by a trusted key.")
    ] = False,
    replace: Annotated[
        bool, typer.Option("--replace", help="Point names that are taken to the pack's blocks.")
    ] = False,
    engine: EngineOptions,
    store: StoreOptions,
) -> Result:
    """Check a pack and store its blocks, names and texts; nothing is written if anything is wrong."""
    from agentkv.packs import open_pack
    from agentkv.packs.importing import admit

    if any_model and source_only:
        raise UsageError("--source-only reads the texts with a model, --any-model loads none; pass one of them")
    model, settings = engine.chosen(store)
    with open_pack(pack) as opened:
        with bytes_bar("") as progress:
            verdict, contents = admit(opened, allow_unsigned=allow_unsigned, progress=progress)
        job = _Job(opened, contents, verdict, replace, store, model, settings)
        if source_only:
            record = job.read_texts()
        else:
            record = job.store_blocks(any_model)
        record |= {"pack": opened.path, "sha256": opened.sha256, "decision": verdict.decision} | signature(opened)
    return Result(record, lambda: _show_import(record), job.failures)


@dataclass(frozen=True)
class _Job:
    pack: Pack
    contents: Contents
    verdict: Verdict
    replace: bool
    store: StoreOptions
    model: str
    settings: EngineSettings
    failures: list[AgentKVError] = field(default_factory=list)

    def store_blocks(self, any_model: bool) -> dict[str, Any]:
        if any_model:
            with self.store.open(create=True) as opened:
                return self._with_evictions(opened, _record(self._into(opened, None), opened.root, None))
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
            return self._with_evictions(memory.store, _record(done, memory.store.root, cards))

    def _with_evictions(self, store: BlockStore, record: dict[str, Any]) -> dict[str, Any]:
        """The record with what went for the budget; a failure if it is something of this pack."""
        self.failures.extend(gone(store, [named.name for named in self.contents.names]))
        return record | {"evicted": evicted(store)}

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

        models = sorted({model_name(fingerprint) for fingerprint in self.contents.fingerprints.values()})
        return IncompatibleFingerprint(error.field, error.block, error.engine).worded(
            f"the pack's blocks are of {', '.join(models)}, made with {error.field} = {error.block}; {self.model} with "
            f"these settings has {error.field} = {error.engine}. Nothing was imported. Pass the model and settings of "
            "the pack; or --source-only to prefill its texts with this model; or --any-model to store the blocks "
            "as they are, for another model or machine."
        )

    def read_texts(self) -> dict[str, Any]:
        """Deposit the pack's texts with this model. Each that is done stays if a later one fails."""
        from agentkv.packs.importing import plan_sources, sources_of

        texts = sources_of(self.pack, self.contents)
        with options.open_memory(self.store, self.model, self.settings, create=True) as memory:
            plan_sources(self.pack.path, [named for named, _ in texts], memory.names(), replace=self.replace)
            engine, done = memory.engine, []
            lengths = [len(engine.tokenize(text(), special=False)) for _, text in texts]
            with prefill_bar(sum(lengths), lambda: engine.counters.decoded) as bar:
                try:
                    with cancelled_by_ctrl_c() as cancellation:
                        for (named, text), length in zip(texts, lengths, strict=True):
                            bar.begin(named.name, length)
                            made = memory.deposit_source(named, text(), cancellation=cancellation)
                            done.append({"name": named.name, "new": made.created, "block_id": made.manifest.block_id})
                except KeyboardInterrupt:
                    raise _interrupted(len(done), len(texts)) from None
            record = {"store": memory.store.root, "texts": done, "read": engine.counters.decoded}
            return self._with_evictions(memory.store, record)


def _interrupted(done: int, total: int) -> Interrupted:
    message = f"interrupted: {done} of {total} texts are stored and stay; the same command goes on with the rest"
    return Interrupted(message, done=done, total=total)


def _record(done: ImportedPack, root: Path, cards: int | None) -> dict[str, Any]:
    return {"store": root, **picked(done, "created", "known", "kept", "names", "known_names"), "cards": cards}


def _show_import(record: dict[str, Any]) -> None:
    if "texts" in record:
        new = sum(text["new"] for text in record["texts"])
        known = len(record["texts"]) - new
        say(f"{count(len(record['texts']), 'text')} in {record['store']}: {new} prefilled, {known} known")
    else:
        blocks = f"{count(len(record['created']), 'block')} new, {len(record['known'])} known"
        names = f"{count(len(record['names']), 'name')} set, {len(record['known_names'])} known"
        say(f"{names}; {blocks} in {record['store']}")
        for block_id in record["kept"]:
            say(f"block {block_id[:12]} is here with another state than in the pack; the one here stays")
        if record["cards"] is None and record["created"]:
            say(
                "its skills are routed once their cards are stored: `agentkv pack import` without --any-model", dim=True
            )
    say_evicted(record["evicted"])
    say(f"{signer_line(record)}; let in as {record['decision']}", dim=True)
