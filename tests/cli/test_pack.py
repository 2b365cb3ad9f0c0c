"""``agentkv pack``: create, show, verify, import, keygen, trust."""

from __future__ import annotations

import re
import shlex
import tarfile
from pathlib import Path
from typing import Any

import pytest

from agentkv import AgentMemory, FakeEngine
from agentkv.cli import options
from agentkv.store.catalog import BlockStore
from tests.store.blocks import contents

from .conftest import Run, damage, error_of, record


@pytest.fixture(autouse=True)
def _key_store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AGENTKV_TRUST", str(tmp_path / "trust.json"))
    monkeypatch.delenv("AGENTKV_KEY_PASSPHRASE", raising=False)


@pytest.fixture
def pack(filled: Run, tmp_path: Path) -> Path:
    """Both skills, unsigned."""
    path = tmp_path / "both.akvpack"
    assert filled("pack", "create", path).exit_code == 0
    return path


def other(tmp_path: Path) -> list[object]:
    return ["--store", tmp_path / "other"]


# --- create ---------------------------------------------------------------------------------------


def test_create(filled: Run, tmp_path: Path) -> None:
    found = record(filled("pack", "create", tmp_path / "p", "--json"))
    assert (found["names"], found["blocks"], found["sources"], found["signed_by"]) == (["fees", "release"], 3, 2, None)
    assert found["bytes"] == (tmp_path / "p").stat().st_size
    with tarfile.open(tmp_path / "p") as archive:
        assert archive.getnames()[0] == "pack.json"
    again = filled("pack", "create", tmp_path / "p", "--json")
    assert error_of(again)["exit_code"] == 2
    assert filled("pack", "create", tmp_path / "p", "--force").exit_code == 0


def test_create_some(filled: Run, tmp_path: Path) -> None:
    block_id = record(filled("show", "release", "--json"))["block_id"]
    found = record(filled("pack", "create", tmp_path / "p", "fees", block_id[:12], "--no-sources", "--json"))
    assert (found["names"], found["blocks"], found["sources"]) == (["fees"], 3, 0)
    assert error_of(filled("pack", "create", tmp_path / "q", "feees", "--json"))["exit_code"] == 44
    assert not (tmp_path / "q").exists()


def test_create_of_one_model(filled: Run, store: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with AgentMemory(store, FakeEngine(weights="second")) as memory:
        memory.deposit_text("fees", "another model's")
        second = memory.blocks.fingerprint.id
    assert record(filled("pack", "create", tmp_path / "a", "--json"))["names"] == ["fees", "release"]
    assert len(record(filled("pack", "create", tmp_path / "b", "--all-models", "--json"))["names"]) == 3
    monkeypatch.delenv("AGENTKV_MODEL")
    error = error_of(filled("pack", "create", tmp_path / "c", "--json"))
    assert (error["exit_code"], second[:8] in error["message"]) == (2, True)
    made = record(filled("pack", "create", tmp_path / "c", "--made-by", second[:8], "--json"))
    assert (made["names"], made["blocks"]) == (["fees"], 2)
    missing = filled("pack", "create", tmp_path / "d", "release", "--made-by", second[:8], "--json")
    assert error_of(missing)["exit_code"] == 44


def test_create_from_nothing(run: Run, tmp_path: Path) -> None:
    assert error_of(run("pack", "create", tmp_path / "p", "--json"))["exit_code"] == 40


def test_create_from_damage(filled: Run, store: Path, tmp_path: Path) -> None:
    damage(store, record(filled("show", "fees", "--json"))["block_id"])
    assert error_of(filled("pack", "create", tmp_path / "p", "--json"))["exit_code"] == 42
    assert list(tmp_path.glob("p*")) == []


# --- show -----------------------------------------------------------------------------------------


def test_show(filled: Run, pack: Path) -> None:
    found = record(filled("pack", "show", pack, "--json"))
    assert [(n["name"], n["kind"], n["model"], n["source"]) for n in found["names"]] == [
        ("fees", "skill", "fake", True),
        ("release", "skill", "fake", True),
    ]
    assert found["names"][0]["description"] == "All about fees."
    assert (len(found["blocks"]), found["signature"]["signed_by"]) == (3, None)
    screen = filled("pack", "show", pack).stdout
    assert "All about release." in screen
    assert "not signed" in screen


def test_show_texts(filled: Run, tmp_path: Path, pack: Path) -> None:
    assert "restocking fee" in filled("pack", "show", pack, "--source", "fees").stdout
    assert error_of(filled("pack", "show", pack, "--source", "fee", "--json"))["exit_code"] == 2
    (tmp_path / "LICENSE").write_text("Do as you like.\n")
    filled("pack", "create", tmp_path / "p", "--license", tmp_path / "LICENSE")
    assert filled("pack", "show", tmp_path / "p", "--license").stdout == "Do as you like.\n"
    assert "1 licence text" in filled("pack", "show", tmp_path / "p").stdout
    (tmp_path / "LICENSE").write_bytes(b"\xff")
    assert filled("pack", "create", tmp_path / "q", "--license", tmp_path / "LICENSE").exit_code == 2


def test_show_of_a_damaged_pack(filled: Run, pack: Path) -> None:
    data = bytearray(pack.read_bytes())
    data[data.rindex(b"AKVSEG") + 80] ^= 1
    pack.write_bytes(data)
    error = error_of(filled("pack", "show", pack, "--json"))
    assert (error["type"], error["exit_code"]) == ("InvalidPack", 70)
    assert error["member"].startswith("segments/")
    assert error_of(filled("pack", "show", pack.with_name("absent"), "--json"))["exit_code"] == 2


# --- verify ---------------------------------------------------------------------------------------


def test_verify(filled: Run, pack: Path) -> None:
    found = record(filled("pack", "verify", pack, "--json"))
    assert (found["ok"], found["blocks"], found["proofs"]) == (True, 3, [])
    assert "--recompute" in filled("pack", "verify", pack).stdout


@pytest.mark.parametrize(("how", "verdict"), [("--prove", "proved"), ("--recompute", "recomputed, text and state")])
def test_verify_with_a_model(filled: Run, pack: Path, how: str, verdict: str) -> None:
    found = record(filled("pack", "verify", pack, how, "--json"))
    assert [proof["verdict"] for proof in found["proofs"]][1:] == [verdict] * 2
    assert verdict in filled("pack", "verify", pack, how).stdout


def test_verify_finds_forgery(filled: Run, store: Path, tmp_path: Path) -> None:
    with BlockStore(store) as opened:
        fees, release = opened.names()
        opened.set_name(fees.model_copy(update={"source_sha256": release.source_sha256}))
    filled("pack", "create", tmp_path / "p")
    result = filled("pack", "verify", tmp_path / "p", "--recompute", "--json")
    error = error_of(result)
    assert (error["type"], result.exit_code, error["names"]) == ("ForgedBlock", 74, ["fees"])
    assert record(result)["ok"] is False
    assert "mismatch" in filled("pack", "verify", tmp_path / "p", "--recompute").stdout


def test_verify_with_another_model(filled: Run, pack: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(options, "_open_engine", lambda *_: FakeEngine(weights="other"))
    assert error_of(filled("pack", "verify", pack, "--prove", "--json"))["exit_code"] == 2
    assert filled("pack", "verify", pack, "--prove", "--recompute").exit_code == 2


# --- import ---------------------------------------------------------------------------------------


def test_import(filled: Run, pack: Path, tmp_path: Path) -> None:
    into = other(tmp_path)
    result = filled("pack", "import", pack, *into, "--json")
    assert error_of(result)["type"] == "UntrustedPack"
    assert not (tmp_path / "other").exists()
    found = record(filled("pack", "import", pack, *into, "--allow-unsigned", "--json"))
    assert (len(found["created"]), found["names"], found["decision"]) == (3, ["fees", "release"], "unsigned")
    assert found["cards"] == 3
    turn = record(filled("ask", "what is the restocking fee of an opened reader?", *into, "--json"))
    assert turn["tokens"]["restored"] > 0
    assert "12%" in turn["text"]
    again = record(filled("pack", "import", pack, *into, "--allow-unsigned", "--json"))
    assert (again["created"], len(again["known"]), again["known_names"]) == ([], 3, ["fees", "release"])
    assert "0 blocks new" in filled("pack", "import", pack, *into, "--allow-unsigned").stdout


def test_import_of_a_taken_name(filled: Run, pack: Path, tmp_path: Path) -> None:
    (tmp_path / "fees.txt").write_text("quite another text\n")
    filled("deposit", tmp_path / "fees.txt", *other(tmp_path))
    before = contents(tmp_path / "other")
    how: list[object] = [pack, *other(tmp_path), "--allow-unsigned", "--json"]
    error = error_of(filled("pack", "import", *how))
    assert (error["type"], error["exit_code"]) == ("NameConflict", 75)
    assert contents(tmp_path / "other") == before
    assert record(filled("pack", "import", *how, "--replace"))["names"] == ["fees", "release"]


def test_import_for_another_model(filled: Run, pack: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(options, "_open_engine", lambda *_: FakeEngine(weights="other", window=4096))
    how: list[object] = [pack, *other(tmp_path), "--allow-unsigned", "--json"]
    error = error_of(filled("pack", "import", *how))
    assert (error["type"], error["field"]) == ("IncompatibleFingerprint", "model_sha256")
    assert "--source-only" in error["message"]
    assert "--any-model" in error["message"]
    found = record(filled("pack", "import", *how, "--any-model"))
    assert (len(found["created"]), found["cards"]) == (3, None)
    found = record(filled("pack", "import", *how, "--source-only"))
    assert [(text["name"], text["new"]) for text in found["texts"]] == [("fees", True), ("release", True)]
    found = record(filled("pack", "import", *how, "--source-only"))
    assert [text["new"] for text in found["texts"]] == [False, False]
    assert filled("pack", "import", *how, "--source-only", "--any-model").exit_code == 2
    with BlockStore(tmp_path / "other") as store:
        assert [store.imported(n.block_id) is None for n in store.names()].count(True) == 2


def test_import_of_a_damaged_pack(filled: Run, pack: Path, tmp_path: Path) -> None:
    pack.write_bytes(pack.read_bytes()[:-1])
    result = filled("pack", "import", pack, *other(tmp_path), "--allow-unsigned", "--json")
    assert error_of(result)["exit_code"] == 70
    assert not (tmp_path / "other").exists()


def test_ctrl_c_while_texts_are_read(filled: Run, pack: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    calls, deposit = [], AgentMemory.deposit_source

    def interrupted(self: AgentMemory, *args: Any, **how: Any) -> Any:
        calls.append(1)
        if len(calls) == 2:
            raise KeyboardInterrupt
        return deposit(self, *args, **how)

    monkeypatch.setattr(AgentMemory, "deposit_source", interrupted)
    result = filled("pack", "import", pack, *other(tmp_path), "--allow-unsigned", "--source-only", "--json")
    assert error_of(result)["exit_code"] == 130
    assert "1 of 2" in record(result)["error"]["message"]


# --- keys -----------------------------------------------------------------------------------------


def test_signed_by_a_trusted_key(filled: Run, tmp_path: Path) -> None:
    key = record(filled("pack", "keygen", tmp_path / "k.pem", "--json"))["public_key"]
    assert error_of(filled("pack", "keygen", tmp_path / "k.pem", "--json"))["exit_code"] == 2
    made = record(filled("pack", "create", tmp_path / "p", "--sign", tmp_path / "k.pem", "--json"))
    assert made["signed_by"] == key
    error = error_of(filled("pack", "import", tmp_path / "p", *other(tmp_path), "--json"))
    assert (error["type"], error["key"]) == ("UntrustedPack", key)
    assert f"agentkv pack trust add NAME {key}" in error["message"]
    assert f"unknown key {key}" in filled("pack", "show", tmp_path / "p").stdout
    assert "me is trusted" in filled("pack", "trust", "add", "me", key).stdout
    assert "signed by me, whom you trust" in filled("pack", "show", tmp_path / "p").stdout
    found = record(filled("pack", "import", tmp_path / "p", *other(tmp_path), "--json"))
    assert (found["decision"], found["signed_by"], found["trusted_as"]) == ("trusted", key, "me")
    assert record(filled("pack", "trust", "list", "--json"))["keys"] == [{"name": "me", "key": key}]
    assert key in filled("pack", "trust", "list").stdout
    assert filled("pack", "trust", "rm", "me").exit_code == 0
    assert "no key is trusted yet" in filled("pack", "trust", "list").stdout


def test_a_revoked_keys_blocks_are_listed_and_removed_and_nothing_else(filled: Run, run: Run, tmp_path: Path) -> None:
    key = record(filled("pack", "keygen", tmp_path / "k.pem", "--json"))["public_key"]
    filled("pack", "create", tmp_path / "p", "--sign", tmp_path / "k.pem")
    filled("pack", "trust", "add", "me", key)
    own = tmp_path / "own.txt"
    own.write_text("My own text stays.")
    there = other(tmp_path)
    assert filled("deposit", own, "--name", "own", *there).exit_code == 0
    assert filled("pack", "import", tmp_path / "p", *there).exit_code == 0
    listed = {entry["name"]: entry["signed_by"] for entry in record(filled("list", "--json", *there))["blocks"]}
    assert listed == {"fees": key, "release": key, "own": None}
    for signer in ("me", key):
        only = record(filled("list", "--signer", signer, "--json", *there))["blocks"]
        assert [entry["name"] for entry in only] == ["fees", "release"]
    assert filled("list", "--signer", "nobody", *there).exit_code == 2
    stays = filled("pack", "trust", "rm", "me").stdout
    assert "--with-blocks" in stays
    assert len(record(filled("list", "--json", *there))["blocks"]) == 3
    gone = record(filled("pack", "trust", "rm", key, "--with-blocks", "--json", *there))
    assert (gone["names"], gone["keys"], gone["name"]) == (["fees", "release"], [key], None)
    assert [entry["name"] for entry in record(filled("list", "--json", *there))["blocks"]] == ["own"]
    assert filled("ask", "What stays?", "--skill", "own", *there).exit_code == 0
    assert filled("check", *there).exit_code == 0


def test_what_was_read_behind_a_revoked_keys_block_goes_with_it(filled: Run, tmp_path: Path) -> None:
    key = record(filled("pack", "keygen", tmp_path / "k.pem", "--json"))["public_key"]
    filled("pack", "create", tmp_path / "p", "--sign", tmp_path / "k.pem")
    filled("pack", "trust", "add", "me", key)
    there = other(tmp_path)
    filled("pack", "import", tmp_path / "p", *there)  # its prefix is now what is deposited on top of
    (tmp_path / "own.txt").write_text("My own text is on top of a prefix that came with the pack.")
    filled("deposit", tmp_path / "own.txt", "--name", "own", *there)
    gone = record(filled("pack", "trust", "rm", "me", "--with-blocks", "--json", *there))
    assert gone["names"] == ["fees", "own", "release"]
    assert record(filled("pack", "trust", "list", "--json"))["keys"] == []


def test_a_key_with_a_passphrase(filled: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AGENTKV_KEY_PASSPHRASE", "open sesame")
    filled("pack", "keygen", tmp_path / "k.pem")
    assert filled("pack", "create", tmp_path / "p", "--sign", tmp_path / "k.pem").exit_code == 0
    monkeypatch.delenv("AGENTKV_KEY_PASSPHRASE")
    error = error_of(filled("pack", "create", tmp_path / "q", "--sign", tmp_path / "k.pem", "--json"))
    assert (error["type"], error["exit_code"]) == ("InvalidKey", 73)
    assert not (tmp_path / "q").exists()


def test_the_policy(filled: Run, pack: Path, tmp_path: Path) -> None:
    assert record(filled("pack", "trust", "policy", "--json"))["policy"] == "require-signature"
    assert filled("pack", "trust", "policy", "anything").exit_code == 2
    assert record(filled("pack", "trust", "policy", "allow-unsigned", "--json"))["policy"] == "allow-unsigned"
    assert filled("pack", "import", pack, *other(tmp_path)).exit_code == 0
    assert filled("pack", "trust", "add", "me", "nonsense").exit_code == 73


@pytest.mark.parametrize("harm", ["damaged", "a folder"])
def test_a_key_store_that_cannot_be_read(filled: Run, pack: Path, tmp_path: Path, harm: str) -> None:
    key = record(filled("pack", "keygen", tmp_path / "k.pem", "--json"))["public_key"]
    signed = tmp_path / "signed.akvpack"
    filled("pack", "create", signed, "--sign", tmp_path / "k.pem")
    filled("pack", "trust", "add", "me", key)
    trust = tmp_path / "trust.json"
    if harm == "damaged":
        trust.write_bytes(trust.read_bytes()[:-5])
    else:
        trust.unlink()
        trust.mkdir()
    for command in ("show", "verify"):
        for path, signer in ((pack, None), (signed, key)):
            result = filled("pack", command, path)
            assert (result.exit_code, result.stderr) == (0, "")
            text = " ".join(result.stdout.split())
            assert "whom you trust is not known: " in text
            assert "trust.json" in text
            found = record(filled("pack", command, path, "--json"))["signature"]
            assert (found["signed_by"], found["trusted"], found["trusted_as"]) == (signer, False, None)
            assert "trust.json" in found["trust_error"]
    for number, (path, decision) in enumerate([(pack, "unsigned"), (signed, "unknown-key")]):
        into = ["--store", tmp_path / f"into-{number}"]
        assert filled("pack", "import", path, *into).exit_code == (2 if harm == "damaged" else 46)
        assert not (tmp_path / f"into-{number}").exists()
        done = filled("pack", "import", path, *into, "--allow-unsigned", "--json")
        assert (done.exit_code, record(done)["decision"]) == (0, decision)
        with BlockStore(tmp_path / f"into-{number}") as opened:
            imported = [opened.imported(named.block_id) for named in opened.names()]
        assert {(entry.decision, entry.signed_by) for entry in imported if entry} == {
            (decision, key if decision == "unknown-key" else None)
        }


def test_a_sound_key_store_is_no_error(filled: Run, pack: Path) -> None:
    assert record(filled("pack", "show", pack, "--json"))["signature"]["trust_error"] is None


def test_a_folder_is_no_pack(filled: Run, tmp_path: Path) -> None:
    for command in ("show", "verify", "import"):
        error = error_of(filled("pack", command, tmp_path, "--json"))
        assert (error["type"], error["message"]) == ("UsageError", f"{tmp_path} is a folder; a pack is one file")


def test_create_without_the_texts_says_how_to_have_them_again(filled: Run, store: Path, tmp_path: Path) -> None:
    (tmp_path / "my notes").write_text("notes\n")
    filled("deposit", tmp_path / "my notes", "--name", "a name")
    for name in ("fees", "a name"):
        for text in (store / "texts").rglob("*.txt"):
            text.unlink()
        error = error_of(filled("pack", "create", tmp_path / "p", name, "--json"))
        assert error["exit_code"] == 2
        assert "0.1" not in error["message"]
        (command,) = re.findall(r"Run `agentkv (deposit .*?)` \(", error["message"])
        assert filled(*shlex.split(command)).exit_code == 0
        assert filled("pack", "create", tmp_path / f"p {name}", name).exit_code == 0


def test_a_key_of_nobody_is_not_trusted(filled: Run) -> None:
    error = error_of(filled("pack", "trust", "add", "zero", "ed25519:" + "0" * 64, "--json"))
    assert (error["type"], error["exit_code"]) == ("InvalidKey", 73)
