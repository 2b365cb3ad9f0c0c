"""``agentkv show``: one block in full, by name or by the start of its id."""

from __future__ import annotations

from pathlib import Path

from agentkv import AgentMemory, BlockStore, FakeEngine
from agentkv.records import Import

from .conftest import Run, error_of, record


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


def test_json(filled: Run, store: Path) -> None:
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
