"""The pull feed: every published event of the team, oldest first, as its webhooks receive it."""

from typing import Annotated, Any

import msgspec

from heliograph.api.call import Call
from heliograph.rules.field_docs import CreatedAt, HasMore, Id, ObjectName, Records, Sandbox, says, such_as
from heliograph.rules.webhooks.event import TYPES, event_body
from heliograph.web.paging import page, read_after, read_limit
from heliograph.web.reading import work
from heliograph.web.request import Response
from heliograph.words.explain import explained


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
    query = call.query()
    limit = read_limit(query)
    told = await call.context.store.events.feed(call.team, read_after(query, "event") or "", limit)
    octets = sum(len(event.detail or "") + len(event.record or "") for event in told)
    await call.hold(octets)

    def show() -> Response:
        return page([msgspec.Raw(event_body(explained(event), call.caller.team)) for event in told], limit)

    return await work(octets, show)
