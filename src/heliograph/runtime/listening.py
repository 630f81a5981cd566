"""Listening sockets that survive a rush of connections and a lack of file descriptors.

They accept few connections in one turn of the loop. Without descriptors they pause for a second and log it once a
minute.
"""

import asyncio
import errno
import socket
from collections.abc import Callable
from typing import Any

import structlog

log = structlog.get_logger()

BACKLOG = 2048
TURN_MOST = 64  # connections accepted before other tasks run
SHARED_TURN_MOST = 2
BEGIN_TURNS = 4  # of the loop, from a connection's accept until what it has sent is read
SAY_S = 60.0
OUT = (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM)


class Listener(socket.socket):
    """Limits how many connections asyncio accepts in one turn of its loop.

    asyncio calls `accept` as often as the backlog is long: 2,048 times while everything else waits. Without descriptors
    it pauses for a second, but only after as many calls, each of which logs a line and sets a timer that does the same
    again: 441,506 lines in ten seconds.
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
    # asyncio sets this on sockets that it creates itself; without it every answer waits 40 ms.
    bound.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return Listener(fileno=bound.detach())


def adopt(file: int) -> Listener:
    """Adopt a socket that several processes share: each accepts a few at a time, so that all get some."""
    adopted = Listener(fileno=file)
    adopted.turn_most = adopted._left = SHARED_TURN_MOST
    return adopted


async def take_no_more(server: asyncio.Server) -> None:
    """Close the server after those that it has just accepted have begun: asyncio drops them without a word."""
    loop = asyncio.get_running_loop()
    for bound in server.sockets:
        loop.remove_reader(bound.fileno())
    for _ in range(BEGIN_TURNS):
        await asyncio.sleep(0)
    server.close()


def say_it_once(
    loop: asyncio.AbstractEventLoop, is_outage: Callable[[BaseException], bool] = lambda error: False
) -> None:
    """Log one line a minute instead of one a second while there are no descriptors, and none about an outage that
    broke off what nobody waits for any more: who did wait has logged it.
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
