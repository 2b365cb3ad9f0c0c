"""``agentkv pack show``: what is in a pack, and who signed it. Needs no store and no model.

The whole file is compared with its index first; states are not decoded, `agentkv pack verify` does that.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from agentkv.cli import options
from agentkv.cli.output import count, finish, one_line, print_json, printable, say, size, table
from agentkv.cli.progress import bytes_bar
from agentkv.errors import StoreReadError, UsageError

if TYPE_CHECKING:
    from agentkv.packs import Pack
    from agentkv.packs.check import Contents

PackFile = Annotated[Path, typer.Argument(metavar="PACK", help="The pack's file.")]


def show(
    pack: PackFile,
    source: Annotated[
        str | None, typer.Option("--source", metavar="NAME", help="Print the text of one name, and nothing else.")
    ] = None,
    licenses: Annotated[
        bool, typer.Option("--license", help="Print the pack's licence texts, and nothing else.")
    ] = False,
    as_json: options.Json = False,
) -> None:
    """Show what a pack holds: names, licences, models, sizes, signer. Reads all of it, stores nothing."""
    from agentkv.packs import open_pack
    from agentkv.packs.check import check

    with open_pack(pack) as opened:
        with bytes_bar("") as progress:
            contents = check(opened, deep=False, progress=progress)
        if source is not None:
            return _print_text(_source(opened, source), as_json)
        if licenses:
            texts = [opened.text(digest, "licenses") or "" for digest in opened.texts("licenses")]
            return _print_text("\n".join(texts), as_json)
        record = describe(opened, contents)
    finish(record, as_json, lambda: _show(record))


def describe(pack: Pack, contents: Contents) -> dict[str, Any]:
    """A pack for scripts."""
    from agentkv.cli.inventory import model_name

    names = []
    for named in contents.names:
        info = contents.blocks[named.block_id]
        names.append(
            {
                "name": named.name,
                "kind": named.kind,
                "description": named.description,
                "license": named.license,
                "model": model_name(info.fingerprint),
                "fingerprint_id": named.fingerprint_id,
                "block_id": named.block_id,
                "tokens": info.n_tokens,
                "own_tokens": info.own_tokens,
                "raw_bytes": info.raw_bytes,
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

    ``trust_error``: why the key store could not be asked, which for a look at a pack is no failure.
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
        return f"{by}; whom you trust cannot be told: {signed['trust_error']}"
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


def _print_text(text: str, as_json: bool) -> None:
    if as_json:
        print_json({"text": text})
    else:
        sys.stdout.write(printable(text) if sys.stdout.isatty() else text)
        sys.stdout.flush()


def _show(record: dict[str, Any]) -> None:
    rows = [
        (
            name["name"],
            name["kind"],
            name["model"],
            f"{name['tokens']:,}",
            size(name["raw_bytes"]),
            one_line(name["license"], 24) or "-",
            "yes" if name["source"] else "no",
            one_line(name["description"], 60),
        )
        for name in record["names"]
    ]
    columns = ("name", "kind", "model", "tokens", "state", "licence", "text", "what for")
    if rows:
        table(columns, rows, right=("tokens", "state"), wraps=("name", "licence", "what for"))
    blocks = f"{count(len(record['names']), 'name')} in {count(len(record['blocks']), 'block')}"
    say(f"\n{blocks}; {size(record['bytes'])}, {size(record['raw_bytes'])} as states")
    inexact = sum(name["exactness"] == "inexact" for name in record["names"])
    if inexact:
        say(f"{count(inexact, 'name')} of blocks that failed their proof when they were made (inexact)")
    if record["licenses"]:
        say(f"{count(len(record['licenses']), 'licence text')}: `agentkv pack show --license`")
    say(signer_line(record["signature"]))
    say(f"content {record['sha256'][:16]}", dim=True)
