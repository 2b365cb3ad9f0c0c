"""``agentkv stats``: its numbers are those of the files."""

from __future__ import annotations

import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from agentkv import AgentMemory, BlockStore, FakeEngine
from agentkv.cli.output import size

from .conftest import Run, damage, record


def below(folder: Path) -> int:
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())


def test_the_numbers_are_those_of_the_files(filled: Run, store: Path) -> None:
    filled("pin", "fees")
    found = record(filled("stats", "--json"))
    assert found["blocks"] == {"all": 6, "named": 2, "names": 2, "pinned": 1, "imported": 0, "damaged": 0}
    of = found["bytes"]
    assert of["stored"] == below(store / "segments")
    assert of["manifests"] == below(store / "manifests")
    assert of["texts"] == below(store / "texts")
    with BlockStore(store) as opened:
        manifests = [opened.manifest(block_id) for block_id in opened.block_ids()]
    refs = [ref for manifest in manifests if manifest for ref in manifest.segments]
    assert of["states"] == sum(ref.n_bytes for ref in refs)
    assert of["raw"] == sum({ref.sha256: ref.n_bytes for ref in refs}.values())
    assert of["saved_by_sharing"] + of["saved_by_compression"] + of["stored"] == of["states"]
    assert found["budget"] == {"budget_bytes": None, "in_use_bytes": of["stored"] + of["manifests"]}
    assert found["models"] == [{"model": "fake", "blocks": 6, "names": 2, "own_bytes": found["models"][0]["own_bytes"]}]


def test_leftovers_are_what_a_collection_takes(filled: Run, store: Path) -> None:
    orphan = store / "segments" / "ab" / f"{'ab' * 32}.seg"
    orphan.parent.mkdir(exist_ok=True)
    orphan.write_bytes(bytes(3000))
    with BlockStore(store) as opened:
        opened.put_text("nobody's")
    left = record(filled("stats", "--json"))["leftovers"]
    gone = record(filled("gc", "--json"))
    assert {key: left[key] for key in gone["leftovers"]} == gone["leftovers"]
    assert (left["segments"], left["texts"]) == (1, 1)
    assert left["bytes"] == gone["freed_bytes"]
    assert record(filled("stats", "--json"))["leftovers"]["bytes"] == 0


def test_uses(filled: Run) -> None:
    assert record(filled("stats", "--json"))["recent"] == {"most": [], "least": [], "never": 2}
    filled("ask", "what is the restocking fee", "--skill", "fees")
    recent = record(filled("stats", "--json"))["recent"]
    assert [(row["name"], row["hits"]) for row in recent["most"]] == [("fees", 1)]
    assert recent["never"] == 1


def test_the_screen(filled: Run, store: Path) -> None:
    with AgentMemory(store, FakeEngine(weights="another")) as memory:
        memory.deposit_text("other", "Other fees.")
    filled("gc", "--set-budget", "1GB")
    text = filled("stats").stdout
    for part in ("8: 3 with a name", "saved", "of 1,000 MB in use", "left over", "nothing", "never used  3 named"):
        assert part in text, part


def test_what_compression_saves_may_be_less_than_headers_take(
    run: Run, store: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AGENTKV_CODEC", "raw")  # each file has its header and trailer, and nothing is saved
    (tmp_path / "notes").write_text("a text of some words\n")
    run("deposit", tmp_path / "notes")
    of = record(run("stats", "--json"))["bytes"]
    files = sum(path.is_file() for path in (store / "segments").rglob("*"))
    assert -96 * files <= of["saved_by_compression"] < 0
    more, share = -of["saved_by_compression"], -of["saved_by_compression"] / of["raw"]
    (line,) = [line for line in run("stats").stdout.splitlines() if line.startswith("compressed")]
    headers = "nothing saved: the headers of many small files take"
    assert " ".join(line.split()) == f"compressed {headers} {size(more)} more than that ({share:.0%})"


def test_damage(filled: Run, store: Path) -> None:
    file = next(path for path in (store / "manifests").rglob("*.json"))
    file.write_bytes(b"damaged")
    result = filled("stats")
    assert result.exit_code == 42
    assert "1 DAMAGED" in result.stdout
    assert "not known while something is damaged" in result.stdout


def test_the_quarantine(filled: Run, store: Path) -> None:
    damage(store, record(filled("show", "fees", "--json"))["block_id"])
    done = record(filled("check", "--repair", "--json"))["repair"]
    aside = {"files": len(done["moved"]), "bytes": done["bytes"]}
    assert record(filled("stats", "--json"))["quarantine"] == aside
    assert "agentkv gc --quarantine" in filled("stats").stdout


@pytest.mark.parametrize("command", [["list"], ["stats", "--json"], ["--version"], ["check", "--json"]])
def test_an_output_that_cannot_be_written_is_one_line_and_46(filled: Run, store: Path, command: list[str]) -> None:
    with Path("/dev/full").open("w") as full:
        done = subprocess.run(
            [sys.executable, "-m", "agentkv.cli", *command], stdout=full, stderr=subprocess.PIPE, text=True, check=False
        )
    assert done.returncode == 46
    (line,) = done.stderr.splitlines()
    assert line.startswith("error: the output cannot be written: No space left on device")


def test_an_output_that_is_closed_is_nobodys(filled: Run, store: Path) -> None:
    command = f"{shlex.quote(sys.executable)} -m agentkv.cli stats --json >&-"
    done = subprocess.run(["sh", "-c", command], stderr=subprocess.PIPE, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
