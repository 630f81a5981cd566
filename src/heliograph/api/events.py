"""The event feed for polling: all published events of the team, oldest first by default, in the format of webhooks."""

from typing import Annotated, Any

import msgspec

from heliograph.api.call import Call
from heliograph.domain.events import TYPES, event_body
from heliograph.domain.field_docs import CreatedAt, HasMore, Id, ObjectName, Records, Sandbox, says, such_as
from heliograph.domain.refusals import InvalidRequest
from heliograph.domain.text import quoted
from heliograph.storage.events import UnknownEvent
from heliograph.texts.explain import explained
from heliograph.web.paging import page, read_after, read_limit
from heliograph.web.read_budget import work
from heliograph.web.request import Response
from heliograph.web.route import Query

ORDERS = ("oldest", "newest")
ORDER = Query(
    "order",
    "Which come first. `newest` shows the end of the feed and takes no `after`: to begin with what happens from now on,"
    " pass the id of its first event as `after`.",
    {"type": "string", "enum": list(ORDERS), "default": "oldest"},
)


class PublishedEvent(msgspec.Struct, frozen=True, kw_only=True):
    id: Annotated[Id, such_as("evt_01JCQ8Z6V3M2N7T0K4H9R5B1XA")]
    type: Annotated[
        str, says("What happened, for example `email.delivered`.", example="email.delivered", enum=list(TYPES))
    ]
    created_at: CreatedAt
    team_id: Annotated[str, says("The team.", example="team_demo")]
    sandbox: Sandbox
    sequence: Annotated[int, says("Counts a message's events from 1.", example=2)]
    data: Annotated[
        dict[str, Any],
        says(
            "The record of what changed, with its new `status`.",
            example={
                "id": "eml_01JCQ8Z6V3M2N7T0K4H9R5B1XA",
                "recipient": "delivered@simulator.test",
                "status": "delivered",
                "previous_status": "sent",
            },
        ),
    ]


class PublishedEventList(msgspec.Struct, frozen=True, kw_only=True):
    object: ObjectName = "list"
    has_more: HasMore
    data: Records[PublishedEvent]


async def list_all(call: Call) -> Response:
    query, store = call.query(), call.context.store
    limit, after, order = read_limit(query), read_after(query, "event"), query.get("order", "oldest")
    if order not in ORDERS:
        raise InvalidRequest(f"order is {' or '.join(ORDERS)}, not {quoted(order)}.", param="order")
    if order == "newest":
        if after is not None:
            raise InvalidRequest("after goes with the order oldest only.", param="after")
        told = await store.events.feed_end(call.team, limit)
    else:
        try:
            told = await store.events.feed(call.team, after or "", limit)
        except UnknownEvent:
            text = f"No event {after}. Pass the id of an event of this feed that is kept."
            raise InvalidRequest(text, param="after") from None
    octets = sum(len(event.detail or "") + len(event.record or "") for event in told)
    await call.hold(octets)

    def show() -> Response:
        return page([msgspec.Raw(event_body(explained(event), call.caller.team)) for event in told], limit)

    return await work(octets, show)
