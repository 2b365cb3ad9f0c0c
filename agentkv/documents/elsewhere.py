"""Which corpora of a store another engine has made, and by which setting that one differs. Knows no model."""

from __future__ import annotations

from agentkv.blocks.mismatch import Fields, fingerprint_of, in_words, remedy
from agentkv.documents.records import CorpusRecord
from agentkv.documents.shelf import Shelf, shelves
from agentkv.engine.base import Engine
from agentkv.records import Fingerprint
from agentkv.store.catalog import BlockStore

_IN_PYTHON = "agentkv.documents.deposit_again(memory)"


def lacking(store: BlockStore, fingerprint_id: str) -> list[tuple[Shelf, CorpusRecord]]:
    """The corpora that other engines have and this one has not, by name; of one name the one written last."""
    known = [(shelf, record) for shelf in shelves(store) if (record := shelf.record) is not None]
    own = {record.name for _, record in known if record.fingerprint_id == fingerprint_id}
    newest: dict[str, tuple[Shelf, CorpusRecord]] = {}
    for shelf, record in sorted(known, key=lambda one: one[0].written_at):
        if record.name not in own:
            newest[record.name] = shelf, record
    return [newest[name] for name in sorted(newest)]


def fingerprint_of_corpus(shelf: Shelf, record: CorpusRecord) -> Fingerprint | None:
    """The fingerprint that a corpus is of, from a block of its engine; None if the store holds none any more."""
    store = shelf.store
    for block_id in [*sorted(shelf.stored()), *store.block_ids()]:
        found = fingerprint_of(store, block_id)
        if found is not None and found.id == record.fingerprint_id:
            return found
    return None


def differences(shelf: Shelf, record: CorpusRecord, here: Fingerprint) -> Fields | None:
    """By which fields a corpus is another engine's; empty if it is this one's, None if that cannot be told."""
    if record.fingerprint_id == here.id:
        return {}
    found = fingerprint_of_corpus(shelf, record)
    return None if found is None else found.differences(here)


def fields_of(shelf: Shelf, record: CorpusRecord, here: Fingerprint | None, model: str) -> Fields:
    """The same for a listing: with the names of the models where no block is left, and empty where nothing is known."""
    if here is None or record.fingerprint_id == here.id:
        return {}
    fields = differences(shelf, record, here)
    if fields is None:
        return {"model_sha256": (record.model, model)} if record.model != model else {}
    fields.pop("v_trans", None)
    return fields


def why_missing(store: BlockStore, engine: Engine, name: str) -> str:
    """That the corpus is there, but another engine's, by which fields, and the remedy; empty if it is not there."""
    here = engine.fingerprint()
    there = [
        (shelf, record) for shelf in shelves(store) if (record := shelf.record) is not None and record.name == name
    ]
    if not there:
        return ""
    said = [_said(store, engine, record, differences(shelf, record, here)) for shelf, record in there]
    by = "; or ".join(sorted(set(said)))
    return f"It is there, but another engine has made it: {by}. {remedy(store, engine, _IN_PYTHON)}"


def _said(store: BlockStore, engine: Engine, record: CorpusRecord, fields: Fields | None) -> str:
    if fields:
        return in_words(store, fields, engine.info.name)
    if record.model != engine.info.name:
        return f"model_sha256 = {record.model}, here {engine.info.name}"
    return f"{record.model} with other settings or another version, of which no block is left to tell which"
