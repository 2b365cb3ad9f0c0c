"""The names of a table's columns go with every piece of it, count, and are never quoted."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from agentkv import AgentMemory, FakeEngine
from agentkv.documents import Corpus
from agentkv.documents.answer import EVIDENCE
from agentkv.documents.quote import normalised
from agentkv.documents.readers import kind_of, readable
from agentkv.documents.readers.document import Readable
from agentkv.documents.readers.tables import is_header
from agentkv.documents.records import Kind
from agentkv.documents.split import Splitter, block_text

ROWS = 300


def cells(number: int) -> tuple[str, str, str]:
    return (f"part{number:03}", f"{number * 7}.50", f"shelf {number % 9}")


def markdown() -> tuple[str, str]:
    head = "| part | price | place |\n|:-----|------:|-------|"
    return head, f"# Stock\n\nWhat there is.\n\n{head}\n" + "".join(
        f"| {' | '.join(cells(n))} |\n" for n in range(ROWS)
    )


def quoted_markdown() -> tuple[str, str]:
    head, whole = markdown()
    return head, "".join(f"> {line}\n" for line in whole.splitlines())


def html() -> tuple[str, str]:
    rows = "".join("<tr>" + "".join(f"<td><p>{cell}</p></td>" for cell in cells(n)) + "</tr>\n" for n in range(ROWS))
    return "part | price | place", (
        "<h1>Stock</h1><table><thead><tr><th>part</th><th>price</th><th>place</th></tr></thead>"
        f"<tbody>{rows}</tbody></table><p>After it.</p>"
    )


def plain_html() -> tuple[str, str]:
    rows = "".join("<TR>" + "".join(f"<TD>{cell}" for cell in row) for row in map(cells, range(ROWS)))
    return "part | price | place", f"<TABLE><TR><TD>part<TD>price<TD>place{rows}</TABLE>"


def bold_html() -> tuple[str, str]:
    rows = "".join(
        "<tr>" + "".join(f"<td>{cell}</td>" for cell in cells(n)).replace(".50", " each") + "</tr>" for n in range(ROWS)
    )
    return "part | price | place", (
        "<table><tr><td><b>part</b></td><td><strong>price</strong></td><td><b>place</b></td></tr>" + rows + "</table>"
    )


def separated(mark: str) -> Callable[[], tuple[str, str]]:
    def made() -> tuple[str, str]:
        head = mark.join(("part", "price", "place"))
        return head, f"{head}\r\n" + "".join(f"{mark.join(cells(n))}\r\n" for n in range(ROWS))

    return made


def grid() -> tuple[str, str]:
    rule, row = "+----------+---------+---------+", "| {:8} | {:7} | {:7} |"
    head = f"{rule}\n{row.format('part', 'price', 'place')}\n{rule.replace('-', '=')}"
    return head, f"Stock\n=====\n\n{head}\n" + "".join(f"{row.format(*cells(n))}\n{rule}\n" for n in range(ROWS))


def simple() -> tuple[str, str]:
    rule, row = "========  =======  =======", "{:8}  {:7}  {:7}"
    head = f"{rule}\n{row.format('part', 'price', 'place')}\n{rule}"
    body = "".join(f"{row.format(*cells(n))}\n" for n in range(ROWS))
    return head, f"Stock\n-----\n\n{head}\n{body}{rule}\n\nAfter it.\n"


def org() -> tuple[str, str]:
    head = "| part | price | place |\n|------+-------+-------|"
    return head, f"* Stock\n\n{head}\n" + "".join(f"| {' | '.join(cells(n))} |\n" for n in range(ROWS))


TABLES: dict[str, Callable[[], tuple[str, str]]] = {
    "a.md": markdown,
    "b.md": quoted_markdown,
    "a.html": html,
    "b.html": plain_html,
    "c.html": bold_html,
    "a.csv": separated(","),
    "b.csv": separated(";"),
    "a.tsv": separated("\t"),
    "a.rst": grid,
    "b.rst": simple,
    "a.org": org,
}


@pytest.mark.parametrize("name", TABLES)
@pytest.mark.parametrize("overlap", [0, 40])
def test_every_piece_of_a_table_says_its_columns_and_keeps_its_size(name: str, overlap: int) -> None:
    head, text = TABLES[name]()
    kind = kind_of(Path(name))
    assert kind is not None
    document, engine = readable(Path(name), text.encode(), kind), FakeEngine()
    pieces = Splitter(engine, 400, overlap).split(name, document)
    within = [piece for piece in pieces if "part2" in document.text[piece.start : piece.stop]]
    assert len(within) > 4
    for piece in within:
        body = document.text[piece.start : piece.stop]
        whole = block_text(piece.header, body, piece.columns)
        assert piece.columns == head or head in body
        assert whole.count("price") == 1
        assert len(engine.tokenize(whole, special=False)) == piece.n_tokens <= 400
    rows = [line for piece in pieces for line in document.text[piece.start : piece.stop].splitlines()]
    assert sum("part" in row and "price" not in row for row in rows) >= ROWS  # no row is cut
    after = document.columns(document.text.index("After")) if "After" in document.text else ""
    assert after == ""


def mark_of(name: str) -> str:
    """What stands between two cells."""
    return {"a.csv": ",", "b.csv": ";", "b.rst": " "}.get(name, "|")


def test_a_row_from_the_middle_is_found_by_its_column_and_quoted_as_it_stands(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[str] = []  # what a small model answers from
    for name, make in TABLES.items():
        (tmp_path / name).write_text(make()[1], newline="")
    for name in TABLES:
        line = "part217,1519.50,shelf 1" if name == "a.csv" else "part217"
        reply = f"1519.50{EVIDENCE}{line}"

        def replies(_: str, reply: str = reply) -> str:
            return reply

        with AgentMemory(tmp_path / f"store-{name}", FakeEngine(window=4096, replies=replies)) as memory:
            corpus = Corpus(memory, chunk_tokens=400, overlap=0, keep="lazy")
            corpus.add([tmp_path / name])
            monkeypatch.setattr(corpus.chunks.short_answers, "answer", lambda _, sentence, *how: asked.append(sentence))
            (hit,) = corpus.find("price of part217", k=1)
            assert "part217" in hit.text
            assert "price" in hit.columns
            assert "price" in corpus.chunks.text(hit.document, hit.chunk)
            evidence = corpus.ask("price of part217", k=1).evidence
            assert evidence is not None, name
            assert evidence.verified
            source = (tmp_path / name).read_bytes()[evidence.start : evidence.stop].decode()
            assert "price" not in source
            assert evidence.columns.replace(mark_of(name), " ").split() == ["part", "price", "place"]
            assert asked[-1] == f"{evidence.columns}: {evidence.quote}"
            assert name.endswith(".html") or normalised(source) == evidence.quote


def table(html: str) -> Readable:
    return readable(Path("x.html"), html.encode(), "html")


@pytest.mark.parametrize(
    ("html", "text", "columns"),
    [
        ("<tr><th></th><th>A</th><tr><td>x</td><td>1</td>", " | A\nx | 1", " | A"),
        ("<tr><td></td><th>A</th><th>B</th><tr><th>x</th><td>1</td><td>2</td>", " | A | B\nx | 1 | 2", " | A | B"),
        ("<tr><th>A</th><th></th><th>C</th><tr><td></td><td></td><td>3</td>", "A |  | C\n |  | 3", "A |  | C"),
        ("<tr><th colspan=2>A</th><th>C</th><tr><td>1<td>2<td>3", "A |  | C\n1 | 2 | 3", "A |  | C"),
        (
            "<tr><th>A<th>B<tr><td rowspan=2>k<td>1<tr><td>2<tr><td>m<td>3",
            "A | B\nk | 1\n | 2\nm | 3",
            "A | B",
        ),
        (
            "<thead><tr><th rowspan=2>A<th colspan=2>G<tr><th>B<th>C</thead><tr><td>1<td>2<td>3",
            "A | G\n | B | C\n1 | 2 | 3",
            "A | G\n | B | C",
        ),
        ("<tr><td>tea<td>3<tr><td>milk<td>2", "tea | 3\nmilk | 2", ""),
        ("<tr><td>hidden<td hidden>x<td>y", "hidden |  | y", ""),
        ("<tr><th>A<th>B<tr><td><p>one</p><p>two</p><td>a<br>b", "A | B\none\n\ntwo | a b", "A | B"),
        ("<caption>Stock</caption><tr><th>A<th>B<tr><td>1<td>2", "Stock\nA | B\n1 | 2", "A | B"),
    ],
)
def test_cells_keep_their_places(html: str, text: str, columns: str) -> None:
    document = table(f"<table>{html}</table>")
    assert document.text.strip("\n") == text
    assert [found.columns for found in document.tables] == ([columns] if columns else [])


def test_a_page_laid_out_in_a_table_is_none() -> None:
    document = table(
        "<table><tr><td><h2>Menu</h2><p>one</p></td><td><table><tr><th>A<th>B<tr><td>1<td>2</table></td></tr></table>"
    )
    assert document.text == "## Menu\n\none\n\nA | B\n1 | 2\n\n"
    assert [found.columns for found in document.tables] == ["A | B"]


def test_columns_that_would_fill_the_chunk_are_cut_short() -> None:
    head = ",".join(f"column number {n}" for n in range(200))
    text = f"{head}\n" + "".join(",".join(str(n) for n in range(row, row + 200)) + "\n" for row in range(50))
    document, engine = readable(Path("a.csv"), text.encode(), "csv"), FakeEngine()
    pieces = Splitter(engine, 256, 0).split("a.csv", document)
    assert all(len(piece.columns) <= 256 // 3 for piece in pieces)
    assert all(piece.n_tokens <= 256 for piece in pieces)
    assert "".join(document.text[piece.start : piece.stop] for piece in pieces) == text


@pytest.mark.parametrize(
    ("text", "columns"),
    [
        ("a,b\n1,2\n", ["a,b"]),
        ("sep=;\na;b\n1;2\n", ["a;b"]),
        ("\ufeffa,b\n1,2\n", ["a,b"]),
        ('"a\nname",b\n1,2\n', ['"a\nname",b']),
        ("country,2019,2020\nFrance,1,2\n", ["country,2019,2020"]),
        ("tea,3\nmilk,2\n", []),
        ("only,one\n", []),
        ("", []),
    ],
)
def test_the_header_of_separated_values(text: str, columns: list[str]) -> None:
    assert [found.columns for found in readable(Path("a.csv"), text.encode(), "csv").tables] == columns


def test_a_record_with_line_ends_in_it_is_cut_nowhere_and_a_stray_mark_swallows_nothing() -> None:
    text = "id,note\n" + "".join(f'{n},"first {n}\nsecond {n}"\n' for n in range(60))
    document = readable(Path("a.csv"), text.encode(), "csv")
    pieces = Splitter(FakeEngine(), 200, 0).split("a.csv", document)
    assert all(document.text[piece.start : piece.stop].count('"') % 2 == 0 for piece in pieces)
    stray = "size,note\n" + '5",nothing\n' + "".join(f"{n},x\n" for n in range(200))
    breaks = {found.position for found in readable(Path("a.csv"), stray.encode(), "csv").breaks}
    assert stray.index("150,x") in breaks


@pytest.mark.parametrize(
    ("kind", "text"),
    [
        ("markdown", "a | b\n\nno table\n"),
        ("markdown", "```\n| a | b |\n|---|---|\n| 1 | 2 |\n```\n"),
        ("markdown", "| a | b |\n|---|\n| 1 | 2 |\n"),
        ("markdown", "Title\n---\n\ntext\n"),
        ("text", "a | b\nc | d\ne | f\n"),
        ("rst", "=====  =====\n1      2\n=====  =====\n\nText.\n"),
    ],
)
def test_what_is_no_table(kind: Kind, text: str) -> None:
    assert readable(Path("a"), text.encode(), kind).tables == ()


def test_headers_by_their_cells() -> None:
    assert is_header(["name", "2020"], ["tea", "3"])
    assert not is_header(["tea", "1,200.50"], ["milk", "$3"])
    assert not is_header(["", " "], ["a", "b"])
    assert is_header(["name", "note"], None)


@pytest.mark.parametrize(
    ("above", "header"),
    [
        ("# exported by X\n# 2024\n", "part,price,place"),
        ("Stock of parts\n\n", "part,price,place"),
        ("Report,2024\n", "part,price,place"),
        ("sep=,\n", "part,price,place"),
        ("", "price,place"),  # rows have names, and their column none
    ],
)
def test_what_stands_above_separated_values_names_no_columns(above: str, header: str) -> None:
    text = f"{above}{header}\n" + "".join(",".join(cells(number)) + "\n" for number in range(ROWS))
    assert [found.columns for found in readable(Path("a.csv"), text.encode(), "csv").tables] == [header]


PRINTED = "".join(f" {' | '.join(cells(number))}\n" for number in range(ROWS))
RULE = "+------+------+------+\n"


@pytest.mark.parametrize(
    ("text", "columns"),
    [
        (f" part | price | place\n------+-------+-------\n{PRINTED}(300 rows)\n", 2),
        (f"{RULE}| part | price | place |\n{RULE}{PRINTED}{RULE}", 3),
        (f"{RULE}| a | b | c |\n{RULE}| d | e | f |\n{RULE}| g | h | i |\n{RULE}", 0),  # a grid of reStructuredText
        (f"{RULE}{PRINTED}{RULE}", 0),
        ("one\n----+----\ntwo\n", 0),
    ],
)
def test_tables_as_databases_print_them(text: str, columns: int) -> None:
    found = readable(Path("a.txt"), text.encode(), "text").tables
    assert [table.columns for table in found] == (["\n".join(text.splitlines()[:columns])] if columns else [])


def test_tables_in_markdown_that_are_not_markdowns() -> None:
    rows = "".join(f"<tr><td>{'</td><td>'.join(cells(number))}</td></tr>\n" for number in range(ROWS))
    head = "<table>\n<tr><th>part</th><th><b>price</b></th><th align=left>place</th></tr>\n"
    printed = f" part | price | place\n------+-------+-------\n{PRINTED}"
    text = (
        f"# Stock\n\n{head}{rows}</table>\n\n```text\n{printed}```\n\nAfter it.\n\n<table><tr><td>a</td></tr></table>\n"
    )
    document = readable(Path("a.md"), text.encode(), "markdown")
    assert [table.columns for table in document.tables] == [
        "part | price | place",
        " part | price | place\n------+-------+-------",
    ]
    assert text[document.tables[1].start : document.tables[1].stop] + "\n" == printed
    pieces = Splitter(FakeEngine(), 400, 0).split("a.md", document)
    assert all(
        piece.columns
        for piece in pieces
        if "part2" in document.text[piece.start : piece.stop] and "# " not in piece.heading_path
    )
