"""Priority queue in which messages wait for a connection slot, ordered as in the outbox (contract 16)."""

import asyncio
from collections import deque

from heliograph.carriers.contract import Parcel
from heliograph.domain.delivery.lanes import PRIORITIES, whose_turn
from heliograph.domain.setup.records import Priority

Turn = asyncio.Future[bool]  # True if a slot was assigned, False if the wait was abandoned


class Line:
    """A semaphore with `places` slots that are assigned by message priority."""

    def __init__(self, places: int) -> None:
        self._places = self._free = places  # no task waits while a slot is free
        self._turns = 0  # slots assigned to waiting tasks
        self._waiting: dict[Priority, deque[Turn]] = {}

    @property
    def is_free(self) -> bool:
        return self._free > 0

    async def take(self, parcel: Parcel, patience_s: float | None = None) -> bool:
        """Wait for a slot and take it; return whether one was taken.

        Every `patience_s` seconds the wait ends with False if the tasks ahead need all slots. None waits forever.
        """
        if self._free:
            self._free -= 1
            parcel.passage.waited(0.0)
            return True
        time = asyncio.get_running_loop().time
        began = time()
        given = await self._wait(parcel.priority, patience_s)
        parcel.passage.waited(time() - began)
        return given

    def give_back(self) -> None:
        """Release a slot to the next waiting task."""
        if len(self._waiting) == 1:  # only one priority waits: start counting again when others arrive
            self._turns = 0
        while self._waiting and (priority := whose_turn(self._turns, self._waiting)):
            turn = self._waiting[priority][0]
            self._leave(priority, turn)
            self._turns += 1
            if not turn.done():
                turn.set_result(True)
                return
        self._free += 1

    async def _wait(self, priority: Priority, patience_s: float | None) -> bool:
        loop = asyncio.get_running_loop()
        turn: Turn = loop.create_future()
        self._waiting.setdefault(priority, deque()).append(turn)
        timer: asyncio.TimerHandle | None = None

        def look() -> None:
            nonlocal timer
            if not turn.done() and self._before(priority, turn) >= self._places:
                self._leave(priority, turn)
                turn.set_result(False)
            elif patience_s is not None and not turn.done():
                timer = loop.call_later(patience_s, look)

        if patience_s is not None:
            timer = loop.call_later(patience_s, look)
        try:
            return await turn
        except asyncio.CancelledError:
            if not turn.done() or turn.cancelled():
                self._leave(priority, turn)
            elif turn.result():
                self.give_back()
            raise
        finally:
            if timer:
                timer.cancel()

    def _before(self, priority: Priority, turn: Turn) -> int:
        """Return the number of waiting tasks ahead of `turn`."""
        urgent = PRIORITIES[: PRIORITIES.index(priority)]
        return sum(len(self._waiting.get(more, ())) for more in urgent) + self._waiting[priority].index(turn)

    def _leave(self, priority: Priority, turn: Turn) -> None:
        line = self._waiting.get(priority, deque())
        if turn in line:
            line.remove(turn)
            if not line:
                del self._waiting[priority]
