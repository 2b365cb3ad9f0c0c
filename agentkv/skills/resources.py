"""What lies beside a SKILL.md: the files in ``references/``, ``scripts/`` and ``assets/``, by relative path.

Only regular files inside the folder: a link that leads out of it is not a resource, and nothing is ever opened here.
Other files of the folder are the author's business.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from pathlib import Path

FOLDERS = ("references", "scripts", "assets")
MAX_RESOURCES = 10_000
_MENTION = re.compile(rf"(?<![\w./-])(?:\./)?((?:{'|'.join(FOLDERS)})/[\w./-]*\w)")


def find_resources(folder: Path) -> tuple[str, ...]:
    """Paths of the resources, relative to the skill's folder and with ``/``, sorted; at most MAX_RESOURCES."""
    inside = folder.resolve()
    found: list[str] = []
    for name in FOLDERS:
        for path in _files(folder / name):
            if path.is_file() and path.resolve().is_relative_to(inside):
                found.append(path.relative_to(folder).as_posix())
            if len(found) == MAX_RESOURCES:
                return tuple(sorted(found))
    return tuple(sorted(found))


def _files(folder: Path) -> Iterator[Path]:
    if folder.is_symlink():
        return
    for place, _, names in os.walk(folder):
        for name in names:
            yield Path(place) / name


def is_reference(resource: str) -> bool:
    """Whether a resource is a text that can be deposited behind its manual: ``references/….md``."""
    return resource.startswith("references/") and resource.lower().endswith(".md")


def missing_resources(text: str, resources: tuple[str, ...], folder: Path) -> list[str]:
    """Resources that a manual's text names and that are not there, each once, in order."""
    named = dict.fromkeys(match[1] for match in _MENTION.finditer(text))
    return [path for path in named if path not in resources and not (folder / path).is_dir()]
