"""Listening sockets that survive a burst of connections and a lack of file descriptors.

A listener accepts a limited number of connections per event loop iteration. Without free descriptors, it pauses for a
second and logs the problem once a minute.
"""

import asyncio
import errno
import socket
from collections.abc import Callable
from typing import Any

import structlog

log = structlog.get_logger()

BACKLOG = 2048
ACCEPTS_MAX = 64  # maximum connections accepted per event loop iteration
SHARED_ACCEPTS_MAX = 2  # like ACCEPTS_MAX, for a socket that several processes share
START_ITERATIONS = 4  # event loop iterations between accepting a connection and reading its first bytes
LOG_INTERVAL_S = 60.0
NO_RESOURCES = (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM)


class Listener(socket.socket):
    """Listening socket that limits how many connections asyncio accepts per event loop iteration.

    Without this limit, asyncio calls `accept` for each entry of the backlog (2,048), and all other tasks wait
    meanwhile. If there are no free descriptors, each of these calls logs a line and sets a timer to try again a second
    later, which resulted in 441,506 log lines in ten seconds.
    """

    accepts_max = ACCEPTS_MAX
    _accepts_left = ACCEPTS_MAX

    def accept(self) -> tuple[socket.socket, Any]:
        if self._accepts_left == 0:
            raise BlockingIOError
        if self._accepts_left == self.accepts_max:
            asyncio.get_running_loop().call_soon(self._reset_accepts)
        self._accepts_left -= 1
        try:
            return super().accept()
        except OSError as error:
            if error.errno in NO_RESOURCES:
                self._accepts_left = 0
            raise

    def _reset_accepts(self) -> None:
        self._accepts_left = self.accepts_max


def listen(host: str, port: int) -> Listener:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listener = socket.create_server((host, port), family=family, backlog=BACKLOG)
    # asyncio sets TCP_NODELAY only on sockets that it creates; without it every response is delayed by 40 ms.
    listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return Listener(fileno=listener.detach())


def adopt_socket(descriptor: int) -> Listener:
    """Return a listener on a socket that several processes share; it accepts few connections at a time."""
    listener = Listener(fileno=descriptor)
    listener.accepts_max = listener._accepts_left = SHARED_ACCEPTS_MAX
    return listener


async def stop_accepting(server: asyncio.Server) -> None:
    """Stop accepting connections, and close the server some event loop iterations later.

    Closing it drops accepted connections whose handlers asyncio has not started yet.
    """
    loop = asyncio.get_running_loop()
    for listener in server.sockets:
        loop.remove_reader(listener.fileno())
    for _ in range(START_ITERATIONS):
        await asyncio.sleep(0)
    server.close()


def throttle_loop_errors(
    loop: asyncio.AbstractEventLoop, is_outage: Callable[[BaseException], bool] = lambda error: False
) -> None:
    """Install an exception handler that limits repeated log lines.

    A lack of file descriptors is logged once a minute instead of once a second. Outages (`is_outage`) in futures that
    are no longer awaited are not logged, because they have been logged elsewhere.
    """
    logged_at = -LOG_INTERVAL_S

    def handle(loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        nonlocal logged_at
        error = context.get("exception")
        if "future" in context and error is not None and is_outage(error):
            return
        if getattr(error, "errno", None) not in NO_RESOURCES or "accept" not in context["message"]:
            loop.default_exception_handler(context)
        elif loop.time() - logged_at >= LOG_INTERVAL_S:
            logged_at = loop.time()
            log.error(
                "out of file descriptors: new connections wait",
                error=str(error),
                fix="allow more open files (ulimit -n, LimitNOFILE), or find out who holds connections open",
            )

    loop.set_exception_handler(handle)
