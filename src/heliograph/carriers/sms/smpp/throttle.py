"""Rate limit for submits: a number per second, and a pause after the SMSC reported that we send too fast."""

import asyncio

from heliograph.carriers.connection_queue import PrioritySemaphore
from heliograph.carriers.contract import OutboundMessage

# Occupies the slot during a pause
PLACEHOLDER = OutboundMessage(message_id="", address="", content=b"", attempt=0)
CATCH_UP_S = 0.01  # maximum delay, caused by a late timer, that the next submits may make up for


class SubmitThrottle:
    """Spaces submits evenly at `throughput` per second, in order of priority; 0 means unlimited."""

    def __init__(self, throughput: int) -> None:
        self._interval = 1 / throughput if throughput else 0.0
        self._next_at = 0.0
        self._slot = PrioritySemaphore(1)  # the slot is occupied until the next submit may be sent

    @property
    def may_wait(self) -> bool:
        """Return whether a submit may have to wait."""
        return bool(self._interval or self._next_at > asyncio.get_running_loop().time())

    async def wait_turn(self, message: OutboundMessage) -> None:
        """Wait until the message may be submitted."""
        loop = asyncio.get_running_loop()
        if self._next_at > loop.time() and self._slot.is_free:
            await self._slot.acquire(PLACEHOLDER)
            self._release_when_due()
        await self._slot.acquire(message)
        self._next_at = max(self._next_at, loop.time() - CATCH_UP_S) + self._interval
        self._release_when_due()

    def _release_when_due(self) -> None:
        """Release the slot when the next submit may be sent."""
        loop = asyncio.get_running_loop()
        if self._next_at > loop.time():
            loop.call_at(self._next_at, self._release_when_due)
        else:
            self._slot.release()

    def pause(self, seconds: float) -> None:
        """Delay all further submits by at least `seconds`."""
        self._next_at = max(self._next_at, asyncio.get_running_loop().time() + seconds)
