"""Keys and the key store."""

from __future__ import annotations

import stat
from pathlib import Path

import pytest

from agentkv.errors import InvalidKey, UsageError
from agentkv.packs import Trust, generate_key, load_key, parse_public_key
from agentkv.packs.keys import is_signed

from .packing import key


def no_passphrase() -> str:
    raise AssertionError("asked for a passphrase")


def test_a_key_pair(tmp_path: Path) -> None:
    made = generate_key(tmp_path / "k.pem")
    assert stat.S_IMODE((tmp_path / "k.pem").stat().st_mode) == 0o600
    found = load_key(tmp_path / "k.pem", no_passphrase)
    assert found.public == made.public
    signature = found.sign(b"index")
    assert signature == made.sign(b"index")
    assert is_signed(b"index", signature)
    assert not is_signed(b"other", signature)
    assert not is_signed(b"index", signature.model_copy(update={"key": key(2).public}))
    assert not is_signed(b"index", signature.model_copy(update={"key": "ed25519:" + "f" * 64}))
    before = (tmp_path / "k.pem").read_bytes()
    with pytest.raises(UsageError, match="never overwritten"):
        generate_key(tmp_path / "k.pem")
    assert (tmp_path / "k.pem").read_bytes() == before


def test_a_passphrase(tmp_path: Path) -> None:
    made = generate_key(tmp_path / "k.pem", "open sesame")
    assert load_key(tmp_path / "k.pem", lambda: "open sesame").public == made.public
    for wrong in ("", "sesame"):
        with pytest.raises(InvalidKey, match="passphrase"):
            load_key(tmp_path / "k.pem", lambda wrong=wrong: wrong)  # type: ignore[misc]


def test_files_that_hold_no_key(tmp_path: Path) -> None:
    from cryptography.hazmat.primitives import serialization as s
    from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey

    (tmp_path / "junk").write_bytes(b"\x80\x04junk")
    other = X25519PrivateKey.generate().private_bytes(s.Encoding.PEM, s.PrivateFormat.PKCS8, s.NoEncryption())
    (tmp_path / "other").write_bytes(other)
    for name in ("junk", "other", "absent"):
        with pytest.raises(InvalidKey):
            load_key(tmp_path / name, no_passphrase)


def test_public_keys_as_people_give_them(tmp_path: Path) -> None:
    public = key().public
    (tmp_path / "key.txt").write_text(f" {public.upper().replace('ED25519', 'ed25519')}\n")
    for given in (public, f" {public}\n", str(tmp_path / "key.txt")):
        assert parse_public_key(given) == public
    for bad in ("", "ed25519:", public[:-1], public + "0", "x" * 5000, "a\0b", str(tmp_path / "absent")):
        with pytest.raises(InvalidKey):
            parse_public_key(bad)


def test_adding_and_removing(tmp_path: Path) -> None:
    trust = Trust(tmp_path / "folder" / "trust.json")
    assert trust.read().keys == ()
    assert trust.add("me", key().public)
    assert not trust.add("me", key().public)
    for name, public in (("me", key(2).public), ("you", key().public)):
        with pytest.raises(UsageError, match="already"):
            trust.add(name, public)
    for bad in ("", "two words", "line\n", "x" * 129):
        with pytest.raises(UsageError):
            trust.add(bad, key(2).public)
    assert trust.add("also", key(2).public)
    assert [entry.name for entry in trust.read().keys] == ["also", "me"]
    assert trust.name_of(key().public) == "me"
    assert trust.remove(key().public).name == "me"
    assert trust.remove("also").key == key(2).public
    with pytest.raises(UsageError):
        trust.remove("also")
    trust.set_policy("allow-unsigned")
    assert trust.read().policy == "allow-unsigned"


def test_every_flipped_byte_of_a_key_store_is_an_error(tmp_path: Path) -> None:
    trust = Trust(tmp_path / "trust.json")
    trust.add("me", key().public)
    data = trust.path.read_bytes()
    for at in range(len(data)):
        trust.path.write_bytes(data[:at] + bytes([data[at] ^ 1]) + data[at + 1 :])
        with pytest.raises(UsageError, match="damaged"):
            trust.read()
    trust.path.write_bytes(b"")
    with pytest.raises(UsageError, match="damaged"):
        trust.decide(tmp_path, None)


def test_where_it_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert Trust().path == tmp_path / "trust.json"  # $AGENTKV_TRUST of the fixture
    monkeypatch.delenv("AGENTKV_TRUST")
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    assert Trust().path.parts[-2:] == ("agentkv", "trust.json")
