"""Keeps an SMPP session bound: connects, binds, and reconnects with exponential backoff."""

import asyncio
import ssl
from collections.abc import Callable

import structlog

from heliograph.carriers.sms.smpp.pdu import Pdu
from heliograph.carriers.sms.smpp.session import SmppSession, Timings, Unanswered, Unsent

log = structlog.get_logger()


class SmppLink:
    """Connection to one SMSC that reconnects from `open` until `close`."""

    def __init__(
        self,
        host: str,
        port: int,
        *,
        tls: ssl.SSLContext | None,
        bind: bytes,
        window: int,
        timings: Timings,
        deliver: Callable[[SmppSession, Pdu], None],
    ) -> None:
        self._host, self._port, self._tls = host, port, tls
        self._bind = bind
        self._make = lambda: SmppSession(window, timings, deliver)
        self._timings = timings
        self._task: asyncio.Task[None] | None = None
        self._tried = asyncio.Event()  # cleared during a connection attempt
        self.bound: SmppSession | None = None
        self._trouble = "is not connected"
        self._is_stopping = False
        self._closed = False

    def open(self) -> None:
        if self._task is None and not self._closed:
            self._task = asyncio.create_task(self._run())

    async def session(self) -> SmppSession:
        """Return the bound session. Waits for a connection attempt in progress, but not for the next; raises Unsent."""
        if self.bound:
            return self.bound
        self.open()
        if not self._closed:
            await self._tried.wait()
        if self.bound is None:
            raise Unsent(self._trouble)
        return self.bound

    async def stop(self) -> None:
        """Reject new messages, and wait for the responses to messages already sent."""
        self._is_stopping = True
        if self.bound:
            self.bound.stop()
            await self.bound.wait_for_submits()

    async def close(self) -> None:
        """Stop reconnecting and unbind the session."""
        self._closed, self._trouble = True, "is closed"
        self._tried.set()
        session, self.bound = self.bound, None
        if self._task:
            self._task.cancel()
            await asyncio.wait([self._task])
        if session:
            await session.unbind()

    async def _run(self) -> None:
        loop, delay = asyncio.get_running_loop(), self._timings.backoff
        while True:
            self._tried.clear()
            try:
                self.bound = await self._connect()
                if self._is_stopping:
                    self.bound.stop()
            except Exception as error:
                self._tell(_words(error, self._timings))
                self._tried.set()
            else:
                self._trouble = ""
                self._tried.set()
                log.info("smpp bound", host=self._host)
                since = loop.time()
                self._tell(await asyncio.shield(self.bound.gone))
                self.bound = None
                if loop.time() - since > self._timings.backoff_max:
                    delay = self._timings.backoff
            await asyncio.sleep(delay)
            delay = min(delay * 2, self._timings.backoff_max)

    def _tell(self, trouble: str) -> None:
        """Record why no session is bound; log the reason when it changes."""
        if trouble != self._trouble:
            log.warning("smpp not bound", host=self._host, error=trouble)
        self._trouble = trouble

    async def _connect(self) -> SmppSession:
        async with asyncio.timeout(self._timings.connect):
            _, session = await asyncio.get_running_loop().create_connection(
                self._make, self._host, self._port, ssl=self._tls, server_hostname=self._host if self._tls else None
            )
            try:
                await session.bind(self._bind)
            except BaseException:
                session.end("could not be bound")
                raise
        return session


def _words(error: Exception, timings: Timings) -> str:
    match error:
        case TimeoutError():
            return f"could not be bound within {timings.connect:g} s"
        case ssl.SSLCertVerificationError():
            return f"has a certificate that is not trusted: {error.verify_message}"
        case ssl.SSLError():
            return f"failed the TLS handshake: {error.reason}"
        case Unsent() | Unanswered():
            return str(error)
        case OSError():
            return f"cannot be reached: {error.strerror or type(error).__name__}"
        case _:
            return f"cannot be reached: {type(error).__name__}"
