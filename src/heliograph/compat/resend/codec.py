"""Resend's API format: errors, lists, and request bodies with files as lists of numbers."""

import re
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import msgspec
import pybase64

from heliograph.compat.call import Call
from heliograph.compat.normalize import worded
from heliograph.domain import refusals as r
from heliograph.domain.delivery.content import File
from heliograph.domain.ids import timestamp, ulid_ms
from heliograph.domain.limits import JSON_VALUES_MAX
from heliograph.domain.refusals import InvalidRequest, Refusal
from heliograph.domain.text import whole_number
from heliograph.inbound.policy.inbound_mail import AttachmentRecord
from heliograph.web.bodies import parse_json
from heliograph.web.errors import error_headers
from heliograph.web.incremental_json import text_end
from heliograph.web.paging import PAGE_MAX, read_id, read_limit
from heliograph.web.request import Request, Response
from heliograph.web.status import status_of

T = TypeVar("T")

PREFIX = "/compat/resend"
FIELDS = {"template_id": "template.id", "variables": "template.variables", "url": "endpoint"}  # our name → Resend's
PIECE = 64 * 1024  # bytes of a list decoded at once: the decoder blocks other threads meanwhile

_ULID = re.compile("[0-7][0-9A-HJKMNP-TV-Z]{25}")
_FILES = (b'"content"', b'"data"')
_LIST = re.compile(rb"\s{0,1000}+:\s{0,1000}+\[")  # the beginning of a list value, after its key
_NUMBERS = re.compile(rb"[0-9,\s]*+")
_decode: Callable[[bytes], list[int]] = msgspec.json.Decoder(list[int]).decode

ERRORS: dict[type[Refusal], tuple[int, str]] = {
    r.MissingApiKey: (401, "missing_api_key"),
    r.InsufficientScope: (401, "restricted_api_key"),
    r.InvalidApiKey: (403, "invalid_api_key"),
    r.InvalidIdempotencyKey: (400, "invalid_idempotency_key"),
    r.IdempotencyKeyReused: (409, "invalid_idempotent_request"),
    r.IdempotencyRequestInProgress: (409, "concurrent_idempotent_requests"),
    r.InvalidFromAddress: (422, "invalid_from_address"),
    r.MissingBody: (422, "missing_required_field"),
    r.TooManyAttachments: (422, "invalid_attachment"),
    r.InvalidAttachment: (422, "invalid_attachment"),
    r.UnsupportedAttachmentType: (422, "invalid_attachment"),
    r.AttachmentTooLarge: (422, "invalid_attachment"),
    r.AttachmentsTooLarge: (422, "invalid_attachment"),
    r.SandboxFromLocked: (403, "validation_error"),
    r.DisplayNameIdNotFound: (403, "validation_error"),
    r.DisplayNameIdWrongDomain: (403, "validation_error"),
    r.DisplayNameIdNotApproved: (403, "validation_error"),
    r.DisplayNameNotApproved: (403, "validation_error"),
    r.SandboxLimitReached: (429, "daily_quota_exceeded"),
    r.StorageLimitReached: (429, "daily_quota_exceeded"),
    r.InsufficientCredit: (429, "monthly_quota_exceeded"),
}
# Other refusals, by our HTTP status.
OTHERS: dict[int, tuple[int, str]] = {
    403: (403, "validation_error"),
    404: (404, "not_found"),
    405: (405, "method_not_allowed"),
    429: (429, "rate_limit_exceeded"),
    500: (500, "internal_server_error"),
    503: (500, "internal_server_error"),
}
# Resend's calls that we do not support, and the reason.
DECLINED = {
    ("audiences", "contacts", "contact-properties", "segments", "topics", "broadcasts"): (
        "This service sends what somebody waits for: it keeps no lists of contacts and sends no broadcasts."
    ),
    ("automations", "events"): "This service runs no automations: your program decides what is sent when.",
    ("oauth", "usage"): "This service has no such accounts; GET /v1/me says what a key's team has used.",
    ("emails/share",): "Messages have no public pages here.",
    ("emails/metrics",): "Figures are in the dashboard: there is no such call.",
    ("inboxes",): "Received mail is read at GET /emails/receiving.",
    ("domains/claim",): "A domain belongs to the team whose records are in its DNS: add it and set them.",
}
_WHY = {path: why for paths, why in DECLINED.items() for path in paths}


class ResendDeleted(msgspec.Struct, frozen=True, kw_only=True):
    object: str
    id: str
    deleted: bool = True


def error(refusal: Refusal, request: Request, base_url: str) -> Response:
    """Return a refusal in Resend's error format, with our message."""
    own = status_of(type(refusal))
    status, name = ERRORS.get(type(refusal)) or OTHERS.get(own) or (422, "validation_error")
    message = worded(refusal, FIELDS)
    if own in (404, 405) and (why := _declined(request.path)):
        status, name, message = 404, "not_found", why
    if refusal.details and "index" in refusal.details:  # position in a batch
        message = f"[{refusal.details['index']}] {message}"
    body = msgspec.json.encode({"statusCode": status, "name": name, "message": message})
    return Response(status, body, error_headers(refusal))


def _declined(path: str) -> str | None:
    subject, *rest = path.removeprefix(f"{PREFIX}/").split("/")
    return next((_WHY[name] for name in (subject, *(f"{subject}/{part}" for part in rest)) if name in _WHY), None)


def parse(raw: bytes) -> Any:
    """Parse a request body.

    Clients send empty bodies for calls without input, and files as lists of numbers, which exceed our limit of JSON
    values and are therefore converted to base64 first.
    """
    return parse_json(_packed(raw)) if raw else {}


def _packed(raw: bytes) -> bytes:
    """Return the body with each file's list of octets as base64. Other values stay, and are refused later."""
    parts: list[bytes] = []
    done, start = 0, raw.find(b'"')
    for _ in range(2 * JSON_VALUES_MAX):  # a body with more values is refused anyway
        if start < 0:
            break
        end = text_end(raw, start)
        if raw[start:end] in _FILES and (found := _LIST.match(raw, end)):
            end = _numbers_end(raw, found.end())
            if raw[end : end + 1] == b"]" and (octets := _octets(raw[found.end() : end])) is not None:
                parts += raw[done : found.end() - 1], b'"%b"' % pybase64.b64encode(octets)
                done = end + 1
        start = raw.find(b'"', end)
    return b"".join((*parts, raw[done:]))


def _numbers_end(raw: bytes, at: int) -> int:
    while (end := _NUMBERS.match(raw, at, at + PIECE).end()) > at:  # type: ignore[union-attr]
        at = end
    return at


def _octets(numbers: bytes) -> bytes | None:
    """Return a comma-separated list of octets as bytes; None if it is invalid."""
    octets, at = bytearray(), 0
    while True:
        comma = numbers.find(b",", at + PIECE, at + 2 * PIECE)
        piece = numbers[at:comma] if comma > 0 else numbers[at : at + 2 * PIECE]
        try:
            read = _decode(b"[%b]" % piece)
            octets += bytes(read)
        except ValueError:
            return None
        if not read and (at or comma > 0):  # a comma without a number next to it
            return None
        if comma < 0:
            return bytes(octets) if at + len(piece) == len(numbers) else None
        at = comma + 1


def made_at(id_: str) -> str | None:
    """Return the creation time from a record's id; None if an operator chose the id."""
    body = id_.partition("_")[2]
    return timestamp(ulid_ms(body)) if _ULID.fullmatch(body) else None


class FileLink(msgspec.Struct, frozen=True, kw_only=True):
    download_url: str
    expires_at: str


def attachment(id_: str, file: File | AttachmentRecord, link: FileLink) -> dict[str, Any]:
    return {
        "id": id_,
        "filename": file.filename,
        "size": file.size,
        "content_type": file.content_type,
        "content_disposition": "inline" if file.content_id else "attachment",
        "content_id": file.content_id,
        **msgspec.structs.asdict(link),
    }


def listed(data: Sequence[Any], *, has_more: bool) -> dict[str, Any]:
    return {"object": "list", "has_more": has_more, "data": data}


def ends(call: Call, kind: str | None = None) -> tuple[int, str | None, str | None]:
    """Return limit, `after` id and `before` id from the query; ids must be of `kind` if given."""
    query = call.request.loose_query()
    given = {name: query[name] for name in ("after", "before") if query.get(name)}
    after, before = [read_id(given, name, kind) if kind else given.get(name) for name in ("after", "before")]
    if after is not None and before is not None:
        raise InvalidRequest("after and before cannot be used together.", param="before")
    return read_limit({"limit": str(PAGE_MAX), **query}), after, before


def cut(call: Call, records: Sequence[T], id_of: Callable[[T], str]) -> tuple[Sequence[T], bool]:
    """Return a page of an in-memory list, newest first, and whether more records follow.

    The ids in `after` and `before` need not exist.
    """
    limit, after, before = ends(call)
    records = [
        record
        for record in sorted(records, key=id_of, reverse=True)
        if not (after and id_of(record) >= after) and not (before and id_of(record) <= before)
    ]
    return (records[-limit:] if before else records[:limit]), len(records) > limit


def counted(call: Call, records: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Return the requested page of a short list, in the given order, whose ids are numbers."""
    limit, after, before = ends(call)
    for name, id_ in (("after", after), ("before", before)):
        if id_ is not None and whole_number(id_, 9) is None:
            raise InvalidRequest(f"{name} is an id of this list, not {id_[:80]!r}.", param=name)
    left = [
        one
        for one in records
        if not (after and int(one["id"]) <= int(after)) and not (before and int(one["id"]) >= int(before))
    ]
    return listed(left[-limit:] if before else left[:limit], has_more=len(left) > limit)
