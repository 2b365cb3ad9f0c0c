"""``agentkv list``: what is stored, for every model, without loading one.

``agentkv show``: one block in full, by name or by the start of its id.
"""

from __future__ import annotations

import time
from datetime import datetime
from pathlib import Path

import pytest

from agentkv import AgentMemory, BlockStore, FakeEngine
from agentkv.cli.inventory import ago
from agentkv.cli.output import size
from agentkv.records import Import

from .conftest import Run, error_of, manifest_files, record


def test_table(filled: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("AGENTKV_MODEL")
    header, first, second, _, total, _, _, note = filled("list").stdout.splitlines()
    assert header.split() == [
        *["name", "kind", "model", "made", "by", "tokens", "own", "shared", "hits", "last", "use", "proof"],
        *["other", "engine", "by"],
    ]
    assert (
        "opens here (--model qwen2.5-coder-0.5b), which does not find them: fees, release (engine = fake, here" in note
    )
    assert (first.split()[:3], second.split()[0]) == (["fees", "skill", "fake"], "release")
    assert total.startswith("2 blocks and 4 unnamed ones in ")


def test_list_as_json(filled: Run, store: Path) -> None:
    found = record(filled("list", "--json"))
    assert (found["store"], found["other_blocks"]) == (str(store), 4)
    fees, _ = found["blocks"]
    assert (fees["name"], fees["exactness"], fees["selected"], fees["fault"]) == ("fees", "exact", True, None)
    assert fees["own_bytes"] > fees["shared_bytes"] > 0
    assert found["raw_bytes"] > found["stored_bytes"]


def test_marks_the_blocks_of_a_model(filled: Run, store: Path) -> None:
    with AgentMemory(store, FakeEngine(weights="another")) as memory:
        memory.deposit_text("fees", "Other fees.")
    blocks = record(filled("list", "--json"))["blocks"]
    assert [(block["kind"], block["selected"]) for block in blocks] == [
        ("skill", True),
        ("skill", True),
        ("text", False),
    ]
    lines = filled("list").stdout.splitlines()
    assert [line.split()[2] for line in lines[1:4]] == ["fake*", "fake*", "fake:another"]
    other = record(filled("list", "--model", "smollm2-135m", "--json"))["blocks"]
    assert not any(block["selected"] for block in other)


def test_uses_and_marks(filled: Run, store: Path) -> None:
    fees, release = record(filled("list", "--json"))["blocks"]
    assert [(b["hits"], b["last_use"], b["pinned"], b["imported"]) for b in (fees, release)] == [
        (0, None, False, False)
    ] * 2
    filled("ask", "what is the restocking fee", "--skill", "fees")
    filled("pin", "release")
    with BlockStore(store) as opened:
        opened.set_import(
            Import(block_id=release["block_id"], pack_sha256="ab" * 32, signed_by=None, decision="unsigned")
        )
    fees, release = record(filled("list", "--json"))["blocks"]
    assert (fees["hits"], release["hits"], release["last_use"]) == (1, 0, None)
    assert abs(datetime.fromisoformat(fees["last_use"]).timestamp() - time.time()) < 60
    assert fees["last_use"].endswith("Z")
    assert (release["pinned"], release["imported"], fees["pinned"], fees["imported"]) == (True, True, False, False)
    first, second = filled("list").stdout.splitlines()[1:3]
    assert "just now" in first
    assert second.startswith("release (pinned)")


@pytest.mark.parametrize("width", [80, 120])
def test_fits_the_terminal(filled: Run, monkeypatch: pytest.MonkeyPatch, width: int) -> None:
    monkeypatch.setenv("COLUMNS", str(width))
    lines = filled("list").stdout.splitlines()
    assert all(len(line.rstrip()) <= width for line in lines)
    assert lines[1].split()[0] == "fees"
    assert lines[2].split()[0] == "release", "one line each"
    assert ("kind" in lines[0]) is (width == 120)


@pytest.mark.parametrize(
    ("passed", "text"),
    [(None, "never"), (0, "just now"), (200, "3 min ago"), (7300, "2 h ago"), (86400 * 3, "3 d ago"),
     (86400 * 70, "2 mo ago"), (86400 * 800, "2 y ago"), (-50, "just now")],
)  # fmt: skip
def test_times_for_people(passed: float | None, text: str) -> None:
    assert ago(None if passed is None else time.time() - passed) == text


def test_a_missing_segment_is_a_fault_of_its_block_only(filled: Run, store: Path) -> None:
    fees, _ = record(filled("list", "--json"))["blocks"]
    with BlockStore(store) as opened:
        manifest = opened.manifest(fees["block_id"])
        assert manifest is not None
        Path(opened.segments.where(manifest.segments[-1].sha256)).unlink()
    result = filled("list", "--json")
    assert error_of(result)["type"] == "MissingSegment"
    fees, release = record(result)["blocks"]
    assert (fees["tokens"], fees["own_bytes"], release["fault"]) == (manifest.n_tokens, None, None)
    assert release["own_bytes"] > 0


def test_an_empty_store(filled: Run, tmp_path: Path) -> None:
    with AgentMemory(tmp_path / "new", FakeEngine()):
        pass
    result = filled("list", "--store", tmp_path / "new")
    assert result.exit_code == 0
    assert "nothing is stored in" in result.stdout
    assert record(filled("list", "--store", tmp_path / "new", "--json"))["blocks"] == []


def test_only_unnamed_blocks_are_left(filled: Run, store: Path, tmp_path: Path) -> None:
    with BlockStore(store) as opened:
        for named in opened.names():
            opened.remove_name(named.kind, named.name, named.fingerprint_id)
    found = record(filled("list", "--json"))
    assert (found["blocks"], found["other_blocks"]) == ([], 6)
    text = filled("list").stdout
    assert f"no name is left in {store}: 6 unnamed blocks, {size(found['stored_bytes'])} on disk" in text
    assert "nothing is stored" not in text
    (tmp_path / "one.txt").write_text("one text\n")
    other = ["--store", tmp_path / "other"]
    filled("deposit", tmp_path / "one.txt", *other)
    assert "\n1 block and 1 unnamed one in " in filled("list", *other).stdout


def test_a_damaged_block_does_not_hide_the_others(filled: Run, store: Path) -> None:
    fees, _ = record(filled("list", "--json"))["blocks"]
    (file,) = (path for path in manifest_files(store) if fees["block_id"] in path.name)
    file.chmod(0o644)
    file.write_bytes(b"damaged")
    result = filled("list")
    assert result.exit_code == 42
    assert "CORRUPT" in result.stdout.splitlines()[1]
    assert "exact" in result.stdout.splitlines()[2]
    found = filled("list", "--json")
    assert error_of(found)["type"] == "CorruptBlock"
    assert record(found)["stored_bytes"] is None


def test_a_name_whose_block_is_gone(filled: Run, store: Path) -> None:
    fees, _ = record(filled("list", "--json"))["blocks"]
    (file,) = (path for path in manifest_files(store) if fees["block_id"] in path.name)
    file.unlink()
    assert filled("list").exit_code == 44


def test_a_block_that_could_not_be_restored_is_shown_until_a_deposit_mends_it(filled: Run, store: Path) -> None:
    with BlockStore(store) as opened:
        named = next(entry for entry in opened.names() if entry.name == "fees")
        opened.refuse(opened.verify(named.block_id), "its layout is another")
    result = filled("list")
    assert result.exit_code == 42
    assert "CORRUPT" in result.stdout
    assert "its layout is another" in result.stderr
    assert filled("check").exit_code == 47
    assert filled("verify", "fees").exit_code == 42
    with AgentMemory(store, FakeEngine()) as memory:
        memory.deposit_source(named, memory.store.text(named.source_sha256 or "") or "")
    assert filled("list").exit_code == 0
    assert filled("check").exit_code == 0


# --- show -----------------------------------------------------------------------------------------


def test_screen(filled: Run, skills: Path) -> None:
    text = filled("show", "fees").stdout
    for part in (
        "fees (skill)",
        "All about fees.",
        str(skills / "fees"),
        "32 steps",
        "model_sha256",
        "# Manual: fees",
        "never",
    ):
        assert part in text


def test_show_as_json(filled: Run, store: Path) -> None:
    found = record(filled("show", "fees", "--json"))
    manifest = BlockStore(store).manifest(found["block_id"])
    assert manifest is not None
    assert [link["block_id"] for link in found["chain"]] == [manifest.parent_id, manifest.block_id]
    assert found["tokens"] == manifest.n_tokens == sum(link["own_tokens"] for link in found["chain"])
    assert len(found["segments"]) == len(manifest.segments)
    assert found["fingerprint_id"] == manifest.fingerprint.id
    assert found["source_begins"][:3] == ["# Manual: fees", "", "# fees"]
    assert "own_tokens" not in found


def test_by_id(filled: Run) -> None:
    block_id = record(filled("show", "fees", "--json"))["block_id"]
    assert record(filled("show", block_id[:8], "--json"))["block_id"] == block_id
    parent = record(filled("show", block_id, "--json"))["chain"][0]["block_id"]
    assert "none: an agent prefix" in filled("show", parent).stdout


def test_tokens(filled: Run) -> None:
    own = record(filled("show", "fees", "--tokens", "--json"))["own_tokens"]
    assert bytes(own).decode().startswith("# Manual: fees")
    assert " ".join(str(token) for token in own[:12]) in filled("show", "fees", "--tokens").stdout


def test_a_source_that_is_gone_is_shown_from_the_store(filled: Run, skills: Path) -> None:
    (skills / "fees" / "SKILL.md").unlink()
    result = filled("show", "fees")
    assert result.exit_code == 0
    assert "the text begins:" in result.stdout
    assert "# Manual: fees" in result.stdout


def test_a_text_that_the_store_lacks_is_read_where_it_came_from(filled: Run, store: Path, skills: Path) -> None:
    for file in (store / "texts").rglob("*.txt"):
        file.unlink()
    assert record(filled("show", "fees", "--json"))["source_begins"][:2] == ["---", "name: fees"]
    (skills / "fees" / "SKILL.md").unlink()
    result = filled("show", "fees")
    assert (result.exit_code, "the text begins" in result.stdout) == (0, False)


def test_a_damaged_text_does_not_hide_the_block(filled: Run, store: Path) -> None:
    for file in (store / "texts").rglob("*.txt"):
        file.write_bytes(b"damaged")
    assert filled("show", "fees").exit_code == 0


def test_uses_pins_licence_and_import(filled: Run, store: Path) -> None:
    filled("ask", "what is the restocking fee", "--skill", "fees")
    found = record(filled("show", "fees", "--json"))
    assert (found["hits"], found["pinned"], found["imported"]) == (1, False, None)
    assert found["last_use"] is not None
    with BlockStore(store) as opened:
        (named,) = [entry for entry in opened.names() if entry.name == "fees"]
        opened.set_name(named.model_copy(update={"license": "Apache-2.0"}))
        key = f"ed25519:{'cd' * 32}"
        opened.set_import(Import(block_id=named.block_id, pack_sha256="ab" * 32, signed_by=key, decision="unknown-key"))
    filled("pin", "fees")
    found = record(filled("show", "fees", "--json"))
    assert found["imported"] == {"pack_sha256": "ab" * 32, "signed_by": key, "decision": "unknown-key"}
    assert (found["pinned"], found["names"][0]["license"]) == (True, "Apache-2.0")
    text = " ".join(filled("show", "fees").stdout.split())
    assert "1 time, the last just now; pinned" in text
    assert "from pack abababababababab…, signed by a key that was not trusted" in text
    assert "license Apache-2.0" in text


def test_unknown(filled: Run) -> None:
    error = error_of(filled("show", "fee", "--json"))
    assert error["exit_code"] == 44
    assert "Did you mean fees?" in error["message"]
    assert filled("show", "abcdef").exit_code == 44
    assert filled("show", "../names").exit_code == 44


def test_a_name_of_two_models(filled: Run, store: Path) -> None:
    with AgentMemory(store, FakeEngine(weights="another")) as memory:
        other = memory.deposit_text("fees", "Other fees.").manifest
    mine = record(filled("show", "fees", "--json"))
    assert mine["block_id"] != other.block_id
    result = filled("show", "fees", "--model", "smollm2-135m")
    assert result.exit_code == 2
    assert other.block_id[:12] in result.stderr
