"""Postmark's API format: API key, errors, messages that clients parse, and pagination."""

from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from typing import Any, TypeVar

import msgspec

from heliograph.compat.call import Call
from heliograph.compat.normalize import worded
from heliograph.domain import refusals as r
from heliograph.domain.ids import parse_timestamp
from heliograph.domain.limits import DAY_MS
from heliograph.domain.refusals import InvalidRequest, MissingApiKey, Refusal
from heliograph.domain.text import whole_number
from heliograph.storage.search.message_search import FOREVER
from heliograph.web.errors import error_headers
from heliograph.web.request import Request, Response
from heliograph.web.status import status_of

T = TypeVar("T")

PREFIX = "/compat/postmark"
STREAM = "outbound"  # the only message stream
NO_STREAM = 1226
COUNT_MAX = 500
LOOKED = 5_000  # maximum records searched for one page
INVALID = 300  # errors of a mail without a specific code
CODES: dict[type[Refusal], int] = {
    r.MissingApiKey: 10,
    r.InvalidApiKey: 10,
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
    r.UnsupportedMediaType: 409,
    r.UnsupportedAttachmentType: 411,
    r.RecipientNotAllowed: 412,
    r.TeamSuspended: 413,
    r.RateLimitExceeded: 429,
    r.MessageNotFound: 701,
    r.TemplateNotFound: 1101,
    r.WrongTemplateChannel: 1101,
}
FIELDS = {  # our name → Postmark's
    **{name: name.title() for name in ("to", "cc", "bcc", "from", "subject", "headers", "metadata", "attachments")},
    "reply_to": "ReplyTo",
    "html": "HtmlBody",
    "text": "TextBody",
    "tags": "Tag",
    "filename": "Name",
    "content": "Content",
    "content_type": "ContentType",
    "content_id": "ContentID",
    "template_id": "TemplateAlias",
    "variables": "TemplateModel",
}
STATUS = {10: 401, 100: 503, 429: 429}  # HTTP status by Postmark code; other errors of a mail are 422
KEPT_STATUS = (404, 405, 413, 500)
# Postmark's calls that we do not support, by path prefix, and the reason.
DECLINED = {
    "/email/bulk": "This service sends what somebody waits for: send up to 500 mails with /email/batch.",
    "/messages/inbound": "Received mail is read at GET /v1/received.",
    "/bounces/tags": "Tags are not listed: name one, as tag of /bounces.",
    "/triggers/tags": "Nothing is tracked, so nothing is triggered by a tag.",
    "/triggers": "What becomes of received mail is your program's to decide: there are no rules here.",
    "/server": "A team is changed in the dashboard.",
    "/message-streams": "There is one stream, outbound, and it stays as it is.",
    "/domains": "Domains are added and verified at /v1/domains.",
    "/data-removals": "An owner of the team erases an address in the dashboard, under Suppressions.",
    "/senders": "Senders are whole domains here: add them at /v1/domains.",
}
# Postmark's exact wording: its clients parse the addresses from this text.
INACTIVE = (
    "Found inactive addresses: {}. Inactive recipients are ones that have generated a hard bounce, a spam complaint, "
    "or a manual suppression."
)
REFUSED = f"You tried to send to recipient(s) that have been marked as inactive. {INACTIVE}"


def token(request: Request) -> bytes:
    given = request.headers.get(b"x-postmark-server-token")
    if given is None:
        raise MissingApiKey("X-Postmark-Server-Token is missing. Send an API key in it.")
    return given


def error(refusal: Refusal, request: Request, base_url: str) -> Response:
    told, status = word(refusal), status_of(type(refusal))
    if status in (404, 405) and (why := _declined(request.path)):
        told = {"ErrorCode": INVALID, "Message": why}
    if told["ErrorCode"] != INVALID or status not in KEPT_STATUS:
        status = STATUS.get(told["ErrorCode"], 422)
    return Response(status, msgspec.json.encode(told), error_headers(refusal))


def _declined(path: str) -> str | None:
    return next((why for start, why in DECLINED.items() if path.removeprefix(PREFIX).startswith(start)), None)


def word(refusal: Refusal) -> dict[str, Any]:
    details = refusal.details or {}
    code, told = details.get("code") or CODES.get(type(refusal), INVALID), worded(refusal, FIELDS)
    if isinstance(refusal, r.RecipientSuppressed):
        told = REFUSED.format(", ".join(details["addresses"]))
    elif "address" in details:
        field = (refusal.param or "").rpartition(".")[2]  # in a batch, the path begins with the mail's position
        told = f"Invalid '{field.replace('_', '-').title()}' address: '{details['address']}'."
    return {"ErrorCode": code, "Message": told}


# -- lists ---------------------------------------------------------------------------------------------------------


def asked(call: Call) -> dict[str, str]:
    """Return the query with lower-case names: Postmark's clients use different capitalisation."""
    return {name.lower(): value for name, value in call.request.loose_query().items() if value}


async def page_of(
    query: Mapping[str, str], pages: AsyncIterator[Sequence[T]], fits: Callable[[T], bool]
) -> tuple[list[T], int]:
    """Return the requested page of matching records, and the number of matches found so far."""
    count, offset = _ends(query)
    if count > COUNT_MAX or count + offset > LOOKED:
        raise InvalidRequest(
            f"count is at most {COUNT_MAX}, with offset {LOOKED}. Ask for fewer days with fromdate and todate.",
            param="count",
        )
    found, looked = list[T](), 0
    async for some in pages:
        looked += len(some)
        found += filter(fits, some)
        if len(found) > offset + count or looked >= LOOKED:
            break
    return found[offset : offset + count], len(found)


def cut(query: Mapping[str, str], records: Sequence[T]) -> Sequence[T]:
    """Return the requested page of an in-memory list."""
    count, offset = _ends(query)
    return records[offset : offset + count]


def _ends(query: Mapping[str, str]) -> tuple[int, int]:
    return _number(query, "count", COUNT_MAX), _number(query, "offset", 0)


def _number(query: Mapping[str, str], name: str, default: int) -> int:
    text = query.get(name, str(default))
    number = whole_number(text, 9)
    if number is None:
        raise InvalidRequest(f"{name} is a whole number, not {text[:80]!r}.", param=name)
    return number


def span(query: Mapping[str, str]) -> tuple[int, int]:
    """Return the exclusive time limits of the inclusive fromdate and todate: days or times, UTC by default."""
    after, before = -1, FOREVER
    if text := query.get("fromdate"):
        after = _time(text, "fromdate") - 1
    if text := query.get("todate"):
        before = _time(text, "todate") + (1 if "T" in text else DAY_MS)
    return after, before


def _time(text: str, name: str) -> int:
    whole = text if "T" in text else f"{text}T00:00:00"
    at = parse_timestamp(whole) or parse_timestamp(f"{whole}Z")
    if at is None:
        raise InvalidRequest(f"{name} is a day such as 2026-11-15, not {text[:80]!r}.", param=name)
    return at


def check_stream(name: str) -> None:
    if name != STREAM:
        told = f"There is no message stream {name[:80]!r}. The only one is {STREAM}."
        raise InvalidRequest(told, param="MessageStream", details={"code": NO_STREAM})
