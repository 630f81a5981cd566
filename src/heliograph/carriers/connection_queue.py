"""Where hand-overs wait for a connection: the most urgent first, as in the outbox (contract 16)."""

import asyncio
from collections import deque

from heliograph.carriers.contract import Parcel
from heliograph.domain.delivery.lanes import PRIORITIES, whose_turn
from heliograph.domain.setup.records import Priority

Turn = asyncio.Future[bool]  # whether it has come; else nobody waits for it any longer


class Line:
    def __init__(self, places: int) -> None:
        self._places = self._free = places  # while one is free, nobody waits
        self._turns = 0  # given to those who waited
        self._waiting: dict[Priority, deque[Turn]] = {}

    @property
    def is_free(self) -> bool:
        return self._free > 0

    async def take(self, parcel: Parcel, patience_s: float | None = None) -> bool:
        """Take a place when its turn has come.

        Returns False when that is not in time, and those who are before it take all places.
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
        if len(self._waiting) == 1:  # the turns of the others are counted from when they come
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
        urgent = PRIORITIES[: PRIORITIES.index(priority)]
        return sum(len(self._waiting.get(more, ())) for more in urgent) + self._waiting[priority].index(turn)

    def _leave(self, priority: Priority, turn: Turn) -> None:
        line = self._waiting.get(priority, deque())
        if turn in line:
            line.remove(turn)
            if not line:
                del self._waiting[priority]
