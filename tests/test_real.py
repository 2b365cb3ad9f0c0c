"""The promises that only a real model can show; few, and each with the smallest model that shows the point."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from agentkv import AgentMemory
from agentkv.bench.exactness import Exactness
from agentkv.engine.base import Engine
from agentkv.errors import GuaranteeViolated, IncompatibleFingerprint
from agentkv.models import resolve
from tests.conftest import REPOSITORY

pytestmark = pytest.mark.model

TEXTS = [(REPOSITORY / "skills" / name / "SKILL.md").read_text() for name in ("refund-policy", "csv-cleaning")]


def test_grafts_in_a_new_process_are_exact_and_the_control_can_fail() -> None:
    result = Exactness(model="gemma-3-270m", texts=tuple(TEXTS), lengths=(1, 257, 1024), samples=4).run()
    Exactness.check(result)
    assert [row["equal_steps"] for row in result["lengths"]] == [48, 48, 48]
    assert result["lengths"][-1]["control_equal_steps"] < 48
    assert all(row["recaptured_equal"] for row in result["lengths"])
    samples = result["samples"]
    assert samples["0"]["equal"] == samples["one pass"]["equal"] == 4
    assert samples["8"]["equal"] == samples["128"]["equal"] == samples["1024"]["equal"] == 0
    assert samples["8"]["kl_median"] > 1e-6
    worse = {**result, "lengths": [{**row, "control_equal_steps": 48} for row in result["lengths"]]}
    with pytest.raises(GuaranteeViolated):
        Exactness.check(worse)
    worse = {**result, "lengths": [{**row, "equal_steps": 47} for row in result["lengths"]]}
    with pytest.raises(GuaranteeViolated):
        Exactness.check(worse)


def test_changed_weights_under_the_same_name_are_another_model(tmp_path: Path, smollm2: Engine) -> None:
    changed = tmp_path / "smollm2-135m.gguf"
    shutil.copy(resolve("smollm2-135m").path, changed)
    with changed.open("r+b") as file:
        file.seek(60_000_000)
        file.write(bytes(range(64)))
    store, text = tmp_path / "store", "The vault code of site seven is 48213.\n"
    first = AgentMemory(store, smollm2)
    block = first.deposit_text("vault", text).manifest
    with AgentMemory(store, changed, window=512) as second:
        assert second.names() == []
        assert second.blocks.stored_chain([block.tokens]) == []
        with pytest.raises(IncompatibleFingerprint) as caught:
            second.blocks.graft(block)
        assert caught.value.field == "model_sha256"
        second.deposit_text("vault", text)
        warm = second.ask("What is the vault code?", skill="vault", max_new=8)
    with AgentMemory(tmp_path / "empty", changed, window=512) as cold:
        cold.deposit_text("vault", text)
        assert cold.ask("What is the vault code?", skill="vault", graft=False, max_new=8).token_ids == warm.token_ids
    os.utime(changed)
    with AgentMemory(store, changed, window=512) as again:
        assert [entry.name for entry in again.names()] == ["vault"]


def test_turns_in_any_order_are_those_of_a_fresh_memory(tmp_path: Path, smollm2: Engine) -> None:
    memory = AgentMemory(tmp_path, smollm2)
    codes = {"amber": "48213", "birch": "90377", "cedar": "15604"}
    for site, code in codes.items():
        memory.deposit_text(site, f"The vault code of this site is {code}.\n")
    question = "What is the vault code? Digits only."
    alone = {site: memory.ask(question, skill=site, graft=False, max_new=12).text for site in codes}
    nothing = memory.ask(question, skill=None, graft=False, max_new=12).text
    assert not any(code in nothing for code in codes.values())
    for asked in ["cedar", "amber", None, "amber", "birch", None, "cedar", "birch"]:
        turn = memory.ask(question, skill=asked, max_new=12)
        assert turn.text == (alone[asked] if asked else nothing)
        others = [code for other, code in codes.items() if other != asked]
        assert not any(code in turn.text for code in others)


def test_ctrl_c_in_a_deposit_ends_it_at_once_and_the_next_command_works(tmp_path: Path) -> None:
    text = tmp_path / "long.txt"
    text.write_text("\n".join(TEXTS) * 4)
    command = [sys.executable, "-m", "agentkv", "deposit", str(text), "--store", str(tmp_path / "store")]
    command += ["--model", "smollm2-135m"]  # is loaded when the signal comes: in a load it can be lost
    # A shell that runs this in the background has SIGINT ignored, and children inherit that.
    process = subprocess.Popen(
        command,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),
    )
    time.sleep(6)
    assert process.poll() is None
    asked = time.monotonic()
    process.send_signal(signal.SIGINT)
    _, errors = process.communicate(timeout=30)
    assert process.returncode == 130, errors
    assert time.monotonic() - asked < 5
    assert "interrupted" in errors
    assert not list((tmp_path / "store").rglob("*.tmp"))
    after = [sys.executable, "-m", "agentkv", "verify", "--store", str(tmp_path / "store")]
    assert subprocess.run(after, capture_output=True, check=False).returncode == 0
