"""Compatibility API for Resend, webhooks: endpoints that receive events in Resend's format, and their deliveries."""

from collections.abc import Iterable
from typing import Any

import msgspec

from heliograph.compat.call import Call
from heliograph.compat.normalize import parse_request
from heliograph.compat.resend.codec import ResendDeleted, cursor_params, list_response, paginate, slice_page
from heliograph.domain.events import SCHEDULED
from heliograph.domain.ids import timestamp
from heliograph.domain.refusals import InvalidRequest, WebhookNotFound
from heliograph.domain.setup.records import Webhook
from heliograph.web.request import Response
from heliograph.web.route import json_response
from heliograph.webhooks.policy.formats.formats import FORMATS, is_subscribed
from heliograph.webhooks.policy.formats.resend import RESEND_TYPE_BY_REASON, RESEND_TYPE_BY_TYPE
from heliograph.webhooks.service import DeliveryRecord, WebhookChange, WebhookRequest
from heliograph.webhooks.store import ReplaySelection

STATUS_BY_STATE = {"waiting": "pending", "delivered": "success", "exhausted": "failed"}
# Resend's event → our events. We report suppressed and cancelled mails as email.failed, with the reason. Our webhooks
# cannot subscribe to scheduled mails only; a client that does receives the next event of each mail, too.
EVENTS_BY_RESEND_EVENT = {
    **{
        resend_event: [event for event, name in RESEND_TYPE_BY_TYPE.items() if name == resend_event]
        for resend_event in RESEND_TYPE_BY_TYPE.values()
    },
    **{resend_event: ["email.failed"] for resend_event in RESEND_TYPE_BY_REASON.values()},
    SCHEDULED: ["email.sending"],
}


class ResendWebhook(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    endpoint: str
    events: list[str]


class ResendWebhookChange(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    webhook_id: str | None = None  # resend-python repeats the path's id here
    endpoint: str | None = None
    events: list[str] | None = None
    status: str | None = None


async def create(call: Call) -> Response:
    request = parse_request(ResendWebhook, call.json)
    new_webhook = WebhookRequest(url=request.endpoint, events=_own_events(request.events), format="resend")
    created = await call.management.webhooks.create(
        call.actor, call.team_id, new_webhook, _known_events(request.events)
    )
    return json_response({"object": "webhook", "id": created.webhook.id, "signing_secret": created.secret})


async def list_all(call: Call) -> Response:
    page, has_more = slice_page(call, call.caller.team.webhooks, lambda hook: hook.id)
    return json_response(list_response([_webhook_json(hook) for hook in page], has_more=has_more))


async def read(call: Call) -> Response:
    hook = call.management.webhooks.find(call.team_id, call.params["id"])
    # The secret is shown only at creation.
    return json_response({"object": "webhook", **_webhook_json(hook), "signing_secret": None})


async def change(call: Call) -> Response:
    request = parse_request(ResendWebhookChange, call.json)
    if request.status not in (None, "enabled", "disabled"):
        raise InvalidRequest("status must be enabled or disabled.", param="status")
    changes = WebhookChange(
        url=request.endpoint,
        events=_own_events(request.events) if request.events is not None else None,
        enabled=None if request.status is None else request.status == "enabled",
    )
    requested = _known_events(request.events or [])
    hook = await call.management.webhooks.change(call.actor, call.team_id, call.params["id"], changes, requested)
    return json_response({"object": "webhook", "id": hook.id})


async def delete(call: Call) -> Response:
    await call.management.webhooks.remove(call.actor, call.team_id, call.params["id"])
    return json_response(ResendDeleted(object="webhook", id=call.params["id"]))


async def rotate(call: Call) -> Response:
    created = await call.management.webhooks.rotate(call.actor, call.team_id, call.params["id"])
    return json_response({"object": "webhook", "id": created.webhook.id, "signing_secret": created.secret})


# -- deliveries ---------------------------------------------------------------------------------------------------


async def list_events(call: Call) -> Response:
    limit, after, before = cursor_params(call, "event")
    if before is not None:
        raise InvalidRequest("before: this list only supports after.", param="before")
    rows = await call.management.webhooks.deliveries(call.team_id, call.params["id"], after, limit)
    return json_response(list_response([_event_json(row) for row in rows[:limit]], has_more=len(rows) > limit))


async def read_event(call: Call) -> Response:
    delivery = await _find_delivery(call)
    event = await call.context.store.events.find(call.team, delivery.event_id)
    payload = FORMATS["resend"].body(event, call.caller.team) if event else b"null"
    body = {**_event_json(delivery), "next_attempt_at": delivery.next_attempt_at, "payload": msgspec.Raw(payload)}
    return json_response({"object": "webhook_event", **body})


async def list_attempts(call: Call) -> Response:
    attempts = [
        {
            "id": str(attempt.number),
            "http_status_code": attempt.status,
            "response": attempt.answer,
            "sent_at": attempt.at,
        }
        for attempt in (await _find_delivery(call)).attempts
    ]
    return json_response(paginate(call, attempts))


async def replay(call: Call) -> Response:
    event = (await _find_delivery(call)).event_id
    selection = ReplaySelection(event_ids=[event])
    await call.management.webhooks.replay(call.actor, call.team_id, call.params["id"], selection)
    return json_response({"object": "webhook_event", "id": event})


async def _find_delivery(call: Call) -> DeliveryRecord:
    """Return the delivery of the event in the path."""
    id_, event = call.params["id"], call.params["event"]
    # The list contains events with smaller ids than this, newest first, so it begins with the event in the path.
    rows = await call.management.webhooks.deliveries(call.team_id, id_, event + "!", 1)
    if not rows or rows[0].event_id != event:
        raise WebhookNotFound(f"The webhook has no delivery of event {event[:80]!r}.", param="event")
    return rows[0]


# -- records ------------------------------------------------------------------------------------------------------


def _known_events(names: Iterable[str]) -> list[str]:
    return [name for name in dict.fromkeys(names) if name in EVENTS_BY_RESEND_EVENT]


def _own_events(names: Iterable[str]) -> list[str]:
    """Convert names of Resend's events to ours, without events that never occur (opens); refuse if none is left."""
    events = [event for name in names for event in EVENTS_BY_RESEND_EVENT.get(name, [])]
    if not events:
        raise InvalidRequest(f"events: use at least one of {', '.join(EVENTS_BY_RESEND_EVENT)}.", param="events")
    return list(dict.fromkeys(events))


def _webhook_json(hook: Webhook) -> dict[str, Any]:
    return {
        "id": hook.id,
        "created_at": timestamp(hook.created_at),
        "status": "enabled" if hook.enabled else "disabled",
        "endpoint": hook.url,
        "events": list(
            hook.asked
            or dict.fromkeys(
                resend_event for event, resend_event in RESEND_TYPE_BY_TYPE.items() if is_subscribed(hook, event)
            )
        ),
    }


def _event_json(delivery: DeliveryRecord) -> dict[str, Any]:
    type_ = RESEND_TYPE_BY_TYPE.get(delivery.type, delivery.type)
    return {
        "id": delivery.event_id,
        "type": type_,
        "created_at": delivery.created_at,
        "status": STATUS_BY_STATE[delivery.state],
    }
