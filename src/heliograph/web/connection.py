"""HTTP/1.1 server protocol: reads requests and writes responses in order and within limits (ADR 0024).

httptools parses. This module adds deadlines for slow headers and bodies, limits of header size and connections,
pipelining, back-pressure in both directions, and a graceful shutdown that finishes requests in progress.
"""

import asyncio
import re
import socket
from collections import deque
from collections.abc import AsyncGenerator
from contextlib import aclosing
from http import HTTPStatus
from typing import Any
from urllib.parse import unquote

import httptools
import structlog

from heliograph.domain.limits import KIB
from heliograph.domain.refusals import InternalError, InvalidRequest
from heliograph.runtime.async_wait import wait_event
from heliograph.runtime.listening import stop_accepting
from heliograph.web.dispatcher import Dispatcher
from heliograph.web.request import ClientDisconnected, Headers, Request, Response

log = structlog.get_logger()

HEADERS_S = 10.0  # deadline for complete headers, counted from connecting or from the first byte of a request
BODY_S = 5.0  # seconds that a body may be behind MIN_BODY_RATE; then the connection is closed
KEEP_ALIVE_S = 75.0  # idle connections are closed after this; most clients close theirs earlier
CLIENT_STALL_S = 60.0  # a client that reads none of its response for this long is disconnected
MIN_BODY_RATE = 32 * KIB  # minimum rate of a request body, in bytes per second
HEADERS_MAX = 64 * KIB
PIECE_BYTES = 16 * KIB  # received bytes are parsed in pieces of this size
UNREAD_MAX = 64 * KIB  # number of unread body bytes at which reading is paused
CONNECTIONS_MAX = 4096
NOT_HTTP_MESSAGE = "Invalid HTTP request received."
VERSIONS = ("1.1", "1.0")
_HOST = re.compile(rb"[A-Za-z0-9._~%!$&'()*+,;=:\[\]-]+")  # host with optional port (RFC 3986, 3.2.2)
HEADERS_TOO_LARGE_MESSAGE = "The headers are too large."
SWEEP_S = 1.0  # interval of the check for slow and idle connections

STATUS_LINE = {status.value: f"HTTP/1.1 {status.value} {status.phrase}\r\n".encode() for status in HTTPStatus}
# Receive buffer shared by all connections; the parser copies what it keeps. asyncio would allocate 256 KiB per read.
RECEIVE_BUFFER = memoryview(bytearray(64 * KIB))
CONTINUE_RESPONSE = STATUS_LINE[100] + b"\r\n"


class Connection(asyncio.BufferedProtocol):
    """A client connection.

    Requests are answered one after the other; while pipelined requests wait, reading is paused.
    """

    _transport: asyncio.Transport

    def __init__(self, connections: "Connections") -> None:
        self._connections = connections
        self._loop = asyncio.get_running_loop()
        self._parser: Any = httptools.HttpRequestParser(self)
        self._handler: Any = connections.dispatcher
        self._address = ""
        # State of the request being read:
        self._url = b""
        self._headers: Headers = []
        self._reading: Request | None = None  # the request whose body is being read
        self._reading_since: float | None = self._loop.time()
        self._in_headers = True
        self._message_count = 0
        self._header_bytes = 0  # bytes received since the last body byte, so part of headers or trailers
        self._body_bytes = 0
        self._swept_bytes = 0  # _body_bytes at the last sweep
        self._lag_s = 0.0  # seconds behind the minimum rate; never negative, so that a fast start earns no credit
        self._read_paused = False
        # No more input is parsed, because the last request has arrived or the input was invalid.
        self._input_ended = False
        # The response was sent before the end of the request body; the rest of the body is discarded.
        self._discarding_body = False
        self._pending_error = ""  # error message about invalid input, sent after the pending responses
        # State of the request being answered:
        self._answering: Request | None = None
        self._task: asyncio.Task[None] | None = None
        self._pipelined: deque[Request] = deque()
        self._streaming = False
        self._write_paused: asyncio.Future[None] | None = None  # resolved when the client reads again
        self._unread = 0  # bytes in the write buffer at the last sweep
        self._unread_since = 0.0  # when _unread last changed
        self._idle_since: float | None = None

    # -- reading -------------------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        peer = transport.get_extra_info("peername")
        self._address = peer[0] if peer else ""
        self._connections.add(self)
        if len(self._connections) > self._connections.limit:
            # answer before closing: closing at once would reset the connection
            self._handler = self._connections.dispatcher.reject_overload

    def connection_lost(self, exc: Exception | None) -> None:
        self._parser = None  # break the reference cycle with the parser
        for request in (self._reading, self._answering, *self._pipelined):
            if request is not None:
                request.hang_up()
        self._pipelined.clear()
        self._reading = None
        self._input_ended = True
        self.resume_writing()
        if self._task is None:
            self._connections.discard(self)
        elif self._streaming:
            self._task.cancel()

    def get_buffer(self, sizehint: int) -> memoryview:
        return RECEIVE_BUFFER

    def buffer_updated(self, nbytes: int) -> None:
        for start in range(0, nbytes, PIECE_BYTES):
            self.data_received(RECEIVE_BUFFER[start : min(start + PIECE_BYTES, nbytes)])

    def data_received(self, data: bytes | memoryview) -> None:
        """Parse one piece of the received bytes."""
        if self._input_ended:
            return
        starts_request = self._reading_since is None or not self._message_count  # these bytes begin a request
        message_count, body_bytes = self._message_count + starts_request, self._body_bytes
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserUpgrade:
            pass  # an upgrade request is the last request of the connection
        except httptools.HttpParserError:
            if not self._input_ended:
                self._reject_input(NOT_HTTP_MESSAGE)
            return
        if self._reading_since is None or self._message_count > message_count or self._body_bytes != body_bytes:
            return
        self._header_bytes += len(data)
        if self._header_bytes > HEADERS_MAX:
            self._reject_input(HEADERS_TOO_LARGE_MESSAGE)

    def on_message_begin(self) -> None:
        if self._input_ended:
            raise ValueError("no further request is accepted")  # stops the parser
        self._url = b""
        self._headers = []
        self._idle_since = None
        self._reading_since = self._loop.time()
        self._in_headers = True
        self._message_count += 1
        self._header_bytes = self._body_bytes = self._swept_bytes = 0
        self._lag_s = 0.0

    def on_url(self, url: bytes) -> None:
        self._url += url

    def on_header(self, name: bytes, value: bytes) -> None:
        self._headers.append((name.lower(), value.rstrip(b" \t")))  # whitespace around a value is not part of the value

    def on_headers_complete(self) -> None:
        parser, headers = self._parser, self._headers
        method = parser.get_method()
        # With fewer received bytes the limit cannot be exceeded, so most requests skip this sum.
        if self._header_bytes > HEADERS_MAX - 2 * PIECE_BYTES:
            request_line_size = len(b"%s %s HTTP/1.1\r\n" % (method, self._url))
            if request_line_size + sum(len(b"%s: %s\r\n" % header) for header in headers) + 2 > HEADERS_MAX:
                raise ValueError(HEADERS_TOO_LARGE_MESSAGE)
        url = httptools.parse_url(self._url)
        path = url.path.decode("ascii")
        self._in_headers = False
        self._header_bytes = 0
        version = parser.get_http_version()
        if version not in VERSIONS:
            raise ValueError(NOT_HTTP_MESSAGE)
        self._headers = []  # a new list, because trailers must not be added to the request's headers
        self._reading = request = Request(
            method.decode("ascii"),
            unquote(path) if "%" in path else path,
            headers,
            raw_path=url.path,
            query_string=url.query or b"",
            address=self._address,
            version=version,
            keep_alive=version != "1.0" and parser.should_keep_alive() and not parser.should_upgrade(),
            need_more=self._resume_body,
        )
        # HTTP/1.1 requires exactly one Host header (RFC 9112, 3.2): with two, a proxy might use one and we the other.
        has_two_hosts = len(request.headers) < len(headers) and len(request.values(b"host")) > 1
        if version == "1.1" and (has_two_hosts or not _HOST.fullmatch(request.headers.get(b"host", b""))):
            self._reading = None
            raise ValueError(NOT_HTTP_MESSAGE)
        if self._answering is None:
            self._start_answer(request)
        else:
            self._pipelined.append(request)
            self._pause_reading()

    def on_body(self, body: bytes) -> None:
        self._header_bytes = 0
        self._body_bytes += len(body)
        # `_reading` is None if the response was already sent; the rest of the body is then discarded.
        if self._reading and self._reading.feed(body) > UNREAD_MAX:
            self._pause_reading()

    def on_message_complete(self) -> None:
        self._reading_since = None
        if self._reading:
            self._reading.end()
            self._input_ended = not self._reading.keep_alive
            self._reading = None
        elif self._discarding_body:
            self._input_ended = True
            self._transport.close()

    def _resume_body(self) -> None:
        """Resume reading the body because the handler needs more; send 100 Continue if the client expects it."""
        if self._answering and self._answering.headers.pop(b"expect", b"").lower() == b"100-continue":
            self._transport.write(CONTINUE_RESPONSE)
        self._resume_reading()

    def _pause_reading(self) -> None:
        if not self._read_paused:
            self._read_paused = True
            self._transport.pause_reading()

    def _resume_reading(self) -> None:
        if self._read_paused:
            self._read_paused = False
            if self._reading_since is not None:
                self._reading_since = self._loop.time()
            self._transport.resume_reading()

    def _reject_input(self, message: str) -> None:
        """Report invalid input to the client after the responses to earlier requests, then close the connection."""
        self._input_ended = True
        if self._discarding_body:
            self._transport.close()
            return
        if self._streaming and self._answering is self._reading:  # an error cannot be sent inside a streamed response
            self._transport.abort()
            return
        if self._answering is None or self._answering is self._reading:  # nothing earlier is pending
            self._send_refusal(message)
            return
        if self._reading:  # the body of the last request is incomplete
            self._pipelined.pop()
        self._pending_error = message
        self._pause_reading()

    def _send_refusal(self, message: str) -> None:
        refusal = InvalidRequest(f"{message} Send HTTP/1.1 with one Host and headers of at most 64 KiB.")
        response = self._connections.dispatcher.refusal_response(refusal, self._answering)
        self._transport.write(_encode_head(response, close=True) + response.body)
        self._transport.close()

    def sweep(self, now: float) -> None:
        """Close the connection if it is too slow or idle.

        Called for all connections every SWEEP_S, because timers for each of them would cost more.
        """
        if (unread := self._transport.get_write_buffer_size()) != self._unread:
            self._unread, self._unread_since = unread, now
        if self.is_too_slow(now) or (unread and now - self._unread_since > CLIENT_STALL_S):
            self._transport.abort()
        elif self._idle_since is not None and now - self._idle_since > KEEP_ALIVE_S:
            self._transport.close()

    def is_too_slow(self, now: float) -> bool:
        """Return whether the client sends slower than allowed. Time in which reading was paused does not count."""
        if self._reading_since is None or self._read_paused:
            return False
        if self._in_headers:
            return now - self._reading_since > HEADERS_S
        received, self._swept_bytes = self._body_bytes - self._swept_bytes, self._body_bytes
        self._lag_s = max(0.0, self._lag_s + SWEEP_S - received / MIN_BODY_RATE)
        return self._lag_s > BODY_S

    # -- answering -----------------------------------------------------------------------------------------

    def _start_answer(self, request: Request) -> None:
        self._answering = request
        self._task = self._loop.create_task(self._answer(request))

    async def _answer(self, request: Request) -> None:
        try:
            response = await self._handler(request)
            if self._write_paused:
                await self._write_paused
            if not self._transport.is_closing():
                close = not request.keep_alive or (self._connections.draining and not self._pipelined)
                if response.chunks is None:
                    self._write(request, response, close=close)
                else:
                    await self._stream(request, response, response.chunks, close=close)
                if close:
                    self._close_after(request)
        except ClientDisconnected:
            pass
        except asyncio.CancelledError:  # the client closed a streamed response, or the drain timeout expired
            self._transport.abort()
        except Exception:
            log.exception("request failed", path=request.path, address=request.address)
            self._transport.abort()
        if request.response_reservation:
            await self._wait_until_sent(request)
        self._finish_answer()

    async def _wait_until_sent(self, request: Request) -> None:
        """Wait until the client has read a large response or timed out, then release the reserved memory."""
        try:
            if self._write_paused:
                unsent_bytes = self._transport.get_write_buffer_size()
                request.shrink_reservation(unsent_bytes)
                async with asyncio.timeout(BODY_S + unsent_bytes / MIN_BODY_RATE):
                    await asyncio.shield(self._write_paused)
        except (TimeoutError, asyncio.CancelledError):  # cancelled if the drain timeout expired
            self._transport.abort()
        finally:
            request.release_reservation()

    def _close_after(self, request: Request) -> None:
        """Close the connection after the response.

        While the request body still arrives, only the write side is closed: closing the socket would reset the
        connection, and most clients would lose the response.
        """
        is_within_limit = self._handler is self._connections.dispatcher
        if self._reading is request and is_within_limit:
            self._discarding_body = True
            self._transport.write_eof()
        else:
            self._transport.close()

    def _write(self, request: Request, response: Response, *, close: bool) -> None:
        """Write head and body of the response with one system call."""
        try:
            response_head = _encode_head(response, close=close)
        except ValueError:
            log.exception("request failed", path=request.path, address=request.address)
            response = self._connections.dispatcher.refusal_response(InternalError(), request)
            response_head = _encode_head(response, close=close)
        self._transport.write(response_head if request.method == "HEAD" else response_head + response.body)

    async def _stream(
        self, request: Request, response: Response, chunks: AsyncGenerator[bytes, None], *, close: bool
    ) -> None:
        chunked = request.version != "1.0"
        async with aclosing(chunks):
            self._transport.write(_encode_head(response, close=close, chunked=chunked))
            self._streaming = True
            if request.method == "HEAD":
                return
            async for chunk in chunks:
                if not chunk:  # an empty chunk would end the response
                    continue
                self._transport.write(b"%x\r\n%s\r\n" % (len(chunk), chunk) if chunked else chunk)
                if self._write_paused:
                    await self._write_paused
            if chunked:
                self._transport.write(b"0\r\n\r\n")

    def _finish_answer(self) -> None:
        if self._reading is self._answering:
            self._reading = None  # the rest of the request body is discarded
        self._task = self._answering = None
        self._streaming = False
        if self._parser is None:
            self._connections.discard(self)
        if self._transport.is_closing():
            return
        if self._pipelined:
            self._start_answer(self._pipelined.popleft())
        elif self._pending_error:
            self._send_refusal(self._pending_error)
        elif self._connections.draining and not self._discarding_body:  # draining began while the response was sent
            self._transport.close()
        else:
            self._idle_since = self._loop.time()
        if self._read_paused and not self._pipelined:
            self._resume_reading()

    def pause_writing(self) -> None:
        self._write_paused = self._loop.create_future()

    def resume_writing(self) -> None:
        future, self._write_paused = self._write_paused, None
        if future and not future.done():  # done if the response that waited was cancelled
            future.set_result(None)

    # -- stopping ------------------------------------------------------------------------------------------

    def close_if_idle(self) -> None:
        if self._answering is None:
            self._transport.close()

    async def abort(self) -> None:
        if self._task:
            self._task.cancel()
            await asyncio.wait([self._task])


def _encode_head(response: Response, *, close: bool, chunked: bool | None = None) -> bytes:
    lines = [b"%s: %s\r\n" % header for header in response.headers]
    if chunked is None:
        lines.append(b"content-length: %d\r\n" % len(response.body))
    elif chunked:
        lines.append(b"transfer-encoding: chunked\r\n")
    if close:
        lines.append(b"connection: close\r\n")
    response_head = b"%scontent-type: %s\r\n%s\r\n" % (
        STATUS_LINE[response.status],
        response.content_type,
        b"".join(lines),
    )
    if response_head.count(b"\n") != len(lines) + 3 or response_head.count(b"\r") != len(lines) + 3:
        raise ValueError("a header contains a line break")
    return response_head


class Connections:
    """All connections of a process, including closed ones whose request is still in progress."""

    def __init__(self, dispatcher: Dispatcher, limit: int = CONNECTIONS_MAX) -> None:
        self.dispatcher = dispatcher
        self.limit = limit
        self.draining = False
        self._open: set[Connection] = set()
        self._all_closed = asyncio.Event()

    def __len__(self) -> int:
        return len(self._open)

    def add(self, connection: Connection) -> None:
        self._open.add(connection)

    def discard(self, connection: Connection) -> None:
        self._open.discard(connection)
        if not self._open:
            self._all_closed.set()

    async def listen(self, sock: socket.socket, backlog: int) -> None:
        loop = asyncio.get_running_loop()
        self._server = await loop.create_server(lambda: Connection(self), sock=sock, backlog=backlog)

    async def sweep(self) -> None:
        """Close slow and idle connections every SWEEP_S until cancelled."""
        loop = asyncio.get_running_loop()
        while True:
            await asyncio.sleep(SWEEP_S)
            now = loop.time()
            for connection in list(self._open):
                connection.sweep(now)

    async def drain_after_last_request(self, seconds: float) -> None:
        """Stop accepting connections; close the open ones after one more request, for which they have `seconds`."""
        self.draining = True
        await stop_accepting(self._server)
        await self._wait_all_closed(seconds)

    async def drain(self, seconds: float) -> None:
        """Stop accepting connections, close idle ones, and give requests in progress `seconds` to finish."""
        self.draining = True
        await stop_accepting(self._server)
        for connection in list(self._open):
            connection.close_if_idle()
        await self._wait_all_closed(seconds)
        await asyncio.gather(*(connection.abort() for connection in self._open))

    async def _wait_all_closed(self, seconds: float) -> None:
        self._all_closed.clear()
        if self._open:
            await wait_event(self._all_closed, seconds)
