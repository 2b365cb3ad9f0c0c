"""The text of a solution's block: what a model reads of a solved task, and in which words it is asked for another.

The block shows the program, the task with its parameters and answer, and the same task with other values (made by
substitution, no model is asked). A turn behind it repeats the form of these examples, so even a small model goes on
with parameters or with the answer. Refuses to know stores and engines.
"""

from __future__ import annotations

import datetime
import json
import random
import re
from collections.abc import Mapping, Sequence
from typing import Any

from agentkv.flywheel import values
from agentkv.flywheel.mentions import Mention, replaced
from agentkv.flywheel.slots import Slot, render, slots_of
from agentkv.flywheel.solution import Program, Solution
from agentkv.flywheel.task import Task

EXAMPLES = 2
_MAX_ANSWER = 400


def block_text(task: Task, parameters: Mapping[str, Any], solution: Solution, examples: int = EXAMPLES) -> str:
    """The text that is deposited for a live solution; ``parameters`` are those that gave its answer."""
    answer = values.encode(solution.answer)
    shown = answer if len(answer) <= _MAX_ANSWER else f"{answer[:_MAX_ANSWER]}…"
    lines = ["This task was solved, and the solution was checked by running it."]
    if isinstance(solution.candidate, Program):
        lines += ["Program:", solution.candidate.source.strip("\n"), ""]
    slots = slots_of(task.prompt, parameters)
    lines.append(f"Task: {task.prompt.strip()}")
    if parameters:
        lines.append(f"Parameters: {render(parameters, slots)}")
    lines += [f"Answer: {shown}", ""]
    for prompt, other in other_values(task.prompt, parameters, slots, examples):
        lines += [f"Task: {prompt.strip()}", f"Parameters: {render(other, slots)}", ""]
    return "\n".join(lines)


def parameters_question(prompt: str) -> str:
    """What is asked behind a block, so that the answer is the parameters."""
    return f"Task: {prompt.strip()}\nParameters:"


RECALL_QUESTION = "The solved task again: say its answer.\nAnswer:"
"""What is asked behind the block of the very task. The task is not put again: its text stands in the block, and reading
it once more takes the longer the longer it is (164 tokens and 1.7 s for a hard problem on two cores). Of four wordings
this one is read best: 24 of 27 answers by the default model (12 with the task put again), 8 of 8 by the 1.5B model."""


def answer_question(prompt: str) -> str:
    """What is asked of a task without a block, so that the answer is nothing else."""
    return f"Task: {prompt.strip()}\nAnswer:"


def rewriting_question(prompt: str) -> str:
    """What is asked behind a block, so that the answer is another program."""
    return (
        f"Task: {prompt.strip()}\nRewrite the program above for this task: the same method with this task's values. "
        "Set PARAMETERS to its values and define solve. Answer with the whole program in a ```python block."
    )


def other_values(
    prompt: str, parameters: Mapping[str, Any], slots: Sequence[Slot], count: int
) -> list[tuple[str, dict[str, Any]]]:
    """The task with other values in place of those that it quotes, and those values; the same on every run."""
    found: list[tuple[str, dict[str, Any]]] = []
    for number in range(count):
        draw = random.Random(f"{number} {prompt}")
        other, changes = dict(parameters), list[tuple[Mention, str]]()
        for slot in slots:
            new = [_other(mention, draw) for mention in slot.where]
            if any(text != mention.text for text, mention in zip(new, slot.where, strict=True)):
                other[slot.name] = _value(slot, new, slot.where)
                changes += zip(slot.where, new, strict=True)
        if changes:
            found.append((replaced(prompt, changes), other))
    return found


def _value(slot: Slot, texts: Sequence[str], where: Sequence[Mention]) -> Any:
    if not slot.kind.endswith(("number", "numbers")):
        return texts[0] if slot.kind in ("words", "quoted") else list(texts)
    assert all(mention.number is not None for mention in where)
    read = [json.loads(_digits(text)) for text in texts]
    return read[0] if slot.kind == "number" else read


def _digits(text: str) -> str:
    found = re.search(r"-?\d+(?:\.\d+)?", text.replace(",", "").replace("−", "-"))
    assert found is not None
    whole, _, part = found[0].partition(".")
    return f"{int(whole)}.{part.rstrip('0') or '0'}" if part else str(int(whole))


def _other(mention: Mention, draw: random.Random) -> str:
    """A text like the mention's; without digits it stays as it is."""
    text = mention.text
    try:
        day = datetime.date.fromisoformat(text)
        return (day + datetime.timedelta(days=draw.randint(20, 300))).isoformat()
    except (ValueError, OverflowError):
        pass
    if re.fullmatch(r"(?:[01]?\d|2[0-3]):[0-5]\d", text):
        hours, minutes = divmod(draw.randrange(7 * 60, 18 * 60, 5), 60)
        return f"{hours:0{len(text) - 3}d}:{minutes:02d}"
    if mention.number is None and len(re.findall(r"\d+", text)) > 1:
        return text  # digits that belong together: other ones may make no sense
    if mention.number is not None and not re.search(r"\d", text):
        return str(draw.randint(2, 9))
    return re.sub(r"\d+", lambda run: _other_digits(run[0], draw), text)


def _other_digits(run: str, draw: random.Random) -> str:
    first = draw.choice("123456789") if run[0] != "0" or len(run) == 1 else "0"
    return first + "".join(draw.choice("0123456789") for _ in run[1:])
