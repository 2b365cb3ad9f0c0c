"""Formats that are not read: recognised by their first bytes or suffix, each with a command that makes text of it.

A file that is not recognised here is taken for text.
"""

from __future__ import annotations

import gzip
import io
import re
import shlex
import zipfile
import zlib
from pathlib import Path

_PANDOC = "`pandoc {file} -t gfm -o {stem}.md`"
_OFFICE = "`soffice --headless --convert-to {to} {file}`"
_OCR = "text recognition, such as `tesseract {file} {stem}`"
_SPEECH = "speech recognition, such as whisper"
_UNPACK = "unpack it and add what is in it"

_MARKS: tuple[tuple[bytes, str, str], ...] = (
    (b"{\\rtf", "an RTF document", _PANDOC),
    (b"%!PS", "a PostScript file", "`ps2ascii {file} {stem}.txt`"),
    (b"\xc5\xd0\xd3\xc6", "an EPS file", "`ps2ascii {file} {stem}.txt`"),
    (b"AT&TFORM", "a DjVu document", "`djvutxt {file} {stem}.txt`"),
    (b"ITSF", "a CHM help file", "`extract_chmLib {file} {stem}` and add the folder"),
    (b"SQLite format 3\0", "an SQLite database", "`sqlite3 -csv -header {file} 'SELECT …' > {stem}.csv`"),
    (b"PAR1", "a Parquet table", "pandas: `read_parquet(…).to_csv(…)`"),
    (b"ARROW1", "an Arrow table", "pandas: `read_feather(…).to_csv(…)`"),
    (b"\x89HDF\r\n\x1a\n", "an HDF5 file", "h5py or pandas: export what you need as CSV"),
    (b"\x93NUMPY", "a NumPy array", "`numpy.savetxt`"),
    (b"\x89PNG\r\n\x1a\n", "a PNG image", _OCR),
    (b"\xff\xd8\xff", "a JPEG image", _OCR),
    (b"GIF8", "a GIF image", _OCR),
    (b"II*\0", "a TIFF image", _OCR),
    (b"MM\0*", "a TIFF image", _OCR),
    (b"8BPS", "a Photoshop image", _OCR),
    (b"\0\0\1\0", "an icon", _OCR),
    (b"BZh", "a bzip2 file", "`bunzip2 {file}` and add what comes out"),
    (b"\xfd7zXZ\0", "an xz file", "`unxz {file}` and add what comes out"),
    (b"\x28\xb5\x2f\xfd", "a zstd file", "`unzstd {file}` and add what comes out"),
    (b"\x04\x22\x4d\x18", "an LZ4 file", "`unlz4 {file}` and add what comes out"),
    (b"7z\xbc\xaf\x27\x1c", "a 7z archive", _UNPACK),
    (b"Rar!\x1a\x07", "a RAR archive", _UNPACK),
    (b"!<arch>\n", "an ar archive", _UNPACK),
    (b"\x7fELF", "a program", ""),
    (b"\xca\xfe\xba\xbe", "a compiled Java class or a program", ""),
    (b"\xcf\xfa\xed\xfe", "a program", ""),
    (b"\0asm", "a WebAssembly program", ""),
    (b"GGUF", "the weights of a model", ""),
    (b"OTTO", "a font", ""),
    (b"wOFF", "a font", ""),
    (b"wOF2", "a font", ""),
    (b"\0\1\0\0\0", "a font", ""),
    (b"ID3", "a sound file", _SPEECH),
    (b"OggS", "a sound file", _SPEECH),
    (b"fLaC", "a sound file", _SPEECH),
    (b"\x1a\x45\xdf\xa3", "a film", "its subtitles: `ffmpeg -i {file} {stem}.srt`"),
    (b"version https://git-lfs.github.com/spec/", "a Git LFS pointer and not the file itself", "`git lfs pull` first"),
)
_WRITTEN_AS_TEXT = {b"{\\rtf", b"%!PS", b"!<arch>\n", b"version https://git-lfs.github.com/spec/"}
_ENDINGS: dict[str, tuple[str, str]] = {
    ".ipynb": ("a Jupyter notebook", "`jupyter nbconvert --to markdown {file}`"),
    ".eml": ("a mail with its headers and encoded parts", "its text: `mu view {file} > {stem}.txt`"),
    ".mbox": ("a mailbox", "split it into texts, such as `git mailsplit` and `mu view`"),
    ".mht": ("a page saved as MIME", "save it as HTML"),
    ".mhtml": ("a page saved as MIME", "save it as HTML"),
    ".fb2": ("a FictionBook", _PANDOC),
    ".svg": ("an SVG drawing", "describe it in a text file"),
    **dict.fromkeys((".pkl", ".pickle", ".joblib"), ("a pickle of Python", "the program that wrote it")),
    **dict.fromkeys((".fods", ".fodt", ".fodp"), ("a flat OpenDocument file", _OFFICE.replace("{to}", "html"))),
}
"""Formats without a mark of their own, or written as text that is not the document's."""

_OFFICE_KINDS: tuple[tuple[str, str, str], ...] = (
    ("word/", "a Word document (.docx)", _PANDOC),
    ("xl/", "an Excel workbook (.xlsx)", _OFFICE.replace("{to}", "csv")),
    ("ppt/", "a PowerPoint presentation (.pptx)", _OFFICE.replace("{to}", "pdf") + " and then `pdftotext`"),
    ("META-INF/MANIFEST.MF", "a Java archive", _UNPACK),
)
_MIMETYPES: tuple[tuple[bytes, str, str], ...] = (
    (b"application/epub+zip", "an EPUB book", _PANDOC),
    (b"application/vnd.oasis.opendocument.text", "an OpenDocument text (.odt)", _PANDOC),
    (
        b"application/vnd.oasis.opendocument.spreadsheet",
        "an OpenDocument table (.ods)",
        _OFFICE.replace("{to}", "csv"),
    ),
    (b"application/vnd.oasis.opendocument", "an OpenDocument file", _OFFICE.replace("{to}", "html")),
)
_PDF = re.compile(rb"\A[\s\xef\xbb\xbf]*%PDF-\d|(?:\A|[\r\n])%PDF-\d\.\d[\r\n]")
_PDF_WITHIN, _HEAD, _LOOKED_AT = 1024, 8192, 1 << 20
_MBOX = re.compile(rb"\AFrom \S+ +(?:Mon|Tue|Wed|Thu|Fri|Sat|Sun) [^\n]*\n[A-Za-z-]+:")
_MAIL = re.compile(rb"\A[A-Za-z][A-Za-z0-9-]*:[ \t]")
_SENT = re.compile(rb"^(?:Message-ID|Received|Return-Path):", re.I | re.M)
_MIME = re.compile(rb"^(?:MIME-Version|Content-Type|Content-Transfer-Encoding):", re.I | re.M)
_PICKLE = re.compile(rb"\A\x80[\x02-\x05]")
_SVG = re.compile(rb"\A\s*(?:<\?xml[^>]*>\s*)?(?:<!DOCTYPE svg[^>]*>\s*)?<svg[\s>]", re.I)
_NOT_TEXT = re.compile(rb"[\x00-\x07\x0e-\x1a\x1c-\x1f\x80-\xff]")
_CONTROLS = re.compile(rb"[\x01-\x07\x0e-\x1a\x1c-\x1f]")
_CONTROL_SHARE = 0.03


def refusal(path: Path, data: bytes) -> str | None:
    """Why a file cannot be added, and what makes text of it; None for what is taken for text."""
    what, remedy = _format(path, data) or ("", "")
    if not what:
        return None
    convert = _filled(path, remedy)
    return f"it is {what}, which is not read. {'Make text of it first: ' + convert if convert else 'It holds no text'}"


def what_it_is(path: Path) -> str | None:
    """The name of a file's format if it is not read, judged by its beginning; None for others."""
    try:
        with path.open("rb") as plain:
            data = plain.read(_LOOKED_AT)
        if data.startswith(b"\x1f\x8b"):
            with gzip.open(path) as packed:
                data = packed.read(_LOOKED_AT)
        found = _format(path, data)
    except (OSError, EOFError, zlib.error):
        return None
    return None if found is None else found[0]


def _filled(path: Path, remedy: str) -> str:
    """The remedy with the file's name, quoted for a shell; its output never has the name of the file."""
    is_packed = path.suffix.lower() == ".gz"
    file = path.with_suffix("") if is_packed else path
    stem = file.with_suffix("")
    stem = stem.with_name(f"{stem.name}-text") if file.suffix in {".txt", ".md", ".csv", ".srt"} else stem
    convert = remedy.format(file=shlex.quote(str(file)), stem=shlex.quote(str(stem)))
    return f"`gunzip -k {shlex.quote(str(path))}`, then {convert}" if is_packed and convert else convert


def _format(path: Path, data: bytes) -> tuple[str, str] | None:
    head = data[:_HEAD]
    pdf = _PDF.search(head[:_PDF_WITHIN])
    if pdf and (not pdf.start() or b"endobj" in data):
        return "a PDF", "`pdftotext -layout {file} {stem}.txt`"
    for mark, what, remedy in _MARKS:
        # A text may begin with the name of a format: "GGUF is a format of weights."
        if head.startswith(mark) and (_NOT_TEXT.search(head[:256]) or mark in _WRITTEN_AS_TEXT):
            return what, remedy
    if head.startswith((b"PK\x03\x04", b"PK\x05\x06")):
        return _zipped(data)
    if head.startswith(b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1"):
        return "an old Office document (.doc, .xls, .ppt, .msg)", _OFFICE.replace("{to}", "html")
    return (
        _media(head)
        or _written(head, data)
        or _ENDINGS.get(Path(path.name.lower().removesuffix(".gz")).suffix)
        or _unknown(head)
    )


def _media(head: bytes) -> tuple[str, str] | None:
    """Formats with a mark further on."""
    if head.startswith(b"RIFF") and head[8:12] in (b"WAVE", b"AVI ", b"WEBP"):
        return ("a WebP image", _OCR) if head[8:12] == b"WEBP" else ("a sound file or a film", _SPEECH)
    if head[:2] == b"\0\0" and head[4:8] == b"ftyp":
        is_image = head[8:12] in (b"heic", b"heix", b"mif1", b"avif")
        return ("a HEIF image", _OCR) if is_image else ("a film or a sound file", _SPEECH)
    if head[257:262] == b"ustar":
        return "a tar archive", _UNPACK
    if head[60:68] == b"BOOKMOBI":
        return "a MOBI book", "`ebook-convert {file} {stem}.txt`"
    if head.startswith(b"BM") and head[6:10] == b"\0\0\0\0":
        return "a BMP image", _OCR
    return ("a program", "") if head.startswith(b"MZ") and b"\0" in head[:64] else None


def _written(head: bytes, data: bytes) -> tuple[str, str] | None:
    """Formats written in characters that are not the document's."""
    if _PICKLE.match(head):
        return _ENDINGS[".pkl"]
    if _MBOX.match(head):
        return _ENDINGS[".mbox"]
    headers = re.split(rb"\r?\n\r?\n", head, maxsplit=1)[0]
    if _MAIL.match(head) and _SENT.search(headers) and _MIME.search(headers):
        return _ENDINGS[".eml"]
    if head.lstrip().startswith(b"{") and b'"cells"' in data and b'"nbformat"' in data:
        return _ENDINGS[".ipynb"]
    return _ENDINGS[".svg"] if _SVG.match(head) else None


def _unknown(head: bytes) -> tuple[str, str] | None:
    """Invalid UTF-8 with control characters is not text in any encoding; NUL bytes are left to the decoder."""
    if b"\0" in head or len(_CONTROLS.findall(head)) <= _CONTROL_SHARE * len(head):
        return None
    try:
        head.decode("utf-8")
    except UnicodeDecodeError as error:
        if error.start < len(head) - 4 and not head.startswith((b"\xff\xfe", b"\xfe\xff")):
            return "a file of an unknown binary format", "the program that wrote it"
    return None


def _zipped(data: bytes) -> tuple[str, str]:
    for mark, what, remedy in _MIMETYPES:
        if data[30:38] == b"mimetype" and data.startswith(mark, 38):
            return what, remedy
    try:
        with zipfile.ZipFile(io.BytesIO(data)) as archive:
            names = archive.namelist()
    except (zipfile.BadZipFile, ValueError, OSError):
        names = []
    for begin, what, remedy in _OFFICE_KINDS:
        if any(name.startswith(begin) for name in names):
            return what, remedy
    return "a zip archive", _UNPACK
