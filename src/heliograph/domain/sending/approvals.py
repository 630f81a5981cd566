"""Approval of messages: messages of a key with `approval: "required"` wait until a person decides (contract 20)."""

from typing import Any, Literal

import msgspec

from heliograph.domain.delivery.outcome import local_failure
from heliograph.domain.events import NEXT_AT
from heliograph.domain.ids import PREFIXES, timestamp

ApprovalStatus = Literal["pending", "approved", "rejected", "expired", "canceled"]

APPROVAL = "approval"  # `reason` of a message that waits for approval
WAITING_TEXT = "a person must release it before it is sent"
REJECTED_TEXT = "a person rejected it before it was sent"
NOT_RELEASED_TEXT = "nobody released it in time"


def approval_id(message_id: str) -> str:
    """Return the id of a message's approval, derived from the message's id."""
    return PREFIXES["approval"] + message_id.partition("_")[2]


def hold_detail(until: int) -> dict[str, Any]:
    """Return the `detail` of a recipient whose message waits for approval until the time `until`."""
    return local_failure("approval", WAITING_TEXT) | {NEXT_AT: timestamp(until)}


def held_data(message_id: str, channel: str, until: int) -> str:
    """Return, as JSON, the fields that the event `message.held` adds to the message's record."""
    fields = {
        "channel": channel,
        "approval_id": approval_id(message_id),
        "held": {"reason": APPROVAL, "until": timestamp(until)},
    }
    return msgspec.json.encode(fields).decode()
