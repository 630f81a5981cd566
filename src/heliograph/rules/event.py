"""The events that webhooks are told: their types and the record of one (contract 10)."""

from typing import Any

import msgspec

from heliograph.rules.message import STATES
from heliograph.rules.team import Channel

_UNTOLD = "queued"

TYPES: tuple[str, ...] = (
    *(f"{channel}.{state}" for channel, states in STATES.items() for state in states if state != _UNTOLD),
    "verification.verified",
    "verification.failed",
    "verification.exhausted",
    "suppression.created",
    "suppression.deleted",
    "domain.verified",
    "domain.failed",
    "credit.low",
    "webhook.test",
)


class Event(msgspec.Struct, frozen=True, kw_only=True):
    """A change of one recipient's state."""

    id: str
    type: str
    status: str
    previous_status: str
    message_status: str
    recipient: str
    sequence: int  # counts the message's events from 1
    created_at: int
    detail: dict[str, Any] | None = None


def event_type(channel: Channel, status: str) -> str:
    name = f"{channel}.{status}"
    if name not in TYPES:
        raise ValueError(f"{name} is no event")
    return name
