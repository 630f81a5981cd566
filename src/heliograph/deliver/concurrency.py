"""How many hand-overs of each queue are in work at once: no more than get a connection soon.

What waits in the outbox can still be ordered, called back and taken by another process; what is claimed cannot.
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
    def __init__(self, ring: Callable[[str], object]) -> None:
        """Make windows; `ring` tells a lane that there is room."""
        self._ring = ring
        self._size = {queue: min(WINDOW_FIRST, SLOTS[lane]) for queue, (lane, _) in QUEUES.items()}
        self._wary = dict.fromkeys(QUEUES, 0)  # so many in a row must not wait before its window is another's
        self._used: Counter[str] = Counter()
        self._full: set[str] = set()

    def room(self, lane: str) -> dict[Priority, int]:
        """Return how many may be claimed; what is seldom sent is not passed by what is less urgent and has grown."""
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
        """Note that one hand-over waited for a connection."""
        lane = QUEUES[queue][0]
        self._size[queue] = next_window(self._size[queue], SLOTS[lane], seconds)
        if seconds > SOON_S:
            self._wary[queue] = WINDOW_FIRST
        elif self._wary[queue]:
            self._wary[queue] -= 1
        if self._full:
            self._look(lane)

    def _look(self, lane: str) -> None:
        """Ring when one that was full has room, its own or that of a less urgent one which has grown."""
        free = {QUEUE_OF[lane, priority] for priority, left in self.room(lane).items() if left}
        if not self._full.isdisjoint(free):
            self._full -= free
            self._ring(lane)
