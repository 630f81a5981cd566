"""How many hand-overs of each queue are in work at once: no more than get a connection soon.

What waits in the outbox can still be ordered, called back and taken by another process; what is claimed cannot.
"""

from collections import Counter
from collections.abc import Callable

from heliograph.rules.delivery.lanes import PRIORITIES, QUEUES, SLOTS, WINDOW_FIRST, next_window, queue_of
from heliograph.rules.setup.records import Priority


class Windows:
    def __init__(self, ring: Callable[[str], object]) -> None:
        """Make windows; `ring` tells a lane that there is room."""
        self._ring = ring
        self._size = {queue: min(WINDOW_FIRST, SLOTS[lane]) for queue, (lane, _) in QUEUES.items()}
        self._used: Counter[str] = Counter()
        self._full: set[str] = set()

    def room(self, lane: str) -> dict[Priority, int]:
        room = {}
        for priority in PRIORITIES:
            queue = queue_of(lane, priority)
            room[priority] = max(0, self._size[queue] - self._used[queue])
            if not room[priority]:
                self._full.add(queue)
        return room

    def enter(self, queue: str) -> None:
        self._used[queue] += 1

    def leave(self, queue: str) -> None:
        self._used[queue] -= 1
        if self._full:
            self._look(queue)

    def waited(self, queue: str, seconds: float) -> None:
        """Note that one hand-over waited for a connection."""
        self._size[queue] = next_window(self._size[queue], SLOTS[QUEUES[queue][0]], seconds)
        if self._full:
            self._look(queue)

    def _look(self, queue: str) -> None:
        if queue in self._full and self._used[queue] < self._size[queue]:
            self._full.discard(queue)
            self._ring(QUEUES[queue][0])
