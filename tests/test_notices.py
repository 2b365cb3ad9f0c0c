"""Warnings: shown on behalf of the caller outside the package; on the command line one line, once."""

from __future__ import annotations

import warnings

import pytest

from agentkv import AgentKVWarning
from agentkv.cli.output import show_warnings
from agentkv.notices import warn


def test_a_warning_names_the_caller_s_line() -> None:
    with pytest.warns(AgentKVWarning, match="nothing is stored") as caught:
        warn("nothing is stored")
    assert caught[0].filename == __file__


def test_the_command_line_prints_each_text_once_on_stderr(capsys: pytest.CaptureFixture[str]) -> None:
    with warnings.catch_warnings():
        show_warnings()
        for text in ("left out: a", "left out: a", "left out: b\x1b[2J"):
            warn(text)
    printed = capsys.readouterr()
    assert printed.out == ""
    assert printed.err == "warning: left out: a\nwarning: left out: b�[2J\n"
