"""The events that webhooks are sent: their types, who hears them, and the body of one (contract 10)."""

from collections.abc import Mapping
from functools import cache
from typing import Any

import msgspec

from heliograph.domain.delivery.message_states import STATES, UNSHOWN
from heliograph.domain.ids import timestamp
from heliograph.domain.setup.records import Channel, Team

_UNTOLD = "queued"

DELAYED = "email.delayed"  # no state: told once of an email that waits
TEST = "webhook.test"  # made for one webhook: no other is told
TYPES: tuple[str, ...] = (
    *(f"{channel}.{state}" for channel, states in STATES.items() for state in states if state != _UNTOLD),
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
    "domain.verified",
    "domain.failed",
    "template.status_changed",
    "credit.low",
    "batch.done",
    TEST,
)
SCHEDULED = "email.scheduled"  # in formats that have it, and nowhere else: the send's answer has said it (contract 10)
# What can be subscribed to.
NAMES: tuple[str, ...] = ("*", *dict.fromkeys(f"{name.partition('.')[0]}.*" for name in TYPES), *TYPES)

# Events grouped by what they are about, in the order of TYPES.
GROUPS: dict[str, tuple[str, ...]] = {
    group: tuple(name for name in TYPES if name.startswith(f"{group}."))
    for group in dict.fromkeys(name.partition(".")[0] for name in TYPES)
}

SIMULATED = "simulated"  # in the detail of what a simulator said
NEXT_AT = "next_attempt_at"  # in that of a try that was put off: when the next one is
DELAY = "delay"  # in that of `email.delayed`: since when, and until when
EXPIRED = "expired"  # in that of the last try: there is no time left for another
BOUNCE_SUPPRESSED = "suppressed"  # false in that of a bounce whose address is not suppressed
BODY_MAX = 20_000  # bytes; what was received may have 256 KiB, and is made to fit (contract 17)
DETAIL_MAX = 4096  # bytes of a carrier's words
_LONG = ("to_addresses", "cc")  # of which only the first is told where the body is too large without headers, too
# Which field tells a carrier's words, by the state that they led to.
_WORDS = {"bounced": "bounce", "failed": "error"}


class StoredEvent(msgspec.Struct, frozen=True):
    """A published event as the store keeps it, with the message that it is about."""

    id: str
    type: str
    sequence: int | None  # None: in no feed
    created_at: int
    recipient: str | None
    status: str | None
    previous_status: str | None
    message_status: str | None
    detail: str | None  # a message's: the carrier's words; else: the data
    record: str | None  # the message's answer to its sender
    sandbox: int | None  # the message's
    kind: str | None  # of the recipient: to, cc, bcc
    trace: str | None = None  # the message's traceparent, where it is needed
    callback: str | None = None  # the message's own address for its events, where it is needed
    explanation: dict[str, Any] | None = None  # of bad news, in words: `texts/explain.py` adds it


def marked(detail: dict[str, Any]) -> dict[str, Any]:
    """Return what a simulator said, marked so that nobody takes it for the world's word."""
    return {**detail, SIMULATED: True}


def is_simulated(detail: str | None) -> bool:
    return detail is not None and SIMULATED in detail and msgspec.json.decode(detail).get(SIMULATED) is True


def is_hard(status: str | None, bounce: Mapping[str, Any]) -> bool:
    """Return whether it is a hard bounce: one whose address is suppressed."""
    return status == "bounced" and bounce.get(BOUNCE_SUPPRESSED) is not False


@cache
def event_type(channel: Channel, status: str) -> str:
    name = f"{channel}.{status}"
    if name not in TYPES:
        raise ValueError(f"{name} is no event")
    return name


def scheduled_data(record: str, recipient: str, kind: str) -> str:
    """Return what is told of a mail that waits for its time,
    to one of its recipients: its record, without blind copies.
    """
    own: dict[str, Any] = msgspec.json.decode(record)
    to = {"recipient": None if kind == "bcc" else recipient, "recipient_kind": kind}
    return msgspec.json.encode(own | {"status": _UNTOLD, "bcc": [], **to}).decode()


def event_data(event: StoredEvent) -> dict[str, Any]:
    """Return what it is about, as every format tells it: the
    message with what became of one recipient, or another record.
    """
    if not event.record:
        return msgspec.json.decode(event.detail or "{}", type=dict[str, Any])
    record: dict[str, Any] = msgspec.json.decode(event.record)
    own = record | {
        "status": event.status,
        "message_status": event.message_status,
        "previous_status": event.previous_status,
        # A blind copy stays blind, also when its own state is sent (reliability, threats).
        "recipient": None if event.kind == "bcc" else event.recipient,
        "recipient_kind": event.kind,
    }
    if "bcc" in own:
        own["bcc"] = []
    if event.detail and len(event.detail) <= DETAIL_MAX and event.status in _WORDS:
        own[_WORDS[event.status]] = words = msgspec.json.decode(event.detail)
        if "reason" in words:  # ours, such as `canceled`: under the name that reads give it, too (contract 16)
            own["detail"] = words
    if event.type == DELAYED and event.detail:
        own[DELAY] = msgspec.json.decode(event.detail)[DELAY]
    if event.explanation:
        own["explanation"] = event.explanation
    return own


def event_body(event: StoredEvent, team: Team) -> bytes:
    """Return the body that is signed and sent: the same bytes whenever it is asked for."""
    own = event_data(event)
    for name in UNSHOWN:
        own.pop(name, None)
    sandbox = bool(event.sandbox) if event.sandbox is not None else own.get("sandbox", team.sandbox)
    whole = {
        "id": event.id,
        "type": event.type,
        "created_at": timestamp(event.created_at),
        "team_id": team.record.id,
        "sandbox": sandbox,
        "sequence": event.sequence,
        "data": own,
    }
    body = msgspec.json.encode(whole)
    if own.get("object") == "received":
        return body
    if len(body) > BODY_MAX:
        own.pop("headers", None)
        body = msgspec.json.encode(whole)
    if len(body) > BODY_MAX:
        own |= {name: own[name][:1] for name in _LONG if name in own}
        body = msgspec.json.encode(whole)
    return body
