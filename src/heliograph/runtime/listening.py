"""Listening sockets that survive a burst of connections and a lack of file descriptors.

They accept a limited number of connections per event loop iteration. Without free descriptors, they pause for a second
and log the problem once a minute.
"""

import asyncio
import errno
import socket
from collections.abc import Callable
from typing import Any

import structlog

log = structlog.get_logger()

BACKLOG = 2048
TURN_MOST = 64  # connections accepted per loop iteration
SHARED_TURN_MOST = 2
BEGIN_TURNS = 4  # loop iterations from accepting a connection until its first bytes are read
SAY_S = 60.0
OUT = (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM)


class Listener(socket.socket):
    """Listening socket that limits how many connections asyncio accepts per loop iteration.

    asyncio calls `accept` once per backlog entry: 2,048 times while all other tasks wait. Without free descriptors,
    asyncio pauses for a second, but only after all these calls, each of which logs a line and sets a timer that repeats
    the same: 441,506 lines in ten seconds.
    """

    turn_most = TURN_MOST
    _left = TURN_MOST

    def accept(self) -> tuple[socket.socket, Any]:
        if self._left == 0:
            raise BlockingIOError
        if self._left == self.turn_most:
            asyncio.get_running_loop().call_soon(self._next_turn)
        self._left -= 1
        try:
            return super().accept()
        except OSError as error:
            if error.errno in OUT:
                self._left = 0
            raise

    def _next_turn(self) -> None:
        self._left = self.turn_most


def listen(host: str, port: int) -> Listener:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    bound = socket.create_server((host, port), family=family, backlog=BACKLOG)
    # asyncio sets TCP_NODELAY only on sockets that it creates; without it every response is delayed by 40 ms.
    bound.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return Listener(fileno=bound.detach())


def adopt(file: int) -> Listener:
    """Return a listener on a socket shared by several processes, so each accepts few connections at a time."""
    adopted = Listener(fileno=file)
    adopted.turn_most = adopted._left = SHARED_TURN_MOST
    return adopted


async def take_no_more(server: asyncio.Server) -> None:
    """Stop accepting and close the server once just accepted connections have started: asyncio would drop these."""
    loop = asyncio.get_running_loop()
    for bound in server.sockets:
        loop.remove_reader(bound.fileno())
    for _ in range(BEGIN_TURNS):
        await asyncio.sleep(0)
    server.close()


def say_it_once(
    loop: asyncio.AbstractEventLoop, is_outage: Callable[[BaseException], bool] = lambda error: False
) -> None:
    """Install an exception handler that limits repeated log lines.

    A lack of file descriptors is logged once a minute instead of once a second. An outage that ended a future whose
    result is no longer awaited is not logged, because the code that did wait has logged it.
    """
    said_at = -SAY_S

    def handle(loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        nonlocal said_at
        error = context.get("exception")
        if "future" in context and error is not None and is_outage(error):
            return
        if getattr(context.get("exception"), "errno", None) not in OUT or "accept" not in context["message"]:
            loop.default_exception_handler(context)
        elif loop.time() - said_at >= SAY_S:
            said_at = loop.time()
            log.error(
                "out of file descriptors: new connections wait",
                error=str(context["exception"]),
                fix="allow more open files (ulimit -n, LimitNOFILE), or find out who holds connections open",
            )

    loop.set_exception_handler(handle)
