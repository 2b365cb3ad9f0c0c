"""Formats that are not text: refused by name, with what to convert them with; texts about them are read."""

from __future__ import annotations

import bz2
import gzip
import io
import json
import lzma
import pickle
import sqlite3
import tarfile
import zipfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import zstandard

from agentkv import AgentMemory, FakeEngine
from agentkv.documents import Corpus
from agentkv.documents.readers.decoding import read_text_source
from agentkv.documents.readers.formats import refusal, what_it_is
from agentkv.errors import InvalidDocument

PDF = b"%PDF-1.4\n1 0 obj\n<< /Type /Catalog >>\nendobj\ntrailer << /Root 1 0 R >>\n%%EOF\n"
MAIL = (
    "Return-Path: <a@example.org>\nReceived: from mail\n by host; Tue, 1 Dec 2026\nMessage-ID: <1@example.org>\n"
    "MIME-Version: 1.0\nContent-Type: text/plain\n\nHello.\n"
)
NOTEBOOK = {"cells": [{"cell_type": "markdown", "source": ["# Title\n"] * 2000}], "metadata": {}, "nbformat": 4}


def zipped(*names: str, mimetype: str = "") -> bytes:
    whole = io.BytesIO()
    with zipfile.ZipFile(whole, "w") as archive:
        if mimetype:
            archive.writestr("mimetype", mimetype)
        for name in names:
            archive.writestr(name, "<x/>")
    return whole.getvalue()


def saved(write: Callable[[io.BytesIO], object]) -> bytes:
    whole = io.BytesIO()
    write(whole)
    return whole.getvalue()


def tarred() -> bytes:
    whole = io.BytesIO()
    with tarfile.open(fileobj=whole, mode="w") as archive:
        archive.addfile(tarfile.TarInfo("a.txt"))
    return whole.getvalue()


def database(path: Path) -> bytes:
    connection = sqlite3.connect(path)
    connection.execute("CREATE TABLE a (b)")
    connection.commit()
    connection.close()
    return path.read_bytes()


@pytest.mark.parametrize(
    ("name", "data", "what", "remedy"),
    [
        ("a.pdf", PDF, "a PDF", "pdftotext"),
        ("a.txt", PDF, "a PDF", "pdftotext"),
        ("a.txt", b"junk of a mailer\r\n" + PDF, "a PDF", "pdftotext"),
        ("a.ipynb", json.dumps(NOTEBOOK).encode(), "a Jupyter notebook", "nbconvert"),
        ("a", json.dumps(NOTEBOOK).encode(), "a Jupyter notebook", "nbconvert"),
        ("a.docx", zipped("[Content_Types].xml", "word/document.xml"), "a Word document", "pandoc"),
        ("a.xlsx", zipped("[Content_Types].xml", "xl/workbook.xml"), "an Excel workbook", "soffice"),
        ("a.pptx", zipped("ppt/presentation.xml"), "a PowerPoint presentation", "soffice"),
        ("a.epub", zipped(mimetype="application/epub+zip"), "an EPUB book", "pandoc"),
        ("a.odt", zipped(mimetype="application/vnd.oasis.opendocument.text"), "an OpenDocument text", "pandoc"),
        (
            "a.ods",
            zipped(mimetype="application/vnd.oasis.opendocument.spreadsheet"),
            "an OpenDocument table",
            "soffice",
        ),
        ("a.zip", zipped("a.txt"), "a zip archive", "unpack"),
        ("a.jar", zipped("META-INF/MANIFEST.MF"), "a Java archive", "unpack"),
        ("a.doc", b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1" + bytes(500), "an old Office document", "soffice"),
        ("a.rtf", rb"{\rtf1\ansi Hello\par}", "an RTF document", "pandoc"),
        ("a.ps", b"%!PS-Adobe-3.0\n/Times findfont\n", "a PostScript file", "ps2ascii"),
        ("a.png", b"\x89PNG\r\n\x1a\nxxxx", "a PNG image", "tesseract"),
        ("a.jpg", b"\xff\xd8\xff\xe0xxJFIF", "a JPEG image", "tesseract"),
        ("a.gif", b"GIF89a\x01\x02\x01", "a GIF image", "tesseract"),
        ("a.webp", b"RIFF\x10\0\0\0WEBPVP8 ", "a WebP image", "tesseract"),
        ("a.svg", b'<?xml version="1.0"?><svg xmlns="x"><text>a</text></svg>', "an SVG drawing", "text file"),
        ("a.tar", tarred(), "a tar archive", "unpack"),
        ("a.bz2", bz2.compress(b"hello"), "a bzip2 file", "bunzip2"),
        ("a.xz", lzma.compress(b"hello"), "an xz file", "unxz"),
        ("a.zst", zstandard.compress(b"hello"), "a zstd file", "unzstd"),
        ("a.npy", saved(lambda file: np.save(file, np.zeros(3))), "a NumPy array", "savetxt"),
        ("a.dat", pickle.dumps({"a": [1.5] * 9}), "a pickle", "program"),
        ("a.pkl", pickle.dumps({"a": 1}, protocol=0), "a pickle", "program"),
        ("a.mbox", b"From a@example.org Tue Dec  1 10:00:00 2026\nSubject: x\n\nhello\n", "a mailbox", "mailsplit"),
        ("a.txt", MAIL.encode(), "a mail", "mu view"),
        ("a.eml", b"Subject: x\n\nhello\n", "a mail", "mu view"),
        ("a.mp4", b"\0\0\0\x18ftypisom\0\0", "a film", "speech"),
        ("a.gguf", b"GGUF\x03\0\0\0", "the weights of a model", ""),
        ("a.exe", b"MZ\x90\0\x03\0", "a program", ""),
        ("a.bin", bytes(range(1, 256)) * 9, "an unknown binary format", "program"),
        ("a.md", b"version https://git-lfs.github.com/spec/v1\noid sha256:1\n", "a Git LFS pointer", "lfs pull"),
    ],
)
def test_refused_by_name_with_what_makes_text_of_it(name: str, data: bytes, what: str, remedy: str) -> None:
    reason = refusal(Path(name), data)
    assert reason is not None
    assert what in reason
    assert remedy in reason


def test_a_database_is_refused(tmp_path: Path) -> None:
    assert "an SQLite database" in str(refusal(Path("a.db"), database(tmp_path / "a.db")))


@pytest.mark.parametrize(
    "text",
    [
        "GGUF is a format of weights, ID3 one of tags, MZ begins a program.",
        "A PDF begins with %PDF-1.4 and ends with %%EOF.",
        "GIF89a is from 1989.",
        "BM25 ranks.",
        "From the beginning of the year\nit rained.",
        "From: me\nTo: you\n\nNo mail program has touched this.",
        "Received: 3 May\nStatus: open\n",
        '{"cells": [1, 2]}',
        "<html><body><svg></svg>text</body></html>",
        "RIFF and ftyp",
        "\x1b[31mred\x1b[0m",
        "x\x08x",
        "日本語のテキスト",
        "",
    ],
)
def test_texts_that_name_a_format_are_read(text: str) -> None:
    assert refusal(Path("a.txt"), text.encode()) is None


@pytest.mark.parametrize("encoding", ["gbk", "shift_jis", "koi8_r", "cp1252", "utf-16", "utf-32"])
def test_texts_in_other_encodings_are_read(encoding: str) -> None:
    text = {"gbk": "逾期违约金", "shift_jis": "違約金", "koi8_r": "Неустойка"}.get(encoding, "Prüfung")
    assert refusal(Path("a.txt"), (text * 50).encode(encoding)) is None


def test_a_folder_goes_on_without_them_and_one_named_by_itself_fails_alone(tmp_path: Path) -> None:
    (tmp_path / "a.pdf").write_bytes(PDF)
    (tmp_path / "b.txt").write_text("Rivers and bridges.")
    (tmp_path / "c.txt").write_bytes(PDF)
    with AgentMemory(tmp_path / "store", FakeEngine(window=2048)) as memory:
        report = Corpus(memory, chunk_tokens=160, overlap=0).add(
            [tmp_path / "a.pdf", tmp_path / "b.txt", tmp_path / "c.txt"]
        )
    assert [item.record.path for item in report.plan.planned] == ["b.txt"]
    assert [error.path.name for error in report.plan.failed] == ["a.pdf", "c.txt"]
    assert all("it is a PDF" in error.reason for error in report.plan.failed)
    with pytest.raises(InvalidDocument, match=r"pdftotext -layout \S+/a\.pdf \S+/a\.txt`"):
        read_text_source(tmp_path / "a.pdf")


@pytest.mark.parametrize(
    ("path", "command"),
    [
        ("my notes/a b.pdf", "`pdftotext -layout 'my notes/a b.pdf' 'my notes/a b'.txt`"),
        ("it's.pdf", """`pdftotext -layout 'it'"'"'s.pdf' 'it'"'"'s'.txt`"""),
        ("really.txt", "`pdftotext -layout really.txt really-text.txt`"),  # never onto itself
        ("a.pdf.gz", "`gunzip -k a.pdf.gz`, then `pdftotext -layout a.pdf a.txt`"),
    ],
)
def test_what_converts_a_file_can_be_copied_into_a_shell(path: str, command: str) -> None:
    reason = refusal(Path(path), PDF)
    assert reason is not None
    assert reason.endswith(command)


def test_what_a_file_is_is_told_by_its_beginning(tmp_path: Path) -> None:
    (tmp_path / "a.pdf").write_bytes(PDF)
    (tmp_path / "a.pdf.gz").write_bytes(gzip.compress(PDF))
    (tmp_path / "a.xyz").write_text("words")
    (tmp_path / "b.gz").write_bytes(b"\x1f\x8bbroken")
    assert [what_it_is(tmp_path / name) for name in ("a.pdf", "a.pdf.gz", "a.xyz", "b.gz", "no")] == [
        "a PDF",
        "a PDF",
        None,
        None,
        None,
    ]
