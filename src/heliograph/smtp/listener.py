"""SMTP listener: accepts connections within limits, and drains them at shutdown."""

import asyncio
import socket
from collections.abc import Callable
from typing import Any

from heliograph.domain.network.client_address import network_of
from heliograph.runtime.listening import take_no_more
from heliograph.smtp.session import SmtpDialogue, SmtpLimits
from heliograph.smtp.wire import SmtpWire

BUSY = b"421 4.7.0 Too many connections, try again later"


class SmtpServer:
    """Runs an SMTP session for each connection to its sockets."""

    def __init__(self, limits: SmtpLimits, session: Callable[[SmtpWire], SmtpDialogue[Any]]) -> None:
        """Create the server; `session` creates the session of a new connection."""
        self._limits = limits
        self._session = session
        self._servers: list[asyncio.Server] = []
        self._open: dict[SmtpWire, tuple[SmtpDialogue[Any], str]] = {}  # connection → session and the peer's network

    async def listen(self, bound: socket.socket, backlog: int, *, tls_first: bool = False) -> None:
        """Accept connections on a bound socket; `tls_first`: implicit TLS."""

        async def begin(wire: SmtpWire) -> None:
            await self._run(wire, tls_first)

        loop = asyncio.get_running_loop()
        self._servers.append(await loop.create_server(lambda: SmtpWire(begin), sock=bound, backlog=backlog))

    async def _run(self, wire: SmtpWire, tls_first: bool) -> None:
        peer = network_of(wire.peer)
        if not self._has_room(peer):
            if not tls_first:
                wire.say(BUSY)
            return
        session = self._session(wire)
        self._open[wire] = session, peer
        try:
            await session.run(tls_first=tls_first)
        finally:
            del self._open[wire]

    def _has_room(self, peer: str) -> bool:
        """Return whether a further connection from this network is within the limits."""
        limits, own = self._limits, [session for session, its in self._open.values() if its == peer]
        strangers = sum(not session.is_known for session in own)
        return (
            len(self._open) < limits.connections
            and len(own) < limits.per_peer
            and (limits.strangers is None or strangers < limits.strangers)
        )

    async def drain(self, seconds: float) -> None:
        """Stop accepting connections, and wait at most `seconds` for sessions to finish mails in progress."""
        for server in self._servers:
            await take_no_more(server)
        for session, _ in self._open.values():
            session.leave()
        tasks = [wire.task for wire in self._open if wire.task]
        if tasks:
            _, late = await asyncio.wait(tasks, timeout=seconds)
            for task in late:
                task.cancel()
            await asyncio.gather(*late, return_exceptions=True)
