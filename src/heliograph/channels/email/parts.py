"""Reads a foreign MIME message into flat parts, within limits: no input makes it raise, loop or grow.

A message inside the message (the returned original) is one part with its own fields and is not parsed: the text of our
own mail must not be mistaken for what the other side says. Only an attached report is parsed: we send none.
"""

import re

import msgspec

from heliograph.rules.mail.mime_text import decoded, parameters, unwrapped, without_words

READ_MAX = 1024 * 1024  # octets; the rest is ignored
DEPTH_MAX = 10
PARTS_MAX = 100
HEADER_MAX = 64 * 1024  # octets of one header block
FIELDS_MAX = 200
VALUE_MAX = 4096  # characters of one field
TEXT_MAX = 64 * 1024  # octets of one part's text, characters of all

ENCLOSED = ("message/rfc822", "message/global", "text/rfc822-headers", "message/global-headers")

Fields = dict[str, str]  # lower-case name to the first value

_FIELD = re.compile(r"([!-9;-~]{1,80})[ \t]*:(.*)", re.DOTALL)
_TAG = re.compile(r"<[^<>]{1,500}>")


class Part(msgspec.Struct, frozen=True, kw_only=True):
    type: str
    fields: Fields  # of an enclosed message: that message's own
    text: str
    head: bytes = b""  # of an enclosed message: its header block, with bare line feeds


class ReceivedMail(msgspec.Struct, frozen=True, kw_only=True):
    fields: Fields
    parts: list[Part]

    def enclosed(self) -> Part | None:
        return next((part for part in self.parts if part.type in ENCLOSED), None)

    def text(self) -> str:
        """What a person reads first: the text before the returned original."""
        plain, rich = [], []
        for part in self.parts:
            if part.type in ENCLOSED:
                break
            if part.type == "text/html":
                rich.append(_TAG.sub(" ", part.text))
            elif part.type.startswith("text/"):
                plain.append(part.text)
        words = "\n".join(plain)
        return (words if words.strip() else "\n".join(rich))[:TEXT_MAX]


def read_mail(raw: bytes) -> ReceivedMail:
    raw = raw[:READ_MAX].replace(b"\r\n", b"\n").replace(b"\r", b"\n")
    if raw.startswith(b"From "):  # a mailbox file's separator
        raw = raw.partition(b"\n")[2]
    parts: list[Part] = []
    return ReceivedMail(fields=_walk(raw, 0, parts), parts=parts)


def read_fields(block: str) -> Fields:
    """The `Name: value` lines of a header block, with folded lines joined; everything else is skipped."""
    fields: Fields = {}
    for line in re.sub(r"\n[ \t]+", " ", block).split("\n"):
        found = _FIELD.fullmatch(line[:VALUE_MAX])
        if found and len(fields) < FIELDS_MAX:
            fields.setdefault(found[1].lower(), without_words(found[2]).strip())
    return fields


def _walk(raw: bytes, depth: int, parts: list[Part]) -> Fields:
    fields, body = _split(raw)
    kind, given = _content_type(fields.get("content-type", ""))
    pieces = []
    if kind.startswith("multipart/") and depth < DEPTH_MAX:
        pieces = _pieces(body, given.get("boundary", ""))
    elif kind == "message/rfc822" and depth < DEPTH_MAX:
        inner = _unwrapped(body, fields.get("content-transfer-encoding", "")).lstrip(b"\n")
        is_report = _content_type(_split(inner)[0].get("content-type", ""))[0] == "multipart/report"
        pieces = [inner] if is_report else []
    for piece in pieces:
        if len(parts) < PARTS_MAX:
            _walk(piece, depth + 1, parts)
    if not pieces:  # also a multipart without its boundary: its body is text
        parts.append(_leaf(kind, fields, given, body))
    return fields


def _leaf(kind: str, fields: Fields, given: Fields, body: bytes) -> Part:
    if not kind.startswith(("text/", "message/", "multipart/")):
        return Part(type=kind, fields=fields, text="")
    content = _unwrapped(body[: TEXT_MAX * 2], fields.get("content-transfer-encoding", ""))
    if kind in ENCLOSED:
        inner = content.lstrip(b"\n")
        head = inner.partition(b"\n\n")[0][:HEADER_MAX].rstrip(b"\n") + b"\n"
        return Part(type=kind, fields=_split(inner)[0], text="", head=head)
    text = _decoded(content[:TEXT_MAX], given.get("charset", ""))
    return Part(type="text/plain" if kind.startswith("multipart/") else kind, fields=fields, text=text)


def _split(raw: bytes) -> tuple[Fields, bytes]:
    if raw.startswith(b"\n"):
        return {}, raw[1:]
    head, _, body = raw.partition(b"\n\n")
    fields = read_fields(head[:HEADER_MAX].decode("utf-8", "replace"))
    return (fields, body) if fields else ({}, raw)


def _content_type(value: str) -> tuple[str, Fields]:
    kind = value.partition(";")[0].strip().lower()
    return kind if "/" in kind else "text/plain", parameters(value)


def _pieces(body: bytes, boundary: str) -> list[bytes]:
    if not boundary:
        return []
    delimiter = rb"^--" + re.escape(boundary.encode("utf-8", "replace")) + rb"(?:--)?[ \t]*(?:\n|\Z)"
    return re.split(delimiter, body, maxsplit=PARTS_MAX, flags=re.MULTILINE)[1:]


def _unwrapped(body: bytes, encoding: str) -> bytes:
    try:
        return unwrapped(body, encoding)
    except ValueError:  # truncated or mislabelled: read as it is
        return body


def _decoded(content: bytes, charset: str) -> str:
    return decoded(content, charset).replace("\r", "")
