"""Converts a mail submitted by SMTP to the fields of `POST /v1/emails`, in linear time (compat.md, SMTP submission)."""

import re
from collections.abc import Collection, Sequence
from contextlib import suppress
from typing import Any

import msgspec
import pybase64

from heliograph.domain.limits import BODY_OCTETS_MAX, MIB, NAME_ADDR_MAX
from heliograph.domain.mail.address import Address, format_name_addr, parse_address, parse_name_addr
from heliograph.domain.mail.attachments import ALLOWED_TYPES, TYPE_BY_EXTENSION, guess_type
from heliograph.domain.mail.mime_text import decode_encoded_words, decode_text, decode_transfer_encoding
from heliograph.domain.mail.mime_tree import (
    STRICT_LIMITS,
    Fields,
    LeafPart,
    first_values,
    media_type,
    normalize_line_ends,
    parse_header,
    parse_leaves,
)
from heliograph.domain.mail.tnef import unpack_tnef
from heliograph.domain.refusals import BodyTooLong, InvalidAttachment, InvalidRequest
from heliograph.domain.sending.send_options import ALLOWED_HEADERS
from heliograph.domain.text import collapse_spaces

HEADER_ADDRESSES_MAX = 1000  # maximum addresses in To and Cc together
CONTENT_ID_MAX = 128
FLOWED_MAX = MIB  # characters; the lines of a longer format=flowed text are not joined
ENCODED_TEXT_MAX = 3 * BODY_OCTETS_MAX  # bytes of a text in its transfer encoding: quoted-printable can triple the size

_LINE_END = re.compile(rb"\r?\n|\r")  # calendars need CRLF (RFC 5545, 3.1)
CALENDAR = "text/calendar"  # sent as an alternative of the body: in an attachment, few clients let users accept it
TNEF_TYPES = ("application/ms-tnef", "application/vnd.ms-tnef")

KEY_HEADERS = ("idempotency-key", "resend-idempotency-key")
TAG_HEADERS = ("x-heliograph-tag", "x-pm-tag", "x-tags")
METADATA_HEADERS = ("x-heliograph-metadata-", "x-pm-metadata-")
FIELD_BY_OPTION_HEADER = {
    "x-heliograph-send-at": "scheduled_at",
    "x-heliograph-expires-at": "expires_at",
    "x-heliograph-priority": "priority",
    "x-heliograph-template": "template_id",
    "x-category": "category",
}
FIELD_BY_JSON_HEADER = {"x-heliograph-variables": "variables", "x-heliograph-template-variables": "variables",
                "x-metadata": "metadata"}  # fmt: skip
# Headers with one of these prefixes are removed before sending.
REMOVED_PREFIXES = ("x-heliograph-", "x-pm-", "x-category", *TAG_HEADERS, *FIELD_BY_JSON_HEADER)

_SPACES = re.compile(r"[ \t\r\n]+")
_TOKEN = re.compile(r'"((?:[^"\\]|\\.)*)"|<([^<>]*)>|([,;:(])|([^",;:<>()\s]+)|\s+|.', re.DOTALL)
_COMMENT = re.compile(r"\\.|[()]", re.DOTALL)
_INVALID_CONTENT_ID_CHARACTER = re.compile("[^A-Za-z0-9._@-]")


class SubmittedMail(msgspec.Struct, frozen=True, kw_only=True):
    request: dict[str, Any]  # body of POST /v1/emails, without the fields in `json`
    json_fields: dict[str, str]  # field → JSON text of a header
    to: list[str]  # addresses in the mail's headers, including those that are not envelope recipients
    cc: list[str]
    idempotency_keys: list[bytes]  # every Idempotency-Key
    message_id: str
    alternatives: tuple[int, ...] = ()  # indexes of attachments that are calendar alternatives of the body


def parse_submitted(
    raw: bytes | bytearray, recipients: Sequence[Address], extra_types: Collection[str] = ()
) -> SubmittedMail:
    """Parse a submitted mail; raise a Refusal if it is invalid.

    `recipients`: envelope recipients. `extra_types`: content types of attachments that are allowed in addition to those
    of the spec.
    """
    if b"\0" in raw:
        raise InvalidRequest("The mail contains a null byte. Encode binary content as base64.")
    mail = normalize_line_ends(raw)
    fields, body = parse_header(mail, 1, len(mail), STRICT_LIMITS)
    header = first_values(fields)
    parts = parse_leaves(mail, header, body, STRICT_LIMITS)
    to, cc = (_mailboxes(fields, name) for name in ("to", "cc"))
    if len(to) + len(cc) > HEADER_ADDRESSES_MAX:
        raise InvalidRequest(f"To and Cc have more than {HEADER_ADDRESSES_MAX} addresses. Use fewer.")
    options, json_fields = _header_options(fields)
    request: dict[str, Any] = _split_recipients(recipients, to, cc) | options
    if sender := _from_field(fields):
        request["from"] = sender
    if reply_addresses := [address for _, address in parse_mailboxes(header.get("reply-to", ""))]:
        request["reply_to"] = reply_addresses
    if headers := _custom_headers(fields):
        request["headers"] = headers
    contents, alternatives = _split_content(mail, parts, extra_types)
    request |= contents
    if "template_id" in request:  # the template defines the content; clients that require a body may still send one
        for field in ("text", "html"):
            request.pop(field, None)
    else:
        request["subject"] = unfold(header.get("subject", ""))
    return SubmittedMail(
        request=request,
        json_fields=json_fields,
        to=[_format_mailbox(name, address) for name, address in to],
        cc=[_format_mailbox(name, address) for name, address in cc],
        idempotency_keys=[value.strip().encode() for name, value in fields if name.lower() in KEY_HEADERS],
        message_id=unfold(header.get("message-id", "")),
        alternatives=alternatives,
    )


# -- content -----------------------------------------------------------------------------------------------


def _split_content(
    mail: bytes, parts: Sequence[LeafPart], extra_types: Collection[str]
) -> tuple[dict[str, Any], tuple[int, ...]]:
    """Return the body fields (text, HTML, attachments), and the indexes of attachments that are calendar alternatives.

    The first text and the first HTML that are not files are the bodies; all other parts become attachments.
    """
    bodies: dict[str, str] = {}
    files = []
    for part in parts:
        field = {"text/plain": "text", "text/html": "html"}.get(part.type)
        if part.is_attached or (field is None and not part.is_alternative) or part.filename:
            files.append(part)
        elif field and field not in bodies:
            bodies[field] = _decode_text_part(mail, part)
        elif field == "html":  # a further HTML part: some mailers continue the HTML after a file
            bodies["html"] += _decode_text_part(mail, part)
        # Alternatives of other types are dropped: they repeat the same content.
        elif field or part.type in {*ALLOWED_TYPES, *extra_types}:
            files.append(part)
    if not bodies.get("html"):
        bodies = {"text": bodies.get("text") or "\n"}
    attachments: list[dict[str, str | None]] = []
    alternatives: list[int] = []
    for number, part in enumerate(files, 1):
        content = _decode_part(mail, part)
        if part.type in TNEF_TYPES:
            attachments += [
                _build_attachment(file.name, "", file.content, extra_types) for file in unpack_tnef(content)
            ]
        else:
            is_alternative = part.type == CALENDAR and part.is_alternative and not part.is_attached
            if is_alternative:
                content = _LINE_END.sub(b"\r\n", content)
            attachment = _build_attachment(
                part.filename or _default_filename(part, number), part.get_field("content-type"), content, extra_types
            )
            _make_inline(attachment, part, bodies, attachments)
            if is_alternative:
                alternatives.append(len(attachments))
            attachments.append(attachment)
    return {**bodies, **({"attachments": attachments} if attachments else {})}, tuple(alternatives)


def _decode_text_part(mail: bytes, part: LeafPart) -> str:
    if part.end - part.start > ENCODED_TEXT_MAX:
        raise BodyTooLong(f"A text part has {part.end - part.start} bytes. {BodyTooLong.fix}")
    content = _decode_part(mail, part)
    if len(content) > 2 * BODY_OCTETS_MAX:  # UTF-16 uses two bytes per character
        raise BodyTooLong(f"A text part has {len(content)} bytes. {BodyTooLong.fix}")
    content_parameters = part.parameters
    text = decode_text(content, content_parameters.get("charset", "")).replace("\r\n", "\n").replace("\r", "\n")
    if "\0" in text:
        raise InvalidRequest("A text part contains a null character. Remove it.")
    if (
        part.type == "text/plain"
        and content_parameters.get("format", "").lower() == "flowed"
        and len(text) <= FLOWED_MAX
    ):
        return join_flowed_lines(text, content_parameters.get("delsp", "").lower() == "yes")
    return text


def join_flowed_lines(text: str, delsp: bool) -> str:
    """Join each line that ends with a space to the next (RFC 3676). `delsp`: also remove that space."""
    lines: list[list[str]] = []
    quote_depth, continues = 0, False
    for line in text.split("\n"):
        content = line.lstrip(">")
        quotes, content = len(line) - len(content), content.removeprefix(" ")
        is_soft_break = content.endswith(" ") and content != "-- "
        if continues and quotes == quote_depth and content != "-- ":
            lines[-1].append(content)
        else:
            lines.append([">" * quotes + " " * bool(quotes), content])
        if is_soft_break and delsp:
            lines[-1][-1] = content[:-1]
        quote_depth, continues = quotes, is_soft_break
    return "\n".join("".join(pieces) for pieces in lines)


def _decode_part(mail: bytes, part: LeafPart) -> bytes:
    try:
        return decode_transfer_encoding(mail[part.start : part.end], part.get_field("content-transfer-encoding"))
    except ValueError:
        raise InvalidAttachment("A part of the mail is not valid base64, as declared. Encode it again.") from None


def _default_filename(part: LeafPart, number: int) -> str:
    extension = next((extension for extension, kind in TYPE_BY_EXTENSION.items() if kind == part.type), "")
    return f"attachment-{number}" + (f".{extension}" if extension else "")


def _build_attachment(
    filename: str, content_type: str, content: bytes, extra_types: Collection[str]
) -> dict[str, str | None]:
    """Return an attachment. Its content type is omitted if the filename indicates a better one."""
    keep_type = media_type(content_type) in {*ALLOWED_TYPES, *extra_types} or not guess_type(filename, extra_types)
    return {
        "filename": filename,
        "content": pybase64.b64encode(content).decode(),
        "content_type": (content_type or "text/plain") if keep_type else None,
        "content_id": None,
    }


def _make_inline(
    attachment: dict[str, str | None], part: LeafPart, bodies: dict[str, str], previous: Sequence[dict[str, Any]]
) -> None:
    """Make a part inline, with a valid Content-ID, if the HTML references it or it is not marked as an attachment."""
    declared_id = part.get_field("content-id").strip().removeprefix("<").removesuffix(">")
    html = bodies.get("html", "")
    if not declared_id or not html or (part.is_attached and f"cid:{declared_id}" not in html):
        return
    used_ids = {other["content_id"] for other in previous}
    content_id = _INVALID_CONTENT_ID_CHARACTER.sub("_", declared_id)[:CONTENT_ID_MAX]
    if content_id in used_ids:
        return
    attachment["content_id"] = content_id
    if content_id != declared_id:
        bodies["html"] = html.replace(f"cid:{declared_id}", f"cid:{content_id}")


# -- addresses and options ---------------------------------------------------------------------------------


def _split_recipients(
    recipients: Sequence[Address], to: Sequence[tuple[str, Address]], cc: Sequence[tuple[str, Address]]
) -> dict[str, list[str]]:
    """Split the envelope recipients by the mail's header into `to` and `cc`; all others go into `bcc`.

    If none is in `to`, the first recipient is moved there.
    """
    remaining = {address.normal: address.original for address in recipients}
    by_field = [
        [remaining.pop(address.normal) for _, address in field if address.normal in remaining] for field in (to, cc)
    ]
    lists = {"to": by_field[0], "cc": by_field[1], "bcc": list(remaining.values())}
    if recipients and not lists["to"]:
        lists["to"] = [recipients[0].original]
        lists = {
            name: [listed for listed in addresses if name == "to" or listed not in lists["to"]]
            for name, addresses in lists.items()
        }
    return {name: addresses for name, addresses in lists.items() if addresses}


def _mailboxes(fields: Fields, name: str) -> list[tuple[str, Address]]:
    """Return the valid addresses of a header field, with their names."""
    values = ", ".join(value for field, value in fields if field.lower() == name)
    return [
        (display_name, parsed)
        for display_name, address in parse_mailboxes(values)
        if (parsed := parse_address(address))
    ]


def _format_mailbox(name: str, address: Address) -> str:
    """Return the address with its name if the result is a valid name-addr."""
    mailbox = format_name_addr(name, address.original)
    return mailbox if parse_name_addr(mailbox) else address.original


def _from_field(fields: Fields) -> str | None:
    """Return the request's `from`. A From value that is not a single mailbox stays unchanged, and is rejected later."""
    values = [value for name, value in fields if name.lower() == "from"]
    if not values:
        return None
    mailboxes = parse_mailboxes(", ".join(values))
    if len(mailboxes) != 1:
        return unfold(", ".join(values))[: NAME_ADDR_MAX + 1]
    name, address = mailboxes[0]
    return format_name_addr(name, address)


def parse_mailboxes(value: str) -> list[tuple[str, str]]:
    """Return the unvalidated (name, address) pairs of a field such as To. Comments are dropped and groups expanded."""
    mailboxes: list[tuple[str, str]] = []
    words: list[str] = []
    address: str | None = None
    position = 0
    while position <= len(value):
        token = _TOKEN.match(value, position)
        separator = token[3] if token else ","
        if separator == "(":
            position = _comment_end(value, position)
            continue
        if separator in (",", ";"):
            if address is not None:
                mailboxes.append((collapse_spaces(decode_encoded_words(" ".join(words))), address))
            elif words:
                mailboxes.append(("", "".join(words)))
        if separator:
            words, address = [], None
        elif token and token[2] is not None:
            address = _SPACES.sub("", token[2])
        elif token and token[1] is not None:
            words.append(re.sub(r"\\(.)", r"\1", token[1]))
        elif token and token[4]:
            words.append(token[4])
        elif token and token[0] == '"':  # unterminated quote: the rest is ambiguous
            break
        position = token.end() if token else position + 1
    return mailboxes


def _comment_end(value: str, start: int) -> int:
    depth = 0
    for match in _COMMENT.finditer(value, start):
        depth += {"(": 1, ")": -1}.get(match[0], 0)
        if depth == 0:
            return match.end()
    return len(value)


def unfold(value: str) -> str:
    """Replace folds of a header value by spaces. A line break in an encoded word stays, and is rejected later."""
    return decode_encoded_words(_SPACES.sub(" ", value)).strip(" ")


def _custom_headers(fields: Fields) -> dict[str, str]:
    """Return the sender's custom headers to keep. If a name is repeated, the first value counts."""
    by_lower_name: dict[str, tuple[str, str]] = {}
    allowed = tuple(map(str.lower, ALLOWED_HEADERS))
    for name, value in fields:
        lower = name.lower()
        if lower in allowed or (lower.startswith("x-") and len(lower) > 2 and not lower.startswith(REMOVED_PREFIXES)):
            by_lower_name.setdefault(lower, (name, unfold(value)))
    return {name: value for name, value in by_lower_name.values() if value}


def _header_options(fields: Fields) -> tuple[dict[str, Any], dict[str, str]]:
    """Return the options from our own header fields; options written as JSON are returned separately, unparsed."""
    options: dict[str, Any] = {}
    json_fields: dict[str, str] = {}
    tags: list[tuple[str, str]] = []
    metadata: dict[str, str] = {}
    for name, value in fields:
        lower = name.lower()
        if not lower.startswith(REMOVED_PREFIXES):
            continue
        text = unfold(value)
        if "\0" in text:
            raise InvalidRequest(f"The header {name} contains a null character. Remove it.", param=name)
        if lower in FIELD_BY_OPTION_HEADER:
            options[FIELD_BY_OPTION_HEADER[lower]] = text
        elif lower in FIELD_BY_JSON_HEADER:
            json_fields[FIELD_BY_JSON_HEADER[lower]] = text
        elif lower in TAG_HEADERS:
            tags.append((lower, text))
        elif prefix := next(
            (header_prefix for header_prefix in METADATA_HEADERS if lower.startswith(header_prefix)), None
        ):
            metadata[name[len(prefix) :]] = text
    if tags:
        options["tags"] = _parse_tags(tags)
    if metadata:
        options["metadata"] = metadata
    return options, json_fields


def _parse_tags(tag_headers: Sequence[tuple[str, str]]) -> dict[str, str]:
    """Parse tags `name:value`, separated by commas or as a JSON list; unnamed ones become `tag`, `tag2`, `tag3`."""
    tags: dict[str, str] = {}
    unnamed = 0
    for header, text in tag_headers:
        is_single_tag = header == "x-pm-tag"
        for tag in filter(None, map(str.strip, [text] if is_single_tag else _split_tags(text))):
            name, colon, value = tag.partition(":")
            if is_single_tag or not colon:
                unnamed += 1
                name, value = f"tag{unnamed}" if unnamed > 1 else "tag", tag
            tags[name.strip()] = value.strip()
    return tags


def _split_tags(text: str) -> list[str]:
    if text.startswith("["):  # as written by django-anymail
        with suppress(msgspec.DecodeError):
            return msgspec.json.decode(text, type=list[str])
    return text.split(",")
