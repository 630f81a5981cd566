"""Compatibility API for Postmark, message streams (there is only one) and suppressions."""

from collections.abc import Awaitable, Callable, Mapping
from typing import Any

import msgspec

from heliograph.compat.call import Call
from heliograph.compat.normalize import parse_request
from heliograph.compat.postmark.codec import STREAM, check_stream, read_query, time_range
from heliograph.domain.ids import timestamp
from heliograph.domain.mail.address import parse_address
from heliograph.domain.mail.suppression_file import DEFAULT_REASON
from heliograph.domain.refusals import InvalidEmail, InvalidRequest, SuppressionNotFound
from heliograph.domain.text import quoted
from heliograph.manage import suppressions
from heliograph.storage.suppressions import FIRST_PAGE, PageCursor, SuppressionRow
from heliograph.web.request import Response
from heliograph.web.route import json_response, large_json_response
from heliograph.webhooks.policy.formats.postmark import SUPPRESSION_REASON_BY_REASON, origin_of

CHANGE_MAX = 50  # maximum addresses per request
PAGE = 1_000  # suppressions per database query
DUMP_MAX = 50_000  # maximum suppressions in a response
ITEM_OCTETS = 200  # approximate bytes per item in a response


class PostmarkAddress(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, rename="pascal"):
    email_address: str


class PostmarkAddresses(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, rename="pascal"):
    suppressions: list[PostmarkAddress]


async def list_streams(call: Call) -> Response:
    return json_response({"MessageStreams": [_stream(call)], "TotalCount": 1})


async def read_stream(call: Call) -> Response:
    check_stream(call.params["stream"])
    return json_response(_stream(call))


def _stream(call: Call) -> dict[str, Any]:
    return {
        "ID": STREAM,
        "ServerID": call.team,
        "Name": "Transactional",
        "Description": "All messages of this team.",
        "MessageStreamType": "Transactional",
        "CreatedAt": None,
        "UpdatedAt": None,
        "ArchivedAt": None,
        "ExpectedPurgeDate": None,
        "SubscriptionManagementConfiguration": {"UnsubscribeHandlingType": "None"},
    }


async def dump(call: Call) -> Response:
    check_stream(call.params["stream"])
    query = read_query(call)
    matches, text = _make_filter(query), query.get("emailaddress", "").lower()
    rows = list[SuppressionRow]()
    cursor: PageCursor | None = FIRST_PAGE
    while cursor:
        page = await call.context.store.suppressions.search(call.team, text, cursor, PAGE)
        rows += filter(matches, page.rows)
        if len(rows) > DUMP_MAX:
            raise InvalidRequest(
                f"There are more than {DUMP_MAX} suppressions. Narrow the time range with fromdate and todate."
            )
        cursor = page.next_cursor
    octets = ITEM_OCTETS * len(rows)
    await call.reserve_memory(octets)
    return await large_json_response(octets, lambda: {"Suppressions": [_to_item(row) for row in rows]})


async def add(call: Call) -> Response:
    async def suppress(email: str) -> str:
        await suppressions.add(call.context.store, call.actor, call.caller.team.record, email, DEFAULT_REASON)
        return "Suppressed"

    return await _apply_to_each(call, suppress)


async def remove(call: Call) -> Response:
    async def unsuppress(email: str) -> str:
        if parse_address(email) is None:
            raise InvalidEmail(f"{quoted(email)} is not a valid email address.")
        try:
            await suppressions.remove(call.context.store, call.actor, call.caller.team.record, email)
        except SuppressionNotFound:  # Postmark responds Deleted in this case too
            pass
        return "Deleted"

    return await _apply_to_each(call, unsuppress)


async def _apply_to_each(call: Call, action: Callable[[str], Awaitable[str]]) -> Response:
    check_stream(call.params["stream"])
    items = parse_request(PostmarkAddresses, call.json).suppressions
    if len(items) > CHANGE_MAX:
        raise InvalidRequest(
            f"Suppressions has {len(items)} entries; the maximum is {CHANGE_MAX}.", param="Suppressions"
        )
    return json_response({"Suppressions": [await _change_one(item.email_address, action) for item in items]})


async def _change_one(email: str, action: Callable[[str], Awaitable[str]]) -> dict[str, Any]:
    try:
        return {"EmailAddress": email, "Status": await action(email), "Message": None}
    except (InvalidEmail, InvalidRequest) as refusal:
        return {"EmailAddress": email, "Status": "Failed", "Message": refusal.message}


def _make_filter(query: Mapping[str, str]) -> Callable[[SuppressionRow], bool]:
    after, before = time_range(query)
    names = {"suppressionreason": "SuppressionReason", "origin": "Origin", "emailaddress": "EmailAddress"}
    filters = {field: query[name].lower() for name, field in names.items() if name in query}

    def matches(row: SuppressionRow) -> bool:
        fields = _to_item(row) if filters else {}
        return after < row.created_at < before and all(fields[name].lower() == text for name, text in filters.items())

    return matches


def _to_item(row: SuppressionRow) -> dict[str, str]:
    return {
        "EmailAddress": row.shown_address,
        "SuppressionReason": SUPPRESSION_REASON_BY_REASON[row.reason],
        "Origin": origin_of(row.reason),
        "CreatedAt": timestamp(row.created_at),
    }
