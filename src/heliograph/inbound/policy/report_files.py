"""Finds and unpacks the report files in a mail from an untrusted sender, with bounded memory.

A file is plain, gzip or zip. Archives are unpacked step by step, so that a decompression bomb is refused after
UNPACKED_MAX bytes.
"""

import zlib
from collections.abc import Iterator

from heliograph.domain.limits import MIB
from heliograph.domain.mail.mime_text import decode_transfer_encoding
from heliograph.domain.mail.mime_tree import (
    LENIENT_LIMITS,
    LeafPart,
    first_values,
    normalize_line_ends,
    parse_header,
    parse_leaves,
)

UNPACKED_MAX = 25 * MIB  # maximum total size of a mail's files when unpacked, in bytes
FILES_MAX = 10  # maximum report files per mail
CHUNK_SIZE = MIB

_GZIP, _ZIP = b"\x1f\x8b", b"PK\x03\x04"
_GZIP_WINDOW, _ZIP_WINDOW = 31, -15  # values of zlib's `wbits` for a stream with a gzip header, and without a header
_ZIP_ENTRIES_MAX = 10  # maximum entries before the report, such as directories
_ZIP_HEADER_SIZE = 30
_ZIP_ENCRYPTED, _ZIP_HAS_DESCRIPTOR = 1, 8  # flags
_ZIP_STORED, _ZIP_DEFLATED = 0, 8  # compression methods
_UTF16 = (b"\xff\xfe", b"\xfe\xff")
_BYTE_ORDER_MARK = b"\xef\xbb\xbf"


class ReportTooLarge(Exception):
    """The report in a mail is larger than UNPACKED_MAX."""


class UnreadableReport(Exception):
    """The mail contains no valid report; the message says why."""


def find_report_files(raw: bytes) -> list[bytes]:
    """Return the decoded report files of a mail, still compressed. Raises UnreadableReport if there are none."""
    mail = normalize_line_ends(raw)
    fields, body = parse_header(mail, 1, len(mail), LENIENT_LIMITS)
    files = []
    for leaf in parse_leaves(mail, first_values(fields), body, LENIENT_LIMITS):
        try:
            content = decode_transfer_encoding(mail[leaf.start : leaf.end], leaf.get_field("content-transfer-encoding"))
        except ValueError:
            continue
        if _is_report_file(leaf, content):
            files.append(content)
    if not files:
        raise UnreadableReport("no report attached")
    if len(files) > FILES_MAX:
        raise ReportTooLarge
    return files


def unpack(files: list[bytes]) -> Iterator[Iterator[bytes]]:
    """Yield the content of each file in pieces of at most CHUNK_SIZE.

    Reading a piece raises ReportTooLarge if the files together exceed UNPACKED_MAX, and UnreadableReport if a file is
    damaged.
    """
    unpacked = 0

    def check_size(pieces: Iterator[bytes]) -> Iterator[bytes]:
        nonlocal unpacked
        for piece in pieces:
            unpacked += len(piece)
            if unpacked > UNPACKED_MAX:
                raise ReportTooLarge
            yield piece

    for content in files:
        if content.startswith(_GZIP):
            yield check_size(_gunzip(content))
        elif content.startswith(_ZIP):
            yield check_size(_unzip(content))
        else:
            yield check_size(_split(content))


def _is_report_file(leaf: LeafPart, content: bytes) -> bool:
    if content.startswith((_GZIP, _ZIP)):
        return True
    if leaf.type == "text/html":
        return False
    head = content[:1000].removeprefix(_BYTE_ORDER_MARK).lstrip()
    if leaf.type == "text/plain" and not leaf.is_attached:
        return head.startswith((b"<?xml", b"<feedback", b"{"))
    return head.startswith((b"<", b"{", *_UTF16))


def _split(content: bytes) -> Iterator[bytes]:
    for start in range(0, len(content), CHUNK_SIZE):
        yield content[start : start + CHUNK_SIZE]


def _gunzip(content: bytes) -> Iterator[bytes]:
    rest = content
    while rest.startswith(_GZIP):  # a file may have several members
        stream = zlib.decompressobj(_GZIP_WINDOW)
        yield from _inflate(stream, rest)
        rest = stream.unused_data


def _inflate(stream: "zlib._Decompress", packed: bytes) -> Iterator[bytes]:
    try:
        while not stream.eof:
            piece = stream.decompress(packed, CHUNK_SIZE)
            packed = stream.unconsumed_tail
            if not piece and not packed and not stream.eof:
                raise UnreadableReport("the archive is truncated")
            yield piece
    except zlib.error:
        raise UnreadableReport("the archive is damaged") from None


def _unzip(content: bytes) -> Iterator[bytes]:
    """Yield the content of the archive's first file.

    The file is found by its local header, because reading the archive's directory could exhaust memory.
    """
    position = 0
    for _ in range(_ZIP_ENTRIES_MAX):
        header = content[position : position + _ZIP_HEADER_SIZE]
        if len(header) < _ZIP_HEADER_SIZE or not header.startswith(_ZIP):
            break
        flags, method, crc, packed_size = (
            int.from_bytes(header[start:end], "little") for start, end in ((6, 8), (8, 10), (14, 18), (18, 22))
        )
        name_end = position + _ZIP_HEADER_SIZE + int.from_bytes(header[26:28], "little")
        start = name_end + int.from_bytes(header[28:30], "little")
        if flags & _ZIP_ENCRYPTED:
            raise UnreadableReport("the archive is encrypted")
        if not content[position + _ZIP_HEADER_SIZE : name_end].endswith(b"/"):
            has_descriptor = bool(flags & _ZIP_HAS_DESCRIPTOR)
            yield from _unzip_file(content, start, method, None if has_descriptor else (crc, packed_size))
            return
        position = start + packed_size
    raise UnreadableReport("the archive contains no file")


def _unzip_file(content: bytes, start: int, method: int, sizes: tuple[int, int] | None) -> Iterator[bytes]:
    """Yield a file's content and verify its checksum.

    `sizes`: (checksum, packed size); None if they follow the content.
    """
    checksum = 0
    if method == _ZIP_DEFLATED:
        stream = zlib.decompressobj(_ZIP_WINDOW)
        pieces = _inflate(stream, content[start:])
    elif method == _ZIP_STORED and sizes and start + sizes[1] <= len(content):
        pieces = _split(content[start : start + sizes[1]])
    else:
        raise UnreadableReport("the archive is truncated or uses an unknown compression method")
    for piece in pieces:
        checksum = zlib.crc32(piece, checksum)
        yield piece
    if sizes is None:  # a data descriptor follows, which may begin with a signature
        descriptor = stream.unused_data.removeprefix(b"PK\x07\x08")
        expected = int.from_bytes(descriptor[:4], "little")
    else:
        expected = sizes[0]
    if checksum != expected:
        raise UnreadableReport("the archive is damaged")
