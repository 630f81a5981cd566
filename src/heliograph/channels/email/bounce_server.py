"""Returned mail: an SMTP listener for our own signed envelope senders and the abuse address, and nothing else.

Anyone may connect, so everything is limited: connections in all and per peer, recipients, replies, time and octets.
"""

import asyncio
import ssl
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, AnyStr

import msgspec
import structlog
from aiosmtpd.smtp import SMTP, Envelope, Session
from aiosmtpd.smtp import log as library_log

from heliograph.channels.email.dkim import SigningKey
from heliograph.channels.email.parts import READ_MAX, ReceivedMail, read_mail
from heliograph.channels.email.returned import Returned, read_returned, signed_message, signed_sender, to_report
from heliograph.rules import verp
from heliograph.rules.client_address import network_of
from heliograph.rules.ids import PREFIXES, ulid_ms
from heliograph.rules.limits import DAY_MS, MIB
from heliograph.rules.outcome import Report

log = structlog.get_logger()
# It repeats what strangers send, unescaped and unlimited. A filter: who sets up logging anew enables what was disabled.
library_log.addFilter(lambda _: False)

PIECE = 64 * 1024  # octets read from the socket at a time; a line of a mail may be longer
ABUSE = ("abuse@", "postmaster@")
UNKNOWN = "550 5.1.1 No such address here"
BUSY = "421 4.7.0 Too many connections, try again later"
ENOUGH = "421 4.7.0 Too many commands, try again later"

Place = tuple[str, int]  # a message's id and the position of a recipient
Receive = Callable[[str, int, Report], Awaitable[None]]
AddressOf = Callable[[str, int], Awaitable[str | None]]


class ListenLimits(msgspec.Struct, frozen=True, kw_only=True):
    connections: int = 100
    per_peer: int = 20  # connections from one address, or one IPv6 network
    recipients: int = 100  # of a mail; more are deferred (RFC 5321, 4.5.3.1.10)
    replies: int = 1000  # to one connection
    session_s: float = 600
    size: int = 50 * MIB  # of a mail, and so of a line; only the beginning is kept


LIMITS = ListenLimits()


class Returns:
    """aiosmtpd calls this at every step of a session."""

    def __init__(
        self,
        envelope_key: bytes,
        now: Callable[[], int],
        address_of: AddressOf,
        receive: Receive,
        keys_of: Callable[[str], Sequence[SigningKey]],
        limits: ListenLimits = LIMITS,
    ) -> None:
        self._key = envelope_key
        self._now = now
        self._address_of = address_of
        self._receive = receive
        self._keys_of = keys_of
        self._one_by_one = asyncio.Semaphore()
        self.limits = limits
        self.peers = Counter[str]()

    async def handle_RCPT(
        self, server: SMTP, session: Session, envelope: Envelope, address: str, options: list[str]
    ) -> str:
        if len(envelope.rcpt_tos) >= self.limits.recipients:
            return "452 4.5.3 Too many recipients"
        if not self._signed(address) and not address.lower().startswith(ABUSE):
            return UNKNOWN
        envelope.rcpt_tos.append(address)
        return "250 2.1.5 OK"

    async def handle_DATA(self, server: SMTP, session: Session, envelope: Envelope) -> str:
        raw: Any = envelope.content
        mail = await self._in_thread(read_mail, raw)
        for place in await self._places(envelope, mail):
            # None: a message that is gone
            if (ours := await self._address_of(*place)) is None:
                continue
            returned: Returned = await self._in_thread(read_returned, mail, ours)
            log.info("mail returned", kind=returned.kind, status=returned.status, message=place[0])
            if report := to_report(returned):
                await self._receive(*place, report)
        return "250 2.0.0 OK"

    async def _places(self, envelope: Envelope, mail: ReceivedMail) -> list[Place]:
        """Whom it is about: mail to the abuse address is authenticated by the mail that it encloses."""
        signed = [self._signed(address) for address in envelope.rcpt_tos]
        if None in signed:
            sender: str | None = await self._in_thread(signed_sender, mail)
            signed.append(self._signed((sender or "").strip("<> ")) or await self._enclosed(mail))
        return list(dict.fromkeys(place for place in signed if place))

    async def _enclosed(self, mail: ReceivedMail) -> Place | None:
        """Known by our signature in it; with several recipients nobody can say which one complains."""
        id_: str | None = await self._in_thread(signed_message, mail, self._keys_of)
        if id_ is None or self._now() - ulid_ms(id_.removeprefix(PREFIXES["email"])) > verp.DAYS_VALID * DAY_MS:
            return None
        return None if await self._address_of(id_, 1) else (id_, 0)

    async def _in_thread(self, work: Callable[..., Any], *given: object) -> Any:
        """Because a hostile message of 1 MiB takes up to half a second; one at a time, because threads are shared."""
        async with self._one_by_one:
            return await asyncio.to_thread(work, *given)

    async def handle_exception(self, error: Exception) -> str:
        """For example when the database is down: the sending server retries."""
        log.error("returned mail not recorded", error=type(error).__name__)
        return "451 4.3.0 Try again later"

    def _signed(self, address: str) -> Place | None:
        """The message and the position of the recipient that we signed this envelope sender for."""
        return verp.read(self._key, address, self._now())


class BounceConnection(SMTP):
    """One connection."""

    line_length_limit = PIECE

    def __init__(self, returns: Returns, host: str, tls: ssl.SSLContext | None) -> None:
        limits = returns.limits
        super().__init__(
            returns,
            hostname=host or None,
            data_size_limit=limits.size,
            enable_SMTPUTF8=True,
            ident="ESMTP",
            tls_context=tls,
        )
        self._limits = limits
        self._peers = returns.peers
        self._peer: str | None = None  # None: not admitted
        self._replies = 0
        self._deadline: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        if self._peer is not None:  # the same one, inside TLS
            super().connection_made(transport)
            return
        peer = network_of(transport.get_extra_info("peername")[0])
        if self._peers.total() >= self._limits.connections or self._peers[peer] >= self._limits.per_peer:
            transport.write(f"{BUSY}\r\n".encode())
            transport.close()
            return
        self._peer = peer
        self._peers[peer] += 1
        self._deadline = self.loop.call_later(self._limits.session_s, transport.abort)
        super().connection_made(transport)

    def connection_lost(self, error: Exception | None) -> None:
        if self._peer is None or self._deadline is None:
            return
        self._deadline.cancel()
        self._peers.subtract([self._peer])
        if not self._peers[self._peer]:
            del self._peers[self._peer]
        super().connection_lost(error)

    def eof_received(self) -> bool | None:
        return super().eof_received() if self._peer else None

    async def push(self, status: AnyStr) -> None:
        self._replies += 1
        if self._replies <= self._limits.replies:
            await super().push(status)
        elif self.transport is not None:
            await super().push(ENOUGH)
            self.transport.close()
        await asyncio.sleep(0)  # pipelined commands must not keep others waiting

    async def smtp_DATA(self, arg: str | None) -> None:
        """Replaces the library's, which refuses lines over 1,001 octets; real bounces have those."""
        envelope = self.envelope
        if envelope is None or await self.check_helo_needed():
            return
        if arg or not envelope.rcpt_tos:
            await self.push("501 5.5.4 Syntax: DATA" if arg else "503 5.5.1 RCPT first")
            return
        await self.push("354 End data with <CR><LF>.<CR><LF>")
        # The mail ends with a dot between two line ends; the first may be that of the command.
        self._reader._buffer[:0] = b"\r\n"  # type: ignore[attr-defined]
        kept, size, ended = bytearray(), 0, False
        while not ended:
            try:
                piece = await self._reader.readuntil(b"\r\n.\r\n")
                ended = True
            except asyncio.LimitOverrunError as more:
                piece = await self._reader.read(more.consumed)
            self._reset_timeout()
            size += len(piece)
            kept += piece[: READ_MAX - len(kept)]
        if size <= self._limits.size:
            envelope.content = bytes(kept.removesuffix(b".\r\n").replace(b"\r\n..", b"\r\n.")[2:])
            status = await self._call_handler_hook("DATA")
        else:
            status = "552 5.3.4 The mail is too large"
        self.envelope = self._create_envelope()
        await self.push(status)


def protocol(
    returns: Returns, host: str, tls: Callable[[], ssl.SSLContext | None] = lambda: None
) -> Callable[[], BounceConnection]:
    """For `loop.create_server`; `tls` is for STARTTLS, and None where there is no certificate."""
    return lambda: BounceConnection(returns, host, tls())
