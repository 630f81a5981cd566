"""Limits concurrent sends per queue, so that claimed messages get a connection soon.

Messages in the outbox can still be reordered, cancelled or claimed by another process; claimed messages cannot.
"""

from collections import Counter
from collections.abc import Callable

from heliograph.domain.delivery.lanes import (
    PRIORITIES,
    QUEUE_OF,
    QUEUES,
    SLOTS,
    SOON_S,
    WINDOW_FIRST,
    next_window,
)
from heliograph.domain.setup.records import Priority

LEAST_URGENT_FIRST = PRIORITIES[::-1]


class Windows:
    """Adaptive concurrency limit of each queue: grows while connections are free, shrinks while sends queue."""

    def __init__(self, ring: Callable[[str], object]) -> None:
        """`ring`: wakes a lane when one of its full queues has capacity again."""
        self._ring = ring
        self._size = {queue: min(WINDOW_FIRST, SLOTS[lane]) for queue, (lane, _) in QUEUES.items()}
        # Consecutive sends without queueing needed before a queue may use a larger window of a less urgent queue
        self._wary = dict.fromkeys(QUEUES, 0)
        self._used: Counter[str] = Counter()
        self._full: set[str] = set()

    def room(self, lane: str) -> dict[Priority, int]:
        """Return how many messages of each priority may be claimed.

        A rarely used queue may use the larger window of a less urgent queue of the same lane.
        """
        room, least = {}, 0
        for priority in LEAST_URGENT_FIRST:
            queue = QUEUE_OF[lane, priority]
            least = max(least, self._size[queue])
            room[priority] = max(0, (self._size[queue] if self._wary[queue] else least) - self._used[queue])
            if not room[priority]:
                self._full.add(queue)
        return room

    def enter(self, queue: str) -> None:
        self._used[queue] += 1

    def leave(self, queue: str) -> None:
        self._used[queue] -= 1
        if queue in self._full:
            self._look(QUEUES[queue][0])

    def waited(self, queue: str, seconds: float) -> None:
        """Adapt the window of `queue` to how long a send waited for a connection."""
        lane = QUEUES[queue][0]
        self._size[queue] = next_window(self._size[queue], SLOTS[lane], seconds)
        if seconds > SOON_S:
            self._wary[queue] = WINDOW_FIRST
        elif self._wary[queue]:
            self._wary[queue] -= 1
        if self._full:
            self._look(lane)

    def _look(self, lane: str) -> None:
        """Wake the lane if a full queue has capacity again, in its own window or that of a less urgent queue."""
        free = {QUEUE_OF[lane, priority] for priority, left in self.room(lane).items() if left}
        if not self._full.isdisjoint(free):
            self._full -= free
            self._ring(lane)
