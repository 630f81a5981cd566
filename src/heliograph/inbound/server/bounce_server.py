"""SMTP server for bounces to signed envelope senders, mail to the abuse address, and mail to the addresses of teams.

Any client may connect, so everything is limited: connections in total and per peer, recipients, replies, time and
octets.
"""

import asyncio
import tempfile
from collections import Counter
from collections.abc import Awaitable, Callable, Collection, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import IO, Any, Self

import structlog

from heliograph.domain.delivery.outcome import COMPLAINT, Report
from heliograph.domain.ids import PREFIXES, ulid_ms
from heliograph.domain.limits import DAY_MS, MIB, MINUTE_MS, SECOND_MS
from heliograph.domain.mail import verp
from heliograph.domain.mail.address import normal_domain
from heliograph.domain.mail.dkim import SigningKey
from heliograph.domain.mail.mime_tree import HEADER_MAX
from heliograph.domain.refusals import StorageLimitReached
from heliograph.inbound.policy.bounce_parser import (
    Returned,
    complaining,
    read_returned,
    signed_message,
    signed_sender,
    to_report,
)
from heliograph.inbound.policy.bounce_recipient import is_ours
from heliograph.inbound.policy.inbound_mail import HOPS_MAX, Authentication
from heliograph.inbound.policy.inbound_parser import TeamMail, read_received
from heliograph.inbound.policy.mail_parts import READ_MAX, ReceivedMail, read_mail
from heliograph.inbound.server.authentication import Evidence, ask_about
from heliograph.inbound.server.spf import Sending
from heliograph.runtime.resolver import Ask
from heliograph.smtp.listener import SmtpServer
from heliograph.smtp.session import GO_ON, Envelope, SmtpDialogue, SmtpLimits, Terms, Tls
from heliograph.smtp.wire import SmtpWire

log = structlog.get_logger()

ABUSE = ("abuse", "postmaster")
UNKNOWN = "550 5.1.1 No such address here"
FLOOD = "450 4.7.1 Too much mail for this address, try again later"
FULL = "452 4.3.1 No more room for mail to this address today, try again later"
LOOP = "554 5.4.6 Too many hops: a mail loop"
TOO_LARGE = "552 5.3.4 The mail is too large"
AGAIN = "451 4.3.0 Try again later"
UNNAMED = Report(
    status=COMPLAINT,
    detail={"text": "One of the recipients complained. The report does not say which, so nobody is suppressed."},
)

Place = tuple[str, int]  # message id and recipient position
Receive = Callable[[str, int, Report], Awaitable[None]]
AddressOf = Callable[[str, int], Awaitable[str | None]]


class ListenLimits(SmtpLimits, frozen=True, kw_only=True):
    size: int = 50 * MIB  # of a bounce; only its beginning is kept
    connections: int = 100
    per_peer: int = 20
    recipients: int = 100  # per mail; more are deferred (RFC 5321, 4.5.3.1.10)
    session_s: float = 600
    received: int = 30 * MIB  # size of a mail to a team (contract 17)
    waiting: int = 300 * MIB  # octets of all mails being received
    per_address: int = 120  # mails per minute
    per_team: int = 600


LIMITS = ListenLimits()


class IncomingMail:
    """State and callbacks shared by all sessions: accepted recipients, limits, and processing of received mail."""

    def __init__(
        self,
        envelope_key: bytes,
        now: Callable[[], int],
        address_of: AddressOf,
        receive: Receive,
        keys_of: Callable[[str], Sequence[SigningKey]],
        is_own: Callable[[str], bool],  # whether a domain belongs to a team or the platform
        limits: ListenLimits = LIMITS,
        mailbox: TeamMail | None = None,
        folder: Path | None = None,
        ask: Ask | None = None,
    ) -> None:
        """Create the shared state.

        `folder`: large mails while being received; `ask`: DNS lookup for sender authentication.
        """
        self._ask = ask
        self._key = envelope_key
        self._now = now
        self._address_of = address_of
        self._receive = receive
        self._keys_of = keys_of
        self._is_own = is_own
        self._one_by_one = asyncio.Semaphore()
        self._mailbox = mailbox
        self._counted_at, self._counts = 0, Counter[str]()
        self.limits = limits
        self.folder = folder
        self.waiting = 0  # octets of mails being received

    def refuses(self, address: str) -> str | None:
        """Return the SMTP reply that rejects a recipient; None if accepted."""
        if team := self._owner(address):
            return FLOOD if self._is_flooded(address, team) else None
        return None if self._signed(address) or self._is_contact(address) else UNKNOWN

    def _is_contact(self, address: str) -> bool:
        """Return whether the address is abuse or postmaster of one of our domains, or without a domain (RFC 5321)."""
        local, _, domain = address.lower().partition("@")
        return local in ABUSE and (not domain or self._is_own(normal_domain(domain) or domain))

    async def take(self, file: IO[bytes], envelope: Envelope[str], sending: Sending) -> str:
        """Process a received mail and return the SMTP reply."""
        theirs = [address for address in envelope.recipients if self._owner(address)]
        evidence = await self._evidence(sending, file) if theirs else None
        async with self._one_by_one:  # one at a time, to limit threads and memory
            raw = await asyncio.to_thread(_whole, file)
            if refusal := await self._receive_mail(evidence, envelope, raw, theirs) if theirs else None:
                return refusal
        if len(theirs) < len(envelope.recipients):
            await self._take_returned(envelope, raw[:READ_MAX], set(theirs))
        return "250 2.0.0 Ok"

    def keeps(self, envelope: Envelope[str]) -> int:
        """Return the octets of a mail that are read."""
        return self.limits.received if any(map(self._owner, envelope.recipients)) else READ_MAX

    async def _receive_mail(
        self, evidence: Evidence | None, envelope: Envelope[str], raw: bytes, recipients: Sequence[str]
    ) -> str | None:
        """Deliver a mail to its teams; return the rejecting SMTP reply, or None if delivered."""
        assert self._mailbox
        mail = await asyncio.to_thread(read_received, raw, envelope.sender, recipients)
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

    async def _evidence(self, sending: Sending, file: IO[bytes]) -> Evidence | None:
        """Return the DNS results about the sender. Runs outside the semaphore, because DNS may take seconds."""
        if self._ask is None:
            return None
        file.seek(0)
        return await ask_about(sending, file.read(HEADER_MAX).partition(b"\r\n\r\n")[0], self._ask)

    def _owner(self, address: str) -> str | None:
        return self._mailbox.owner(address) if self._mailbox else None

    def _is_flooded(self, address: str, team: str) -> bool:
        minute = self._now() // MINUTE_MS
        if minute != self._counted_at:
            self._counted_at, self._counts = minute, Counter()
        counts, limits = self._counts, self.limits
        return counts[address.lower()] >= limits.per_address or counts[team.lower()] >= limits.per_team

    async def _take_returned(self, envelope: Envelope[str], raw: bytes, others: Collection[str]) -> None:
        mail = await self._in_thread(read_mail, raw)
        for place in await self._places([one for one in envelope.recipients if one not in others], mail):
            # None if the message was deleted
            if (ours := await self._address_of(*place)) is None:
                continue
            returned: Returned = await self._in_thread(read_returned, mail, ours)
            log.info("mail returned", kind=returned.kind, status=returned.status, message=place[0])
            if report := to_report(returned):
                await self._receive(*place, report)

    async def _places(self, recipients: Sequence[str], mail: ReceivedMail) -> list[Place]:
        """Return the (message, position) pairs that a mail is about.

        Mail to the abuse address is authenticated by the message that it encloses.
        """
        signed = [self._signed(address) for address in recipients]
        if None in signed:
            sender: str | None = await self._in_thread(signed_sender, mail)
            signed.append(self._signed((sender or "").strip("<> ")) or await self._enclosed(mail))
        return list(dict.fromkeys(place for place in signed if place))

    async def _enclosed(self, mail: ReceivedMail) -> Place | None:
        """Identify the enclosed message by our DKIM signature, and its recipient by the addresses in the report.

        If the report names none of several recipients, only the complaint itself is recorded.
        """
        id_: str | None = await self._in_thread(signed_message, mail, self._keys_of)
        if id_ is None or self._now() - ulid_ms(id_.removeprefix(PREFIXES["email"])) > verp.DAYS_VALID * DAY_MS:
            return None
        if await self._address_of(id_, 1) is None:
            return id_, 0
        named: list[str] = await self._in_thread(complaining, mail)
        position = 0
        while named and (address := await self._address_of(id_, position)):
            if any(is_ours(one, address) for one in named):
                return id_, position
            position += 1
        if to_report(await self._in_thread(read_returned, mail, None)):
            await self._receive(id_, 0, UNNAMED)
        return None

    async def _in_thread(self, work: Callable[..., Any], *given: object) -> Any:
        """Run `work` in a thread, because parsing a hostile message of 1 MiB takes up to half a second.

        One at a time, because threads are shared.
        """
        async with self._one_by_one:
            return await asyncio.to_thread(work, *given)

    def _signed(self, address: str) -> Place | None:
        """Return the message and recipient position that this signed envelope sender was made for; None if invalid."""
        return verp.read(self._key, address, self._now())


class IncomingSession(SmtpDialogue[str]):
    def __init__(self, terms: Terms, incoming: IncomingMail, wire: SmtpWire) -> None:
        super().__init__(terms, wire)
        self._incoming = incoming

    async def run(self, *, tls_first: bool) -> None:
        deadline = asyncio.get_running_loop().call_later(self._incoming.limits.session_s, self._wire.abort)
        try:
            await super().run(tls_first=tls_first)
        finally:
            deadline.cancel()

    def _admit(self, envelope: Envelope[str], given: str) -> str:
        if len(envelope.recipients) >= self._incoming.limits.recipients:
            return "452 4.5.3 Too many recipients"
        if refusal := self._incoming.refuses(given):
            return refusal
        envelope.recipients.append(given)
        return "250 2.1.5 Ok"

    async def _take(self, envelope: Envelope[str]) -> None:
        incoming, limits = self._incoming, self._incoming.limits
        if incoming.waiting > limits.waiting:
            self._say("452 4.3.1 Too much mail at once, try again later")
            return
        self._say(GO_ON)
        most = incoming.keeps(envelope)
        with Spool(incoming, most) as spool:
            async for piece in self._wire.mail():  # read to the end in any case: SMTP commands follow only then
                spool.write(piece)
            is_too_large = spool.size > (limits.size if most == READ_MAX else most)
            self._say(TOO_LARGE if is_too_large else await self._recorded(spool, envelope))

    async def _recorded(self, spool: "Spool", envelope: Envelope[str]) -> str:
        sending = Sending(peer=self._wire.peer, helo=self._helo, sender=envelope.sender)
        try:
            if spool.error:
                raise spool.error
            return await self._incoming.take(spool.file, envelope, sending)
        except Exception as error:  # for example, the database is down
            log.error("returned mail not recorded", error=type(error).__name__)
            return AGAIN


class Spool:
    """Buffer for the beginning of a mail being received: in memory, or in a file once it is large."""

    def __init__(self, incoming: IncomingMail, most: int) -> None:
        self._incoming = incoming
        self._most = most
        self._kept = 0
        self.size = 0  # octets received, including those not kept
        self.error: OSError | None = None  # for example, the disk is full
        self.file: IO[bytes] = tempfile.SpooledTemporaryFile(READ_MAX, dir=str(incoming.folder or "") or None)

    def write(self, piece: bytes) -> None:
        self.size += len(piece)
        kept = piece[: self._most - self._kept]
        if not kept or self.error:
            return
        self._kept += len(kept)
        self._incoming.waiting += len(kept)
        try:
            self.file.write(kept)
        except OSError as error:
            self.error = error

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._incoming.waiting -= self._kept
        with suppress(OSError):
            self.file.close()


def _whole(file: IO[bytes]) -> bytes:
    file.seek(0)
    return file.read()


def incoming_server(name: str, tls: Tls, incoming: IncomingMail) -> SmtpServer:
    """Create the SMTP server, which uses `name` in its greeting."""
    terms = Terms(name=name, limits=incoming.limits, tls=tls, too_large=TOO_LARGE)
    return SmtpServer(incoming.limits, partial(IncomingSession, terms, incoming))
