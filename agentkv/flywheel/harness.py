"""What runs in the candidate's process: load the program, call ``solve``, write what it returned.

Runs as text given to a bare interpreter; imports nothing of agentkv and knows neither the check nor the answer. All
that it writes is data to the parent: the program shares this process and can do to it whatever it likes.
"""

from __future__ import annotations

import json
import math
import os
import sys
from typing import Any

_PAYLOAD, _ANSWER = 3, 4
_MAX_DEPTH = 64


def _read_all(fd: int) -> bytes:
    parts = []
    while chunk := os.read(fd, 1 << 16):
        parts.append(chunk)
    os.close(fd)
    return b"".join(parts)


def _load(source: str) -> Any:
    import importlib.util

    with open("program.py", "w", encoding="utf-8") as file:  # noqa: PTH123 - a file, so that tracebacks show its lines
        file.write(source)
    spec = importlib.util.spec_from_file_location("program", os.path.abspath("program.py"))  # noqa: PTH100
    if spec is None or spec.loader is None:
        raise ImportError("the program cannot be loaded")
    module = importlib.util.module_from_spec(spec)
    sys.modules["program"] = module
    spec.loader.exec_module(module)
    return module


def _plain(value: Any, depth: int = 0) -> Any:
    if depth > _MAX_DEPTH:
        raise ValueError(f"the answer is nested more than {_MAX_DEPTH} deep")
    kind = type(value)
    if value is None or kind in (bool, int, str):
        return value
    if kind is float:
        if not math.isfinite(value):
            raise ValueError(f"the answer holds {value}, which is not finite")
        return value
    if kind in (list, tuple):
        return [_plain(item, depth + 1) for item in value]
    if kind is dict and all(type(key) is str for key in value):
        return {key: _plain(item, depth + 1) for key, item in value.items()}
    raise TypeError(f"the answer holds a {kind.__name__}: return None, bool, int, float, str, list or dict")


def _answer(request: dict[str, Any]) -> dict[str, Any]:
    module = _load(request["source"])
    solve = getattr(module, "solve", None)
    if not callable(solve):
        raise TypeError("the program defines no function `solve`")
    defaults = getattr(module, "PARAMETERS", {})
    return {"value": _plain(solve(**{**dict(defaults), **request["parameters"]}))}


def _described(error: BaseException) -> dict[str, Any]:
    import traceback

    try:
        lines = traceback.format_exception(type(error), error, error.__traceback__, limit=-30)
        own = [line for line in lines if 'File "<string>"' not in line and "importlib" not in line]
        message = str(error)
    except BaseException:  # noqa: BLE001 - its own __str__ may do anything
        own, message = [], "an error that cannot be shown"
    return {"error": {"type": type(error).__name__, "message": message[:2000], "traceback": "".join(own)[-6000:]}}


def main() -> None:
    """One request, one line of answer, and out: no ``atexit``, no thread of the program's gets a word after it."""
    write, leave, dumps = os.write, os._exit, json.dumps
    try:
        frame = dumps(_answer(json.loads(_read_all(_PAYLOAD))))
    except BaseException as error:  # noqa: BLE001 - SystemExit too: a program that leaves has not answered
        frame = dumps(_described(error))
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except BaseException:  # noqa: BLE001 - the program may have put anything in their place
            continue
    data = memoryview(frame.encode() + b"\n")
    while data:
        data = data[write(_ANSWER, data) :]
    leave(0)


if __name__ == "__main__":
    main()
