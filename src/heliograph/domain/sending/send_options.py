"""Optional fields of a message on every channel (contract 16): tags, metadata and, for email, custom headers."""

import hashlib
import re
from collections.abc import Callable
from typing import Annotated, Any

import msgspec

from heliograph.domain.delivery.message_states import UNSHOWN
from heliograph.domain.field_docs import TIME, Locale, limited, says
from heliograph.domain.ids import parse_timestamp, timestamp
from heliograph.domain.limits import DAY_MS, KIB
from heliograph.domain.refusals import InvalidHeader, InvalidMetadata, InvalidSchedule, InvalidTags
from heliograph.domain.setup.records import Layout, Priority, Template
from heliograph.domain.text import CONTROLS, quoted

TAGS_MAX = 10
TAG_VALUE_MAX = 256
METADATA_MAX = 4 * KIB
HEADERS_MAX = 25
HEADERS_TOTAL_MAX = 8 * KIB
AHEAD_MAX_MS = 60 * DAY_MS
OWN_HEADERS = (
    *("List-Unsubscribe", "List-Unsubscribe-Post", "List-Id", "In-Reply-To", "References"),
    *("Auto-Submitted", "Feedback-ID", "Importance", "Priority"),
)

_TAG_NAME = re.compile(r"[A-Za-z0-9_-]{1,64}")
_HEADER_NAME = re.compile("x-[!-9;-~]{1,74}|" + "|".join(map(str.lower, OWN_HEADERS)))

TagName = Annotated[str, limited(pattern=f"^{_TAG_NAME.pattern}$")]
TagValue = Annotated[str, limited(minLength=1, maxLength=TAG_VALUE_MAX)]
Tags = Annotated[
    dict[TagName, TagValue] | None,
    says("Up to 10 names with values, to find and count messages by.", maxProperties=TAGS_MAX),
]
Metadata = Annotated[
    dict[str, Any] | None,
    says("Any JSON object of up to 4 KiB; it comes back in reads and events, and is never searched."),
]
MailHeaders = Annotated[
    dict[str, str] | None,
    says(f"Own header fields, up to 25 with 8 KiB together: `X-…`, {', '.join(f'`{name}`' for name in OWN_HEADERS)}."),
]


ScheduledAt = Annotated[
    str | None, says("When to send it: a time with an offset, up to 60 days ahead; a past one means now.", **TIME)
]
ExpiresAt = Annotated[
    str | None, says("When it is too late: what was not handed over by then fails with the reason `expired`.", **TIME)
]


Urgency = Annotated[
    Priority | None,
    says("Of what is due, `critical` goes before `normal` and `bulk` last; by default the template's, else `normal`."),
]


class Timing(msgspec.Struct, frozen=True, kw_only=True):
    """When a message is due and when it expires."""

    due_at: int | None = None  # None: immediately
    expires_at: int | None = None

    def starts(self, now: int) -> int:
        return max(now, self.due_at or 0)


AT_ONCE = Timing()


class Added(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Fields stored with a message beyond the record in the response to its sender."""

    tags: dict[str, str] = {}
    metadata: dict[str, Any] = {}
    reply_to_addresses: list[str] = []  # only if there are several
    headers: dict[str, str] = {}
    scheduled_at: str | None = None
    expires_at: str | None = None
    priority: Priority = "normal"
    template_version: int | None = None
    layout_version: int | None = None
    locale: str | None = None  # locale of the rendered content
    # Fields shown only by APIs compatible with other services:
    sender_id: str | None = None  # sender of a phone message, or of an email including the display name
    origin: dict[str, str] = {}  # owner in the other service, by that service's field names
    named: list[str] = []  # To and Cc addresses given with a display name, as RFC 5322 name-addrs


class MessageRecord(Added, frozen=True, kw_only=True, omit_defaults=True):
    """A stored message: the response record and the sender's additions. Absent fields have their default."""

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


read_record: Callable[[str], MessageRecord] = msgspec.json.Decoder(MessageRecord).decode


def with_name(address: str, named: list[str]) -> str:
    """Return the address as a name-addr if it was given with a display name."""
    return next((one for one in named if one.endswith(f"<{address}>")), address)


RENDERED_FROM = ("template_version", "layout_version", "locale")


def shown(record: str, status: str, *, whole: bool = False) -> dict[str, Any]:
    """Return a stored message as /v1 shows it; `whole` includes the template version, layout version and locale."""
    own: dict[str, Any] = msgspec.json.decode(record)
    for name in UNSHOWN if whole else (*UNSHOWN, *RENDERED_FROM):
        own.pop(name, None)
    return own | {"status": status}


class Options(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The fields of every send."""

    tags: Tags = None
    metadata: Metadata = None
    scheduled_at: ScheduledAt = None
    expires_at: ExpiresAt = None
    priority: Urgency = None
    locale: Locale = None


def read_options(given: Options, now: int) -> Timing:
    """Validate the options; in the order of checks this comes after the recipients."""
    if given.tags:
        check_tags(given.tags)
    if given.metadata:
        check_metadata(given.metadata)
    if given.scheduled_at is None and given.expires_at is None:
        return AT_ONCE
    return read_timing(given.scheduled_at, given.expires_at, now)


def added_of(
    given: Options,
    timing: Timing,
    template: Template | None,
    *,
    layout: Layout | None = None,
    reply_to_addresses: list[str] | None = None,
    headers: dict[str, str] | None = None,
    sender_id: str | None = None,
    origin: dict[str, str] | None = None,
) -> Added:
    """Return the additional fields of a message's record, including the versions from which it was rendered."""
    return Added(
        tags=given.tags or {},
        metadata=given.metadata or {},
        scheduled_at=None if timing.due_at is None else timestamp(timing.due_at),
        expires_at=None if timing.expires_at is None else timestamp(timing.expires_at),
        priority=given.priority or (template.priority if template else "normal"),
        template_version=template.version if template else None,
        layout_version=layout.version if layout else None,
        locale=template.locale if template else None,
        reply_to_addresses=reply_to_addresses or [],
        headers=headers or {},
        sender_id=sender_id,
        origin=origin or {},
    )


def read_timing(scheduled_at: str | None, expires_at: str | None, now: int) -> Timing:
    due, end = _moment(scheduled_at, "scheduled_at"), _moment(expires_at, "expires_at")
    if due is not None and due > now + AHEAD_MAX_MS:
        raise InvalidSchedule(f"scheduled_at is more than 60 days ahead. {InvalidSchedule.fix}", param="scheduled_at")
    if end is not None and end <= max(now, due or 0):
        when = "past" if end <= now else "not after scheduled_at"
        raise InvalidSchedule(f"expires_at is {when}. {InvalidSchedule.fix}", param="expires_at")
    return Timing(due_at=due, expires_at=end)


def _moment(text: str | None, name: str) -> int | None:
    if text is None:
        return None
    at = parse_timestamp(text)
    if at is None:
        raise InvalidSchedule(f"{name} {quoted(text)} is not a time. {InvalidSchedule.fix}", param=name)
    return at


def check_tags(tags: dict[str, str] | None) -> None:
    if not tags:
        return
    if len(tags) > TAGS_MAX:
        raise InvalidTags(f"There are {len(tags)} tags, {TAGS_MAX} is the most. {InvalidTags.fix}", param="tags")
    for name, value in tags.items():
        if not _TAG_NAME.fullmatch(name):
            raise InvalidTags(f"{quoted(name)} is not a tag's name. {InvalidTags.fix}", param="tags")
        if not 1 <= len(value) <= TAG_VALUE_MAX:
            raise InvalidTags(f"The tag {name} has {len(value)} characters. {InvalidTags.fix}", param="tags")


def split_tag(given: str) -> tuple[str, str] | None:
    """Split `name:value`; None if not a valid tag."""
    name, colon, value = given.partition(":")
    return (name, value) if colon and _TAG_NAME.fullmatch(name) and 1 <= len(value) <= TAG_VALUE_MAX else None


def tag_hash(name: str, value: str) -> int:
    """Return the lookup hash of a tag; values may be long or contain characters that a database cannot store."""
    digest = hashlib.blake2b(f"{name}:{value}".encode(), digest_size=8).digest()
    return int.from_bytes(digest, signed=True)


def check_metadata(metadata: dict[str, Any] | None) -> None:
    if metadata and (size := len(msgspec.json.encode(metadata))) > METADATA_MAX:
        raise InvalidMetadata(
            f"metadata has {size} bytes of JSON, {METADATA_MAX} is the most. {InvalidMetadata.fix}", param="metadata"
        )


def check_mail_headers(headers: dict[str, str] | None) -> None:
    if not headers:
        return
    if len(headers) > HEADERS_MAX:
        raise InvalidHeader(
            f"There are {len(headers)} headers, {HEADERS_MAX} is the most. {InvalidHeader.fix}", param="headers"
        )
    names: set[str] = set()
    for name, value in headers.items():
        lower = name.lower()
        if not name.isascii() or not _HEADER_NAME.fullmatch(lower):  # `lower()` turns the Kelvin sign into an ASCII k
            raise InvalidHeader(f"The header {quoted(name)} is not allowed. {InvalidHeader.fix}", param="headers")
        if lower in names:
            raise InvalidHeader(f"The header {name} is given twice. {InvalidHeader.fix}", param="headers")
        if CONTROLS.search(value):
            raise InvalidHeader(
                f"The header {name} has a control character or a line break. {InvalidHeader.fix}",
                param="headers",
            )
        names.add(lower)
    size = sum(len(text.encode()) for pair in headers.items() for text in pair)
    if size > HEADERS_TOTAL_MAX:
        raise InvalidHeader(
            f"The headers have {size} bytes together, {HEADERS_TOTAL_MAX} is the most. {InvalidHeader.fix}",
            param="headers",
        )
