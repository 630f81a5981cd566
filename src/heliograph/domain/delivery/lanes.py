"""Lanes of the outbox: each has slots of its own, so a slow channel never takes another's (reliability, choices).

A lane has a queue for each priority; the outbox's rows bear its name.
"""

from collections.abc import Container, Mapping
from typing import get_args

from heliograph.domain.setup.records import Channel, Priority

LANE: dict[Channel, str] = {"email": "email", "sms": "phone", "whatsapp": "phone"}

WEBHOOKS = "webhooks"  # not a lane, but work of another kind
SETUP = "setup"  # nor this: it has changed, and all processes are to follow
INBOX = "inbox"  # nor this: a simulator delivered something in a sandbox team, and somebody may wait for it anywhere

SLOTS: dict[str, int] = {"email": 200, "phone": 200}  # hand-overs at once of each queue, in one process
WINDOW_FIRST = 20  # of these slots: as many as are used at first
WINDOW_LEAST = 4
SOON_S = 0.25  # what is claimed gets a connection within this time, or less is claimed

PRIORITIES: tuple[Priority, ...] = get_args(Priority)
_ROUND = 20
_FIRST: dict[int, Priority] = {9: "normal", 19: "bulk"}  # whose turn comes first; all others are critical's


def queue_of(lane: str, priority: Priority) -> str:
    return lane if priority == "normal" else f"{lane}.{priority}"


QUEUE_OF = {(lane, priority): queue_of(lane, priority) for lane in SLOTS for priority in PRIORITIES}
QUEUES: dict[str, tuple[str, Priority]] = {queue_of(lane, p): (lane, p) for lane in SLOTS for p in PRIORITIES}


def next_window(window: int, slots: int, waited_s: float) -> int:
    """Return how many hand-overs of a queue are in work at once,
    after one more of them waited so long for a connection.
    """
    return max(window - 1, min(WINDOW_LEAST, slots)) if waited_s > SOON_S else min(window + 1, slots)


def whose_turn(number: int, waiting: Container[Priority]) -> Priority | None:
    """Return the most urgent priority, but give each waiting priority one turn in 20 (contract 16)."""
    wish: tuple[Priority, ...] = (_FIRST.get(number % _ROUND, "critical"), *PRIORITIES)
    return next((priority for priority in wish if priority in waiting), None)


def take_turns(turn: int, most: int, waiting: Mapping[Priority, int]) -> list[Priority]:
    """Say to which priorities the next hand-overs belong."""
    left, order = {priority: count for priority, count in waiting.items() if count}, list[Priority]()
    if len(left) == 1:  # as nearly always
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
