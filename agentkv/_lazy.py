"""Names that a package gives out but imports only when they are asked for (PEP 562)."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from importlib import import_module
from typing import Any


def lazily(
    package: str, homes: Mapping[str, str], names: Sequence[str]
) -> tuple[Callable[[str], Any], Callable[[], list[str]]]:
    """``__getattr__`` and ``__dir__`` of ``package``: each name of ``homes`` comes from the module that it names,
    either below ``package`` or in full (``agentkv.…``).

    ``names``: the package's ``__all__``, which ``dir`` shows.
    """

    def get(name: str) -> Any:
        home = homes.get(name)
        if home is None:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        return getattr(import_module(home if home.startswith("agentkv.") else f"{package}.{home}"), name)

    def listed() -> list[str]:
        return sorted(names)

    return get, listed
