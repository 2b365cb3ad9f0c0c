"""What is said in the benchmark of an agent: a manual, five tools, and turns whose every message is fixed.

Each turn is the user's message, the assistant's call of one tool, that tool's result, and the assistant's answer. The
answer that a model gives is looked at and thrown away, and the script's is appended, so all arms see the same messages
in each turn.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

ROLE = "You are the support agent of a web shop. Look things up with the tools and answer from the manual below.\n\n"

_TEXT = {"type": "string"}


def _tool(name: str, description: str, *parameters: str) -> dict[str, Any]:
    properties = {parameter: {**_TEXT, "description": f"The {parameter}."} for parameter in parameters}
    schema = {"type": "object", "properties": properties, "required": list(parameters)}
    return {"type": "function", "function": {"name": name, "description": description, "parameters": schema}}


TOOLS = (
    _tool("get_order", "What was ordered, when, and what was paid.", "order"),
    _tool("list_charges", "The charges of an order, as the bank has them.", "order"),
    _tool("track_parcel", "Where a parcel is.", "order"),
    _tool("open_refund", "Open a refund for an order.", "order", "reason"),
    _tool("add_note", "Write a note into the customer's record.", "order", "text"),
)
"""Five tools in OpenAI's form."""


@dataclass(frozen=True)
class Exchange:
    """One turn: what the user says, which tool is called with what, what it gives, what is answered."""

    user: str
    tool: str
    arguments: dict[str, str]
    result: str
    answer: str


def exchanges(count: int) -> list[Exchange]:
    """The first ``count`` turns; they go through the tools in order, with another order number each time."""
    return [_exchange(number) for number in range(count)]


def _exchange(number: int) -> Exchange:
    order = str(1180 + 7 * number)
    amount, day = f"GBP {18 + 5 * number}.00", 1 + number % 28
    return (
        Exchange(
            f"What did I pay for order {order}?",
            "get_order",
            {"order": order},
            f'{{"order": {order}, "paid": "{amount}", "date": "2026-05-{day:02d}", "item": "reader"}}',
            f"You paid {amount} for a reader on {day} May.",
        ),
        Exchange(
            f"I think order {order} was billed twice. Is that so?",
            "list_charges",
            {"order": order},
            f'[{{"amount": "{amount}", "day": {day}}}, {{"amount": "{amount}", "day": {day}}}]',
            f"Yes: {amount} was charged twice on {day} May.",
        ),
        Exchange(
            f"Where is the parcel of order {order}?",
            "track_parcel",
            {"order": order},
            f'{{"state": "in transit", "depot": "D{number + 3}", "expected": "2026-06-{day:02d}"}}',
            f"It is in transit at depot D{number + 3} and should arrive on {day} June.",
        ),
        Exchange(
            f"Please refund order {order}; I was billed twice.",
            "open_refund",
            {"order": order, "reason": "RF-DUP"},
            f'{{"refund": "R-{order}", "state": "open"}}',
            f"The refund R-{order} is open, with the reason RF-DUP.",
        ),
        Exchange(
            f"Please note for order {order} that I am away until the {day}th.",
            "add_note",
            {"order": order, "text": f"away until the {day}th"},
            '{"saved": true}',
            f"I wrote into the record of order {order} that you are away until the {day}th.",
        ),
    )[number % len(TOOLS)]


def messages(manual: str, turns: list[Exchange]) -> list[Any]:
    """LangChain's messages up to the tool's result of the last of ``turns``, the manual in the system's.

    Without turns: the beginning of an earlier conversation, a greeting.
    """
    from langchain_core.messages import AIMessage, HumanMessage, SystemMessage, ToolMessage

    out: list[Any] = [SystemMessage(ROLE + manual)]
    if not turns:
        return [*out, HumanMessage("Hello.")]
    for number, turn in enumerate(turns):
        call = {"name": turn.tool, "args": turn.arguments, "id": f"call_{number}", "type": "tool_call"}
        out.append(HumanMessage(turn.user))
        out.append(AIMessage("I look it up.", tool_calls=[call]))
        out.append(ToolMessage(turn.result, tool_call_id=f"call_{number}"))
        out.append(AIMessage(turn.answer))
    return out[:-1]


def cut_manual(texts: list[str], tokens: int, count: Callable[[str], int]) -> str:
    """Whole lines of ``texts``, one after the other, up to ``tokens`` tokens by ``count``."""
    kept: list[str] = []
    held = 0
    for line in "\n".join(texts).splitlines(keepends=True):
        held += count(line)
        if held > tokens:
            break
        kept.append(line)
    return "".join(kept)
