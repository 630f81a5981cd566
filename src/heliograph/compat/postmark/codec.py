"""Format of the compatibility API for Postmark: API key, errors, message texts that clients parse, and pagination."""

from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from typing import Any, TypeVar

import msgspec

from heliograph.compat.call import Call
from heliograph.compat.normalize import with_client_field_names
from heliograph.domain import refusals as r
from heliograph.domain.ids import parse_timestamp
from heliograph.domain.limits import DAY_MS
from heliograph.domain.refusals import InvalidRequest, MissingApiKey, Refusal
from heliograph.domain.text import parse_int
from heliograph.storage.search.message_search import LATEST_TIME
from heliograph.web.errors import error_headers
from heliograph.web.request import Request, Response
from heliograph.web.status import status_of

T = TypeVar("T")

PREFIX = "/compat/postmark"
STREAM = "outbound"  # the only message stream
UNKNOWN_STREAM_CODE = 1226
COUNT_MAX = 500
SEARCHED_MAX = 5_000  # maximum records that are read to fill a page
DEFAULT_ERROR_CODE = 300  # for errors of a mail that are not in CODE_BY_REFUSAL
CODE_BY_REFUSAL: dict[type[Refusal], int] = {
    r.MissingApiKey: 10,
    r.InvalidApiKey: 10,
    r.WrongCell: 10,
    r.InsufficientScope: 10,
    r.ServiceUnavailable: 100,
    r.NoApprovedBrandDomain: 400,
    r.FromDomainUnverified: 400,
    r.KeyDomainScope: 400,
    r.SandboxFromLocked: 400,
    r.InvalidJson: 402,
    r.InvalidRequest: 403,
    r.MissingVariable: 403,
    r.UnknownVariable: 403,
    r.InsufficientCredit: 405,
    r.DirectSendsPaused: 405,
    r.RecipientSuppressed: 406,
    r.RecipientUnsubscribed: 406,
    r.UnsupportedMediaType: 409,
    r.UnsupportedAttachmentType: 411,
    r.RecipientNotAllowed: 412,
    **dict.fromkeys(r.NOT_PERMITTED, 412),
    r.TeamSuspended: 413,
    r.RateLimitExceeded: 429,
    r.KeyLimitReached: 429,
    r.MessageNotFound: 701,
    r.TemplateNotFound: 1101,
    r.WrongTemplateChannel: 1101,
}
CLIENT_FIELD_NAMES = {  # our field name → Postmark's
    **{name: name.title() for name in ("to", "cc", "bcc", "from", "subject", "headers", "metadata", "attachments")},
    "reply_to": "ReplyTo",
    "html": "HtmlBody",
    "text": "TextBody",
    "tags": "Tag",
    "category": "MessageStream",
    "filename": "Name",
    "content": "Content",
    "content_type": "ContentType",
    "content_id": "ContentID",
    "template_id": "TemplateAlias",
    "variables": "TemplateModel",
}
STATUS_BY_CODE = {10: 401, 100: 503, 429: 429}  # Postmark's code → HTTP status; all other codes have 422
UNCHANGED_STATUSES = (404, 405, 413, 500)  # our statuses that errors with DEFAULT_ERROR_CODE keep
# path prefix of an unsupported call → reason
UNSUPPORTED = {
    "/email/bulk": "Bulk mail is not supported. Send up to 500 transactional mails with /email/batch.",
    "/messages/inbound": "Not supported here. List inbound mail with GET /v1/received.",
    "/bounces/tags": "Listing tags is not supported. Filter /bounces by a tag instead.",
    "/triggers/tags": "Opens and clicks are not tracked, so tag triggers are not supported.",
    "/triggers": "Inbound rules are not supported: process inbound mail in your own code.",
    "/server": "Not supported here. Change the team in the dashboard.",
    "/message-streams": "There is only one stream, outbound, and it cannot be changed.",
    "/domains": "Not supported here. Add and verify domains with /v1/domains.",
    "/data-removals": "Not supported here. A team owner can erase an address in the dashboard, under Suppressions.",
    "/senders": "Sender signatures are not supported: senders are domains. Add domains with /v1/domains.",
}
# Postmark's wording, because its clients parse the addresses from this text.
INACTIVE_MESSAGE = (
    "Found inactive addresses: {}. Inactive recipients are ones that have generated a hard bounce, a spam complaint, "
    "or a manual suppression."
)
SUPPRESSED_MESSAGE = f"You tried to send to recipient(s) that have been marked as inactive. {INACTIVE_MESSAGE}"


def token(request: Request) -> bytes:
    key = request.headers.get(b"x-postmark-server-token")
    if key is None:
        raise MissingApiKey("The header X-Postmark-Server-Token is missing. Send an API key in this header.")
    return key


def error(refusal: Refusal, request: Request, base_url: str) -> Response:
    body, status = to_error(refusal), status_of(type(refusal))
    if status in (404, 405) and (reason := unsupported_reason(request.path)):
        body = {"ErrorCode": DEFAULT_ERROR_CODE, "Message": reason}
    if not isinstance(refusal, r.WrongCell) and (
        body["ErrorCode"] != DEFAULT_ERROR_CODE or status not in UNCHANGED_STATUSES
    ):
        status = STATUS_BY_CODE.get(body["ErrorCode"], 422)
    return Response(status, msgspec.json.encode(body), error_headers(refusal))


def unsupported_reason(path: str) -> str | None:
    return next(
        (reason for prefix, reason in UNSUPPORTED.items() if path.removeprefix(PREFIX).startswith(prefix)), None
    )


def to_error(refusal: Refusal) -> dict[str, Any]:
    details = refusal.details or {}
    code = details.get("code") or CODE_BY_REFUSAL.get(type(refusal), DEFAULT_ERROR_CODE)
    message = with_client_field_names(refusal, CLIENT_FIELD_NAMES)
    if isinstance(refusal, r.RecipientSuppressed | r.RecipientUnsubscribed):
        message = SUPPRESSED_MESSAGE.format(", ".join(details["addresses"]))
    elif "address" in details:
        field = (refusal.param or "").rpartition(".")[2]  # in a batch, `param` begins with the mail's position
        message = f"Invalid '{field.replace('_', '-').title()}' address: '{details['address']}'."
    return {"ErrorCode": code, "Message": message}


# -- lists ---------------------------------------------------------------------------------------------------------


def read_query(call: Call) -> dict[str, str]:
    """Return the query with lower-case names, because Postmark's clients differ in capitalisation."""
    return {name.lower(): value for name, value in call.request.unchecked_query().items() if value}


async def read_page(
    query: Mapping[str, str], pages: AsyncIterator[Sequence[T]], matches: Callable[[T], bool]
) -> tuple[list[T], int]:
    """Return the requested page of the records that match, and the number of matches found until then."""
    count, offset = _count_and_offset(query)
    if count > COUNT_MAX or count + offset > SEARCHED_MAX:
        raise InvalidRequest(
            f"count must be at most {COUNT_MAX}, and count plus offset at most {SEARCHED_MAX}. "
            "Narrow the time range with fromdate and todate.",
            param="count",
        )
    matching, searched = list[T](), 0
    async for batch in pages:
        searched += len(batch)
        matching += filter(matches, batch)
        if len(matching) > offset + count or searched >= SEARCHED_MAX:
            break
    return matching[offset : offset + count], len(matching)


def slice_page(query: Mapping[str, str], records: Sequence[T]) -> Sequence[T]:
    """Return the requested page of an in-memory list."""
    count, offset = _count_and_offset(query)
    return records[offset : offset + count]


def _count_and_offset(query: Mapping[str, str]) -> tuple[int, int]:
    return _parse_number(query, "count", COUNT_MAX), _parse_number(query, "offset", 0)


def _parse_number(query: Mapping[str, str], name: str, default: int) -> int:
    text = query.get(name, str(default))
    number = parse_int(text, 9)
    if number is None:
        raise InvalidRequest(f"{name} must be a whole number, not {text[:80]!r}.", param=name)
    return number


def time_range(query: Mapping[str, str]) -> tuple[int, int]:
    """Return `fromdate` and `todate`, which are inclusive days or times (by default in UTC), as exclusive limits."""
    after, before = -1, LATEST_TIME
    if text := query.get("fromdate"):
        after = _parse_time(text, "fromdate") - 1
    if text := query.get("todate"):
        before = _parse_time(text, "todate") + (1 if "T" in text else DAY_MS)
    return after, before


def _parse_time(text: str, name: str) -> int:
    with_time = text if "T" in text else f"{text}T00:00:00"
    timestamp_ms = parse_timestamp(with_time) or parse_timestamp(f"{with_time}Z")
    if timestamp_ms is None:
        raise InvalidRequest(f"{name} must be a date such as 2026-11-15, not {text[:80]!r}.", param=name)
    return timestamp_ms


def check_stream(name: str) -> None:
    if name != STREAM:
        message = f"There is no message stream {name[:80]!r}. The only stream is {STREAM}."
        raise InvalidRequest(message, param="MessageStream", details={"code": UNKNOWN_STREAM_CODE})
