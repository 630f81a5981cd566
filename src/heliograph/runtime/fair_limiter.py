"""A concurrency limit whose free slots go to the waiting groups, such as teams, in turn (round robin)."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

WAITING_MAX = 64  # per group
WAIT_S = 20.0
RETRY_AFTER_MAX = 30


class QueueFull(Exception):
    """Too many callers of this group wait for a slot, or this caller has waited too long."""

    def __init__(self, retry_after: int) -> None:
        super().__init__(f"too many changes wait; retry after {retry_after} s")
        self.retry_after = retry_after  # whole seconds


class FairLimiter:
    def __init__(self, slots: int, waiting_max: int = WAITING_MAX, wait_s: float = WAIT_S) -> None:
        self._slots = self._free = slots
        self._waiting_max, self._wait_s = waiting_max, wait_s
        # Groups in round-robin order, each with its waiters, oldest first.
        self._waiting: dict[str, dict[asyncio.Future[None], None]] = {}
        self._usual_s = 0.0  # moving average of how long a slot is held

    @asynccontextmanager
    async def slot(self, group: str) -> AsyncIterator[None]:
        """Hold one slot. Raises QueueFull if the group has too many waiters or the wait is too long."""
        await self._acquire(group)
        time = asyncio.get_running_loop().time
        began = time()
        try:
            yield
        finally:
            self._usual_s += (time() - began - self._usual_s) / 8
            self._release()

    async def _acquire(self, group: str) -> None:
        if self._free:  # no caller is waiting: a released slot goes to a waiter at once
            self._free -= 1
            return
        if len(self._waiting.get(group, ())) >= self._waiting_max:
            raise QueueFull(self._retry_after())
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.setdefault(group, {})[turn] = None
        try:
            async with asyncio.timeout(self._wait_s):
                await turn
        except BaseException as error:
            if turn.done() and not turn.cancelled():  # the slot was assigned just before the error
                self._release()
            else:
                self._forget(group, turn)
            if isinstance(error, TimeoutError):
                raise QueueFull(self._retry_after()) from None
            raise

    def _release(self) -> None:
        if not self._waiting:
            self._free += 1
            return
        group, queue = next(iter(self._waiting.items()))
        turn = next(iter(queue))
        self._forget(group, turn)
        if group in self._waiting:  # move the group to the end of the round
            self._waiting[group] = self._waiting.pop(group)
        if turn.cancelled():
            self._release()
        else:
            turn.set_result(None)

    def _forget(self, group: str, turn: "asyncio.Future[None]") -> None:
        queue = self._waiting.get(group, {})
        queue.pop(turn, None)
        if not queue:
            self._waiting.pop(group, None)

    def _retry_after(self) -> int:
        """Return the estimated time until all current waiters have had a slot, in whole seconds."""
        waiting = sum(map(len, self._waiting.values()))
        return max(1, min(RETRY_AFTER_MAX, round(waiting * self._usual_s / self._slots)))
