"""Where SMTP submission listens, who is connected, and how they leave."""

import asyncio
import socket

from heliograph.rules.client_address import network_of
from heliograph.submission.session import Hall, Session
from heliograph.submission.wire import SmtpWire

CONNECTIONS_MAX = 1024
UNKNOWN_MAX = 128  # of one address, or one IPv6 network, that have not shown a key
BUSY = b"421 4.7.0 Too many connections, try again later"


class Submissions:
    def __init__(self, hall: Hall) -> None:
        self._hall = hall
        self._servers: list[asyncio.Server] = []
        self._open: dict[SmtpWire, tuple[Session, str]] = {}  # with the peer's network

    async def listen(self, bound: socket.socket, backlog: int, *, tls_first: bool) -> None:
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
        session = Session(self._hall, wire)
        self._open[wire] = session, peer
        try:
            await session.run(tls_first=tls_first)
        finally:
            del self._open[wire]

    def _has_room(self, peer: str) -> bool:
        unknown = sum(its == peer and not session.is_known for session, its in self._open.values())
        return len(self._open) < CONNECTIONS_MAX and unknown < UNKNOWN_MAX

    async def drain(self, seconds: float) -> None:
        """Take no more connections, and let those that are sending a mail finish it."""
        for server in self._servers:
            server.close()
        for session, _ in self._open.values():
            session.leave()
        tasks = [wire.task for wire in self._open if wire.task]
        if tasks:
            _, late = await asyncio.wait(tasks, timeout=seconds)
            for task in late:
                task.cancel()
            await asyncio.gather(*late, return_exceptions=True)
