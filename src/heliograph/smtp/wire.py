"""Byte layer of an SMTP server connection: reads lines and mails, writes replies, with size and time limits."""

import asyncio
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable

import structlog

from heliograph.domain.limits import KIB

log = structlog.get_logger()

LINE_MAX = 12 * KIB + 2  # maximum bytes of a line with its line end, for AUTH (RFC 4954, 4); commands are shorter
READ_BUFFER_MAX = 64 * KIB  # buffered bytes above which reading from the socket is paused
MAIL_BYTES_PER_S_MIN = 32 * KIB  # minimum rate of a mail; MAIL_BASE_TIMEOUT_S is added to the resulting time
MAIL_BASE_TIMEOUT_S = 60.0  # base timeout for receiving a mail
WRITE_TIMEOUT_S = 60.0  # a client that does not read our replies for this long is disconnected
HANDSHAKE_TIMEOUT_S = 20.0
CLOSE_DELAY_S = 1.0  # time for the client to read the final reply
INTERNAL_ERROR = b"421 4.3.0 Internal error, try again later"
END_OF_MAIL = b"\r\n.\r\n"


class ConnectionClosed(Exception):
    """Raised if the client disconnected, does not read replies, or failed the TLS handshake."""


class ReadTimeout(Exception):
    """Raised if a line or mail did not arrive in time."""


class InvalidLine(Exception):
    """Raised for a line that is too long or has a bare CR or LF, which allows SMTP smuggling."""


class SmtpServerConnection(asyncio.Protocol):
    """A client connection. `run_session` runs the session in the connection's own task."""

    transport: asyncio.Transport

    def __init__(self, run_session: Callable[["SmtpServerConnection"], Awaitable[None]]) -> None:
        self._run_session = run_session
        self._loop = asyncio.get_running_loop()
        self._unread = bytearray()
        self._replies = bytearray()  # replies not written yet; those to pipelined commands are written together
        self._data_waiter: asyncio.Future[None] | None = None
        self._drain_waiter: asyncio.Future[None] | None = None  # pending while the write buffer is full
        self._is_reading_paused = self._is_closed = False
        self.peer = ""
        self.is_encrypted = False
        self.task: asyncio.Task[None] | None = None

    # -- called by asyncio ---------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport
        self.peer = (transport.get_extra_info("peername") or ("",))[0]
        self.task = self._loop.create_task(self._run(), name="smtp")

    async def _run(self) -> None:
        try:
            await self._run_session(self)
            await self.flush()
        except ConnectionClosed:
            pass
        except Exception:
            log.exception("SMTP session failed", peer=self.peer)
            self.close_after_reply(INTERNAL_ERROR)
        finally:
            self.transport.close()

    def data_received(self, data: bytes) -> None:
        self._unread += data
        if len(self._unread) > READ_BUFFER_MAX and not self._is_reading_paused:
            self._is_reading_paused = True
            self.transport.pause_reading()
        self._wake_reader()

    def eof_received(self) -> bool:
        self._is_closed = True
        self._wake_reader()
        return not self.is_encrypted  # without TLS, the client may still read replies after it closed its side

    def connection_lost(self, exc: Exception | None) -> None:
        self._is_closed = True
        self._wake_reader()
        self.resume_writing()

    def pause_writing(self) -> None:
        self._drain_waiter = self._loop.create_future()

    def resume_writing(self) -> None:
        waiter, self._drain_waiter = self._drain_waiter, None
        if waiter and not waiter.done():
            waiter.set_result(None)

    def _wake_reader(self) -> None:
        if self._data_waiter is not None and not self._data_waiter.done():
            self._data_waiter.set_result(None)

    # -- called by the session -----------------------------------------------------------------------------

    @property
    def has_unread(self) -> bool:
        return bool(self._unread)

    def write_line(self, reply: bytes) -> None:
        """Buffer a reply line until `flush`."""
        self._replies += reply + b"\r\n"

    async def flush(self) -> None:
        """Write buffered replies, and wait while the write buffer is full; raises ConnectionClosed on timeout."""
        if self._replies and not self.transport.is_closing():
            self.transport.write(bytes(self._replies))
        self._replies.clear()
        if self._drain_waiter:
            try:
                async with asyncio.timeout(WRITE_TIMEOUT_S):
                    await self._drain_waiter
            except TimeoutError:
                self.transport.abort()
                raise ConnectionClosed from None

    def close_after_reply(self, reply: bytes) -> None:
        """Send a final reply and close the connection after CLOSE_DELAY_S.

        Closing while a command arrives would reset the connection, and the reply would be lost.
        """
        self.transport.write(bytes(self._replies) + reply + b"\r\n")
        self._replies.clear()
        self._loop.call_later(CLOSE_DELAY_S, self.transport.close)

    def abort(self) -> None:
        self.transport.abort()

    async def read_line(self, timeout_s: float) -> bytes:
        """Return the next line without its line end; buffered replies are flushed before waiting.

        Raises ReadTimeout, InvalidLine or ConnectionClosed.
        """
        deadline = self._loop.time() + timeout_s  # of the whole line, so that single bytes do not extend it
        while (end := self._unread.find(b"\n", 0, LINE_MAX)) < 0:
            if len(self._unread) >= LINE_MAX:
                raise InvalidLine
            await self._wait_for_data(deadline - self._loop.time())
        line = bytes(self._unread[: end + 1])
        del self._unread[: end + 1]
        if not line.endswith(b"\r\n") or b"\r" in line[:-2]:
            raise InvalidLine
        return line[:-2]

    async def read_mail(self) -> AsyncIterator[bytes]:
        """Yield the mail in pieces up to the terminating dot line, with dot-stuffing removed.

        Raises ReadTimeout or ConnectionClosed. A caller that stops early must close the connection, because the rest of
        the mail would be read as commands.
        """
        pending_bytes = b"\r\n"  # in an empty mail, the dot follows the line end of DATA
        skip, size, waited_s = len(pending_bytes), 0, 0.0
        while True:
            if not self._unread:
                started_at = self._loop.time()
                await self._wait_for_data(MAIL_BASE_TIMEOUT_S + size / MAIL_BYTES_PER_S_MIN - waited_s)
                waited_s += self._loop.time() - started_at
                continue
            piece = pending_bytes + self._unread
            size += len(self._unread)
            self._unread.clear()
            end = piece.find(END_OF_MAIL)
            yield_end = end + 2 if end >= 0 else _safe_end(piece)
            if yield_end >= skip:
                yield piece[:yield_end].replace(b"\r\n..", b"\r\n.")[skip:]
                skip = 0
            pending_bytes = piece[yield_end:]
            if end >= 0:
                self._unread += piece[end + len(END_OF_MAIL) :]
                return

    async def start_tls(self, context: ssl.SSLContext) -> None:
        """Start TLS. Plaintext input after the STARTTLS command is discarded (RFC 3207, 6). Raises ConnectionClosed."""
        await self.flush()
        self._unread.clear()
        self._is_reading_paused = False
        try:
            transport = await self._loop.start_tls(
                self.transport, self, context, server_side=True, ssl_handshake_timeout=HANDSHAKE_TIMEOUT_S
            )
        except (OSError, ssl.SSLError, ConnectionError):
            raise ConnectionClosed from None
        if transport is None:
            raise ConnectionClosed
        self.transport = transport
        self.is_encrypted = True

    async def _wait_for_data(self, timeout_s: float) -> None:
        """Flush replies and wait for input; raises ReadTimeout or ConnectionClosed."""
        await self.flush()
        if self._is_closed:
            raise ConnectionClosed
        self._data_waiter = self._loop.create_future()
        if self._is_reading_paused:
            self._is_reading_paused = False
            self.transport.resume_reading()
        try:
            async with asyncio.timeout(timeout_s):
                await self._data_waiter
        except TimeoutError:
            raise ReadTimeout from None


def _safe_end(piece: bytes) -> int:
    """Return how many bytes to yield: all before a line end that may begin the end-of-mail mark."""
    end = piece.find(b"\r", max(0, len(piece) - len(END_OF_MAIL) + 1))
    return len(piece) if end < 0 else end
