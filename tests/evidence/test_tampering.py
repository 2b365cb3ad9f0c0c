"""Every way to change a ledger, what finds it, with the place; and what only an anchor from elsewhere finds."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agentkv.errors import LedgerDamaged
from agentkv.evidence import Ledger, anchors, verify
from agentkv.evidence.files import FILE, HEAD
from agentkv.signing.keys import generate_key

from .making import filled, forge_head, lines, parsed, put, remade


def problems(folder: Path) -> list[tuple[str, int | None]]:
    return [(finding.problem, finding.line) for finding in verify(folder).findings]


@pytest.fixture
def ledger(tmp_path: Path) -> Ledger:
    return filled(tmp_path / "ledger")


def test_a_sound_ledger_has_no_finding(ledger: Ledger) -> None:
    report = verify(ledger.folder)
    assert (report.findings, report.torn, report.beyond, len(report.entries)) == ([], 0, 0, 13)


def test_a_changed_byte(ledger: Ledger) -> None:
    whole = lines(ledger.folder)
    put(ledger.folder, *whole[:2], whole[2].replace(b"It is 2.", b"It is 3."), *whole[3:])
    assert problems(ledger.folder) == [("changed", 3)]
    with pytest.raises(LedgerDamaged, match=r"ledger\.jsonl:3: a record was changed: its content"):
        ledger.runs()


def test_a_changed_record_with_its_digest_made_anew(ledger: Ledger) -> None:
    old = parsed(ledger.folder)
    old[2]["body"]["raw"]["value"]["text"] = "It is 3."
    new = remade(ledger.folder, old)
    put(ledger.folder, *lines(ledger.folder)[:2], new[2], *lines(ledger.folder)[3:])
    assert problems(ledger.folder) == [("forged", 4)]


@pytest.mark.parametrize("gone", [0, 1, 5, 11])
def test_a_dropped_record(ledger: Ledger, gone: int) -> None:
    whole = lines(ledger.folder)
    put(ledger.folder, *whole[:gone], *whole[gone + 1 :])
    assert ("missing", gone + 1) in problems(ledger.folder)


def test_swapped_records(ledger: Ledger) -> None:
    whole = lines(ledger.folder)
    put(ledger.folder, *whole[:4], whole[5], whole[4], *whole[6:])
    assert problems(ledger.folder)[:2] == [("missing", 5), ("order", 6)]


def test_a_duplicate(ledger: Ledger) -> None:
    whole = lines(ledger.folder)
    put(ledger.folder, *whole[:5], whole[4], *whole[5:])
    assert problems(ledger.folder) == [("duplicate", 6)]


def test_a_truncated_end(ledger: Ledger) -> None:
    whole = lines(ledger.folder)
    for cut in (whole[:-1], whole[:7], [*whole[:-1], whole[-1][:-1]], []):
        put(ledger.folder, *cut)
        assert problems(ledger.folder) == [("cut", None)]
    (ledger.folder / FILE).unlink()
    assert problems(ledger.folder) == [("cut", None)]


def test_a_forged_tail(ledger: Ledger) -> None:
    old = parsed(ledger.folder)
    old[-2]["body"]["scores"] = {"right": 2}
    put(ledger.folder, *remade(ledger.folder, old, first=11))
    assert problems(ledger.folder) == [("rewritten", 13)]
    longer = [*parsed(ledger.folder), old[1] | {"run": "a" * 16}]
    put(ledger.folder, *remade(ledger.folder, longer, first=11))
    assert problems(ledger.folder) == [("rewritten", 13)]


def test_without_its_own_anchor(ledger: Ledger) -> None:
    (ledger.folder / HEAD).unlink()
    assert problems(ledger.folder) == [("anchor", None)]


def test_a_wholly_remade_ledger_shows_only_by_an_anchor_from_elsewhere(ledger: Ledger, tmp_path: Path) -> None:
    anchor = ledger.head()
    assert anchor is not None
    key = generate_key(tmp_path / "key.pem")
    anchors.write(anchors.sign(anchor, key), tmp_path / "signed.json")
    given_ = [anchors.parse(anchor.text), anchors.parse(str(tmp_path / "signed.json"))]
    assert verify(ledger.folder, given_).findings == []
    old = parsed(ledger.folder)
    old[2]["body"]["raw"]["value"]["text"] = "It is 3."
    put(ledger.folder, *remade(ledger.folder, old))
    forge_head(ledger.folder)
    assert verify(ledger.folder).findings == []  # as the documentation says
    assert [finding.problem for finding in verify(ledger.folder, given_).findings] == ["rewritten", "rewritten"]
    anchors.write(anchors.sign(anchor, key), anchors.place_of(ledger.folder, anchor))
    assert problems(ledger.folder) == [("rewritten", 13)]


def test_an_anchor_with_another_signature_is_refused(ledger: Ledger, tmp_path: Path) -> None:
    anchor = ledger.head()
    assert anchor is not None
    signed = anchors.sign(anchor, generate_key(tmp_path / "mine.pem"))
    other = generate_key(tmp_path / "other.pem")
    assert signed.signature is not None
    forged = signed.model_copy(update={"signature": signed.signature.model_copy(update={"key": other.public})})
    path = anchors.place_of(ledger.folder, anchor)
    anchors.write(forged, path)
    with pytest.raises(LedgerDamaged, match="is not one of ed25519:"):
        anchors.read(path)
    assert problems(ledger.folder) == [("anchor", None)]
    weak = signed.signature.model_copy(update={"key": "ed25519:01" + "0" * 62})
    anchors.write(signed.model_copy(update={"signature": weak}), path)
    assert problems(ledger.folder) == [("anchor", None)]


def test_an_anchor_of_another_ledger(ledger: Ledger, tmp_path: Path) -> None:
    other = filled(tmp_path / "other").head()
    assert other is not None
    found = verify(ledger.folder, [anchors.parse(other.text)]).findings
    assert [finding.problem for finding in found] == ["rewritten"]


def test_records_that_cannot_stand_where_they_do(ledger: Ledger) -> None:
    """Chains that are right in every digest, and tell of runs that cannot have been."""

    def tried(change: Callable[[list[dict[str, Any]]], object]) -> list[str]:
        old = before[:]
        change(old)
        put(ledger.folder, *remade(ledger.folder, old))
        forge_head(ledger.folder)
        return [finding.what for finding in verify(ledger.folder).findings]

    before = parsed(ledger.folder)
    assert tried(lambda old: old.insert(6, old[0])) == ["record 6 of type ledger cannot stand here"]
    assert any("begins twice" in what for what in tried(lambda old: old.insert(3, old[1])))
    assert any("after its end" in what for what in tried(lambda old: old.append(old[2])))
    assert any("without its beginning" in what for what in tried(lambda old: old.pop(1)))
    assert any("ends with 2 items; 1 are here" in what for what in tried(lambda old: old.pop(2)))


# --- any byte -------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def everything(tmp_path_factory: pytest.TempPathFactory) -> dict[Path, bytes]:
    """A ledger with payload files, a set-aside line and a signed anchor: every file of it, and its bytes."""
    base = tmp_path_factory.mktemp("any-byte")
    ledger = filled(base / "ledger", payloads="files")
    head = (ledger.folder / HEAD).read_bytes()
    with (ledger.folder / FILE).open("ab") as file:
        file.write(b'{"body":{"unfin')
    assert (ledger.folder / HEAD).read_bytes() == head
    filled(base / "ledger", runs=1)
    anchor = ledger.head()
    assert anchor is not None
    anchors.write(anchors.sign(anchor, generate_key(base / "key.pem")), anchors.place_of(ledger.folder, anchor))
    return {
        path: path.read_bytes() for path in sorted(ledger.folder.rglob("*")) if path.is_file() and path.stat().st_size
    }


def _folder(files: dict[Path, bytes]) -> Path:
    return next(path.parent for path in files if path.name == FILE)


def test_all_kinds_of_files_are_among_those_changed(everything: dict[Path, bytes]) -> None:
    kinds = {path.relative_to(_folder(everything)).parts[0] for path in everything}
    assert kinds == {FILE, HEAD, "payloads", "anchors", "torn"}
    assert verify(_folder(everything)).findings == []


@settings(max_examples=400, deadline=None)
@given(st.data())
def test_any_single_changed_byte_is_found(everything: dict[Path, bytes], data: st.DataObject) -> None:
    path = data.draw(st.sampled_from(sorted(everything)), "file")
    before = everything[path]
    at = data.draw(st.integers(0, len(before) - 1), "byte")
    other = data.draw(st.integers(0, 255).filter(lambda value: value != before[at]), "value")
    path.write_bytes(before[:at] + bytes([other]) + before[at + 1 :])
    try:
        assert verify(_folder(everything)).findings
    finally:
        path.write_bytes(before)


@settings(max_examples=200, deadline=None)
@given(st.data())
def test_any_removed_or_added_byte_is_found(everything: dict[Path, bytes], data: st.DataObject) -> None:
    path = data.draw(st.sampled_from(sorted(everything)), "file")
    before = everything[path]
    at = data.draw(st.integers(0, len(before) - 1), "byte")
    new = data.draw(st.sampled_from([b"", before[at : at + 1] * 2, b"\n" + before[at : at + 1]]), "instead")
    path.write_bytes(before[:at] + new + before[at + 1 :])
    try:
        assert verify(_folder(everything)).findings
    finally:
        path.write_bytes(before)
