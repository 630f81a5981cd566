"""Wakeups: best-effort notifications that work may be due, within this process and to other processes.

Every waiting loop also polls, so a lost wakeup only costs latency (ADR 0025).
"""

import asyncio
from collections.abc import Awaitable, Callable, Collection, Mapping
from contextlib import suppress

from heliograph.domain.delivery.lanes import INBOX, SETUP, SLOTS, WEBHOOKS

KINDS = (*SLOTS, WEBHOOKS, SETUP, INBOX)  # kinds of work
FOR_ALL = (SETUP, INBOX)  # other processes need this wakeup even if a local loop was idle

GAP_S = 0.01  # minimum interval between notifications to other processes; wakeups in between are combined
POLL_S = 1.0  # poll interval while notifications from other processes arrive
DEAF_POLL_S = 0.2  # fallback poll interval while such notifications do not arrive


class Bell:
    """Resettable event with a timer, on which a loop waits for one kind of work."""

    def __init__(self) -> None:
        self._rung = asyncio.Event()
        self._waiting = 0
        self._alarm: asyncio.TimerHandle | None = None

    def ring(self) -> bool:
        """Set the event; return whether this wakes an idle loop."""
        idle = bool(self._waiting) and not self._rung.is_set()
        self._rung.set()
        return idle

    def ring_in(self, in_s: float) -> None:
        """Set the event after `in_s` seconds, unless an earlier timer is running."""
        loop = asyncio.get_running_loop()
        if self._alarm is None or self._alarm.when() > loop.time() + in_s:
            self.silence()
            self._alarm = loop.call_later(in_s, self._ring_now)

    def silence(self) -> None:
        """Cancel the timer."""
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
    """Wakeups of this process, by kind of work.

    `send` notifies all processes that listen, if possible.
    """

    def __init__(self, send: Callable[[str], Awaitable[None]]) -> None:
        self.bells = {kind: Bell() for kind in KINDS}
        self.hears = False  # notifications from other processes arrive here
        self._send = send
        self._untold: set[str] = set()
        self._telling: asyncio.Task[None] | None = None

    @property
    def poll_s(self) -> float:
        return POLL_S if self.hears else DEAF_POLL_S

    def tell(self, hints: Mapping[str, int]) -> None:
        """Wake local loops after a commit; `hints` maps each kind of work to the ms until it is due.

        Other processes are notified only if no local loop was idle. Work due later sets a local timer; other processes
        find such work by polling.
        """
        for kind, in_ms in hints.items():
            if in_ms > 0:
                self.bells[kind].ring_in(in_ms / 1000)
            elif not self.bells[kind].ring() or kind in FOR_ALL:
                self._untold.add(kind)
        if self._untold and self._telling is None:
            self._telling = asyncio.create_task(self._tell_others())

    def hear(self, kinds: Collection[str] = KINDS) -> None:
        """Wake local loops because another process sent a notification, or for any other reason to poll."""
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
