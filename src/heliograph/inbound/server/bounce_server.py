"""SMTP server for inbound mail: bounces to signed envelope senders, complaints, DMARC and TLS reports, mail to teams.

Any client may connect, so there are limits on connections (in total and per network), recipients, replies, time and
octets.
"""

import asyncio
import tempfile
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import IO, Any, Protocol, Self

import structlog

from heliograph.domain.delivery.outcome import COMPLAINT, Report
from heliograph.domain.ids import PREFIXES, ulid_ms
from heliograph.domain.limits import DAY_MS, MIB, MINUTE_MS, SECOND_MS
from heliograph.domain.mail import verp
from heliograph.domain.mail.address import normalize_domain
from heliograph.domain.mail.dkim import SigningKey
from heliograph.domain.mail.feedback_id import FeedbackSource, parse_feedback_id
from heliograph.domain.mail.mime_tree import HEADER_MAX
from heliograph.domain.refusals import StorageLimitReached
from heliograph.inbound.policy.bounce_parser import (
    BounceReport,
    complaint_address,
    complaint_recipients,
    feedback_id,
    parse_bounce,
    reported_sender,
    signed_message_id,
    to_report,
)
from heliograph.inbound.policy.bounce_recipient import is_same_mailbox
from heliograph.inbound.policy.inbound_mail import HOPS_MAX, Authentication
from heliograph.inbound.policy.inbound_parser import TeamMailbox, parse_inbound_mail
from heliograph.inbound.policy.mail_parts import READ_MAX, ReceivedMail, read_mail
from heliograph.inbound.server.authentication import SenderLookups, lookup_sender
from heliograph.inbound.server.spf import SmtpOrigin
from heliograph.runtime.resolver import QueryDns
from heliograph.smtp.listener import SmtpServer
from heliograph.smtp.session import (
    START_MAIL_INPUT,
    Envelope,
    GetTlsContext,
    SmtpLimits,
    SmtpServerSession,
    SmtpServerSettings,
)
from heliograph.smtp.wire import SmtpServerConnection

log = structlog.get_logger()

CONTACT_LOCAL_PARTS = ("abuse", "postmaster")
UNKNOWN_ADDRESS_REPLY = "550 5.1.1 No such address here"
RATE_LIMIT_REPLY = "450 4.7.1 Too much mail for this address, try again later"
QUOTA_REPLY = "452 4.3.1 No more room for mail to this address today, try again later"
LOOP_REPLY = "554 5.4.6 Too many hops: a mail loop"
TOO_LARGE_REPLY = "552 5.3.4 The mail is too large"
ONE_KIND_REPLY = "452 4.5.3 Send mail for this address separately"
TRY_AGAIN_REPLY = "451 4.3.0 Try again later"
UNNAMED_COMPLAINT = Report(
    status=COMPLAINT,
    detail={"text": "One of the recipients complained. The report does not say which, so nobody is suppressed."},
)

RecipientKey = tuple[str, int]  # (message id, position of the recipient)
StoreReport = Callable[[str, int, Report], Awaitable[None]]
AddressLookup = Callable[[str, int], Awaitable[str | None]]


class InboundSmtpLimits(SmtpLimits, frozen=True, kw_only=True):
    mail_size: int = 50 * MIB  # maximum octets of a bounce, of which only the beginning is read
    connections: int = 100
    per_network: int = 20
    recipients: int = 100  # maximum recipients per mail; further ones are deferred (RFC 5321, 4.5.3.1.10)
    session_s: float = 600
    team_mail_size: int = 30 * MIB  # maximum octets of a mail to a team
    report_size: int = 40 * MIB  # maximum octets of a mail with a DMARC or TLS report: 25 MiB in base64
    total_size: int = 300 * MIB  # maximum octets of all mails in progress
    per_address: int = 120  # maximum mails per minute to an address
    per_team: int = 600  # maximum mails per minute to a team


LIMITS = InboundSmtpLimits()


class ReportMailbox(Protocol):
    """Receives DMARC and TLS reports; implemented in aggregate_report_service.py."""

    def is_report_address(self, address: str) -> bool: ...

    async def receive(self, file: IO[bytes]) -> str: ...


class InboundMailHandler:
    """Decides for all sessions which recipients are accepted, applies limits, and processes received mails."""

    def __init__(
        self,
        envelope_key: bytes,
        now: Callable[[], int],
        address_of: AddressLookup,
        store_report: StoreReport,
        keys_of: Callable[[str], Sequence[SigningKey]],
        is_our_domain: Callable[[str], bool],  # domain → whether it belongs to a team or the platform
        unsubscribe: Callable[[str], Awaitable[None]],  # unsubscribes the recipient of the message with this id
        count_complaint: Callable[[FeedbackSource], Awaitable[None]],  # counts a complaint whose recipient is unknown
        limits: InboundSmtpLimits = LIMITS,
        mailbox: TeamMailbox | None = None,
        folder: Path | None = None,
        query_dns: QueryDns | None = None,
        report_mailbox: ReportMailbox | None = None,
    ) -> None:
        """Create the handler.

        `folder`: where large mails are stored temporarily. `query_dns`: queries DNS about senders; None: senders are
        not authenticated.
        """
        self._query_dns = query_dns
        self._envelope_key = envelope_key
        self._now = now
        self._address_of = address_of
        self._store_report = store_report
        self._keys_of = keys_of
        self._is_our_domain = is_our_domain
        self._unsubscribe = unsubscribe
        self._count_complaint = count_complaint
        self._one_at_a_time = asyncio.Semaphore()
        self._mailbox = mailbox
        self._report_mailbox = report_mailbox
        self._counted_minute, self._counts = 0, Counter[str]()
        self.limits = limits
        self.folder = folder
        self.spooled_octets = 0  # sum over all mails in progress

    def rejection_reply(self, address: str) -> str | None:
        """Return the SMTP reply that rejects a recipient; None if accepted."""
        if self.is_report_address(address):
            return None
        if team := self._find_team_id(address):
            return RATE_LIMIT_REPLY if self._is_rate_limited(address, team) else None
        is_ours = (
            self._verify_signed_address(address) or self._unsubscribed_message(address) or self._is_contact(address)
        )
        return None if is_ours else UNKNOWN_ADDRESS_REPLY

    def _unsubscribed_message(self, address: str) -> str | None:
        """Return the message id in an unsubscribe address; None for other addresses."""
        return verp.parse_unsubscribe_address(self._envelope_key, address)

    def _is_contact(self, address: str) -> bool:
        """Return whether the address is abuse or postmaster, at a domain of ours or without a domain (RFC 5321)."""
        local, _, domain = address.lower().partition("@")
        return local in CONTACT_LOCAL_PARTS and (not domain or self._is_our_domain(normalize_domain(domain) or domain))

    def is_report_address(self, address: str) -> bool:
        """Return whether DMARC or TLS reports are sent to this address."""
        return bool(self._report_mailbox and self._report_mailbox.is_report_address(address))

    async def process(self, file: IO[bytes], envelope: Envelope[str], origin: SmtpOrigin) -> str:
        """Process a received mail and return the SMTP reply."""
        if self._report_mailbox and self.is_report_address(envelope.recipients[0]):
            return await self._report_mailbox.receive(file)
        team_addresses = [address for address in envelope.recipients if self._find_team_id(address)]
        lookups = await self._lookup_sender(origin, file) if team_addresses else None
        async with self._one_at_a_time:  # one mail at a time, to limit threads and memory
            raw = await asyncio.to_thread(_read_all, file)
            if team_addresses and (refusal := await self._deliver_to_teams(lookups, envelope, raw, team_addresses)):
                return refusal
        bounce_addresses = []
        for address in envelope.recipients:
            if address in team_addresses:
                continue
            if message_id := self._unsubscribed_message(address):
                await self._unsubscribe(message_id)
            else:
                bounce_addresses.append(address)
        if bounce_addresses:
            await self._process_bounce(bounce_addresses, raw[:READ_MAX])
        return "250 2.0.0 Ok"

    def read_limit(self, envelope: Envelope[str]) -> int:
        """Return the maximum size in octets of a mail with these recipients."""
        if self.is_report_address(envelope.recipients[0]):
            return self.limits.report_size
        return self.limits.team_mail_size if any(map(self._find_team_id, envelope.recipients)) else READ_MAX

    async def _deliver_to_teams(
        self, lookups: SenderLookups | None, envelope: Envelope[str], raw: bytes, recipients: Sequence[str]
    ) -> str | None:
        """Deliver a mail to its teams; return the SMTP reply that rejects it, or None if it was delivered."""
        assert self._mailbox
        mail = await asyncio.to_thread(parse_inbound_mail, raw, envelope.sender, recipients)
        if mail.hops > HOPS_MAX:
            return LOOP_REPLY
        try:
            authentication = Authentication()
            if lookups:
                authentication = await asyncio.to_thread(lookups.authenticate, raw, self._now() // SECOND_MS)
            await self._mailbox.deliver(raw, mail, recipients, authentication)
        except StorageLimitReached:
            return QUOTA_REPLY
        for count_key in {*recipients, *filter(None, map(self._find_team_id, recipients))}:
            self._counts[count_key.lower()] += 1
        return None

    async def _lookup_sender(self, origin: SmtpOrigin, file: IO[bytes]) -> SenderLookups | None:
        """Query DNS about the mail's sender. DNS may take seconds, so other mails are processed at the same time."""
        if self._query_dns is None:
            return None
        file.seek(0)
        return await lookup_sender(origin, file.read(HEADER_MAX).partition(b"\r\n\r\n")[0], self._query_dns)

    def _find_team_id(self, address: str) -> str | None:
        return self._mailbox.find_team_id(address) if self._mailbox else None

    def _is_rate_limited(self, address: str, team: str) -> bool:
        minute = self._now() // MINUTE_MS
        if minute != self._counted_minute:
            self._counted_minute, self._counts = minute, Counter()
        counts, limits = self._counts, self.limits
        return counts[address.lower()] >= limits.per_address or counts[team.lower()] >= limits.per_team

    async def _process_bounce(self, recipients: Sequence[str], raw: bytes) -> None:
        mail = await self._run_in_thread(read_mail, raw)
        for recipient_key in await self._find_recipients(recipients, mail):
            if (our_recipient := await self._address_of(*recipient_key)) is None:
                continue  # the message was deleted
            bounce: BounceReport = await self._run_in_thread(parse_bounce, mail, our_recipient)
            log.info("mail returned", kind=bounce.kind, status=bounce.status, message=recipient_key[0])
            if report := to_report(bounce):
                await self._store_report(*recipient_key, report)

    async def _find_recipients(self, recipients: Sequence[str], mail: ReceivedMail) -> list[RecipientKey]:
        """Return the recipients that a returned mail is about.

        A complaint to the abuse address is trusted only if it encloses one of our messages, proven by a signed address
        or our DKIM signature.
        """
        recipient_keys = [self._verify_signed_address(address) for address in recipients]
        if None in recipient_keys:
            recipient_keys.append(enclosed := await self._find_enclosed_message(mail))
            if enclosed is None:
                await self._count_by_feedback_id(mail)
        return [
            key
            for id_, position in dict.fromkeys(filter(None, recipient_keys))
            if (key := await self._find_complainant(id_, mail) if position == verp.ANY_RECIPIENT else (id_, position))
        ]

    async def _find_enclosed_message(self, mail: ReceivedMail) -> RecipientKey | None:
        """Return the enclosed message, found by its signed envelope sender, its CFBL-Address or our DKIM signature."""
        for find_address in (reported_sender, complaint_address):
            address: str | None = await self._run_in_thread(find_address, mail)
            if address and (recipient_key := self._verify_signed_address(address.strip("<> "))):
                return recipient_key
        id_: str | None = await self._run_in_thread(signed_message_id, mail, self._keys_of)
        if id_ is None or self._now() - ulid_ms(id_.removeprefix(PREFIXES["email"])) > verp.DAYS_VALID * DAY_MS:
            return None
        return id_, verp.ANY_RECIPIENT

    async def _count_by_feedback_id(self, mail: ReceivedMail) -> None:
        """Count a complaint by the Feedback-ID of the enclosed message. No recipient is suppressed."""
        text: str | None = await self._run_in_thread(feedback_id, mail)
        if text and (source := parse_feedback_id(self._envelope_key, text)):
            await self._count_complaint(source)

    async def _find_complainant(self, id_: str, mail: ReceivedMail) -> RecipientKey | None:
        """Return the recipient who complained, by the addresses in the report; None if the mail is not a complaint.

        If a message has several recipients and the report names none of them, the complaint is recorded without a
        recipient.
        """
        reported_addresses: list[str] | None = await self._run_in_thread(complaint_recipients, mail)
        if reported_addresses is None:
            return None
        if await self._address_of(id_, 1) is None:
            return id_, 0
        position = 0
        while reported_addresses and (address := await self._address_of(id_, position)):
            if any(is_same_mailbox(reported, address) for reported in reported_addresses):
                return id_, position
            position += 1
        if to_report(await self._run_in_thread(parse_bounce, mail, None)):
            await self._store_report(id_, 0, UNNAMED_COMPLAINT)
        return None

    async def _run_in_thread(self, function: Callable[..., Any], *args: object) -> Any:
        """Run a function in a thread, because parsing a malicious mail of 1 MiB takes up to half a second.

        Only one call runs at a time, because other code uses the thread pool, too.
        """
        async with self._one_at_a_time:
            return await asyncio.to_thread(function, *args)

    def _verify_signed_address(self, address: str) -> RecipientKey | None:
        """Return the message and recipient in a signed envelope sender (VERP); None if it is invalid."""
        return verp.parse_return_path(self._envelope_key, address, self._now())


class InboundSmtpSession(SmtpServerSession[str]):
    """SMTP session that receives mail. It is aborted after `session_s` seconds."""

    def __init__(
        self, settings: SmtpServerSettings, handler: InboundMailHandler, connection: SmtpServerConnection
    ) -> None:
        super().__init__(settings, connection)
        self._handler = handler

    async def run(self, *, implicit_tls: bool) -> None:
        deadline = asyncio.get_running_loop().call_later(self._handler.limits.session_s, self._connection.abort)
        try:
            await super().run(implicit_tls=implicit_tls)
        finally:
            deadline.cancel()

    def _add_recipient(self, envelope: Envelope[str], address: str) -> str:
        if len(envelope.recipients) >= self._handler.limits.recipients:
            return "452 4.5.3 Too many recipients"
        if refusal := self._handler.rejection_reply(address):
            return refusal
        is_report_address = self._handler.is_report_address
        if envelope.recipients and is_report_address(address) != is_report_address(envelope.recipients[0]):
            return ONE_KIND_REPLY
        envelope.recipients.append(address)
        return "250 2.1.5 Ok"

    async def _receive_mail(self, envelope: Envelope[str]) -> None:
        handler, limits = self._handler, self._handler.limits
        if handler.spooled_octets > limits.total_size:
            self._reply("452 4.3.1 Too much mail at once, try again later")
            return
        self._reply(START_MAIL_INPUT)
        read_limit = handler.read_limit(envelope)
        with Spool(handler, read_limit) as spool:
            # a mail that is too large is read to its end, too, because the next command follows it
            async for piece in self._connection.read_mail():
                spool.write(piece)
            is_too_large = spool.size > (limits.mail_size if read_limit == READ_MAX else read_limit)
            self._reply(TOO_LARGE_REPLY if is_too_large else await self._process(spool, envelope))

    async def _process(self, spool: "Spool", envelope: Envelope[str]) -> str:
        origin = SmtpOrigin(peer=self._connection.peer, helo=self._client_name, sender=envelope.sender)
        try:
            if spool.error:
                raise spool.error
            return await self._handler.process(spool.file, envelope, origin)
        except Exception as error:  # such as an unavailable database
            log.error("inbound mail not recorded", error=type(error).__name__)
            return TRY_AGAIN_REPLY


class Spool:
    """Buffer of a mail that is being received: in memory, or in a file if the mail is large."""

    def __init__(self, handler: InboundMailHandler, limit: int) -> None:
        self._handler = handler
        self._limit = limit
        self._spooled = 0
        self.size = 0  # octets received, including those beyond the limit
        self.error: OSError | None = None  # such as a full disk
        self.file: IO[bytes] = tempfile.SpooledTemporaryFile(READ_MAX, dir=str(handler.folder or "") or None)

    def write(self, piece: bytes) -> None:
        self.size += len(piece)
        spooled = piece[: self._limit - self._spooled]
        if not spooled or self.error:
            return
        self._spooled += len(spooled)
        self._handler.spooled_octets += len(spooled)
        try:
            self.file.write(spooled)
        except OSError as error:
            self.error = error

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._handler.spooled_octets -= self._spooled
        with suppress(OSError):
            self.file.close()


def _read_all(file: IO[bytes]) -> bytes:
    file.seek(0)
    return file.read()


def create_inbound_server(name: str, tls: GetTlsContext, handler: InboundMailHandler) -> SmtpServer:
    """Create the SMTP server for inbound mail. `name`: its host name in the greeting."""
    settings = SmtpServerSettings(
        host_name=name, limits=handler.limits, get_tls_context=tls, too_large_reply=TOO_LARGE_REPLY
    )
    return SmtpServer(handler.limits, partial(InboundSmtpSession, settings, handler))
