"""Resend's suppressions; the id of a suppression is its address."""

from collections.abc import Awaitable, Callable

import msgspec

from heliograph.compat.call import Call
from heliograph.compat.normalize import given_as
from heliograph.compat.resend.codec import ResendDeleted, ends, listed
from heliograph.domain.ids import timestamp
from heliograph.domain.mail.address import parse_address
from heliograph.domain.mail.suppression_file import DEFAULT
from heliograph.domain.refusals import InvalidEmail, InvalidRequest, SuppressionNotFound
from heliograph.domain.text import quoted
from heliograph.manage import suppressions
from heliograph.storage.suppressions import Suppression
from heliograph.web.request import Response
from heliograph.web.route import answer

BATCH_MAX = 100


class ResendSuppression(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    email: str


class ResendSuppressions(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    emails: list[str] | None = None
    ids: list[str] | None = None


async def add(call: Call) -> Response:
    given = given_as(ResendSuppression, call.json)
    return answer({"object": "suppression", "id": await _add(call, given.email)})


async def list_all(call: Call) -> Response:
    limit, after, before = ends(call)
    if before is not None or "origin" in call.request.loose_query():
        raise InvalidRequest("This list is read with limit and after only, whatever the origin.", param="before")
    rows = await suppressions.page(call.context.store, call.caller.team.record, after, limit)
    return answer(listed([_line(row) for row in rows[:limit]], has_more=len(rows) > limit))


async def read(call: Call) -> Response:
    found = await suppressions.find(call.context.store, call.caller.team.record, call.params["id"])
    return answer({"object": "suppression", **_line(found)})


async def remove(call: Call) -> Response:
    await suppressions.remove(call.context.store, call.actor, call.caller.team.record, call.params["id"])
    return answer(ResendDeleted(object="suppression", id=call.params["id"]))


async def add_several(call: Call) -> Response:
    async def one(email: str) -> dict[str, str]:
        return {"object": "suppression", "id": await _add(call, email)}

    return await _each(call, one)


async def remove_several(call: Call) -> Response:
    async def one(email: str) -> ResendDeleted | None:
        try:
            await suppressions.remove(call.context.store, call.actor, call.caller.team.record, email)
        except SuppressionNotFound:
            return None
        return ResendDeleted(object="suppression", id=email)

    return await _each(call, one)


async def _each(call: Call, do: Callable[[str], Awaitable[object]]) -> Response:
    """Call `do` for each address in the body, after validating all addresses."""
    given = given_as(ResendSuppressions, call.json)
    if (given.emails is None) == (given.ids is None):
        raise InvalidRequest("Send either emails or ids.", param="emails")
    emails = given.emails if given.emails is not None else given.ids or []
    if not 1 <= len(emails) <= BATCH_MAX:
        raise InvalidRequest(f"emails is a list of 1 to {BATCH_MAX} addresses.", param="emails")
    for email in emails:
        if parse_address(email) is None:
            raise InvalidEmail(f"{quoted(email)} is not a valid email address.", param="emails")
    done = [await do(email) for email in dict.fromkeys(emails)]
    return answer({"object": "list", "data": [one for one in done if one is not None]})


async def _add(call: Call, email: str) -> str:
    await suppressions.add(call.context.store, call.actor, call.caller.team.record, email, DEFAULT)
    return email


def _line(found: Suppression) -> dict[str, str | None]:
    return {
        "id": found.email,
        "email": found.email,
        "origin": found.reason,
        "source_id": found.source_message_id,
        "created_at": timestamp(found.created_at),
    }
