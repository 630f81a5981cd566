"""Keeps an SMPP session bound: connects, binds, and reconnects with exponential backoff."""

import asyncio
import ssl
from collections.abc import Callable

import structlog

from heliograph.carriers.sms.smpp.pdu import Pdu
from heliograph.carriers.sms.smpp.session import NoSmppResponse, NotSent, SmppSession, Timings

log = structlog.get_logger()


class SmppLink:
    """Connection to one SMSC, which is restored whenever it is lost between `open` and `close`."""

    def __init__(
        self,
        host: str,
        port: int,
        *,
        tls: ssl.SSLContext | None,
        bind_body: bytes,
        window: int,
        timings: Timings,
        handle_inbound: Callable[[SmppSession, Pdu], None],
    ) -> None:
        self._host, self._port, self._tls = host, port, tls
        self._bind_body = bind_body
        self._make_session = lambda: SmppSession(window, timings, handle_inbound)
        self._timings = timings
        self._task: asyncio.Task[None] | None = None
        self._attempted = asyncio.Event()  # cleared during a connection attempt
        self.bound: SmppSession | None = None
        self._unbound_reason = "is not connected"
        self._is_stopping = False
        self._closed = False

    def open(self) -> None:
        if self._task is None and not self._closed:
            self._task = asyncio.create_task(self._run())

    async def session(self) -> SmppSession:
        """Return the bound session. Wait for a running connection attempt, but not for the next; then raise NotSent."""
        if self.bound:
            return self.bound
        self.open()
        if not self._closed:
            await self._attempted.wait()
        if self.bound is None:
            raise NotSent(self._unbound_reason)
        return self.bound

    async def stop(self) -> None:
        """Reject new messages, and wait for the responses to messages already sent."""
        self._is_stopping = True
        if self.bound:
            self.bound.stop()
            await self.bound.wait_for_submits()

    async def close(self) -> None:
        """Stop reconnecting and unbind the session."""
        self._closed, self._unbound_reason = True, "is closed"
        self._attempted.set()
        session, self.bound = self.bound, None
        if self._task:
            self._task.cancel()
            await asyncio.wait([self._task])
        if session:
            await session.unbind()

    async def _run(self) -> None:
        loop, delay = asyncio.get_running_loop(), self._timings.backoff
        while True:
            self._attempted.clear()
            try:
                self.bound = await self._connect()
                if self._is_stopping:
                    self.bound.stop()
            except Exception as error:
                self._set_unbound_reason(_describe_error(error, self._timings))
                self._attempted.set()
            else:
                self._unbound_reason = ""
                self._attempted.set()
                log.info("smpp bound", host=self._host)
                bound_at = loop.time()
                self._set_unbound_reason(await asyncio.shield(self.bound.ended))
                self.bound = None
                if loop.time() - bound_at > self._timings.backoff_max:
                    delay = self._timings.backoff
            await asyncio.sleep(delay)
            delay = min(delay * 2, self._timings.backoff_max)

    def _set_unbound_reason(self, reason: str) -> None:
        """Record why no session is bound; log the reason when it changes."""
        if reason != self._unbound_reason:
            log.warning("smpp not bound", host=self._host, error=reason)
        self._unbound_reason = reason

    async def _connect(self) -> SmppSession:
        async with asyncio.timeout(self._timings.connect):
            _, session = await asyncio.get_running_loop().create_connection(
                self._make_session,
                self._host,
                self._port,
                ssl=self._tls,
                server_hostname=self._host if self._tls else None,
            )
            try:
                await session.bind(self._bind_body)
            except BaseException:
                session.end("could not be bound")
                raise
        return session


def _describe_error(error: Exception, timings: Timings) -> str:
    match error:
        case TimeoutError():
            return f"could not be bound within {timings.connect:g} s"
        case ssl.SSLCertVerificationError():
            return f"has a certificate that is not trusted: {error.verify_message}"
        case ssl.SSLError():
            return f"failed the TLS handshake: {error.reason}"
        case NotSent() | NoSmppResponse():
            return str(error)
        case OSError():
            return f"cannot be reached: {error.strerror or type(error).__name__}"
        case _:
            return f"cannot be reached: {type(error).__name__}"
