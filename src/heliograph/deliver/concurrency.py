"""Limits concurrent sends per queue, so that claimed messages get a connection soon.

Only messages that are not claimed yet can be reordered, cancelled, or sent by another process.
"""

from collections import Counter
from collections.abc import Callable

from heliograph.domain.delivery.lanes import (
    CONCURRENCY_MAX_BY_LANE,
    CONCURRENCY_START,
    CONNECTION_WAIT_MAX_S,
    LANE_AND_PRIORITY_BY_QUEUE,
    PRIORITIES,
    QUEUE_BY_LANE_AND_PRIORITY,
    next_concurrency,
)
from heliograph.domain.setup.records import Priority

LEAST_URGENT_FIRST = PRIORITIES[::-1]


class ConcurrencyLimiter:
    """Limits each queue's concurrent sends: more while connections are free, fewer while sends wait for one."""

    def __init__(self, wake_lane: Callable[[str], object]) -> None:
        """Create the limiter; `wake_lane` is called with a lane when one of its full queues has capacity again."""
        self._wake_lane = wake_lane
        self._limits = {
            queue: min(CONCURRENCY_START, CONCURRENCY_MAX_BY_LANE[lane])
            for queue, (lane, _) in LANE_AND_PRIORITY_BY_QUEUE.items()
        }
        # queue → consecutive sends without waiting that are needed before it may use another queue's larger limit
        self._cautious_sends = dict.fromkeys(LANE_AND_PRIORITY_BY_QUEUE, 0)
        self._in_flight: Counter[str] = Counter()
        self._full_queues: set[str] = set()

    def free_capacity(self, lane: str) -> dict[Priority, int]:
        """Return how many more messages of each priority may be claimed.

        A queue may use the larger limit of a less urgent queue of the same lane, unless its own sends recently had to
        wait.
        """
        free, shared_limit = {}, 0
        for priority in LEAST_URGENT_FIRST:
            queue = QUEUE_BY_LANE_AND_PRIORITY[lane, priority]
            shared_limit = max(shared_limit, self._limits[queue])
            free[priority] = max(
                0, (self._limits[queue] if self._cautious_sends[queue] else shared_limit) - self._in_flight[queue]
            )
            if not free[priority]:
                self._full_queues.add(queue)
        return free

    def count_started(self, queue: str) -> None:
        self._in_flight[queue] += 1

    def count_finished(self, queue: str) -> None:
        self._in_flight[queue] -= 1
        if queue in self._full_queues:
            self._wake_if_free(LANE_AND_PRIORITY_BY_QUEUE[queue][0])

    def adapt(self, queue: str, seconds: float) -> None:
        """Adapt the limit of `queue` to how long a send waited for a connection."""
        lane = LANE_AND_PRIORITY_BY_QUEUE[queue][0]
        self._limits[queue] = next_concurrency(self._limits[queue], CONCURRENCY_MAX_BY_LANE[lane], seconds)
        if seconds > CONNECTION_WAIT_MAX_S:
            self._cautious_sends[queue] = CONCURRENCY_START
        elif self._cautious_sends[queue]:
            self._cautious_sends[queue] -= 1
        if self._full_queues:
            self._wake_if_free(lane)

    def _wake_if_free(self, lane: str) -> None:
        """Wake the lane if one of its full queues has capacity again."""
        free_queues = {
            QUEUE_BY_LANE_AND_PRIORITY[lane, priority] for priority, count in self.free_capacity(lane).items() if count
        }
        if not self._full_queues.isdisjoint(free_queues):
            self._full_queues -= free_queues
            self._wake_lane(lane)
