"""A person's words out of every file of a store: what was there, what goes, what stays, and the proof."""

from __future__ import annotations

import gzip
import os
import shutil
import time
import unicodedata
from datetime import UTC, datetime
from pathlib import Path

import orjson
import pytest
from langchain_agentkv import AgentKVCache, AgentKVStore
from langchain_core.outputs import Generation

from agentkv import AgentMemory, BlockStore, FakeEngine
from agentkv.blocks.turnlog import TurnLog
from agentkv.documents import Corpus
from agentkv.engine.prompt import Message
from agentkv.errors import UsageError
from agentkv.evidence import Ledger
from agentkv.forget import Selection, forget
from agentkv.forget.selection import Words
from agentkv.memory.threadlog import REDACTED
from agentkv.records import Import
from agentkv.router.evaluate import Labelled
from agentkv.router.log import DecisionLog

SECRET = "Zoë Quartz-Ibsen"
PLAIN = "The shop opens at nine and closes at five."


def engine() -> FakeEngine:
    return FakeEngine(replies=lambda prompt: "Noted, thank you.", window=8192)


def readable(root: Path, text: str = SECRET) -> list[str]:
    """The files below a folder that hold a text in any of its usual forms."""
    words, found = Words([text]), []
    for path in sorted(root.rglob("*")):
        if path.is_file() and words.are_in_bytes(path.read_bytes()):
            found.append(str(path.relative_to(root)))
    return found


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A store in which somebody's name is in every kind of file."""
    root = tmp_path / "store"
    docs = tmp_path / "docs"
    docs.mkdir()
    (docs / "staff.txt").write_text(f"Our staff: {SECRET} keeps the keys of the gate. " * 30)
    (docs / "hours.txt").write_text(f"{PLAIN} " * 30)
    with AgentMemory(root, engine()) as memory:
        memory.deposit_text("shop", PLAIN, "When the shop opens.")
        memory.deposit_text("staff", f"{SECRET} is the keeper.", "Who works here.")
        memory.learn([Labelled(f"Is {SECRET} there?", "staff"), Labelled("When does the shop open?", "shop")] * 6)
        talk = memory.thread("talk")
        talk.ask("When does the shop open?", skill="shop", max_new=20)
        talk.ask(f"I am {SECRET.upper()}, remember me.", max_new=20)
        talk.ask("And on Sundays?", max_new=20)
        memory.thread("other").ask("What is for lunch today, please?", skill=None, max_new=20)
        memory.ask([Message("user", f"A loose one of {SECRET}")], skill=None, keep=True, max_new=20)
        memory.route(f"Where is {unicodedata.normalize('NFD', SECRET)}?")
        Corpus(memory, "docs", chunk_tokens=256, overlap=16).add([docs])
        Corpus(memory, "docs").find("keys")
    items = AgentKVStore(root)
    items.put(("memories", "zoë"), "name", {"text": f"Her name is {SECRET}"})
    items.put(("memories", "zoë"), "tea", {"text": "She drinks her tea without any milk"})
    items.put(("memories", "ada"), "cat", {"text": "The cat is called Byron the second"})
    cache = AgentKVCache(root)
    cache.update(f"prompt of {SECRET}", "llm", [Generation(text=f"Hello {SECRET}")])
    cache.update("prompt of nobody", "llm", [Generation(text="Hello")])
    (root / "quarantine").mkdir(exist_ok=True)
    (root / "quarantine" / "aside").write_text(f"once {SECRET}")
    return root


def test_the_words_are_in_every_kind_of_file_before(root: Path) -> None:
    kinds = {path.split("/")[0] for path in readable(root)}
    assert kinds >= {"threads", "decisions", "adapters", "documents", "texts", "quarantine", "router"}


def test_a_text_goes_from_every_file_and_the_rest_stays(root: Path) -> None:
    with BlockStore(root) as store:
        rehearsal = forget(store, Selection(text=SECRET), engine=engine(), dry_run=True)
        before = {path: path.read_bytes() for path in root.rglob("*") if path.is_file() and path.suffix != ".lock"}
        assert all(path.read_bytes() == data for path, data in before.items() if "uses" not in path.name)
        report = forget(store, Selection(text=SECRET), engine=engine())
        assert report.removed == rehearsal.removed
    assert report.remaining == []
    assert readable(root) == []
    assert (report.files, report.n_bytes > 0) == (len([p for p in root.rglob("*") if p.is_file()]), True)
    kinds = {kind for kind, number in report.removed.items() if number}
    assert kinds >= {"turns", "decisions", "documents", "names", "blocks", "rows", "left-over files"}
    with AgentMemory(root, engine()) as memory:
        assert [named.name for named in memory.names()] == ["shop"]
        talk = memory.thread("talk")
        assert [turn.question for turn in talk.turns] == ["When does the shop open?", REDACTED, "And on Sundays?"]
        assert talk.ask("And now?", max_new=20).text
        assert memory.thread("other").turns[0].question == "What is for lunch today, please?"
        corpus = Corpus(memory, "docs")
        assert [hit.path for hit in corpus.find("shop", 1)] == ["docs/hours.txt"]
        assert corpus.find("keys") == []
        assert not memory.store.check().damage
    items = AgentKVStore(root)
    assert {item.key for item in items.search(("memories",))} == {"tea", "cat"}
    assert items.search(("memories",), query="tea", limit=1)[0].key == "tea"
    assert AgentKVCache(root).lookup("prompt of nobody", "llm")


def test_without_a_model_it_is_said_that_token_ids_were_not_read(root: Path) -> None:
    with BlockStore(root) as store:
        report = forget(store, Selection(text=SECRET))
        assert any("--model" in reason for reason in report.could_not)
        assert readable(root) == []
        again = forget(store, Selection(text=SECRET), engine=engine())
        assert again.removed["blocks"] > 0, "the conversation that no thread tells of"
        assert again.removed.total() == again.removed["blocks"]
        assert forget(store, Selection(text=SECRET), engine=engine()).removed.total() == 0


def test_token_ids_are_found_across_the_border_of_two_blocks(tmp_path: Path) -> None:
    with AgentMemory(tmp_path / "store", engine()) as memory:
        first = memory.blocks.deposit([*b"My name is Quar"]).manifest
        second = memory.blocks.deposit([*b"tz and I am well"], parent=first).manifest
        memory.blocks.deposit([*b", as ever"], parent=second)
        report = forget(memory.store, Selection(text="quartz"), engine=engine())
        assert report.removed["blocks"] == 2
        assert list(memory.store.block_ids()) == [first.block_id]


def test_a_thread_goes_with_its_decisions_and_its_own_states(root: Path) -> None:
    with BlockStore(root) as store:
        blocks = len(list(store.block_ids()))
        report = forget(store, Selection(thread="other"))
        assert (report.removed["threads"], report.removed["turns"]) == (1, 1)
        assert len(list(store.block_ids())) < blocks
        assert readable(root, "lunch today") == []
        assert readable(root), "nothing else was touched"
        assert forget(store, Selection(thread="other")).removed.total() == 0


def test_a_user_is_a_label_of_a_namespace_and_a_part_of_a_threads_name(root: Path) -> None:
    with AgentMemory(root, engine()) as memory:
        for name in ("zoë", "user:zoë", "zoë/7", "zoëlla"):
            memory.thread(name).ask(f"I like long walks, says {name}", skill=None, max_new=8)
        report = forget(memory.store, Selection(user="zoë"))
        assert report.removed["threads"] == 3
        assert memory.threads() == ["other", "talk", "zoëlla"]
    items = AgentKVStore(root)
    assert {item.key for item in items.search(("memories",))} == {"cat"}
    assert readable(root, "tea without any milk") == []
    assert readable(root, "I like long walks, says zoë/7") == []


def test_what_is_older_goes_and_what_is_newer_stays(root: Path) -> None:
    old = time.time() - 90 * 86_400
    with BlockStore(root) as store:
        (folder,) = [p for p in (root / "threads").iterdir() if len(list(p.iterdir())) == 3]
        for seq in (1, 2):
            os.utime(folder / f"{seq:08}.json", (old, old))
        report = forget(store, Selection(before=datetime.fromtimestamp(old + 60, UTC)))
        assert report.removed["turns"] == 2
        assert report.removed["threads"] == 0
    with AgentMemory(root, engine()) as memory:
        assert [turn.question for turn in memory.thread("talk").turns] == [REDACTED, REDACTED, "And on Sundays?"]
    with BlockStore(root) as store:
        forget(store, Selection(before=datetime.now(UTC)))
        assert list(memory.decisions.read()) == []
        assert list(TurnLog(store.root).read()) == []
        assert AgentKVStore(root).search(("memories",)) == []
    assert {p.split("/")[0] for p in readable(root)} <= {"texts", "names", "documents", "router"}


def test_payloads_of_a_ledger_go_and_inline_lines_are_told(tmp_path: Path) -> None:
    folders = {mode: tmp_path / mode for mode in ("files", "inline")}
    for mode, folder in folders.items():
        ledger = Ledger(folder, payloads=mode)  # type: ignore[arg-type]
        with ledger.run("answers") as run:
            run.record("a", f"an answer about {SECRET}")
            run.record("b", "an answer about nobody")
    with BlockStore(tmp_path / "store") as store:
        report = forget(store, Selection(text=SECRET), ledgers=list(folders.values()))
    assert report.removed["ledger payloads"] == 1
    assert readable(folders["files"]) == []
    assert readable(folders["inline"]) == ["ledger.jsonl"]
    assert any("chained" in reason for reason in report.could_not)
    assert any("digests of 1 payloads stay" in reason for reason in report.could_not)


def test_a_solution_goes_with_its_task_and_standing(root: Path) -> None:
    task, other, solution = "a" * 64, "b" * 64, "c" * 64
    for kind, name, body in (
        ("tasks", task, {"prompt": f"Write to {SECRET}"}),
        ("standings", task, {"live": solution}),
        ("solutions", solution, {"task_id": task, "text": "a letter"}),
        ("tasks", other, {"prompt": "Add two numbers"}),
        ("solutions", other, {"task_id": other, "text": "a sum"}),
    ):
        path = root / "flywheel" / kind / name[:2] / f"{name}.json"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(b"agentkv 1\n" + orjson.dumps(body))
    with BlockStore(root) as store:
        assert forget(store, Selection(text=SECRET)).removed["solutions and tasks"] == 3
    assert {path.stem for path in (root / "flywheel").rglob("*.json")} == {other}


def test_blocks_of_packs_go_and_it_is_said_that_the_pack_stays(root: Path) -> None:
    with BlockStore(root) as store:
        named = next(named for named in store.names() if named.name == "staff")
        record = Import(block_id=named.block_id, pack_sha256="0" * 64, signed_by=None, decision="unsigned")
        store.set_import(record)
        report = forget(store, Selection(text=SECRET))
        assert not store.exists(named.block_id)
    assert any("came in packs" in reason for reason in report.could_not)


def test_a_file_that_still_holds_words_is_named(root: Path) -> None:
    (root / "notes.txt").write_text(f"a copy of {SECRET}")
    with BlockStore(root) as store:
        report = forget(store, Selection(text=SECRET), engine=engine())
    assert report.remaining == [str(root / "notes.txt")]
    assert (root / "notes.txt").exists(), "no file of the store's own"


@pytest.mark.parametrize(
    ("text", "data", "found"),
    [
        ("Zoë", "zoe\u0308 was here".encode(), True),
        ("zoë", b'{"name": "ZO\\u00cb"}', True),
        ("line\nbreak", b'{"a": "line\\nbreak"}', True),
        ('say "hi"', b'{"a": "say \\"hi\\""}', True),
        ("STRASSE 7", "Straße 7".encode(), True),
        ("\U0001f600 ok", b'"\\ud83d\\ude00 ok"', True),
        ("ann", b"bob", False),
        ("Ada Lovelace", b"a note by Ada\r\n  Lovelace of 1843", True),
        ("Ada Lovelace", b'{"a": "Ada\\n\\tLovelace"}', True),
        ("Ada Lovelace", "Ada\u00a0Lovelace".encode(), True),
        ("Ada\nLovelace", b"Ada Lovelace", True),
        ("Ada Lovelace", b"AdaLovelace", False),
        ("Lovelace", b"of Love-\n  lace", True),
        ("Ibsen-Ada", b"of Ibsen-\nAda", True),
        ("Lovelace", "Love\u00adlace, Lo\u200bve".encode(), True),
        ("Müller", b"M&uuml;ller", True),
        ("القسط", "القِسْط".encode(), True),
        ("C:\\new", b'{"a": "C:\\\\new"}', True),
        ("José", b"Jose", False),
    ],
)
def test_words_are_found_in_every_form(text: str, data: bytes, found: bool) -> None:
    assert Words([text]).are_in_bytes(data) is found


@pytest.mark.parametrize(
    ("name", "data"),
    [
        ("old.txt", "Der Schlüssel liegt bei Frau Müller-Öz, wie gehabt. ".encode("latin-1") * 9),
        ("wide.txt", "Der Schlüssel liegt bei Frau Müller-Öz. ".encode("utf-16")),
        ("packed.txt.gz", gzip.compress("Bei Frau Müller-Öz liegt er. ".encode() * 9, mtime=0)),
        ("bold.html", b"<p>Der Schl&uuml;ssel ist bei M&uuml;ller-<b>&Ouml;z</b>.</p>"),
        ("wrapped.md", "Der Schlüssel liegt\nbei Frau Müller-\nÖz.\n".encode()),
    ],
)
def test_a_document_goes_whatever_its_encoding(tmp_path: Path, name: str, data: bytes) -> None:
    (tmp_path / "docs").mkdir()
    (tmp_path / "docs" / name).write_bytes(data)
    (tmp_path / "docs" / "hours.txt").write_text(PLAIN)
    with AgentMemory(tmp_path / "store", engine()) as memory:
        corpus = Corpus(memory, "docs", chunk_tokens=256, overlap=16)
        corpus.add([tmp_path / "docs"], encoding="latin-1" if name == "old.txt" else None)
        digests = set(corpus.shelf.sources.digests())
        report = forget(memory.store, Selection(text="müller-öz"))
        assert (report.removed["documents"], report.remaining) == (1, [])
        assert len(set(corpus.shelf.sources.digests()) & digests) == 1
        assert [hit.path for hit in corpus.find("Schlüssel nine")] == ["docs/hours.txt"]


def test_the_words_of_a_format_are_no_words_of_a_person(root: Path) -> None:
    with BlockStore(root) as store:
        for word in ("question", "classifier", "fingerprint_id"):
            looked = forget(store, Selection(text=word), dry_run=True)
            assert (looked.removed["decisions"], looked.removed["turn log lines"], looked.removed["turns"]) == (0, 0, 0)
        assert forget(store, Selection(text="staff"), dry_run=True).removed["decisions"] == len(
            list(DecisionLog(root / "decisions").read())
        ), "a skill that is called so was a candidate"
        with pytest.raises(UsageError, match="not a ledger"):
            forget(store, Selection(text=SECRET), ledgers=[root])


def test_a_selection_is_one_thing_and_not_everything() -> None:
    for wrong in ({}, {"text": "a", "user": "b"}, {"text": " "}, {"user": ""}):
        with pytest.raises(UsageError):
            Selection(**wrong)  # type: ignore[arg-type]


def test_it_can_be_done_again_after_a_crash_in_the_middle(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    copy = root.with_name("copy")
    for step in ("_documents", "_remove_blocks", "_lines", "_leftovers", "_check"):
        shutil.copytree(root, copy)
        with monkeypatch.context() as patched, BlockStore(copy) as store:
            patched.setattr(f"agentkv.forget.forgetting.Forgetting.{step}", lambda _: (_ for _ in ()).throw(KeyError))
            with pytest.raises(KeyError):
                forget(store, Selection(text=SECRET), engine=engine())
        with BlockStore(copy) as store:
            assert not store.check().damage
            assert forget(store, Selection(text=SECRET), engine=engine()).remaining == []
            assert readable(copy) == []
        shutil.rmtree(copy)
