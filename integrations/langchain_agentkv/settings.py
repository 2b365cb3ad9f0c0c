"""What can be set for a turn: the same names, ranges and messages at construction and for one call.

The ranges are those of ``agentkv.engine.llama.sampling``, stated here because that file loads the native library. What
concerns tools and structured output is for one call only: ``tools.py`` says what it means.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Mapping
from typing import Annotated, Any

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError

from agentkv.engine.base import Sampling
from agentkv.errors import UsageError
from agentkv.records import Decision
from agentkv.router.routing import ROUTE, Pick

ALIASES = {"max_tokens": "max_new"}
"""Other names of settings, as LangChain has them."""
_NOT_FOR_US = {"stream", "strict"}
"""Keywords of LangChain's own that a local model has nothing to do for: a grammar is always strict."""


def _skill(value: Any) -> Any:
    return ROUTE if value == ROUTE.value else value


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

    skill: Skill = ROUTE
    max_new: MaxNew | None = None
    temperature: Temperature = 0.0
    top_p: TopP = 1.0
    top_k: TopK = 0
    min_p: MinP = 0.0
    seed: Seed = 0
    stop: Stop = Field(default_factory=list)
    keep: bool | None = None

    @property
    def sampling(self) -> Sampling:
        """How the next token is chosen."""
        return Sampling(self.temperature, self.top_k, self.top_p, self.min_p, self.seed)


class CallSettings(TurnSettings):
    """The settings of one call, with what ``bind_tools`` and ``with_structured_output`` bind.

    ``decision``: who chose ``skill``, if not the caller; it goes into the answer's record.
    """

    tools: list[dict[str, Any]] = Field(default_factory=list)
    tool_choice: str | bool | dict[str, Any] | None = None
    parallel_tool_calls: bool | None = None
    response_format: dict[str, Any] | None = None
    decision: Decision | None = None


def checked(given: Mapping[str, Any], *, call: bool = False) -> CallSettings:
    """Settings under their names or aliases, of a model or of a ``call``.

    Raises UsageError that lists every wrong setting.
    """
    values = canonical({name: value for name, value in given.items() if not (call and name in _NOT_FOR_US)})
    refuse_unknown(values, (CallSettings if call else TurnSettings).model_fields)
    try:
        return CallSettings.model_validate(values)
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
    """Raise UsageError for unknown names, with the nearest known one."""
    names = sorted({*known, *ALIASES})
    for name in sorted(set(given) - set(names)):
        near = difflib.get_close_matches(name, names, n=1)
        hint = f"did you mean {near[0]}?" if near else f"there are: {', '.join(names)}"
        raise UsageError(f"ChatAgentKV has no setting {name!r}; {hint}")
