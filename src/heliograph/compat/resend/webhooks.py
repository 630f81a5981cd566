"""Resend's webhooks: endpoints that receive events in Resend's format, and their deliveries."""

from collections.abc import Iterable
from typing import Any

import msgspec

from heliograph.compat.call import Call
from heliograph.compat.normalize import given_as
from heliograph.compat.resend.codec import ResendDeleted, counted, cut, ends, listed
from heliograph.domain.events import SCHEDULED
from heliograph.domain.ids import timestamp
from heliograph.domain.refusals import InvalidRequest, WebhookNotFound
from heliograph.domain.setup.records import Webhook
from heliograph.web.request import Response
from heliograph.web.route import answer
from heliograph.webhooks.policy.formats.formats import FORMATS, hears
from heliograph.webhooks.policy.formats.resend import FAILED, TYPES
from heliograph.webhooks.service import DeliveryRecord, WebhookChange, WebhookRequest
from heliograph.webhooks.store import WantedEvents

STATES = {"waiting": "pending", "delivered": "success", "exhausted": "failed"}
# Resend's event → ours. Suppressed and canceled mails are email.failed events here, with that reason.
# We have no event for scheduled mails: a subscription to that event alone receives the next events of such mails.
OURS = {
    **{theirs: [own for own, name in TYPES.items() if name == theirs] for theirs in TYPES.values()},
    **{theirs: ["email.failed"] for theirs in FAILED.values()},
    SCHEDULED: ["email.sending"],
}


class ResendWebhook(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    endpoint: str
    events: list[str]


class ResendWebhookChange(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    webhook_id: str | None = None  # resend-python repeats the id of the path
    endpoint: str | None = None
    events: list[str] | None = None
    status: str | None = None


async def create(call: Call) -> Response:
    given = given_as(ResendWebhook, call.json)
    wanted = WebhookRequest(url=given.endpoint, events=_ours(given.events), format="resend")
    made = await call.management.webhooks.create(call.actor, _team(call), wanted, _known(given.events))
    return answer({"object": "webhook", "id": made.webhook.id, "signing_secret": made.secret})


async def list_all(call: Call) -> Response:
    newest_first = sorted(call.caller.team.webhooks, key=lambda hook: hook.id, reverse=True)
    found, more = cut(call, newest_first, lambda hook: hook.id)
    return answer(listed([_webhook(hook) for hook in found], has_more=more))


async def read(call: Call) -> Response:
    return answer({"object": "webhook", **_webhook(_own(call)), "signing_secret": None})  # shown only at creation


async def change(call: Call) -> Response:
    given = given_as(ResendWebhookChange, call.json)
    if given.status not in (None, "enabled", "disabled"):
        raise InvalidRequest("status is enabled or disabled.", param="status")
    wanted = WebhookChange(
        url=given.endpoint,
        events=_ours(given.events) if given.events is not None else None,
        enabled=None if given.status is None else given.status == "enabled",
    )
    asked = _known(given.events or [])
    hook = await call.management.webhooks.change(call.actor, _team(call), call.params["id"], wanted, asked)
    return answer({"object": "webhook", "id": hook.id})


async def delete(call: Call) -> Response:
    await call.management.webhooks.remove(call.actor, _team(call), call.params["id"])
    return answer(ResendDeleted(object="webhook", id=call.params["id"]))


async def rotate(call: Call) -> Response:
    made = await call.management.webhooks.rotate(call.actor, _team(call), call.params["id"])
    return answer({"object": "webhook", "id": made.webhook.id, "signing_secret": made.secret})


# -- deliveries ---------------------------------------------------------------------------------------------------


async def list_events(call: Call) -> Response:
    limit, after, before = ends(call, "event")
    if before is not None:
        raise InvalidRequest("before: this list is read with after only.", param="before")
    found = await call.management.webhooks.deliveries(_team(call), call.params["id"], after, limit)
    return answer(listed([_event(one) for one in found[:limit]], has_more=len(found) > limit))


async def read_event(call: Call) -> Response:
    found = await _delivery(call)
    told = await call.context.store.events.find(call.team, found.event_id)
    body = FORMATS["resend"].body(told, call.caller.team) if told else b"null"
    whole = {**_event(found), "next_attempt_at": found.next_attempt_at, "payload": msgspec.Raw(body)}
    return answer({"object": "webhook_event", **whole})


async def list_attempts(call: Call) -> Response:
    attempts = [
        {"id": str(one.number), "http_status_code": one.status, "response": one.answer, "sent_at": one.at}
        for one in (await _delivery(call)).attempts
    ]
    return answer(counted(call, attempts))


async def replay(call: Call) -> Response:
    event = (await _delivery(call)).event_id
    wanted = WantedEvents(event_ids=[event])
    await call.management.webhooks.replay(call.actor, _team(call), call.params["id"], wanted)
    return answer({"object": "webhook_event", "id": event})


async def _delivery(call: Call) -> DeliveryRecord:
    """Return the delivery of the event in the path: the newest delivery up to this event, if it is of this event."""
    id_, event = call.params["id"], call.params["event"]
    found = await call.management.webhooks.deliveries(_team(call), id_, event + "!", 1)
    if not found or found[0].event_id != event:
        raise WebhookNotFound(f"The webhook was told no event {event[:80]!r}.", param="event")
    return found[0]


# -- records ------------------------------------------------------------------------------------------------------


def _team(call: Call) -> str:
    return call.caller.team.record.id


def _own(call: Call) -> Webhook:
    return call.management.webhooks.find(_team(call), call.params["id"])


def _known(names: Iterable[str]) -> list[str]:
    return [name for name in dict.fromkeys(names) if name in OURS]


def _ours(names: Iterable[str]) -> list[str]:
    """Return our events for Resend's names, without events that we never send, such as opens.

    Raises InvalidRequest if no event remains.
    """
    found = [own for name in names for own in OURS.get(name, [])]
    if not found:
        raise InvalidRequest(f"events: this service tells {', '.join(OURS)}.", param="events")
    return list(dict.fromkeys(found))


def _webhook(hook: Webhook) -> dict[str, Any]:
    return {
        "id": hook.id,
        "created_at": timestamp(hook.created_at),
        "status": "enabled" if hook.enabled else "disabled",
        "endpoint": hook.url,
        "events": list(hook.asked or dict.fromkeys(theirs for own, theirs in TYPES.items() if hears(hook, own))),
    }


def _event(one: DeliveryRecord) -> dict[str, Any]:
    type_ = TYPES.get(one.type, one.type)
    return {"id": one.event_id, "type": type_, "created_at": one.created_at, "status": STATES[one.state]}
