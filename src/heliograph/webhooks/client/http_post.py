"""HTTP client for webhooks: sends one POST to a checked address within 15 s, and returns the response.

Unlike aiohttp, it connects only to addresses that passed the SSRF check, and takes a third of the CPU time (ADR 0022).
"""

import asyncio
import os
import socket
import ssl
from collections import defaultdict
from collections.abc import Mapping
from typing import cast

import httptools
import msgspec
from aiohappyeyeballs import start_connection

from heliograph.runtime.deadline import within
from heliograph.runtime.tls_roots import system_roots
from heliograph.webhooks.client.ssrf_guard import CheckedUrl, PostFailed, SsrfGuard
from heliograph.webhooks.policy.request import HEADERS
from heliograph.webhooks.policy.retry import NoResponseReason, retry_after_s
from heliograph.webhooks.policy.webhook_url import Target

TOTAL_S = 15.0
RESPONSE_BODY_MAX = 1024  # maximum bytes of a response body that are stored
READ_MAX = 64 * 1024  # maximum bytes of a response with headers; a longer one closes the connection
CERTIFICATE_EXPIRED = 10  # OpenSSL's X509_V_ERR_CERT_HAS_EXPIRED
# Most receivers close after 5 s; closing earlier avoids sending on a connection that is being closed
KEEP_ALIVE_S = 4.0
NEXT_ADDRESS_S = 0.25  # delay before the host's next address is tried in parallel (RFC 8305)

_COMMON_HEADERS = "".join(
    f"{name}: {value}\r\n" for name, value in {**HEADERS, "Accept": "*/*", "Accept-Encoding": "identity"}.items()
)


class PostResult(msgspec.Struct, frozen=True, kw_only=True):
    status: int | None = None  # None if there was no response
    reason: NoResponseReason | None = None  # why there was no response
    error: str | None = None  # `reason` as a sentence for users
    duration_ms: int
    answer: bytes = b""  # the beginning of the response body
    retry_after_s: int | None = None


class WebhookHttpClient:
    """Sends webhook requests; reuses only connections to an address that the SSRF check of this attempt returned."""

    def __init__(self, guard: SsrfGuard, roots: ssl.SSLContext | None = None, total_s: float = TOTAL_S) -> None:
        self._guard = guard
        self._roots = roots  # None loads the system's roots at the first HTTPS request
        self._total_s = total_s
        self._idle: dict[tuple[str, str, int], list[_Connection]] = defaultdict(list)  # most recently used last
        self._sweep_timer: asyncio.TimerHandle | None = None

    async def post(self, url: str, headers: Mapping[str, str], body: bytes) -> PostResult:
        loop_time = asyncio.get_running_loop().time
        started_at, connection = loop_time(), None
        reason: NoResponseReason | None = None
        error: str | None = None
        try:
            with within(self._total_s):
                checked = await self._guard.check(url)
                connection = self._take_idle(checked) or await self._connect(checked)
                try:
                    await connection.send(_build_request(checked.target, headers, body))
                finally:
                    self._return_to_pool(checked.target, connection)
        except PostFailed as failure:
            reason, error = failure.reason, str(failure)
        except TimeoutError:
            if connection is None:
                reason, error = "no_connection", f"no connection within {self._total_s:g} s"
            # A received status counts, even if the rest of the response fails: then only the body is incomplete.
            elif not connection.status:
                reason, error = "too_slow", f"no response within {self._total_s:g} s"
        duration_ms = round((loop_time() - started_at) * 1000)
        if connection is None:
            return PostResult(reason=reason, error=error, duration_ms=duration_ms)
        status, retry_after = connection.status, connection.retry_after
        return PostResult(
            status=status,
            reason=reason,
            error=error,
            duration_ms=duration_ms,
            answer=bytes(connection.body[:RESPONSE_BODY_MAX]),
            retry_after_s=retry_after_s(status, retry_after, connection.date) if status and retry_after else None,
        )

    async def close(self) -> None:
        for connection in [connection for idle in self._idle.values() for connection in idle]:
            connection.transport.abort()
        if self._sweep_timer:
            self._sweep_timer.cancel()

    # -- connections ---------------------------------------------------------------------------------------------

    def _take_idle(self, checked: CheckedUrl) -> "_Connection | None":
        target = checked.target
        idle = self._idle.get((target.scheme, target.host, target.port))
        while idle:
            connection = idle.pop()
            if connection.address in checked.addresses and connection.is_quiet():
                return connection
            connection.transport.abort()
        return None

    async def _connect(self, checked: CheckedUrl) -> "_Connection":
        target, loop = checked.target, asyncio.get_running_loop()
        socket_type = (socket.SOCK_STREAM, socket.IPPROTO_TCP, "")
        address_infos = [
            (socket.AF_INET6 if ":" in address else socket.AF_INET, *socket_type, (address, target.port))
            for address in checked.addresses
        ]
        server_name = target.host if target.scheme == "https" else None
        tls = (self._roots or system_roots()) if server_name else None
        try:
            sock = await start_connection(address_infos, happy_eyeballs_delay=NEXT_ADDRESS_S)
            address = sock.getpeername()[0]
            _, connection = await loop.create_connection(
                lambda: _Connection(address, sock), sock=sock, ssl=tls, server_hostname=server_name
            )
        except ssl.SSLCertVerificationError as failure:
            expired = failure.verify_code == CERTIFICATE_EXPIRED
            raise PostFailed(
                "certificate_expired" if expired else "tls_failed", f"TLS failed: {failure.verify_message}"
            ) from None
        except ssl.SSLError as failure:
            raise PostFailed("tls_failed", f"TLS failed: {failure.reason or 'handshake failed'}") from None
        except OSError as failure:
            raise PostFailed("no_connection", f"no connection: {_failure_text(failure)}") from None
        return connection

    def _return_to_pool(self, target: Target, connection: "_Connection") -> None:
        if not connection.is_reusable:
            connection.transport.abort()
            return
        loop = asyncio.get_running_loop()
        connection.idle_since = loop.time()
        self._idle[target.scheme, target.host, target.port].append(connection)
        if self._sweep_timer is None:
            self._sweep_timer = loop.call_later(KEEP_ALIVE_S / 2, self._sweep)

    def _sweep(self) -> None:
        """Close idle connections. Runs twice per KEEP_ALIVE_S, so that none stays idle for much longer."""
        loop = asyncio.get_running_loop()
        idle_before = loop.time() - KEEP_ALIVE_S / 2
        for origin, idle in list(self._idle.items()):
            for connection in [
                connection
                for connection in idle
                if connection.idle_since <= idle_before or connection.transport.is_closing()
            ]:
                idle.remove(connection)
                connection.transport.close()
            if not idle:
                del self._idle[origin]
        self._sweep_timer = loop.call_later(KEEP_ALIVE_S / 2, self._sweep) if self._idle else None


class _Connection(asyncio.Protocol):
    """Client connection that sends one request at a time; the `on_…` methods are parser callbacks."""

    def __init__(self, address: str, sock: socket.socket) -> None:
        self.address = address
        self._socket = sock
        self.idle_since = 0.0
        self._response: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._response.set_result(None)  # a result means that no request is pending
        self._parser = httptools.HttpResponseParser(self)
        # Simple receivers make these mistakes, which are harmless: a connection has one origin and one request at a
        # time.
        self._parser.set_dangerous_leniencies(
            lenient_headers=True, lenient_optional_cr_before_lf=True, lenient_spaces_after_chunk_size=True
        )

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)

    def is_quiet(self) -> bool:
        """Return whether nothing arrived since the last response: the parser would take it for the next response."""
        if self.transport.is_closing():
            return False
        try:
            self._socket.recv(1, socket.MSG_PEEK)
            return False
        except OSError as error:
            return isinstance(error, BlockingIOError)

    def send(self, request: bytes) -> "asyncio.Future[None]":
        """Send a request; return a future with the complete response, which may raise PostFailed."""
        self.status: int | None = None
        self.retry_after: str | None = None
        self.date: str | None = None
        self.body = bytearray()
        self.is_reusable = False  # whether the connection can be reused
        self._octets_received = 0
        self._response = asyncio.get_running_loop().create_future()
        self.transport.write(request)
        return self._response

    def data_received(self, octets: bytes) -> None:
        if self._response.done():  # unsolicited bytes
            self.transport.abort()
            return
        accepted_octets = octets[
            : READ_MAX - self._octets_received
        ]  # at most READ_MAX in total, even if more arrives at once
        self._octets_received += len(octets)
        try:
            self._parser.feed_data(accepted_octets)
        except (httptools.HttpParserError, httptools.HttpParserUpgrade):
            self._complete("not_http", "the response is not valid HTTP")
        if self._octets_received > READ_MAX:
            self._complete("not_http", "the response is not valid HTTP")

    def connection_lost(self, error: Exception | None) -> None:
        message = f"the connection failed: {_failure_text(error)}" if error else None
        self._complete("broke_off", message or "the connection was closed before a response")
        del self._parser  # break the reference cycle with the parser

    def _complete(self, reason: NoResponseReason, message: str) -> None:
        """Complete the pending request: successfully if the status arrived, otherwise with PostFailed."""
        if self._response.done():
            return
        if self.status:
            self._response.set_result(None)
        else:
            self._response.set_exception(PostFailed(reason, message))
            self._response.exception()  # mark the exception as retrieved, in case the future is never awaited

    def on_message_begin(self) -> None:
        if self._response.done():  # a second response to the same request
            self.is_reusable = False

    def on_header(self, name: bytes, value: bytes) -> None:
        match name.lower():
            case b"retry-after":
                self.retry_after = value.decode("latin-1")
            case b"date":
                self.date = value.decode("latin-1")

    def on_headers_complete(self) -> None:
        status = self._parser.get_status_code()
        # 1xx responses are interim, except 101: then the connection no longer speaks HTTP
        if self.status is None and (status >= 200 or status == 101):
            self.status = status

    def on_body(self, octets: bytes) -> None:
        if len(self.body) < RESPONSE_BODY_MAX:
            self.body += octets

    def on_message_complete(self) -> None:
        if self.status and not self._response.done():
            self.is_reusable = self._parser.should_keep_alive() and self.status != 101
            self._response.set_result(None)


def _build_request(target: Target, headers: Mapping[str, str], body: bytes) -> bytes:
    header_lines = "".join([f"{name}: {value}\r\n" for name, value in headers.items()])
    request_head = (
        f"POST {target.path_and_query} HTTP/1.1\r\nHost: {target.authority}\r\n{_COMMON_HEADERS}{header_lines}"
    )
    return f"{request_head}Content-Length: {len(body)}\r\n\r\n".encode("latin-1") + body


def _failure_text(failure: Exception) -> str:
    number = failure.errno if isinstance(failure, OSError) else None
    return os.strerror(number) if number else str(failure) or type(failure).__name__
