"""Lanes of the outbox: each lane has its own slots, so that a slow channel never blocks another (reliability, choices).

A lane has one queue per priority; outbox rows store the queue name.
"""

from collections.abc import Container, Mapping
from typing import get_args

from heliograph.domain.setup.records import Channel, Priority

LANE: dict[Channel, str] = {"email": "email", "sms": "phone", "whatsapp": "phone"}

WEBHOOKS = "webhooks"  # work kind, not a lane: webhook deliveries
SETUP = "setup"  # work kind, not a lane: the setup changed and all processes must reload it
# Work kind, not a lane: a simulator delivered a message, and a client of any process may be waiting for it.
INBOX = "inbox"

SLOTS: dict[str, int] = {"email": 200, "phone": 200}  # concurrent sends per queue in one process
WINDOW_FIRST = 20  # initial concurrency limit, at most the number of slots
WINDOW_LEAST = 4
SOON_S = 0.25  # claimed messages should get a connection within this time; otherwise fewer are claimed

PRIORITIES: tuple[Priority, ...] = get_args(Priority)
_ROUND = 20
# Priority served first at this position of a round; "critical" at all others.
_FIRST: dict[int, Priority] = {9: "normal", 19: "bulk"}


def queue_of(lane: str, priority: Priority) -> str:
    return lane if priority == "normal" else f"{lane}.{priority}"


QUEUE_OF = {(lane, priority): queue_of(lane, priority) for lane in SLOTS for priority in PRIORITIES}
QUEUES: dict[str, tuple[str, Priority]] = {queue_of(lane, p): (lane, p) for lane in SLOTS for p in PRIORITIES}


def next_window(window: int, slots: int, waited_s: float) -> int:
    """Return the concurrency limit of a queue after a send that waited `waited_s` seconds for a connection."""
    return max(window - 1, min(WINDOW_LEAST, slots)) if waited_s > SOON_S else min(window + 1, slots)


def whose_turn(number: int, waiting: Container[Priority]) -> Priority | None:
    """Return the most urgent waiting priority, but give each waiting priority one turn in 20 (contract 16)."""
    wish: tuple[Priority, ...] = (_FIRST.get(number % _ROUND, "critical"), *PRIORITIES)
    return next((priority for priority in wish if priority in waiting), None)


def take_turns(turn: int, most: int, waiting: Mapping[Priority, int]) -> list[Priority]:
    """Return the priorities of the next `most` sends, in order."""
    left, order = {priority: count for priority, count in waiting.items() if count}, list[Priority]()
    if len(left) == 1:  # the usual case
        return [priority for priority, count in left.items() for _ in range(min(most, count))]
    for number in range(turn, turn + most):
        taken = whose_turn(number, left)
        if taken is None:
            break
        order.append(taken)
        left[taken] -= 1
        if not left[taken]:
            del left[taken]
    return order
