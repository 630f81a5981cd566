"""What uvicorn lacks: deadlines for slow headers and bodies, a header size limit, a cap on connections, and whole
answers in one write.
"""

import asyncio
from collections.abc import Iterable
from typing import Any

from uvicorn.protocols.http.httptools_impl import STATUS_LINE, HttpToolsProtocol

from heliograph.api.request import WRITE, Headers, Receive, Response, Scope, Send, respond
from heliograph.rules.limits import KIB
from heliograph.rules.refusals import InvalidRequest, Refusal, ServiceUnavailable

HEADERS_S = 10.0  # from the first byte, or from the connection, to the end of the headers
BODY_S = 20.0  # for the body, plus the time that its size takes at the slowest rate
KEEP_ALIVE_S = 75.0  # idle connections; longer than most clients' pools keep them
SLOWEST = 64 * KIB  # bytes a second
HEADERS_MAX = 64 * KIB
CONNECTIONS_MAX = 4096
CLOSE = (b"connection", b"close")
SWEEP_S = 1.0


class Connection(HttpToolsProtocol):
    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self.reading_since: float | None = self.loop.time()
        self.in_headers = True
        self.header_bytes = 0
        self.idle_since: float | None = None
        if len(self.connections) > CONNECTIONS_MAX:
            self.app = self._no_room

    def data_received(self, data: bytes) -> None:
        if self.in_headers:
            self.header_bytes += len(data)
        super().data_received(data)
        if self.in_headers and self.header_bytes > HEADERS_MAX:
            self.send_400_response("The headers are too large.")

    def on_message_begin(self) -> None:
        super().on_message_begin()
        self.idle_since = None
        self.reading_since = self.loop.time()
        self.in_headers = True

    def on_headers_complete(self) -> None:
        self.in_headers = False
        self.header_bytes = 0
        super().on_headers_complete()
        self.scope["state"][WRITE] = self._write  # not bound to the cycle: only the collector would ever free that

    def on_message_complete(self) -> None:
        self.reading_since = None
        super().on_message_complete()

    async def _no_room(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answers the first request, and only then closes: a connection that is closed before that is reset."""
        app: Any = self.config.loaded_app
        response: Response = app.refused(ServiceUnavailable("Too many connections. Try again later.", retry_after=1))
        await receive()
        await respond(scope, send, response, [*response.headers, CLOSE])

    def _write(self, scope: Scope, response: Response, headers: Headers) -> bool:
        """A whole answer at once, where uvicorn makes two system calls and two packets. False: leave it to uvicorn."""
        cycle = self.cycle
        if cycle.scope is not scope or scope["method"] == "HEAD":  # not the same: others are pipelined behind it
            return False
        if self.flow.write_paused or cycle.disconnected or not cycle.keep_alive or CLOSE in headers:
            return False
        self.transport.write(_head(response, headers) + response.body)
        cycle.response_started = cycle.response_complete = True
        cycle.message_event.set()
        cycle.on_response()
        return True

    def on_response_complete(self) -> None:
        if self.pipeline or self.transport.is_closing():
            super().on_response_complete()
            return
        # The sweep closes idle connections: a timer for each answer costs more than all the rest of this.
        self.server_state.total_requests += 1
        self.flow.resume_reading()
        self.idle_since = self.loop.time()

    def send_400_response(self, msg: str) -> None:
        self._refuse(InvalidRequest(f"{msg} Send HTTP/1.1 with headers of at most 64 KiB."))

    def _refuse(self, refusal: Refusal) -> None:
        """Answer without the application: what came in is not a request, or there is no room for it."""
        app: Any = self.config.loaded_app
        response: Response = app.refused(refusal)
        self.transport.write(_head(response, [*response.headers, CLOSE]) + response.body)
        self.transport.close()

    def impatience(self) -> float:
        """Seconds that the part now being read may take."""
        if self.in_headers:
            return HEADERS_S
        length = next((value for name, value in self.headers if name == b"content-length"), b"0")
        return BODY_S + (int(length) / SLOWEST if length.isdigit() else 0)


def _head(response: Response, headers: Headers) -> bytes:
    lines = [b"%s: %s\r\n" % header for header in headers]
    head = b"%scontent-type: %s\r\ncontent-length: %d\r\n%s\r\n" % (
        STATUS_LINE[response.status],
        response.content_type,
        len(response.body),
        b"".join(lines),
    )
    if head.count(b"\n") != len(headers) + 4:
        raise ValueError("a header holds a line break")
    return head


async def close_slow(connections: Iterable[Any]) -> None:
    """Close the connections whose request has not arrived in time, or that are idle for long, until cancelled."""
    loop = asyncio.get_running_loop()
    while True:
        await asyncio.sleep(SWEEP_S)
        now = loop.time()
        for connection in list(connections):
            since = connection.reading_since
            if since is not None and now - since > HEADERS_S and now - since > connection.impatience():
                connection.transport.abort()
            elif connection.idle_since is not None and now - connection.idle_since > KEEP_ALIVE_S:
                connection.transport.close()
