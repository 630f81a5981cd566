"""The pull feed: every published event of the team, oldest first, as its webhooks are told it."""

from typing import Any

import msgspec

from heliograph.api.reading import page, read_after, read_limit
from heliograph.api.route import Call
from heliograph.rules.event import event_body
from heliograph.rules.ids import PREFIXES
from heliograph.web.request import Response


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
    limit = read_limit(query)
    told = await call.context.store.events.feed(call.team, read_after(query, PREFIXES["event"]) or "", limit)
    return page([msgspec.Raw(event_body(event, call.caller.team)) for event in told], limit)
