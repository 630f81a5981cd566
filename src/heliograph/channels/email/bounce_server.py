"""What comes back: an SMTP listener for our own signed envelope senders, the abuse address and the addresses of teams.

Anyone may connect, so everything is limited: connections in all and per peer, recipients, replies, time and octets.
"""

import asyncio
import ssl
import tempfile
from collections import Counter
from collections.abc import Awaitable, Callable, Collection, Sequence
from pathlib import Path
from typing import IO, Any, AnyStr

import msgspec
import structlog
from aiosmtpd.smtp import SMTP, Envelope, Session
from aiosmtpd.smtp import log as library_log

from heliograph.channels.email.authentication import Evidence, ask_about
from heliograph.channels.email.dkim import SigningKey
from heliograph.channels.email.parts import READ_MAX, ReceivedMail, read_mail
from heliograph.channels.email.received import TeamMail, read_received
from heliograph.channels.email.returned import Returned, read_returned, signed_message, signed_sender, to_report
from heliograph.channels.email.spf import Ask, Sending
from heliograph.rules.client_address import network_of
from heliograph.rules.delivery.outcome import Report
from heliograph.rules.ids import PREFIXES, ulid_ms
from heliograph.rules.limits import DAY_MS, MIB, MINUTE_MS, SECOND_MS
from heliograph.rules.mail import verp
from heliograph.rules.mail.incoming import HOPS_MAX, Authentication
from heliograph.rules.mail.mime_tree import HEADER_MAX, pieced
from heliograph.rules.refusals import StorageLimitReached

log = structlog.get_logger()
# It repeats what strangers send, unescaped and unlimited. A filter: who sets up logging anew enables what was disabled.
library_log.addFilter(lambda _: False)

PIECE = 64 * 1024  # octets read from the socket at a time; a line of a mail may be longer
ABUSE = ("abuse@", "postmaster@")
UNKNOWN = "550 5.1.1 No such address here"
BUSY = "421 4.7.0 Too many connections, try again later"
ENOUGH = "421 4.7.0 Too many commands, try again later"
FLOOD = "450 4.7.1 Too much mail for this address, try again later"
FULL = "452 4.3.1 No more room for mail to this address today, try again later"
LOOP = "554 5.4.6 Too many hops: a mail loop"
TOO_LARGE = "552 5.3.4 The mail is too large"
LAST = b"\r\n.\r\n"

Place = tuple[str, int]  # a message's id and the position of a recipient
Receive = Callable[[str, int, Report], Awaitable[None]]
AddressOf = Callable[[str, int], Awaitable[str | None]]


class ListenLimits(msgspec.Struct, frozen=True, kw_only=True):
    connections: int = 100
    per_peer: int = 20  # connections from one address, or one IPv6 network
    recipients: int = 100  # of a mail; more are deferred (RFC 5321, 4.5.3.1.10)
    replies: int = 1000  # to one connection
    session_s: float = 600
    size: int = 50 * MIB  # of a mail, and so of a line; only the beginning of what came back is kept
    received: int = 30 * MIB  # of a mail for a team (contract 17)
    waiting: int = 300 * MIB  # octets of all mails that are coming in
    per_address: int = 120  # mails in a minute
    per_team: int = 600


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
        mailbox: TeamMail | None = None,
        folder: Path | None = None,
        ask: Ask | None = None,
    ) -> None:
        """`folder`: where large mails are while they come in; `ask`: what asks DNS about their senders."""
        self._ask = ask
        self._key = envelope_key
        self._now = now
        self._address_of = address_of
        self._receive = receive
        self._keys_of = keys_of
        self._one_by_one = asyncio.Semaphore()
        self._mailbox = mailbox
        self._counted_at, self._counts = 0, Counter[str]()
        self.limits = limits
        self.folder = folder
        self.peers = Counter[str]()
        self.waiting = 0  # octets of mails that are coming in

    async def handle_RCPT(
        self, server: SMTP, session: Session, envelope: Envelope, address: str, options: list[str]
    ) -> str:
        if len(envelope.rcpt_tos) >= self.limits.recipients:
            return "452 4.5.3 Too many recipients"
        if team := self._owner(address):
            if self._is_flooded(address, team):
                return FLOOD
        elif not self._signed(address) and not address.lower().startswith(ABUSE):
            return UNKNOWN
        envelope.rcpt_tos.append(address)
        return "250 2.1.5 OK"

    async def handle_DATA(self, server: SMTP, session: Session, envelope: Envelope) -> str:
        file: Any = envelope.content
        theirs = [address for address in envelope.rcpt_tos if self._owner(address)]
        evidence = await self._evidence(session, envelope, file) if theirs else None
        async with self._one_by_one:  # because threads are shared, and so is memory
            raw = await asyncio.to_thread(_whole, file)
            if refusal := await self._receive_mail(evidence, envelope, raw, theirs) if theirs else None:
                return refusal
        if len(theirs) < len(envelope.rcpt_tos):
            await self._take_returned(envelope, raw[:READ_MAX], set(theirs))
        return "250 2.0.0 OK"

    def keeps(self, envelope: Envelope) -> int:
        """How much of a mail is read, in octets."""
        return self.limits.received if any(map(self._owner, envelope.rcpt_tos)) else READ_MAX

    async def _receive_mail(
        self, evidence: Evidence | None, envelope: Envelope, raw: bytes, recipients: Sequence[str]
    ) -> str | None:
        """Why not; None: it is theirs now."""
        assert self._mailbox
        sender = envelope.mail_from or ""
        mail = await asyncio.to_thread(read_received, raw, sender, recipients)
        if mail.hops > HOPS_MAX:
            return LOOP
        try:
            judged = Authentication()
            if evidence:
                judged = await asyncio.to_thread(evidence.judge, raw, self._now() // SECOND_MS)
            await self._mailbox.take(raw, mail, recipients, judged)
        except StorageLimitReached:
            return FULL
        for counted in {*recipients, *filter(None, map(self._owner, recipients))}:
            self._counts[counted.lower()] += 1
        return None

    async def _evidence(self, session: Session, envelope: Envelope, file: IO[bytes]) -> Evidence | None:
        """What DNS says of its sender, before it is anybody's turn: DNS may take seconds."""
        if self._ask is None:
            return None
        file.seek(2)
        peer: Any = session.peer
        sending = Sending(peer=peer[0], helo=session.host_name or "", sender=envelope.mail_from or "")
        return await ask_about(sending, file.read(HEADER_MAX).partition(b"\r\n\r\n")[0], self._ask)

    def _owner(self, address: str) -> str | None:
        return self._mailbox.owner(address) if self._mailbox else None

    def _is_flooded(self, address: str, team: str) -> bool:
        minute = self._now() // MINUTE_MS
        if minute != self._counted_at:
            self._counted_at, self._counts = minute, Counter()
        counts, limits = self._counts, self.limits
        return counts[address.lower()] >= limits.per_address or counts[team.lower()] >= limits.per_team

    async def _take_returned(self, envelope: Envelope, raw: bytes, others: Collection[str]) -> None:
        mail = await self._in_thread(read_mail, raw)
        for place in await self._places([one for one in envelope.rcpt_tos if one not in others], mail):
            # None: a message that is gone
            if (ours := await self._address_of(*place)) is None:
                continue
            returned: Returned = await self._in_thread(read_returned, mail, ours)
            log.info("mail returned", kind=returned.kind, status=returned.status, message=place[0])
            if report := to_report(returned):
                await self._receive(*place, report)

    async def _places(self, recipients: Sequence[str], mail: ReceivedMail) -> list[Place]:
        """Whom it is about: mail to the abuse address is authenticated by the mail that it encloses."""
        signed = [self._signed(address) for address in recipients]
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
        self._returns = returns
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
        if self._returns.waiting > self._limits.waiting:
            await self.push("452 4.3.1 Too much mail at once, try again later")
            return
        await self.push("354 End data with <CR><LF>.<CR><LF>")
        with tempfile.SpooledTemporaryFile(READ_MAX, dir=str(self._returns.folder or "") or None) as file:
            await self.push(await self._take_mail(envelope, file))
        self.envelope = self._create_envelope()

    async def _take_mail(self, envelope: Envelope, file: IO[bytes]) -> str:
        most, kept, size, ended = self._returns.keeps(envelope), 0, 0, False
        # The mail ends with a dot between two line ends; the first may be that of the command.
        self._reader._buffer[:0] = b"\r\n"  # type: ignore[attr-defined]
        try:
            while not ended:
                try:
                    piece = await self._reader.readuntil(LAST)
                    ended = True
                except asyncio.LimitOverrunError as more:
                    piece = await self._reader.read(more.consumed)
                self._reset_timeout()
                size += len(piece)
                if room := max(0, most + READ_MAX - kept):
                    self._returns.waiting += len(piece[:room])
                    kept += file.write(piece[:room])
            if size - len(LAST) > (self._limits.size if most == READ_MAX else most):
                return TOO_LARGE
            envelope.content = file  # type: ignore[assignment]
            status: str = await self._call_handler_hook("DATA")
            return status
        finally:
            self._returns.waiting -= kept


def _whole(file: IO[bytes]) -> bytes:
    """The mail without what SMTP adds to its lines (RFC 5321, 4.5.2)."""
    file.seek(0)
    raw = file.read().removesuffix(LAST[2:])
    return pieced(raw, lambda piece: piece.replace(b"\r\n..", b"\r\n."))[2:]


def protocol(
    returns: Returns, host: str, tls: Callable[[], ssl.SSLContext | None] = lambda: None
) -> Callable[[], BounceConnection]:
    """For `loop.create_server`; `tls` is for STARTTLS, and None where there is no certificate."""
    return lambda: BounceConnection(returns, host, tls())
