"""The strict subset of USTAR that a pack is: plain files, one spelling of every header.

A header is read by writing it: name and size are taken out, the header is made from them again, and the bytes must be
the same. So there is no mode, owner, time, link, extension or number format to be judged, and nothing here ever touches
a path.
"""

from __future__ import annotations

import re
import struct

from agentkv.store.format import Malformed

BLOCK = 512
END = bytes(2 * BLOCK)
MAX_MEMBER_BYTES = 8**11 - 1
MAX_NAME = 100

# Offsets follow from the order; FORMAT.md's byte table is compared with this one by a test.
HEADER_FIELDS = (
    ("name", "100s"),
    ("mode", "8s"),
    ("uid", "8s"),
    ("gid", "8s"),
    ("size", "12s"),
    ("mtime", "12s"),
    ("chksum", "8s"),
    ("typeflag", "1s"),
    ("linkname", "100s"),
    ("magic", "6s"),
    ("version", "2s"),
    ("uname", "32s"),
    ("gname", "32s"),
    ("devmajor", "8s"),
    ("devminor", "8s"),
    ("prefix", "155s"),
    ("padding", "12s"),
)
_HEADER = struct.Struct("".join(kind for _, kind in HEADER_FIELDS))
_CHECKSUM = slice(148, 156)
_NAME = re.compile(r"[\x21-\x7e]{1,100}")
_SIZE = re.compile(rb"[0-7]{11}\0")
_PLAIN_FILE = b"0"


def header(name: str, size: int) -> bytes:
    """The 512 bytes before a member. Raises Malformed for a name or size that has no spelling here."""
    if not _NAME.fullmatch(name):
        raise Malformed(f"{name!r} is not a member name (1 to {MAX_NAME} printable ASCII characters)")
    if not 0 <= size <= MAX_MEMBER_BYTES:
        raise Malformed(f"{size:,} bytes, more than a member can have ({MAX_MEMBER_BYTES:,})")
    zero = b"0000000\0"
    blank = _HEADER.pack(
        name.encode("ascii"), b"0000644\0", zero, zero, b"%011o\0" % size, b"00000000000\0", b" " * 8,
        _PLAIN_FILE, b"", b"ustar\0", b"00", b"", b"", zero, zero, b"", b"",
    )  # fmt: skip
    return blank[: _CHECKSUM.start] + b"%06o\0 " % sum(blank) + blank[_CHECKSUM.stop :]


def read_header(data: bytes) -> tuple[str, int]:
    """Name and size; Malformed unless ``data`` is exactly what :func:`header` writes for them."""
    fields = dict(zip((name for name, _ in HEADER_FIELDS), _HEADER.unpack(data), strict=True))
    # A name is shown only if it is valid: other bytes have no place in a message.
    given = fields["name"].split(b"\0", 1)[0].decode("latin-1")
    name = repr(given) if _NAME.fullmatch(given) else "a member"
    if data == bytes(BLOCK):
        raise Malformed("the archive ends where a member is expected")
    if fields["typeflag"] != _PLAIN_FILE:
        raise Malformed(f"{name} is not a plain file (a link, a directory or an extension)")
    if not _SIZE.fullmatch(fields["size"]):
        raise Malformed(f"{name} has no size in 11 octal digits")
    size = int(fields["size"][:11], 8)
    if header(given, size) != data:
        raise Malformed(f"the header of {name} is not the one that a pack has for its name and size")
    return given, size


def padding(size: int) -> int:
    """How many zero bytes follow a member of that size."""
    return -size % BLOCK


def span(size: int) -> int:
    """What a member takes up with its header and padding."""
    return BLOCK + size + padding(size)
