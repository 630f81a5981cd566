"""What uvicorn lacks: deadlines for slow headers and bodies, a header size limit, a cap on connections, and whole
answers in one write.
"""

import asyncio
from collections.abc import Iterable
from typing import Any

from uvicorn.protocols.http.httptools_impl import STATUS_LINE, HttpToolsProtocol

from heliograph.rules.limits import KIB
from heliograph.rules.refusals import InvalidRequest, Refusal
from heliograph.web.request import CLOSE, WRITE, Headers, Response, Scope

HEADERS_S = 10.0  # from the first byte, or from the connection, to the end of the headers
BODY_S = 5.0  # a body may be behind the slowest rate by this
KEEP_ALIVE_S = 75.0  # idle connections; longer than most clients' pools keep them
SLOWEST = 32 * KIB  # bytes of a body a second, from its first second on
HEADERS_MAX = 64 * KIB
PIECE = 16 * KIB  # what arrives is examined in pieces of this size
CONNECTIONS_MAX = 4096
TOO_LARGE = "The headers are too large."
SWEEP_S = 1.0


class Connection(HttpToolsProtocol):
    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self.reading_since: float | None = self.loop.time()
        self.in_headers = True
        self.messages = 0
        self.header_bytes = 0  # in pieces that held nothing else, trailers too
        self.body_bytes = 0
        self.swept_bytes = 0  # of them, at the last sweep
        self.behind_s = 0.0  # the slowest rate: what came fast before buys no rest
        self.complaint = ""  # about what came: nothing more is read
        self.idle_since: float | None = None
        if len(self.connections) > CONNECTIONS_MAX:
            # It is answered, and only then closed: closing it earlier would reset it.
            self.app = self.config.loaded_app.no_room

    def data_received(self, data: bytes) -> None:
        if len(data) <= PIECE:
            self._feed(data)
            return
        for start in range(0, len(data), PIECE):
            self._feed(data[start : start + PIECE])

    def _feed(self, data: bytes) -> None:
        if self.complaint:
            return
        begins = self.reading_since is None or not self.messages  # a request, with this piece
        messages, body_bytes = self.messages + begins, self.body_bytes
        super().data_received(data)
        if self.reading_since is None or self.messages > messages or self.body_bytes != body_bytes:
            return
        self.header_bytes += len(data)
        if self.header_bytes > HEADERS_MAX and not self.complaint:
            self.send_400_response(TOO_LARGE)

    def on_message_begin(self) -> None:
        super().on_message_begin()
        self.idle_since = None
        self.reading_since = self.loop.time()
        self.in_headers = True
        self.messages += 1
        self.header_bytes = self.body_bytes = self.swept_bytes = 0
        self.behind_s = 0.0

    def on_body(self, body: bytes) -> None:
        self.header_bytes = 0
        self.body_bytes += len(body)
        super().on_body(body)

    def on_headers_complete(self) -> None:
        # Those that lie in fewer pieces cannot be too large: most are not counted.
        if self.header_bytes > HEADERS_MAX - 2 * PIECE:
            first = len(b"%s %s HTTP/1.1\r\n" % (self.parser.get_method(), self.url))
            if first + sum(len(b"%s: %s\r\n" % header) for header in self.headers) + 2 > HEADERS_MAX:
                raise ValueError(TOO_LARGE)  # the parser stops, and 400 is answered
        self.in_headers = False
        self.header_bytes = 0
        super().on_headers_complete()
        self.scope["state"][WRITE] = self._write  # not bound to the cycle: only the collector would ever free that

    def on_message_complete(self) -> None:
        self.reading_since = None
        super().on_message_complete()

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
        if self.complaint:
            self.send_400_response(self.complaint)
            return
        # The sweep closes idle connections: a timer for each answer costs more than all the rest of this.
        self.server_state.total_requests += 1
        self.flow.resume_reading()
        self.idle_since = self.loop.time()

    def send_400_response(self, msg: str) -> None:
        in_body = not self.in_headers and self.reading_since is not None
        self.complaint = msg
        if self.cycle and not self.cycle.response_complete and not in_body:
            self.flow.pause_reading()  # the request before it is answered first
        else:
            self._refuse(InvalidRequest(f"{msg} Send HTTP/1.1 with headers of at most 64 KiB."))

    def _refuse(self, refusal: Refusal) -> None:
        """Answer without the application: what came in is not a request, or there is no room for it."""
        app: Any = self.config.loaded_app
        response: Response = app.refused(refusal)
        self.transport.write(_head(response, [*response.headers, CLOSE]) + response.body)
        self.transport.close()

    def is_too_slow(self, now: float) -> bool:
        """Asked by every sweep. Of a body's time only those count at which we were ready to read it."""
        if self.reading_since is None:
            return False
        if self.in_headers:
            return now - self.reading_since > HEADERS_S
        arrived, self.swept_bytes = self.body_bytes - self.swept_bytes, self.body_bytes
        if not self.flow.read_paused:
            self.behind_s = max(0.0, self.behind_s + SWEEP_S - arrived / SLOWEST)
        return self.behind_s > BODY_S


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
            if connection.is_too_slow(now):
                connection.transport.abort()
            elif connection.idle_since is not None and now - connection.idle_since > KEEP_ALIVE_S:
                connection.transport.close()
