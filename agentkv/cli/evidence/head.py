"""``agentkv evidence head``: where the ledger ends now, to be published, signed or kept elsewhere."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from agentkv.cli import options
from agentkv.cli.evidence import common
from agentkv.cli.output import finish, say
from agentkv.errors import UsageError


def head(
    ledger: common.LedgerFolder = None,
    sign: Annotated[
        Path | None, typer.Option("--sign", metavar="KEYFILE", help="Sign it; the ledger keeps a copy.")
    ] = None,
    out: Annotated[Path | None, typer.Option("--out", metavar="FILE", help="Also write it to a file.")] = None,
    as_json: options.Json = False,
) -> None:
    """Print the anchor: number of records and digest of the last. Whoever has it can tell if the past was re-made."""
    from agentkv.cli.pack.keys import load_signer
    from agentkv.evidence import anchors
    from agentkv.evidence.records import SignedAnchor

    opened = common.open_ledger(ledger)
    anchor = opened.head()
    if anchor is None:
        raise UsageError(f"the ledger in {opened.folder} has no records yet")
    signed = SignedAnchor(anchor=anchor) if sign is None else anchors.sign(anchor, load_signer(sign))
    written = [] if out is None else [out]
    if sign is not None:
        written.append(anchors.place_of(opened.folder, anchor))
    for path in written:
        anchors.write(signed, path)
    key = None if signed.signature is None else signed.signature.key
    result = {**anchor.model_dump(), "anchor": anchor.text, "signed_by": key, "files": written}

    def show() -> None:
        say(anchor.text)
        if key is not None:
            say(f"signed by {key}")
        for path in written:
            say(f"written to {path}", dim=True)
        say("publish it; `agentkv evidence verify --anchor TEXT|FILE` compares", dim=True)

    finish(result, as_json, show)
