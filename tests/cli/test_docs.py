"""``agentkv docs``: add, list, status, find, ask, reindex, rm, on the fake engine."""

from __future__ import annotations

from pathlib import Path

import pytest

from agentkv import Cancellation
from agentkv.documents import Corpus

from .conftest import Run, error_of, record

GUIDE = (
    "# Shop\n\n## Returns\n\nReturns are accepted for 7 days.\n\n## Hours\n\nWe open at nine on weekdays. "
    "Returns are taken until five.\n"
)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    home = tmp_path / "docs"
    home.mkdir()
    (home / "guide.md").write_text(GUIDE)
    (home / "page.html").write_text("<h1>Pumps</h1><p>The pump holds 40&nbsp;litres.</p>")
    (home / "image.png").write_bytes(b"x")
    return home


@pytest.fixture
def added(run: Run, folder: Path) -> Run:
    assert run("docs", "add", folder, "--tokens", 128, "--overlap", 0).exit_code == 0
    return run


def test_add_shows_a_plan_then_works_then_has_nothing_to_do(run: Run, folder: Path) -> None:
    first = run("docs", "add", folder, "--tokens", 128, "--overlap", 0)
    assert "2 files (2 new)" in first.stderr
    assert "passed over, of unknown kind" in first.stderr
    (folder / "scan.pdf").write_bytes(b"%PDF-1.4\nendobj\n")
    assert "passed over: scan.pdf (a PDF)" in run("docs", "add", folder, "--dry-run").stderr
    assert "2 files in documents; 3 chunks prefilled" in first.stdout
    assert first.stdout.splitlines()[-1].endswith("3 of 3 chunks stored")
    again = record(run("docs", "add", folder, "--json"))
    assert (again["read"], again["unchanged"], again["new"], again["window"]) == (0, 2, [], 128)
    assert (again["stored"], again["windows"]) == (3, 3)


def test_a_dry_run_estimates_and_changes_nothing(run: Run, folder: Path, store: Path) -> None:
    (folder / "long.txt").write_text("Words about rivers. " * 100)
    new = record(run("docs", "add", folder, "--tokens", 128, "--overlap", 0, "--dry-run", "--json"))
    assert (new["dry_run"], len(new["new"]), new["stored"], Path(new["store"])) == (True, 3, 0, store)
    assert new["estimate"]["seconds"] > 0
    assert "nothing was changed" in run("docs", "add", folder, "--dry-run").stdout
    assert not store.exists()
    run("docs", "add", folder / "guide.md")
    result = record(run("docs", "add", folder, "--tokens", 128, "--overlap", 0, "--dry-run", "--json"))
    assert result["dry_run"]
    assert result["estimate"]["seconds"] > 0
    assert result["estimate"]["bytes"] > 0
    assert (result["read"], result["new"], result["changed"]) == (
        0,
        ["docs/long.txt", "docs/page.html"],
        ["docs/guide.md"],
    )
    assert record(run("docs", "list", "--json"))["corpora"][0]["files"] == 1


def test_a_bad_file_keeps_no_other_out(run: Run, folder: Path) -> None:
    (folder / "bad.txt").write_bytes(b"\0\xff\0")
    result = run("docs", "add", folder, "--lazy", "--json")
    assert error_of(result)["exit_code"] == 80
    assert record(result)["new"] == ["docs/guide.md", "docs/page.html"]
    assert [Path(item["path"]).name for item in record(result)["failed"]] == ["bad.txt"]


@pytest.mark.parametrize(
    "options", [("--lazy", "--eager"), ("--lazy", "--top", "2"), ("--tokens", "5"), ("--overlap", "900")]
)
def test_options_that_make_no_sense(run: Run, folder: Path, options: tuple[str, ...]) -> None:
    assert run("docs", "add", folder, *options).exit_code == 2


def test_a_path_that_is_not_there_stops_before_any_work(run: Run, folder: Path, store: Path) -> None:
    assert run("docs", "add", folder, folder / "absent").exit_code == 2
    assert not store.exists()


def test_ctrl_c_says_what_stays_and_the_same_command_goes_on(
    run: Run, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    carry_out = Corpus.carry_out

    def interrupted(self: Corpus, plan: object, **how: object) -> object:
        def on_chunk(*_: object) -> None:
            if self.shelf.stored():
                raise KeyboardInterrupt

        return carry_out(self, plan, **{**how, "on_chunk": on_chunk})  # type: ignore[arg-type]

    monkeypatch.setattr(Corpus, "carry_out", interrupted)
    result = run("docs", "add", folder, "--tokens", 128, "--overlap", 0)
    assert result.exit_code == 130
    assert "1 of 3 chunks were prefilled and stay" in result.stderr
    monkeypatch.undo()
    monkeypatch.setenv("AGENTKV_MODEL", "fake")
    assert isinstance(Cancellation(), Cancellation)


def test_list_and_status(added: Run, folder: Path) -> None:
    (corpus,) = record(added("docs", "list", "--json"))["corpora"]
    assert (corpus["name"], corpus["model"], corpus["files"], corpus["windows"], corpus["stored"]) == (
        "documents",
        "fake",
        2,
        3,
        3,
    )
    assert "documents" in added("docs", "list").stdout
    (folder / "guide.md").write_text("new")
    (folder / "page.html").unlink()
    found = record(added("docs", "status", "--json"))["documents"]
    assert [(item["path"], item["state"]) for item in found] == [
        ("docs/guide.md", "changed"),
        ("docs/page.html", "gone"),
    ]
    shown = added("docs", "status").stdout
    assert "changed" in shown
    assert "run `agentkv docs add`" in shown


@pytest.fixture
def slow(monkeypatch: pytest.MonkeyPatch, folder: Path) -> Path:
    """A folder that takes long to read."""
    (folder / "long.txt").write_text("".join(f"River {n} has {n} bridges. " for n in range(250)))
    monkeypatch.setattr("agentkv.documents.adding._MUCH_SECONDS", 0.0)
    return folder


def test_reading_that_takes_long_is_done_only_when_it_is_agreed_to(run: Run, slow: Path, store: Path) -> None:
    small = ("--tokens", 128, "--overlap", 0)
    refused = run("docs", "add", slow, *small, "--eager", "--json")
    error = error_of(refused)
    assert (error["exit_code"], error["type"]) == (84, "ReadingNotConfirmed")
    assert "--yes" in error["message"]
    assert record(run("docs", "list", "--json"))["corpora"] == []
    default = run("docs", "add", slow, *small)
    assert "so they are only indexed" in default.stderr
    (corpus,) = record(run("docs", "list", "--json"))["corpora"]
    assert (corpus["keep"], corpus["stored"]) == ("lazy", 0)
    agreed = record(run("docs", "add", slow, *small, "--eager", "--yes", "--json"))
    assert agreed["stored"] == agreed["corpus_windows"] > 40


@pytest.mark.parametrize("answer", [True, False])
def test_on_a_terminal_it_is_asked(run: Run, slow: Path, monkeypatch: pytest.MonkeyPatch, answer: bool) -> None:
    asked: list[str] = []

    def confirm(text: str, **_: object) -> bool:
        asked.append(text)
        return answer

    monkeypatch.setattr("agentkv.cli.docs_add.typer.confirm", confirm)
    monkeypatch.setattr("agentkv.cli.docs_add.is_terminal", lambda: True)
    result = run("docs", "add", slow, "--tokens", 128, "--overlap", 0, "--eager")
    assert "Go on?" in asked[0]
    assert result.exit_code == (0 if answer else 84)


def test_an_encoding_that_is_a_guess_is_told_and_listed(run: Run, folder: Path) -> None:
    text = "Договор вступает в силу с момента подписания. Неустойка составляет десять процентов.\n"
    (folder / "terms.txt").write_bytes(text.encode("koi8_r"))
    result = run("docs", "add", folder, "--lazy")
    assert "the encoding of a file is a guess: docs/terms.txt (koi8_r)" in result.stderr.replace("\n", " ")
    assert "koi8_r ?" in run("docs", "status").stdout
    assert "--encoding NAME" in run("docs", "status").stdout
    assert "десять" in record(run("docs", "find", "Неустойка", "--json"))["hits"][0]["text"]
    again = record(run("docs", "add", folder / "terms.txt", "--encoding", "cp1251", "--json"))
    assert (again["changed"], again["guessed"]) == (["docs/terms.txt"], [])
    (listed,) = [d for d in record(run("docs", "status", "--json"))["documents"] if d["path"] == "docs/terms.txt"]
    assert (listed["encoding"], listed["encoding_by"]) == ("cp1251", "given")
    assert run("docs", "add", folder, "--encoding", "nonsense").exit_code == 2


def test_a_format_that_is_not_read_is_refused_by_name(run: Run, folder: Path) -> None:
    (folder / "warranty.pdf").write_bytes(b"%PDF-1.4\n1 0 obj\nendobj\n%%EOF\n")
    error = error_of(run("docs", "add", folder / "warranty.pdf", "--json"))
    assert error["exit_code"] == 80
    assert "it is a PDF" in error["message"]
    assert "pdftotext" in error["message"]


def test_a_file_that_is_gone_is_retired_by_its_own_path(added: Run, folder: Path) -> None:
    (folder / "guide.md").unlink()
    assert record(added("docs", "add", folder / "guide.md", "--json"))["removed"] == ["docs/guide.md"]
    assert added("docs", "add", folder / "guide.md").exit_code == 2


def test_asking_about_a_file_that_has_changed(added: Run, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    question = "How long are returns accepted?"
    (folder / "guide.md").write_text(GUIDE.replace("7 days", "30 days"))
    old = added("docs", "ask", question, "-k", 1)
    assert "docs/guide.md has changed since it was added" in old.stderr.replace("\n", " ")
    assert "7 days" in old.stdout
    assert "quoted from the version that was added" in old.stdout
    answered = record(added("docs", "ask", question, "-k", 1, "--json"))
    assert answered["moved_on"] == ["docs/guide.md"]
    assert (answered["evidence"]["verified"], answered["evidence"]["origin"]) == (False, "changed")
    asked: list[str] = []

    def confirm(text: str, **_: object) -> bool:
        asked.append(text)
        return True

    monkeypatch.setattr("agentkv.cli.docs.typer.confirm", confirm)
    monkeypatch.setattr("agentkv.cli.docs.is_terminal", lambda: True)
    assert "7 days" in added("docs", "ask", question, "-k", 1, "--no-refresh").stdout
    assert asked == []
    new = added("docs", "ask", question, "-k", 1)
    assert asked == ["docs/guide.md changed: add again and ask once more?"]
    assert "30 days" in new.stdout
    (folder / "guide.md").write_text(GUIDE.replace("7 days", "60 days"))
    flag = record(added("docs", "ask", question, "-k", 1, "--refresh", "--json"))
    assert "60 days" in flag["evidence"]["quote"]
    assert (flag["evidence"]["verified"], flag["moved_on"]) == (True, [])


def test_find(added: Run) -> None:
    found = record(added("docs", "find", "how long are returns accepted", "-k", 1, "--json"))["hits"]
    assert [(hit["path"], hit["heading"], hit["start"]) for hit in found] == [("docs/guide.md", "Shop", 0)]
    shown = added("docs", "find", "how long are returns accepted").stdout
    assert "1. docs/guide.md, bytes 0 to" in shown
    assert "no chunk has any of these words: zzzz" in added("docs", "find", "zzzz").stdout
    assert added("docs", "find", " ").exit_code == 2
    ranked = record(added("docs", "find", "returns open", "--rerank", 3, "--model", "fake", "--json"))["hits"]
    assert {hit["method"] for hit in ranked} == {"likelihood"}
    ranked = record(added("docs", "find", "returns open", "--embedder", "fake", "--json"))["hits"]
    assert {hit["method"] for hit in ranked} == {"bm25+embedding"}


def test_ask(added: Run, folder: Path) -> None:
    result = record(added("docs", "ask", "How long are returns accepted?", "-k", 2, "--votes", "--json"))
    assert len(result["attempts"]) == 2
    for attempt in result["attempts"]:
        evidence = attempt["evidence"]
        assert evidence is None or evidence["verified"]
        assert attempt["tokens"]["restored"] > 0
        assert not attempt["read_now"]
    shown = added("docs", "ask", "How long are returns accepted?", "-k", 1)
    assert "tokens:" in shown.stderr
    meant = record(added("docs", "ask", "How long are returns accepted?", "--embedder", "fake", "--json"))
    assert meant["attempts"][0]["method"] == "bm25+embedding"
    both = record(added("docs", "ask", "How long are returns accepted?", "-k", 2, "--together", "--json"))
    assert len(both["attempts"]) == 1
    assert both["attempts"][0]["tokens"]["prefilled"] > 100
    how = ("How long are returns accepted?", "-k", 1, "--answer-from")
    (whole,) = record(added("docs", "ask", *how, "chunk", "--json"))["attempts"]
    assert whole["answer"] in (whole["draft"], None)
    assert "chunk" in added("docs", "ask", *how, "elsewhere").stderr
    cut = added("docs", "ask", *how, "chunk", "--max-new", 3)
    (short,) = record(added("docs", "ask", *how, "chunk", "--max-new", 3, "--json"))["attempts"]
    assert short["cut_at"] == (3 if short["answer"] else 0)
    assert ("… cut at 3 tokens (--max-new)" in cut.stderr) == bool(short["answer"])
    assert whole["cut_at"] == 0
    assert added("docs", "ask", "zzzz").stdout == "no chunk has any of these words: zzzz\n"


def test_a_corpus_that_is_not_there(added: Run) -> None:
    for command in (("ask", "x"), ("find", "x"), ("status",), ("reindex",), ("rm", "--all")):
        error = error_of(added("docs", *command, "--corpus", "other", "--json"))
        assert error["exit_code"] == 81
        assert "documents" in error["message"]


def test_reindex(added: Run, store: Path) -> None:
    for file in (store / "documents" / "index").iterdir():
        file.write_bytes(b"junk")
    assert record(added("docs", "reindex", "--json"))["windows"] == 3
    assert record(added("docs", "find", "returns", "--json"))["hits"]


def test_an_embedding_index(added: Run, folder: Path) -> None:
    made = added("docs", "reindex", "--embedder", "fake")
    assert "3 chunks indexed, 3 of them new to the embedding index, in" in made.stdout
    again = record(added("docs", "reindex", "--embedder", "fake", "--json"))
    assert (again["windows"], again["embedded"]) == (3, 0)
    assert list(record(added("docs", "status", "--json"))["embedding_indexes"].values()) == [3]
    (folder / "more.md").write_text("# More\n\nBicycles are mended on Fridays.\n")
    added("docs", "add", folder)
    assert "3 of 4 chunks; `agentkv docs reindex --embedder" in added("docs", "status").stdout.replace("\n", " ")
    added("docs", "rm", str(folder / "more.md"))
    more = added("docs", "add", folder, "--embedder", "fake")
    assert "; 4 of 4 chunks stored; 1 chunk embedded" in more.stdout.replace("\n", " ")
    (first, *_) = record(added("docs", "find", "bicycle mending", "--embedder", "fake", "--json"))["hits"]
    assert first["path"] == "docs/more.md"
    assert record(added("docs", "add", folder, "--json"))["embedded"] is None


def test_rm(added: Run) -> None:
    assert added("docs", "rm").exit_code == 2
    assert added("docs", "rm", "docs/guide.md", "--all").exit_code == 2
    one = record(added("docs", "rm", "docs/guide.md", "--json"))
    assert (one["files"], one["blocks"]) == (1, 2)
    assert one["freed_bytes"] > 0
    assert "1 file and 1 stored chunk removed" in added("docs", "rm", "--all", "--yes").stdout
    assert record(added("docs", "list", "--json"))["corpora"] == []
    assert "no documents yet" in added("docs", "list").stdout


def test_documents_are_no_candidates_of_the_router(added: Run) -> None:
    assert record(added("list", "--json"))["blocks"] == []
    assert added("check").exit_code == 0


def test_rm_asks_for_what_was_not_named_or_is_nowhere_else(added: Run, folder: Path) -> None:
    for paths in (("--all",), ("docs",)):
        result = added("docs", "rm", *paths)
        assert (result.exit_code, "--yes" in result.stderr) == (56, True)
    (folder / "guide.md").write_text("changed since")
    result = added("docs", "rm", "docs/guide.md")
    assert (result.exit_code, "kept nowhere else" in result.stderr) == (56, True)
    assert added("docs", "rm", "docs/guide.md", "--yes").exit_code == 0
    assert added("docs", "rm", "docs/nothing.md").exit_code == 2
