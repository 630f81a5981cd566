"""SMTP server session: greeting, TLS, envelopes, command order and limits (RFC 5321).

Each server has a subclass with its authentication, its accepted recipients, and its processing of mails.
"""

import asyncio
import re
import ssl
from collections.abc import Callable
from typing import Generic, TypeVar

import msgspec

from heliograph.domain.text import CONTROL_CHARACTER
from heliograph.smtp.wire import InvalidLine, ReadTimeout, SmtpServerConnection

COMMAND_TIMEOUT_S = 300.0  # timeout for the next command (RFC 5321, 4.5.3.2.7)
REPLY_TEXT_MAX = 480  # bytes of a reply's text; a reply line has at most 512 (RFC 5321, 4.5.3.1.5)

NEED_EHLO = "503 5.5.1 Send EHLO first"
NEED_MAIL = "503 5.5.1 Send MAIL first"
START_MAIL_INPUT = "354 End the mail with a dot on a line of its own"
TOO_MANY_COMMANDS = "421 4.7.0 Too many commands without a mail, try again later"
SHUTTING_DOWN = "421 4.3.2 Shutting down, try again"

_PATH_AND_OPTIONS = re.compile(r"(?:<([^<>]*)>|([^\s<>]+))((?:[ \t]+[^\s]+)*)[ \t]*")
_SENDER_ADDRESS = re.compile(r'(?:(?:[^\s@"]+|"[^"\\]*")@[^\s@]+)?')

# returns the context of the next handshake; None if there is no certificate
GetTlsContext = Callable[[], ssl.SSLContext | None]
Recipient = TypeVar("Recipient")  # type of recipients in the subclass


class SmtpLimits(msgspec.Struct, frozen=True, kw_only=True):
    """Limits of an SMTP server."""

    mail_size: int  # bytes per mail
    connections: int
    per_network: int  # connections per IPv4 address or IPv6 network
    unauthenticated: int | None = None  # unauthenticated connections per network; None: no separate limit
    commands: int = 1000  # commands without an accepted mail before the connection is closed


class SmtpServerSettings(msgspec.Struct, frozen=True, kw_only=True):
    """Settings shared by all sessions of a server."""

    host_name: str  # host name in the greeting
    limits: SmtpLimits
    get_tls_context: GetTlsContext
    too_large_reply: str  # reply to a mail above `mail_size`


class Envelope(msgspec.Struct, Generic[Recipient], kw_only=True):
    """The SMTP envelope of one mail."""

    sender: str
    allows_utf8: bool
    announced_size: int  # size announced by the client (SIZE); 0 if missing
    recipients: list[Recipient] = []


class SmtpServerSession(Generic[Recipient]):
    """Base class of SMTP server sessions."""

    def __init__(self, settings: SmtpServerSettings, connection: SmtpServerConnection) -> None:
        self._settings = settings
        self._connection = connection
        self._client_name = ""  # the client's EHLO name; empty before EHLO
        self._is_ended = self._is_draining = self._is_receiving_mail = False
        self._envelope: Envelope[Recipient] | None = None
        self._command_count = 0

    # -- overridden by servers -----------------------------------------------------------------------------

    @property
    def is_authenticated(self) -> bool:
        """Return whether the client is authenticated."""
        return False

    def _command_timeout(self) -> float:
        """Return how many seconds to wait for the next command."""
        return COMMAND_TIMEOUT_S

    def _extra_capabilities(self) -> list[str]:
        """Return the server's own lines of the EHLO reply."""
        return []

    def _mail_rejection(self) -> str | None:
        """Return the reply that rejects MAIL; None if this client may send."""
        return None

    def _add_recipient(self, envelope: Envelope[Recipient], address: str) -> str:
        """Return the reply to RCPT; an accepted recipient is added to the envelope."""
        raise NotImplementedError

    async def _receive_mail(self, envelope: Envelope[Recipient]) -> None:
        """Reply to DATA, then read the mail and process it."""
        raise NotImplementedError

    # -- commands ------------------------------------------------------------------------------------------

    async def run(self, *, implicit_tls: bool) -> None:
        """Run the session until it ends; `implicit_tls`: TLS from the first byte."""
        if implicit_tls and (context := self._settings.get_tls_context()):
            await self._connection.start_tls(context)
        self._reply(f"220 {self._settings.host_name} ESMTP Heliograph")
        while not self._is_ended:
            try:
                command = await self._connection.read_line(self._command_timeout())
                if not self._is_ended:  # otherwise, `shut_down` was called while waiting
                    await self._handle_line(command)
            except InvalidLine:
                self._reply_and_end("500 5.5.2 Lines have up to 12288 octets and end with CR LF")
            except ReadTimeout:
                self._reply_and_end("421 4.4.2 Timeout")
            if self._connection.has_unread:  # pipelined commands must not block other tasks
                await asyncio.sleep(0)

    def shut_down(self) -> None:
        """End the session at shutdown. A mail in progress is received first: the client would have to send it again."""
        self._is_draining = True
        if not self._is_receiving_mail:
            self._is_ended = True
            self._connection.close_after_reply(encode_reply(SHUTTING_DOWN))

    def _reply(self, *lines: str) -> None:
        for text in lines[:-1]:
            self._connection.write_line(encode_reply(text[:3] + "-" + text[4:]))
        self._connection.write_line(encode_reply(lines[-1]))

    def _reply_and_end(self, reply: str) -> None:
        self._reply(reply)
        self._is_ended = True

    async def _handle_line(self, command: bytes) -> None:
        """Decode and run a command; end the session at the limit of commands without a mail."""
        self._command_count += 1
        if self._command_count >= self._settings.limits.commands:
            self._reply_and_end(TOO_MANY_COMMANDS)
            return
        try:
            text = command.decode()
        except UnicodeDecodeError:
            text = "\0"
        if CONTROL_CHARACTER.search(text.replace("\t", " ")):
            self._reply("500 5.5.2 Invalid character in the command")
            return
        verb, _, argument = text.partition(" ")
        await self._run_command(verb.upper(), argument)

    async def _run_command(self, verb: str, argument: str) -> None:
        match verb:
            case "EHLO" | "HELO":
                self._ehlo(verb, argument.strip())
            case "STARTTLS":
                await self._starttls(argument)
            case "MAIL":
                self._mail_from(argument)
            case "RCPT":
                self._rcpt_to(argument)
            case "DATA":
                await self._data(argument)
            case "RSET":
                self._envelope = None
                self._reply("250 2.0.0 Ok")
            case "NOOP":
                self._reply("250 2.0.0 Ok")
            case "VRFY":
                self._reply("252 2.5.0 Cannot verify the address, but mail to it may be accepted")
            case "QUIT":
                self._reply_and_end("221 2.0.0 Bye")
            case _:
                self._reply("500 5.5.1 Unknown command")

    def _ehlo(self, verb: str, name: str) -> None:
        if not name:
            self._reply(f"501 5.5.4 Syntax: {verb} hostname")
            return
        self._client_name, self._envelope = name, None
        lines = [f"250 {self._settings.host_name}"]
        if verb == "EHLO":
            size = f"250 SIZE {self._settings.limits.mail_size}"
            lines += [size, "250 8BITMIME", "250 SMTPUTF8", "250 PIPELINING", "250 ENHANCEDSTATUSCODES"]
            if not self._connection.is_encrypted and self._settings.get_tls_context():
                lines.append("250 STARTTLS")
            lines += self._extra_capabilities()
        self._reply(*lines)

    async def _starttls(self, argument: str) -> None:
        context = self._settings.get_tls_context()
        if argument:
            self._reply("501 5.5.4 STARTTLS takes no parameters")
        elif self._connection.is_encrypted:
            self._reply("503 5.5.1 TLS is already active")
        elif context is None:
            self._reply("502 5.5.1 TLS is not available")
        else:
            self._reply("220 2.0.0 Go ahead")
            await self._connection.start_tls(context)
            self._reset()

    def _reset(self) -> None:
        """Reset the session state after STARTTLS: nothing received in plaintext remains valid (RFC 3207, 4.2)."""
        self._client_name, self._envelope = "", None

    # -- the envelope --------------------------------------------------------------------------------------

    def _mail_from(self, argument: str) -> None:
        path = _parse_path("FROM:", argument)
        if not self._client_name:
            self._reply(NEED_EHLO)
        elif rejection := self._mail_rejection():
            self._reply(rejection)
        elif self._envelope:
            self._reply("503 5.5.1 MAIL was already sent")
        elif path is None:
            self._reply("501 5.5.4 Syntax: MAIL FROM:<address>")
        elif not _SENDER_ADDRESS.fullmatch(path[0]):
            self._reply("501 5.1.7 Invalid sender address")
        else:
            self._start_envelope(path[0], path[1])

    def _start_envelope(self, sender: str, options: dict[str, str]) -> None:
        """Check the options of MAIL and create the envelope."""
        size, body = options.pop("SIZE", "0"), options.pop("BODY", "8BITMIME")
        utf8 = options.pop("SMTPUTF8", None) is not None
        for ignored in ("AUTH", "RET", "ENVID"):
            options.pop(ignored, None)
        if options or body.upper() not in ("7BIT", "8BITMIME") or not (size.isascii() and size.isdigit()):
            self._reply("555 5.5.4 MAIL supports only SIZE, BODY=8BITMIME and SMTPUTF8")
        elif len(size) > 20 or int(size) > self._settings.limits.mail_size:
            self._reply(self._settings.too_large_reply)
        elif not sender.isascii() and not utf8:
            self._reply("553 5.6.7 A non-ASCII address requires SMTPUTF8 with MAIL")
        else:
            self._envelope = Envelope(sender=sender, allows_utf8=utf8, announced_size=int(size))
            self._reply("250 2.1.0 Ok")

    def _rcpt_to(self, argument: str) -> None:
        envelope, path = self._envelope, _parse_path("TO:", argument)
        if envelope is None:
            self._reply(self._mail_rejection() or NEED_MAIL)
        elif path is None:
            self._reply("501 5.5.4 Syntax: RCPT TO:<address>")
        elif not path[1].keys() <= {"NOTIFY", "ORCPT"}:  # these two parameters are permitted, but have no effect
            self._reply("555 5.5.4 RCPT supports only NOTIFY and ORCPT")
        elif not path[0].isascii() and not envelope.allows_utf8:
            self._reply("553 5.6.7 A non-ASCII address requires SMTPUTF8 with MAIL")
        else:
            self._reply(self._add_recipient(envelope, path[0]))

    async def _data(self, argument: str) -> None:
        if self._envelope is None:
            self._reply(self._mail_rejection() or NEED_MAIL)
        elif argument:
            self._reply("501 5.5.4 DATA takes no parameters")
        elif not self._envelope.recipients:
            self._reply("554 5.5.1 No valid recipients")
        else:
            self._is_receiving_mail = True
            try:
                await self._receive_mail(self._envelope)
            finally:
                self._envelope, self._is_receiving_mail = None, False
            if self._is_draining:
                self._reply_and_end(SHUTTING_DOWN)


def encode_reply(text: str) -> bytes:
    """Encode a reply line: ASCII without control characters, at most REPLY_TEXT_MAX bytes."""
    return CONTROL_CHARACTER.sub(" ", text).encode("ascii", "backslashreplace")[:REPLY_TEXT_MAX]


def _parse_path(prefix: str, argument: str) -> tuple[str, dict[str, str]] | None:
    """Parse the argument of MAIL or RCPT; return the address and the options by name, or None if it is invalid."""
    if argument[: len(prefix)].upper() != prefix or not (
        match := _PATH_AND_OPTIONS.fullmatch(argument[len(prefix) :].lstrip())
    ):
        return None
    pairs = [option.partition("=") for option in match[3].split()]
    return match[1] or match[2] or "", {name.upper(): value for name, _, value in pairs}
