"""``agentkv pack create``: names of a store, their blocks and texts, as one file. Loads no model."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from agentkv.cli import options
from agentkv.cli.output import count, finish, say, size
from agentkv.cli.progress import bytes_bar
from agentkv.errors import UnknownBlock, UsageError

if TYPE_CHECKING:
    from agentkv.packs import CreatedPack
    from agentkv.records import NamedBlock
    from agentkv.store.catalog import BlockStore

_TEXT_LIMIT = 1 << 20


def create(
    pack: Annotated[Path, typer.Argument(metavar="PACK", help="The file to write, by custom *.akvpack.")],
    keys: Annotated[
        list[str] | None, typer.Argument(metavar="[NAME|BLOCK_ID]...", help="Which ones.", show_default="all names")
    ] = None,
    model: options.ModelFilter = None,
    all_models: Annotated[
        bool, typer.Option("--all-models", help="Take the names of every model, not only of --model.")
    ] = False,
    made_by: Annotated[
        str, typer.Option("--made-by", metavar="DIGITS", help="Only names made by these settings: see `agentkv list`.")
    ] = "",
    no_sources: Annotated[
        bool, typer.Option("--no-sources", help="Leave the texts out; the pack then suits this one model only.")
    ] = False,
    license_files: Annotated[
        list[Path] | None, typer.Option("--license", metavar="FILE", help="A licence text for the whole pack.")
    ] = None,
    codec: Annotated[str, typer.Option(metavar="planes|zstd|raw", help="How states are stored.")] = "planes",
    sign: Annotated[
        Path | None, typer.Option("--sign", metavar="KEYFILE", help="Sign with a key of `agentkv pack keygen`.")
    ] = None,
    force: Annotated[bool, typer.Option("--force", help="Overwrite PACK.")] = False,
    store: options.Store = None,
    as_json: options.Json = False,
) -> None:
    """Write blocks, with their parents, names and texts, into one portable file."""
    from agentkv.cli.pack.keys import load_signer
    from agentkv.packs import create_pack

    with options.open_store(store) as opened:
        names, block_ids = choose(opened, keys or [], model, made_by, all_models=all_models)
        signer = None if sign is None else load_signer(sign)
        licenses = [read_text(file) for file in license_files or []]
        with bytes_bar("") as progress:
            made = create_pack(
                opened,
                pack,
                names=names,
                block_ids=block_ids,
                sources=not no_sources,
                licenses=licenses,
                codec=codec,
                signer=signer,
                replace=force,
                progress=progress,
            )
    record: dict[str, Any] = {
        "pack": made.path,
        "sha256": made.sha256,
        "bytes": made.n_bytes,
        "names": list(made.names),
        "blocks": made.blocks,
        "segments": made.segments,
        "sources": made.sources,
        "signed_by": made.signed_by,
    }
    finish(record, as_json, lambda: _show(made, no_sources))


def choose(
    store: BlockStore, keys: Sequence[str], model: str | None, made_by: str = "", *, all_models: bool = False
) -> tuple[list[NamedBlock], list[str]]:
    """The names, and the blocks by id, that ``keys`` stand for. Raises UsageError, UnknownBlock."""
    from agentkv.cli.inventory import find

    candidates = [named for named in store.names() if not keys or named.name in keys]
    names = [named for named in candidates if named.fingerprint_id.startswith(made_by)]
    if not all_models:
        names = _of_one_fingerprint(store, names, model)
    unmet = [key for key in dict.fromkeys(keys) if key not in {named.name for named in names}]
    foreign = [key for key in unmet if key in {named.name for named in candidates}]
    if foreign:
        raise UnknownBlock(foreign[0], "It is stored for another model or other settings: see `agentkv list`.")
    block_ids = [find(store, key) for key in unmet]
    if not names and not block_ids:
        of = " of that model and these settings" if store.names() else ""
        raise UsageError(f"{store.root} has no names{of} to pack. Run `agentkv list`.")
    return names, block_ids


def _of_one_fingerprint(store: BlockStore, names: list[NamedBlock], model: str | None) -> list[NamedBlock]:
    """The names of ``model``, or all; they have to be interchangeable, or a pack would fit no one engine."""
    from agentkv.cli.inventory import is_of_model, model_digest, model_name

    digest = None if model is None else model_digest(model)
    found, makers = [], {}
    for named in names:
        manifest = store.manifest(named.block_id)
        if manifest is None:
            raise UnknownBlock(named.block_id, f"It is what {named.name!r} points to; deposit it again.")
        if digest is None or is_of_model(manifest, digest):
            found.append(named)
            makers[named.fingerprint_id] = f"{model_name(manifest.fingerprint, store)} {named.fingerprint_id[:8]}"
    if len(makers) > 1:
        raise UsageError(
            f"the names are of {len(makers)} models or settings ({', '.join(sorted(makers.values()))}): pass --model "
            "NAME, or --made-by DIGITS, or --all-models"
        )
    return found


def read_text(path: Path) -> str:
    """A small text file. Raises UsageError."""
    try:
        if path.stat().st_size > _TEXT_LIMIT:
            raise UsageError(f"{path} is larger than {_TEXT_LIMIT:,} bytes")
        return path.read_bytes().decode()
    except OSError as error:
        raise UsageError(f"cannot read {path}: {error.strerror or error}") from error
    except UnicodeDecodeError as error:
        raise UsageError(f"{path} is no UTF-8 text") from error


def _show(made: CreatedPack, no_sources: bool) -> None:
    say(f"{made.path}: {size(made.n_bytes)}, {count(len(made.names), 'name')} in {count(made.blocks, 'block')}")
    texts = "no texts" if no_sources else count(made.sources, "text")
    say(f"{texts}; {'signed by ' + made.signed_by if made.signed_by else 'not signed'}")
    say(f"content {made.sha256[:16]}; look into it with `agentkv pack show {os.fspath(made.path)}`", dim=True)
