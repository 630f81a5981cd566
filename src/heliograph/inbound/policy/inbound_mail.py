"""Parses inbound mail into the record of the API and of the event `email.received` (contract 17).

Invalid mail raises no exception. Content beyond the limits is omitted from the record, and remains in the raw mail.
"""

import re
from collections.abc import Collection, Mapping, Sequence
from typing import Annotated, Literal, get_args

import msgspec
from msgspec.structs import asdict, replace

from heliograph.domain.field_docs import Id, ObjectName, describe
from heliograph.domain.limits import BODY_OCTETS_MAX, KIB
from heliograph.domain.mail.address import Address, parse_address
from heliograph.domain.mail.attachments import TYPE_BY_EXTENSION
from heliograph.domain.mail.auto_reply import is_auto_subject
from heliograph.domain.mail.mime_text import decode_text
from heliograph.domain.mail.mime_tree import (
    LENIENT_LIMITS,
    Fields,
    LeafPart,
    LeafParts,
    first_values,
    normalize_line_ends,
    parse_header,
    parse_leaves,
)
from heliograph.domain.mail.smtp_to_request import (
    ENCODED_TEXT_MAX,
    FLOWED_MAX,
    join_flowed_lines,
    parse_mailboxes,
    unfold,
)
from heliograph.inbound.policy.mail_parts import decode_content

EVENT_TYPE = "email.received"
HOPS_MAX = 50  # maximum servers that a mail may have passed; more mean a loop (RFC 5321, 6.3)
EVENT_TEXT_MAX = 64 * KIB  # maximum octets of each text in an event
EVENT_RECORD_MAX = 240 * KIB  # maximum octets of the record in an event; an event has at most 256 KiB
HEADERS_MAX = 32 * KIB  # maximum octets of all headers in the record
HEADER_VALUE_MAX = 2 * KIB  # maximum characters of a header value; the rest is cut
ADDRESSES_MAX = 100  # maximum addresses in To, and in Cc
FILENAME_MAX = 200  # maximum characters

Verdict = Literal["pass", "fail", "none", "temperror", "permerror"]
VERDICTS = list(get_args(Verdict))

_OUR_MESSAGE_ID = re.compile(r"<eml_[0-9A-HJKMNP-TV-Z]{26}@[^<>@\s]{1,255}>")
_UNSAFE_FILENAME_CHARS = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029/\\]")
_DAEMON_PREFIXES = ("mailer-daemon@", "postmaster@")
_AUTOMATIC_FIELDS = (
    "x-autoreply",
    "x-autorespond",
    "x-auto-reply",
    "x-autoresponder",
    "list-id",
    "list-unsubscribe",
    "list-post",
)


class AttachmentRecord(msgspec.Struct, frozen=True, kw_only=True):
    id: Annotated[str, describe("For `GET /v1/received/:id/attachments/:id`; unique within the mail.")]
    filename: Annotated[str, describe("File name given by the sender, without folders.")]
    content_type: Annotated[str, describe("Content type as declared by the sender.")]
    size: Annotated[int, describe("Bytes, decoded.")]
    content_id: Annotated[str | None, describe("Content-ID that `cid:` URLs in the HTML refer to.")]


class Authentication(msgspec.Struct, frozen=True, kw_only=True):
    """Results of the sender authentication when the mail was received."""

    spf: Annotated[
        Verdict,
        describe(
            "SPF: whether the envelope sender's domain authorizes the sending server.", example="pass", enum=VERDICTS
        ),
    ] = "none"
    dkim: Annotated[Verdict, describe("DKIM: whether a signature is valid.", example="pass", enum=VERDICTS)] = "none"
    dmarc: Annotated[
        Verdict, describe("DMARC: whether SPF or DKIM passed for the domain in From.", example="pass", enum=VERDICTS)
    ] = "none"


class ParsedMail(msgspec.Struct, frozen=True, kw_only=True):
    """Parsed content of an inbound mail."""

    from_: str
    to: list[str]
    cc: list[str]
    subject: str
    text: str | None
    html: str | None
    reply_text: str | None = None
    message_id: str
    automatic: bool
    hops: int
    headers: list[tuple[str, str]]
    attachments: list[AttachmentRecord]
    is_truncated: bool


class ReceivedRecord(msgspec.Struct, frozen=True, kw_only=True):
    """A mail received for a team, as the API returns it."""

    object: ObjectName = "received"
    id: Id
    from_: Annotated[str, describe("The address in From, without a display name.", example="ada@example.com")] = (
        msgspec.field(name="from")
    )
    to: Annotated[list[str], describe("The addresses in To.", example=["support@in.demo.test"])]
    cc: Annotated[list[str], describe("The addresses in Cc.")]
    recipients: Annotated[
        list[str], describe("The team's addresses that received the mail.", example=["support@in.demo.test"])
    ]
    subject: Annotated[str, describe("The subject.", example="Re: Your parcel")]
    text: Annotated[
        str | None,
        describe(
            "The plain text; null if the mail has none or its content was deleted by retention.",
            example="Thanks!\n\nOn Mon, 16 Nov 2026, Demo wrote:\n> It left today.\n",
        ),
    ]
    html: Annotated[str | None, describe("The HTML. It is untrusted: sanitize it before showing it.")]
    reply_text: Annotated[str | None, describe("The sender's own text, without quoted mail.", example="Thanks!")]
    message_id: Annotated[str, describe("The Message-ID header; empty if missing.", example="<4711@example.com>")]
    in_reply_to: Annotated[
        str | None,
        describe(
            "The `eml_` id of the email that this mail replies to, from its signed Reply-To address.",
            example="eml_01JCQ8Z6V3M2N7T0K4H9R5B1XA",
        ),
    ]
    automatic: Annotated[
        bool, describe("`true` if the mail was sent automatically: an auto-reply, a bounce, list mail or a mail loop.")
    ]
    headers: Annotated[
        list[tuple[str, str]],
        describe("All headers in order, as pairs of name and value.", example=[["Subject", "Re: Your parcel"]]),
    ]
    attachments: Annotated[list[AttachmentRecord], describe("All parts other than the text and the HTML.", example=[])]
    authentication: Annotated[Authentication, describe("Results of SPF, DKIM and DMARC.")]
    truncated: Annotated[
        bool, describe("`true` if content was truncated; the full mail is at `GET /v1/received/:id` and `/raw`.")
    ]


class FullTexts(msgspec.Struct, frozen=True):
    """Complete values of fields that were truncated in the event."""

    text: str | None
    html: str | None
    reply_text: str | None
    headers: list[tuple[str, str]]
    truncated: bool
    attachments: list[AttachmentRecord] | None = None  # None if the event has all attachments


# -- reading ---------------------------------------------------------------------------------------------------------


def parse_mail(raw: bytes, *, sender: str, recipients: Collection[str]) -> ParsedMail:
    """Parse a mail. `sender`: envelope sender, empty for a bounce; `recipients`: envelope recipients of teams."""
    mail, fields, parts = _parse_parts(raw)
    head = first_values(fields)
    bodies, attachment_parts = _split_bodies(mail, parts)
    text, html = (bodies.get(media_type) for media_type in ("text/plain", "text/html"))
    headers = _limit_headers(fields)
    to, cc = (_parse_addresses(_join_values(fields, name)) for name in ("to", "cc"))
    return ParsedMail(
        from_=next(iter(_parse_addresses(head.get("from", ""))), sender),
        to=to[:ADDRESSES_MAX],
        cc=cc[:ADDRESSES_MAX],
        subject=_remove_nulls(unfold(head.get("subject", ""))),
        text=_truncate(text, BODY_OCTETS_MAX),
        html=_truncate(html, BODY_OCTETS_MAX),
        message_id=_remove_nulls(unfold(head.get("message-id", "")))[:HEADER_VALUE_MAX],
        automatic=is_automatic(head, sender, recipients),
        hops=sum(name.lower() == "received" for name, _ in fields),
        headers=headers,
        attachments=[_describe_attachment(mail, part, number) for number, part in enumerate(attachment_parts, 1)],
        is_truncated=parts.is_truncated
        or len(headers) < len(fields)
        or any(len((body or "").encode()) > BODY_OCTETS_MAX for body in (text, html))
        or max(len(to), len(cc)) > ADDRESSES_MAX,
    )


def attachment_content(raw: bytes, id_: str) -> bytes | None:
    """Return the content of a raw mail's attachment by its id; None if not found."""
    mail, _, parts = _parse_parts(raw)
    for number, part in enumerate(_split_bodies(mail, parts)[1], 1):
        if _attachment_id(number) == id_:
            return decode_content(mail, part)
    return None


def is_automatic(head: Mapping[str, str], sender: str, recipients: Collection[str]) -> bool:
    """Return whether the header shows that a program sent the mail, or that the mail has passed this server before."""
    submitted = head.get("auto-submitted", "no").partition(";")[0].strip().lower()
    author = next(iter(_parse_addresses(head.get("from", ""))), "").lower()
    delivered = {address.lower() for address in _parse_addresses(head.get("delivered-to", ""))}
    return (
        submitted != "no"
        or head.get("precedence", "").strip().lower() in ("bulk", "list", "junk", "auto_reply")
        or any(name in head for name in _AUTOMATIC_FIELDS)
        or head.get("content-type", "").lower().startswith("multipart/report")
        or not sender
        or author.startswith(_DAEMON_PREFIXES)
        or is_auto_subject(unfold(head.get("subject", "")))
        or _OUR_MESSAGE_ID.fullmatch(head.get("message-id", "").strip()) is not None
        or not delivered.isdisjoint(recipient.lower() for recipient in recipients)
    )


def _parse_parts(raw: bytes) -> tuple[bytes, Fields, LeafParts]:
    mail = normalize_line_ends(raw)
    fields, body = parse_header(mail, 1, len(mail), LENIENT_LIMITS)
    return mail, fields, parse_leaves(mail, first_values(fields), body, LENIENT_LIMITS)


def _split_bodies(mail: bytes, parts: Sequence[LeafPart]) -> tuple[dict[str, str], list[LeafPart]]:
    """Return the text body, the HTML body, and all other parts."""
    bodies: dict[str, str] = {}
    attachment_parts: list[LeafPart] = []
    for part in parts:
        is_text = part.type in ("text/plain", "text/html") and not part.is_attached and not part.filename
        is_second_text = part.type == "text/plain" and part.type in bodies
        if not is_text or part.end - part.start > ENCODED_TEXT_MAX or is_second_text:
            attachment_parts.append(part)
        else:  # some mail clients continue the HTML after an attachment
            bodies[part.type] = bodies.get(part.type, "") + _decode_text(mail, part)
    return bodies, attachment_parts


def _decode_text(mail: bytes, part: LeafPart) -> str:
    parameters = part.parameters
    text = _remove_nulls(decode_text(decode_content(mail, part), parameters.get("charset", "")))
    text = text.replace("\r\n", "\n").replace("\r", "\n")
    if part.type == "text/plain" and parameters.get("format", "").lower() == "flowed" and len(text) <= FLOWED_MAX:
        return join_flowed_lines(text, parameters.get("delsp", "").lower() == "yes")
    return text


def _describe_attachment(mail: bytes, part: LeafPart, number: int) -> AttachmentRecord:
    extension = next(
        (extension for extension, media_type in TYPE_BY_EXTENSION.items() if media_type == part.type),
        "eml" if "rfc822" in part.type else "",
    )
    default_name = f"attachment-{number}" + (f".{extension}" if extension else "")
    content_id = _remove_nulls(unfold(part.get_field("content-id"))).removeprefix("<").removesuffix(">")
    return AttachmentRecord(
        id=_attachment_id(number),
        filename=_UNSAFE_FILENAME_CHARS.sub("_", part.filename[-FILENAME_MAX:]) or default_name,
        content_type=_remove_nulls(part.type)[:HEADER_VALUE_MAX],
        size=len(decode_content(mail, part)),
        content_id=content_id[:HEADER_VALUE_MAX] or None,
    )


def _attachment_id(number: int) -> str:
    return f"att_{number}"


def _limit_headers(fields: Fields) -> list[tuple[str, str]]:
    headers: list[tuple[str, str]] = []
    octets_left = HEADERS_MAX
    for name, value in fields:
        text = _remove_nulls(unfold(value[: 2 * HEADER_VALUE_MAX]))[:HEADER_VALUE_MAX]
        octets_left -= len(name) + len(text.encode())
        if octets_left < 0:
            break
        headers.append((name, text))
    return headers


def _join_values(fields: Fields, name: str) -> str:
    return ", ".join(value for field, value in fields if field.lower() == name)


def _parse_addresses(value: str) -> list[str]:
    parsed = (parse_address(address) for _, address in parse_mailboxes(value))
    return [address.original for address in parsed if address]


def _remove_nulls(text: str) -> str:
    """Remove NUL characters, which PostgreSQL cannot store."""
    return text.replace("\0", "")


# -- the record ------------------------------------------------------------------------------------------------------


def to_record(
    id_: str, mail: ParsedMail, recipients: Sequence[Address], in_reply_to: str | None, authentication: Authentication
) -> ReceivedRecord:
    return ReceivedRecord(
        id=id_,
        from_=mail.from_,
        to=mail.to,
        cc=mail.cc,
        recipients=[address.original for address in recipients],
        subject=mail.subject[:HEADER_VALUE_MAX],
        text=mail.text,
        html=mail.html,
        reply_text=mail.reply_text,
        message_id=mail.message_id,
        in_reply_to=in_reply_to,
        automatic=mail.automatic,
        headers=mail.headers,
        attachments=mail.attachments,
        authentication=authentication,
        truncated=mail.is_truncated,
    )


def to_event_record(record: ReceivedRecord) -> ReceivedRecord:
    """Return the record for the event: each text is cut to 64 KiB, or shorter if the JSON would be too large."""
    limit, event_record = EVENT_TEXT_MAX, _truncate_texts(record, EVENT_TEXT_MAX)
    while limit and len(msgspec.json.encode(event_record)) > EVENT_RECORD_MAX:
        limit //= 2
        event_record = _truncate_texts(record, limit)
    if limit:
        return event_record
    return replace(event_record, headers=[], attachments=event_record.attachments[:20], truncated=True)


def _truncate_texts(record: ReceivedRecord, limit: int) -> ReceivedRecord:
    texts = {name: _truncate(getattr(record, name), limit) for name in ("text", "html", "reply_text")}
    is_truncated = any(getattr(record, name) != text for name, text in texts.items())
    return replace(record, truncated=record.truncated or is_truncated, **texts)


def full_texts(record: ReceivedRecord) -> FullTexts:
    return FullTexts(record.text, record.html, record.reply_text, record.headers, record.truncated, record.attachments)


def with_full_texts(event_record: ReceivedRecord, texts: FullTexts) -> ReceivedRecord:
    """Return the event's record with the complete texts, headers and attachments."""
    fields = asdict(texts)
    if texts.attachments is None:
        del fields["attachments"]
    return replace(event_record, **fields)


def _truncate(text: str | None, limit: int) -> str | None:
    if text is None or len(text) <= limit // 4:
        return text
    return text.encode()[:limit].decode("utf-8", "ignore")
