"""What uvicorn lacks: deadlines for slow headers and bodies, a header size limit, a cap on connections."""

import asyncio
from collections.abc import Iterable
from typing import Any

from uvicorn.protocols.http.httptools_impl import STATUS_LINE, HttpToolsProtocol

from heliograph.api.request import Response
from heliograph.rules.limits import KIB
from heliograph.rules.refusals import InvalidRequest, Refusal, ServiceUnavailable

HEADERS_S = 10.0  # from the first byte, or from the connection, to the end of the headers
BODY_S = 20.0  # for the body, plus the time that its size takes at the slowest rate
SLOWEST = 64 * KIB  # bytes a second
HEADERS_MAX = 64 * KIB
CONNECTIONS_MAX = 4096
SWEEP_S = 1.0


class Connection(HttpToolsProtocol):
    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self.reading_since: float | None = self.loop.time()
        self.in_headers = True
        self.header_bytes = 0
        if len(self.connections) > CONNECTIONS_MAX:
            self._refuse(ServiceUnavailable("Too many connections. Try again later.", retry_after=1))

    def data_received(self, data: bytes) -> None:
        if self.in_headers:
            self.header_bytes += len(data)
        super().data_received(data)
        if self.in_headers and self.header_bytes > HEADERS_MAX:
            self.send_400_response("The headers are too large.")

    def on_message_begin(self) -> None:
        super().on_message_begin()
        self.reading_since = self.loop.time()
        self.in_headers = True

    def on_headers_complete(self) -> None:
        self.in_headers = False
        self.header_bytes = 0
        super().on_headers_complete()

    def on_message_complete(self) -> None:
        self.reading_since = None
        super().on_message_complete()

    def send_400_response(self, msg: str) -> None:
        self._refuse(InvalidRequest(f"{msg} Send HTTP/1.1 with headers of at most 64 KiB."))

    def _refuse(self, refusal: Refusal) -> None:
        """Answer without the application: what came in is not a request, or there is no room for it."""
        app: Any = self.app
        response: Response = app.refused(refusal)
        head = [STATUS_LINE[response.status]]
        for name, value in (*response.headers, (b"connection", b"close")):
            head.append(b"%s: %s\r\n" % (name, value))
        head.append(b"content-length: %d\r\n\r\n" % len(response.body))
        self.transport.write(b"".join(head) + response.body)
        self.transport.close()

    def impatience(self) -> float:
        """Seconds that the part now being read may take."""
        if self.in_headers:
            return HEADERS_S
        length = next((value for name, value in self.headers if name == b"content-length"), b"0")
        return BODY_S + (int(length) / SLOWEST if length.isdigit() else 0)


async def close_slow(connections: Iterable[Any]) -> None:
    """Close the connections whose request has not arrived in time, until cancelled."""
    loop = asyncio.get_running_loop()
    while True:
        await asyncio.sleep(SWEEP_S)
        now = loop.time()
        for connection in list(connections):
            since = connection.reading_since
            if since is not None and now - since > HEADERS_S and now - since > connection.impatience():
                connection.transport.abort()
