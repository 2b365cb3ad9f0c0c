"""Keys and the key store."""

from __future__ import annotations

import stat
from pathlib import Path

import pytest

from agentkv.errors import InvalidKey, UntrustedPack, UsageError
from agentkv.packs import Trust
from agentkv.signing.keys import generate_key, is_signed, load_key, parse_public_key
from agentkv.signing.trust import Decision, TrustedKey, TrustRecord, Verdict
from agentkv.store.format import encode_record
from tests.packs.packing import key


def no_passphrase() -> str:
    raise AssertionError("asked for a passphrase")


def test_a_key_pair(tmp_path: Path) -> None:
    made = generate_key(tmp_path / "k.pem")
    assert stat.S_IMODE((tmp_path / "k.pem").stat().st_mode) == 0o600
    found = load_key(tmp_path / "k.pem", no_passphrase)
    assert found.public == made.public
    signature = found.sign(b"index", b"context")
    assert signature == made.sign(b"index", b"context")
    assert is_signed(b"index", signature, b"context")
    assert not is_signed(b"other", signature, b"context")
    assert not is_signed(b"index", signature.model_copy(update={"key": key(2).public}), b"context")
    assert not is_signed(b"index", signature.model_copy(update={"key": "ed25519:" + "f" * 64}), b"context")
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
    with pytest.raises(UsageError, match="already"):
        trust.add("you", key().public)
    for bad in ("", "two words", "line\n", "x" * 129):
        with pytest.raises(UsageError):
            trust.add(bad, key(2).public)
    assert trust.add("also", key(2).public)
    assert [entry.name for entry in trust.read().keys] == ["also", "me"]
    assert trust.name_of(key().public) == "me"
    assert [gone.name for gone in trust.remove(key().public)] == ["me"]
    assert [gone.key for gone in trust.remove("also")] == [key(2).public]
    with pytest.raises(UsageError):
        trust.remove("also")
    trust.set_policy("allow-unsigned")
    assert trust.read().policy == "allow-unsigned"


def test_a_person_may_have_several_keys(tmp_path: Path) -> None:
    trust = Trust(tmp_path / "trust.json")
    assert trust.add("me", key().public)
    assert trust.add("me", key(2).public)
    assert not trust.add("me", key(2).public)
    assert {entry.key for entry in trust.of("me")} == {key().public, key(2).public}
    assert trust.name_of(key().public) == trust.name_of(key(2).public) == "me"
    assert [gone.key for gone in trust.remove(key(2).public)] == [key(2).public]
    trust.add("me", key(2).public)
    assert len(trust.remove("me")) == 2
    assert trust.read().keys == ()


def test_every_flipped_byte_of_a_key_store_is_an_error(tmp_path: Path) -> None:
    trust = Trust(tmp_path / "trust.json")
    trust.add("me", key().public)
    data = trust.path.read_bytes()
    for at in range(len(data)):
        trust.path.write_bytes(data[:at] + bytes([data[at] ^ 1]) + data[at + 1 :])
        with pytest.raises(UsageError, match="corrupt"):
            trust.read()
    trust.path.write_bytes(b"")
    with pytest.raises(UsageError, match="corrupt"):
        trust.decide(tmp_path, None)


def test_where_it_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert Trust().path == tmp_path / "trust.json"  # $AGENTKV_TRUST of the fixture
    monkeypatch.delenv("AGENTKV_TRUST")
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    assert Trust().path.parts[-2:] == ("agentkv", "trust.json")


P = 2**255 - 19
D = -121665 * pow(121666, -1, P) % P


def times_eight(y: int) -> tuple[int, int] | None:
    """Eight times a point with that y coordinate, by the curve's own law; None if there is no such point."""
    square = (y * y - 1) * pow(D * y * y + 1, -1, P) % P
    root = pow(square, (P + 3) // 8, P)
    x = next((x for x in (root, root * pow(2, (P - 1) // 4, P) % P) if (x * x - square) % P == 0), None)
    if x is None:
        return None
    point = (x, y % P)
    for _ in range(3):
        (a, b), product = point, D * point[0] ** 2 * point[1] ** 2
        point = (2 * a * b * pow(1 + product, -1, P) % P, (b * b + a * a) * pow(1 - product, -1, P) % P)
    return point


OCTIC = 0x7A03AC9277FDC74EC6CC392CFA53202A0F67100D760B3CBA4FD84D3D706A17C7
SMALL = [0, 1, P - 1, P, P + 1, OCTIC, P - OCTIC]


@pytest.mark.parametrize("sign", [0, 1 << 255])
@pytest.mark.parametrize("y", SMALL)
def test_points_of_small_order_are_nobodys_keys(tmp_path: Path, y: int, sign: int) -> None:
    assert times_eight(y) == (0, 1), "the neutral element"
    public = "ed25519:" + (y | sign).to_bytes(32, "little").hex()
    trust = Trust(tmp_path / "trust.json")
    with pytest.raises(InvalidKey, match="nobody's"):
        trust.add("zero", public)
    assert not trust.path.exists()
    weak = TrustRecord(keys=(TrustedKey(name="zero", key=public),))  # as an earlier version let it in
    trust.path.write_bytes(encode_record("agentkv-trust 1", weak))
    assert trust.decide(tmp_path, public, allow_unsigned=True).decision == "unknown-key"
    with pytest.raises(UntrustedPack):
        trust.decide(tmp_path, public)


def test_keys_that_people_have_are_not_of_small_order(tmp_path: Path) -> None:
    trust = Trust(tmp_path / "trust.json")
    for seed in range(1, 20):
        public = key(seed).public
        assert times_eight(int.from_bytes(bytes.fromhex(public[8:]), "little") & (2**255 - 1)) != (0, 1)
        assert trust.add(f"key-{seed}", public)


def test_a_key_store_that_cannot_be_read_lets_in_only_what_is_asked_for_and_trusts_nobody(tmp_path: Path) -> None:
    trust = Trust(tmp_path / "trust.json")
    trust.add("me", key().public)
    trust.set_policy("allow-unsigned")
    trust.path.write_bytes(trust.path.read_bytes()[:-1])
    cases: list[tuple[str | None, Decision]] = [(None, "unsigned"), (key().public, "unknown-key")]
    for signed_by, decision in cases:
        with pytest.raises(UsageError, match="corrupt"):
            trust.decide(tmp_path, signed_by)
        assert trust.decide(tmp_path, signed_by, allow_unsigned=True) == Verdict(decision, signed_by)
