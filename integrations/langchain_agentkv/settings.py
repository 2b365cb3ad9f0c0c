"""What can be set for a turn: the same names, ranges and messages at construction and for one call.

Knows nothing of models or messages. The ranges are those of ``agentkv.engine.sampling``, stated here because that
file loads the native library.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Mapping
from typing import Annotated, Any

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError

from agentkv.engine.base import Sampling
from agentkv.errors import UsageError
from agentkv.memory import Pick

ALIASES = {"max_tokens": "max_new"}
"""Other names of settings, as LangChain has them."""


def _skill(value: Any) -> Any:
    return Pick.ROUTE if value == Pick.ROUTE.value else value


def _stop(value: Any) -> Any:
    return [] if value is None else value


Skill = Annotated[str | Pick | None, BeforeValidator(_skill)]
MaxNew = Annotated[int, Field(ge=1)]
Temperature = Annotated[float, Field(ge=0, le=100)]
TopP = Annotated[float, Field(gt=0, le=1)]
TopK = Annotated[int, Field(ge=0)]
MinP = Annotated[float, Field(ge=0, le=1)]
Seed = Annotated[int, Field(ge=0, lt=2**32)]
Stop = Annotated[list[Annotated[str, Field(min_length=1)]], BeforeValidator(_stop)]


class TurnSettings(BaseModel):
    """The settings of one turn, checked."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    skill: Skill = Pick.ROUTE
    max_new: MaxNew = 96
    temperature: Temperature = 0.0
    top_p: TopP = 1.0
    top_k: TopK = 0
    min_p: MinP = 0.0
    seed: Seed = 0
    stop: Stop = Field(default_factory=list)

    @property
    def sampling(self) -> Sampling:
        """How the next token is chosen."""
        return Sampling(self.temperature, self.top_k, self.top_p, self.min_p, self.seed)


def checked(given: Mapping[str, Any]) -> TurnSettings:
    """Settings under their names or aliases. Raises UsageError, with every setting that is wrong and why."""
    values = canonical(given)
    refuse_unknown(values, TurnSettings.model_fields)
    try:
        return TurnSettings.model_validate(values)
    except ValidationError as error:
        wrong = (f"{'.'.join(map(str, e['loc']))} = {e['input']!r}: {e['msg']}" for e in error.errors())
        raise UsageError("; ".join(wrong)) from error


def canonical(given: Mapping[str, Any]) -> dict[str, Any]:
    """The same settings under their own names. Raises UsageError for one that is given under two."""
    for alias, name in ALIASES.items():
        if alias in given and name in given:
            raise UsageError(f"{name} and {alias} are one setting: pass one of them")
    return {ALIASES.get(name, name): value for name, value in given.items()}


def refuse_unknown(given: Iterable[str], known: Iterable[str]) -> None:
    """Raise UsageError for names that nothing reads, with the nearest that there are."""
    names = sorted({*known, *ALIASES})
    for name in sorted(set(given) - set(names)):
        near = difflib.get_close_matches(name, names, n=1)
        hint = f"did you mean {near[0]}?" if near else f"there are: {', '.join(names)}"
        raise UsageError(f"ChatAgentKV has no setting {name!r}; {hint}")
