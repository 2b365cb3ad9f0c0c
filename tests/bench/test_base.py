"""One declared benchmark: its command's options, its figures, one list of columns for the terminal and for Markdown."""

from __future__ import annotations

import json
from dataclasses import MISSING, dataclass
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from agentkv.bench import BENCHMARKS
from agentkv.bench.base import Benchmark, Column, Row, Table, load, option, records, rows_of, small_option
from agentkv.bench.measured import Raw, rescore
from agentkv.bench.results import read
from agentkv.cli.bench import command
from agentkv.cli.command import App
from agentkv.errors import GuaranteeViolated
from agentkv.evidence import Item


@dataclass(frozen=True, kw_only=True)
class Settings:
    sizes: tuple[int, ...] = option((3, 4), "Sizes.", metavar="N,N,…", small=(2,))
    words: tuple[str, ...] = option((), "Words.", name="word")
    times: int = option(2, "Factor.", least=1, small=1)
    folder: Path | None = option(None, "Where.", metavar="DIR")
    small: bool = small_option()
    hidden: int = 7


class Seen(Row):
    n: int
    times: int


class Product(Row):
    n: int
    product: int


class Products(Benchmark[Settings]):
    """Multiplies."""

    name = "a test of the base"
    tables = (
        Table(
            rows_of(Product, "rows"),
            (Column("n", lambda row: f"{row.n}"), Column("product", lambda row: f"{row.product} ×", left=True)),
            name="products",
            published=lambda row: row.n > 3,
        ),
    )

    def run(self) -> dict[str, Any]:
        raw = {f"size/{n}": {"n": n, "times": self.settings.times} for n in self.settings.sizes}
        return self.result(
            raw, model="none", inputs=list(self.settings.words), settings={"hidden": self.settings.hidden}
        )

    @staticmethod
    def figures(raw: Raw) -> dict[str, Any]:
        rows = records(Seen, raw, "size/")
        return {"rows": [Product(n=seen.n, product=seen.n * seen.times).model_dump() for seen in rows]}

    @staticmethod
    def check(result: dict[str, Any]) -> None:
        if any(row["product"] > 100 for row in result["rows"]):
            raise GuaranteeViolated("too large")


@pytest.fixture(scope="module")
def app() -> App:
    made = App(add_completion=False)
    made.command("products")(command(Products))
    return made


def ran(app: App, *arguments: str) -> dict[str, Any]:
    done = CliRunner().invoke(app, [*arguments, "--json"])
    assert done.exit_code == 0, done.output
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def test_options_come_from_the_settings(app: App) -> None:
    assert ran(app)["rows"] == [{"n": 3, "product": 6}, {"n": 4, "product": 8}]
    assert ran(app, "--small")["rows"] == [{"n": 2, "product": 2}]
    assert ran(app, "--small", "--sizes", "5, 6", "--times", "3")["rows"] == [
        {"n": 5, "product": 15},
        {"n": 6, "product": 18},
    ]
    assert ran(app, "--word", "a", "--word", "b")["inputs_sha256"] != ran(app)["inputs_sha256"]
    for wrong in (("--times", "0"), ("--hidden", "1")):
        assert CliRunner().invoke(app, wrong).exit_code == 2
    assert CliRunner().invoke(app, ["--times", "99"]).exit_code == 60


@dataclass(frozen=True, kw_only=True)
class Given:
    place: str = option(MISSING, "Where.")
    count: int = option(3, "How many.", short="-c")
    plain: bool = option(True, "Plainly.")


class Echo(Benchmark[Given]):
    """Says what it was given."""

    name = "an echo"

    def run(self) -> dict[str, Any]:
        return self.result({"given": self.recorded()}, model="none", inputs=[], settings={})

    @staticmethod
    def figures(raw: Raw) -> dict[str, Any]:
        return dict(raw["given"])

    @staticmethod
    def check(result: dict[str, Any]) -> None:
        pass


def test_an_option_without_default_has_to_be_given_and_a_switch_that_is_on_can_be_turned_off() -> None:
    app = App(add_completion=False)
    app.command("echo")(command(Echo))
    assert CliRunner().invoke(app, []).exit_code == 2
    found = ran(app, "--place", "here")
    assert (found["place"], found["count"], found["plain"]) == ("here", 3, True)
    found = ran(app, "--place", "there", "-c", "5", "--no-plain")
    assert (found["place"], found["count"], found["plain"]) == ("there", 5, False)


def test_a_ledger_records_the_options_but_no_place() -> None:
    recorded = Products(folder=Path("here"), sizes=(1,), hidden=8).recorded()
    assert recorded == {"sizes": [1], "words": [], "times": 2, "small": False}


def test_one_list_of_columns_makes_both_tables(app: App, tmp_path: Path) -> None:
    shown = CliRunner().invoke(app, ["--out", str(tmp_path / "r.json")]).stdout.splitlines()
    assert [line.split() for line in shown[:3]] == [["n", "product"], ["3", "6", "×"], ["4", "8", "×"]]
    data = read(tmp_path / "r.json").data
    assert rescore(data) == []
    (table,) = Products.tables
    assert table.markdown([data, data]).splitlines() == [
        "| model | n | product |",
        "|---|---|---|",
        "| none | 4 | 8 × |",
        "| none | 4 | 8 × |",
    ]


@dataclass(frozen=True, kw_only=True)
class Places:
    file: Path = option(MISSING, "What to count.", metavar="FILE", argument=True)
    store: Path = option(MISSING, "Where.", metavar="DIR")
    share: float = option(0.5, "A share.", least=0, most=1, env="TEST_SHARE")
    words: bool = option(True, "Count words.")


class Lengths(Benchmark[Places]):
    """Counts, and records by itself."""

    name, kind = "lengths", "a test of items"
    whole = resumes = True
    tables = (Table(lambda result: [result["sum"]], (Column("a very wide sum", lambda n: 300 * "x" + f"{n}"),)),)

    def run(self) -> dict[str, Any]:
        assert self.ledger is not None
        n = len(self.settings.file.read_text().split() if self.settings.words else self.settings.file.read_text())
        items = [Item("one", n, {"share": self.settings.share}, {"restored": 2})]
        return self.result(items, model="none", inputs=[], settings={}, folder=str(self.ledger.folder))

    @staticmethod
    def figures(raw: Raw) -> dict[str, Any]:
        return {"sum": sum(one["raw"] * one["expected"]["share"] + one["tokens"]["restored"] for one in raw.values())}

    @staticmethod
    def check(result: dict[str, Any]) -> None:
        """Nothing."""


def test_places_shares_and_switches(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made = App(add_completion=False)
    made.command("lengths")(command(Lengths))
    file = tmp_path / "text"
    file.write_text("one two")
    how = [str(file), "--store", str(tmp_path), "--ledger", str(tmp_path / "ledger")]
    result = ran(made, *how)
    assert (result["sum"], result["benchmark"], result["folder"]) == (3.0, "a test of items", str(tmp_path / "ledger"))
    assert ran(made, *how, "--no-words", "--share", "1")["sum"] == 9
    monkeypatch.setenv("TEST_SHARE", "1")
    assert ran(made, *how)["sum"] == 4
    for wrong in ([*how, "--share", "2"], how[1:], how[:1]):
        assert CliRunner().invoke(made, wrong).exit_code == 2
    shown = CliRunner().invoke(made, how).stdout.splitlines()
    assert shown[0].startswith("a very wide sum  xxx")


@dataclass(frozen=True, kw_only=True)
class OwnWords:
    model: str | None = option(None, "", shown="one for each part")
    small: bool = small_option("Takes an hour.")


class Worded(Benchmark[OwnWords]):
    """Says nothing."""

    name = "another test of the base"
    tables = (Table(lambda result: [0], (Column[int](lambda results: f"of {len(results)}", str),)),)

    def run(self) -> dict[str, Any]:
        return self.result({}, model=str(self.settings.model), inputs=[], settings={"small": self.settings.small})

    @staticmethod
    def figures(raw: Raw) -> dict[str, Any]:
        return {}

    @staticmethod
    def check(result: dict[str, Any]) -> None:
        pass


def test_a_shared_option_and_a_heading_in_its_own_words() -> None:
    made = App(add_completion=False)
    made.command("worded")(command(Worded))
    shown = " ".join(CliRunner().invoke(made, ["--help"], env={"COLUMNS": "200"}).stdout.split())
    assert "[default: (one for each part)]" in shown
    assert "A name of `agentkv models list`" in shown
    assert "Takes an hour." in shown
    assert ran(made)["model"] == "None"
    assert ran(made, "--model", "fake", "--small")["settings"] == {"small": True}
    assert CliRunner().invoke(made).stdout.split() == ["of", "1", "0"]
    assert Worded.tables[0].markdown([{"model": "a"}, {"model": "b"}]).startswith("| model | of 2 |")


@pytest.mark.parametrize("name", BENCHMARKS)
def test_each_class_has_its_command_s_name(name: str) -> None:
    kind = load(name)
    assert kind.name == name
    assert kind().recorded().keys().isdisjoint({"folder", "texts", "engine"})
