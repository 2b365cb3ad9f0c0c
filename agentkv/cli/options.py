"""Options that several commands share, and the one way in which commands open a store, a model and a memory.

An option group is a dataclass whose fields are options; a command that takes ``store: StoreOptions`` gets ``--store``
(``command.py`` expands it). Single options that several commands share are the annotated types below. The model name
``fake`` opens :class:`~agentkv.FakeEngine`, a test aid that the help does not show: it answers with a line of the
manual and needs no model file.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, NamedTuple, cast

import typer

from agentkv.cli.command import Json
from agentkv.cli.progress import bytes_bar, pull_notice, status
from agentkv.errors import UsageError

if TYPE_CHECKING:
    from agentkv.engine.base import Engine
    from agentkv.engine.embed import Embedder as EmbedsTexts
    from agentkv.engine.settings import EngineSettings
    from agentkv.evidence import Ledger as EvidenceLedger
    from agentkv.memory.memory import AgentMemory
    from agentkv.records import EngineChoice
    from agentkv.store.catalog import BlockStore

__all__ = ["Json"]

DEFAULT_MODEL = "qwen2.5-coder-0.5b"
"""The catalogue's default, which `--help` names without importing the catalogue; a test compares them."""
FAKE = "fake"
CODEC = "AGENTKV_CODEC"
_ROUTER_WINDOW = 2048
_ENGINE = "Engine: an option wins over the environment, that over `agentkv settings`"


MODEL_HELP = "A name of `agentkv models list`, a .gguf file or hf:OWNER/REPO/FILE."
MAX_NEW_HELP = "Most tokens of an answer."
SEED_HELP = "Seed of what is drawn: tokens, samples, made-up candidates."
LEDGER_HELP = "The folder of an evidence ledger."


# --- single options -------------------------------------------------------------------------------


def _model(default: str | None) -> Any:
    """``--model``: everywhere the same, but for what is said of its default."""
    return typer.Option(
        "--model",
        metavar="NAME|PATH",
        envvar="AGENTKV_MODEL",
        show_default=default or True,
        help=MODEL_HELP,
    )


Model = Annotated[str | None, _model(f"as set, else {DEFAULT_MODEL}")]
BenchModel = Annotated[str, _model(None)]
ModelFilter = Annotated[str | None, _model("any; it is not loaded")]
MaxNew = Annotated[
    int | None,
    typer.Option("--max-new", metavar="N", min=1, show_default="512, or what fits", help=MAX_NEW_HELP),
]
Store = Annotated[
    Path | None,
    typer.Option(
        "--store",
        metavar="DIR",
        envvar="AGENTKV_STORE",
        show_default="agentkv/store in the user's data folder",
        help="The store's folder.",
    ),
]
Window = Annotated[
    int | None,
    typer.Option(
        "--window",
        metavar="TOKENS",
        envvar="AGENTKV_WINDOW",
        show_default="as set, else the model's, at most 8,192",
        rich_help_panel=_ENGINE,
        help="Tokens that fit into the context.",
    ),
]
Threads = Annotated[
    int | None,
    typer.Option(
        "--threads",
        metavar="N",
        envvar="AGENTKV_THREADS",
        show_default="as set, else all",
        rich_help_panel=_ENGINE,
        help="CPU threads.",
    ),
]
KvType = Annotated[
    str | None,
    typer.Option(
        "--kv-type",
        metavar="f32|f16|q8_0",
        envvar="AGENTKV_KV_TYPE",
        show_default="as set, else f16",
        rich_help_panel=_ENGINE,
        help="Type of the KV cache.",
    ),
]
FlashAttention = Annotated[
    bool | None,
    typer.Option(
        "--flash-attention/--no-flash-attention",
        envvar="AGENTKV_FLASH_ATTENTION",
        show_default="as set, else off",
        rich_help_panel=_ENGINE,
        help="Use it; q8_0 needs it.",
    ),
]
GpuLayers = Annotated[
    int | None,
    typer.Option(
        "--gpu-layers",
        metavar="N",
        min=0,
        envvar="AGENTKV_GPU_LAYERS",
        show_default="as set, else 0",
        rich_help_panel=_ENGINE,
        help="Layers to put on the GPU.",
    ),
]
Embedder = Annotated[
    str | None,
    typer.Option(
        "--embedder",
        metavar="NAME|PATH",
        envvar="AGENTKV_EMBEDDER",
        help="An embedding model, such as all-minilm-l6-v2: rank by embedding similarity too, not only by words.",
    ),
]
RouterModel = Annotated[
    str | None,
    typer.Option(
        "--router-model",
        metavar="NAME|PATH",
        envvar="AGENTKV_ROUTER_MODEL",
        help="Another, smaller model that routes for this one.",
    ),
]
Strict = Annotated[
    bool,
    typer.Option(
        "--strict", help="Fail, instead of warning, where skills are left out since another engine has deposited them."
    ),
]
YES_HELP = "Do not ask; without a terminal nothing is removed, or takes long, unless you say so."
Yes = Annotated[bool, typer.Option("--yes", help=YES_HELP)]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Show what it would do, and change nothing.")]
Ledger = Annotated[
    Path | None,
    typer.Option("--ledger", metavar="DIR", envvar="AGENTKV_LEDGER", show_default="not recorded", help=LEDGER_HELP),
]
LedgerFolder = Annotated[
    Path | None,
    typer.Option(
        "--ledger",
        metavar="DIR",
        envvar="AGENTKV_LEDGER",
        show_default="agentkv/ledger in the user's data folder",
        help=LEDGER_HELP,
    ),
]
AllowInexact = Annotated[
    bool, typer.Option("--allow-inexact", help="Store a block that failed its proof, as `inexact`.")
]
Prove = Annotated[
    bool, typer.Option("--prove", help="Repeat each block's 32-step proof with the model; quick, finds corruption.")
]
Out = Annotated[Path | None, typer.Option("--out", metavar="FILE", help="Also write the whole result as JSON.")]
Skills = Annotated[
    Path | None,
    typer.Option(
        "--skills", metavar="DIR", show_default="those that come with agentkv", help="A folder of skill folders."
    ),
]
Sizes = Annotated[
    str | None,
    typer.Option("--sizes", metavar="N,N,…", help="Library sizes; made-up cards fill up what the store lacks."),
]


# --- groups of options ----------------------------------------------------------------------------


class Chosen(NamedTuple):
    """A model's name or path, and the settings to open it with."""

    model: str
    settings: EngineSettings


@dataclass(frozen=True)
class StoreOptions:
    """Which store."""

    store: Store = None

    @property
    def path(self) -> Path:
        """The store's folder: as given, or the default."""
        return store_path(self.store)

    def open(self, *, create: bool = False) -> contextlib.AbstractContextManager[BlockStore]:
        """The store; made now only where a command writes. Raises StoreUnusable, StoreFormatError."""
        return open_store(self.store, create=create)

    def engine_choice(self) -> EngineChoice:
        """What the store's settings say of the engine; nothing where there is no store yet."""
        return stored_choice(self.store)


@dataclass(frozen=True)
class EngineOptions:
    """Which model, and how it is opened."""

    model: Model = None
    window: Window = None
    threads: Threads = None
    kv_type: KvType = None
    flash_attention: FlashAttention = None
    gpu_layers: GpuLayers = None

    def chosen(self, store: StoreOptions) -> Chosen:
        """By the options, the environment, the store's settings, the defaults, in this order.

        Raises UsageError for a value out of range.
        """
        from agentkv.engine.opening import choose

        found, settings = choose(vars(self), store.engine_choice())
        return Chosen(str(found), settings)


@dataclass(frozen=True)
class RouterOptions:
    """What routes: an embedding model beside the words, another model than the one that answers."""

    embedder: Embedder = None
    router_model: RouterModel = None


# --- opening --------------------------------------------------------------------------------------


def open_ledger(folder: Path | None) -> EvidenceLedger | None:
    """The ledger of a benchmark, if one was given; ``$AGENTKV_PAYLOADS`` says where raw generations go."""
    if folder is None:
        return None
    from agentkv.evidence import Ledger

    mode: Any = os.environ.get("AGENTKV_PAYLOADS", "inline")
    return Ledger(folder, payloads=mode)


def store_path(store: Path | None) -> Path:
    """The store's folder: as given, or the default."""
    if store is not None:
        return store
    import platformdirs

    return platformdirs.user_data_path("agentkv") / "store"


@contextlib.contextmanager
def open_store(store: Path | None, *, create: bool = False) -> Iterator[BlockStore]:
    """The store; made now only where a command writes. Raises StoreUnusable, StoreFormatError.

    AGENTKV_CODEC says how new segments are stored: ``planes``, ``zstd`` or ``raw``, with zstd's level as ``planes:9``.
    """
    from agentkv.store.catalog import BlockStore

    codec, _, level = os.environ.get(CODEC, "planes").partition(":")
    if level and not level.isdecimal():
        raise UsageError(f"{CODEC} is {codec}:{level}; the level is a number, as in planes:9")
    with BlockStore(store_path(store), create=create, codec=codec, level=int(level or 1)) as opened:
        yield opened


def skills_folder(skills: Path | None) -> Path:
    """The folder to use: as given, the checkout's, or the one in the wheel. Raises UsageError."""
    if skills is not None:
        if not skills.is_dir():
            raise UsageError(f"--skills {skills} is not a directory")
        return skills.absolute()
    import agentkv

    package = Path(agentkv.__file__).parent
    checkout = package.parent / "skills"
    return checkout if any(checkout.glob("*/SKILL.md")) else package / "_manuals"


def numbers(text: str | None) -> list[int] | None:
    """The positive whole numbers of ``"1,2,3"``; None for None. Raises UsageError."""
    if text is None:
        return None
    parts = [part.strip() for part in text.split(",")]
    if not all(part.isdecimal() and int(part) > 0 for part in parts):
        raise UsageError(f"{text!r} is not a list of positive whole numbers such as 1,256,1500")
    return [int(part) for part in parts]


def engine_settings(
    window: int | None, threads: int | None, kv_type: str | None, flash_attention: bool | None, gpu_layers: int | None
) -> EngineSettings:
    """The settings of a benchmark's engine, None as by default. Raises UsageError for a value out of range."""
    from agentkv.engine.settings import EngineSettings

    return EngineSettings(
        window=window,
        threads=threads,
        kv_type=cast(Literal["f32", "f16", "q8_0"], kv_type or "f16"),
        flash_attention=bool(flash_attention),
        gpu_layers=gpu_layers or 0,
    )


def stored_choice(store: Path | None) -> EngineChoice:
    """What the store's settings say of the engine; nothing where there is no store yet."""
    from agentkv.records import EngineChoice
    from agentkv.store.marker import MARKER

    if not (store_path(store).expanduser() / MARKER).exists():
        return EngineChoice()
    with open_store(store) as opened:
        return opened.engine_choice


@contextlib.contextmanager
def open_memory(
    store: Path | StoreOptions | None,
    model: str,
    settings: EngineSettings,
    *,
    create: bool = False,
    embedder: str | None = None,
    router: RouterOptions | None = None,
    strict: bool = False,
) -> Iterator[AgentMemory]:
    """The memory of a command. The store comes first: a wrong path should not cost a download.

    ``router``, or ``embedder`` where a command has no other option of it: as given, else $AGENTKV_EMBEDDER and
    $AGENTKV_ROUTER_MODEL, so that the router of one command is that of all.
    """
    from agentkv.memory.memory import AgentMemory

    folder = store.store if isinstance(store, StoreOptions) else store
    router = router or RouterOptions(embedder)
    embeds = router.embedder or os.environ.get("AGENTKV_EMBEDDER") or None
    with open_store(folder, create=create) as opened, contextlib.ExitStack() as held:
        engine = _open_engine(model, settings)
        held.callback(engine.close)
        if embeds is not None:
            fetch_model(embeds)
        small = router.router_model or os.environ.get("AGENTKV_ROUTER_MODEL") or None
        routes: Engine | None = None
        if small is not None and small != model:
            routes = _open_engine(small, engine_settings(_ROUTER_WINDOW, settings.threads, "f16", False, 0))
            held.callback(routes.close)
        with AgentMemory(opened, engine, embedder=_embedder(embeds), router_model=routes, strict=strict) as memory:
            yield memory


@contextlib.contextmanager
def opened_engine(model: str | None, settings: EngineSettings) -> Iterator[Engine | None]:
    """A model alone, fetched and opened; None for none."""
    if model is None:
        yield None
        return
    engine = _open_engine(model, settings)
    try:
        yield engine
    finally:
        engine.close()


@contextlib.contextmanager
def open_embedder(name: str | None) -> Iterator[EmbedsTexts | None]:
    """An embedding model alone, fetched and opened; None for none."""
    from agentkv.engine.embed import opened_embedder

    if name is not None:
        fetch_model(name)
    with opened_embedder(_embedder(name)) as embedder:
        yield embedder


def _embedder(name: str | None) -> Any:
    if name == FAKE:
        from agentkv.engine.embed import FakeEmbedder

        return FakeEmbedder()
    return name


def fetch_model(model: str) -> None:
    """Have the model's file on this machine, with a bar while it is fetched. Raises ModelError's."""
    from agentkv import models
    from agentkv.engine.opening import is_fake

    if is_fake(model):
        return
    absent = [m.entry for m in models.list_models() if m.entry.name == model and not m.path.exists()]
    with bytes_bar(pull_notice(absent[0]) if absent else "") as report:
        models.resolve(model, progress=report)


def _open_engine(model: str, settings: EngineSettings) -> Engine:
    from agentkv.engine.opening import open_engine

    if not model:
        raise UsageError("--model is empty. Run `agentkv models list`.")
    fetch_model(model)
    with status(f"loading {model}"):
        return open_engine(model, settings)
