"""The pull feed: every published event of the team, oldest first, as its webhooks are told it."""

from typing import Any

import msgspec

from heliograph.api.reading import page, read_limit
from heliograph.api.request import Response
from heliograph.api.route import Call
from heliograph.rules.event import event_body
from heliograph.rules.ids import PREFIXES
from heliograph.rules.refusals import InvalidRequest


class PublishedEvent(msgspec.Struct, frozen=True, kw_only=True):
    id: str
    type: str
    created_at: str
    team_id: str
    sandbox: bool
    sequence: int
    data: dict[str, Any]


class PublishedEventList(msgspec.Struct, frozen=True, kw_only=True):
    object: str = "list"
    has_more: bool
    data: list[PublishedEvent]


async def list_all(call: Call) -> Response:
    query = call.query()
    limit, after = read_limit(query), query.get("after", "")
    if after and not after.startswith(PREFIXES["event"]):
        raise InvalidRequest(f"after is an id that begins with {PREFIXES['event']}.", param="after")
    told = await call.desk.store.feed(call.team, after, limit)
    return page([msgspec.Raw(event_body(event, call.caller.team)) for event in told], limit)
