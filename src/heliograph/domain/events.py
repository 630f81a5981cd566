"""Webhook events: their types, subscriptions and bodies (contract 10)."""

from collections.abc import Mapping
from functools import cache
from typing import Any

import msgspec

from heliograph.domain.delivery.message_states import HIDDEN_FIELDS, STATES_BY_CHANNEL
from heliograph.domain.event_data import RecipientChange
from heliograph.domain.ids import timestamp
from heliograph.domain.setup.records import Channel, Team

_UNPUBLISHED_STATE = "queued"

HELD = "message.held"  # event type: published once for a message that waits for approval
RELEASED = "released"  # event type: only in the timeline of a message that was released after its approval
DELAYED = "email.delayed"  # event type without a state: published once for an email that is delayed
TEST = "webhook.test"  # event type: created for one webhook and sent only to this webhook
EVENT_TYPES: tuple[str, ...] = (
    *(
        f"{channel}.{state}"
        for channel, states in STATES_BY_CHANNEL.items()
        for state in states
        if state != _UNPUBLISHED_STATE
    ),
    DELAYED,
    "email.received",
    "verification.verified",
    "verification.failed",
    "verification.exhausted",
    "suppression.created",
    "suppression.deleted",
    "sms.received",
    "whatsapp.received",
    "opt_out.created",
    "opt_out.deleted",
    "recipient.unsubscribed",
    "recipient.resubscribed",
    "domain.verified",
    "domain.failed",
    "template.status_changed",
    "credit.low",
    "batch.done",
    HELD,
    TEST,
)
# Published only in webhook formats of services that have such an event (contract 10).
SCHEDULED = "email.scheduled"
# Names to which a webhook can subscribe.
SUBSCRIPTION_NAMES: tuple[str, ...] = (
    "*",
    *dict.fromkeys(f"{name.partition('.')[0]}.*" for name in EVENT_TYPES),
    *EVENT_TYPES,
)

# Events grouped by subject, in the order of EVENT_TYPES.
TYPES_BY_GROUP: dict[str, tuple[str, ...]] = {
    group: tuple(name for name in EVENT_TYPES if name.startswith(f"{group}."))
    for group in dict.fromkeys(name.partition(".")[0] for name in EVENT_TYPES)
}

# Keys in the `detail` of timeline entries
SIMULATED = "simulated"  # true: a simulator reported the outcome
NEXT_AT = "next_attempt_at"  # deferred attempt: time of the next attempt
DELAY = "delay"  # `email.delayed`: start, next attempt and deadline
EXPIRED = "expired"  # last attempt: no time is left for another attempt
BOUNCE_SUPPRESSED = "suppressed"  # bounce: false if the address is not suppressed
BODY_MAX = 20_000  # bytes; inbound messages may have 256 KiB and are shortened separately (contract 17)
DETAIL_MAX = 4096  # bytes of a carrier's response
_TRUNCATED_FIELDS = ("to_addresses", "cc")  # truncated to the first item if the body is too large even without headers
# Event field with the carrier's response, by resulting state.
_RESPONSE_FIELD_BY_STATUS = {"bounced": "bounce", "failed": "error"}


class StoredEvent(msgspec.Struct, frozen=True):
    """A published event as stored, with the message that the event is about."""

    id: str
    type: str
    sequence: int | None  # position among the events of the message; None if the event is not published
    created_at: int
    recipient: str | None
    status: str | None
    previous_status: str | None
    message_status: str | None
    detail: str | None  # message events: the carrier's response as JSON; other events: the event data
    record: str | None  # the message's response record
    sandbox: int | None  # `sandbox` value of the message
    kind: str | None  # kind of recipient: to, cc, bcc
    trace: str | None = None  # traceparent of the message, if needed
    callback: str | None = None  # callback URL of the message, if needed
    explanation: dict[str, Any] | None = None  # plain-text explanation of a failure, added by `texts/explain.py`


def mark_simulated(detail: dict[str, Any]) -> dict[str, Any]:
    """Return the detail marked as simulated, so that it is not mistaken for a real report."""
    return {**detail, SIMULATED: True}


def is_simulated(detail: str | None) -> bool:
    return detail is not None and SIMULATED in detail and msgspec.json.decode(detail).get(SIMULATED) is True


def is_hard_bounce(status: str | None, bounce: Mapping[str, Any]) -> bool:
    """Return whether a bounce is hard, which means that its address is suppressed."""
    return status == "bounced" and bounce.get(BOUNCE_SUPPRESSED) is not False


@cache
def event_type(channel: Channel, status: str) -> str:
    name = f"{channel}.{status}"
    if name not in EVENT_TYPES:
        raise ValueError(f"{name} is no event")
    return name


def scheduled_data(record: str, recipient: str, kind: str) -> str:
    """Return the data of `email.scheduled` for one recipient: the message record without bcc."""
    data: dict[str, Any] = msgspec.json.decode(record)
    recipient_fields = {"recipient": None if kind == "bcc" else recipient, "recipient_kind": kind}
    return msgspec.json.encode(data | {"status": _UNPUBLISHED_STATE, "bcc": [], **recipient_fields}).decode()


def event_data(event: StoredEvent) -> dict[str, Any]:
    """Return the event's data, common to all formats: the message with one recipient's state, or another record."""
    if not event.record:
        return msgspec.json.decode(event.detail or "{}", type=dict[str, Any])
    record: dict[str, Any] = msgspec.json.decode(event.record)
    if event.type == HELD:
        hidden_fields: dict[str, Any] = {"bcc": []} if "bcc" in record else {}
        return record | hidden_fields | msgspec.json.decode(event.detail or "{}", type=dict[str, Any])
    change = RecipientChange(
        status=event.status,
        message_status=event.message_status,
        previous_status=event.previous_status,
        # A bcc address stays hidden, also in events about that recipient (docs/threats.md).
        recipient=None if event.kind == "bcc" else event.recipient,
        recipient_kind=event.kind,
    )
    data = record | msgspec.structs.asdict(change)
    if "bcc" in data:
        data["bcc"] = []
    if event.detail and len(event.detail) <= DETAIL_MAX and event.status in _RESPONSE_FIELD_BY_STATUS:
        data[_RESPONSE_FIELD_BY_STATUS[event.status]] = response = msgspec.json.decode(event.detail)
        # A reason set by this service, such as `canceled`, is also in the field `detail`, as in GET (contract 16).
        if "reason" in response:
            data["detail"] = response
    if event.type == DELAYED and event.detail:
        data[DELAY] = msgspec.json.decode(event.detail)[DELAY]
    if event.explanation:
        data["explanation"] = event.explanation
    return data


def event_body(event: StoredEvent, team: Team) -> bytes:
    """Return the event's body to sign and send. Its bytes are the same on every call."""
    data = event_data(event)
    for name in HIDDEN_FIELDS:
        data.pop(name, None)
    sandbox = bool(event.sandbox) if event.sandbox is not None else data.get("sandbox", team.sandbox)
    envelope = {
        "id": event.id,
        "type": event.type,
        "created_at": timestamp(event.created_at),
        "team_id": team.record.id,
        "sandbox": sandbox,
        "sequence": event.sequence,
        "data": data,
    }
    body = msgspec.json.encode(envelope)
    if data.get("object") == "received":
        return body
    if len(body) > BODY_MAX:
        data.pop("headers", None)
        body = msgspec.json.encode(envelope)
    if len(body) > BODY_MAX:
        data |= {name: data[name][:1] for name in _TRUNCATED_FIELDS if name in data}
        body = msgspec.json.encode(envelope)
    return body
