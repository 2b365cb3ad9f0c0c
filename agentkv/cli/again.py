"""The commands that bring lost blocks, names and source texts back, made of what the names' records say.

Opens no store and loads no model. Not guaranteed: that a file still holds what was read from it then, nor how a manual
was cut: with which ``--max-tokens`` is in no record, so a line says where it matters.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from agentkv.errors import AgentKVError

if TYPE_CHECKING:
    from agentkv.records import Fingerprint, NamedBlock
    from agentkv.store.catalog import BlockStore

_CUT_HINT = (
    "(parts are cut as they were only with the --max-tokens and --window of then: if there were any, add them before "
    "running it)"
)


def commands(
    lost: Sequence[NamedBlock],
    texts: Sequence[NamedBlock],
    kept: Sequence[NamedBlock],
    engines: Mapping[str, str],
    store: Path | None,
) -> Iterable[str]:
    """The exact next steps, whole lines, to be copied.

    ``lost``: names whose blocks, or that themselves, are gone. ``texts``: names that lack only their source text.
    ``kept``: all names that are there. ``engines``: options for the model, by fingerprint.
    """
    where = f" --store {quoted(str(store))}" if store is not None else ""
    wanted = {(n.fingerprint_id, n.kind, n.name): n for n in (*lost, *texts)}
    found = [named for named in wanted.values() if is_there(named)]
    if found:
        yield "\nnow run:"
    for fingerprint_id in dict.fromkeys(named.fingerprint_id for named in found):
        of = where + engines.get(fingerprint_id, "")
        mine = [named for named in found if named.fingerprint_id == fingerprint_id]
        cut = {named.source for named in mine if _is_piece(named)}
        whole = [named for named in mine if named.kind == "text" or named.source not in cut]
        yield from _deposits(whole, of)
        others = [n for n in (*wanted.values(), *kept) if n.fingerprint_id == fingerprint_id and n.source in cut]
        yield from _folders(sorted(cut), others, of)
    absent = [named.name for named in wanted.values() if named not in found]
    if absent:
        yield (
            f"\nno longer where they came from, deposit them from where they are now: {', '.join(absent)} (or import "
            "again the pack that they came with)"
        )


def _deposits(names: Sequence[NamedBlock], of: str) -> Iterable[str]:
    """Manuals, and texts that are called by their files, together; each other text by itself."""
    plain: dict[str, None] = {}
    own = []
    for named in names:
        how = ["--name", named.name] if named.kind == "text" and named.name != Path(named.source).stem else []
        how += ["--description", named.description] if named.kind == "text" and named.description else []
        if how:
            own.append(f"  agentkv deposit{of} {' '.join(map(quoted, [named.source, *how]))}")
        else:
            plain[named.source] = None
    if plain:
        yield f"  agentkv deposit{of} {' '.join(map(quoted, plain))}"
    yield from own


def _folders(sources: Sequence[str], names: Sequence[NamedBlock], of: str) -> Iterable[str]:
    """Skills in several blocks. ``names``: all of these skills, lost or not: what is left out would be retired."""
    for references in (False, True):
        folders = [source for source in sources if _has(names, source, references=True) is references]
        if folders:
            flag = " --references" if references else ""
            yield f"  agentkv skills deposit{of}{flag} {' '.join(map(quoted, folders))}"
    if any(_has(names, source, references=False) for source in sources):
        yield f"  {_CUT_HINT}"


def _has(names: Sequence[NamedBlock], source: str, *, references: bool) -> bool:
    """Whether a skill's pieces are references, or parts."""
    pieces = [named.name for named in names if named.source == source and _is_piece(named)]
    return any((name.partition("/")[2].startswith("references/")) is references for name in pieces)


def _is_piece(named: NamedBlock) -> bool:
    """Whether a block is a part or a reference of a skill: a skill's own name has no slash."""
    return named.kind == "skill" and "/" in named.name


def is_there(named: NamedBlock) -> bool:
    """Whether its file or folder is where the deposit found it."""
    try:
        source = Path(named.source)
        there = source.is_file() if named.kind == "text" else source.exists()
    except (OSError, ValueError):
        return False
    return source.is_absolute() and there


def quoted(text: str) -> str:
    """One word of a shell's command line, on one line, without what could steer a terminal."""
    if text.isprintable():
        return shlex.quote(text)
    made = (char if char.isprintable() and char not in "\\'" else _escaped(char) for char in text)
    return f"$'{''.join(made)}'"


def _escaped(char: str) -> str:
    return f"\\{char}" if char in "\\'" else "".join(f"\\x{byte:02x}" for byte in char.encode()) if char else ""


def engines_of(store: BlockStore, known: Iterable[Fingerprint], kept: Sequence[NamedBlock]) -> dict[str, str]:
    """Options that open the engine of a fingerprint: of ``known``, and of one sound block for each other one."""
    found = {fingerprint.id: _options(fingerprint) for fingerprint in known}
    for named in kept:
        if named.fingerprint_id not in found:
            try:
                manifest = store.manifest(named.block_id)
            except AgentKVError:
                continue
            found |= {named.fingerprint_id: _options(manifest.fingerprint)} if manifest else {}
    return found


def _options(fingerprint: Fingerprint) -> str:
    from agentkv.blocks.mismatch import is_openable, options_of
    from agentkv.cli.inventory import model_name

    model = model_name(fingerprint)
    flags = options_of(fingerprint, model)
    return "".join(f" {flag}" for flag in (flags if is_openable(model) else flags[2:]))
