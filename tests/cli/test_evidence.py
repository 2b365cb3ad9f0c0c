"""``agentkv evidence``: list, show, verify, score, head; and the benchmarks that record into a ledger."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import orjson
import pytest

from agentkv.evidence import Ledger
from agentkv.evidence.files import FILE
from tests.benchmarks.answers import Answers
from tests.evidence.making import filled, forge_head, lines, parsed, put, remade

from .conftest import Run, error_of, manual, record


@pytest.fixture
def evaluated(run: Run, tmp_path: Path) -> Path:
    """A ledger with a run of ``route evaluate``."""
    (tmp_path / "tools.json").write_text('{"csv": "Reads tables.", "mail": "Sends letters."}')
    asked = ['{"query": "read this table", "tool": "csv"}', '{"query": "zzzz", "tool": null}']
    asked.append('{"query": "send a table of letters", "tool": "mail"}')
    (tmp_path / "q.jsonl").write_text("\n".join(asked))
    files = (tmp_path / "q.jsonl", "--tools", tmp_path / "tools.json", "--classifier", "lexical", "--sizes", "2,5")
    done = run("route", "evaluate", *files, "--ledger", tmp_path / "ledger", "--json")
    assert done.exit_code == 0
    (tmp_path / "result.json").write_text(done.stdout)
    return tmp_path / "ledger"


def test_route_evaluate_is_scored_again_without_a_model(run: Run, evaluated: Path, tmp_path: Path) -> None:
    result = orjson.loads((tmp_path / "result.json").read_bytes())
    found = record(run("evidence", "score", result["ledger_run"], "--ledger", evaluated, "--json"))
    assert (found["equal"], found["kind"], found["version"]) == (True, "route evaluate", 1)
    assert found["computed"]["sizes"] == result["sizes"]
    assert [row["right"]["n"] for row in found["computed"]["sizes"]] == [2, 2]


def test_bent_scores_end_with_83(run: Run, evaluated: Path) -> None:
    old = parsed(evaluated)
    assert old[-2]["type"] == "scores"
    old[-2]["body"]["scores"]["sizes"][0]["right"]["k"] += 1
    put(evaluated, *remade(evaluated, old))
    forge_head(evaluated)
    assert run("evidence", "verify", "--ledger", evaluated).exit_code == 0
    refused = run("evidence", "score", "last", "--ledger", evaluated, "--json")
    assert error_of(refused)["type"] == "ScoreMismatch"
    assert record(refused)["differences"][0].startswith("sizes[0].right.k: reported ")


def test_answers_are_scored_again_without_a_model(run: Run, skills: Path, tmp_path: Path) -> None:
    (skills / "uncovered.jsonl").write_text('{"query": "qqqq", "skill": null}\n')
    manual(skills, "third", "No question here.")
    benchmark = Answers(model="fake", skills=skills)
    benchmark.ledger = ledger = Ledger(tmp_path / "ledger")
    result: dict[str, Any] = benchmark.run()
    assert result["summary"]["answered"]["n"] == 2
    assert result["summary"]["identical"]["k"] == 2
    found = record(run("evidence", "score", result["ledger_run"], "--ledger", ledger.folder, "--json"))
    assert (found["equal"], found["computed"]) == (True, result["summary"])
    item = ledger.items(ledger.find("last"))[0]
    assert item.tokens == result["raw"][0]["tokens"]
    assert (item.tokens or {})["restored"] > 0


def test_list_and_show(run: Run, evaluated: Path) -> None:
    (found,) = record(run("evidence", "list", "--ledger", evaluated, "--json"))["runs"]
    assert (found["kind"], found["items"], found["status"]) == ("route evaluate", 6, "finished")
    assert set(found["inputs"]) == {"questions", "tools", "model"}
    assert "route evaluate/1" in run("evidence", "list", "--ledger", evaluated).stdout
    shown = run("evidence", "show", found["run"][:5], "--ledger", evaluated).stdout
    assert "source tree" in shown
    assert "read this table" not in shown
    whole = record(run("evidence", "show", "last", "--items", "--ledger", evaluated, "--json"))
    assert whole["raw_items"][0]["expected"]["value"]["query"] == "read this table"
    assert error_of(run("evidence", "show", "zz", "--ledger", evaluated, "--json"))["exit_code"] == 101


def test_verify_tells_the_place_and_ends_with_100(run: Run, tmp_path: Path) -> None:
    ledger = filled(tmp_path / "ledger")
    sound = run("evidence", "verify", "--ledger", ledger.folder)
    assert "13 records: every byte is as it was written" in sound.stdout
    assert "no anchor from elsewhere" in sound.stdout
    put(ledger.folder, *lines(ledger.folder)[:3], *lines(ledger.folder)[4:])
    broken = run("evidence", "verify", "--ledger", ledger.folder, "--json")
    assert error_of(broken)["exit_code"] == 100
    assert record(broken)["findings"] == [
        {"problem": "missing", "what": "record 3 is missing after line 3", "line": 4, "seq": 4}
    ]
    for command in (("list",), ("show", "last"), ("score", "last"), ("head",)):
        assert run("evidence", *command, "--ledger", ledger.folder).exit_code == 100


def test_head_signs_and_verify_demands_the_key(run: Run, tmp_path: Path) -> None:
    ledger = filled(tmp_path / "ledger")
    public = record(run("pack", "keygen", tmp_path / "key.pem", "--json"))["public_key"]
    other = record(run("pack", "keygen", tmp_path / "other.pem", "--json"))["public_key"]
    unsigned = run("evidence", "verify", "--ledger", ledger.folder, "--key", public, "--json")
    assert error_of(unsigned)["exit_code"] == 2
    signed = record(run("evidence", "head", "--ledger", ledger.folder, "--sign", tmp_path / "key.pem", "--json"))
    assert (signed["count"], signed["signed_by"], len(signed["files"])) == (13, public, 1)
    assert run("evidence", "verify", "--ledger", ledger.folder, "--key", public).exit_code == 0
    assert run("evidence", "verify", "--ledger", ledger.folder, "--key", other).exit_code == 2
    filled(ledger.folder, runs=1)
    checked = record(run("evidence", "verify", "--ledger", ledger.folder, "--anchor", signed["anchor"], "--json"))
    assert [known["holds"] for known in checked["anchors"]] == [True, True, True]
    out = tmp_path / "anchor.json"
    assert run("evidence", "head", "--ledger", ledger.folder, "--out", out).stdout.startswith("agentkv-ledger:")
    put(ledger.folder, *remade(ledger.folder, parsed(ledger.folder)[:-1]))
    forge_head(ledger.folder)
    assert run("evidence", "verify", "--ledger", ledger.folder).exit_code == 0
    assert run("evidence", "verify", "--ledger", ledger.folder, "--anchor", out).exit_code == 100


def test_no_ledger_and_no_anchor(run: Run, tmp_path: Path) -> None:
    for command in (("list",), ("verify",), ("head",), ("score", "last")):
        assert error_of(run("evidence", *command, "--ledger", tmp_path / "none", "--json"))["exit_code"] == 2
    ledger = filled(tmp_path / "ledger")
    for text in ("agentkv-ledger:12", str(tmp_path / "none.json")):
        refused = run("evidence", "verify", "--ledger", ledger.folder, "--anchor", text, "--json")
        assert error_of(refused)["exit_code"] == 2


def test_an_unfinished_line_is_shown_and_is_no_damage(run: Run, tmp_path: Path) -> None:
    ledger = filled(tmp_path / "ledger")
    with (ledger.folder / FILE).open("ab") as file:
        file.write(b'{"body"')
    shown = run("evidence", "verify", "--ledger", ledger.folder)
    assert shown.exit_code == 0
    assert "an unfinished last line of 7 bytes" in shown.stdout
