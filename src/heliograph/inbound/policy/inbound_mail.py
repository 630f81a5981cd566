"""Parses inbound mail into the record of contract 17.

No input raises an exception. Content beyond the limits is omitted from the record and remains in the raw mail.
"""

import re
from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from typing import Annotated, Literal, get_args

import msgspec
from msgspec.structs import asdict, replace

from heliograph.domain.field_docs import Id, ObjectName, says
from heliograph.domain.limits import BODY_OCTETS_MAX, KIB
from heliograph.domain.mail.address import Address, parse_address
from heliograph.domain.mail.attachments import TYPE_OF
from heliograph.domain.mail.auto_reply import is_auto_subject
from heliograph.domain.mail.mime_text import decoded, unwrapped
from heliograph.domain.mail.mime_tree import (
    FOREIGN,
    Fields,
    Leaf,
    Leaves,
    firsts,
    plain,
    read_head,
    read_leaves,
)
from heliograph.domain.mail.smtp_to_request import CODED_MAX, FLOWED_MAX, one_line, read_addresses, unflowed

EVENT = "email.received"
HOPS_MAX = 50  # maximum servers that a mail may have passed; more is a loop (RFC 5321, 6.3)
TOLD_MAX = 64 * KIB  # octets of each text in an event
RECORD_MAX = 240 * KIB  # octets of the record in an event, whose limit is 256 KiB
HEADERS_MAX = 32 * KIB  # octets
LINE_MAX = 2 * KIB  # characters kept per header
ADDRESSES_MAX = 100  # maximum addresses in To, and in Cc
FILENAME_MAX = 200  # characters

Verdict = Literal["pass", "fail", "none", "temperror", "permerror"]
VERDICTS = list(get_args(Verdict))

_OWN_ID = re.compile(r"<eml_[0-9A-HJKMNP-TV-Z]{26}@[^<>@\s]{1,255}>")
_UNSAFE = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029/\\]")
_DAEMONS = ("mailer-daemon@", "postmaster@")
_AUTOMATIC = (
    "x-autoreply",
    "x-autorespond",
    "x-auto-reply",
    "x-autoresponder",
    "list-id",
    "list-unsubscribe",
    "list-post",
)


class AttachmentRecord(msgspec.Struct, frozen=True, kw_only=True):
    id: Annotated[str, says("For `GET /v1/received/:id/attachments/:id`; unique within the mail.")]
    filename: Annotated[str, says("As the sender named it, without folders.")]
    content_type: Annotated[str, says("What the sender says that it is.")]
    size: Annotated[int, says("Bytes, decoded.")]
    content_id: Annotated[str | None, says("What `cid:` in the HTML names it by.")]


class Authentication(msgspec.Struct, frozen=True, kw_only=True):
    """Whether the sender is who it says, judged when it came."""

    spf: Annotated[
        Verdict, says("Whether the envelope's sender allows that server.", example="pass", enum=VERDICTS)
    ] = "none"
    dkim: Annotated[Verdict, says("Whether a signature of a domain holds.", example="pass", enum=VERDICTS)] = "none"
    dmarc: Annotated[Verdict, says("Whether one of these is by the domain in From.", example="pass", enum=VERDICTS)] = (
        "none"
    )


class ReadMail(msgspec.Struct, frozen=True, kw_only=True):
    """Parsed content of a mail."""

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
    is_cut: bool


class ReceivedRecord(msgspec.Struct, frozen=True, kw_only=True):
    """A mail that came in for a team."""

    object: ObjectName = "received"
    id: Id
    from_: Annotated[str, says("The address in From, bare.", example="ada@example.com")] = msgspec.field(name="from")
    to: Annotated[list[str], says("The addresses in To.", example=["support@in.demo.test"])]
    cc: Annotated[list[str], says("The addresses in Cc.")]
    recipients: Annotated[
        list[str], says("The team's own addresses that it came to.", example=["support@in.demo.test"])
    ]
    subject: Annotated[str, says("The subject.", example="Re: Your parcel")]
    text: Annotated[
        str | None,
        says(
            "The plain text; null when there is none, or when it is no longer kept.",
            example="Thanks!\n\nOn Mon, 16 Nov 2026, Demo wrote:\n> It left today.\n",
        ),
    ]
    html: Annotated[str | None, says("The HTML. It is the sender's: never show it without cleaning it.")]
    reply_text: Annotated[
        str | None, says("What the sender wrote, without the mail that is quoted.", example="Thanks!")
    ]
    message_id: Annotated[str, says("The Message-ID header; empty: there is none.", example="<4711@example.com>")]
    in_reply_to: Annotated[
        str | None,
        says(
            "The `eml_` id of the mail that this answers, by its signed Reply-To.",
            example="eml_01JCQ8Z6V3M2N7T0K4H9R5B1XA",
        ),
    ]
    automatic: Annotated[bool, says("`true`: no person wrote it: an auto-reply, a bounce, a list or a loop.")]
    headers: Annotated[
        list[tuple[str, str]],
        says("All headers in their order, as name and value.", example=[["Subject", "Re: Your parcel"]]),
    ]
    attachments: Annotated[list[AttachmentRecord], says("All parts that are not its text or HTML.", example=[])]
    authentication: Annotated[Authentication, says("Whether the sender is who it says.")]
    truncated: Annotated[bool, says("`true`: something was cut; the whole is at `GET /v1/received/:id` and `/raw`.")]


class Texts(msgspec.Struct, frozen=True):
    """Full values of fields that an event may have truncated."""

    text: str | None
    html: str | None
    reply_text: str | None
    headers: list[tuple[str, str]]
    truncated: bool
    attachments: list[AttachmentRecord] | None = None  # None if unchanged from the event


# -- reading ---------------------------------------------------------------------------------------------------------


def read_incoming(raw: bytes, *, sender: str, recipients: Collection[str]) -> ReadMail:
    """Parse a mail. `sender`: envelope sender, empty for a bounce; `recipients`: envelope recipients that are ours."""
    mail, fields, parts = _tree(raw)
    head = firsts(fields)
    said, files = _sorted(mail, parts)
    text, html = (said.get(kind) for kind in ("text/plain", "text/html"))
    headers = _headers(fields)
    to, cc = (_addresses(_joined(fields, name)) for name in ("to", "cc"))
    return ReadMail(
        from_=next(iter(_addresses(head.get("from", ""))), sender),
        to=to[:ADDRESSES_MAX],
        cc=cc[:ADDRESSES_MAX],
        subject=_clean(one_line(head.get("subject", ""))),
        text=_cut(text, BODY_OCTETS_MAX),
        html=_cut(html, BODY_OCTETS_MAX),
        message_id=_clean(one_line(head.get("message-id", "")))[:LINE_MAX],
        automatic=is_automatic(head, sender, recipients),
        hops=sum(name.lower() == "received" for name, _ in fields),
        headers=headers,
        attachments=[_described(mail, part, number) for number, part in enumerate(files, 1)],
        is_cut=parts.is_cut
        or len(headers) < len(fields)
        or any(len((one or "").encode()) > BODY_OCTETS_MAX for one in (text, html))
        or max(len(to), len(cc)) > ADDRESSES_MAX,
    )


def attachment_in(raw: bytes, id_: str) -> bytes | None:
    """Return the content of an attachment; None if not found."""
    mail, _, parts = _tree(raw)
    _, files = _sorted(mail, parts)
    return next((_content(mail, part) for number, part in enumerate(files, 1) if _id(number) == id_), None)


def is_automatic(head: Mapping[str, str], sender: str, recipients: Collection[str]) -> bool:
    """Return whether a mail is automatic, by RFC 3834 headers or its subject, or has already passed this server."""
    submitted = head.get("auto-submitted", "no").partition(";")[0].strip().lower()
    author = next(iter(_addresses(head.get("from", ""))), "").lower()
    delivered = {address.lower() for address in _addresses(head.get("delivered-to", ""))}
    return (
        submitted != "no"
        or head.get("precedence", "").strip().lower() in ("bulk", "list", "junk", "auto_reply")
        or any(name in head for name in _AUTOMATIC)
        or head.get("content-type", "").lower().startswith("multipart/report")
        or not sender
        or author.startswith(_DAEMONS)
        or is_auto_subject(one_line(head.get("subject", "")))
        or _OWN_ID.fullmatch(head.get("message-id", "").strip()) is not None
        or not delivered.isdisjoint(recipient.lower() for recipient in recipients)
    )


def _tree(raw: bytes) -> tuple[bytes, Fields, Leaves]:
    mail = plain(raw)
    fields, body = read_head(mail, 1, len(mail), FOREIGN)
    return mail, fields, read_leaves(mail, firsts(fields), body, FOREIGN)


def _sorted(mail: bytes, parts: Sequence[Leaf]) -> tuple[dict[str, str], list[Leaf]]:
    """Return the text and HTML bodies by type, and all other parts."""
    said: dict[str, str] = {}
    files: list[Leaf] = []
    for part in parts:
        is_text = part.type in ("text/plain", "text/html") and not part.is_attached and not part.filename
        if not is_text or part.end - part.start > CODED_MAX or (part.type in said and part.type == "text/plain"):
            files.append(part)
        else:  # some mailers continue the text after an attachment
            said[part.type] = said.get(part.type, "") + _text(mail, part)
    return said, files


def _text(mail: bytes, part: Leaf) -> str:
    given = part.parameters
    text = _clean(decoded(_content(mail, part), given.get("charset", ""))).replace("\r\n", "\n").replace("\r", "\n")
    if part.type == "text/plain" and given.get("format", "").lower() == "flowed" and len(text) <= FLOWED_MAX:
        return unflowed(text, given.get("delsp", "").lower() == "yes")
    return text


def _content(mail: bytes, part: Leaf) -> bytes:
    body = mail[part.start : part.end]
    with suppress(ValueError):  # truncated or mislabelled: keep it undecoded
        return unwrapped(body, part.field("content-transfer-encoding"))
    return body


def _described(mail: bytes, part: Leaf, number: int) -> AttachmentRecord:
    ending = next(
        (ending for ending, kind in TYPE_OF.items() if kind == part.type), "eml" if "rfc822" in part.type else ""
    )
    unnamed = f"attachment-{number}" + (f".{ending}" if ending else "")
    content_id = _clean(one_line(part.field("content-id"))).removeprefix("<").removesuffix(">")
    return AttachmentRecord(
        id=_id(number),
        filename=_UNSAFE.sub("_", part.filename[-FILENAME_MAX:]) or unnamed,
        content_type=_clean(part.type)[:LINE_MAX],
        size=len(_content(mail, part)),
        content_id=content_id[:LINE_MAX] or None,
    )


def _id(number: int) -> str:
    return f"att_{number}"


def _headers(fields: Fields) -> list[tuple[str, str]]:
    kept: list[tuple[str, str]] = []
    room = HEADERS_MAX
    for name, value in fields:
        line = _clean(one_line(value[: 2 * LINE_MAX]))[:LINE_MAX]
        room -= len(name) + len(line.encode())
        if room < 0:
            break
        kept.append((name, line))
    return kept


def _joined(fields: Fields, name: str) -> str:
    return ", ".join(value for field, value in fields if field.lower() == name)


def _addresses(value: str) -> list[str]:
    found = (parse_address(address) for _, address in read_addresses(value))
    return [address.given for address in found if address]


def _clean(text: str) -> str:
    """Remove NUL characters, which PostgreSQL cannot store."""
    return text.replace("\0", "")


# -- the record ------------------------------------------------------------------------------------------------------


def to_record(
    id_: str, mail: ReadMail, recipients: Sequence[Address], in_reply_to: str | None, authentication: Authentication
) -> ReceivedRecord:
    return ReceivedRecord(
        id=id_,
        from_=mail.from_,
        to=mail.to,
        cc=mail.cc,
        recipients=[address.given for address in recipients],
        subject=mail.subject[:LINE_MAX],
        text=mail.text,
        html=mail.html,
        reply_text=mail.reply_text,
        message_id=mail.message_id,
        in_reply_to=in_reply_to,
        automatic=mail.automatic,
        headers=mail.headers,
        attachments=mail.attachments,
        authentication=authentication,
        truncated=mail.is_cut,
    )


def told(record: ReceivedRecord) -> ReceivedRecord:
    """Shorten a record for its event: texts are cut at 64 KiB, and further if their JSON is too long."""
    most, shown = TOLD_MAX, _told(record, TOLD_MAX)
    while most and len(msgspec.json.encode(shown)) > RECORD_MAX:
        most //= 2
        shown = _told(record, most)
    return shown if most else replace(shown, headers=[], attachments=shown.attachments[:20], truncated=True)


def _told(record: ReceivedRecord, most: int) -> ReceivedRecord:
    texts = {name: _cut(getattr(record, name), most) for name in ("text", "html", "reply_text")}
    is_cut = any(getattr(record, name) != text for name, text in texts.items())
    return replace(record, truncated=record.truncated or is_cut, **texts)


def texts_of(record: ReceivedRecord) -> Texts:
    return Texts(record.text, record.html, record.reply_text, record.headers, record.truncated, record.attachments)


def with_texts(short: ReceivedRecord, texts: Texts) -> ReceivedRecord:
    """Return the record with its full texts."""
    whole = asdict(texts)
    return replace(
        short, **whole | {"attachments": short.attachments if texts.attachments is None else texts.attachments}
    )


def _cut(text: str | None, most: int) -> str | None:
    if text is None or len(text) <= most // 4:
        return text
    return text.encode()[:most].decode("utf-8", "ignore")
