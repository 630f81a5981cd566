"""Lanes of the outbox: each lane has its own concurrency limits, so that a slow channel never blocks another.

A lane has one queue per priority; outbox rows store the queue name.
"""

from collections.abc import Container, Mapping
from typing import get_args

from heliograph.domain.setup.records import Channel, Priority

LANE_BY_CHANNEL: dict[Channel, str] = {"email": "email", "sms": "phone", "whatsapp": "phone"}

# Queue of messages that wait for approval. It belongs to no lane, so no worker claims from it.
HELD_QUEUE = "approval"

WEBHOOKS = "webhooks"  # work kind, not a lane: webhook deliveries
SETUP = "setup"  # work kind, not a lane: the setup changed and all processes must reload it
# Work kind, not a lane: a simulator delivered a message, and a client of any process may be waiting for it.
INBOX = "inbox"

CONCURRENCY_MAX_BY_LANE: dict[str, int] = {
    "email": 200,
    "phone": 200,
}  # concurrent sends per queue and process
CONCURRENCY_START = 20  # initial concurrency limit of a queue
CONCURRENCY_MIN = 4
CONNECTION_WAIT_MAX_S = 0.25  # claimed messages should get a connection within this time; otherwise fewer are claimed

PRIORITIES: tuple[Priority, ...] = get_args(Priority)
_TURNS_PER_ROUND = 20
# Position in a round → priority served first at this position; at all other positions "critical" is first.
_PRIORITY_BY_TURN: dict[int, Priority] = {9: "normal", 19: "bulk"}


def queue_name(lane: str, priority: Priority) -> str:
    return lane if priority == "normal" else f"{lane}.{priority}"


QUEUE_BY_LANE_AND_PRIORITY = {
    (lane, priority): queue_name(lane, priority) for lane in CONCURRENCY_MAX_BY_LANE for priority in PRIORITIES
}
LANE_AND_PRIORITY_BY_QUEUE = {queue: lane_priority for lane_priority, queue in QUEUE_BY_LANE_AND_PRIORITY.items()}


def next_concurrency(concurrency: int, maximum: int, waited_s: float) -> int:
    """Return a queue's concurrency limit after a send that waited `waited_s` seconds for a connection."""
    if waited_s > CONNECTION_WAIT_MAX_S:
        return max(concurrency - 1, min(CONCURRENCY_MIN, maximum))
    return min(concurrency + 1, maximum)


def next_priority(turn: int, waiting: Container[Priority]) -> Priority | None:
    """Return the waiting priority to serve: usually the most urgent, each other in 1 of 20 turns (contract 16)."""
    preference: tuple[Priority, ...] = (_PRIORITY_BY_TURN.get(turn % _TURNS_PER_ROUND, "critical"), *PRIORITIES)
    return next((priority for priority in preference if priority in waiting), None)


def schedule_priorities(turn: int, limit: int, waiting: Mapping[Priority, int]) -> list[Priority]:
    """Return the priorities of up to `limit` next sends, in order."""
    remaining, order = {priority: count for priority, count in waiting.items() if count}, list[Priority]()
    if len(remaining) == 1:  # the usual case
        return [priority for priority, count in remaining.items() for _ in range(min(limit, count))]
    for number in range(turn, turn + limit):
        selected = next_priority(number, remaining)
        if selected is None:
            break
        order.append(selected)
        remaining[selected] -= 1
        if not remaining[selected]:
            del remaining[selected]
    return order
