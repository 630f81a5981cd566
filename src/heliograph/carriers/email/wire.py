"""Byte layer of an SMTP client connection: writes commands and mails, and parses replies of limited size."""

import asyncio
import re
import ssl
from collections import deque
from collections.abc import Iterable, Iterator
from typing import cast

from heliograph.inbound.policy.smtp_reply import Reply, read_reply
from heliograph.runtime.deadline import within

LINE_MAX = 2048  # bytes of a reply line; RFC 5321 requires 512
LINES_MAX = 100  # maximum lines of one reply
UNREAD_REPLIES_MAX = 8  # maximum unread replies; we never pipeline as many commands

_LINE_END = re.compile(rb"\r\n|\r|\n")
_ALL_BUT_LINE_ENDS = bytes(octet for octet in range(256) if octet not in b"\r\n")


class ProtocolError(Exception):
    """Raised if the connection is lost or the server violates the protocol."""


class TlsError(ProtocolError):
    """Raised if TLS cannot be established as required."""


class SmtpClientConnection(asyncio.Protocol):
    """asyncio protocol of an SMTP client connection."""

    transport: asyncio.Transport

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._partial = b""
        self._lines: list[bytes] = []
        self._replies: deque[Reply] = deque()
        self._failure: str | None = None
        self._waiter: asyncio.Future[None] | None = None
        self._writable = asyncio.Event()
        self._writable.set()

    # -- called by the event loop --

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)

    def connection_lost(self, exc: Exception | None) -> None:
        self._fail("closed the connection")

    def pause_writing(self) -> None:
        self._writable.clear()

    def resume_writing(self) -> None:
        self._writable.set()

    def data_received(self, data: bytes) -> None:
        *lines, self._partial = (self._partial + data).split(b"\n")
        for line in lines:
            if self._failure is None:
                self._add_line(line.removesuffix(b"\r"))
        if len(self._partial) > LINE_MAX:
            self._fail("sent a line that is too long")

    def _add_line(self, line: bytes) -> None:
        self._lines.append(line)
        if len(line) > LINE_MAX or len(self._lines) > LINES_MAX or len(self._replies) >= UNREAD_REPLIES_MAX:
            self._fail("sent a reply that is too long")
        elif line[3:4] != b"-":
            reply = read_reply(self._lines)
            self._lines = []
            if reply is None:
                self._fail("sent an invalid SMTP reply")
            else:
                self._replies.append(reply)
                self._wake_reader()

    def _fail(self, reason: str) -> None:
        """Mark the connection as broken and abort it."""
        if self._failure is None:
            self._failure = reason
            self._lines = []
            self._writable.set()
            self._wake_reader()
            self.transport.abort()

    def _wake_reader(self) -> None:
        if self._waiter and not self._waiter.done():
            self._waiter.set_result(None)

    # -- called by the session --

    @property
    def is_clean(self) -> bool:
        """Return whether the connection is open and has no unexpected input."""
        return not (self._failure or self._replies or self._lines or self._partial)

    @property
    def has_reply(self) -> bool:
        return bool(self._replies)

    def write(self, data: bytes) -> None:
        if self._failure is None:
            self.transport.write(data)

    async def drain(self, seconds: float) -> None:
        """Wait until the write buffer has space again; raise ProtocolError if the connection is broken."""
        if not self._writable.is_set():
            async with asyncio.timeout(seconds):
                await self._writable.wait()
        if self._failure:
            raise ProtocolError(self._failure)

    async def next_reply(self, seconds: float) -> Reply:
        """Return the next reply; raises TimeoutError if it is not complete in time.

        Replies that arrived before the connection broke are still returned.
        """
        if not self._replies:  # replies to pipelined commands usually arrive together
            await self._wait_for_reply(seconds)
        return self._replies.popleft()

    async def _wait_for_reply(self, seconds: float) -> None:
        with within(seconds):
            while not self._replies:
                if self._failure:
                    raise ProtocolError(self._failure)
                self._waiter = self._loop.create_future()
                await self._waiter

    async def start_tls(self, context: ssl.SSLContext, host: str, seconds: float) -> None:
        """Start TLS. Raises TlsError if the handshake fails."""
        if not self.is_clean:  # plaintext input must not be treated as received over TLS
            raise TlsError("sent plaintext after STARTTLS")
        try:
            transport = await self._loop.start_tls(
                self.transport, self, context, server_hostname=host, ssl_handshake_timeout=seconds
            )
        except (OSError, ValueError) as error:  # SSLError is an OSError; ValueError: the host is not a valid name
            raise TlsError(describe_tls_error(error)) from None
        if transport is None:
            raise TlsError("closed the connection during the TLS handshake")
        self.transport = transport


def dot_stuff(chunks: Iterable[bytes]) -> Iterator[bytes]:
    """Yield the mail as sent after DATA, without the final dot: line ends as CRLF, leading dots doubled."""
    last_bytes, pending_cr = b"\r\n", b""  # the last two bytes yielded; a CR whose LF may be in the next chunk
    for chunk in chunks:
        text = pending_cr + chunk
        pending_cr = text[-1:] if text.endswith(b"\r") else b""
        text = text[: len(text) - len(pending_cr)]
        if len(text.translate(None, _ALL_BUT_LINE_ENDS)) != 2 * text.count(b"\r\n"):
            text = _LINE_END.sub(b"\r\n", text)
        text = last_bytes + text
        last_bytes = text[-2:]
        yield text.replace(b"\r\n.", b"\r\n..")[2:]
    if pending_cr or last_bytes != b"\r\n":
        yield b"\r\n"


def describe_tls_error(error: Exception) -> str:
    """Describe a failed TLS handshake."""
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"the certificate is not trusted: {error.verify_message}"
    return f"the TLS handshake failed: {getattr(error, 'reason', None) or type(error).__name__}"
