from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any, TypedDict

import pytest
from langchain_agentkv import ChatAgentKV
from langchain_core.exceptions import OutputParserException
from langchain_core.messages import HumanMessage
from pydantic import BaseModel, Field

from agentkv import AgentKVWarning, AgentMemory, FakeEngine
from agentkv.engine.template import ToolCall
from agentkv.errors import UsageError


class Joke(BaseModel):
    """A joke."""

    setup: str = Field(description="how it begins")
    punchline: str


class JokeDict(TypedDict):
    """A joke."""

    setup: str
    punchline: str


VALUE = {"setup": "Why?", "punchline": "Why é not."}
SCHEMAS: dict[str, dict[str, Any] | type] = {"pydantic": Joke, "typeddict": JokeDict, "json": Joke.model_json_schema()}


class Speaking(FakeEngine):
    says = ""

    def __init__(self) -> None:
        super().__init__(replies=lambda prompt: self._answer_to(prompt), keeps_grammar=True)
        self.heard, self.grammars = "", list[str]()

    def _answer_to(self, prompt: str) -> str:
        self.heard = prompt
        return self.says

    def sampler(self, sampling: Any, grammar: str | None = None) -> Any:
        self.grammars += [grammar] if grammar else []
        return super().sampler(sampling, grammar)


@pytest.fixture
def engine() -> Speaking:
    return Speaking()


@pytest.fixture
def chat(tmp_path: Path, engine: Speaking) -> ChatAgentKV:
    return ChatAgentKV(memory=AgentMemory(tmp_path / "store", engine), skill=None, max_new=300, keep=False)


def written(chat: ChatAgentKV, method: str, value: dict[str, Any]) -> str:
    text = json.dumps(value, ensure_ascii=False)
    return chat.memory.call_form.text([ToolCall("Joke", text)]) if method == "function_calling" else text


@pytest.mark.parametrize("method", ["json_schema", "function_calling", "json_mode"])
@pytest.mark.parametrize("kind", ["pydantic", "json"])
def test_answers_are_objects(chat: ChatAgentKV, engine: Speaking, method: Any, kind: str) -> None:
    engine.says = written(chat, method, VALUE)
    structured = chat.with_structured_output(SCHEMAS[kind], method=method)
    expected = Joke(**VALUE) if kind == "pydantic" else VALUE
    assert structured.invoke("A joke.") == expected
    assert list(structured.stream("A joke."))[-1] == expected
    assert asyncio.run(structured.ainvoke("A joke.")) == expected
    assert ("how it begins" in engine.heard) == (method != "json_mode")
    assert ("punchline" in engine.grammars[-1]) == (method != "json_mode")
    raw = chat.with_structured_output(SCHEMAS[kind], method=method, include_raw=True).invoke("A joke.")
    assert isinstance(raw, dict)
    assert (raw["parsed"], raw["parsing_error"]) == (expected, None)
    assert raw["raw"].response_metadata["agentkv"]["tokens"]["generated"] > 10


def test_a_typed_dict_gives_a_dict(chat: ChatAgentKV, engine: Speaking) -> None:
    engine.says = written(chat, "json_schema", VALUE)
    assert chat.with_structured_output(JokeDict).invoke("A joke.") == VALUE


def test_an_object_grows_while_it_is_streamed(chat: ChatAgentKV, engine: Speaking) -> None:
    engine.says = written(chat, "json_schema", VALUE)
    seen = list(chat.with_structured_output(JokeDict).stream("A joke."))
    assert len(seen) > 3
    assert seen[-1] == VALUE


@pytest.mark.parametrize("method", ["json_schema", "function_calling", "json_mode"])
def test_a_cut_answer_is_an_error_also_where_it_would_parse(chat: ChatAgentKV, engine: Speaking, method: Any) -> None:
    engine.says = written(chat, method, {"setup": "a", "punchline": "b"}) + "  "
    cut = len(engine.says) - (4 if method == "function_calling" else 1)
    structured = chat.with_structured_output(Joke, method=method, max_new=cut)
    with pytest.raises(OutputParserException, match="max_new"):
        structured.invoke("A joke.")
    with pytest.raises(OutputParserException, match="max_new"):
        list(structured.stream("A joke."))
    raw = chat.with_structured_output(Joke, method=method, include_raw=True, max_new=cut).invoke("A joke.")
    assert isinstance(raw, dict)
    assert raw["parsed"] is None
    assert isinstance(raw["parsing_error"], OutputParserException)
    assert raw["raw"].response_metadata["finish_reason"] == "length"


def test_an_answer_that_does_not_fit_is_an_error(chat: ChatAgentKV, engine: Speaking) -> None:
    engine.says = '{"setup": "a"}'
    with pytest.raises(OutputParserException, match="punchline"):
        chat.with_structured_output(Joke).invoke("A joke.")
    raw = chat.with_structured_output(Joke, include_raw=True).invoke("A joke.")
    assert isinstance(raw, dict)
    assert raw["parsed"] is None
    assert "punchline" in str(raw["parsing_error"])


class PairDict(TypedDict):
    """Two numbers."""

    a: int
    b: int


PAIR: dict[str, Any] = {
    "title": "Pair",
    "type": "object",
    "properties": {
        "a": {"type": "integer", "maximum": 10},
        "b": {"$ref": "#/$defs/Name"},
        "c": {"type": "string", "nullable": True},
        "d": {"type": "string", "format": "email"},
        "e": {"type": "array", "items": {"enum": [1, 2]}, "uniqueItems": True},
    },
    "required": ["a"],
    "$defs": {"Name": {"anyOf": [{"type": "string", "minLength": 2}, {"type": "integer"}]}},
}


@pytest.mark.filterwarnings("ignore:the grammar of 'Pair'")
@pytest.mark.filterwarnings("ignore:the call of 'Pair")
@pytest.mark.parametrize("method", ["json_schema", "function_calling", "json_mode"])
@pytest.mark.parametrize(
    ("schema", "value", "reason"),
    [
        (PAIR, {"a": 123}, r"\$\.a: 123 is greater than the maximum of 10"),
        (PAIR, {"b": "xy"}, "'a' is a required property"),
        (PAIR, {"a": "3"}, r"\$\.a: '3' is not of type 'integer'"),
        (PAIR, {"a": 1, "b": "x"}, r"\$\.b"),
        (PAIR, {"a": 1, "d": "nobody"}, "'nobody' is not a 'email'"),
        (PAIR, {"a": 1, "e": [1, 1]}, "has non-unique elements"),
        (PAIR, {"a": 1, "e": [3]}, r"\$\.e\[0\]"),
        (PairDict, {"a": 1}, "'b' is a required property"),
        (PairDict, {"a": 1, "b": "2"}, "'2' is not of type 'integer'"),
        (PAIR, {"a": 10, "b": "xy", "c": None, "d": "a@b", "e": [1, 2]}, None),
        (PairDict, {"a": 1, "b": 2}, None),
    ],
)
def test_what_does_not_fit_the_schema_is_never_given_as_parsed(
    chat: ChatAgentKV, engine: Speaking, method: Any, schema: Any, value: dict[str, Any], reason: str | None
) -> None:
    engine.says = written(chat, method, value).replace('"Joke"', '"Pair"' if schema is PAIR else '"PairDict"')
    structured = chat.with_structured_output(schema, method=method)
    raw: Any = chat.with_structured_output(schema, method=method, include_raw=True).invoke("?")
    if reason is None:
        assert structured.invoke("?") == raw["parsed"] == value
        assert raw["parsing_error"] is None
        return
    if method == "function_calling" and "required property" in reason:
        reason = "lacks the required"  # found already where calls are checked
    for ask in (
        structured.invoke,
        lambda question: list(structured.stream(question)),
        lambda question: asyncio.run(structured.ainvoke(question)),
    ):
        with pytest.raises(OutputParserException, match=reason):
            ask("?")
    assert raw["parsed"] is None
    assert isinstance(raw["parsing_error"], OutputParserException)
    assert raw["raw"].response_metadata["finish_reason"] != "length"


@pytest.mark.parametrize("kind", SCHEMAS)
@pytest.mark.parametrize("method", ["json_schema", "json_mode"])
def test_what_langchains_parser_would_complete_is_an_error(
    chat: ChatAgentKV, engine: Speaking, method: Any, kind: str
) -> None:
    engine.says = '{"setup": "Why?", "punchline": "Because, and no'
    with pytest.raises(OutputParserException, match="not one whole JSON text"):
        chat.with_structured_output(SCHEMAS[kind], method=method).invoke("?")
    engine.says = json.dumps({**VALUE, "more": "x"})  # and where a stop string ends it
    stopped = chat.with_structured_output(SCHEMAS[kind], method=method, stop=["not."], include_raw=True).invoke("?")
    assert isinstance(stopped, dict)
    assert stopped["parsed"] is None
    assert isinstance(stopped["parsing_error"], OutputParserException)
    engine.says = f"```json\n{json.dumps(VALUE)}\n```"
    assert chat.with_structured_output(JokeDict, method=method).invoke("?") == VALUE


@pytest.mark.filterwarnings("ignore:the grammar of 'f'")
@pytest.mark.parametrize(
    ("kind", "right", "wrong"),
    [
        ("date", "2024-02-29", "2023-02-29"),
        ("date-time", "2024-01-31T10:00:00+02:00", "2024-01-31T25:00:00Z"),
        ("date-time", "2024-01-31t10:00:00.5z", "2024-01-31"),
        ("time", "23:59:59Z", "10:00"),
        ("duration", "P1Y2M3DT4H5M6S", "PT"),
        ("uri", "urn:isbn:0451450523", "over there"),
        ("uri", "https://example.org/a?b#c", "/relative"),
        ("hostname", "a-b.example.org", "a_b"),
        ("email", "a@b", "nobody"),
        ("ipv4", "10.0.0.1", "10.0.0.256"),
        ("uuid", "6fa459ea-ee8a-3ca4-894e-db77e160355e", "6fa459ea"),
    ],
)
def test_the_formats_of_strings_are_checked(
    chat: ChatAgentKV, engine: Speaking, kind: str, right: str, wrong: str
) -> None:
    schema = {"title": "f", "type": "object", "properties": {"format": {"type": "string", "format": kind}}}
    structured = chat.with_structured_output(schema)
    engine.says = json.dumps({"format": right})
    assert structured.invoke("?") == {"format": right}
    engine.says = json.dumps({"format": wrong})
    with pytest.raises(OutputParserException, match=f"is not a '{kind}'"):
        structured.invoke("?")


def test_a_format_that_nothing_checks_is_said(chat: ChatAgentKV, engine: Speaking) -> None:
    schema = {"title": "f", "type": "object", "properties": {"a": {"type": "array", "items": {"format": "zip-code"}}}}
    with pytest.warns(AgentKVWarning) as caught:
        structured = chat.with_structured_output(schema)
    assert [str(one.message).split(":")[0] for one in caught] == ["nothing checks the format 'zip-code' of 'f'"]
    engine.says = '{"a": ["?"]}'
    assert structured.invoke("?") == {"a": ["?"]}


@pytest.mark.parametrize("number", ["NaN", "Infinity", "-Infinity"])
def test_what_is_no_number_in_json_is_none(chat: ChatAgentKV, engine: Speaking, number: str) -> None:
    schema = {"title": "n", "type": "object", "properties": {"n": {"type": "number"}}}
    engine.says = f'{{"n": {number}}}'
    with pytest.raises(OutputParserException, match=f"{number} is not JSON"):
        chat.with_structured_output(schema).invoke("?")


def test_an_answer_without_the_call_is_an_error(chat: ChatAgentKV, engine: Speaking) -> None:
    engine.says = "I would rather not."
    for schema in (Joke, JokeDict):
        with pytest.raises(OutputParserException, match="made no call"):
            chat.with_structured_output(schema, method="function_calling").invoke("A joke.")


def test_a_cut_answer_says_how_many_tokens_it_had(chat: ChatAgentKV, engine: Speaking) -> None:
    engine.says = written(chat, "json_schema", VALUE)
    with pytest.raises(OutputParserException, match="cut at 7 tokens before it was whole: raise max_new"):
        chat.with_structured_output(Joke, max_new=7).invoke("A joke.")


def test_what_the_grammar_cannot_hold_to_is_said_once(chat: ChatAgentKV, engine: Speaking) -> None:
    with pytest.warns(AgentKVWarning, match="'Pair' cannot hold an answer to format, maximum, uniqueItems") as warned:
        structured = chat.with_structured_output(PAIR)
    assert len(warned) == 1
    engine.says = '{"a": 1}'
    assert structured.invoke("?") == {"a": 1}  # and no warning: it would be an error here
    chat.with_structured_output(PAIR, method="json_mode")


def test_a_schema_that_is_none_or_refers_elsewhere_is_refused_without_a_look_at_the_network(
    chat: ChatAgentKV, engine: Speaking
) -> None:
    with pytest.raises(UsageError, match="not a JSON schema"):
        chat.with_structured_output({"title": "Odd", "type": "object", "properties": {"a": {"type": "nonsense"}}})
    engine.says = '{"a": 1}'
    away = {"title": "Away", "type": "object", "properties": {"a": {"$ref": "https://example.org/a.json"}}}
    with pytest.raises(UsageError, match=r"refers to something that is not in it: .*example\.org"):
        chat.with_structured_output(away, method="json_mode").invoke("?")


def test_settings_pass_and_what_makes_no_sense_is_refused(chat: ChatAgentKV, engine: Speaking) -> None:
    engine.says = written(chat, "json_schema", VALUE)
    with pytest.raises(UsageError, match="did you mean temperature"):
        chat.with_structured_output(Joke, temprature=1).invoke("A joke.")
    with pytest.raises(UsageError, match="is none of json_schema"):
        chat.with_structured_output(Joke, method="xml")  # type: ignore[arg-type]
    with pytest.raises(UsageError, match="is not a schema"):
        chat.with_structured_output(7)  # type: ignore[arg-type]
    with pytest.raises(UsageError, match="response_format"):
        chat.invoke("A joke.", response_format={"type": "yaml"})


def test_tools_and_an_answer_in_json(chat: ChatAgentKV, engine: Speaking) -> None:
    form = {"type": "json_schema", "json_schema": {"name": "joke", "schema": Joke.model_json_schema()}}
    bound = chat.bind_tools([Joke], response_format=form)
    engine.says = written(chat, "json_schema", VALUE)
    assert json.loads(bound.invoke("A joke.").text) == VALUE
    engine.says = written(chat, "function_calling", VALUE)
    assert bound.invoke("A joke.").tool_calls[0]["args"] == VALUE
    assert "root ::= answer-root | " in engine.grammars[-1]


def test_an_agent_answers_in_the_form_that_it_was_given(chat: ChatAgentKV, engine: Speaking) -> None:
    from langchain.agents import create_agent

    engine.says = written(chat, "json_schema", VALUE)
    state = create_agent(chat, [], response_format=Joke).invoke({"messages": [HumanMessage("A joke.")]})
    assert state["structured_response"] == Joke(**VALUE)


def test_an_agent_whose_answer_does_not_fit_says_so(chat: ChatAgentKV, engine: Speaking) -> None:
    """LangChain gives an answer by a JSON schema on as it is: with a word of warning."""
    from langchain.agents import create_agent

    agent = create_agent(chat, [], response_format=PAIR)
    engine.says = '{"a": 10}'
    assert agent.invoke({"messages": [HumanMessage("?")]})["structured_response"] == {"a": 10}
    engine.says = '{"a": 123}'
    with pytest.warns(AgentKVWarning, match=r"does not fit the schema, at \$\.a: 123 is greater"):
        state = agent.invoke({"messages": [HumanMessage("?")]})
    (note,) = state["messages"][-1].response_metadata["agentkv"]["notes"]
    assert note.endswith("123 is greater than the maximum of 10")
    form = {"type": "json_schema", "json_schema": {"name": "a", "schema": {"type": "nonsense"}}}
    assert chat.invoke("?", response_format=form).text == engine.says
