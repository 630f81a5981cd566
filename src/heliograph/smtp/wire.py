"""Byte layer of an SMTP server connection: reads lines and mails, writes replies, with size and time limits."""

import asyncio
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable

import structlog

from heliograph.domain.limits import KIB

log = structlog.get_logger()

LINE_MAX = 12 * KIB + 2  # bytes of a line with its line end (RFC 4954, 4); commands are shorter
UNREAD_MAX = 64 * KIB  # buffered bytes above which reading from the socket is paused
SLOWEST = 32 * KIB  # minimum bytes of a mail per second, in addition to MAIL_S
MAIL_S = 60.0  # base timeout for receiving a mail
WRITE_S = 60.0  # a client that does not read our replies for this long is disconnected
HANDSHAKE_S = 20.0
LEAVE_S = 1.0  # time for a client to read the final reply before the connection is closed
BROKEN = b"421 4.3.0 Something broke, try again later"
END = b"\r\n.\r\n"


class HungUp(Exception):
    """Raised if the client disconnected, does not read, or failed the TLS handshake; no reply is possible."""


class TooSlow(Exception):
    """Raised if a line or mail did not arrive in time."""


class BadLine(Exception):
    """Raised for a line that is too long or has a bare CR or LF, which servers interpret differently (smuggling)."""


class SmtpWire(asyncio.Protocol):
    """One client connection. Once connected, `begin` runs the session in the connection's task."""

    transport: asyncio.Transport

    def __init__(self, begin: Callable[["SmtpWire"], Awaitable[None]]) -> None:
        self._begin = begin
        self._loop = asyncio.get_running_loop()
        self._unread = bytearray()
        self._replies = bytearray()  # unwritten replies; those to pipelined commands are written together
        self._waiting: asyncio.Future[None] | None = None
        self._blocked: asyncio.Future[None] | None = None  # pending while the write buffer is full
        self._paused = self._lost = False
        self.peer = ""
        self.encrypted = False
        self.task: asyncio.Task[None] | None = None

    # -- called by asyncio ---------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport
        self.peer = (transport.get_extra_info("peername") or ("",))[0]
        self.task = self._loop.create_task(self._speak(), name="smtp")

    async def _speak(self) -> None:
        try:
            await self._begin(self)
            await self.flush()
        except HungUp:
            pass
        except Exception:
            log.exception("an SMTP session broke", peer=self.peer)
            self.hang_up(BROKEN)
        finally:
            self.transport.close()

    def data_received(self, data: bytes) -> None:
        self._unread += data
        if len(self._unread) > UNREAD_MAX and not self._paused:
            self._paused = True
            self.transport.pause_reading()
        self._wake()

    def eof_received(self) -> bool:
        self._lost = True
        self._wake()
        return not self.encrypted  # without TLS the client may still read replies

    def connection_lost(self, exc: Exception | None) -> None:
        self._lost = True
        self._wake()
        self.resume_writing()

    def pause_writing(self) -> None:
        self._blocked = self._loop.create_future()

    def resume_writing(self) -> None:
        blocked, self._blocked = self._blocked, None
        if blocked and not blocked.done():
            blocked.set_result(None)

    def _wake(self) -> None:
        if self._waiting is not None and not self._waiting.done():
            self._waiting.set_result(None)

    # -- called by the session -----------------------------------------------------------------------------

    @property
    def has_unread(self) -> bool:
        return bool(self._unread)

    def say(self, reply: bytes) -> None:
        """Buffer a reply line until `flush`."""
        self._replies += reply + b"\r\n"

    async def flush(self) -> None:
        """Write buffered replies, and wait while the write buffer is full; raises HungUp after WRITE_S."""
        if self._replies and not self.transport.is_closing():
            self.transport.write(bytes(self._replies))
        self._replies.clear()
        if self._blocked:
            try:
                async with asyncio.timeout(WRITE_S):
                    await self._blocked
            except TimeoutError:
                self.transport.abort()
                raise HungUp from None

    def hang_up(self, reply: bytes) -> None:
        """Send a final reply and close the connection after LEAVE_S.

        Closing while a command arrives would reset the connection, and the reply would be lost.
        """
        self.transport.write(bytes(self._replies) + reply + b"\r\n")
        self._replies.clear()
        self._loop.call_later(LEAVE_S, self.transport.close)

    def abort(self) -> None:
        self.transport.abort()

    async def line(self, seconds: float) -> bytes:
        """Return the next line without its line end; buffered replies are flushed before waiting.

        Raises TooSlow, BadLine or HungUp.
        """
        until = self._loop.time() + seconds  # for the whole line: single bytes do not extend the deadline
        while (end := self._unread.find(b"\n", 0, LINE_MAX)) < 0:
            if len(self._unread) >= LINE_MAX:
                raise BadLine
            await self._more(until - self._loop.time())
        line = bytes(self._unread[: end + 1])
        del self._unread[: end + 1]
        if not line.endswith(b"\r\n") or b"\r" in line[:-2]:
            raise BadLine
        return line[:-2]

    async def mail(self) -> AsyncIterator[bytes]:
        """Yield the mail in pieces up to the terminating dot line, with dot-stuffing removed.

        Raises TooSlow or HungUp. A caller that stops early must close the connection, because the rest of the mail
        would be read as commands.
        """
        held = b"\r\n"  # the line end of DATA may be the one before the dot (empty mail)
        skipped, size, waited_s = len(held), 0, 0.0
        while True:
            if not self._unread:
                began = self._loop.time()
                await self._more(MAIL_S + size / SLOWEST - waited_s)
                waited_s += self._loop.time() - began
                continue
            piece = held + self._unread
            size += len(self._unread)
            self._unread.clear()
            end = piece.find(END)
            cut = end + 2 if end >= 0 else _safe_cut(piece)
            if cut >= skipped:
                yield piece[:cut].replace(b"\r\n..", b"\r\n.")[skipped:]
                skipped = 0
            held = piece[cut:]
            if end >= 0:
                self._unread += piece[end + len(END) :]
                return

    async def encrypt(self, context: ssl.SSLContext) -> None:
        """Start TLS. Plaintext input after the STARTTLS command is discarded (RFC 3207, 6). Raises HungUp."""
        await self.flush()
        self._unread.clear()
        self._paused = False
        try:
            transport = await self._loop.start_tls(
                self.transport, self, context, server_side=True, ssl_handshake_timeout=HANDSHAKE_S
            )
        except (OSError, ssl.SSLError, ConnectionError):
            raise HungUp from None
        if transport is None:
            raise HungUp
        self.transport = transport
        self.encrypted = True

    async def _more(self, seconds: float) -> None:
        """Flush replies and wait for input; raises TooSlow or HungUp."""
        await self.flush()
        if self._lost:
            raise HungUp
        self._waiting = self._loop.create_future()
        if self._paused:
            self._paused = False
            self.transport.resume_reading()
        try:
            async with asyncio.timeout(seconds):
                await self._waiting
        except TimeoutError:
            raise TooSlow from None


def _safe_cut(piece: bytes) -> int:
    """Return the offset before a trailing line end that may begin the terminating dot line or a doubled dot."""
    cut = piece.find(b"\r", max(0, len(piece) - len(END) + 1))
    return len(piece) if cut < 0 else cut
