"""``agentkv pack create``: names of a store, their blocks and texts, as one file. Loads no model.

``agentkv pack show``: what is in a pack, and who signed it. Needs no store and no model.

The whole file is compared with its index first; states are not decoded, `agentkv pack verify` does that.


``agentkv pack keygen`` and ``agentkv pack trust``: keys to sign with, and keys to believe.

Asks for a passphrase on a terminal only; elsewhere it is ``$AGENTKV_KEY_PASSPHRASE`` or none.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from agentkv.cli import options
from agentkv.cli.command import App, Result
from agentkv.cli.engines import is_of_model, model_digest, model_name
from agentkv.cli.inventory import find
from agentkv.cli.options import StoreOptions
from agentkv.cli.output import Column, count, number, one_line, picked, printable, say, show_rows, size, table
from agentkv.cli.progress import bytes_bar
from agentkv.errors import StoreReadError, UnknownBlock, UsageError

if TYPE_CHECKING:
    from agentkv.packs import CreatedPack, Pack
    from agentkv.packs.check import Contents
    from agentkv.records import NamedBlock
    from agentkv.signing.keys import SigningKey
    from agentkv.store.catalog import BlockStore


_TEXT_LIMIT = 1 << 20


app = App(help="Portable packs: blocks, names and texts in one file, checked and signed.", no_args_is_help=True)


@app.command()
def create(
    *,
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
    store: StoreOptions,
) -> Result:
    """Write blocks, with their parents, names and texts, into one portable file."""
    from agentkv.packs import create_pack

    with store.open() as opened:
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
        "bytes": made.n_bytes,
        **picked(made, "sha256", "names", "blocks", "segments", "sources", "signed_by"),
    }
    return Result(record, lambda: _show_create(made, no_sources))


def choose(
    store: BlockStore, keys: Sequence[str], model: str | None, made_by: str = "", *, all_models: bool = False
) -> tuple[list[NamedBlock], list[str]]:
    """The names, and the blocks by id, that ``keys`` stand for. Raises UsageError, UnknownBlock."""

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
        raise UsageError(f"{path} is not UTF-8 text") from error


def _show_create(made: CreatedPack, no_sources: bool) -> None:
    say(f"{made.path}: {size(made.n_bytes)}, {count(len(made.names), 'name')} in {count(made.blocks, 'block')}")
    texts = "no texts" if no_sources else count(made.sources, "text")
    say(f"{texts}; {'signed by ' + made.signed_by if made.signed_by else 'not signed'}")
    say(f"content {made.sha256[:16]}; look into it with `agentkv pack show {os.fspath(made.path)}`", dim=True)


# --- show -----------------------------------------------------------------------------------------


PackFile = Annotated[Path, typer.Argument(metavar="PACK", help="The pack's file.")]


@app.command()
def show(
    *,
    pack: PackFile,
    source: Annotated[
        str | None, typer.Option("--source", metavar="NAME", help="Print the text of one name, and nothing else.")
    ] = None,
    licenses: Annotated[
        bool, typer.Option("--license", help="Print the pack's licence texts, and nothing else.")
    ] = False,
) -> Result:
    """Show what a pack holds: names, licences, models, sizes, signer. Reads all of it, stores nothing."""
    from agentkv.packs import open_pack
    from agentkv.packs.check import check

    with open_pack(pack) as opened:
        with bytes_bar("") as progress:
            contents = check(opened, deep=False, progress=progress)
        if source is not None:
            return _text(_source(opened, source))
        if licenses:
            texts = [opened.text(digest, "licenses") or "" for digest in opened.texts("licenses")]
            return _text("\n".join(texts))
        record = describe(opened, contents)
    return Result(record, lambda: _show_show(record))


def describe(pack: Pack, contents: Contents) -> dict[str, Any]:
    """A pack for scripts."""

    names = []
    for named in contents.names:
        info = contents.blocks[named.block_id]
        names.append(
            {
                **picked(named, "name", "kind", "description", "license", "fingerprint_id", "block_id"),
                "model": model_name(info.fingerprint),
                "tokens": info.n_tokens,
                **picked(info, "own_tokens", "raw_bytes"),
                "exactness": info.exactness.value,
                "source": named.source_sha256 is not None and pack.has(f"sources/{named.source_sha256}.txt"),
            }
        )
    return {
        "pack": pack.path,
        "sha256": pack.sha256,
        "bytes": pack.n_bytes,
        "names": names,
        "blocks": [
            {"block_id": i.block_id, "parent_id": i.parent_id, "tokens": i.n_tokens} for i in contents.blocks.values()
        ],
        "segments": len(contents.segments),
        "raw_bytes": sum(ref.n_bytes for ref in contents.segments.values()),
        "fingerprints": {
            key: {"content": fp.content, "numerics": fp.numerics} for key, fp in contents.fingerprints.items()
        },
        "licenses": pack.texts("licenses"),
        "signature": signature(pack),
    }


def signature(pack: Pack) -> dict[str, Any]:
    """Who signed a pack and whether that key is trusted here; a wrong signature was refused before.

    ``trust_error``: why the key store could not be asked, which does not matter for a look at a pack.
    """
    from agentkv.packs import Trust

    name = error = None
    try:
        name = None if pack.signed_by is None else Trust().name_of(pack.signed_by)
        if pack.signed_by is None:
            Trust().read()
    except (UsageError, StoreReadError) as failure:
        error = failure.message
    return {"signed_by": pack.signed_by, "trusted": name is not None, "trusted_as": name, "trust_error": error}


def signer_line(signed: dict[str, Any]) -> str:
    """The signature for people."""
    if signed["trust_error"] is not None:
        by = "not signed" if signed["signed_by"] is None else f"signed by {signed['signed_by']}, trusted or not"
        return f"{by}; whom you trust is not known: {signed['trust_error']}"
    if signed["signed_by"] is None:
        return "not signed"
    if signed["trusted"]:
        return f"signed by {signed['trusted_as']}, whom you trust"
    return f"signed by the unknown key {signed['signed_by']}"


def _source(pack: Pack, name: str) -> str:
    found = [named for named in pack.index.names if named.name == name]
    if not found:
        known = ", ".join(sorted({named.name for named in pack.index.names})[:8])
        raise UsageError(f"the pack has no name {name!r}. It has {known or 'no names'}.")
    texts = {named.source_sha256: pack.text(named.source_sha256) for named in found if named.source_sha256}
    whole = [text for text in texts.values() if text is not None]
    if not whole:
        raise UsageError(f"the pack holds no source text of {name!r}")
    return "\n".join(whole)


def _text(text: str) -> Result:
    def write() -> None:
        sys.stdout.write(printable(text) if sys.stdout.isatty() else text)
        sys.stdout.flush()

    return Result({"text": text}, write)


def _show_show(record: dict[str, Any]) -> None:
    if record["names"]:
        show_rows(_NAME, record["names"])
    blocks = f"{count(len(record['names']), 'name')} in {count(len(record['blocks']), 'block')}"
    say(f"\n{blocks}; {size(record['bytes'])}, {size(record['raw_bytes'])} as states")
    inexact = sum(name["exactness"] == "inexact" for name in record["names"])
    if inexact:
        say(f"{count(inexact, 'name')} of blocks that failed their proof when they were made (inexact)")
    if record["licenses"]:
        say(f"{count(len(record['licenses']), 'licence text')}: `agentkv pack show --license`")
    say(signer_line(record["signature"]))
    say(f"content {record['sha256'][:16]}", dim=True)


_NAME = (
    Column("name", "name", wraps=True),
    Column("kind", "kind"),
    Column("model", "model"),
    number("tokens"),
    number("state", lambda name: size(name["raw_bytes"])),
    Column("licence", lambda name: one_line(name["license"], 24) or "-", wraps=True),
    Column("text", lambda name: "yes" if name["source"] else "no"),
    Column("what for", lambda name: one_line(name["description"], 60), wraps=True),
)


# --- keys and trust -------------------------------------------------------------------------------


PASSPHRASE = "AGENTKV_KEY_PASSPHRASE"

trust = App(help="Whose packs are let in without a question.", no_args_is_help=True)
app.add_typer(trust, name="trust")


@app.command()
def keygen(
    *, file: Annotated[Path, typer.Argument(metavar="KEYFILE", help="Where to write the private key; keep it secret.")]
) -> Result:
    """Make a key pair to sign packs with: the private key into a file, the public key on the screen."""
    from agentkv.signing.keys import generate_key

    key = generate_key(file, _new_passphrase(file))
    record = {"key_file": file, "public_key": key.public}

    def show() -> None:
        say(f"private key: {file} (readable by you alone; there is no other copy)")
        say(f"public key:  {key.public}")
        say("sign with `agentkv pack create --sign KEYFILE`; others run `agentkv pack trust add NAME KEY`", dim=True)

    return Result(record, show)


def load_signer(file: Path) -> SigningKey:
    """The private key of a file, its passphrase from the environment or the terminal. Raises InvalidKey."""
    from agentkv.signing.keys import load_key

    def ask() -> str:
        given = os.environ.get(PASSPHRASE)
        if given is None and sys.stdin.isatty():
            return str(typer.prompt(f"passphrase of {file}", hide_input=True, err=True))
        return given or ""

    return load_key(file, ask)


def _new_passphrase(file: Path) -> str:
    given = os.environ.get(PASSPHRASE)
    if given is not None or not sys.stdin.isatty():
        return given or ""
    text = f"passphrase for {file} (empty: none)"
    return str(typer.prompt(text, default="", show_default=False, hide_input=True, confirmation_prompt=True, err=True))


@trust.command()
def add(
    *,
    name: Annotated[str, typer.Argument(metavar="NAME", help="What you call the owner.")],
    key: Annotated[str, typer.Argument(metavar="KEY", help="ed25519:<64 hex digits>, or a file that holds that.")],
) -> Result:
    """Trust a public key: packs that it signed are let in. Ask its owner for it, not the pack."""
    from agentkv.packs import Trust
    from agentkv.signing.keys import parse_public_key

    public, keys = parse_public_key(key), Trust()
    new = keys.add(name, public)
    record = {"name": name, "key": public, "new": new, "file": keys.path}
    return Result(record, lambda: say(f"{name} is trusted{'' if new else ' already'}: {public}"))


@trust.command("list")
def list_() -> Result:
    """Show the trusted keys and the policy."""
    from agentkv.packs import Trust

    keys = Trust()
    found = keys.read()
    record: dict[str, Any] = {
        "file": keys.path,
        "policy": found.policy,
        "keys": [{"name": entry.name, "key": entry.key} for entry in found.keys],
    }

    def show() -> None:
        if found.keys:
            table(("name", "key"), [(entry.name, entry.key) for entry in found.keys])
        else:
            say("no key is trusted yet: `agentkv pack trust add NAME KEY`")
        say(f"\npolicy: {found.policy}")

    return Result(record, show)


@trust.command()
def rm(
    *,
    name: Annotated[str, typer.Argument(metavar="NAME|KEY", help="As `agentkv pack trust list` shows it.")],
    with_blocks: Annotated[
        bool,
        typer.Option(
            "--with-blocks", help="Also remove the blocks that came with it, and the blocks stored on top of them."
        ),
    ] = False,
    store: StoreOptions,
) -> Result:
    """Trust a key no longer, or all keys of a name. Blocks that came with it stay, but for --with-blocks.

    With --with-blocks a key that is not trusted any more will do.
    """
    from agentkv.packs import Trust

    keys, trusted = _keys_of(name, with_blocks)
    blocks, names = _remove_blocks(store, keys) if with_blocks else ([], [])
    if trusted:  # last: cut short, the same command finds the key again
        Trust().remove(name)
    record = {"name": trusted, "keys": keys, "blocks": blocks, "names": names}

    def show() -> None:
        end = "blocks that came with it stay (--with-blocks removes them)"
        if with_blocks:
            end = f"{count(len(blocks), 'block')} removed" + (f": {', '.join(names)}" if names else "")
        say(f"{trusted or name} is not trusted{' any more' if trusted else ''}; {end}")

    return Result(record, show)


def _keys_of(name: str, with_blocks: bool) -> tuple[list[str], str | None]:
    """The keys meant, and under which name they are trusted; None for a key that is not."""
    from agentkv.packs import Trust
    from agentkv.signing.keys import parse_public_key

    keys = Trust()
    if with_blocks and name.startswith("ed25519:") and keys.name_of(parse_public_key(name)) is None:
        return [parse_public_key(name)], None
    found = keys.of(name)
    return [entry.key for entry in found], found[0].name


def _remove_blocks(store: StoreOptions, keys: list[str]) -> tuple[list[str], list[str]]:
    from agentkv.packs.importing import blocks_of, names_of

    with store.open() as opened:
        gone = blocks_of(opened, keys)
        names = names_of(opened, gone)
        opened.take_away(gone)
        opened.collect()
    return gone, names


@trust.command()
def policy(
    *,
    value: Annotated[
        str | None, typer.Argument(metavar="[require-signature|allow-unsigned]", help="The new one; none: show it.")
    ] = None,
) -> Result:
    """Show or set what happens to packs that no trusted key has signed."""
    from agentkv.packs import Trust
    from agentkv.signing.trust import POLICIES

    keys = Trust()
    if value is not None:
        if value not in POLICIES:
            raise UsageError(f"the policy is {' or '.join(POLICIES)}, not {value!r}")
        keys.set_policy(value)
    now = keys.read().policy
    return Result({"policy": now, "file": keys.path}, lambda: say(f"policy: {now}"))
