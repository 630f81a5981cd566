"""Notifies waiting loops of this and of other processes that work may be due.

Such a wakeup may be lost; this only costs latency, because every waiting loop also polls (ADR 0025).
"""

import asyncio
from collections.abc import Awaitable, Callable, Collection, Mapping
from contextlib import suppress

from heliograph.domain.delivery.lanes import CONCURRENCY_MAX_BY_LANE, INBOX, SETUP, WEBHOOKS

KINDS = (*CONCURRENCY_MAX_BY_LANE, WEBHOOKS, SETUP, INBOX)  # kinds of work
ALWAYS_NOTIFIED = (SETUP, INBOX)  # other processes need this wakeup even if a local loop was idle

NOTIFY_INTERVAL_S = 0.01  # minimum interval between notifications to other processes; wakeups in between are combined
POLL_S = 1.0  # poll interval while notifications from other processes arrive
FALLBACK_POLL_S = 0.2  # poll interval while notifications from other processes do not arrive


class Wakeup:
    """Resettable event with a timer, on which a loop waits for one kind of work."""

    def __init__(self) -> None:
        self._event = asyncio.Event()
        self._waiting = 0
        self._timer: asyncio.TimerHandle | None = None

    def set(self) -> bool:
        """Set the event; return whether this wakes an idle loop."""
        wakes_loop = bool(self._waiting) and not self._event.is_set()
        self._event.set()
        return wakes_loop

    def set_in(self, in_s: float) -> None:
        """Set the event after `in_s` seconds, unless an earlier timer is running."""
        loop = asyncio.get_running_loop()
        if self._timer is None or self._timer.when() > loop.time() + in_s:
            self.cancel_timer()
            self._timer = loop.call_later(in_s, self._set_now)

    def cancel_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    async def wait(self, at_most_s: float) -> None:
        self._waiting += 1
        try:
            with suppress(TimeoutError):
                async with asyncio.timeout(at_most_s):
                    await self._event.wait()
        finally:
            self._waiting -= 1
            self._event.clear()

    def _set_now(self) -> None:
        self._timer = None
        self.set()


class Wakeups:
    """The wakeups of this process, by kind of work. `send` notifies all processes that listen."""

    def __init__(self, send: Callable[[str], Awaitable[None]]) -> None:
        self.by_kind = {kind: Wakeup() for kind in KINDS}
        self.subscribed = False  # whether this process receives notifications from other processes
        self._send = send
        self._kinds_to_send: set[str] = set()
        self._send_task: asyncio.Task[None] | None = None

    @property
    def poll_s(self) -> float:
        return POLL_S if self.subscribed else FALLBACK_POLL_S

    def notify(self, due_in_ms_by_kind: Mapping[str, int]) -> None:
        """Wake local loops after a commit; `due_in_ms_by_kind` maps each kind of work to the ms until it is due.

        Other processes are notified only if no local loop was idle. Work due later sets a local timer; other processes
        find such work by polling.
        """
        for kind, due_in_ms in due_in_ms_by_kind.items():
            if due_in_ms > 0:
                self.by_kind[kind].set_in(due_in_ms / 1000)
            elif not self.by_kind[kind].set() or kind in ALWAYS_NOTIFIED:
                self._kinds_to_send.add(kind)
        if self._kinds_to_send and self._send_task is None:
            self._send_task = asyncio.create_task(self._notify_others())

    def receive(self, kinds: Collection[str] = KINDS) -> None:
        """Wake the local loops of these kinds, because another process sent a notification or all should poll."""
        for kind, wakeup in self.by_kind.items():
            if kind in kinds:
                wakeup.set()

    def close(self) -> None:
        for wakeup in self.by_kind.values():
            wakeup.cancel_timer()
        if self._send_task is not None:
            self._send_task.cancel()

    async def _notify_others(self) -> None:
        try:
            while self._kinds_to_send:
                text = " ".join(self._kinds_to_send)
                self._kinds_to_send.clear()
                await self._send(text)
                await asyncio.sleep(NOTIFY_INTERVAL_S)
        finally:
            self._send_task = None
