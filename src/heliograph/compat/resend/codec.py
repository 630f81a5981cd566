"""Format of the compatibility API for Resend: errors, lists, and request bodies with files as lists of numbers."""

import re
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import msgspec
import pybase64

from heliograph.compat.call import Call
from heliograph.compat.normalize import with_client_field_names
from heliograph.domain import refusals as r
from heliograph.domain.ids import timestamp, ulid_ms
from heliograph.domain.limits import JSON_VALUES_MAX
from heliograph.domain.refusals import InvalidRequest, Refusal
from heliograph.domain.text import parse_int
from heliograph.web.bodies import parse_json
from heliograph.web.errors import error_headers
from heliograph.web.incremental_json import string_end
from heliograph.web.paging import PAGE_MAX, read_id, read_limit
from heliograph.web.request import Request, Response
from heliograph.web.status import status_of

T = TypeVar("T")

PREFIX = "/compat/resend"
# our field name → Resend's
CLIENT_FIELD_NAMES = {
    "template_id": "template.id",
    "variables": "template.variables",
    "url": "endpoint",
    "category": "topic_id",
}
CHUNK_BYTES = 64 * 1024  # bytes of a list decoded at once, because a decoder blocks other threads

_ULID = re.compile("[0-7][0-9A-HJKMNP-TV-Z]{25}")
_FILE_KEYS = (b'"content"', b'"data"')
_LIST_START = re.compile(rb"\s{0,1000}+:\s{0,1000}+\[")  # start of a list after its key
_NUMBERS = re.compile(rb"[0-9,\s]*+")
_decode: Callable[[bytes], list[int]] = msgspec.json.Decoder(list[int]).decode

ERROR_BY_REFUSAL: dict[type[Refusal], tuple[int, str]] = {
    r.MissingApiKey: (401, "missing_api_key"),
    r.InsufficientScope: (401, "restricted_api_key"),
    r.InvalidApiKey: (403, "invalid_api_key"),
    r.WrongCell: (421, "invalid_api_key"),
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
# our HTTP status → Resend's status and error name, for refusals that are not in ERROR_BY_REFUSAL
ERROR_BY_STATUS: dict[int, tuple[int, str]] = {
    403: (403, "validation_error"),
    404: (404, "not_found"),
    405: (405, "method_not_allowed"),
    429: (429, "rate_limit_exceeded"),
    500: (500, "internal_server_error"),
    503: (500, "internal_server_error"),
}
# unsupported calls → reason
UNSUPPORTED = {
    ("audiences", "contacts", "contact-properties", "segments", "topics", "broadcasts"): (
        "Contacts, segments, topics and broadcasts are not supported: this service sends transactional mail only."
    ),
    ("automations", "events"): "Automations are not supported: send messages from your own code.",
    ("oauth", "usage"): "Not supported here. GET /v1/me returns the usage of the key's team.",
    ("emails/share",): "Public message links are not supported.",
    ("emails/metrics",): "Not supported here. Statistics are in the dashboard.",
    ("inboxes",): "Not supported here. List inbound mail with GET /emails/receiving.",
    ("domains/claim",): "Claiming is not supported. Add the domain and set its DNS records to verify it.",
}
_REASON_BY_PATH = {path: reason for paths, reason in UNSUPPORTED.items() for path in paths}


class ResendDeleted(msgspec.Struct, frozen=True, kw_only=True):
    object: str
    id: str
    deleted: bool = True


def error(refusal: Refusal, request: Request, base_url: str) -> Response:
    """Return the response for a refusal, in Resend's error format with our message."""
    own_status = status_of(type(refusal))
    status, name = ERROR_BY_REFUSAL.get(type(refusal)) or ERROR_BY_STATUS.get(own_status) or (422, "validation_error")
    message = with_client_field_names(refusal, CLIENT_FIELD_NAMES)
    if own_status in (404, 405) and (reason := unsupported_reason(request.path)):
        status, name, message = 404, "not_found", reason
    if refusal.details and "index" in refusal.details:  # position in a batch
        message = f"[{refusal.details['index']}] {message}"
    body = msgspec.json.encode({"statusCode": status, "name": name, "message": message})
    return Response(status, body, error_headers(refusal))


def unsupported_reason(path: str) -> str | None:
    subject, *rest = path.removeprefix(f"{PREFIX}/").split("/")
    return next(
        (
            _REASON_BY_PATH[name]
            for name in (subject, *(f"{subject}/{part}" for part in rest))
            if name in _REASON_BY_PATH
        ),
        None,
    )


def parse(raw: bytes) -> Any:
    """Parse a request body.

    Calls without input may have an empty body. Clients send files as lists of numbers, which would exceed our limit of
    JSON values, so they are first converted to base64.
    """
    return parse_json(_file_lists_to_base64(raw)) if raw else {}


def _file_lists_to_base64(raw: bytes) -> bytes:
    """Convert each file's list of octets to base64. Invalid lists are left unchanged, and refused later."""
    parts: list[bytes] = []
    copied, start = 0, raw.find(b'"')
    for _ in range(2 * JSON_VALUES_MAX):  # a body with more values is refused later
        if start < 0:
            break
        end = string_end(raw, start)
        if raw[start:end] in _FILE_KEYS and (match := _LIST_START.match(raw, end)):
            end = _numbers_end(raw, match.end())
            if raw[end : end + 1] == b"]" and (octets := _parse_octets(raw[match.end() : end])) is not None:
                parts += raw[copied : match.end() - 1], b'"%b"' % pybase64.b64encode(octets)
                copied = end + 1
        start = raw.find(b'"', end)
    return b"".join((*parts, raw[copied:]))


def _numbers_end(raw: bytes, position: int) -> int:
    while (end := _NUMBERS.match(raw, position, position + CHUNK_BYTES).end()) > position:  # type: ignore[union-attr]
        position = end
    return position


def _parse_octets(numbers: bytes) -> bytes | None:
    """Return the octets in a comma-separated list; None if it is invalid."""
    octets, position = bytearray(), 0
    while True:
        comma = numbers.find(b",", position + CHUNK_BYTES, position + 2 * CHUNK_BYTES)
        chunk = numbers[position:comma] if comma > 0 else numbers[position : position + 2 * CHUNK_BYTES]
        try:
            values = _decode(b"[%b]" % chunk)
            octets += bytes(values)
        except ValueError:
            return None
        if not values and (position or comma > 0):  # a comma without a number beside it
            return None
        if comma < 0:
            return bytes(octets) if position + len(chunk) == len(numbers) else None
        position = comma + 1


def creation_time(id_: str) -> str | None:
    """Return the creation time that a record's id contains; None if an operator chose the id."""
    body = id_.partition("_")[2]
    return timestamp(ulid_ms(body)) if _ULID.fullmatch(body) else None


def list_response(data: Sequence[Any], *, has_more: bool) -> dict[str, Any]:
    return {"object": "list", "has_more": has_more, "data": data}


def cursor_params(call: Call, kind: str | None = None) -> tuple[int, str | None, str | None]:
    """Return limit, `after` and `before` from the query; with `kind`, both must be ids of this kind."""
    query = call.request.unchecked_query()
    cursors = {name: query[name] for name in ("after", "before") if query.get(name)}
    after, before = [read_id(cursors, name, kind) if kind else cursors.get(name) for name in ("after", "before")]
    if after is not None and before is not None:
        raise InvalidRequest("after and before cannot be used together.", param="before")
    return read_limit({"limit": str(PAGE_MAX), **query}), after, before


def slice_page(call: Call, records: Sequence[T], id_of: Callable[[T], str]) -> tuple[Sequence[T], bool]:
    """Return a page of an in-memory list, newest first, and whether there are more records.

    The ids in `after` and `before` need not exist.
    """
    limit, after, before = cursor_params(call)
    records = [
        record
        for record in sorted(records, key=id_of, reverse=True)
        if not (after and id_of(record) >= after) and not (before and id_of(record) <= before)
    ]
    return (records[-limit:] if before else records[:limit]), len(records) > limit


def paginate(call: Call, records: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Return the requested page of a list that is sorted by its numeric ids."""
    limit, after, before = cursor_params(call)
    for name, id_ in (("after", after), ("before", before)):
        if id_ is not None and parse_int(id_, 9) is None:
            raise InvalidRequest(f"{name} must be an id of this list, not {id_[:80]!r}.", param=name)
    remaining = [
        record
        for record in records
        if not (after and int(record["id"]) <= int(after)) and not (before and int(record["id"]) >= int(before))
    ]
    return list_response(remaining[-limit:] if before else remaining[:limit], has_more=len(remaining) > limit)
