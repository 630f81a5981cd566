"""Compatibility API for Resend, logs: the team's requests, without bodies, which are not stored."""

from typing import Any

from heliograph.compat.call import Call
from heliograph.compat.resend.codec import cursor_params, list_response
from heliograph.domain.ids import timestamp
from heliograph.domain.refusals import InvalidRequest, NotFound
from heliograph.storage.requests import NEWEST, LoggedRequest
from heliograph.web.request import Response
from heliograph.web.route import json_response


async def list_all(call: Call) -> Response:
    limit, after, before = cursor_params(call, "request")
    if before is not None:
        raise InvalidRequest("before: this list only supports after.", param="before")
    rows = await call.context.store.requests.list_page(call.team, None, after or NEWEST, limit)
    return json_response(list_response([_request_json(row) for row in rows[:limit]], has_more=len(rows) > limit))


async def read(call: Call) -> Response:
    row = await call.context.store.requests.find(call.team, call.params["id"])
    if row is None:
        raise NotFound("The log has no request with this id.")
    return json_response({"object": "log", **_request_json(row), "request_body": None, "response_body": None})


def _request_json(row: LoggedRequest) -> dict[str, Any]:
    method, _, path = row.route.partition(" ")
    return {
        "id": row.id,
        "created_at": timestamp(row.at),
        "endpoint": path,
        "method": method,
        "response_status": row.status,
        "user_agent": None,
    }
