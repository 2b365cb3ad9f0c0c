"""Readers: from a file's bytes to its text, headings and tables. One module a format, each a :class:`Reader`.

To add a format: its kind in :data:`agentkv.documents.records.Kind`; a module here with :meth:`Reader.read`; a line in
``SUFFIXES`` and one in :func:`reader_of`; and its line in ``formats.py``, which refuses it until then, goes. Another
``VERSION`` makes files that were added before be read again.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Protocol

from agentkv.documents.readers.document import Readable
from agentkv.documents.records import Kind

VERSION = 3
"""Of the rules by which text is made of a source. A file added under another one is cut when it is added again."""

SUFFIXES: dict[str, Kind] = {
    **dict.fromkeys((".txt", ".text", ".adoc", ".asciidoc", ".org", ".tex", ".log"), "text"),
    **dict.fromkeys((".texi", ".texinfo", ".pod", ".man", ".srt", ".vtt"), "text"),
    **dict.fromkeys((".md", ".markdown", ".mdx", ".rmd", ".qmd"), "markdown"),
    ".rst": "rst",
    **dict.fromkeys((".html", ".htm", ".xhtml"), "html"),
    **dict.fromkeys((".csv", ".tsv", ".tab"), "csv"),
    **dict.fromkeys((".py", ".pyi", ".c", ".h", ".cc", ".cpp", ".hpp", ".rs", ".go", ".java", ".kt", ".swift"), "code"),
    **dict.fromkeys(
        (".js", ".ts", ".tsx", ".jsx", ".rb", ".pl", ".pm", ".sh", ".bash", ".sql", ".lua", ".php"), "code"
    ),
    **dict.fromkeys(
        (".cs", ".scala", ".hs", ".ml", ".ex", ".r", ".jl", ".toml", ".ini", ".cfg", ".yaml", ".yml"), "code"
    ),
}
"""Kind by the file name's suffix, without ``.gz``; a file given by its own path that has another one is text."""

_TEXT_NAMES = frozenset(
    {"readme", "changelog", "changes", "news", "license", "copying", "authors", "todo", "faq", "install"}
)
_SECTION, _LONE_SECTION = re.compile(r"\.[1-9n][a-z_]*"), re.compile(r"[^.]+\.[1-8]")
"""Suffixes of man pages: in their own folders, and elsewhere, where ``libz.so.1`` and ``a.log.1`` end alike."""


class Reader(Protocol):
    """A module of this package that reads one or several kinds of files."""

    def read(self, path: Path, data: bytes, kind: Kind, encoding: str | None) -> Readable:
        """The document in ``data`` (unpacked). ``path``: for errors; ``encoding``: a codec's name, None to detect it.

        Every character of its text knows the source byte at which it begins. Raises InvalidDocument.
        """


def reader_of(kind: Kind) -> Reader:
    """The module for a kind."""
    from agentkv.documents.readers import code, html, markdown, plain, values

    readers: dict[Kind, Reader] = {
        "text": plain,
        "rst": plain,
        "markdown": markdown,
        "html": html,
        "code": code,
        "csv": values,
    }
    return readers[kind]


def readable(path: Path, data: bytes, kind: Kind, encoding: str | None = None) -> Readable:
    """The document of a source of that kind, in ``encoding`` if that is known. Raises InvalidDocument."""
    return reader_of(kind).read(path, data, kind, encoding)


def kind_of(path: Path) -> Kind | None:
    """The kind of a file by its name; None if its suffix is not known."""
    name = path.name.lower().removesuffix(".gz")
    suffix = Path(name).suffix
    if suffix in SUFFIXES:
        return SUFFIXES[suffix]
    is_manual = _SECTION.fullmatch(suffix) if path.parent.name.startswith("man") else _LONE_SECTION.fullmatch(name)
    return "text" if is_manual or name.split(".")[0].split("-")[0] in _TEXT_NAMES else None
