"""SMTP listener: accepts connections within limits, and drains them at shutdown."""

import asyncio
import socket
from collections.abc import Callable
from functools import partial
from typing import Any

from heliograph.domain.network.client_address import client_network
from heliograph.runtime.listening import stop_accepting
from heliograph.smtp.session import SmtpLimits, SmtpServerSession
from heliograph.smtp.wire import SmtpServerConnection

TOO_MANY_CONNECTIONS = b"421 4.7.0 Too many connections, try again later"


class SmtpServer:
    """Runs an SMTP session for each connection to its sockets."""

    def __init__(
        self, limits: SmtpLimits, make_session: Callable[[SmtpServerConnection], SmtpServerSession[Any]]
    ) -> None:
        """Create the server; `make_session` creates the session of a new connection."""
        self._limits = limits
        self._make_session = make_session
        self._servers: list[asyncio.Server] = []
        # connection → (session, network of the client)
        self._sessions: dict[SmtpServerConnection, tuple[SmtpServerSession[Any], str]] = {}

    async def listen(self, listening_socket: socket.socket, backlog: int, *, implicit_tls: bool = False) -> None:
        """Accept connections on a bound socket; `implicit_tls`: with TLS from the first byte."""
        run_session = partial(self._run_session, implicit_tls=implicit_tls)
        loop = asyncio.get_running_loop()
        self._servers.append(
            await loop.create_server(lambda: SmtpServerConnection(run_session), sock=listening_socket, backlog=backlog)
        )

    async def _run_session(self, connection: SmtpServerConnection, implicit_tls: bool) -> None:
        network = client_network(connection.peer)
        if not self._is_within_limits(network):
            if not implicit_tls:
                connection.write_line(TOO_MANY_CONNECTIONS)
            return
        session = self._make_session(connection)
        self._sessions[connection] = session, network
        try:
            await session.run(implicit_tls=implicit_tls)
        finally:
            del self._sessions[connection]

    def _is_within_limits(self, network: str) -> bool:
        """Return whether a further connection from this network is within the limits."""
        limits = self._limits
        sessions = [session for session, session_network in self._sessions.values() if session_network == network]
        unauthenticated = sum(not session.is_authenticated for session in sessions)
        return (
            len(self._sessions) < limits.connections
            and len(sessions) < limits.per_network
            and (limits.unauthenticated is None or unauthenticated < limits.unauthenticated)
        )

    async def drain(self, seconds: float) -> None:
        """Stop accepting connections, and wait at most `seconds` for sessions to finish mails in progress."""
        for server in self._servers:
            await stop_accepting(server)
        for session, _ in self._sessions.values():
            session.shut_down()
        tasks = [connection.task for connection in self._sessions if connection.task]
        if tasks:
            _, unfinished = await asyncio.wait(tasks, timeout=seconds)
            for task in unfinished:
                task.cancel()
            await asyncio.gather(*unfinished, return_exceptions=True)
