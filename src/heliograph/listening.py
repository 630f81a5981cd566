"""Listening sockets that bear a rush and a lack of file descriptors: few connections in a turn of the loop; and without
descriptors they rest for a second, and one line a minute says so.
"""

import asyncio
import errno
import socket
from typing import Any

import structlog

log = structlog.get_logger()

BACKLOG = 2048
TURN_MOST = 64  # connections that are accepted before others have their turn
SAY_S = 60.0
OUT = (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM)


class Listener(socket.socket):
    """asyncio asks as often as the backlog is long in one turn of its loop: 2,048 connections, while all others wait.

    Without descriptors it rests for a second, but not before it has asked as often, and each refusal is a log line and
    a timer that does the same again: 441,506 lines in ten seconds.
    """

    _left = TURN_MOST

    def accept(self) -> tuple[socket.socket, Any]:
        if self._left == 0:
            raise BlockingIOError
        if self._left == TURN_MOST:
            asyncio.get_running_loop().call_soon(self._next_turn)
        self._left -= 1
        try:
            return super().accept()
        except OSError as error:
            if error.errno in OUT:
                self._left = 0
            raise

    def _next_turn(self) -> None:
        self._left = TURN_MOST


def listen(host: str, port: int) -> Listener:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    bound = socket.create_server((host, port), family=family, backlog=BACKLOG)
    # asyncio sets this on the sockets that it makes itself; without it every answer waits 40 ms.
    bound.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return Listener(fileno=bound.detach())


def say_it_once(loop: asyncio.AbstractEventLoop) -> None:
    """Of what asyncio says each second while descriptors lack, one line a minute."""
    said_at = -SAY_S

    def tell(loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        nonlocal said_at
        if getattr(context.get("exception"), "errno", None) not in OUT or "accept" not in context["message"]:
            loop.default_exception_handler(context)
        elif loop.time() - said_at >= SAY_S:
            said_at = loop.time()
            log.error(
                "new connections wait: no file descriptor is left",
                error=str(context["exception"]),
                mend="allow more open files (ulimit -n, LimitNOFILE), or find out who holds connections open",
            )

    loop.set_exception_handler(tell)
