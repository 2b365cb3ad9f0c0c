"""``agentkv pack keygen`` and ``agentkv pack trust``: keys to sign with, and keys to believe.

Asks for a passphrase on a terminal only; elsewhere it is ``$AGENTKV_KEY_PASSPHRASE`` or none.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from agentkv.cli import options
from agentkv.cli.command import App
from agentkv.cli.output import count, finish, say, table
from agentkv.errors import UsageError

if TYPE_CHECKING:
    from agentkv.signing.keys import SigningKey

PASSPHRASE = "AGENTKV_KEY_PASSPHRASE"

trust = App(help="Whose packs are let in without a question.", no_args_is_help=True)


def keygen(
    file: Annotated[Path, typer.Argument(metavar="KEYFILE", help="Where to write the private key; keep it secret.")],
    as_json: options.Json = False,
) -> None:
    """Make a key pair to sign packs with: the private key into a file, the public key on the screen."""
    from agentkv.signing.keys import generate_key

    key = generate_key(file, _new_passphrase(file))
    record = {"key_file": file, "public_key": key.public}

    def show() -> None:
        say(f"private key: {file} (readable by you alone; there is no other copy)")
        say(f"public key:  {key.public}")
        say("sign with `agentkv pack create --sign KEYFILE`; others run `agentkv pack trust add NAME KEY`", dim=True)

    finish(record, as_json, show)


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
    name: Annotated[str, typer.Argument(metavar="NAME", help="What you call the owner.")],
    key: Annotated[str, typer.Argument(metavar="KEY", help="ed25519:<64 hex digits>, or a file that holds that.")],
    as_json: options.Json = False,
) -> None:
    """Trust a public key: packs that it signed are let in. Ask its owner for it, not the pack."""
    from agentkv.packs import Trust
    from agentkv.signing.keys import parse_public_key

    public, keys = parse_public_key(key), Trust()
    new = keys.add(name, public)
    record = {"name": name, "key": public, "new": new, "file": keys.path}
    finish(record, as_json, lambda: say(f"{name} is trusted{'' if new else ' already'}: {public}"))


@trust.command("list")
def list_(as_json: options.Json = False) -> None:
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

    finish(record, as_json, show)


@trust.command()
def rm(
    name: Annotated[str, typer.Argument(metavar="NAME|KEY", help="As `agentkv pack trust list` shows it.")],
    with_blocks: Annotated[
        bool,
        typer.Option("--with-blocks", help="Also remove the blocks that came with it, and what was read behind them."),
    ] = False,
    store: options.Store = None,
    as_json: options.Json = False,
) -> None:
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

    finish(record, as_json, show)


def _keys_of(name: str, with_blocks: bool) -> tuple[list[str], str | None]:
    """The keys meant, and under which name they are trusted; None for a key that is not."""
    from agentkv.packs import Trust
    from agentkv.signing.keys import parse_public_key

    keys = Trust()
    if with_blocks and name.startswith("ed25519:") and keys.name_of(parse_public_key(name)) is None:
        return [parse_public_key(name)], None
    found = keys.of(name)
    return [entry.key for entry in found], found[0].name


def _remove_blocks(store: Path | None, keys: list[str]) -> tuple[list[str], list[str]]:
    from agentkv.packs.signers import blocks_of, names_of

    with options.open_store(store) as opened:
        gone = blocks_of(opened, keys)
        names = names_of(opened, gone)
        opened.take_away(gone)
        opened.collect()
    return gone, names


@trust.command()
def policy(
    value: Annotated[
        str | None, typer.Argument(metavar="[require-signature|allow-unsigned]", help="The new one; none: show it.")
    ] = None,
    as_json: options.Json = False,
) -> None:
    """Show or set what happens to packs that no trusted key has signed."""
    from agentkv.packs import Trust
    from agentkv.signing.trust import POLICIES

    keys = Trust()
    if value is not None:
        if value not in POLICIES:
            raise UsageError(f"the policy is {' or '.join(POLICIES)}, not {value!r}")
        keys.set_policy(value)
    now = keys.read().policy
    finish({"policy": now, "file": keys.path}, as_json, lambda: say(f"policy: {now}"))
