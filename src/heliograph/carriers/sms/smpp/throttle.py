"""How fast submits may leave: a number per second, and none for a moment after the carrier throttled us."""

import asyncio

from heliograph.carriers.connection_queue import Line
from heliograph.carriers.contract import Parcel

NOBODY = Parcel(message_id="", address="", content=b"", attempt=0)
CATCH_UP_S = 0.01  # what a late timer may make up for


class Pace:
    def __init__(self, throughput: int) -> None:
        self._interval = 1 / throughput if throughput else 0.0
        self._next = 0.0
        self._line = Line(1)  # its place is taken until the next submit may leave

    @property
    def limits(self) -> bool:
        """Tell whether a submit may have to wait for its turn."""
        return bool(self._interval or self._next > asyncio.get_running_loop().time())

    async def turn(self, parcel: Parcel) -> None:
        loop = asyncio.get_running_loop()
        if self._next > loop.time() and self._line.is_free:
            await self._line.take(NOBODY)
            self._pass()
        await self._line.take(parcel)
        self._next = max(self._next, loop.time() - CATCH_UP_S) + self._interval
        self._pass()

    def _pass(self) -> None:
        loop = asyncio.get_running_loop()
        if self._next > loop.time():
            loop.call_at(self._next, self._pass)
        else:
            self._line.give_back()

    def pause(self, seconds: float) -> None:
        self._next = max(self._next, asyncio.get_running_loop().time() + seconds)
