"""Limits the open connections to one mailbox provider from one source address, over all processes."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import structlog

from heliograph.carriers.connection_queue import PrioritySemaphore
from heliograph.carriers.contract import OutboundMessage
from heliograph.carriers.email.smtp import SmtpSession
from heliograph.domain.delivery.provider_rates import CONNECTION_LEASE_MS, ConnectionRequest
from heliograph.domain.limits import SECOND_MS

RENEW_INTERVAL_S = 3.0  # interval at which a process renews its share of the provider's connections

log = structlog.get_logger()

LeaseConnections = Callable[[ConnectionRequest], Awaitable[int]]


class ConnectionGate:
    """This process's share of the connections to a mailbox provider."""

    def __init__(self, limit: int, lease: LeaseConnections) -> None:
        """Create the gate. `lease` requests connections and returns how many this process may open."""
        self.idle: dict[SmtpSession, Any] = {}  # idle connection → state of its host, the oldest first
        self._limit = limit
        self._lease = lease
        self._slots = PrioritySemaphore(0)
        self._allowed = 0
        self.opened = 0  # open connections of this process
        self._messages = 0  # messages that have or await a connection
        self._closed = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    async def acquire(self, message: OutboundMessage, timeout_s: float) -> bool:
        """Wait for a connection slot and take it; return whether a slot was taken."""
        self._messages += 1
        if self._task is None:
            self._task = asyncio.create_task(self._keep_lease())
        acquired = False
        try:
            acquired = await self._slots.acquire(message, timeout_s)
        finally:
            self._messages -= not acquired
        return acquired

    def release(self) -> None:
        self._messages -= 1
        self._slots.release()

    @property
    def is_full(self) -> bool:
        """Return whether no further connection may be opened."""
        return self.opened >= self._allowed

    @property
    def has_surplus(self) -> bool:
        """Return whether more connections are open than this process may have."""
        return self.opened > self._allowed

    def limit_to_opened(self) -> None:
        """Open no further connections until the share is renewed, because the provider refused a connection."""
        self._resize(min(self._allowed, max(1, self.opened)))

    def count_opened(self) -> None:
        self.opened += 1

    def count_closed(self) -> None:
        self.opened -= 1
        self._closed.set()

    async def wait_closed(self) -> None:
        """Wait until a connection is closed."""
        self._closed.clear()
        await self._closed.wait()

    async def close(self) -> None:
        if self._task:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    async def _keep_lease(self) -> None:
        """Renew this process's share of the connections while it has messages or open connections, then release it."""
        valid_until = 0.0
        loop_time = asyncio.get_running_loop().time
        try:
            while self._messages or self.opened:
                started_at = loop_time()
                try:
                    self._resize(await self._lease(ConnectionRequest(wanted=self._limit, opened=self.opened)))
                    valid_until = started_at + CONNECTION_LEASE_MS / SECOND_MS - RENEW_INTERVAL_S
                except Exception as error:
                    log.warning("cannot renew the share of connections", error=type(error).__name__)
                    if loop_time() > valid_until:
                        self._resize(0)
                await asyncio.sleep(RENEW_INTERVAL_S)
        finally:
            self._task = None
            self._resize(0)
        if not self._messages:
            await self._lease(ConnectionRequest(wanted=0, opened=self.opened))

    def _resize(self, allowed: int) -> None:
        self._allowed = allowed
        self._slots.resize(allowed)
