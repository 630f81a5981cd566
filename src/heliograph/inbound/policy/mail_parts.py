"""Splits a mail from an untrusted sender into a flat list of decoded parts.

Invalid mail raises no exception, and memory is bounded. An enclosed message is one part whose body is not parsed: in a
bounce it is a copy of the mail that we sent, whose text must not be mistaken for the remote server's. Only an enclosed
message of the type `multipart/report` is parsed as well: it is a forwarded bounce, because we never send that type.
"""

import re

import msgspec

from heliograph.domain.mail import mime_tree
from heliograph.domain.mail.mime_text import decode_encoded_words, decode_text, decode_transfer_encoding
from heliograph.domain.mail.mime_tree import (
    LeafPart,
    MimeLimits,
    first_values,
    media_type,
    normalize_line_ends,
    parse_header,
    parse_leaves,
)

READ_MAX = 1024 * 1024  # maximum octets read; the rest is ignored
DEPTH_MAX = 10
PARTS_MAX = 100
TEXT_MAX = 64 * 1024  # maximum octets of a part's text, and maximum characters of all texts together
LIMITS = MimeLimits(parts=PARTS_MAX, depth=DEPTH_MAX, header=64 * 1024, fields=200, value=4096)

ENCLOSED = ("message/rfc822", "message/global", "text/rfc822-headers", "message/global-headers")

Fields = dict[str, str]  # lower-case name → value of the first such field

_HTML_TAG = re.compile(r"<[^<>]{1,500}>")


class Part(msgspec.Struct, frozen=True, kw_only=True):
    type: str
    fields: Fields  # an enclosed message has its own fields here
    text: str
    head: bytes = b""  # header of an enclosed message, with LF line ends


class ReceivedMail(msgspec.Struct, frozen=True, kw_only=True):
    fields: Fields
    parts: list[Part]

    def enclosed(self) -> Part | None:
        return next((part for part in self.parts if part.type in ENCLOSED), None)

    def text(self) -> str:
        """Return the text that a person reads first: all text before the returned original."""
        plain_texts, html_texts = [], []
        for part in self.parts:
            if part.type in ENCLOSED:
                break
            if part.type == "text/html":
                html_texts.append(_HTML_TAG.sub(" ", part.text))
            elif part.type.startswith("text/"):
                plain_texts.append(part.text)
        plain_text = "\n".join(plain_texts)
        return (plain_text if plain_text.strip() else "\n".join(html_texts))[:TEXT_MAX]


def read_mail(raw: bytes) -> ReceivedMail:
    parts: list[Part] = []
    return ReceivedMail(fields=_parse_parts(raw[:READ_MAX], 0, parts), parts=parts)


def read_fields(block: str) -> Fields:
    return _decode_fields(first_values(mime_tree.parse_fields(block, LIMITS)))


def _parse_parts(raw: bytes, depth: int, parts: list[Part]) -> Fields:
    mail = normalize_line_ends(raw).replace(b"\r", b"\n")
    fields, body = parse_header(mail, 1, len(mail), LIMITS)
    for leaf in parse_leaves(mail, first_values(fields), body, LIMITS):
        content = decode_content(mail, leaf)
        if leaf.type == "message/rfc822" and depth < DEPTH_MAX and _is_report(content):
            _parse_parts(content.lstrip(b"\n"), depth + 2, parts)  # the attached report has parts of its own
        elif len(parts) < PARTS_MAX:
            parts.append(_to_part(leaf, content))
    return _decode_fields(first_values(fields))


def _to_part(leaf: LeafPart, content: bytes) -> Part:
    if leaf.type in ENCLOSED:
        inner = normalize_line_ends(content[: TEXT_MAX * 2].lstrip(b"\n"))
        head = inner[1:].partition(b"\n\n")[0][: LIMITS.header].rstrip(b"\n") + b"\n"
        return Part(type=leaf.type, fields=_header_fields(inner), text="", head=head)
    is_text = leaf.type.startswith(("text/", "message/"))
    text = decode_text(content[:TEXT_MAX], leaf.parameters.get("charset", "")).replace("\r", "") if is_text else ""
    return Part(type=leaf.type, fields=_decode_fields(leaf.fields), text=text)


def _is_report(content: bytes) -> bool:
    fields = _header_fields(normalize_line_ends(content.lstrip(b"\n")))
    return media_type(fields.get("content-type", "")) == "multipart/report"


def _header_fields(mail: bytes) -> Fields:
    return _decode_fields(first_values(parse_header(mail, 1, len(mail), LIMITS)[0]))


def _decode_fields(fields: Fields) -> Fields:
    return {name: decode_encoded_words(value).strip() for name, value in fields.items()}


def decode_content(mail: bytes, leaf: LeafPart) -> bytes:
    """Return the decoded content of a part; unchanged if its transfer encoding is invalid."""
    body = mail[leaf.start : leaf.end]
    try:
        return decode_transfer_encoding(body, leaf.get_field("content-transfer-encoding"))
    except ValueError:
        return body
