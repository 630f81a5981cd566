"""Splits a foreign mail into flat parts with their texts, within limits: no input raises, loops or exhausts memory.

An enclosed message (the returned original) is one part with its own fields and is not parsed, so that the text of our
own mail is not mistaken for the remote server's. Only an attached report is parsed, because we send none.
"""

import re

import msgspec

from heliograph.domain.mail import mime_tree
from heliograph.domain.mail.mime_text import decoded, unwrapped, without_words
from heliograph.domain.mail.mime_tree import (
    Leaf,
    MimeLimits,
    firsts,
    plain,
    read_head,
    read_leaves,
    type_name,
)

READ_MAX = 1024 * 1024  # octets; the rest is ignored
DEPTH_MAX = 10
PARTS_MAX = 100
TEXT_MAX = 64 * 1024  # octets of one part's text, characters of all texts
LIMITS = MimeLimits(parts=PARTS_MAX, depth=DEPTH_MAX, header=64 * 1024, fields=200, value=4096)

ENCLOSED = ("message/rfc822", "message/global", "text/rfc822-headers", "message/global-headers")

Fields = dict[str, str]  # lower-case name → first value

_TAG = re.compile(r"<[^<>]{1,500}>")


class Part(msgspec.Struct, frozen=True, kw_only=True):
    type: str
    fields: Fields  # for an enclosed message: its own fields
    text: str
    head: bytes = b""  # for an enclosed message: its header block, with bare line feeds


class ReceivedMail(msgspec.Struct, frozen=True, kw_only=True):
    fields: Fields
    parts: list[Part]

    def enclosed(self) -> Part | None:
        return next((part for part in self.parts if part.type in ENCLOSED), None)

    def text(self) -> str:
        """Return the text that a person reads first: everything before the returned original."""
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
    parts: list[Part] = []
    return ReceivedMail(fields=_walk(raw[:READ_MAX], 0, parts), parts=parts)


def read_fields(block: str) -> Fields:
    return _fields(firsts(mime_tree.read_fields(block, LIMITS)))


def _walk(raw: bytes, depth: int, parts: list[Part]) -> Fields:
    mail = plain(raw).replace(b"\r", b"\n")
    fields, body = read_head(mail, 1, len(mail), LIMITS)
    for leaf in read_leaves(mail, firsts(fields), body, LIMITS):
        content = _unwrapped(mail[leaf.start : leaf.end], leaf)
        if leaf.type == "message/rfc822" and depth < DEPTH_MAX and _is_report(content):
            _walk(content.lstrip(b"\n"), depth + 2, parts)  # an attached report has parts itself
        elif len(parts) < PARTS_MAX:
            parts.append(_part(leaf, content))
    return _fields(firsts(fields))


def _part(leaf: Leaf, content: bytes) -> Part:
    if leaf.type in ENCLOSED:
        inner = plain(content[: TEXT_MAX * 2].lstrip(b"\n"))
        head = inner[1:].partition(b"\n\n")[0][: LIMITS.header].rstrip(b"\n") + b"\n"
        return Part(type=leaf.type, fields=_head(inner), text="", head=head)
    is_text = leaf.type.startswith(("text/", "message/"))
    text = decoded(content[:TEXT_MAX], leaf.parameters.get("charset", "")).replace("\r", "") if is_text else ""
    return Part(type=leaf.type, fields=_fields(leaf.fields), text=text)


def _is_report(content: bytes) -> bool:
    return type_name(_head(plain(content.lstrip(b"\n"))).get("content-type", "")) == "multipart/report"


def _head(mail: bytes) -> Fields:
    return _fields(firsts(read_head(mail, 1, len(mail), LIMITS)[0]))


def _fields(fields: Fields) -> Fields:
    return {name: without_words(value).strip() for name, value in fields.items()}


def _unwrapped(body: bytes, leaf: Leaf) -> bytes:
    try:
        return unwrapped(body, leaf.field("content-transfer-encoding"))
    except ValueError:  # truncated or mislabelled: keep it undecoded
        return body
