"""Programs in answers: whatever marks them, the last that compiles and defines what is wanted is taken."""

from __future__ import annotations

import time
from typing import Any

import pytest

from agentkv.flywheel.solvers import Tried, repair_message
from agentkv.flywheel.source import blocks, candidate_in, parts_of, program_in, script_in

from .scripted import MULTIPLY, crates
from .test_solvers import tried

DOCSTRING = '''def solve(a, b):
  """The product.

  ```python
  >>> solve(2, 3)
  6
  ```
  """
  return a * b
'''
TILDES = '''TEXT = """
~~~
none
~~~
"""

def solve():
    return len(TEXT)
'''
OTHER = "def solve(a):\n    return a\n"


def indented(text: str, by: str) -> str:
    return "".join(by + line if line.strip() else line for line in text.splitlines(keepends=True))


SESSION = "".join((">>> " if number == 0 else "... ") + line for number, line in enumerate(MULTIPLY.splitlines(True)))
MARKED = {
    "a session": f"```pycon\n{SESSION}```",
    "a session in a Python fence": f"```python\n{SESSION}...\n```",
    "blanks that do not break": f"```python\n{MULTIPLY}```".replace("    ", "\u00a0" * 4),
    "backticks": f"```python\n{MULTIPLY}```",
    "tildes": f"~~~\n{MULTIPLY}~~~",
    "tildes with a language": f"Here:\n\n~~~python\n{MULTIPLY}~~~\nBye.",
    "python3": f"```python3\n{MULTIPLY}```",
    "capital": f"```Python\n{MULTIPLY}```",
    "py": f"``` py\n{MULTIPLY}```",
    "py3": f"```py3\n{MULTIPLY}```",
    "attributes": f"```python {{.line-numbers}}\n{MULTIPLY}```",
    "pandoc": f"```{{.python .numberLines startFrom=1}}\n{MULTIPLY}```",
    "title": f"```python title=solve.py\n{MULTIPLY}```",
    "another language": f"```text\n{MULTIPLY}```",
    "four backticks": f"````python\n{MULTIPLY}````",
    "longer end": f"```python\n{MULTIPLY}``````",
    "windows": f"```python\n{MULTIPLY}```\n".replace("\n", "\r\n"),
    "no end": f"```python\n{MULTIPLY}",
    "no end and prose": f"```python\n{MULTIPLY}\nThis multiplies the two.\nThat is all.",
    "no end and a cut call": f"```python\n{MULTIPLY}\nprint(solve(3,",
    "in a list": "1. The program:\n\n" + indented(f"```python\n{MULTIPLY}```\n", "   ") + "2. Done.",
    "in a bullet": "- " + indented(f"```python\n{MULTIPLY}```\n", "  ").lstrip() + "- Done.",
    "deep in a list": "- a\n  - b\n" + indented(f"```py\n{MULTIPLY}```\n", "        "),
    "far in": "So:\n\n" + indented(f"```python\n{MULTIPLY}```\n", "      "),
    "out of its list": f"1. Here:\n   ```python\n{MULTIPLY}   ```\n2. Done",
    "quoted": indented(f"```python\n{MULTIPLY}```\n", "> "),
    "indented within": f"```python\n{indented(MULTIPLY, '    ')}```",
    "indented alone": f"Like this:\n\n{indented(MULTIPLY, '    ')}\nThat is it.",
    "thought before": f"<think>\nMaybe:\n```python\n{OTHER}```\n</think>\n```python\n{MULTIPLY}```",
    "thought without a blank": f"<think>```python\n{OTHER}```</think>```python\n{MULTIPLY}```",
    "thought opened by the template": f"Hm.\n```python\n{OTHER}```\nNo.\n</think>\n\n```python\n{MULTIPLY}```",
    "thought without an end": f"<think>\nI think:\n```python\n{MULTIPLY}```",
    "only thought": f"<think>\n```python\n{MULTIPLY}```\n</think>\nThere it is.",
    "thinking": f"<Thinking>\n```python\n{OTHER}```\n</Thinking>\n```python\n{MULTIPLY}```",
    "several": f"First ```python\n{OTHER}``` then\n\n```python\n{OTHER}```\n\n```python\n{MULTIPLY}```",
    "then its use": f"```python\n{MULTIPLY}```\nUse:\n```python\nprint(solve(3, 4))\n```",
    "then its output": f"```python\n{MULTIPLY}```\n```\n1702\n```",
    "then a broken one": f"```python\n{MULTIPLY}```\nor\n```python\ndef solve(crates, kg):\n    return crates *\n```",
    "then a method": f"```python\n{MULTIPLY}```\n```python\nclass A:\n    def solve(self):\n        return 1\n```",
    "no fence": f"Here is the program.\n\n{MULTIPLY}",
    "no fence, prose after": f"From what you say:\n\n{MULTIPLY}\nIt multiplies.\n\nBye!",
    "no fence, prose like code": f"from the text I take this:\n{MULTIPLY}",
    "no fence, a stray end": f"{MULTIPLY}```\nDone.",
}


@pytest.mark.parametrize("name", MARKED)
def test_however_it_is_marked_the_program_is_found(name: str) -> None:
    for found in (program_in(MARKED[name]), candidate_in(MARKED[name])):
        assert found is not None
        assert found.source.replace("\r", "") == MULTIPLY


@pytest.mark.parametrize("source", [DOCSTRING, TILDES])
@pytest.mark.parametrize("fence", ["```", "~~~"])
def test_a_fence_within_the_program_does_not_end_it(source: str, fence: str) -> None:
    found = program_in(f"Here:\n{fence}python\n{source}{fence}\nThat is all.\n{fence}\n6\n{fence}\n")
    assert found is not None
    assert found.source == source


def test_imports_constants_and_helpers_come_along() -> None:
    source = "import math\n\nSIDE = 2\n\ndef area(r):\n    return math.pi * r * SIDE\n\nsolve = area\n"
    for text in (f"```python\n{source}```", f"Here:\n\n{source}\nBye.", f"`x`\n```\n{source}"):
        found = program_in(text)
        assert found is not None
        assert found.source == source
    inline = program_in("Simply `def solve(a, b): return a * b`, I would say.")
    assert inline is not None
    assert inline.source == "def solve(a, b): return a * b\n"


def test_odd_escapes_warn_of_nothing() -> None:
    found = program_in('```python\ndef solve(a):\n    return "\\d" + a\n```')  # warnings are errors here
    assert found is not None


def test_a_program_that_does_not_compile_is_proposed_with_its_error() -> None:
    broken = "def solve(a):\n    return a +\n"
    for text in (f"```python\n{broken}```", f"<think>\n~~~\n{broken}~~~", f"So:\n{broken}"):
        found = program_in(text)
        assert found is not None
        assert found.source == broken


def test_what_a_session_shows_is_no_part_of_its_program() -> None:
    found = candidate_in(f"```pycon\n{SESSION}...\n>>> solve(6, 7)\n42\n```")
    assert found is not None
    assert "42" in found.source
    names: dict[str, Any] = {}
    exec(found.source, names)  # noqa: S102 - this test's own text
    assert names["solve"](6, 7) == 42


@pytest.mark.parametrize("mark", ["<think>", "</think>", "<think>a</think>"])
def test_a_mark_of_thought_within_a_program_is_text(mark: str) -> None:
    source = f"def solve(text):\n    return text.split({mark!r})\n"
    for reply in (f"```python\n{source}```", f"<think>So.</think>\n```python\n{source}```"):
        found = candidate_in(reply)
        assert found is not None
        assert found.source == source


def test_what_holds_no_program_gives_none() -> None:
    for text in ("", "solve", "```json\n{}\n```", "```python\nx = 'solve'\n```", "I would define `solve` first."):
        assert program_in(text) is None


def test_what_was_only_thought_comes_after_what_was_said() -> None:
    thought = f"<think>```python\n{OTHER}```\nThe answer: 5\n</think>\n"
    program = candidate_in(f"{thought}The answer is: 6")
    assert program is not None
    assert program.source == "def solve(**given):\n    return 6\n"
    broken = candidate_in(f"{thought}\n```python\ndef solve(:\n```")
    assert broken is not None
    assert broken.source == OTHER
    assert parts_of("<think>5?</think>It is 6.")[0] == "It is 6."


def test_a_script_is_taken_from_whatever_python_fence_has_an_end() -> None:
    for text in ("~~~python3\nprint(1)\n~~~", "```Python\nprint(1)\n```", "- a\n  ```py\n  print(1)\n  ```"):
        found = script_in(text)
        assert found is not None
        assert found.source.startswith("SCRIPT = 'print(1)'\n")
    last = script_in("```py\nprint(1)\n```\n```py\nprint(1\n```")
    assert last is not None
    assert "'print(1)'" in last.source
    for text in ("```\nprint(1)\n```", "```js\nprint(1)\n```", "```python\nprint(1)"):
        assert script_in(text) is None


def test_a_repair_shows_the_program_in_a_fence_that_it_does_not_end() -> None:
    from agentkv.flywheel.solution import Program, Provenance
    from agentkv.flywheel.solvers import Attempt

    shown: Tried = tried(Attempt(Program(source=DOCSTRING), Provenance(solver="t"), "", ""))
    message = repair_message(crates(), shown)
    assert f"````python\n{DOCSTRING.strip()}\n````\n" in message
    assert [code.source for code in blocks(message)][-1] == DOCSTRING


@pytest.mark.parametrize(
    "hostile",
    [
        *("```python\n" * 20_000, "def solve(a):\n" * 20_000, "-" * 200_000, "> " * 50_000, "```\nsolve(\n" * 5_000),
        *("```python\nsolve = " + "(" * 50_000, "- " * 20_000 + "```", "`def solve" * 20_000, "<think>" * 50_000),
    ],
)
def test_hostile_text_is_read_in_a_moment(hostile: str) -> None:
    start = time.perf_counter()
    candidate_in(hostile)
    assert time.perf_counter() - start < 20
