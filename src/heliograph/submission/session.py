"""The dialogue of one SMTP submission: who is there, what they want to send to whom, and what came of it (RFC 6409)."""

import asyncio
import re
from functools import partial

import msgspec
import pybase64

from heliograph.rules.client_address import is_inside
from heliograph.rules.limits import MIB, RECIPIENTS_MAX
from heliograph.rules.mail.address import Address, parse_address
from heliograph.rules.mail.mime_text import padded
from heliograph.rules.refusals import InvalidApiKey, Refusal
from heliograph.rules.text import CONTROLS
from heliograph.submission.certificate import Certificate
from heliograph.submission.intake import MailIntake
from heliograph.submission.replies import line, reply_to
from heliograph.submission.wire import TOO_LARGE, BadLine, SmtpWire, TooSlow
from heliograph.web.budget import ByteBudget, HeldBody

SIZE = 35 * MIB  # of a mail: 25 MiB of files in base64, and texts
AUTH_S = 60.0  # from the connection to its key
COMMAND_S = 300.0  # for the next command (RFC 5321, 4.5.3.2.7)
AUTH_TRIES = 3
COMMANDS_MAX = 1000  # since the last mail that was taken
TURN = 50  # commands before other tasks run
BY_MESSAGE_ID = "+message-id"  # at the end of a user name: one message for each Message-ID

MECHANISMS = "PLAIN LOGIN"  # never CRAM-MD5: it needs the key in the clear, and we have its hash
FIRST_TLS = b"530 5.7.0 Say STARTTLS first"
FIRST_AUTH = b"530 5.7.0 Say AUTH first, with an API key as the password"
FIRST_HELO = b"503 5.5.1 Say EHLO first"
LEAVE = b"421 4.3.2 Shutting down, try again"

_PATH = re.compile(r"(?:<([^<>]*)>|([^\s<>]+))((?:[ \t]+[^\s]+)*)[ \t]*")
_SENDER = re.compile(r'(?:(?:[^\s@"]+|"[^"\\]*")@[^\s@]+)?')


class Envelope(msgspec.Struct, kw_only=True):
    utf8: bool
    size: int  # that was announced
    recipients: dict[str, Address] = {}  # by their normal form


class Hall(msgspec.Struct, frozen=True, kw_only=True):
    """What the sessions of a process share."""

    name: str  # that we greet with
    intake: MailIntake
    budget: ByteBudget
    certificate: Certificate | None  # None: nothing can be encrypted


class Cancelled(Exception):
    """The client took its AUTH back, or its answer is not base64."""


class Session:
    def __init__(self, hall: Hall, wire: SmtpWire) -> None:
        self._hall = hall
        self._wire = wire
        self._token = b""  # the API key, once it was found good
        self._by_message_id = False
        self._greeted = self._over = self._draining = self._in_mail = False
        self._envelope: Envelope | None = None
        self._tries = self._commands = 0

    @property
    def is_known(self) -> bool:
        return bool(self._token)

    async def run(self, *, tls_first: bool) -> None:
        loop = asyncio.get_running_loop()
        known_until = loop.time() + AUTH_S
        if tls_first and self._hall.certificate:
            await self._wire.encrypt(self._hall.certificate.context)
        self._say(f"220 {self._hall.name} ESMTP Heliograph")
        while not self._over:
            try:
                command = await self._wire.line(COMMAND_S if self._token else max(0.0, known_until - loop.time()))
                if not self._over:  # sent away meanwhile
                    await self._obey(command)
            except BadLine:
                self._end("500 5.5.2 Lines have up to 12288 octets and end with CR LF")
            except TooSlow:
                self._end("421 4.4.2 Too slow")
            self._commands += 1
            if self._commands > COMMANDS_MAX:
                self._end("421 4.7.0 Too many commands without a mail")
            if self._commands % TURN == 0:  # pipelined commands must not keep others waiting
                await asyncio.sleep(0)

    def leave(self) -> None:
        """The process stops: what is being sent is finished, everything else comes again."""
        self._draining = True
        if not self._in_mail:
            self._over = True
            self._wire.hang_up(LEAVE)

    def _say(self, *lines: str) -> None:
        for text in lines[:-1]:
            self._wire.say(line(text[:3] + "-" + text[4:]))
        self._wire.say(line(lines[-1]))

    def _end(self, reply: str) -> None:
        self._say(reply)
        self._over = True

    async def _obey(self, command: bytes) -> None:
        try:
            text = command.decode()
        except UnicodeDecodeError:
            text = "\0"
        if CONTROLS.search(text.replace("\t", " ")):
            self._say("500 5.5.2 A command is a line of text")
            return
        verb, _, rest = text.partition(" ")
        match verb.upper():
            case "EHLO" | "HELO":
                self._greet(verb.upper(), rest.strip())
            case "STARTTLS":
                await self._encrypt(rest)
            case "AUTH":
                await self._auth(rest.strip())
            case "MAIL":
                self._mail(rest)
            case "RCPT":
                self._rcpt(rest)
            case "DATA":
                await self._data(rest)
            case "RSET":
                self._envelope = None
                self._say("250 2.0.0 Ok")
            case "NOOP":
                self._say("250 2.0.0 Ok")
            case "VRFY":
                self._say("252 2.5.0 Send it, and see")
            case "QUIT":
                self._end("221 2.0.0 Bye")
            case _:
                self._say("500 5.5.1 No such command")

    # -- who is there --------------------------------------------------------------------------------------

    @property
    def _may_auth(self) -> bool:
        """A key in the clear stays on this machine."""
        return self._wire.encrypted or is_inside(self._wire.peer, ())

    def _greet(self, verb: str, name: str) -> None:
        if not name:
            self._say(f"501 5.5.4 Say {verb} and your name")
            return
        self._greeted, self._envelope = True, None
        lines = [f"250 {self._hall.name}"]
        if verb == "EHLO":
            lines += [f"250 SIZE {SIZE}", "250 8BITMIME", "250 SMTPUTF8", "250 PIPELINING", "250 ENHANCEDSTATUSCODES"]
            if self._hall.certificate and not self._wire.encrypted:
                lines.append("250 STARTTLS")
            if self._may_auth:
                lines.append(f"250 AUTH {MECHANISMS}")
        self._say(*lines)

    async def _encrypt(self, rest: str) -> None:
        if rest:
            self._say("501 5.5.4 STARTTLS stands alone")
        elif self._wire.encrypted or self._hall.certificate is None:
            self._say("503 5.5.1 Already encrypted" if self._wire.encrypted else "502 5.5.1 No certificate is set up")
        else:
            self._say("220 2.0.0 Go ahead")
            await self._wire.encrypt(self._hall.certificate.context)
            self._greeted, self._envelope, self._token = False, None, b""

    async def _auth(self, rest: str) -> None:
        if not self._greeted:
            self._wire.say(FIRST_HELO)
        elif self._token or self._envelope:
            self._say("503 5.5.1 Not now")
        elif not self._may_auth:
            self._wire.say(FIRST_TLS)
        else:
            mechanism, _, initial = rest.partition(" ")
            try:
                await self._identify(mechanism.upper(), initial.strip())
            except Cancelled:
                self._say("501 5.5.2 AUTH was cancelled, or is not base64")

    async def _identify(self, mechanism: str, initial: str) -> None:
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
            await self._hall.intake.find(password)
        except InvalidApiKey as refusal:
            self._wire.say(reply_to(refusal))
            self._tries += 1
            if self._tries >= AUTH_TRIES:
                self._end("421 4.7.0 Too many wrong keys")
        else:
            self._token = password
            self._by_message_id = user.decode("utf-8", "replace").endswith(BY_MESSAGE_ID)
            self._say("235 2.7.0 Welcome")

    async def _ask(self, prompt: bytes) -> bytes:
        self._wire.say(prompt)
        answer = await self._wire.line(AUTH_S)
        if answer == b"*":
            raise Cancelled
        return _decoded(answer)

    # -- what they send ------------------------------------------------------------------------------------

    def _mail(self, rest: str) -> None:
        found = _path("FROM:", rest)
        if not self._greeted:
            self._wire.say(FIRST_HELO)
        elif not self._token:
            self._wire.say(FIRST_AUTH if self._may_auth else FIRST_TLS)
        elif self._envelope:
            self._say("503 5.5.1 One mail at a time")
        elif found is None:
            self._say("501 5.5.4 Say MAIL FROM:<address>")
        elif not _SENDER.fullmatch(found[0]):
            self._say("501 5.1.7 The sender is not an address")
        else:
            self._begin(found[0], found[1])

    def _begin(self, sender: str, options: dict[str, str]) -> None:
        size, body = options.pop("SIZE", "0"), options.pop("BODY", "8BITMIME")
        utf8 = options.pop("SMTPUTF8", None) is not None
        for ignored in ("AUTH", "RET", "ENVID"):
            options.pop(ignored, None)
        if options or body.upper() not in ("7BIT", "8BITMIME") or not (size.isascii() and size.isdigit()):
            self._say("555 5.5.4 MAIL takes SIZE, BODY=8BITMIME and SMTPUTF8")
        elif len(size) > 20 or int(size) > SIZE:
            self._say(f"552 5.3.4 payload_too_large: {TOO_LARGE}")
        elif not sender.isascii() and not utf8:
            self._say("553 5.6.7 Say SMTPUTF8 with MAIL")
        else:
            self._envelope = Envelope(utf8=utf8, size=int(size))
            self._say("250 2.1.0 Ok")

    def _rcpt(self, rest: str) -> None:
        envelope, found = self._envelope, _path("TO:", rest)
        if envelope is None:
            self._wire.say(b"503 5.5.1 Say MAIL first" if self._token else FIRST_AUTH)
        elif found is None:
            self._say("501 5.5.4 Say RCPT TO:<address>")
        elif not found[1].keys() <= {"NOTIFY", "ORCPT"}:  # taken and ignored: what becomes of it is told by webhooks
            self._say("555 5.5.4 RCPT takes no options but NOTIFY and ORCPT")
        elif not found[0].isascii() and not envelope.utf8:
            self._say("553 5.6.7 Say SMTPUTF8 with MAIL")
        elif (address := parse_address(found[0])) is None:
            self._say("501 5.1.3 invalid_email: The recipient is not a valid email address")
        elif len(envelope.recipients) >= RECIPIENTS_MAX and address.normal not in envelope.recipients:
            self._say(f"452 4.5.3 too_many_recipients: {RECIPIENTS_MAX} is the most. Send the others in another mail")
        else:
            envelope.recipients.setdefault(address.normal, address)
            self._say("250 2.1.5 Ok")

    async def _data(self, rest: str) -> None:
        if self._envelope is None:
            self._wire.say(b"503 5.5.1 Say MAIL first" if self._token else FIRST_AUTH)
        elif rest:
            self._say("501 5.5.4 DATA stands alone")
        elif not self._envelope.recipients:
            self._say("554 5.5.1 No valid recipients")
        else:
            self._in_mail = True
            try:
                await self._take(self._envelope)
            finally:
                self._envelope, self._in_mail = None, False
            if self._draining:
                self._wire.say(LEAVE)
                self._over = True

    async def _take(self, envelope: Envelope) -> None:
        hall, holder = self._hall, None
        try:
            id_, caller = await hall.intake.admit(self._token, self._wire.peer)
            holder = HeldBody(caller.team.record.id, envelope.size or SIZE)
            recipients = list(envelope.recipients.values())
            read = partial(self._wire.mail, SIZE, hall.budget, holder)
            self._say("354 End the mail with a dot on a line of its own")
            message = await hall.intake.take(id_, caller, read, recipients, by_message_id=self._by_message_id)
            self._say(f"250 2.0.0 Ok: {message}")
            self._commands = 0
        except Refusal as refusal:
            self._wire.say(reply_to(refusal))
        finally:
            if holder:
                hall.budget.give_back(holder)


def _decoded(text: str | bytes) -> bytes:
    try:
        given = text.encode("utf-8", "replace") if isinstance(text, str) else text
        return b"" if given == b"=" else pybase64.b64decode(padded(given), validate=True)
    except ValueError:
        raise Cancelled from None


def _path(word: str, rest: str) -> tuple[str, dict[str, str]] | None:
    """The address after the word, and the options after it by name."""
    if rest[: len(word)].upper() != word or not (found := _PATH.fullmatch(rest[len(word) :].lstrip())):
        return None
    pairs = [option.partition("=") for option in found[3].split()]
    return found[1] or found[2] or "", {name.upper(): value for name, _, value in pairs}
