"""What runs in a process of its own to parse a program's text and list its parameters and literals.

Nothing of the program is executed, so what comes back is true; only the parser meets it, and a parser that a hostile
text brings down takes this process with it and no other. Imports nothing of agentkv.
"""

from __future__ import annotations

import ast
import json
import os
from typing import Any

_PAYLOAD, _ANSWER = 3, 4
_MAX_LITERALS = 2000


def _literal(node: ast.AST) -> tuple[bool, Any]:
    try:
        value = ast.literal_eval(node)
        json.dumps(value, allow_nan=False)
    except (ValueError, TypeError, SyntaxError, MemoryError, RecursionError):
        return False, None
    return True, value


def _parameters(tree: ast.Module) -> ast.AST | None:
    for node in tree.body:
        targets = node.targets if isinstance(node, ast.Assign) else [getattr(node, "target", None)]
        if any(isinstance(target, ast.Name) and target.id == "PARAMETERS" for target in targets):
            value: ast.AST | None = getattr(node, "value", None)
            return value
    return None


def _solve(tree: ast.Module) -> ast.FunctionDef | None:
    found = [node for node in tree.body if isinstance(node, ast.FunctionDef) and node.name == "solve"]
    return found[-1] if found else None


def _defaults(solve: ast.FunctionDef) -> dict[str, ast.AST]:
    arguments = solve.args
    positional = [*arguments.posonlyargs, *arguments.args]
    given: dict[str, ast.AST] = {}
    if arguments.defaults:
        for name, node in zip(positional[-len(arguments.defaults) :], arguments.defaults, strict=True):
            given[name.arg] = node
    for name, default in zip(arguments.kwonlyargs, arguments.kw_defaults, strict=True):
        if default is not None:
            given[name.arg] = default
    return given


def _outside(tree: ast.Module, skipped: list[ast.AST]) -> list[list[Any]]:
    """Numbers and texts with their lines, without docstrings and what is in ``skipped``."""
    hidden = {id(inner) for node in skipped for inner in ast.walk(node)}
    for node in ast.walk(tree):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
            hidden.add(id(node.value))
    found: list[list[Any]] = []
    for node in ast.walk(tree):
        if not isinstance(node, ast.Constant) or id(node) in hidden or len(found) >= _MAX_LITERALS:
            continue
        if type(node.value) in (int, float, str) and _literal(node)[0]:
            found.append([node.value, node.lineno])
    return found


def _inspect(source: str) -> dict[str, Any]:
    tree = ast.parse(source)
    named, solve = _parameters(tree), _solve(tree)
    parameters: dict[str, Any] = {}
    skipped: list[ast.AST] = []
    if solve is not None:
        for name, node in _defaults(solve).items():
            skipped.append(node)
            plain, value = _literal(node)
            if plain:
                parameters[name] = value
    if named is not None:
        skipped.append(named)
        plain, value = _literal(named)
        if plain and isinstance(value, dict) and all(isinstance(key, str) for key in value):
            parameters |= value
    return {"solve": solve is not None, "parameters": parameters, "literals": _outside(tree, skipped)}


def main() -> None:
    """One source text in, one line of JSON out."""
    parts = []
    while chunk := os.read(_PAYLOAD, 1 << 16):
        parts.append(chunk)
    try:
        answer = _inspect(b"".join(parts).decode())
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        answer = {"error": f"{type(error).__name__}: {error}"[:500]}
    data = memoryview(json.dumps(answer).encode() + b"\n")
    while data:
        data = data[os.write(_ANSWER, data) :]


if __name__ == "__main__":
    main()
