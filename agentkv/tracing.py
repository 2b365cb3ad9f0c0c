"""Spans of OpenTelemetry for whoever asks for them; otherwise nothing, without the package and at no cost.

    chat MODEL              a turn, as the GenAI semantic conventions have it (gen_ai.*), and agentkv.*
    ├── agentkv.route       which block (also a span of its own, for ``route``)
    ├── agentkv.restore     the stored chain into the context
    ├── agentkv.prefill     the rest of the prompt
    ├── agentkv.generate
    └── agentkv.keep        storing the conversation's state, where asked for
    agentkv.deposit         prefill of a block and storing it

Spans go to the global tracer provider, which is the user's to set up, under the span that is current when a turn
begins. A turn's spans are never made current themselves: a stream's pieces are fetched from wherever the reader is.
Questions and answers are in a span only where that was asked for; of an error only the type is, as its message may
quote one.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from types import TracebackType
from typing import TYPE_CHECKING, Any, Literal, Self

from agentkv._version import __version__
from agentkv.errors import UsageError
from agentkv.io.hashing import canonical_json
from agentkv.records import Decision

if TYPE_CHECKING:
    from opentelemetry import trace

SWITCH = "AGENTKV_OTEL"
"""Environment variable: ``1`` for spans, ``content`` for spans with questions and answers."""
Telemetry = bool | Literal["content"] | None
Value = str | bool | int | float | list[str]

_ON, _OFF = ("1", "on", "true", "yes"), ("", "0", "off", "false", "no")
_CONTENT = "content"


class Span:
    """A span that does nothing. ``on``: whether attributes are worth making."""

    on = False

    def child(self, name: str) -> Span:
        """A span within this one, begun now; it ends with its ``with``."""
        return self

    def set(self, attributes: Mapping[str, Value | None]) -> None:
        """Add attributes; those that are None are left out."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        return None


_NO_SPAN = Span()


class Tracing:
    """Makes spans; this one makes none. ``content``: whether they hold questions and answers."""

    content = False

    def span(self, name: str) -> Span:
        """A span under the current one, begun now; it ends with its ``with``."""
        return _NO_SPAN


NO_TRACING = Tracing()


def open_tracing(telemetry: Telemetry = None) -> Tracing:
    """What makes the spans: True, ``"content"``, False, or None to go by ``AGENTKV_OTEL``, off by default.

    Raises UsageError where opentelemetry-api is not installed, and for another value.
    """
    switch: object = os.environ.get(SWITCH, "").strip().casefold() if telemetry is None else telemetry
    if switch is False or switch in _OFF:
        return NO_TRACING
    if switch is not True and switch not in (*_ON, _CONTENT):
        what = f"{SWITCH} is" if telemetry is None else "telemetry is"
        raise UsageError(f"{what} {switch!r}; it takes 1 (spans), content (with questions and answers) or 0")
    try:
        from opentelemetry import trace
    except ImportError as error:
        raise UsageError("spans need opentelemetry-api: pip install 'agentkv-sdk[otel]'") from error
    return _Otel(trace.get_tracer("agentkv", __version__), content=switch == _CONTENT)


def messages(dialogue: Iterable[tuple[str, str]], finish: str | None = None) -> str:
    """Roles and texts as the conventions' JSON for ``gen_ai.input.messages`` and ``gen_ai.output.messages``."""
    end = {} if finish is None else {"finish_reason": finish}
    parts = [{"role": role, "parts": [{"type": "text", "content": text}], **end} for role, text in dialogue]
    return canonical_json(parts).decode()


def routed(decision: Decision) -> dict[str, Value | None]:
    """Attributes for a decision: no raw pick, which may be any text that a model wrote."""
    return {
        "agentkv.route.pick": decision.pick,
        "agentkv.route.classifier": decision.classifier,
        "agentkv.route.fallback": decision.fallback is not None,
        "agentkv.route.candidates": len(decision.scores),
        "agentkv.route.confidence": decision.confidence,
        "agentkv.route.tokens": decision.tokens,
    }


class _Otel(Tracing):
    def __init__(self, tracer: trace.Tracer, *, content: bool) -> None:
        self._tracer, self.content = tracer, content

    def span(self, name: str) -> Span:
        return _OtelSpan(self._tracer, self._tracer.start_span(name))


class _OtelSpan(Span):
    def __init__(self, tracer: trace.Tracer, span: trace.Span) -> None:
        self._tracer, self._span = tracer, span
        self.on = span.is_recording()

    def child(self, name: str) -> Span:
        from opentelemetry import trace

        return _OtelSpan(self._tracer, self._tracer.start_span(name, trace.set_span_in_context(self._span)))

    def set(self, attributes: Mapping[str, Any]) -> None:
        self._span.set_attributes({name: value for name, value in attributes.items() if value is not None})

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        if kind is not None and not issubclass(kind, GeneratorExit):  # a stream that is closed has not failed
            from opentelemetry.trace import Status, StatusCode

            self._span.set_attribute("error.type", kind.__name__)
            self._span.set_status(Status(StatusCode.ERROR))
        self._span.end()
