"""Postmark's message streams (there is only one) and suppressions."""

from collections.abc import Awaitable, Callable, Mapping
from typing import Any

import msgspec

from heliograph.compat.call import Call
from heliograph.compat.normalize import given_as
from heliograph.compat.postmark.codec import STREAM, asked, check_stream, span
from heliograph.domain.ids import timestamp
from heliograph.domain.mail.address import parse_address
from heliograph.domain.mail.suppression_file import DEFAULT
from heliograph.domain.refusals import InvalidEmail, InvalidRequest, SuppressionNotFound
from heliograph.domain.text import quoted
from heliograph.manage import suppressions
from heliograph.storage.suppressions import START, End, SuppressionLine
from heliograph.web.request import Response
from heliograph.web.route import answer, answer_of
from heliograph.webhooks.policy.formats.postmark import REASONS, origin_of

CHANGE_MAX = 50
PAGE = 1_000
DUMP_MAX = 50_000
LINE_OCTETS = 200  # approximate bytes per item in a response


class PostmarkAddress(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, rename="pascal"):
    email_address: str


class PostmarkAddresses(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, rename="pascal"):
    suppressions: list[PostmarkAddress]


async def list_streams(call: Call) -> Response:
    return answer({"MessageStreams": [_stream(call)], "TotalCount": 1})


async def read_stream(call: Call) -> Response:
    check_stream(call.params["stream"])
    return answer(_stream(call))


def _stream(call: Call) -> dict[str, Any]:
    return {
        "ID": STREAM,
        "ServerID": call.team,
        "Name": "Transactional",
        "Description": "All that this team sends.",
        "MessageStreamType": "Transactional",
        "CreatedAt": None,
        "UpdatedAt": None,
        "ArchivedAt": None,
        "ExpectedPurgeDate": None,
        "SubscriptionManagementConfiguration": {"UnsubscribeHandlingType": "None"},
    }


async def dump(call: Call) -> Response:
    check_stream(call.params["stream"])
    query = asked(call)
    fits, text, end = _fits(query), query.get("emailaddress", "").lower(), START
    found, more = list[SuppressionLine](), True
    while more:
        page = await call.context.store.suppressions.search(call.team, text, end, PAGE)
        found += filter(fits, page.lines)
        if len(found) > DUMP_MAX:
            raise InvalidRequest(f"There are more than {DUMP_MAX}. Ask for fewer days with fromdate and todate.")
        end, more = page.end or End(0, ""), page.end is not None
    octets = LINE_OCTETS * len(found)
    await call.hold(octets)
    return await answer_of(octets, lambda: {"Suppressions": [_line(one) for one in found]})


async def add(call: Call) -> Response:
    async def one(email: str) -> str:
        await suppressions.add(call.context.store, call.actor, call.caller.team.record, email, DEFAULT)
        return "Suppressed"

    return await _each(call, one)


async def remove(call: Call) -> Response:
    async def one(email: str) -> str:
        if parse_address(email) is None:
            raise InvalidEmail(f"{quoted(email)} is not a valid email address.")
        try:
            await suppressions.remove(call.context.store, call.actor, call.caller.team.record, email)
        except SuppressionNotFound:  # Postmark also reports Deleted
            pass
        return "Deleted"

    return await _each(call, one)


async def _each(call: Call, do: Callable[[str], Awaitable[str]]) -> Response:
    check_stream(call.params["stream"])
    given = given_as(PostmarkAddresses, call.json).suppressions
    if len(given) > CHANGE_MAX:
        raise InvalidRequest(f"Suppressions has {len(given)}, {CHANGE_MAX} is the most.", param="Suppressions")
    return answer({"Suppressions": [await _changed(one.email_address, do) for one in given]})


async def _changed(email: str, do: Callable[[str], Awaitable[str]]) -> dict[str, Any]:
    try:
        return {"EmailAddress": email, "Status": await do(email), "Message": None}
    except (InvalidEmail, InvalidRequest) as refusal:
        return {"EmailAddress": email, "Status": "Failed", "Message": refusal.message}


def _fits(query: Mapping[str, str]) -> Callable[[SuppressionLine], bool]:
    after, before = span(query)
    names = {"suppressionreason": "SuppressionReason", "origin": "Origin", "emailaddress": "EmailAddress"}
    wanted = {theirs: query[name].lower() for name, theirs in names.items() if name in query}

    def fits(line: SuppressionLine) -> bool:
        told = _line(line) if wanted else {}
        in_time = after < line.created_at < before
        return in_time and all(told[name].lower() == text for name, text in wanted.items())

    return fits


def _line(line: SuppressionLine) -> dict[str, str]:
    return {
        "EmailAddress": line.shown,
        "SuppressionReason": REASONS[line.reason],
        "Origin": origin_of(line.reason),
        "CreatedAt": timestamp(line.created_at),
    }
