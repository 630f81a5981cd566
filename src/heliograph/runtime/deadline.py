"""`within(seconds)`: a cheaper `asyncio.timeout`, for constant timeouts that many tasks use at the same time.

`with` blocks that have the same timeout expire in the order in which they began, so one timer for the oldest block
suffices. A timer for each block would cost 10 µs, and most timers never fire. Not thread-safe: use it on the event loop
only.
"""

import asyncio
from types import TracebackType
from typing import Any


class _Timeouts:
    """All running `with` blocks that have the same timeout, oldest first."""

    def __init__(self, seconds: float, loop: asyncio.AbstractEventLoop) -> None:
        self.loop = loop
        self.seconds = seconds
        self.deadline_by_block: dict[_Block, float] = {}
        self.timer: asyncio.TimerHandle | None = None

    def expire_due(self) -> None:
        now, self.timer = self.loop.time(), None
        for block in [block for block, deadline in self.deadline_by_block.items() if deadline <= now]:
            del self.deadline_by_block[block]
            block.expire()
        for deadline in self.deadline_by_block.values():
            self.timer = self.loop.call_at(deadline, self.expire_due)
            break


# timeout in seconds → its running blocks; there are few different timeouts
_timeouts_by_seconds: dict[float, _Timeouts] = {}


class _Block:
    __slots__ = ("_earlier_cancels", "_is_expired", "_task", "_timeouts")

    def __init__(self, timeouts: _Timeouts) -> None:
        self._timeouts = timeouts

    def __enter__(self) -> None:
        timeouts, self._is_expired = self._timeouts, False
        self._task: asyncio.Task[Any] = asyncio.current_task(timeouts.loop)  # type: ignore[assignment]  # never None here
        self._earlier_cancels = self._task.cancelling()
        timeouts.deadline_by_block[self] = deadline = timeouts.loop.time() + timeouts.seconds
        if timeouts.timer is None:
            timeouts.timer = timeouts.loop.call_at(deadline, timeouts.expire_due)

    def __exit__(
        self, error_type: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if not self._is_expired:
            del self._timeouts.deadline_by_block[self]
        elif self._task.uncancel() <= self._earlier_cancels and error_type is asyncio.CancelledError:
            raise TimeoutError from error

    def expire(self) -> None:
        self._is_expired = True
        self._task.cancel()


def within(seconds: float) -> _Block:
    """Return a context manager that raises TimeoutError if its block takes longer than `seconds`.

    `seconds` must be a constant: the entry of each value in `_timeouts_by_seconds` is kept for the life of the process.
    """
    loop, timeouts = asyncio.get_running_loop(), _timeouts_by_seconds.get(seconds)
    if timeouts is None or timeouts.loop is not loop:
        timeouts = _timeouts_by_seconds[seconds] = _Timeouts(seconds, loop)
    return _Block(timeouts)
