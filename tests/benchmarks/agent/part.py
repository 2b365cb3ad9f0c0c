"""What the parts of the benchmark of an agent have in common: settings, a model, lengths, an engine."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Generic, TypeVar

from agentkv.bench.base import option, small_option
from agentkv.engine.base import Engine
from agentkv.errors import UsageError
from tests.benchmarks.agent import arms


@dataclass(frozen=True, kw_only=True)
class Settings:
    """Of all parts; a length that is None is the part's own."""

    part: str = option("conversation", "conversation, secrets or threads.", metavar="PART")
    model: str | None = option(None, "", shown="qwen2.5-coder-1.5b for the conversation, else smollm2-135m")
    turns: int | None = option(None, "Turns of the part.", shown="20, 200, 40", least=2)
    answer: int | None = option(None, "Tokens of an answer, at most.", shown="16, 12, 12", least=2)
    manual: int | None = option(None, "Length of the manual.", metavar="TOKENS", shown="3000", least=64)
    arms: tuple[str, ...] = option(
        (),
        "Of agentkv, llamacpp, llamacpp-ram, llamacpp-disk, deepagents, reread; repeat for more.",
        name="arm",
        metavar="NAME",
        shown="all but llamacpp-ram",
    )
    work: Path | None = option(None, "Keep each finished arm here, and go on with those kept.", metavar="DIR")
    small: bool = small_option()
    threads: int | None = None
    texts: tuple[str, ...] | None = None
    engine: Engine | None = None


@dataclass(frozen=True)
class Measured:
    """What a part has seen. ``inputs``: everything that was asked, as JSON."""

    raw: dict[str, Any]
    model_sha256: str
    inputs: object


@dataclass(frozen=True)
class Lengths:
    """How long everything is: turns, tokens of an answer; CPU threads."""

    turns: int
    answer: int
    threads: int | None = None


L = TypeVar("L", bound=Lengths)


class Part(Generic[L]):
    """Base of every part. ``model``: where none is given; ``usual``, ``small``: its lengths."""

    model: ClassVar[str]
    usual: ClassVar[Lengths]
    small: ClassVar[Lengths]

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self.model_name = settings.model or self.model
        given = {name: getattr(settings, name) for name in ("turns", "answer", "manual", "threads")}
        given = {name: value for name, value in given.items() if value is not None}
        lengths: Any = self.small if settings.small else self.usual
        if unknown := sorted(given.keys() - {field.name for field in dataclasses.fields(lengths)}):
            raise UsageError(f"the part {settings.part} has no {unknown[0]}")
        self.lengths: L = dataclasses.replace(lengths, **given)
        if self.lengths.turns < 2:
            raise UsageError("a part takes two turns or more")

    @contextmanager
    def open(self, window: int) -> Iterator[Engine]:
        """The engine that was given, or for this block a new one with a context of ``window`` tokens."""
        given = self.settings.engine
        engine = given or arms.open_engine(self.model_name, window, self.lengths.threads)
        try:
            yield engine
        finally:
            if given is None:
                engine.close()
