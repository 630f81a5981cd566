"""Converts a mail submitted by SMTP to the fields of `POST /v1/emails` (compat.md, SMTP submission).

Takes linear time for any input.
"""

import re
from collections.abc import Collection, Sequence
from contextlib import suppress
from typing import Any

import msgspec
import pybase64

from heliograph.domain.limits import BODY_OCTETS_MAX, MIB, NAME_ADDR_MAX
from heliograph.domain.mail.address import Address, name_addr, parse_address, parse_name_addr
from heliograph.domain.mail.attachments import ALLOWED_TYPES, TYPE_OF, type_of
from heliograph.domain.mail.mime_text import decoded, unwrapped, without_words
from heliograph.domain.mail.mime_tree import (
    OURS,
    Fields,
    Leaf,
    firsts,
    plain,
    read_head,
    read_leaves,
    type_name,
)
from heliograph.domain.mail.tnef import unpacked
from heliograph.domain.refusals import BodyTooLong, InvalidAttachment, InvalidRequest
from heliograph.domain.sending.send_options import OWN_HEADERS
from heliograph.domain.text import single_spaced

SHOWN_MAX = 1000  # maximum addresses in To and Cc together
CONTENT_ID_MAX = 128
FLOWED_MAX = MIB  # characters; longer texts are not unflowed
CODED_MAX = 3 * BODY_OCTETS_MAX  # bytes of a text in its transfer encoding: quoted-printable can triple the size

_LINE_END = re.compile(rb"\r?\n|\r")  # calendars need CRLF (RFC 5545, 3.1)
CALENDAR = "text/calendar"  # an invitation; few clients offer to accept one that is an attachment
TNEF = ("application/ms-tnef", "application/vnd.ms-tnef")

KEY_HEADERS = ("idempotency-key", "resend-idempotency-key")
TAG_HEADERS = ("x-heliograph-tag", "x-pm-tag", "x-tags")
METADATA_HEADERS = ("x-heliograph-metadata-", "x-pm-metadata-")
OPTION_HEADERS = {
    "x-heliograph-send-at": "scheduled_at",
    "x-heliograph-expires-at": "expires_at",
    "x-heliograph-priority": "priority",
    "x-heliograph-template": "template_id",
}
JSON_HEADERS = {"x-heliograph-variables": "variables", "x-heliograph-template-variables": "variables",
                "x-metadata": "metadata"}  # fmt: skip
REMOVED = ("x-heliograph-", "x-pm-", *TAG_HEADERS, *JSON_HEADERS)  # removed before sending

_SPACES = re.compile(r"[ \t\r\n]+")
_TOKEN = re.compile(r'"((?:[^"\\]|\\.)*)"|<([^<>]*)>|([,;:(])|([^",;:<>()\s]+)|\s+|.', re.DOTALL)
_COMMENT = re.compile(r"\\.|[()]", re.DOTALL)
_CID = re.compile("[^A-Za-z0-9._@-]")


class Submitted(msgspec.Struct, frozen=True, kw_only=True):
    request: dict[str, Any]  # body of POST /v1/emails, without the fields in `json`
    json: dict[str, str]  # field → JSON text of a header
    to: list[str]  # addresses in the mail's headers, including those that are not envelope recipients
    cc: list[str]
    keys: list[bytes]  # every Idempotency-Key
    message_id: str
    alternatives: tuple[int, ...] = ()  # indexes of attachments that are calendar alternatives of the body


def read_submitted(raw: bytes | bytearray, recipients: Sequence[Address], more: Collection[str] = ()) -> Submitted:
    """Parse a mail; raise a Refusal if it is invalid.

    `recipients` are the envelope recipients; `more` are file types in addition to the spec's.
    """
    if b"\0" in raw:
        raise InvalidRequest("The mail has a null byte. Encode what is not text as base64.")
    mail = plain(raw)
    fields, body = read_head(mail, 1, len(mail), OURS)
    head = firsts(fields)
    parts = read_leaves(mail, head, body, OURS)
    to, cc = (_mailboxes(fields, name) for name in ("to", "cc"))
    if len(to) + len(cc) > SHOWN_MAX:
        raise InvalidRequest(f"To and Cc have more than {SHOWN_MAX} addresses. Name fewer.")
    options, json = _options(fields)
    request: dict[str, Any] = _addressed(recipients, to, cc) | options
    if sender := _sender(fields):
        request["from"] = sender
    if replies := [address for _, address in read_addresses(head.get("reply-to", ""))]:
        request["reply_to"] = replies
    if headers := _kept(fields):
        request["headers"] = headers
    contents, alternatives = _contents(mail, parts, more)
    request |= contents
    if "template_id" in request:  # the template defines the content; clients that require a body may still send one
        for own in ("text", "html"):
            request.pop(own, None)
    else:
        request["subject"] = one_line(head.get("subject", ""))
    return Submitted(
        request=request,
        json=json,
        to=[_shown(name, address) for name, address in to],
        cc=[_shown(name, address) for name, address in cc],
        keys=[value.strip().encode() for name, value in fields if name.lower() in KEY_HEADERS],
        message_id=one_line(head.get("message-id", "")),
        alternatives=alternatives,
    )


# -- content -----------------------------------------------------------------------------------------------


def _contents(mail: bytes, parts: Sequence[Leaf], more: Collection[str]) -> tuple[dict[str, Any], tuple[int, ...]]:
    """Return the first text and HTML that are not files; the other parts become attachments, some as alternatives."""
    said: dict[str, str] = {}
    files = []
    for part in parts:
        field = {"text/plain": "text", "text/html": "html"}.get(part.type)
        if part.is_attached or (field is None and not part.is_alternative) or part.filename:
            files.append(part)
        elif field and field not in said:
            said[field] = _text(mail, part)
        elif field == "html":  # some mailers continue the HTML after a file
            said["html"] += _text(mail, part)
        # Alternatives of other types are dropped: they repeat the same content.
        elif field or part.type in {*ALLOWED_TYPES, *more}:
            files.append(part)
    if not said.get("html"):
        said = {"text": said.get("text") or "\n"}
    attachments: list[dict[str, str | None]] = []
    alternatives: list[int] = []
    for number, part in enumerate(files, 1):
        content = _unwrapped(mail, part)
        if part.type in TNEF:
            attachments += [_attachment(file.name, "", file.content, more) for file in unpacked(content)]
        else:
            is_alternative = part.type == CALENDAR and part.is_alternative and not part.is_attached
            if is_alternative:
                content = _LINE_END.sub(b"\r\n", content)
            attachment = _attachment(part.filename or _name(part, number), part.field("content-type"), content, more)
            _place(attachment, part, said, attachments)
            if is_alternative:
                alternatives.append(len(attachments))
            attachments.append(attachment)
    return {**said, **({"attachments": attachments} if attachments else {})}, tuple(alternatives)


def _text(mail: bytes, part: Leaf) -> str:
    if part.end - part.start > CODED_MAX:
        raise BodyTooLong(f"A text has {part.end - part.start} bytes. {BodyTooLong.fix}")
    content = _unwrapped(mail, part)
    if len(content) > 2 * BODY_OCTETS_MAX:  # UTF-16 uses two bytes per character
        raise BodyTooLong(f"A text has {len(content)} bytes. {BodyTooLong.fix}")
    given = part.parameters
    text = decoded(content, given.get("charset", "")).replace("\r\n", "\n").replace("\r", "\n")
    if "\0" in text:
        raise InvalidRequest("A text has a null character. Remove it.")
    if part.type == "text/plain" and given.get("format", "").lower() == "flowed" and len(text) <= FLOWED_MAX:
        return unflowed(text, given.get("delsp", "").lower() == "yes")
    return text


def unflowed(text: str, delsp: bool) -> str:
    """Join each line that ends with a space to the next (RFC 3676)."""
    lines: list[list[str]] = []
    depth, goes_on = 0, False
    for line in text.split("\n"):
        content = line.lstrip(">")
        quotes, content = len(line) - len(content), content.removeprefix(" ")
        soft = content.endswith(" ") and content != "-- "
        if goes_on and quotes == depth and content != "-- ":
            lines[-1].append(content)
        else:
            lines.append([">" * quotes + " " * bool(quotes), content])
        if soft and delsp:
            lines[-1][-1] = content[:-1]
        depth, goes_on = quotes, soft
    return "\n".join("".join(pieces) for pieces in lines)


def _unwrapped(mail: bytes, part: Leaf) -> bytes:
    try:
        return unwrapped(mail[part.start : part.end], part.field("content-transfer-encoding"))
    except ValueError:
        raise InvalidAttachment("A part of the mail is not base64, though it says so. Encode it again.") from None


def _name(part: Leaf, number: int) -> str:
    ending = next((ending for ending, kind in TYPE_OF.items() if kind == part.type), "")
    return f"attachment-{number}" + (f".{ending}" if ending else "")


def _attachment(filename: str, kind: str, content: bytes, more: Collection[str]) -> dict[str, str | None]:
    """Return an attachment; the content type is omitted if the filename gives a better one."""
    known = type_name(kind) in {*ALLOWED_TYPES, *more} or not type_of(filename, more)
    return {
        "filename": filename,
        "content": pybase64.b64encode(content).decode(),
        "content_type": (kind or "text/plain") if known else None,
        "content_id": None,
    }


def _place(
    attachment: dict[str, str | None], part: Leaf, said: dict[str, str], before: Sequence[dict[str, Any]]
) -> None:
    """Make a part inline if the HTML references it or it is not marked as an attachment; invalid characters in its
    Content-ID are replaced.
    """
    given = part.field("content-id").strip().removeprefix("<").removesuffix(">")
    html = said.get("html", "")
    if not given or not html or (part.is_attached and f"cid:{given}" not in html):
        return
    taken = {one["content_id"] for one in before}
    ours = _CID.sub("_", given)[:CONTENT_ID_MAX]
    if ours in taken:
        return
    attachment["content_id"] = ours
    if ours != given:
        said["html"] = html.replace(f"cid:{given}", f"cid:{ours}")


# -- addresses and options ---------------------------------------------------------------------------------


def _addressed(
    recipients: Sequence[Address], to: Sequence[tuple[str, Address]], cc: Sequence[tuple[str, Address]]
) -> dict[str, list[str]]:
    """Split envelope recipients into to and cc by header, the rest into bcc; at least one is in `to`."""
    left = {address.normal: address.given for address in recipients}
    shown = [[left.pop(address.normal) for _, address in field if address.normal in left] for field in (to, cc)]
    lists = {"to": shown[0], "cc": shown[1], "bcc": list(left.values())}
    if recipients and not lists["to"]:
        lists["to"] = [recipients[0].given]
        lists = {
            name: [one for one in given if name == "to" or one not in lists["to"]] for name, given in lists.items()
        }
    return {name: given for name, given in lists.items() if given}


def _mailboxes(fields: Fields, name: str) -> list[tuple[str, Address]]:
    """Return the valid addresses of a header, with names."""
    given = ", ".join(value for field, value in fields if field.lower() == name)
    return [(shown, read) for shown, address in read_addresses(given) if (read := parse_address(address))]


def _shown(name: str, address: Address) -> str:
    """Return the address with its name if the result is a valid name-addr."""
    whole = name_addr(name, address.given)
    return whole if parse_name_addr(whole) else address.given


def _sender(fields: Fields) -> str | None:
    """Return the `from` field. A value that is not a single mailbox is returned unchanged, to be rejected later."""
    values = [value for name, value in fields if name.lower() == "from"]
    if not values:
        return None
    found = read_addresses(", ".join(values))
    if len(found) != 1:
        return one_line(", ".join(values))[: NAME_ADDR_MAX + 1]
    name, address = found[0]
    return name_addr(name, address)


def read_addresses(value: str) -> list[tuple[str, str]]:
    """Return (name, address) pairs of a field such as To, unvalidated; comments are dropped and groups expanded."""
    found: list[tuple[str, str]] = []
    words: list[str] = []
    address: str | None = None
    at = 0
    while at <= len(value):
        token = _TOKEN.match(value, at)
        mark = token[3] if token else ","
        if mark == "(":
            at = _comment_end(value, at)
            continue
        if mark in (",", ";"):
            if address is not None:
                found.append((single_spaced(without_words(" ".join(words))), address))
            elif words:
                found.append(("", "".join(words)))
        if mark:
            words, address = [], None
        elif token and token[2] is not None:
            address = _SPACES.sub("", token[2])
        elif token and token[1] is not None:
            words.append(re.sub(r"\\(.)", r"\1", token[1]))
        elif token and token[4]:
            words.append(token[4])
        elif token and token[0] == '"':  # unterminated quote: the rest is ambiguous
            break
        at = token.end() if token else at + 1
    return found


def _comment_end(value: str, at: int) -> int:
    depth = 0
    for found in _COMMENT.finditer(value, at):
        depth += {"(": 1, ")": -1}.get(found[0], 0)
        if depth == 0:
            return found.end()
    return len(value)


def one_line(value: str) -> str:
    """Unfold a value with spaces; a line break inside an encoded word remains and is rejected later."""
    return without_words(_SPACES.sub(" ", value)).strip(" ")


def _kept(fields: Fields) -> dict[str, str]:
    """Return the sender's custom headers to keep; of equal names the first."""
    kept: dict[str, tuple[str, str]] = {}
    allowed = tuple(map(str.lower, OWN_HEADERS))
    for name, value in fields:
        lower = name.lower()
        if lower in allowed or (lower.startswith("x-") and len(lower) > 2 and not lower.startswith(REMOVED)):
            kept.setdefault(lower, (name, one_line(value)))
    return {name: value for name, value in kept.values() if value}


def _options(fields: Fields) -> tuple[dict[str, Any], dict[str, str]]:
    """Return the options in our headers, and separately the texts of those that are JSON."""
    options: dict[str, Any] = {}
    json: dict[str, str] = {}
    tags: list[tuple[str, str]] = []
    metadata: dict[str, str] = {}
    for name, value in fields:
        lower = name.lower()
        if not lower.startswith(REMOVED):
            continue
        text = one_line(value)
        if "\0" in text:
            raise InvalidRequest(f"The header {name} has a null character. Remove it.", param=name)
        if lower in OPTION_HEADERS:
            options[OPTION_HEADERS[lower]] = text
        elif lower in JSON_HEADERS:
            json[JSON_HEADERS[lower]] = text
        elif lower in TAG_HEADERS:
            tags.append((lower, text))
        elif prefix := next((one for one in METADATA_HEADERS if lower.startswith(one)), None):
            metadata[name[len(prefix) :]] = text
    if tags:
        options["tags"] = _named_tags(tags)
    if metadata:
        options["metadata"] = metadata
    return options, json


def _named_tags(given: Sequence[tuple[str, str]]) -> dict[str, str]:
    """Parse tags `name:value`, separated by commas or as a JSON list; unnamed ones become `tag`, `tag2`, `tag3`."""
    tags: dict[str, str] = {}
    unnamed = 0
    for header, text in given:
        whole = header == "x-pm-tag"
        for one in filter(None, map(str.strip, [text] if whole else _listed(text))):
            name, colon, value = one.partition(":")
            if whole or not colon:
                unnamed += 1
                name, value = f"tag{unnamed}" if unnamed > 1 else "tag", one
            tags[name.strip()] = value.strip()
    return tags


def _listed(text: str) -> list[str]:
    if text.startswith("["):  # as written by django-anymail
        with suppress(msgspec.DecodeError):
            return msgspec.json.decode(text, type=list[str])
    return text.split(",")
