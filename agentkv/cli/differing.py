"""What in a store is of another engine than a command would open now, and by which fields. Loads no model.

The engine is the one that ``agentkv ask`` would open with the same ``--model``: by the environment, the store's
settings, the defaults. Not guaranteed: adapters and other settings that only Python has; a fingerprint with those is
said to differ by them.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from agentkv.cli import options
from agentkv.cli.output import printable, say
from agentkv.errors import AgentKVError

if TYPE_CHECKING:
    from agentkv.blocks.mismatch import Fields
    from agentkv.engine.settings import EngineSettings
    from agentkv.records import Fingerprint
    from agentkv.store.catalog import BlockStore


_SHOWN = 4


@dataclass(frozen=True)
class Expected:
    """The engine that would be opened. ``fingerprint``: None where that cannot be told, and ``why``."""

    store: BlockStore
    model: str
    settings: EngineSettings
    fingerprint: Fingerprint | None
    why: str = ""

    def fields(self, there: Fingerprint | None) -> Fields:
        """By which fields a fingerprint is another engine's; empty if it is this one's, or that cannot be told."""
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
        said = "; and ".join(f"{_some(names)} ({words})" for words, names in groups.items())
        return (
            f"of another engine than `agentkv ask` opens here ({self._opened()}), which does not find them: {said}. "
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


def tell_of_others(store: Path | None) -> None:
    """Warn, if the names of a store belong to another engine than the one that is opened now."""
    from agentkv.notices import warn
    from agentkv.store.marker import MARKER

    if not (options.store_path(store).expanduser() / MARKER).exists():
        return
    with options.open_store(store) as opened:
        meant = expected(opened, None)
        names = opened.names(on_error=lambda _: None)
        text = meant.note((named.name, meant.of_block(named.block_id)) for named in names)
    if text:
        warn(text)


def _some(names: list[str]) -> str:
    return ", ".join(names[:_SHOWN]) + (f" and {len(names) - _SHOWN:,} more" if len(names) > _SHOWN else "")
