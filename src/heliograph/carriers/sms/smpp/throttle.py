"""Rate limit for submits: a number per second, and a pause after the carrier throttled us."""

import asyncio

from heliograph.carriers.connection_queue import Line
from heliograph.carriers.contract import Parcel

NOBODY = Parcel(message_id="", address="", content=b"", attempt=0)  # placeholder that occupies the slot in a pause
CATCH_UP_S = 0.01  # maximum delay of a late timer that the next submits may catch up


class Pace:
    """Spaces submits evenly at `throughput` per second, in order of priority; 0 means unlimited."""

    def __init__(self, throughput: int) -> None:
        self._interval = 1 / throughput if throughput else 0.0
        self._next = 0.0
        self._line = Line(1)  # the slot is occupied until the next submit may be sent

    @property
    def limits(self) -> bool:
        """Return whether a submit may have to wait."""
        return bool(self._interval or self._next > asyncio.get_running_loop().time())

    async def turn(self, parcel: Parcel) -> None:
        """Wait until the parcel may be submitted."""
        loop = asyncio.get_running_loop()
        if self._next > loop.time() and self._line.is_free:
            await self._line.take(NOBODY)
            self._pass()
        await self._line.take(parcel)
        self._next = max(self._next, loop.time() - CATCH_UP_S) + self._interval
        self._pass()

    def _pass(self) -> None:
        """Release the slot when the next submit may be sent."""
        loop = asyncio.get_running_loop()
        if self._next > loop.time():
            loop.call_at(self._next, self._pass)
        else:
            self._line.give_back()

    def pause(self, seconds: float) -> None:
        """Delay all further submits by at least `seconds`."""
        self._next = max(self._next, asyncio.get_running_loop().time() + seconds)
