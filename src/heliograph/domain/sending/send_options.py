"""Optional fields of a message on every channel (contract 16): tags, metadata and, for email, custom headers."""

import hashlib
import re
from collections.abc import Callable
from typing import Annotated, Any

import msgspec

from heliograph.domain.delivery.message_states import HIDDEN_FIELDS
from heliograph.domain.field_docs import TIME, Locale, describe, schema_limits
from heliograph.domain.ids import parse_timestamp, timestamp
from heliograph.domain.limits import DAY_MS, KIB
from heliograph.domain.refusals import InvalidHeader, InvalidMetadata, InvalidSchedule, InvalidTags
from heliograph.domain.setup.records import Layout, Priority, Template
from heliograph.domain.text import CONTROL_CHARACTER, quoted

TAGS_MAX = 10
TAG_VALUE_MAX = 256
METADATA_MAX = 4 * KIB
HEADERS_MAX = 25
HEADERS_TOTAL_MAX = 8 * KIB
SCHEDULE_AHEAD_MAX_MS = 60 * DAY_MS
ALLOWED_HEADERS = (
    *("List-Unsubscribe", "List-Unsubscribe-Post", "List-Id", "In-Reply-To", "References"),
    *("Auto-Submitted", "Feedback-ID", "Importance", "Priority"),
)

_TAG_NAME = re.compile(r"[A-Za-z0-9_-]{1,64}")
_HEADER_NAME = re.compile("x-[!-9;-~]{1,74}|" + "|".join(map(str.lower, ALLOWED_HEADERS)))

TagName = Annotated[str, schema_limits(pattern=f"^{_TAG_NAME.pattern}$")]
TagValue = Annotated[str, schema_limits(minLength=1, maxLength=TAG_VALUE_MAX)]
Tags = Annotated[
    dict[TagName, TagValue] | None,
    describe("Up to 10 name-value pairs for finding and counting messages.", maxProperties=TAGS_MAX),
]
Metadata = Annotated[
    dict[str, Any] | None,
    describe("Any JSON object of up to 4 KiB. Returned in reads and events, but not searchable."),
]
MailHeaders = Annotated[
    dict[str, str] | None,
    describe(
        f"Custom headers, up to 25 and 8 KiB in total: `X-…`, {', '.join(f'`{name}`' for name in ALLOWED_HEADERS)}."
    ),
]


ScheduledAt = Annotated[
    str | None,
    describe("When to send the message: a time with an offset, up to 60 days ahead. A past time means now.", **TIME),
]
ExpiresAt = Annotated[
    str | None, describe("Deadline: a message not sent by then fails with the reason `expired`.", **TIME)
]


PriorityField = Annotated[
    Priority | None,
    describe(
        "Sending order of due messages: `critical`, `normal`, `bulk`. Default: the template's, otherwise `normal`."
    ),
]


class Timing(msgspec.Struct, frozen=True, kw_only=True):
    """When a message is due and when it expires."""

    due_at: int | None = None  # None: send immediately
    expires_at: int | None = None

    def start_time(self, now: int) -> int:
        return max(now, self.due_at or 0)


IMMEDIATE = Timing()


class ExtraFields(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Fields stored with a message in addition to the record that the send request returned."""

    tags: dict[str, str] = {}
    metadata: dict[str, Any] = {}
    reply_to_addresses: list[str] = []  # empty unless there are several
    headers: dict[str, str] = {}
    scheduled_at: str | None = None
    expires_at: str | None = None
    priority: Priority = "normal"
    template_version: int | None = None
    layout_version: int | None = None
    locale: str | None = None  # locale of the rendered content
    category: str | None = None
    # Fields shown only by compatibility APIs:
    sender_id: str | None = None  # sender of a phone message, or of an email including the display name
    origin: dict[str, str] = {}  # compatibility API: name of a request field → account id in it
    named: list[str] = []  # To and Cc addresses given with a display name, as RFC 5322 name-addrs


class MessageRecord(ExtraFields, frozen=True, kw_only=True, omit_defaults=True):
    """A stored message: the response record and the sender's additional fields. An absent field has its default."""

    id: str = ""
    to: str = ""
    to_addresses: list[str] = []
    cc: list[str] = []
    bcc: list[str] = []
    reply_to: str | None = None
    from_: str = msgspec.field(default="", name="from")
    subject: str = ""
    recipient_count: int = 1
    created_at: str = ""


decode_record: Callable[[str], MessageRecord] = msgspec.json.Decoder(MessageRecord).decode


def to_name_addr(address: str, name_addrs: list[str]) -> str:
    """Return the entry of `name_addrs` (`Name <address>`) for the address; the address itself if there is none."""
    return next((name_addr for name_addr in name_addrs if name_addr.endswith(f"<{address}>")), address)


RENDER_FIELDS = ("template_version", "layout_version", "locale")


def public_record(record: str, status: str, *, with_render_fields: bool = False) -> dict[str, Any]:
    """Return a stored message as the API returns it. `with_render_fields`: include RENDER_FIELDS."""
    fields: dict[str, Any] = msgspec.json.decode(record)
    for name in HIDDEN_FIELDS if with_render_fields else (*HIDDEN_FIELDS, *RENDER_FIELDS):
        fields.pop(name, None)
    return fields | {"status": status}


class SendOptions(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The optional fields that every send may have."""

    tags: Tags = None
    metadata: Metadata = None
    scheduled_at: ScheduledAt = None
    expires_at: ExpiresAt = None
    priority: PriorityField = None
    locale: Locale = None


def parse_options(options: SendOptions, now: int) -> Timing:
    """Validate the options; return when the message is due and when it expires.

    The caller must check the recipients before this call, because their errors take precedence.
    """
    if options.tags:
        check_tags(options.tags)
    if options.metadata:
        check_metadata(options.metadata)
    if options.scheduled_at is None and options.expires_at is None:
        return IMMEDIATE
    return parse_timing(options.scheduled_at, options.expires_at, now)


def build_extra_fields(
    options: SendOptions,
    timing: Timing,
    template: Template | None,
    *,
    layout: Layout | None = None,
    reply_to_addresses: list[str] | None = None,
    headers: dict[str, str] | None = None,
    category: str | None = None,
    sender_id: str | None = None,
    origin: dict[str, str] | None = None,
) -> ExtraFields:
    """Return the additional fields of a message's record, including the versions of its template and layout."""
    return ExtraFields(
        tags=options.tags or {},
        metadata=options.metadata or {},
        scheduled_at=None if timing.due_at is None else timestamp(timing.due_at),
        expires_at=None if timing.expires_at is None else timestamp(timing.expires_at),
        priority=options.priority or (template.priority if template else "normal"),
        template_version=template.version if template else None,
        layout_version=layout.version if layout else None,
        locale=template.locale if template else None,
        reply_to_addresses=reply_to_addresses or [],
        headers=headers or {},
        category=category,
        sender_id=sender_id,
        origin=origin or {},
    )


def parse_timing(scheduled_at: str | None, expires_at: str | None, now: int) -> Timing:
    due_at, expiry = _parse_time(scheduled_at, "scheduled_at"), _parse_time(expires_at, "expires_at")
    if due_at is not None and due_at > now + SCHEDULE_AHEAD_MAX_MS:
        raise InvalidSchedule(f"scheduled_at is more than 60 days ahead. {InvalidSchedule.fix}", param="scheduled_at")
    if expiry is not None and expiry <= max(now, due_at or 0):
        when = "in the past" if expiry <= now else "not after scheduled_at"
        raise InvalidSchedule(f"expires_at is {when}. {InvalidSchedule.fix}", param="expires_at")
    return Timing(due_at=due_at, expires_at=expiry)


def _parse_time(text: str | None, name: str) -> int | None:
    if text is None:
        return None
    time_ms = parse_timestamp(text)
    if time_ms is None:
        raise InvalidSchedule(f"{name} {quoted(text)} is not a valid time. {InvalidSchedule.fix}", param=name)
    return time_ms


def check_tags(tags: dict[str, str] | None) -> None:
    if not tags:
        return
    if len(tags) > TAGS_MAX:
        raise InvalidTags(f"There are {len(tags)} tags; the maximum is {TAGS_MAX}. {InvalidTags.fix}", param="tags")
    for name, value in tags.items():
        if not _TAG_NAME.fullmatch(name):
            raise InvalidTags(f"{quoted(name)} is not a valid tag name. {InvalidTags.fix}", param="tags")
        if not 1 <= len(value) <= TAG_VALUE_MAX:
            raise InvalidTags(f"The value of tag {name} has {len(value)} characters. {InvalidTags.fix}", param="tags")


def split_tag(text: str) -> tuple[str, str] | None:
    """Split a tag `name:value`; None if it is not a valid tag."""
    name, colon, value = text.partition(":")
    return (name, value) if colon and _TAG_NAME.fullmatch(name) and 1 <= len(value) <= TAG_VALUE_MAX else None


def tag_hash(name: str, value: str) -> int:
    """Return the hash by which a tag is looked up.

    The value itself may be long, or contain characters that cannot be stored.
    """
    digest = hashlib.blake2b(f"{name}:{value}".encode(), digest_size=8).digest()
    return int.from_bytes(digest, signed=True)


def check_metadata(metadata: dict[str, Any] | None) -> None:
    if metadata and (size := len(msgspec.json.encode(metadata))) > METADATA_MAX:
        raise InvalidMetadata(
            f"metadata has {size} bytes of JSON; the maximum is {METADATA_MAX}. {InvalidMetadata.fix}", param="metadata"
        )


def check_mail_headers(headers: dict[str, str] | None) -> None:
    if not headers:
        return
    if len(headers) > HEADERS_MAX:
        raise InvalidHeader(
            f"There are {len(headers)} headers; the maximum is {HEADERS_MAX}. {InvalidHeader.fix}", param="headers"
        )
    names: set[str] = set()
    for name, value in headers.items():
        lower = name.lower()
        if not name.isascii() or not _HEADER_NAME.fullmatch(lower):  # `lower()` turns the Kelvin sign into an ASCII k
            raise InvalidHeader(f"The header {quoted(name)} is not allowed. {InvalidHeader.fix}", param="headers")
        if lower in names:
            raise InvalidHeader(f"The header {name} is given twice. {InvalidHeader.fix}", param="headers")
        if CONTROL_CHARACTER.search(value):
            raise InvalidHeader(
                f"The header {name} contains a control character or a line break. {InvalidHeader.fix}",
                param="headers",
            )
        names.add(lower)
    size = sum(len(text.encode()) for pair in headers.items() for text in pair)
    if size > HEADERS_TOTAL_MAX:
        raise InvalidHeader(
            f"The headers have {size} bytes in total; the maximum is {HEADERS_TOTAL_MAX}. {InvalidHeader.fix}",
            param="headers",
        )
