"""Limits concurrency. Free slots go to the waiting groups, such as teams, in turn (round robin)."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

WAITERS_MAX = 64  # maximum waiting callers per group
WAIT_S = 20.0  # maximum wait for a slot
RETRY_AFTER_MAX = 30  # seconds


class QueueFull(Exception):
    """Raised if too many callers of the group wait for a slot, or if the caller has waited too long."""

    def __init__(self, retry_after: int) -> None:
        super().__init__(f"too many changes wait; retry after {retry_after} s")
        self.retry_after = retry_after  # in whole seconds


class FairLimiter:
    def __init__(self, slots: int, waiters_max: int = WAITERS_MAX, wait_s: float = WAIT_S) -> None:
        self._slots = self._free = slots
        self._waiters_max, self._wait_s = waiters_max, wait_s
        # group → its waiting callers, oldest first; groups are in round-robin order
        self._waiters_by_group: dict[str, dict[asyncio.Future[None], None]] = {}
        self._average_held_s = 0.0  # moving average of how long a slot is held

    @asynccontextmanager
    async def slot(self, group: str) -> AsyncIterator[None]:
        """Occupy a slot while the context is open. Raises QueueFull if too many of the group wait, or for too long."""
        await self._acquire(group)
        loop_time = asyncio.get_running_loop().time
        acquired_at = loop_time()
        try:
            yield
        finally:
            self._average_held_s += (loop_time() - acquired_at - self._average_held_s) / 8
            self._release()

    async def _acquire(self, group: str) -> None:
        if self._free:  # no caller is waiting, because a released slot goes directly to a waiting caller
            self._free -= 1
            return
        if len(self._waiters_by_group.get(group, ())) >= self._waiters_max:
            raise QueueFull(self._retry_after())
        waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiters_by_group.setdefault(group, {})[waiter] = None
        try:
            async with asyncio.timeout(self._wait_s):
                await waiter
        except BaseException as error:
            if waiter.done() and not waiter.cancelled():  # the slot was assigned just before the error
                self._release()
            else:
                self._remove_waiter(group, waiter)
            if isinstance(error, TimeoutError):
                raise QueueFull(self._retry_after()) from None
            raise

    def _release(self) -> None:
        if not self._waiters_by_group:
            self._free += 1
            return
        group, waiters = next(iter(self._waiters_by_group.items()))
        waiter = next(iter(waiters))
        self._remove_waiter(group, waiter)
        if group in self._waiters_by_group:  # move the group to the end of the round
            self._waiters_by_group[group] = self._waiters_by_group.pop(group)
        if waiter.cancelled():
            self._release()
        else:
            waiter.set_result(None)

    def _remove_waiter(self, group: str, waiter: "asyncio.Future[None]") -> None:
        waiters = self._waiters_by_group.get(group, {})
        waiters.pop(waiter, None)
        if not waiters:
            self._waiters_by_group.pop(group, None)

    def _retry_after(self) -> int:
        """Return the estimated time until all current waiters have had a slot, in whole seconds."""
        waiter_count = sum(map(len, self._waiters_by_group.values()))
        return max(1, min(RETRY_AFTER_MAX, round(waiter_count * self._average_held_s / self._slots)))
