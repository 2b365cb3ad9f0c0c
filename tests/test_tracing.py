"""Spans: none, and no OpenTelemetry, unless asked for; then the conventions' names, and no text unless asked for."""

from __future__ import annotations

import json
import subprocess
import sys
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from opentelemetry import trace
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import SpanKind, StatusCode

from agentkv import AgentMemory, Cancellation, FakeEngine, Sampling
from agentkv.errors import Cancelled, UnknownSkill, UsageError, WindowOverflow
from agentkv.tracing import NO_TRACING, SWITCH, open_tracing

_EXPORTER = InMemorySpanExporter()


@pytest.fixture(scope="module", autouse=True)
def provider() -> None:
    """The process's provider, which can be set once only."""
    made = TracerProvider()
    made.add_span_processor(SimpleSpanProcessor(_EXPORTER))
    trace.set_tracer_provider(made)


@pytest.fixture
def exporter(provider: None) -> InMemorySpanExporter:
    _EXPORTER.clear()
    return _EXPORTER


def memory_in(folder: Path, telemetry: Any = True) -> AgentMemory:
    engine = FakeEngine(replies=lambda _: "7 days")
    memory = AgentMemory(folder, engine, telemetry=telemetry)
    memory.deposit_text("returns", "Returns are accepted for 7 days.", "Taking things back.")
    _EXPORTER.clear()
    return memory


def spans(exporter: InMemorySpanExporter) -> dict[str, ReadableSpan]:
    found = exporter.get_finished_spans()
    assert len({span.name for span in found}) == len(found)
    return {span.name: span for span in found}


def exported(exporter: InMemorySpanExporter) -> str:
    return "\n".join(span.to_json() for span in exporter.get_finished_spans())


def test_a_turns_spans(tmp_path: Path, exporter: InMemorySpanExporter) -> None:
    turn = memory_in(tmp_path).ask("How long are things taken back?", max_new=40)
    found = spans(exporter)
    stages = ["agentkv.route", "agentkv.restore", "agentkv.prefill", "agentkv.generate"]
    assert list(found) == [*stages, "chat fake"], "in the order of their ends"
    whole = found["chat fake"]
    assert whole.kind is SpanKind.INTERNAL
    assert whole.status.status_code is StatusCode.UNSET
    for name in stages:
        parent = found[name].parent
        assert parent is not None
        assert whole.context is not None
        assert parent.span_id == whole.context.span_id
    assert dict(whole.attributes or {}) == {
        "gen_ai.operation.name": "chat",
        "gen_ai.provider.name": "agentkv",
        "gen_ai.request.model": "fake",
        "gen_ai.request.max_tokens": 40,
        "gen_ai.request.temperature": 0.0,
        "gen_ai.response.finish_reasons": ("stop",),
        "gen_ai.usage.input_tokens": turn.tokens.restored + turn.tokens.prefilled,
        "gen_ai.usage.output_tokens": turn.tokens.generated,
        "gen_ai.usage.cache_read.input_tokens": turn.tokens.restored,
        "gen_ai.usage.cache_creation.input_tokens": 0,
        "agentkv.skill": "returns",
        "agentkv.block.id": turn.block_id,
        "agentkv.exactness": "exact",
        "agentkv.restored_whole": True,
    }
    restored = found["agentkv.restore"].attributes or {}
    assert (restored["agentkv.block.id"], restored["agentkv.tokens.restored"]) == (turn.block_id, turn.tokens.restored)
    assert (found["agentkv.prefill"].attributes or {})["agentkv.tokens.prefilled"] == turn.tokens.prefilled
    routed = found["agentkv.route"].attributes or {}
    assert (routed["agentkv.route.pick"], routed["agentkv.route.classifier"]) == ("returns", turn.decision.classifier)


def test_the_names_are_the_conventions(tmp_path: Path, exporter: InMemorySpanExporter) -> None:
    from opentelemetry.semconv._incubating.attributes import error_attributes, gen_ai_attributes

    constants = [*vars(gen_ai_attributes).values(), *vars(error_attributes).values()]
    known = {value for value in constants if isinstance(value, str)}
    memory = memory_in(tmp_path, "content")
    memory.thread("t").ask("How long?", skill="returns", sampling=Sampling(temperature=0.5, top_k=3, seed=4))
    with pytest.raises(UnknownSkill):
        memory.ask("How long?", skill="return")
    names = {name for span in exporter.get_finished_spans() for name in span.attributes or {}}
    ours = {name for name in names if name.startswith("agentkv.")}
    assert len(names - ours) > 14
    assert names - ours <= known


def test_a_deposit_and_a_kept_conversation(tmp_path: Path, exporter: InMemorySpanExporter) -> None:
    memory = memory_in(tmp_path)
    deposit = memory.deposit_text("fees", "The fee is 12%.")
    (span,) = exporter.get_finished_spans()
    assert span.name == "agentkv.deposit"
    attributes = span.attributes or {}
    assert attributes["agentkv.block.id"] == deposit.manifest.block_id
    assert attributes["agentkv.deposit.tokens"] == len(deposit.manifest.tokens)
    exporter.clear()
    turn = memory.thread("visitor 7").ask("What is the fee?", skill="fees")
    found = spans(exporter)
    assert "agentkv.keep" in found
    whole = found["chat fake"].attributes or {}
    assert whole["gen_ai.conversation.id"] == "visitor 7"
    assert whole["agentkv.checkpoint.id"] == turn.checkpoint
    assert whole["gen_ai.usage.cache_creation.input_tokens"] == turn.deposited > 0


def test_a_decision_alone_is_a_span_of_its_own(tmp_path: Path, exporter: InMemorySpanExporter) -> None:
    memory_in(tmp_path).route("Are things taken back?")
    (span,) = exporter.get_finished_spans()
    assert (span.name, span.parent) == ("agentkv.route", None)


def test_the_users_span_is_the_parent_and_stays_current(tmp_path: Path, exporter: InMemorySpanExporter) -> None:
    memory = memory_in(tmp_path)
    with trace.get_tracer("user").start_as_current_span("request") as outer:
        pieces = memory.stream("How long?", skill="returns")
        next(pieces)
        assert trace.get_current_span() is outer
    for _ in pieces:  # read to its end outside of the user's span
        assert trace.get_current_span() is trace.INVALID_SPAN
    parent = spans(exporter)["chat fake"].parent
    assert parent is not None
    assert parent.span_id == outer.get_span_context().span_id


def test_no_text_unless_asked_for(tmp_path: Path, exporter: InMemorySpanExporter) -> None:
    memory = memory_in(tmp_path / "a")
    memory.ask("How long is it?")
    memory.deposit_text("fees", "The fee is 12%.")
    everything = exported(exporter)
    for text in ("How long", "7 days", "fee is", "accepted"):
        assert text not in everything
    with_content = memory_in(tmp_path / "b", "content")
    with_content.ask("How long is it?", skill="returns")
    attributes = spans(exporter)["chat fake"].attributes or {}
    asked, answered = (json.loads(str(attributes[f"gen_ai.{way}.messages"])) for way in ("input", "output"))
    assert asked == [{"role": "user", "parts": [{"type": "text", "content": "How long is it?"}]}]
    answer = {"role": "assistant", "parts": [{"type": "text", "content": "7 days"}], "finish_reason": "stop"}
    assert answered == [answer]


def test_of_an_error_only_the_type_is_in_a_span(tmp_path: Path, exporter: InMemorySpanExporter) -> None:
    memory = memory_in(tmp_path)
    cancellation = Cancellation()
    cancellation.cancel()
    cases: list[tuple[type[Exception], dict[str, Any]]] = [
        (UnknownSkill, {"skill": "returnz"}),
        (WindowOverflow, {"skill": "returns", "max_new": 5000}),
        (Cancelled, {"skill": "returns", "cancellation": cancellation}),
    ]
    for kind, how in cases:
        exporter.clear()
        with pytest.raises(kind):
            memory.ask("A secret?", **how)
        whole = spans(exporter)["chat fake"]
        assert whole.status.status_code is StatusCode.ERROR
        assert (whole.attributes or {})["error.type"] == kind.__name__
        assert (whole.status.description, whole.events) == (None, ())
    assert memory.ask("How long?", skill="returns").text == "7 days"


def test_a_stream_that_is_left_has_not_failed(tmp_path: Path, exporter: InMemorySpanExporter) -> None:
    memory = memory_in(tmp_path)
    with closing(memory.stream("How long?", skill="returns")) as pieces:  # type: ignore[type-var]
        next(pieces)
    found = spans(exporter)
    whole = found["chat fake"]
    assert whole.status.status_code is StatusCode.UNSET
    attributes = whole.attributes or {}
    assert attributes["gen_ai.usage.output_tokens"] == 1
    assert "gen_ai.response.finish_reasons" not in attributes
    assert "agentkv.generate" in found


def test_spans_change_nothing(tmp_path: Path, exporter: InMemorySpanExporter) -> None:
    on = memory_in(tmp_path / "on").ask("How long?", skill="returns", keep=True)
    off = memory_in(tmp_path / "off", False).ask("How long?", skill="returns", keep=True)
    assert on.model_copy(update={"ms": off.ms}) == off


@pytest.mark.parametrize(("value", "expected"), [(None, False), ("", False), ("0", False), ("1", True), ("true", True)])
def test_the_variable(
    tmp_path: Path, exporter: InMemorySpanExporter, monkeypatch: pytest.MonkeyPatch, value: str | None, expected: bool
) -> None:
    monkeypatch.delenv(SWITCH, raising=False)
    if value is not None:
        monkeypatch.setenv(SWITCH, value)
    memory_in(tmp_path, None).ask("How long?", skill="returns")
    assert bool(exporter.get_finished_spans()) is expected
    assert open_tracing(False) is NO_TRACING
    monkeypatch.setenv(SWITCH, "content")
    assert open_tracing().content


@pytest.mark.parametrize("value", ["perhaps", 7])
def test_another_value_is_refused(monkeypatch: pytest.MonkeyPatch, value: Any) -> None:
    with pytest.raises(UsageError, match="it takes 1"):
        open_tracing(value)
    monkeypatch.setenv(SWITCH, str(value))
    with pytest.raises(UsageError, match="AGENTKV_OTEL is"):
        open_tracing()


def test_without_the_package_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "opentelemetry", None)
    with pytest.raises(UsageError, match=r"agentkv-sdk\[otel\]"):
        open_tracing(True)
    assert open_tracing(False) is NO_TRACING


def test_off_no_part_of_opentelemetry_is_imported(tmp_path: Path) -> None:
    program = (
        "import sys; from agentkv import AgentMemory, FakeEngine\n"
        "with AgentMemory(sys.argv[1], FakeEngine()) as memory:\n"
        "    memory.deposit_text('a', 'b', 'c')\n"
        "    memory.ask('d', max_new=2)\n"
        "print([name for name in sys.modules if name.startswith('opentelemetry')])"
    )
    command = [sys.executable, "-c", program, str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, check=True, env={SWITCH: ""})
    assert done.stdout.strip() == "[]"
