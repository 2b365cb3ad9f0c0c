"""Public docstrings give units: every number that a public callable takes has its unit beside its name."""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator
from importlib import import_module
from typing import Any

import pytest

from tests.test_package import PUBLIC

UNITS = (
    r"token|byte|second|millisecond|\bms\b|share|0 to 1|cosine|nat|turn|question|line|block|part|layer|thread|chunk|hit"
    r"|file|word|character|entry|answer|sample|candidate|probab|number|factor|prob"
)
"""What a number may be of."""
IN_THE_NAME = re.compile(
    r"(?:_|^)(?:s|ms|seconds|bytes|tokens?|seed|threads|layers|turns|lines|chunks|blocks|segments|sources|items|verdicts)$|^n_"
)
"""Names that are their own unit: a count of what they name, or a time with ``_s``."""
NEAR = 140
"""Characters around a parameter's name in which its unit is looked for."""


def callables(package: str) -> Iterator[tuple[str, Any, str]]:
    """Each public callable with the docstrings that may give its parameters' units: its own and its class's."""
    for name in PUBLIC[package]:
        thing = getattr(import_module(package), name)
        if inspect.isclass(thing):
            inits = [vars(base)["__init__"] for base in thing.__mro__ if "__init__" in vars(base)]
            about = "\n".join(part.__doc__ or "" for part in (*thing.__mro__, *inits))
            yield name, thing, about
            for attribute, method in vars(thing).items():
                if inspect.isfunction(method) and not attribute.startswith("_"):
                    yield f"{name}.{attribute}", method, f"{documented(method)}\n{about}"
        elif inspect.isfunction(thing):
            yield name, thing, thing.__doc__ or ""


def documented(method: Any) -> str:
    """A method's docstring, and that of the class that it says to see."""
    text = method.__doc__ or ""
    for module, name in re.findall(r"See :class:`~?([\w.]+)\.(\w+)`", text):
        text += getattr(getattr(import_module(module), name), method.__name__).__doc__ or ""
    return text


def numbers(thing: Any) -> Iterator[str]:
    """The parameters that take an int or a float."""
    try:
        signature = inspect.signature(thing)
    except ValueError:
        return
    for parameter in signature.parameters.values():
        annotation = str(parameter.annotation)
        if re.fullmatch(r"(?:<class ')?(?:int|float)(?:'>)?(?: \| None)?", annotation):
            yield parameter.name


def has_unit(name: str, text: str) -> bool:
    if IN_THE_NAME.search(name):
        return True
    places = [match.start() for match in re.finditer(rf"\b{name}\b", text)]
    return any(re.search(UNITS, text[max(0, at - NEAR) : at + NEAR]) for at in places)


@pytest.mark.parametrize("package", PUBLIC)
def test_every_number_has_its_unit(package: str) -> None:
    found = [(where, name, text) for where, thing, text in callables(package) for name in numbers(thing)]
    without = [f"{where}: {name}" for where, name, text in found if not has_unit(name, text)]
    assert without == []


@pytest.mark.parametrize("package", PUBLIC)
def test_every_array_has_its_shape(package: str) -> None:
    without = []
    for where, thing, text in callables(package):
        if inspect.isfunction(thing):
            annotations = " ".join(map(str, thing.__annotations__.values()))
            if re.search(r"NDArray|\bLogits\b|\bVectors\b", annotations) and not re.search(r"shape", text):
                without.append(where)
    assert without == []


def test_the_check_itself_finds_what_lacks_a_unit() -> None:
    def bare(limit: int, wait_s: float, most: int | None = None) -> None:
        """``most``: tokens of an answer."""

    assert list(numbers(bare)) == ["limit", "wait_s", "most"]
    assert [name for name in numbers(bare) if not has_unit(name, bare.__doc__ or "")] == ["limit"]
