"""The suppression list over HTTP."""

from heliograph.accept.suppression import (
    REASONS,
    SuppressionRequest,
    add_suppression,
    delete_suppression,
    find_suppression,
    to_record,
)
from heliograph.api.bodies import to_request
from heliograph.api.reading import page, read_limit
from heliograph.api.route import Call, answer
from heliograph.rules.address import parse_address
from heliograph.rules.refusals import InvalidRequest
from heliograph.web.request import Response


async def delete(call: Call) -> Response:
    call.query()
    return answer(await delete_suppression(call.context, call.caller, call.params["email"]))


async def read(call: Call) -> Response:
    call.query()
    return answer(await find_suppression(call.context, call.caller, call.params["email"]))


async def create(call: Call) -> Response:
    call.query()
    request = to_request(call.json, SuppressionRequest)
    if request.reason is not None and request.reason not in REASONS:
        raise InvalidRequest(f"reason is one of {', '.join(REASONS)}.", param="reason")
    return answer(await add_suppression(call.context, call.caller, request), 201)


async def list_all(call: Call) -> Response:
    query = call.query()
    limit, after = read_limit(query), query.get("after")
    address = parse_address(after) if after else None
    if after is not None and address is None:
        raise InvalidRequest("after is the email address that the page before ended with.", param="after")
    rows = await call.context.store.suppressions.page(call.team, address.normal if address else None, limit)
    return page([to_record(row) for row in rows], limit)
