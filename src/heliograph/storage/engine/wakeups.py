"""Hints that work has come: heard in this process at once, and by the others of the database as soon as they can.

Nothing depends on a hint: whoever waits for one also looks by itself now and then, so each may be lost (ADR 0025).
"""

import asyncio
from collections.abc import Awaitable, Callable, Collection, Mapping
from contextlib import suppress

from heliograph.domain.delivery.lanes import INBOX, SETUP, SLOTS, WEBHOOKS

KINDS = (*SLOTS, WEBHOOKS, SETUP, INBOX)  # of work
FOR_ALL = (SETUP, INBOX)  # whoever is idle here, others wait for it too

GAP_S = 0.01  # between two hints to the others: what comes meanwhile goes with the next
POLL_S = 1.0  # from one look to the next while hints of others arrive
DEAF_POLL_S = 0.2  # … and while they do not


class Bell:
    """Where a loop waits for one kind of work."""

    def __init__(self) -> None:
        self._rung = asyncio.Event()
        self._waiting = 0
        self._alarm: asyncio.TimerHandle | None = None

    def ring(self) -> bool:
        """Ring, and tell whether that wakes somebody."""
        idle = bool(self._waiting) and not self._rung.is_set()
        self._rung.set()
        return idle

    def ring_in(self, in_s: float) -> None:
        loop = asyncio.get_running_loop()
        if self._alarm is None or self._alarm.when() > loop.time() + in_s:
            self.silence()
            self._alarm = loop.call_later(in_s, self._ring_now)

    def silence(self) -> None:
        if self._alarm is not None:
            self._alarm.cancel()
            self._alarm = None

    async def wait(self, at_most_s: float) -> None:
        self._waiting += 1
        try:
            with suppress(TimeoutError):
                async with asyncio.timeout(at_most_s):
                    await self._rung.wait()
        finally:
            self._waiting -= 1
            self._rung.clear()

    def _ring_now(self) -> None:
        self._alarm = None
        self.ring()


class Hints:
    """`send` carries a text to all processes that listen, if it can."""

    def __init__(self, send: Callable[[str], Awaitable[None]]) -> None:
        self.bells = {kind: Bell() for kind in KINDS}
        self.hears = False  # hints of other processes arrive here
        self._send = send
        self._untold: set[str] = set()
        self._telling: asyncio.Task[None] | None = None

    @property
    def poll_s(self) -> float:
        return POLL_S if self.hears else DEAF_POLL_S

    def tell(self, hints: Mapping[str, int]) -> None:
        """Tell, after a commit, which kinds of work there are, and in how many ms each is due.

        Of work the others are told only when nobody here is idle; when it is due later, they learn of it as they look.
        """
        for kind, in_ms in hints.items():
            if in_ms > 0:
                self.bells[kind].ring_in(in_ms / 1000)
            elif not self.bells[kind].ring() or kind in FOR_ALL:
                self._untold.add(kind)
        if self._untold and self._telling is None:
            self._telling = asyncio.create_task(self._tell_others())

    def hear(self, kinds: Collection[str] = KINDS) -> None:
        """Ring here because another process said so, or for any other reason to look."""
        for kind, bell in self.bells.items():
            if kind in kinds:
                bell.ring()

    def close(self) -> None:
        for bell in self.bells.values():
            bell.silence()
        if self._telling is not None:
            self._telling.cancel()

    async def _tell_others(self) -> None:
        try:
            while self._untold:
                text = " ".join(self._untold)
                self._untold.clear()
                await self._send(text)
                await asyncio.sleep(GAP_S)
        finally:
            self._telling = None
