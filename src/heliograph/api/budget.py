"""Bytes of large bodies in memory at once, over all requests: the next one waits, and is refused when it waits long."""

import asyncio
from collections import deque

from heliograph.rules.limits import MIB
from heliograph.rules.refusals import ServiceUnavailable

TOTAL = 96 * MIB  # a body is in memory about three times while it is read, decoded and kept
WAIT_S = 30.0


class ByteBudget:
    def __init__(self, total: int = TOTAL, wait_s: float = WAIT_S) -> None:
        self._free = total
        self._wait_s = wait_s
        self._taken: dict[object, int] = {}
        self._waiting: deque[tuple[int, asyncio.Future[None]]] = deque()

    async def take(self, holder: object, size: int) -> None:
        """Reserve bytes for the holder; first come, first served."""
        if self._waiting or size > self._free:
            turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._waiting.append((size, turn))
            try:
                await asyncio.wait_for(turn, self._wait_s)
            except TimeoutError:
                raise ServiceUnavailable(
                    "Too many large requests at once. Try again after the seconds in Retry-After.",
                    retry_after=5,
                ) from None
        else:
            self._free -= size
        self._taken[holder] = self._taken.get(holder, 0) + size

    def give_back(self, holder: object) -> None:
        size = self._taken.pop(holder, 0)
        if not size:
            return
        self._free += size
        while self._waiting and (self._waiting[0][1].done() or self._waiting[0][0] <= self._free):
            wanted, turn = self._waiting.popleft()
            if not turn.done():
                self._free -= wanted
                turn.set_result(None)
