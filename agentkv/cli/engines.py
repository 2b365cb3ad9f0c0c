"""What in a store is of another engine than a command would open now, and by which fields; models by name; and the
commands that bring back what is lost. Loads no model.

The engine is the one that ``agentkv ask`` would open with the same ``--model``: by the environment, the store's
settings, the defaults. Not guaranteed: adapters and other settings that only Python has (a fingerprint with those is
said to differ by them); that a file still holds what was deposited from it; how a manual was cut, since no record has
its ``--max-tokens``.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from agentkv.cli.options import StoreOptions
from agentkv.cli.output import printable, say
from agentkv.errors import AgentKVError

if TYPE_CHECKING:
    from agentkv.blocks.mismatch import Fields
    from agentkv.engine.settings import EngineSettings
    from agentkv.records import Fingerprint, Manifest, NamedBlock
    from agentkv.store.catalog import BlockStore


_SHOWN = 4


@dataclass(frozen=True)
class Expected:
    """The engine that would be opened. ``fingerprint``: None where that is not known, and ``why``."""

    store: BlockStore
    model: str
    settings: EngineSettings
    fingerprint: Fingerprint | None
    why: str = ""

    def fields(self, there: Fingerprint | None) -> Fields:
        """By which fields a fingerprint is another engine's; empty if it is this one's, or that is not known."""
        if there is None or self.fingerprint is None:
            return {}
        found = there.differences(self.fingerprint)
        found.pop("v_trans", None)  # only a loaded model shows it
        return found

    def of_block(self, block_id: str) -> Fields:
        """The same for a block."""
        from agentkv.blocks.mismatch import fingerprint_of

        return self.fields(fingerprint_of(self.store, block_id))

    def in_words(self, fields: Fields) -> str:
        """The fields with both values; empty for none."""
        from agentkv.blocks.mismatch import in_words

        return in_words(self.store, fields, self.model) if fields else ""

    def note(self, named: Iterable[tuple[str, Fields]]) -> str:
        """What of a listing is missing for this engine, by which fields, and the remedies; empty if nothing is.

        ``named``: each name with the fields of one of its entries; empty fields: this engine has it.
        """
        nearest: dict[str, Fields] = {}
        for name, fields in named:
            if name not in nearest or len(fields) < len(nearest[name]):
                nearest[name] = fields
        groups: dict[str, list[str]] = {}
        for name, fields in ((name, fields) for name, fields in nearest.items() if fields):
            groups.setdefault(self.in_words(fields), []).append(name)
        if not groups:
            return ""
        listed = "; and ".join(f"{_some(names)} ({words})" for words, names in groups.items())
        return (
            f"of another engine than `agentkv ask` opens here ({self._opened()}), which does not find them: {listed}. "
            f"`{self.command()}` deposits them for it from the kept texts; `agentkv settings` says once for this store "
            "which engine is meant."
        )

    def command(self) -> str:
        """What deposits for this engine what others have."""
        from agentkv.blocks.mismatch import again_command, options_of

        assert self.fingerprint is not None
        flags = options_of(self.fingerprint, self.model)
        flags += ["--window", str(self.settings.window)] if self.settings.window else []
        return again_command(self.store.root, flags)

    def _opened(self) -> str:
        from agentkv.blocks.mismatch import options_of

        assert self.fingerprint is not None
        return " ".join(options_of(self.fingerprint, self.model))


def expected(store: BlockStore, model: str | None, settings: EngineSettings | None = None) -> Expected:
    """The engine that ``model`` means (None: as set). A model that is named and not there raises; else it is unknown.

    ``settings``: with which it is opened, where a command has options for them.

    Raises the errors of ModelError, UsageError.
    """
    from agentkv.engine.opening import choose, expected_fingerprint, require_usable
    from agentkv.errors import NoGpu

    name, as_set = choose({"model": model}, store.engine_choice)
    settings = settings or as_set
    try:
        require_usable(name, settings)
        return Expected(store, str(name), settings, expected_fingerprint(name, settings))
    except NoGpu as error:  # no engine is opened so, and nothing could be deposited for it
        return Expected(store, str(name), settings, None, error.message)
    except AgentKVError as error:
        if model is not None:
            raise
        return Expected(store, str(name), settings, None, error.message)
    except (ImportError, OSError, RuntimeError) as error:  # a broken llama-cpp-python should not take listings along
        return Expected(store, str(name), settings, None, str(error))


def record_of(fields: Fields) -> dict[str, Any] | None:
    """The fields for a script: name -> the value there and the one here."""
    return {name: {"there": there, "here": here} for name, (there, here) in fields.items()} or None


def say_note(meant: Expected, text: str) -> None:
    """The line under a listing, if there is something to say."""
    if text:  # not folded: it holds a command to be copied
        typer.echo(printable(f"\n{text}"))
    elif meant.why:
        say(f"\nwhether {meant.model} can use these is not known: {meant.why}", dim=True)


def warn_of_others(store: StoreOptions) -> None:
    """Warn, if the names of a store belong to another engine than the one that is opened now."""
    from agentkv.notices import warn
    from agentkv.store.marker import MARKER

    if not (store.path.expanduser() / MARKER).exists():
        return
    with store.open() as opened:
        meant = expected(opened, None)
        names = opened.names(on_error=lambda _: None)
        text = meant.note((named.name, meant.of_block(named.block_id)) for named in names)
    if text:
        warn(text)


def _some(names: list[str]) -> str:
    return ", ".join(names[:_SHOWN]) + (f" and {len(names) - _SHOWN:,} more" if len(names) > _SHOWN else "")


# --- models by name ------------------------------------------------------------------------------


def model_name(fingerprint: Fingerprint, store: BlockStore | None = None) -> str:
    """The name of the model that a fingerprint holds: the catalogue's, the store's, else the start of its digest."""
    return model_of(fingerprint.content, store)


def model_of(content: Mapping[str, object], store: BlockStore | None) -> str:
    """The name of the model of a fingerprint's content."""
    digest = str(content.get("model_sha256", ""))
    found = model_of_digest(digest, store)
    return "fake" if content.get("engine") == "fake" and found == digest[:12] else found


def model_of_digest(digest: str, store: BlockStore | None = None) -> str:
    """The name of the model of that SHA-256: the catalogue's, the store's, else the digest's start."""
    from agentkv.blocks.mismatch import model_name

    return model_name(store, digest)


def model_digest(model: str) -> str:
    """SHA-256 of the model that ``model`` names; nothing is fetched or loaded. Raises ModelError's."""
    from agentkv.engine.opening import model_sha256

    return model_sha256(model)


def is_of_model(manifest: Manifest, digest: str) -> bool:
    """Whether a block was made with the model of that digest."""
    return manifest.fingerprint.content.get("model_sha256") == digest


# --- the commands that deposit lost things again --------------------------------------------------


_CUT_HINT = (
    "(parts are cut as they were only with the --max-tokens and --window of then: if there were any, add them before "
    "running it)"
)


def commands(
    lost: Sequence[NamedBlock],
    texts: Sequence[NamedBlock],
    kept: Sequence[NamedBlock],
    engines: Mapping[str, str],
    store: StoreOptions,
) -> Iterable[str]:
    """The exact next steps, whole lines, to be copied.

    ``lost``: names whose blocks, or that themselves, are gone. ``texts``: names that lack only their source text.
    ``kept``: all names that are there. ``engines``: options for the model, by fingerprint.
    """
    where = f" --store {quoted(str(store.store))}" if store.store is not None else ""
    missing = {(n.fingerprint_id, n.kind, n.name): n for n in (*lost, *texts)}
    found = [named for named in missing.values() if is_there(named)]
    if found:
        yield "\nnow run:"
    for fingerprint_id in dict.fromkeys(named.fingerprint_id for named in found):
        of = where + engines.get(fingerprint_id, "")
        mine = [named for named in found if named.fingerprint_id == fingerprint_id]
        cut = {named.source for named in mine if _is_piece(named)}
        whole = [named for named in mine if named.kind == "text" or named.source not in cut]
        yield from _deposits(whole, of)
        others = [n for n in (*missing.values(), *kept) if n.fingerprint_id == fingerprint_id and n.source in cut]
        yield from _folders(sorted(cut), others, of)
    absent = [named.name for named in missing.values() if named not in found]
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

    model = model_name(fingerprint)
    flags = options_of(fingerprint, model)
    return "".join(f" {flag}" for flag in (flags if is_openable(model) else flags[2:]))
