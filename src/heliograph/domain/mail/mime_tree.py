"""Parses an untrusted mail into a tree of parts, within limits and in linear time (RFC 2045, RFC 2046).

Offsets refer to one buffer, and each byte is scanned once per nesting level, of which there are few.
"""

import re
from collections.abc import Iterator

import msgspec

from heliograph.domain.limits import KIB
from heliograph.domain.mail.mime_text import PIECE, decoded, parameters
from heliograph.domain.refusals import InvalidRequest

PARTS_MAX = 100
DEPTH_MAX = 10
HEADER_MAX = 256 * KIB  # bytes, for the mail and for each part

_NAME = re.compile(r"[!-9;-~]{1,200}")
_FOLDED = re.compile(r"\n[ \t]+")

Fields = list[tuple[str, str]]  # names as written, values unfolded


class MimeLimits(msgspec.Struct, frozen=True, kw_only=True):
    parts: int = PARTS_MAX
    depth: int = DEPTH_MAX
    header: int = HEADER_MAX  # octets
    fields: int = HEADER_MAX  # fields per header
    value: int = HEADER_MAX  # characters of a field, including the name
    is_strict: bool = False  # reject content beyond the limits instead of skipping it


OURS = MimeLimits(is_strict=True)  # for submitted mail, whose sender receives the error
FOREIGN = MimeLimits()


class Leaf(msgspec.Struct, frozen=True, kw_only=True):
    """A part without nested parts."""

    fields: dict[str, str]  # lower-case name → first value
    parameters: dict[str, str]  # parameters of Content-Type
    type: str
    filename: str
    is_attached: bool
    is_alternative: bool  # alternative to sibling parts
    start: int  # start offset of the body
    end: int

    def field(self, name: str) -> str:
        return self.fields.get(name, "")


def plain(raw: bytes | bytearray) -> bytes:
    """Convert CRLF to LF and insert an LF before the first line.

    Works in pieces that start at a line end: one call for 35 MiB would block other threads for 200 ms.
    """
    pieces, at = [b"\n"], 0
    while at < len(raw):
        end = raw.find(b"\r\n", at + PIECE)
        end = len(raw) if end < 0 else end
        pieces.append(bytes(raw[at:end]).replace(b"\r\n", b"\n"))
        at = end
    return b"".join(pieces)


def read_head(mail: bytes, start: int, end: int, limits: MimeLimits) -> tuple[Fields, int]:
    """Return the fields of the part at `start` and the start of its body. The byte before `start` is a line end."""
    stop = mail.find(b"\n\n", start - 1, end)
    stop = end if stop < 0 else stop
    if limits.is_strict and stop - start > limits.header:
        raise InvalidRequest(f"A header has more than {limits.header} bytes. Send less, or an empty line after it.")
    fields = read_fields(decoded(mail[start : max(start, min(stop, start + limits.header))], ""), limits)
    if not fields and not limits.is_strict and stop >= start:  # the part has no header at all
        return fields, start
    return fields, min(stop + 2, end)


def read_fields(block: str, limits: MimeLimits) -> Fields:
    """Return the `Name: value` lines of a header with folded lines joined; other lines are skipped."""
    fields: Fields = []
    for line in _FOLDED.sub(" ", block).split("\n"):
        name, colon, value = line[: limits.value].partition(":")
        if colon and len(fields) < limits.fields and _NAME.fullmatch(name.rstrip(" \t")):
            fields.append((name.rstrip(" \t"), value.strip()))
    return fields


def firsts(fields: Fields) -> dict[str, str]:
    return {name.lower(): value for name, value in reversed(fields)}


class Leaves(list[Leaf]):
    is_cut = False  # more parts existed than the limit


def read_leaves(mail: bytes, head: dict[str, str], body: int, limits: MimeLimits) -> Leaves:
    """Return the leaves in document order.

    Content beyond the limits is rejected or skipped, depending on `limits.is_strict`.
    """
    leaves = Leaves()
    waiting = [(head, body, len(mail), 0, False)]
    count = 0
    while waiting:
        fields, start, end, depth, is_alternative = waiting.pop()
        kind = type_name(fields.get("content-type", ""))
        given = parameters(fields.get("content-type", ""))
        boundary = given.get("boundary", "").rstrip()
        if not kind.startswith("multipart/") or not boundary or (depth == limits.depth and not limits.is_strict):
            leaves.append(_leaf(fields, kind, given, start, end, is_alternative=is_alternative))
            continue
        if depth == limits.depth:
            raise InvalidRequest(f"The mail has parts inside parts {depth} times. Nest them less.")
        inner = []
        for piece_start, piece_end in _pieces(mail, boundary.encode(), start, end):
            count += 1
            if count > limits.parts:
                if not limits.is_strict:
                    leaves.is_cut = True
                    break
                raise InvalidRequest(f"The mail has more than {limits.parts} parts. Send fewer, or one archive.")
            own, begins = read_head(mail, piece_start, piece_end, limits)
            inner.append((firsts(own), begins, piece_end, depth + 1, kind == "multipart/alternative"))
        if not inner and not limits.is_strict and count <= limits.parts:  # the declared boundary never occurs
            leaves.append(_leaf(fields, kind, given, start, end, is_alternative=is_alternative))
        waiting += reversed(inner)
    return leaves


def type_name(content_type: str) -> str:
    return content_type.partition(";")[0].strip().lower()


def _leaf(
    fields: dict[str, str], kind: str, given: dict[str, str], start: int, end: int, *, is_alternative: bool
) -> Leaf:
    disposition = fields.get("content-disposition", "")
    return Leaf(
        fields=fields,
        parameters=given,
        type=kind if "/" in kind and not kind.startswith("multipart/") else "text/plain",
        filename=parameters(disposition).get("filename") or given.get("name", ""),
        is_attached=disposition.lower().startswith("attachment"),
        is_alternative=is_alternative,
        start=start,
        end=end,
    )


def _pieces(mail: bytes, boundary: bytes, start: int, end: int) -> Iterator[tuple[int, int]]:
    """Yield (start, end) of each piece between boundary lines; an unterminated last piece ends with its parent."""
    mark = b"\n--" + boundary
    begun, at = None, mail.find(mark, start - 1, end)
    while at >= 0:
        after = at + len(mark)
        line_end = mail.find(b"\n", after, end)
        line_end = end if line_end < 0 else line_end
        rest = mail[after:line_end].rstrip() if line_end - after < KIB else b"?"
        if rest in (b"", b"--"):
            if begun is not None:
                yield begun, max(begun, at)
            begun = min(line_end + 1, end)
            if rest:
                return
        at = mail.find(mark, line_end, end)
    if begun is not None:
        yield begun, end
