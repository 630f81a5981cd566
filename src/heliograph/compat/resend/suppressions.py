"""Compatibility API for Resend, suppressions; the address is the id of a suppression."""

from collections.abc import Awaitable, Callable

import msgspec

from heliograph.compat.call import Call
from heliograph.compat.normalize import parse_request
from heliograph.compat.resend.codec import ResendDeleted, cursor_params, list_response
from heliograph.domain.ids import timestamp
from heliograph.domain.mail.address import parse_address
from heliograph.domain.mail.suppression_file import DEFAULT_REASON
from heliograph.domain.refusals import InvalidEmail, InvalidRequest, SuppressionNotFound
from heliograph.domain.text import quoted
from heliograph.manage import suppressions
from heliograph.storage.suppressions import Suppression
from heliograph.web.request import Response
from heliograph.web.route import json_response

BATCH_MAX = 100


class ResendSuppression(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    email: str


class ResendSuppressions(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    emails: list[str] | None = None
    ids: list[str] | None = None


async def add(call: Call) -> Response:
    request = parse_request(ResendSuppression, call.json)
    return json_response({"object": "suppression", "id": await _add(call, request.email)})


async def list_all(call: Call) -> Response:
    limit, after, before = cursor_params(call)
    if before is not None or "origin" in call.request.unchecked_query():
        raise InvalidRequest("before and origin: this list only supports limit and after.", param="before")
    rows = await suppressions.list_page(call.context.store, call.caller.team.record, after, limit)
    return json_response(list_response([_suppression_json(row) for row in rows[:limit]], has_more=len(rows) > limit))


async def read(call: Call) -> Response:
    row = await suppressions.find(call.context.store, call.caller.team.record, call.params["id"])
    return json_response({"object": "suppression", **_suppression_json(row)})


async def remove(call: Call) -> Response:
    await suppressions.remove(call.context.store, call.actor, call.caller.team.record, call.params["id"])
    return json_response(ResendDeleted(object="suppression", id=call.params["id"]))


async def add_several(call: Call) -> Response:
    async def suppress(email: str) -> dict[str, str]:
        return {"object": "suppression", "id": await _add(call, email)}

    return await _apply_to_each(call, suppress)


async def remove_several(call: Call) -> Response:
    async def unsuppress(email: str) -> ResendDeleted | None:
        try:
            await suppressions.remove(call.context.store, call.actor, call.caller.team.record, email)
        except SuppressionNotFound:
            return None
        return ResendDeleted(object="suppression", id=email)

    return await _apply_to_each(call, unsuppress)


async def _apply_to_each(call: Call, action: Callable[[str], Awaitable[object]]) -> Response:
    """Call `action` for each address in the body; no address may be invalid."""
    request = parse_request(ResendSuppressions, call.json)
    if (request.emails is None) == (request.ids is None):
        raise InvalidRequest("Send either emails or ids.", param="emails")
    emails = request.emails if request.emails is not None else request.ids or []
    if not 1 <= len(emails) <= BATCH_MAX:
        raise InvalidRequest(f"emails must be a list of 1 to {BATCH_MAX} addresses.", param="emails")
    for email in emails:
        if parse_address(email) is None:
            raise InvalidEmail(f"{quoted(email)} is not a valid email address.", param="emails")
    results = [await action(email) for email in dict.fromkeys(emails)]
    return json_response({"object": "list", "data": [result for result in results if result is not None]})


async def _add(call: Call, email: str) -> str:
    await suppressions.add(call.context.store, call.actor, call.caller.team.record, email, DEFAULT_REASON)
    return email


def _suppression_json(row: Suppression) -> dict[str, str | None]:
    return {
        "id": row.email,
        "email": row.email,
        "origin": row.reason,
        "source_id": row.source_message_id,
        "created_at": timestamp(row.created_at),
    }
