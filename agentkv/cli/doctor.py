"""``agentkv doctor``: what this machine has of what agentkv needs, and the one thing to do next. Loads no model.

Exit code 0 unless something prevents any use: llama-cpp-python that cannot be imported, or a store that cannot be
opened.
"""

from __future__ import annotations

import os
import platform
import re
import shutil
from pathlib import Path
from typing import Any

import typer

from agentkv.cli import options
from agentkv.cli.output import print_json, say, size, table

_COMPILERS = ("cc", "gcc", "clang", "cl")
_FEATURES = ("avx", "avx2", "fma", "f16c", "avx512f", "amx_int8", "asimd", "sve")
_LITTLE = 2_000_000_000


def doctor(model: options.Model = None, store: options.Store = None, as_json: options.Json = False) -> None:
    """Say what is here: compiler, CPU, llama-cpp-python, models, store, memory, disk; and the one thing to do next."""
    found: dict[str, Any] = {"compiler": _compiler(), "cpu": _cpu(), "llama_cpp": _llama()}
    found["store"] = _store(store, model)
    found |= {"model": _model(model, store), "disk": _disk(options.store_path(store))}
    step, prevents = next_step(found)
    record = found | {"next": step, "usable": not prevents}
    if as_json:
        print_json(record)
    else:
        table((" ", "  "), [(name, _line(name, found[name])) for name in found], wraps=("  ",), header=False)
        say(f"\nnext: {step}")
    if prevents:
        raise typer.Exit(1)


def next_step(found: dict[str, Any]) -> tuple[str, bool]:
    """The one thing to do next, and whether nothing works before it is done; the most urgent first."""
    llama, store, model, disk = found["llama_cpp"], found["store"], found["model"], found["disk"]
    if not llama["usable"]:
        install = "pip install 'llama-cpp-python>=0.3.36'"
        if not found["compiler"]["path"]:
            tools = "`apt install build-essential`, `xcode-select --install` or Visual Studio's build tools"
            return f"install a C++ compiler ({tools}), then `{install}`", True
        return f"`{install}` ({llama['reason']})", True
    if store["fault"]:
        return f"mend or replace the store: {store['fault']}", True
    if disk["free"] is not None and disk["free"] < _LITTLE:
        return (
            f"make room: {size(disk['free'])} are free at {disk['path']}; `agentkv gc` removes what nothing needs",
            False,
        )
    if model["fault"]:
        return model["fault"], False
    if model["need"] and model["memory"] is not None and model["need"] > model["memory"]:
        return (
            f"take a smaller model: {model['name']} needs about {size(model['need'])} of memory and "
            f"{size(model['memory'])} are free; `agentkv models suggest` names some",
            False,
        )
    if store["of_others"]:
        return f"`{store['migrate']}`: {store['of_others']} names of the store are of another engine", False
    if not model["here"]:
        return f"`agentkv models pull {model['name']}`", False
    return ('`agentkv ask "…"`' if store["names"] else "`agentkv demo`, or `agentkv deposit YOUR-SKILLS`"), False


def _compiler() -> dict[str, Any]:
    path = os.environ.get("CC") or next((found for name in _COMPILERS if (found := shutil.which(name))), None)
    return {"path": path, "cmake": shutil.which("cmake")}


def _cpu() -> dict[str, Any]:
    flags: set[str] = set()
    try:
        text = Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace")
        flags = {word for line in re.findall(r"^(?:flags|Features)\s*:(.*)$", text, re.M)[:1] for word in line.split()}
    except OSError:
        pass
    threads = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    return {"machine": platform.machine(), "threads": threads, "features": [f for f in _FEATURES if f in flags]}


def _llama() -> dict[str, Any]:
    try:
        import llama_cpp

        from agentkv.engine.llama.model import cpu_features

        gpu, used = bool(llama_cpp.llama_supports_gpu_offload()), cpu_features()
    except (ImportError, OSError, RuntimeError) as error:  # a library that is not there, or of another machine
        reason = str(error) or type(error).__name__
        return {"usable": False, "version": None, "gpu": False, "features": [], "reason": reason}
    return {"usable": True, "version": llama_cpp.__version__, "gpu": gpu, "features": used, "reason": ""}


def _model(model: str | None, store: Path | None) -> dict[str, Any]:
    """The model that commands would open: whether it is here and fits; and what of the catalogue is."""
    from agentkv import models
    from agentkv.engine.opening import is_fake
    from agentkv.errors import AgentKVError
    from agentkv.io.ram import available_memory
    from agentkv.models.suggest import memory_need

    found: dict[str, Any] = {"name": model, "here": False, "need": None, "memory": available_memory(), "fault": ""}
    local = models.list_models()
    found["files"] = [one.entry.name for one in local if one.present]
    found["unfinished"] = [one.entry.name for one in local if not one.present and (one.parts or one.size is not None)]
    try:
        found["name"] = name = options.EngineOptions(model).chosen(options.StoreOptions(store)).model
    except AgentKVError as error:
        return found | {"fault": error.message}
    entry = models.CATALOGUE.get(name)
    if is_fake(name):
        return found | {"here": True}
    if entry is not None:
        broken = name in found["unfinished"]
        found |= {"here": name in found["files"], "need": memory_need(entry.size)}
        return found | {
            "fault": f"`agentkv models pull {name}`: it is here in part, the pull goes on" if broken else ""
        }
    try:
        path = models.resolve(name, pull=False).path
    except AgentKVError as error:
        is_hub = name.startswith("hf:")
        return found | {"fault": f"`agentkv models pull {name}`" if is_hub else error.message}
    return found | {"here": True, "need": memory_need(path.stat().st_size)}


def _store(store: Path | None, model: str | None) -> dict[str, Any]:
    """The store that commands would open; nothing is made."""
    from agentkv.cli.engines import expected, quoted
    from agentkv.errors import AgentKVError, ModelError

    path = options.store_path(store).expanduser()
    found: dict[str, Any] = {"path": path, "there": False, "names": 0, "blocks": 0, "of_others": 0, "fault": ""}
    options_given = [("--store", store and path), ("--model", model)]
    words = [text for name, value in options_given if value is not None for text in (name, quoted(str(value)))]
    found["migrate"] = " ".join(["agentkv migrate", *words])
    if not path.exists() or (path.is_dir() and not any(path.iterdir())):
        return found
    try:
        with options.open_store(store) as opened:
            names = opened.names(on_error=lambda _: None)
            found |= {"there": True, "names": len(names), "blocks": sum(1 for _ in opened.block_ids())}
            meant = expected(opened, model)
            own = {named.name for named in names if not meant.of_block(named.block_id)}
            found["of_others"] = len({named.name for named in names} - own)
    except ModelError:
        pass  # that the model cannot be opened is said of the model
    except AgentKVError as error:
        found["fault"] = error.message
    return found


def _disk(path: Path) -> dict[str, Any]:
    from agentkv.io.fsio import free_bytes

    place = next(one for one in (path.expanduser().absolute(), *path.expanduser().absolute().parents) if one.exists())
    return {"path": place, "free": free_bytes(place)}


def _line(name: str, facts: dict[str, Any]) -> str:
    if name == "compiler":
        text = facts["path"] or "none; only needed where llama-cpp-python has no wheel for this machine"
        return f"{text}{', cmake' if facts['cmake'] else ''}"
    if name == "cpu":
        return f"{facts['machine']}, {facts['threads']} threads: {' '.join(facts['features']) or 'features not known'}"
    if name == "llama_cpp":
        build = "GPU build" if facts["gpu"] else "CPU build"
        used = " ".join(facts["features"]).lower()
        return f"{facts['version']}, {build}: {used}" if facts["usable"] else f"cannot be used: {facts['reason']}"
    if name == "store":
        if not facts["there"]:
            return f"{facts['path']}: {facts['fault'] or 'not made yet'}"
        others = f", {facts['of_others']:,} of another engine" if facts["of_others"] else ""
        return f"{facts['path']}: {facts['names']:,} names, {facts['blocks']:,} blocks{others}"
    if name == "disk":
        return f"{'not known' if facts['free'] is None else size(facts['free'])} free at {facts['path']}"
    memory = "not known" if facts["memory"] is None else size(facts["memory"])
    need = f", needs about {size(facts['need'])} of memory" if facts["need"] else ""
    here = "here" if facts["here"] else "not here yet"
    return f"{facts['name']}: {here}{need}, {memory} free; on this machine: {', '.join(facts['files']) or 'none'}"
