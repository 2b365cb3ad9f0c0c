"""The teacher's endpoint, against a server of our own on this machine."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from typing import Any

import pytest

from agentkv import Cancellation
from agentkv.errors import Cancelled, EndpointFailed, UsageError
from agentkv.flywheel.endpoint import Endpoint
from agentkv.flywheel.solution import Program
from agentkv.flywheel.solvers import Tried

from .scripted import CRATES, MULTIPLY, crates, fenced


class Teacher:
    """Answers as told, and keeps what it was asked."""

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
