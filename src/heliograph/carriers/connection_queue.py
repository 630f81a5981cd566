"""Priority queue in which messages wait for a connection slot, ordered as in the outbox (contract 16)."""

import asyncio
from collections import deque

from heliograph.carriers.contract import OutboundMessage
from heliograph.domain.delivery.lanes import PRIORITIES, next_priority
from heliograph.domain.setup.records import Priority

Slot = asyncio.Future[bool]  # True if a slot was assigned, False if the wait was abandoned


class PrioritySemaphore:
    """A semaphore whose slots are assigned to waiting messages by priority."""

    def __init__(self, slots: int) -> None:
        self._slots = self._free = slots  # slots in total, and those that are free
        self._assigned = 0  # slots assigned to waiting tasks
        self._waiters: dict[Priority, deque[Slot]] = {}

    @property
    def is_free(self) -> bool:
        return self._free > 0

    async def acquire(self, message: OutboundMessage, timeout_s: float | None = None) -> bool:
        """Wait for a slot and take it; return whether a slot was taken.

        Every `timeout_s` seconds, the wait is abandoned if at least as many tasks are ahead as there are slots. With
        None, the wait has no limit.
        """
        if self._free > 0:
            self._free -= 1
            message.hooks.on_queued(0.0)
            return True
        loop_time = asyncio.get_running_loop().time
        started_at = loop_time()
        acquired = await self._wait(message.priority, timeout_s)
        message.hooks.on_queued(loop_time() - started_at)
        return acquired

    def resize(self, slots: int) -> None:
        """Change the number of slots. Surplus slots that are in use are removed when they are released."""
        added, self._slots = slots - self._slots, slots
        self._free += min(added, 0)
        for _ in range(added):
            self.release()

    def release(self) -> None:
        """Release a slot to the next waiting task."""
        if self._free < 0:
            self._free += 1
            return
        if len(self._waiters) == 1:  # only one priority waits: start counting again when others arrive
            self._assigned = 0
        while self._waiters and (priority := next_priority(self._assigned, self._waiters)):
            slot = self._waiters[priority][0]
            self._remove(priority, slot)
            self._assigned += 1
            if not slot.done():
                slot.set_result(True)
                return
        self._free += 1

    async def _wait(self, priority: Priority, timeout_s: float | None) -> bool:
        loop = asyncio.get_running_loop()
        slot: Slot = loop.create_future()
        self._waiters.setdefault(priority, deque()).append(slot)
        timer: asyncio.TimerHandle | None = None

        def end_wait_if_slots_taken() -> None:
            nonlocal timer
            if not slot.done() and self._count_ahead(priority, slot) >= self._slots:
                self._remove(priority, slot)
                slot.set_result(False)
            elif timeout_s is not None and not slot.done():
                timer = loop.call_later(timeout_s, end_wait_if_slots_taken)

        if timeout_s is not None:
            timer = loop.call_later(timeout_s, end_wait_if_slots_taken)
        try:
            return await slot
        except asyncio.CancelledError:
            if not slot.done() or slot.cancelled():
                self._remove(priority, slot)
            elif slot.result():
                self.release()
            raise
        finally:
            if timer:
                timer.cancel()

    def _count_ahead(self, priority: Priority, slot: Slot) -> int:
        """Return the number of waiting tasks ahead of `slot`."""
        more_urgent = PRIORITIES[: PRIORITIES.index(priority)]
        return sum(len(self._waiters.get(other, ())) for other in more_urgent) + self._waiters[priority].index(slot)

    def _remove(self, priority: Priority, slot: Slot) -> None:
        waiters = self._waiters.get(priority, deque())
        if slot in waiters:
            waiters.remove(slot)
            if not waiters:
                del self._waiters[priority]
