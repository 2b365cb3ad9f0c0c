"""What the skills commands share: their options, the library that they work on, one way to write a fault down."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from agentkv.errors import UsageError

if TYPE_CHECKING:
    from agentkv.errors import AgentKVError
    from agentkv.memory.memory import AgentMemory
    from agentkv.skills.library import SkillLibrary
    from agentkv.skills.report import Broken

Folders = Annotated[
    list[Path], typer.Argument(metavar="FOLDER...", help="A skill's folder, or a folder of such folders.")
]
MaxTokens = Annotated[
    int | None,
    typer.Option(
        metavar="N",
        min=1,
        show_default="what the window leaves",
        help="Split a manual of more tokens into routed parts, on its headings.",
    ),
]
References = Annotated[
    bool, typer.Option("--references", help="Store references/*.md too, each behind its skill's manual.")
]
JsonLines = Annotated[
    bool, typer.Option("--json", help="Print one JSON document a line, one an event, on stdout and nothing else there.")
]
AllowInexact = Annotated[
    bool, typer.Option("--allow-inexact", help="Store a block that failed its proof, as `inexact`.")
]


def folders_of(paths: Sequence[Path]) -> list[Path]:
    """The folders meant; a SKILL.md stands for its own. Raises UsageError."""
    from agentkv.skills.discovery import FILE_NAMES

    found = [path.parent if path.name in FILE_NAMES and path.is_file() else path for path in paths]
    for path in found:
        if not path.is_dir():
            raise UsageError(f"there is no folder {path}")
    return [path.absolute() for path in found]


def open_library(
    memory: AgentMemory,
    paths: Sequence[Path],
    max_tokens: int | None = None,
    references: bool = False,
    allow_inexact: bool = False,
) -> SkillLibrary:
    """The library of a command."""
    from agentkv.skills.library import SkillLibrary

    how: dict[str, Any] = {"max_tokens": max_tokens, "references": references, "allow_inexact": allow_inexact}
    return SkillLibrary(memory, folders_of(paths), **how)


def fault_record(error: AgentKVError, broken: Broken | None = None) -> dict[str, Any]:
    """A fault for a script: where, which line, why, and what stays routed meanwhile."""
    return {
        "path": broken.path if broken else getattr(error, "path", None),
        "line": getattr(error, "line", None),
        "reason": getattr(error, "reason", error.message),
        "kept": list(broken.kept) if broken else [],
    }
