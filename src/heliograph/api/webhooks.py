"""Endpoints for webhooks (contract 12); they require a key with the scope `manage`."""

from typing import Annotated

import msgspec

from heliograph.api.call import Call
from heliograph.domain.events import TEST
from heliograph.domain.field_docs import Deleted, Id, ObjectName, Records, describe
from heliograph.domain.ids import id_pattern
from heliograph.domain.refusals import InvalidRequest
from heliograph.web.bodies import to_request
from heliograph.web.paging import ListPage, page_response, read_after, read_limit, read_time
from heliograph.web.request import Response
from heliograph.web.route import QueryParam, json_response
from heliograph.webhooks.policy.webhook import WebhookRecord, to_new_record, to_record
from heliograph.webhooks.service import DeliveryRecord, WebhookChange, WebhookRequest
from heliograph.webhooks.store import ReplaySelection

EVENT_IDS_MAX = 1000
DELIVERIES_AFTER = QueryParam(
    "after", "The last `event_id` of the previous page.", {"type": "string", "pattern": id_pattern("event")}
)


class ReplayRequest(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Selects one event, a list of events, or a time range."""

    event_id: str | None = None
    event_ids: list[str] | None = None
    created_after: str | None = None
    created_before: str | None = None
    failed_only: bool | None = None


class WebhookList(ListPage, frozen=True, kw_only=True):
    data: Records[WebhookRecord]


class DeletedWebhook(msgspec.Struct, frozen=True, kw_only=True):
    object: ObjectName = "webhook"
    id: Id
    deleted: Deleted = True


class TestEvent(msgspec.Struct, frozen=True, kw_only=True):
    object: ObjectName = "event"
    id: Annotated[str, describe("Id of the event.", example="evt_01JCQ8Z6V3M2N7T0K4H9R5B1XA")]
    type: Annotated[str, describe("Type of the event.", fixed=True)] = TEST


class Replay(msgspec.Struct, frozen=True, kw_only=True):
    object: ObjectName = "replay"
    count: Annotated[int, describe("Number of events that are replayed.", example=1)]


class DeliveryList(ListPage, frozen=True, kw_only=True):
    data: Records[DeliveryRecord]


async def create(call: Call) -> Response:
    created = await call.management.webhooks.create(call.actor, call.team_id, to_request(call.json, WebhookRequest))
    return json_response(to_new_record(created.webhook, created.secret, call.context.clock.team_now(call.team)), 201)


async def list_all(call: Call) -> Response:
    query = call.query()
    limit, after = read_limit(query), read_after(query, "webhook")
    newest_first = sorted(call.caller.team.webhooks, key=lambda hook: hook.id, reverse=True)
    rows = [hook for hook in newest_first if after is None or hook.id < after]
    return page_response([to_record(hook, call.context.clock.team_now(call.team)) for hook in rows], limit)


async def read(call: Call) -> Response:
    hook = call.management.webhooks.find(call.team_id, call.params["id"])
    return json_response(to_record(hook, call.context.clock.team_now(call.team)))


async def change(call: Call) -> Response:
    changes = to_request(call.json, WebhookChange)
    hook = await call.management.webhooks.change(call.actor, call.team_id, call.params["id"], changes)
    return json_response(to_record(hook, call.context.clock.team_now(call.team)))


async def delete(call: Call) -> Response:
    await call.management.webhooks.remove(call.actor, call.team_id, call.params["id"])
    return json_response(DeletedWebhook(id=call.params["id"]))


async def rotate(call: Call) -> Response:
    created = await call.management.webhooks.rotate(call.actor, call.team_id, call.params["id"])
    return json_response(to_new_record(created.webhook, created.secret, call.context.clock.team_now(call.team)))


async def test(call: Call) -> Response:
    event = await call.management.webhooks.test(call.actor, call.team_id, call.params["id"])
    return json_response(TestEvent(id=event), 202)


async def replay(call: Call) -> Response:
    request = to_request(call.json, ReplayRequest)
    selection, param = _parse_selection(request), "event_ids" if request.event_id is None else "event_id"
    count = await call.management.webhooks.replay(call.actor, call.team_id, call.params["id"], selection, param)
    return json_response(Replay(count=count), 202)


async def list_deliveries(call: Call) -> Response:
    query = call.query()
    limit, after = read_limit(query), read_after(query, "event")
    deliveries = await call.management.webhooks.deliveries(call.team_id, call.params["id"], after, limit)
    return page_response(deliveries, limit)


def _parse_selection(request: ReplayRequest) -> ReplaySelection:
    time_fields = (request.created_after, request.created_before, request.failed_only)
    if [request.event_id is None, request.event_ids is None, time_fields == (None, None, None)].count(False) != 1:
        raise InvalidRequest("Give event_id, or event_ids, or created_after and created_before.", param="event_id")
    if request.event_id is not None:
        return ReplaySelection(event_ids=[request.event_id])
    if request.event_ids is None:
        start = read_time("created_after", request.created_after or "")
        end = read_time("created_before", request.created_before or "")
        if start > end:
            raise InvalidRequest("created_after is later than created_before. Swap them.", param="created_after")
        return ReplaySelection(created_after=start, created_before=end, failed_only=bool(request.failed_only))
    if not 1 <= len(request.event_ids) <= EVENT_IDS_MAX:
        raise InvalidRequest(f"event_ids must be a list of 1 to {EVENT_IDS_MAX} ids.", param="event_ids")
    return ReplaySelection(event_ids=list(dict.fromkeys(request.event_ids)))
