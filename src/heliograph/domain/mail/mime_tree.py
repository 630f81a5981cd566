"""Parses an untrusted mail into a tree of parts, within limits and in linear time (RFC 2045, RFC 2046).

Offsets refer to one buffer. Each byte is scanned once per nesting level, and the nesting depth is limited.
"""

import re
from collections.abc import Iterator

import msgspec

from heliograph.domain.limits import KIB
from heliograph.domain.mail.mime_text import CHUNK_SIZE, decode_text, parse_parameters
from heliograph.domain.refusals import InvalidRequest

PARTS_MAX = 100
DEPTH_MAX = 10
HEADER_MAX = 256 * KIB  # bytes, for the mail and for each part

_FIELD_NAME = re.compile(r"[!-9;-~]{1,200}")
_FOLD = re.compile(r"\n[ \t]+")

Fields = list[tuple[str, str]]  # names as written, values unfolded


class MimeLimits(msgspec.Struct, frozen=True, kw_only=True):
    parts: int = PARTS_MAX
    depth: int = DEPTH_MAX
    header: int = HEADER_MAX  # octets of a header
    fields: int = HEADER_MAX  # fields per header
    value: int = HEADER_MAX  # characters of a field, including the name
    is_strict: bool = False  # reject content beyond the limits instead of skipping it


STRICT_LIMITS = MimeLimits(is_strict=True)  # for submitted mail, whose sender receives the error
LENIENT_LIMITS = MimeLimits()


class LeafPart(msgspec.Struct, frozen=True, kw_only=True):
    """A part without nested parts."""

    fields: dict[str, str]  # lower-case name → first value
    parameters: dict[str, str]  # parameters of Content-Type
    type: str
    filename: str
    is_attached: bool
    is_alternative: bool  # alternative to sibling parts
    start: int  # start offset of the body
    end: int

    def get_field(self, name: str) -> str:
        return self.fields.get(name, "")


def normalize_line_ends(raw: bytes | bytearray) -> bytes:
    """Convert CRLF to LF and insert an LF before the first line.

    Works in pieces that start at a line end: one call for 35 MiB would block other threads for 200 ms.
    """
    chunks, position = [b"\n"], 0
    while position < len(raw):
        end = raw.find(b"\r\n", position + CHUNK_SIZE)
        end = len(raw) if end < 0 else end
        chunks.append(bytes(raw[position:end]).replace(b"\r\n", b"\n"))
        position = end
    return b"".join(chunks)


def parse_header(mail: bytes, start: int, end: int, limits: MimeLimits) -> tuple[Fields, int]:
    """Return the header fields of the part at `start`, which follows a line end, and the start of the part's body."""
    header_end = mail.find(b"\n\n", start - 1, end)
    header_end = end if header_end < 0 else header_end
    if limits.is_strict and header_end - start > limits.header:
        raise InvalidRequest(f"A header has more than {limits.header} bytes. Shorten it, or end it with an empty line.")
    fields = parse_fields(decode_text(mail[start : max(start, min(header_end, start + limits.header))], ""), limits)
    if not fields and not limits.is_strict and header_end >= start:  # the part has no header at all
        return fields, start
    return fields, min(header_end + 2, end)


def parse_fields(block: str, limits: MimeLimits) -> Fields:
    """Return the `Name: value` fields of a header with folded lines joined; other lines are skipped."""
    fields: Fields = []
    for line in _FOLD.sub(" ", block).split("\n"):
        name, colon, value = line[: limits.value].partition(":")
        if colon and len(fields) < limits.fields and _FIELD_NAME.fullmatch(name.rstrip(" \t")):
            fields.append((name.rstrip(" \t"), value.strip()))
    return fields


def first_values(fields: Fields) -> dict[str, str]:
    return {name.lower(): value for name, value in reversed(fields)}


class LeafParts(list[LeafPart]):
    is_truncated = False  # whether the mail has more parts than the limit


def parse_leaves(mail: bytes, header: dict[str, str], body: int, limits: MimeLimits) -> LeafParts:
    """Return the parts without nested parts, in document order.

    Content beyond the limits is rejected or skipped, depending on `limits.is_strict`.
    """
    leaves = LeafParts()
    stack = [(header, body, len(mail), 0, False)]
    count = 0
    while stack:
        fields, start, end, depth, is_alternative = stack.pop()
        media = media_type(fields.get("content-type", ""))
        content_parameters = parse_parameters(fields.get("content-type", ""))
        boundary = content_parameters.get("boundary", "").rstrip()
        if not media.startswith("multipart/") or not boundary or (depth == limits.depth and not limits.is_strict):
            leaves.append(_build_leaf(fields, media, content_parameters, start, end, is_alternative=is_alternative))
            continue
        if depth == limits.depth:
            raise InvalidRequest(f"The parts of the mail are nested more than {depth} levels deep. Nest fewer levels.")
        children = []
        for piece_start, piece_end in _split_at_boundary(mail, boundary.encode(), start, end):
            count += 1
            if count > limits.parts:
                if not limits.is_strict:
                    leaves.is_truncated = True
                    break
                raise InvalidRequest(f"The mail has more than {limits.parts} parts. Send fewer files, or one archive.")
            child_fields, body_start = parse_header(mail, piece_start, piece_end, limits)
            children.append(
                (first_values(child_fields), body_start, piece_end, depth + 1, media == "multipart/alternative")
            )
        if not children and not limits.is_strict and count <= limits.parts:  # the declared boundary never occurs
            leaves.append(_build_leaf(fields, media, content_parameters, start, end, is_alternative=is_alternative))
        stack += reversed(children)
    return leaves


def media_type(content_type: str) -> str:
    return content_type.partition(";")[0].strip().lower()


def _build_leaf(
    fields: dict[str, str],
    media: str,
    content_parameters: dict[str, str],
    start: int,
    end: int,
    *,
    is_alternative: bool,
) -> LeafPart:
    disposition = fields.get("content-disposition", "")
    return LeafPart(
        fields=fields,
        parameters=content_parameters,
        type=media if "/" in media and not media.startswith("multipart/") else "text/plain",
        filename=parse_parameters(disposition).get("filename") or content_parameters.get("name", ""),
        is_attached=disposition.lower().startswith("attachment"),
        is_alternative=is_alternative,
        start=start,
        end=end,
    )


def _split_at_boundary(mail: bytes, boundary: bytes, start: int, end: int) -> Iterator[tuple[int, int]]:
    """Yield (start, end) of each piece between boundary lines; a last piece without boundary ends with its parent."""
    delimiter = b"\n--" + boundary
    part_start, position = None, mail.find(delimiter, start - 1, end)
    while position >= 0:
        after = position + len(delimiter)
        line_end = mail.find(b"\n", after, end)
        line_end = end if line_end < 0 else line_end
        rest = mail[after:line_end].rstrip() if line_end - after < KIB else b"?"
        if rest in (b"", b"--"):
            if part_start is not None:
                yield part_start, max(part_start, position)
            part_start = min(line_end + 1, end)
            if rest:
                return
        position = mail.find(delimiter, line_end, end)
    if part_start is not None:
        yield part_start, end
