"""The event feed: the team's published events in the format of webhooks, oldest first by default."""

from typing import Annotated, Any

import msgspec

from heliograph.api.call import Call
from heliograph.domain.events import EVENT_TYPES, event_body
from heliograph.domain.field_docs import CreatedAt, Id, Records, Sandbox, describe, with_example
from heliograph.domain.refusals import InvalidRequest
from heliograph.domain.text import quoted
from heliograph.storage.events import UnknownEvent
from heliograph.texts.explain import with_explanation
from heliograph.web.paging import ListPage, page_response, read_after, read_limit
from heliograph.web.read_budget import run_large
from heliograph.web.request import Response
from heliograph.web.route import QueryParam

ORDERS = ("oldest", "newest")
ORDER = QueryParam(
    "order",
    "Sort order. `newest` returns the end of the feed and cannot be combined with `after`. To start with events from "
    "now on, pass the id of the first event returned by `newest` as `after`.",
    {"type": "string", "enum": list(ORDERS), "default": "oldest"},
)


class PublishedEvent(msgspec.Struct, frozen=True, kw_only=True):
    id: Annotated[Id, with_example("evt_01JCQ8Z6V3M2N7T0K4H9R5B1XA")]
    type: Annotated[
        str,
        describe("What happened, for example `email.delivered`.", example="email.delivered", enum=list(EVENT_TYPES)),
    ]
    created_at: CreatedAt
    team_id: Annotated[str, describe("The team.", example="team_demo")]
    sandbox: Sandbox
    sequence: Annotated[int, describe("Number of the event within its message, starting at 1.", example=2)]
    data: Annotated[
        dict[str, Any],
        describe(
            "The changed record, with its new `status`.",
            example={
                "id": "eml_01JCQ8Z6V3M2N7T0K4H9R5B1XA",
                "recipient": "delivered@simulator.test",
                "status": "delivered",
                "previous_status": "sent",
            },
        ),
    ]


class PublishedEventList(ListPage, frozen=True, kw_only=True):
    data: Records[PublishedEvent]


async def list_all(call: Call) -> Response:
    query, store = call.query(), call.context.store
    limit, after, order = read_limit(query), read_after(query, "event"), query.get("order", "oldest")
    if order not in ORDERS:
        raise InvalidRequest(f"order must be {' or '.join(ORDERS)}, not {quoted(order)}.", param="order")
    if order == "newest":
        if after is not None:
            raise InvalidRequest("after can only be used with order oldest.", param="after")
        events = await store.events.feed_end(call.team, limit)
    else:
        try:
            events = await store.events.feed(call.team, after or "", limit)
        except UnknownEvent:
            text = f"No event {after}. Pass the id of an event that is still in this feed."
            raise InvalidRequest(text, param="after") from None
    octets = sum(len(event.detail or "") + len(event.record or "") for event in events)
    await call.reserve_memory(octets)

    def render() -> Response:
        return page_response(
            [msgspec.Raw(event_body(with_explanation(event), call.caller.team)) for event in events], limit
        )

    return await run_large(octets, render)
