"""HTML: what is read, and where each character of it stands."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentkv.documents.readable import Readable, readable

from .conftest import PAGE


def read(text: str) -> Readable:
    return readable(Path("x.html"), text.encode(), "html")


def test_a_page() -> None:
    document = read(PAGE)
    assert document.text.split() == "# Pumps The pump holds 40 litres & more. - red - blue".split()  # noqa: SIM905
    assert document.title == "Manual"
    assert [(h.title, h.depth) for h in document.headings] == [("Pumps", 1)]


def test_places_in_the_source() -> None:
    document = read(PAGE)
    for word in ("pump", "holds", "40", "more"):
        at = document.text.index(word)
        start, stop = document.byte_range(at, at + len(word))
        assert PAGE.encode()[start:stop].startswith(word.encode())
    at = document.text.index("&")
    assert PAGE.encode()[document.starts[at] :].startswith(b"&amp;")


@pytest.mark.parametrize(
    ("html", "text"),
    [
        ("<p>a</p><p>b</p>", "a\n\nb"),
        ("a<br>b", "a\nb"),
        ("a <b> b</b>\n c", "a b c"),
        ("<pre>  x\n   y</pre>", "  x\n   y"),
        ("<table><tr><td>a<td>b<tr><td>c</table>", "a | b\nc"),
        ("<ul><li><p>a</p><li>b</ul>", "- a\n\n- b"),
        ("<p>one<p>two", "one\n\ntwo"),
        ("a&lt;b &copy; &#x41;&#66; AT&T &nope;", "a<b © AB AT&T &nope;"),
        ("<script>if (a<b) x()</script>y<style>z</style>", "y"),
        ("<!-- c --><!DOCTYPE html>x<![CDATA[q]]>", "x"),
        ("a<nav>menu<nav>x</nav>y</nav>b", "ab"),
        ("<nav>never closed <p>text</p>", "never closed\n\ntext"),
        ('<div role="navigation">menu</div>text', "text"),
        ('<h2>Title<a class="headerlink" href="#x">¶</a></h2>x', "## Title\n\nx"),
        ("3 < 4 and 5 > 4", "3 < 4 and 5 > 4"),
    ],
)
def test_texts(html: str, text: str) -> None:
    assert read(html).text.strip("\n") == text


@given(st.text(alphabet=st.sampled_from("<>/&;#ab =\"'!-\n\t éh1pli"), max_size=120))
def test_any_text_rises_and_ends_with_the_source(html: str) -> None:
    document = read(html)
    starts = document.starts.tolist()
    assert starts == sorted(starts)
    assert starts[0] == 0
    assert not document.text or starts[-1] == len(html.encode())
    assert len(starts) == len(document.text) + 1
