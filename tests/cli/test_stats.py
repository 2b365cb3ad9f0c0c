"""``agentkv stats``: its numbers are those of the files."""

from __future__ import annotations

import shlex
import shutil
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


def test_what_was_saved(filled: Run, store: Path) -> None:
    restored = [record(filled("ask", "what is the fee", "--skill", "fees", "--json"))["tokens"] for _ in range(2)]
    restored.append(record(filled("ask", "when is the train", "--skill", "release", "--json"))["tokens"])
    with AgentMemory(store, FakeEngine()) as memory:
        alone = memory.ask("who are you", skill=None, graft=False, max_new=2).tokens
    found = record(filled("stats", "--json"))["saved"]
    assert (found["turns"], found["turns_restored"], found["hit_rate"]) == (4, 3, 0.75)
    assert found["tokens_restored"] == sum(tokens["restored"] for tokens in restored)
    assert found["tokens_read"] == sum(tokens["prefilled"] for tokens in restored) + alone.prefilled
    assert (found["turns_asked_to_read"], found["turns_without_estimate"], found["since"]) == (1, 0, None)
    (reading,) = found["reading"]
    estimate = found["tokens_restored"] * reading["ms_a_token"] / 1e3 - found["restore_seconds"]
    assert found["seconds_saved"] == pytest.approx(estimate)
    by = record(filled("stats", "--by", "skill", "--json"))
    rows = {row["skill"]: (row["turns"], row["turns_restored"], row["tokens_restored"]) for row in by["rows"]}
    fees = sum(tokens["restored"] for tokens in restored[:2])
    assert rows == {"fees": (2, 2, fees), "release": (1, 1, restored[2]["restored"]), None: (1, 0, 0)}
    assert by["total"] == {key: found[key] for key in by["total"]}


def test_blocks_are_called_by_their_names_or_by_what_they_are(filled: Run, store: Path) -> None:
    filled("ask", "what is the fee", "--skill", "fees")
    with AgentMemory(store, FakeEngine()) as memory:
        memory.ask("who are you", skill=None, max_new=2)
        prefix = next(block_id for block_id in memory.store.block_ids() if memory.store.children(block_id))
        thread = memory.thread("one")
        thread.ask("hello", skill=None, max_new=2)
        thread.ask("hello again", skill=None, max_new=2)
        memory.ask("gone", skill="release", max_new=2)
    assert filled("rm", "release").exit_code == 0
    rows = record(filled("stats", "--by", "block", "--json"))["rows"]
    called = {row["called"]: row["tokens_restored"] for row in rows}
    assert called.pop("fees") > 0
    assert called.pop(f"prefix {prefix[:12]}") > 0
    (other, gone) = sorted(called, key=lambda name: name.endswith("gone"))
    assert other.startswith("conversation ")
    assert gone.endswith(", gone")


def test_days_and_since(filled: Run, store: Path) -> None:
    filled("ask", "what is the fee", "--skill", "fees")
    log = store / "turns" / "turns.jsonl"
    today = record(filled("stats", "--by", "day", "--json"))["rows"][0]["day"]
    turns = [line for line in log.read_text().splitlines() if '"kind":"turn"' in line]
    with log.open("a") as file:
        file.write(turns[0].replace(today, "2026-01-31") + "\n")
    assert [row["day"] for row in record(filled("stats", "--by", "day", "--json"))["rows"]] == ["2026-01-31", today]
    since = record(filled("stats", "--by", "day", "--since", "2026-02-01", "--json"))
    assert [row["day"] for row in since["rows"]] == [today]
    assert (since["since"], since["oldest"][:10], since["total"]["turns"]) == ("2026-02-01", "2026-01-31", 1)
    assert record(filled("stats", "--since", "2026-02-01", "--json"))["saved"]["turns"] == 1
    screen = filled("stats", "--by", "day").stdout
    assert "2026-01-31" in screen
    assert "saved: tokens restored, times what the prefill of a token took here" in screen
    assert "no turn on record since 2200-01-01" in filled("stats", "--by", "day", "--since", "2200-01-01").stdout


@pytest.mark.parametrize("arguments", [["--by", "week"], ["--since", "yesterday"]])
def test_what_cannot_be_asked_for_is_refused(filled: Run, arguments: list[str]) -> None:
    assert filled("stats", *arguments).exit_code == 2


def test_a_store_without_turns(filled: Run) -> None:
    found = record(filled("stats", "--json"))["saved"]
    assert (found["turns"], found["hit_rate"], found["seconds_saved"], found["oldest"]) == (0, None, 0, None)
    assert "no turn on record" in filled("stats").stdout
    for by in ("day", "skill", "block"):
        assert filled("stats", "--by", by).stdout == "no turn on record\n"


def test_a_store_of_an_older_version(run: Run, store: Path) -> None:
    shutil.copytree(Path(__file__).resolve().parents[1] / "data" / "store-v1", store)
    before = {path: path.read_bytes() for path in store.rglob("*") if path.is_file()}
    found = record(run("stats", "--json"))
    assert (found["saved"]["turns"], found["blocks"]["all"], found["disk"]["parts"].get("turns")) == (0, 7, None)
    assert run("stats").exit_code == 0
    assert run("stats", "--by", "day").stdout == "no turn on record\n"
    assert {path: path.read_bytes() for path in before} == before


def test_a_log_that_cannot_be_read_is_an_error_beside_the_rest(filled: Run, store: Path) -> None:
    shutil.rmtree(store / "turns")
    (store / "turns").symlink_to("/etc")
    result = filled("stats", "--json")
    found = record(result)
    assert (result.exit_code, found["error"]["type"], found["saved"]) == (46, "StoreReadError", None)
    assert found["blocks"]["all"] == 6


def test_the_disk_is_all_of_the_folder(filled: Run, store: Path, skills: Path) -> None:
    filled("ask", "what is the restocking fee")
    filled("docs", "add", skills, "--tokens", 128, "--overlap", 0)
    with AgentMemory(store, FakeEngine()) as memory:
        memory.thread("one").ask("hello", skill=None, max_new=2)
    (store / "adapters").mkdir()
    (store / "adapters" / "langchain-cache.sqlite").write_bytes(bytes(4000))
    disk = record(filled("stats", "--json"))["disk"]
    assert disk["total"] == sum(disk["parts"].values()) == below(store)
    for part in ("segments", "manifests", "documents", "threads", "decisions", "turns", "adapters"):
        assert disk["parts"][part] == below(store / part) > 0, part
    assert disk["adapters"] == {"langchain-cache.sqlite": 4000}
    screen = filled("stats").stdout
    for part in ("of documents", "4 kB of adapters", "of conversations", f"{size(disk['total'])} in the store's"):
        assert part in screen, part


def test_the_screen(filled: Run, store: Path) -> None:
    with AgentMemory(store, FakeEngine(weights="another")) as memory:
        memory.deposit_text("other", "Other fees.")
    filled("gc", "--set-budget", "1GB")
    text = filled("stats").stdout
    for part in ("8: 3 with a name", "saved", "of 1,000 MB in use", "left over", "nothing", "never used 3 named"):
        assert part in " ".join(text.split()), part
    assert "other engine 2 blocks, 2 by model_sha256" in " ".join(text.split())
    assert "other (model_sha256 = fake:another, here fake). `agentkv migrate --store" in text


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
    assert "1 CORRUPT" in result.stdout
    assert "not known while something is corrupt" in result.stdout


def test_the_quarantine(filled: Run, store: Path) -> None:
    damage(store, record(filled("show", "fees", "--json"))["block_id"])
    done = record(filled("check", "--repair", "--json"))["repair"]
    moved = {"files": len(done["moved"]), "bytes": done["bytes"]}
    assert record(filled("stats", "--json"))["quarantine"] == moved
    assert "agentkv gc --quarantine" in filled("stats").stdout


@pytest.mark.parametrize("command", [["list"], ["stats", "--json"], ["--version"], ["check", "--json"]])
def test_an_output_that_cannot_be_written_is_one_line_and_46(filled: Run, store: Path, command: list[str]) -> None:
    with Path("/dev/full").open("w") as full:
        done = subprocess.run(
            [sys.executable, "-m", "agentkv", *command], stdout=full, stderr=subprocess.PIPE, text=True, check=False
        )
    assert done.returncode == 46
    (line,) = done.stderr.splitlines()
    assert line.startswith("error: the output cannot be written: No space left on device")


def test_an_output_that_is_closed_is_nobodys(filled: Run, store: Path) -> None:
    command = f"{shlex.quote(sys.executable)} -m agentkv stats --json >&-"
    done = subprocess.run(["sh", "-c", command], stderr=subprocess.PIPE, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
