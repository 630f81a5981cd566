"""How fast submits may leave: a number per second, and none for a moment after the carrier throttled us."""

import asyncio

CATCH_UP_S = 0.01  # what a late timer may make up for


class Pace:
    def __init__(self, throughput: int) -> None:
        self._interval = 1 / throughput if throughput else 0.0
        self._next = 0.0
        self._turns = asyncio.Lock()

    async def turn(self) -> None:
        loop = asyncio.get_running_loop()
        if not self._interval and self._next <= loop.time():
            return
        async with self._turns:  # first come, first served; a cancelled waiter takes no turn
            while (wait := self._next - loop.time()) > 0:
                await asyncio.sleep(wait)
            self._next = max(self._next, loop.time() - CATCH_UP_S) + self._interval

    def pause(self, seconds: float) -> None:
        self._next = max(self._next, asyncio.get_running_loop().time() + seconds)
