"""SMTP session of the submission server: authentication with an API key, recipients, and mails (RFC 6409)."""

import asyncio
from functools import partial

import pybase64

from heliograph.domain.limits import KIB, MIB, RECIPIENTS_MAX
from heliograph.domain.mail.address import Address, parse_address
from heliograph.domain.mail.mime_text import pad_base64
from heliograph.domain.network.client_address import is_loopback_or_in
from heliograph.domain.refusals import UNKNOWN_KEY, PayloadTooLarge, Refusal
from heliograph.smtp.listener import SmtpServer
from heliograph.smtp.session import (
    COMMAND_TIMEOUT_S,
    NEED_EHLO,
    START_MAIL_INPUT,
    Envelope,
    GetTlsContext,
    SmtpLimits,
    SmtpServerSession,
    SmtpServerSettings,
)
from heliograph.smtp.wire import SmtpServerConnection
from heliograph.submission.intake import MailIntake
from heliograph.submission.replies import reply_to
from heliograph.web.budget import ByteBudget, Reservation

# The size suffices for 25 MiB of attachments in base64, and texts. With the limits for each network and for
# unauthenticated connections, no network can use up all connections.
LIMITS = SmtpLimits(mail_size=35 * MIB, connections=1024, per_network=512, unauthenticated=128)
AUTH_TIMEOUT_S = 60.0  # time to authenticate after connecting
NEXT_MAIL_TIMEOUT_S = 600.0  # time until the next accepted mail, counted from authentication or the previous mail
AUTH_ATTEMPTS_MAX = 3  # failed attempts before the connection is closed
BUDGETED_SIZE_MIN = 64 * KIB  # larger mails count against the memory budget
DEDUP_SUFFIX = "+message-id"  # user names that end with this deduplicate by Message-ID

MECHANISMS = "PLAIN LOGIN"  # not CRAM-MD5, which needs the plaintext of the key: only its hash is stored
NEED_STARTTLS = "530 5.7.0 Send STARTTLS first"
NEED_AUTH = "530 5.7.0 Authenticate first, with an API key as the password"
TOO_LARGE_TEXT = "The mail exceeds the SIZE limit. Send less, for example a link instead of an attachment."


class AuthCancelled(Exception):
    """Raised if the client cancelled AUTH or sent invalid base64."""


class SubmissionSession(SmtpServerSession[Address]):
    """SMTP session of one client with the submission server."""

    def __init__(
        self, settings: SmtpServerSettings, intake: MailIntake, budget: ByteBudget, connection: SmtpServerConnection
    ) -> None:
        super().__init__(settings, connection)
        self._intake = intake
        self._budget = budget
        self._token = b""  # the API key, once verified
        self._dedup_by_message_id = False
        self._failed_logins = 0
        self._deadline = 0.0  # in event loop time

    @property
    def is_authenticated(self) -> bool:
        return bool(self._token)

    async def run(self, *, implicit_tls: bool) -> None:
        self._set_deadline(AUTH_TIMEOUT_S)
        await super().run(implicit_tls=implicit_tls)

    def _command_timeout(self) -> float:
        return min(COMMAND_TIMEOUT_S, self._deadline - asyncio.get_running_loop().time())

    def _set_deadline(self, seconds: float) -> None:
        self._deadline = asyncio.get_running_loop().time() + seconds

    async def _run_command(self, verb: str, argument: str) -> None:
        if verb == "AUTH":
            await self._auth(argument.strip())
        else:
            await super()._run_command(verb, argument)

    # -- authentication ------------------------------------------------------------------------------------

    @property
    def _may_auth(self) -> bool:
        """Return whether AUTH is allowed: with TLS, or without TLS from loopback addresses only."""
        return self._connection.is_encrypted or is_loopback_or_in(self._connection.peer, ())

    def _extra_capabilities(self) -> list[str]:
        return [f"250 AUTH {MECHANISMS}"] if self._may_auth else []

    def _mail_rejection(self) -> str | None:
        if self._token:
            return None
        return NEED_AUTH if self._may_auth else NEED_STARTTLS

    def _reset(self) -> None:
        super()._reset()
        self._token = b""

    async def _auth(self, argument: str) -> None:
        if not self._client_name:
            self._reply(NEED_EHLO)
        elif self._token or self._envelope:
            self._reply("503 5.5.1 Already authenticated, or a mail is in progress")
        elif not self._may_auth:
            self._reply(NEED_STARTTLS)
        else:
            mechanism, _, initial = argument.partition(" ")
            try:
                await self._authenticate(mechanism.upper(), initial.strip())
            except AuthCancelled:
                self._reply("501 5.5.2 Authentication cancelled, or invalid base64")

    async def _authenticate(self, mechanism: str, initial: str) -> None:
        """Read the credentials, verify the API key, and reply."""
        if mechanism == "PLAIN":
            parts = (_decode_base64(initial) if initial else await self._challenge(b"334 ")).split(b"\0")
            if len(parts) != 3:
                raise AuthCancelled
            _, user, password = parts
        elif mechanism == "LOGIN":
            user = _decode_base64(initial) if initial else await self._challenge(b"334 VXNlcm5hbWU6")
            password = await self._challenge(b"334 UGFzc3dvcmQ6")
        else:
            self._reply(f"504 5.5.4 AUTH supports only {MECHANISMS.replace(' ', ' and ')}")
            return
        try:
            await self._intake.find_caller(password)
        except UNKNOWN_KEY as refusal:
            self._reply(reply_to(refusal))
            self._failed_logins += 1
            if self._failed_logins >= AUTH_ATTEMPTS_MAX:
                self._reply_and_end("421 4.7.0 Too many failed logins")
        else:
            self._token = password
            self._set_deadline(NEXT_MAIL_TIMEOUT_S)
            self._dedup_by_message_id = user.decode("utf-8", "replace").endswith(DEDUP_SUFFIX)
            self._reply("235 2.7.0 Authenticated")

    async def _challenge(self, prompt: bytes) -> bytes:
        """Send a challenge and return the client's decoded response; raises AuthCancelled."""
        self._connection.write_line(prompt)
        response = await self._connection.read_line(self._command_timeout())
        if response == b"*":
            raise AuthCancelled
        return _decode_base64(response)

    # -- mails ---------------------------------------------------------------------------------------------

    def _add_recipient(self, envelope: Envelope[Address], address: str) -> str:
        parsed_address = parse_address(address)
        if parsed_address is None:
            return "501 5.1.3 invalid_email: The recipient is not a valid email address"
        if parsed_address.normal not in (recipient.normal for recipient in envelope.recipients):
            if len(envelope.recipients) >= RECIPIENTS_MAX:
                return f"452 4.5.3 too_many_recipients: At most {RECIPIENTS_MAX}. Send the others in another mail"
            envelope.recipients.append(parsed_address)
        return "250 2.1.5 Ok"

    async def _receive_mail(self, envelope: Envelope[Address]) -> None:
        intake, reservation = self._intake, None
        try:
            request_id, caller = await intake.authorize(self._token, self._connection.peer)
            reservation = Reservation(caller.team.record.id, envelope.announced_size or self._settings.limits.mail_size)
            self._reply(START_MAIL_INPUT)
            read_mail = partial(self._read_mail, reservation)
            message_id = await intake.accept(
                request_id, caller, read_mail, envelope.recipients, dedup_by_message_id=self._dedup_by_message_id
            )
            self._reply(f"250 2.0.0 Ok: {message_id}")
            self._command_count = 0
            self._set_deadline(NEXT_MAIL_TIMEOUT_S)
        except Refusal as refusal:
            self._reply(reply_to(refusal))
        finally:
            if reservation:
                self._budget.release(reservation)

    async def _read_mail(self, reservation: Reservation) -> bytearray:
        """Read the mail to its end, even if it is refused, because the client reads the reply only then."""
        mail = bytearray()
        refusal: Refusal | None = None
        async for piece in self._connection.read_mail():
            if refusal is None:
                mail += piece
                refusal = await self._reserve(len(mail), reservation)
            if refusal is not None:
                mail.clear()
        if refusal is not None:
            raise refusal
        return mail

    async def _reserve(self, size: int, reservation: Reservation) -> Refusal | None:
        """Check the size limit and reserve memory for `size` bytes; return the refusal, or None if both succeeded."""
        if size > self._settings.limits.mail_size:
            return PayloadTooLarge(TOO_LARGE_TEXT)
        if size > BUDGETED_SIZE_MIN:
            try:
                await self._budget.reserve(reservation, size - reservation.reserved)
            except Refusal as refusal:
                return refusal
        return None


def submission_server(
    host_name: str, get_tls_context: GetTlsContext, intake: MailIntake, budget: ByteBudget
) -> SmtpServer:
    """Create the submission server; `host_name` is the host name in its greeting."""
    settings = SmtpServerSettings(
        host_name=host_name,
        limits=LIMITS,
        get_tls_context=get_tls_context,
        too_large_reply=reply_to(PayloadTooLarge(TOO_LARGE_TEXT)),
    )
    return SmtpServer(settings.limits, partial(SubmissionSession, settings, intake, budget))


def _decode_base64(text: str | bytes) -> bytes:
    """Decode base64; `=` is an empty value. Raises AuthCancelled if the text is invalid."""
    try:
        data = text.encode("utf-8", "replace") if isinstance(text, str) else text
        return b"" if data == b"=" else pybase64.b64decode(pad_base64(data), validate=True)
    except ValueError:
        raise AuthCancelled from None
