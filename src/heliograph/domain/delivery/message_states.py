"""State machine of a message: one transition table per channel (spec 3.1, contract 6).

The machine runs once per recipient. A report that skips states passes through every state in between, in
order, so that each state is published: WhatsApp's `sent → read` becomes `delivered`, then `read`. Reports without
a path in the table (duplicates, steps back) are ignored.
"""

from collections.abc import Sequence
from functools import cache

from heliograph.domain.setup.records import Channel

HIDDEN_FIELDS = ("sender_id", "origin", "named")  # record fields shown only by compatibility APIs

_NO_TRANSITIONS: frozenset[str] = frozenset()

TRANSITIONS: dict[Channel, dict[str, frozenset[str]]] = {
    "email": {
        "queued": frozenset({"sending", "failed"}),
        "sending": frozenset({"sent", "bounced", "failed"}),
        "sent": frozenset({"delivered", "bounced", "failed"}),
        "delivered": frozenset({"complained", "bounced", "failed"}),  # bounces and complaints can follow a delivery
        "bounced": _NO_TRANSITIONS,
        "complained": _NO_TRANSITIONS,
        "failed": _NO_TRANSITIONS,
    },
    "sms": {
        "queued": frozenset({"sending", "failed"}),
        "sending": frozenset({"sent", "failed"}),
        "sent": frozenset({"delivered", "failed"}),
        "delivered": _NO_TRANSITIONS,
        "failed": frozenset({"delivered"}),  # a late delivery receipt corrects the failure, at most once
    },
    "whatsapp": {
        "queued": frozenset({"sending", "failed"}),
        "sending": frozenset({"sent", "failed"}),
        "sent": frozenset({"delivered", "failed"}),
        "delivered": frozenset({"read"}),
        "read": _NO_TRANSITIONS,
        "failed": frozenset({"delivered"}),  # a late delivery receipt corrects the failure, at most once
    },
}

STATES_BY_CHANNEL: dict[Channel, tuple[str, ...]] = {
    channel: tuple(transitions) for channel, transitions in TRANSITIONS.items()
}

FINAL_STATES = frozenset({"delivered", "bounced", "complained", "read", "failed"})

# A message's status is the first state in this list that any of its recipients has.
_STATES_IN_DERIVING_ORDER = ("queued", "sending", "sent", "complained", "read", "delivered", "bounced", "failed")

# A message's status only moves to the right: a late receipt replaces `failed`, a late bounce replaces `delivered`.
_PHONE_PROGRESS = ("queued", "sending", "sent", "failed", "delivered", "read")
_PROGRESS_BY_CHANNEL: dict[Channel, tuple[str, ...]] = {
    "email": ("queued", "sending", "sent", "delivered", "failed", "bounced", "complained"),
    "sms": _PHONE_PROGRESS,
    "whatsapp": _PHONE_PROGRESS,
}


def _paths(transitions: dict[str, frozenset[str]]) -> dict[tuple[str, str], tuple[str, ...]]:
    """Return the shortest path between every two states; `failed` is never an intermediate state."""
    paths: dict[tuple[str, str], tuple[str, ...]] = {}
    for start in transitions:
        queue: list[tuple[str, ...]] = [(state,) for state in sorted(transitions[start])]
        for path in queue:  # the list grows during iteration: breadth-first search
            end = path[-1]
            if end != start and (start, end) not in paths:
                paths[start, end] = path
                queue += [(*path, state) for state in sorted(transitions[end]) if end != "failed"]
    return paths


_PATHS = {channel: _paths(transitions) for channel, transitions in TRANSITIONS.items()}


def transition_path(
    channel: Channel, current: str, reported: str, *, late_receipt_used: bool = False
) -> tuple[str, ...]:
    """Return the states to pass through and publish, in order; empty if the report is ignored."""
    if current == "failed" and late_receipt_used:
        return ()
    return _PATHS[channel].get((current, reported), ())


def combine_part_statuses(statuses: Sequence[str | None]) -> str | None:
    """Return the status of a multipart message from its parts' receipts; None until all parts have a receipt."""
    if "failed" in statuses:
        return "failed"
    return "delivered" if all(status == "delivered" for status in statuses) else None


def is_final(status: str) -> bool:
    """Return whether the status is final, although a later report may still correct it."""
    return status in FINAL_STATES


@cache
def derive_message_status(channel: Channel, statuses: frozenset[str]) -> str:
    """Derive the message's status from the statuses of its recipients."""
    if not statuses or not statuses <= TRANSITIONS[channel].keys():
        raise ValueError(f"no {channel} status follows from {sorted(statuses)}")
    return next(state for state in _STATES_IN_DERIVING_ORDER if state in statuses)


@cache
def furthest_status(channel: Channel, current: str, derived: str) -> str:
    """Return whichever of the two message statuses is further along."""
    return max(current, derived, key=_PROGRESS_BY_CHANNEL[channel].index)
