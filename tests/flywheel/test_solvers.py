"""Solvers: what they ask, how often, what they are shown, and what a file may hold."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import pytest

from agentkv import Cancellation
from agentkv.errors import Cancelled, EndpointFailed, InvalidTask, UsageError
from agentkv.flywheel.program import call
from agentkv.flywheel.solution import Program, Provenance, Text
from agentkv.flywheel.solvers import Attempt, BestOfN, Endpoint, FromFile, SelfRepair, Tried
from agentkv.flywheel.source import candidate_in, program_in, said_in
from agentkv.sandbox.sandbox import Sandbox

from .scripted import CRATES, MULTIPLY, crates, fenced, memory


def tried(attempt: Attempt | None, reason: str = "wrong", traceback: str = "") -> Tried:
    assert attempt is not None
    return Tried(attempt, "failed", reason, traceback)


def test_best_of_n_draws_with_seeds_and_ends(tmp_path: Path) -> None:
    with memory(tmp_path, lambda prompt: fenced(MULTIPLY)) as held:
        solver = BestOfN(held, n=3, seed=7)
        earlier: list[Tried] = []
        while (attempt := solver.attempt(crates(), earlier)) is not None:
            assert isinstance(attempt.candidate, Program)
            assert CRATES in attempt.prompt
            assert "1702" not in attempt.prompt
            earlier.append(tried(attempt))
        assert [one.attempt.provenance.seeds for one in earlier] == [(7,), (8,), (9,)]
        assert all(one.attempt.provenance.tokens > 0 for one in earlier)
        assert earlier[0].attempt.candidate == Program(source=MULTIPLY)
        assert earlier[0].attempt.provenance.fingerprint_id == held.blocks.fingerprint.id


def test_the_budget_ends_it_and_cuts_the_last(tmp_path: Path) -> None:
    with memory(tmp_path, lambda prompt: "x" * 1000) as held:
        solver = BestOfN(held, n=10, budget=150, max_new=100)
        earlier: list[Tried] = []
        while (attempt := solver.attempt(crates(), earlier)) is not None:
            earlier.append(tried(attempt))
        assert [one.attempt.provenance.tokens for one in earlier] == [100, 50]
        assert earlier[0].attempt.candidate is None


def test_self_repair_shows_the_program_and_its_error(tmp_path: Path) -> None:
    with memory(tmp_path, lambda prompt: fenced(MULTIPLY)) as held:
        solver = SelfRepair(held, n=2)
        first = solver.attempt(crates(), [])
        second = solver.attempt(crates(), [tried(first, traceback="ZeroDivisionError: here")])
        assert first is not None
        assert second is not None
        assert "ZeroDivisionError" not in first.prompt
        assert "ZeroDivisionError: here" in second.prompt
        assert MULTIPLY.strip() in second.prompt
        assert solver.attempt(crates(), [tried(first), tried(second)]) is None


def test_a_file_of_solutions_in_its_order(tmp_path: Path) -> None:
    path = tmp_path / "solutions.jsonl"
    path.write_text(
        '{"id": "lorry", "program": "def solve(): return 1", "by": "Ann", "parameters": {"a": 1}}\n\n'
        '{"id": "lorry", "text": "1702"}\n'
    )
    solver = FromFile.read(path)
    first = solver.attempt(crates(), [])
    assert first is not None
    assert first.candidate == Program(source="def solve(): return 1", parameters={"a": 1})
    assert first.provenance == Provenance(solver="file solutions.jsonl", note="Ann")
    second = solver.attempt(crates(), [tried(first)])
    assert second is not None
    assert second.candidate == Text(text="1702")
    assert solver.attempt(crates(), [tried(first), tried(second)]) is None
    assert solver.attempt(crates(id="other"), []) is None


@pytest.mark.parametrize(
    "line",
    [
        "nothing",
        "[]",
        '{"id": 3, "text": "x"}',
        '{"id": "a"}',
        '{"id": "a", "text": "x", "program": "y"}',
        '{"id": "a", "text": ""}',
        '{"id": "a", "text": "x", "extra": 1}',
        '{"id": "a", "program": "x", "parameters": {"no name": 1}}',
        '{"id": "a", "text": NaN}',
    ],
)
def test_a_bad_line_is_named(tmp_path: Path, line: str) -> None:
    path = tmp_path / "solutions.jsonl"
    path.write_text(f'{{"id": "a", "text": "x"}}\n{line}\n')
    with pytest.raises(InvalidTask) as caught:
        FromFile.read(path)
    assert (caught.value.path, caught.value.line) == (path, 2)


def test_an_absent_file_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(InvalidTask):
        FromFile.read(tmp_path / "none.jsonl")


@pytest.mark.parametrize(
    ("text", "source"),
    [
        ("Sure:\n```python\ndef solve():\n    return 1\n```\nBye", "def solve():\n    return 1\n"),
        ("```\ndef solve(): return 2\n```", "def solve(): return 2\n"),
        ("```python\nprint(1)\n```\n```python\ndef solve(): return 3\n```", "def solve(): return 3\n"),
        ("```python\ndef solve():\n    return 4", "def solve():\n    return 4\n"),
        ("PARAMETERS = {}\ndef solve(): return 5", "PARAMETERS = {}\ndef solve(): return 5\n"),
        ("The answer is 7.", None),
        ("", None),
    ],
)
def test_a_program_is_found_in_what_is_said(text: str, source: str | None) -> None:
    found = program_in(text)
    assert (None if found is None else found.source) == source


@pytest.mark.parametrize(
    ("text", "answer"),
    [
        ("So \\boxed{12} at first, but no: \\boxed{1,024}.", 1024),
        ("Thus it is $\\boxed{\\text{Tuesday}}$.", "Tuesday"),
        ("\\[ \\boxed{\\frac{24!}{12!}} \\]", "\\frac{24!}{12!}"),
        ("**Answer:** 3.5", 3.5),
        ("The final answer is: -7.", -7),
        ("Let us see.\nThe answer is Paris.\n", "Paris"),
        ("Answer: 12.\r\n", 12),
        ("answers are hard", None),
        (f"Answer: {'long ' * 50}", None),
        (f"Answer: a{' ' * 100_000}b", None),
        ("=-\n" * 50_000, None),
        ("\\boxed{" * 20_000, None),
        ("\\boxed{}", None),
        ("I had 12 of them.", None),
        ("", None),
    ],
)
def test_an_answer_in_words_is_a_program_that_returns_it(text: str, answer: object) -> None:
    found = said_in(text)
    if answer is None:
        assert found is None
        return
    assert found is not None
    assert call(Sandbox(), found, {"any": 1}).value == answer


@pytest.mark.parametrize(
    ("script", "answer"),
    [
        ("n = 2\nprint(n)\nprint(n * 21)", 42),
        ("print('The sum is', 7)", 7),
        ("print([1, 2])", [1, 2]),
        ("if __name__ == '__main__':\n    print('mending')", "mending"),
    ],
)
def test_a_script_answers_with_what_it_prints_last(script: str, answer: object) -> None:
    found = candidate_in(f"Like this:\n```python\n{script}\n```\nwhich gives\n```output\n99\n```\n\\boxed{{99}}")
    assert found is not None
    assert call(Sandbox(), found, {}).value == answer


def test_a_program_comes_before_a_script_and_that_before_words() -> None:
    script, words = "```python\nprint(1)\n```\n", "\\boxed{2}"
    program = "```python\ndef solve():\n    return 3\n```\n"
    found = [candidate_in(text) for text in (script + words + program, script + words, "```python\nx = 1\n```" + words)]
    assert [None if one is None else call(Sandbox(), one, {}).value for one in found] == [3, 1, 2]
    broken = candidate_in("```python\nprint(1 / 0)\n```")
    assert broken is not None
    assert "ZeroDivisionError" in call(Sandbox(), broken, {}).reason


class Teacher:
    """Answers as set, and keeps what it was asked."""

    def __init__(self) -> None:
        self.asked: list[tuple[str, dict[str, str], Any]] = []
        self.status, self.body, self.headers = 200, completion(fenced(MULTIPLY)), dict[str, str]()
        teacher = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                data = self.rfile.read(int(self.headers["Content-Length"]))
                teacher.asked.append((self.path, dict(self.headers), json.loads(data)))
                self.send_response(teacher.status)
                for name, value in teacher.headers.items():
                    self.send_header(name, value)
                self.end_headers()
                self.wfile.write(teacher.body)

            def log_message(self, *_: Any) -> None:
                pass

        self.server = HTTPServer(("127.0.0.1", 0), Handler)
        self.thread = threading.Thread(target=self.server.serve_forever, kwargs={"poll_interval": 0.02})
        self.thread.start()
        self.url = f"http://127.0.0.1:{self.server.server_port}/v1"

    def close(self) -> None:
        self.server.shutdown()
        self.thread.join()
        self.server.server_close()


def completion(text: Any, tokens: int | None = 17) -> bytes:
    usage = {} if tokens is None else {"usage": {"completion_tokens": tokens}}
    return json.dumps({"choices": [{"message": {"content": text}}], **usage}).encode()


@pytest.fixture
def teacher() -> Iterator[Teacher]:
    made = Teacher()
    yield made
    made.close()


def test_it_is_asked_and_its_program_is_an_attempt(teacher: Teacher) -> None:
    attempt = Endpoint(f"{teacher.url}/", "big", "secret", seed=5).attempt(crates(), [])
    assert attempt is not None
    assert attempt.candidate == Program(source=MULTIPLY)
    assert (attempt.provenance.tokens, attempt.provenance.seeds) == (17, (5,))
    path, headers, body = teacher.asked[0]
    assert path == "/v1/chat/completions"
    assert headers["Authorization"] == "Bearer secret"
    assert (body["model"], body["seed"], body["temperature"]) == ("big", 5, 0)
    assert CRATES in body["messages"][0]["content"]
    assert "1702" not in body["messages"][0]["content"]


def test_it_is_shown_its_failure_and_its_budget_ends_it(teacher: Teacher) -> None:
    endpoint = Endpoint(teacher.url, "big", n=5, budget=30, max_new=20)
    first = endpoint.attempt(crates(), [])
    assert first is not None
    second = endpoint.attempt(crates(), [Tried(first, "failed", "not right", "KeyError")])
    assert second is not None
    assert "KeyError" in teacher.asked[1][2]["messages"][0]["content"]
    assert [asked[2]["max_tokens"] for asked in teacher.asked] == [20, 13]
    assert endpoint.attempt(crates(), [Tried(first, "failed", ""), Tried(second, "failed", "")]) is None


def test_without_usage_tokens_are_estimated_and_never_none(teacher: Teacher) -> None:
    teacher.body = completion("x" * 30, tokens=None)
    attempt = Endpoint(teacher.url, "big").attempt(crates(), [])
    assert attempt is not None
    assert attempt.provenance.tokens == 10
    assert attempt.candidate is None


@pytest.mark.parametrize(
    ("status", "body"),
    [
        (401, b"no"),
        (500, b""),
        (200, b"no JSON"),
        (200, b"[]"),
        (200, b'{"choices": []}'),
        (200, completion(None)),
        (200, completion(3)),
        (200, b'{"choices": [{"message": {"content": "x"}}], "usage": []}'),
    ],
)
def test_what_is_no_completion_is_a_typed_error_without_the_key(teacher: Teacher, status: int, body: bytes) -> None:
    teacher.status, teacher.body = status, body
    with pytest.raises(EndpointFailed) as caught:
        Endpoint(teacher.url, "big", "secret-key").attempt(crates(), [])
    assert caught.value.status == (status if status != 200 else None)
    assert "secret-key" not in caught.value.message


def test_a_redirect_is_not_followed(teacher: Teacher) -> None:
    teacher.status, teacher.headers = 302, {"Location": f"{teacher.url}/elsewhere"}
    with pytest.raises(EndpointFailed):
        Endpoint(teacher.url, "big", "secret").attempt(crates(), [])
    assert len(teacher.asked) == 1


def test_nobody_there() -> None:
    with pytest.raises(EndpointFailed):
        Endpoint("http://127.0.0.1:9", "big", timeout_s=2).attempt(crates(), [])


@pytest.mark.parametrize("url", ["", "localhost:80", "file:///etc/passwd", "ftp://host/", "http://"])
def test_what_is_no_address_is_refused_at_once(url: str) -> None:
    with pytest.raises(UsageError):
        Endpoint(url, "big")


def test_cancelled_before_it_is_asked(teacher: Teacher) -> None:
    cancellation = Cancellation()
    cancellation.cancel()
    with pytest.raises(Cancelled):
        Endpoint(teacher.url, "big").attempt(crates(), [], cancellation)
    assert teacher.asked == []


def test_the_key_is_not_in_the_repr() -> None:
    assert "secret" not in repr(Endpoint("http://localhost/v1", "big", "secret"))
