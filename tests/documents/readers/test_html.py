"""HTML: what is read, and where each character of it stands."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agentkv import AgentMemory, FakeEngine
from agentkv.documents import Corpus
from agentkv.documents.readers import readable
from agentkv.documents.readers.document import Readable
from agentkv.documents.split import Splitter, block_text
from tests.documents.conftest import PAGE


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


# --- what is left out -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("html", "text"),
    [
        ("<p hidden>x</p>y", "y"),
        ('<p hidden="">x</p>y', "y"),
        ('<p hidden="until-found">x</p>y', "x\n\ny"),
        ('<p style="color: red; Display : NONE !important">x</p>y', "y"),
        ('<p style="visibility:hidden">x</p>y', "y"),
        ('<p style="content-visibility: hidden">x</p>y', "y"),
        ('<p style="display:none-such; visibility: visible">x</p>y', "x\n\ny"),
        ('<p style="display: block">x</p>y', "x\n\ny"),
        ('<span aria-hidden="true">x</span>y', "y"),
        ('<span aria-hidden="false">x</span>y', "xy"),
        ("<div hidden>a<div>b</div>c</div>d", "d"),
        ("<div hidden>a<p>b<br>c<img alt='d'></div>e", "e"),
        ("<p hidden>a<p>b", "b"),
        ("<p hidden>a</p></p>b", "b"),
        ("<p hidden>a<b>c<div>b</div>", "b"),
        ("<ul><li hidden>a<ul><li>q</ul><li>b</ul>c", "- b\n\nc"),
        ("<dl><dt hidden>a<dd>b</dl>", "b"),
        ("<p hidden>a</body></html>", ""),
        ("<div hidden>never closed <p>text</p>", "never closed\n\ntext"),
        ('<body style="display:none"><p>shown by a script</p></body>', "shown by a script"),
        ("<template><p>x</p></template>y", "y"),
        ("<noscript>Turn scripts on.</noscript>y", "y"),
        ("<details><summary>More</summary>inside</details>", "More\ninside"),
        ("<dialog>x</dialog><dialog open>y</dialog>", "y"),
        ('<input hidden><link hidden><img hidden alt="x">y', "y"),
        ("<table><tr hidden><td>a<tr><td>b</table>", "b"),
    ],
)
def test_what_is_not_shown_is_not_read(html: str, text: str) -> None:
    assert read(html).text.strip("\n") == text


@pytest.mark.parametrize(
    "navigation",
    [
        '<div class="navheader"><table><tr><td><a href="a">Prev</a></td><td>Up</td></tr></table><hr></div>',
        "<DIV CLASS=NAVHEADER>Prev | Up | Next</DIV>",
        '<div class="navfooter">Prev | Up | Next</div>',
        '<nav aria-label="x"><ul><li>Prev</ul></nav>',
        '<ul role="navigation"><li>Prev</ul>',
        '<div class="nav-panel">Prev</div>',
        '<div id="nav-path" class="navpath"><ul><li>Prev</ul></div>',
        '<ol class="breadcrumb"><li>Home<li>Prev</ol>',
        "<footer>Prev</footer>",
        '<a class="skip-main-content" href="#main">Skip to the text</a>',
    ],
)
def test_what_leads_to_other_pages_is_not_read(navigation: str) -> None:
    assert read(f"{navigation}<p>text</p>{navigation}").text.strip("\n") == "text"


TEXINFO = """<div class="header"><p>Next: <a href="b">B</a>, Previous: <a href="a">A</a>, Up: <a href="t">Top</a>
<table class="header"><tr><td>[ &lt; ]</td><td>[ Contents ]</td></tr></table></div>"""


def test_what_texinfo_puts_above_its_pages_is_not_read_and_other_headers_are() -> None:
    made_by = '<head><meta name="Generator" content="{}"></head>'
    for by in ("texi2any", "makeinfo", "makeinfo 4.13"):
        assert read(f"{made_by.format(by)}{TEXINFO}<p>text</p>").text.strip("\n") == "text"
    assert "Previous" in read(f"{made_by.format('Hugo')}{TEXINFO}<p>text</p>").text
    assert "Shop" in read(f'{made_by.format("makeinfo")}<div class="header wide">Shop</div><p>text</p>').text


@pytest.mark.parametrize(
    ("html", "text"),
    [
        ('<p>See <img src="a.png" alt="the red pump">here.</p>', "See the red pump here."),
        ("<p>See<img alt='the red pump'>here.</p>", "See the red pump here."),
        ("<img alt=pump>", "pump"),
        ('<IMG SRC="alt=no" TITLE="alt=no" ALT="yes">', "yes"),
        ('<img alt="">x<img>y<img alt>z', "xyz"),
        ('<h2><img alt="Pumps &amp; hoses"></h2>', "## Pumps & hoses"),
        ('<a href="x"><img alt="manual"></a>', "manual"),
        ('<map><area alt="north"></map><input type="image" alt="send"><input alt="no">', "north send"),
        ('<img aria-hidden="true" alt="x"><img role="navigation" alt="x">y', "y"),
        ('<nav><img alt="x"></nav>y', "y"),
        ("<pre>a<img alt='b'></pre>", "a b"),
    ],
)
def test_an_image_is_its_words(html: str, text: str) -> None:
    assert read(html).text.strip("\n") == text


def test_an_image_s_words_stand_in_the_source() -> None:
    html = '<p>The <img src="a.png" alt="red &amp; blue pump"> holds 40 litres.</p>'
    document = read(html)
    for word in ("red", "blue", "pump", "holds"):
        at = document.text.index(word)
        start, stop = document.byte_range(at, at + len(word))
        assert html.encode()[start:stop] == word.encode()
    assert html.encode()[document.starts[document.text.index("&")] :].startswith(b"&amp;")


PIECES = ("<li>", "a", "&NotEqualTilde;", " &nbsp;", "<h2>T", "<td>", "<tr>", "<table>", "</table>", "&fjlig;", "é",
          "\n", "<p>", "b. ", '<img alt="x y">', "<td rowspan=2>", "<br>", "<td><p>", "</ul>", "&#x41;")  # fmt: skip


@settings(max_examples=150, deadline=None)
@given(st.lists(st.sampled_from(PIECES), max_size=150), st.integers(64, 128), st.integers(0, 16))
def test_a_piece_begins_with_the_first_character_of_its_byte(parts: list[str], chunk_tokens: int, overlap: int) -> None:
    html = "".join(parts)
    document, splitter, engine = read(html), Splitter(FakeEngine(), chunk_tokens, overlap), FakeEngine()
    done = 0
    for piece in splitter.split("x.html", document):
        start, stop = document.byte_range(piece.start, piece.stop)
        assert document.characters(start, stop) == (piece.start, piece.stop)
        assert piece.start <= done < piece.stop
        done = piece.stop
        whole = block_text(piece.header, document.text[piece.start : piece.stop], piece.columns)
        assert len(engine.tokenize(whole, special=False)) == piece.n_tokens <= chunk_tokens
    assert done == len(document.text)


@pytest.mark.parametrize(("chunk_tokens", "overlap"), [(128, 32), (160, 24), (96, 24)])
def test_every_chunk_of_html_can_be_asked(tmp_path: Path, chunk_tokens: int, overlap: int) -> None:
    part = "<dt>--option{}&#8288;&hellip;<dd>What&nbsp;it does&mdash;<li>item<h3>H{}</h3>"
    terms = "".join(part.format(n, n) for n in range(90))
    (tmp_path / "manual.html").write_text(f"<dl>{terms}</dl><table><tr><th>A<th>B{'<tr><td>1<td>x&amp;y' * 90}</table>")
    with AgentMemory(tmp_path / "store", FakeEngine(window=2048)) as memory:
        corpus = Corpus(memory, chunk_tokens=chunk_tokens, overlap=overlap, keep="lazy")
        corpus.add([tmp_path / "manual.html"])
        (record,) = corpus.shelf.all().values()
        assert len(record.chunks) > 40
        for number in record.chunks:
            corpus.chunks.chunk_prompt(record, number)
