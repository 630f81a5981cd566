"""Resend's logs: the team's requests, without bodies, which are not stored."""

from typing import Any

from heliograph.compat.call import Call
from heliograph.compat.resend.codec import ends, listed
from heliograph.domain.ids import timestamp
from heliograph.domain.refusals import InvalidRequest, NotFound
from heliograph.storage.requests import NEWEST, LoggedRequest
from heliograph.web.request import Response
from heliograph.web.route import answer


async def list_all(call: Call) -> Response:
    limit, after, before = ends(call, "request")
    if before is not None:
        raise InvalidRequest("before: this list is read with after only.", param="before")
    found = await call.context.store.requests.page(call.team, None, after or NEWEST, limit)
    return answer(listed([_line(one) for one in found[:limit]], has_more=len(found) > limit))


async def read(call: Call) -> Response:
    found = await call.context.store.requests.find(call.team, call.params["id"])
    if found is None:
        raise NotFound("There is no such request in the log.")
    return answer({"object": "log", **_line(found), "request_body": None, "response_body": None})


def _line(one: LoggedRequest) -> dict[str, Any]:
    method, _, path = one.route.partition(" ")
    return {
        "id": one.id,
        "created_at": timestamp(one.at),
        "endpoint": path,
        "method": method,
        "response_status": one.status,
        "user_agent": None,
    }
