"""SMTP session of the submission server: authentication with an API key, recipients, and mails (RFC 6409)."""

import asyncio
from functools import partial

import pybase64

from heliograph.domain.limits import KIB, MIB, RECIPIENTS_MAX
from heliograph.domain.mail.address import Address, parse_address
from heliograph.domain.mail.mime_text import padded
from heliograph.domain.network.client_address import is_inside
from heliograph.domain.refusals import InvalidApiKey, PayloadTooLarge, Refusal
from heliograph.smtp.listener import SmtpServer
from heliograph.smtp.session import COMMAND_S, FIRST_HELO, GO_ON, Envelope, SmtpDialogue, SmtpLimits, Terms, Tls
from heliograph.smtp.wire import SmtpWire
from heliograph.submission.intake import MailIntake
from heliograph.submission.replies import reply_to
from heliograph.web.budget import ByteBudget, HeldBody

# The size allows 25 MiB of attachments in base64, and texts. The limits per peer and for unauthenticated connections
# prevent one network from using all connections.
LIMITS = SmtpLimits(size=35 * MIB, connections=1024, per_peer=512, strangers=128)
AUTH_S = 60.0  # timeout for authentication after connecting
SESSION_S = 600.0  # timeout for the next accepted mail, after authentication or the previous one
AUTH_TRIES = 3  # attempts before the connection is closed
BUDGETED = 64 * KIB  # mails above this size count against the memory budget
BY_MESSAGE_ID = "+message-id"  # suffix of the user name that enables deduplication by Message-ID

MECHANISMS = "PLAIN LOGIN"  # no CRAM-MD5, which requires the plaintext key; we store only its hash
FIRST_TLS = "530 5.7.0 Say STARTTLS first"
FIRST_AUTH = "530 5.7.0 Say AUTH first, with an API key as the password"
TOO_LARGE = "The mail is larger than SIZE says. Send less, for example a link instead of an attachment."


class Cancelled(Exception):
    """Raised if the client cancelled AUTH or sent invalid base64."""


class Submission(SmtpDialogue[Address]):
    """SMTP session of one client of the submission server."""

    def __init__(self, terms: Terms, intake: MailIntake, budget: ByteBudget, wire: SmtpWire) -> None:
        super().__init__(terms, wire)
        self._intake = intake
        self._budget = budget
        self._token = b""  # the API key, once verified
        self._by_message_id = False
        self._tries = 0
        self._until = 0.0  # deadline in event loop time

    @property
    def is_known(self) -> bool:
        return bool(self._token)

    async def run(self, *, tls_first: bool) -> None:
        self._wait_for(AUTH_S)
        await super().run(tls_first=tls_first)

    def _patience(self) -> float:
        return min(COMMAND_S, self._until - asyncio.get_running_loop().time())

    def _wait_for(self, seconds: float) -> None:
        self._until = asyncio.get_running_loop().time() + seconds

    async def _obey(self, verb: str, rest: str) -> None:
        if verb == "AUTH":
            await self._auth(rest.strip())
        else:
            await super()._obey(verb, rest)

    # -- authentication ------------------------------------------------------------------------------------

    @property
    def _may_auth(self) -> bool:
        """Return whether AUTH is allowed: with TLS, or without TLS from loopback addresses only."""
        return self._wire.encrypted or is_inside(self._wire.peer, ())

    def _offers(self) -> list[str]:
        return [f"250 AUTH {MECHANISMS}"] if self._may_auth else []

    def _barred(self) -> str | None:
        if self._token:
            return None
        return FIRST_AUTH if self._may_auth else FIRST_TLS

    def _forget(self) -> None:
        super()._forget()
        self._token = b""

    async def _auth(self, rest: str) -> None:
        if not self._helo:
            self._say(FIRST_HELO)
        elif self._token or self._envelope:
            self._say("503 5.5.1 Not now")
        elif not self._may_auth:
            self._say(FIRST_TLS)
        else:
            mechanism, _, initial = rest.partition(" ")
            try:
                await self._identify(mechanism.upper(), initial.strip())
            except Cancelled:
                self._say("501 5.5.2 AUTH was cancelled, or is not base64")

    async def _identify(self, mechanism: str, initial: str) -> None:
        """Read the credentials, verify the API key, and reply."""
        if mechanism == "PLAIN":
            parts = (_decoded(initial) if initial else await self._ask(b"334 ")).split(b"\0")
            if len(parts) != 3:
                raise Cancelled
            _, user, password = parts
        elif mechanism == "LOGIN":
            user = _decoded(initial) if initial else await self._ask(b"334 VXNlcm5hbWU6")
            password = await self._ask(b"334 UGFzc3dvcmQ6")
        else:
            self._say(f"504 5.5.4 AUTH is {MECHANISMS.replace(' ', ' or ')}")
            return
        try:
            await self._intake.find(password)
        except InvalidApiKey as refusal:
            self._say(reply_to(refusal))
            self._tries += 1
            if self._tries >= AUTH_TRIES:
                self._end("421 4.7.0 Too many wrong keys")
        else:
            self._token = password
            self._wait_for(SESSION_S)
            self._by_message_id = user.decode("utf-8", "replace").endswith(BY_MESSAGE_ID)
            self._say("235 2.7.0 Welcome")

    async def _ask(self, prompt: bytes) -> bytes:
        """Send a challenge and return the client's decoded response; raises Cancelled."""
        self._wire.say(prompt)
        answer = await self._wire.line(self._patience())
        if answer == b"*":
            raise Cancelled
        return _decoded(answer)

    # -- mails ---------------------------------------------------------------------------------------------

    def _admit(self, envelope: Envelope[Address], given: str) -> str:
        address = parse_address(given)
        if address is None:
            return "501 5.1.3 invalid_email: The recipient is not a valid email address"
        if address.normal not in (one.normal for one in envelope.recipients):
            if len(envelope.recipients) >= RECIPIENTS_MAX:
                return f"452 4.5.3 too_many_recipients: {RECIPIENTS_MAX} is the most. Send the others in another mail"
            envelope.recipients.append(address)
        return "250 2.1.5 Ok"

    async def _take(self, envelope: Envelope[Address]) -> None:
        intake, holder = self._intake, None
        try:
            id_, caller = await intake.admit(self._token, self._wire.peer)
            holder = HeldBody(caller.team.record.id, envelope.size or self._terms.limits.size)
            self._say(GO_ON)
            read = partial(self._read, holder)
            message = await intake.take(id_, caller, read, envelope.recipients, by_message_id=self._by_message_id)
            self._say(f"250 2.0.0 Ok: {message}")
            self._replies = 0
            self._wait_for(SESSION_S)
        except Refusal as refusal:
            self._say(reply_to(refusal))
        finally:
            if holder:
                self._budget.give_back(holder)

    async def _read(self, holder: HeldBody) -> bytearray:
        """Read the mail to its end, even if it is refused, so that the client reads the reply."""
        mail = bytearray()
        refusal: Refusal | None = None
        async for piece in self._wire.mail():
            if refusal is None:
                mail += piece
                refusal = await self._room(len(mail), holder)
            if refusal is not None:
                mail.clear()
        if refusal is not None:
            raise refusal
        return mail

    async def _room(self, size: int, holder: HeldBody) -> Refusal | None:
        """Check the size limit and reserve memory for `size` bytes; return the refusal if either fails."""
        if size > self._terms.limits.size:
            return PayloadTooLarge(TOO_LARGE)
        if size > BUDGETED:
            try:
                await self._budget.take(holder, size - holder.held)
            except Refusal as refusal:
                return refusal
        return None


def submission_server(name: str, tls: Tls, intake: MailIntake, budget: ByteBudget) -> SmtpServer:
    """Create the submission server; `name` is the host name in its greeting."""
    terms = Terms(name=name, limits=LIMITS, tls=tls, too_large=reply_to(PayloadTooLarge(TOO_LARGE)))
    return SmtpServer(terms.limits, partial(Submission, terms, intake, budget))


def _decoded(text: str | bytes) -> bytes:
    """Decode base64, where `=` means empty; raises Cancelled if invalid."""
    try:
        given = text.encode("utf-8", "replace") if isinstance(text, str) else text
        return b"" if given == b"=" else pybase64.b64decode(padded(given), validate=True)
    except ValueError:
        raise Cancelled from None
