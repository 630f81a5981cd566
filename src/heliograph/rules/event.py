"""The events that webhooks are told: their types and the record of one (contract 10)."""

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


def event_type(channel: Channel, status: str) -> str:
    name = f"{channel}.{status}"
    if name not in TYPES:
        raise ValueError(f"{name} is no event")
    return name
