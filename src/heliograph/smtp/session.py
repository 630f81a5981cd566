"""SMTP server session: greeting, TLS, envelopes, command order and limits (RFC 5321).

A subclass for each server defines authentication, permitted recipients, and how mails are processed.
"""

import asyncio
import re
import ssl
from collections.abc import Callable
from typing import Generic, TypeVar

import msgspec

from heliograph.domain.text import CONTROLS
from heliograph.smtp.wire import BadLine, SmtpWire, TooSlow

COMMAND_S = 300.0  # timeout for the next command (RFC 5321, 4.5.3.2.7)
TEXT_MAX = 480  # bytes of a reply's text; a reply line has at most 512 (RFC 5321, 4.5.3.1.5)

FIRST_HELO = "503 5.5.1 Say EHLO first"
FIRST_MAIL = "503 5.5.1 Say MAIL first"
GO_ON = "354 End the mail with a dot on a line of its own"
ENOUGH = "421 4.7.0 Too many commands without a mail, try again later"
LEAVE = "421 4.3.2 Shutting down, try again"

_PATH = re.compile(r"(?:<([^<>]*)>|([^\s<>]+))((?:[ \t]+[^\s]+)*)[ \t]*")
_SENDER = re.compile(r'(?:(?:[^\s@"]+|"[^"\\]*")@[^\s@]+)?')

Tls = Callable[[], ssl.SSLContext | None]  # returns the context for the next handshake; None if there is no certificate
Who = TypeVar("Who")  # a server's type for recipients


class SmtpLimits(msgspec.Struct, frozen=True, kw_only=True):
    """Limits of an SMTP server."""

    size: int  # bytes of a mail
    connections: int
    per_peer: int  # connections from one IPv4 address or IPv6 network
    strangers: int | None = None  # unauthenticated connections among `per_peer`; None: no separate limit
    replies: int = 1000  # commands without an accepted mail before the connection is closed


class Terms(msgspec.Struct, frozen=True, kw_only=True):
    """Settings shared by all sessions of a server."""

    name: str  # host name in the greeting
    limits: SmtpLimits
    tls: Tls
    too_large: str  # reply to a mail above the size limit


class Envelope(msgspec.Struct, Generic[Who], kw_only=True):
    """The SMTP envelope of one mail."""

    sender: str
    utf8: bool
    size: int  # announced with SIZE; 0 if not
    recipients: list[Who] = []


class SmtpDialogue(Generic[Who]):
    """Base class of SMTP server sessions."""

    def __init__(self, terms: Terms, wire: SmtpWire) -> None:
        self._terms = terms
        self._wire = wire
        self._helo = ""  # the client's EHLO name; empty before EHLO
        self._over = self._draining = self._in_mail = False
        self._envelope: Envelope[Who] | None = None
        self._replies = 0

    # -- overridden by servers -----------------------------------------------------------------------------

    @property
    def is_known(self) -> bool:
        """Return whether the client is authenticated."""
        return False

    def _patience(self) -> float:
        """Return the timeout in seconds for the next command."""
        return COMMAND_S

    def _offers(self) -> list[str]:
        """Return additional lines of the EHLO reply."""
        return []

    def _barred(self) -> str | None:
        """Return the reply that forbids this client to send; None if sending is allowed."""
        return None

    def _admit(self, envelope: Envelope[Who], given: str) -> str:
        """Return the reply to RCPT; an accepted recipient is added to the envelope."""
        raise NotImplementedError

    async def _take(self, envelope: Envelope[Who]) -> None:
        """Reply to DATA, read the mail and process it."""
        raise NotImplementedError

    # -- commands ------------------------------------------------------------------------------------------

    async def run(self, *, tls_first: bool) -> None:
        """Run the session until it ends; `tls_first`: implicit TLS."""
        if tls_first and (context := self._terms.tls()):
            await self._wire.encrypt(context)
        self._say(f"220 {self._terms.name} ESMTP Heliograph")
        while not self._over:
            try:
                command = await self._wire.line(self._patience())
                if not self._over:  # `leave` was called while waiting
                    await self._hear(command)
            except BadLine:
                self._end("500 5.5.2 Lines have up to 12288 octets and end with CR LF")
            except TooSlow:
                self._end("421 4.4.2 Too slow")
            if self._wire.has_unread:  # pipelined commands must not block other tasks
                await asyncio.sleep(0)

    def leave(self) -> None:
        """End the session at shutdown; a mail in progress is finished first, otherwise the client must retry."""
        self._draining = True
        if not self._in_mail:
            self._over = True
            self._wire.hang_up(line(LEAVE))

    def _say(self, *lines: str) -> None:
        """Send a reply of one or more lines."""
        for text in lines[:-1]:
            self._wire.say(line(text[:3] + "-" + text[4:]))
        self._wire.say(line(lines[-1]))

    def _end(self, reply: str) -> None:
        """Send a reply and end the session."""
        self._say(reply)
        self._over = True

    async def _hear(self, command: bytes) -> None:
        """Decode and run a command; ends the session above the limit of commands."""
        self._replies += 1
        if self._replies >= self._terms.limits.replies:
            self._end(ENOUGH)
            return
        try:
            text = command.decode()
        except UnicodeDecodeError:
            text = "\0"
        if CONTROLS.search(text.replace("\t", " ")):
            self._say("500 5.5.2 A command is a line of text")
            return
        verb, _, rest = text.partition(" ")
        await self._obey(verb.upper(), rest)

    async def _obey(self, verb: str, rest: str) -> None:
        match verb:
            case "EHLO" | "HELO":
                self._greet(verb, rest.strip())
            case "STARTTLS":
                await self._encrypt(rest)
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

    def _greet(self, verb: str, name: str) -> None:
        if not name:
            self._say(f"501 5.5.4 Say {verb} and your name")
            return
        self._helo, self._envelope = name, None
        lines = [f"250 {self._terms.name}"]
        if verb == "EHLO":
            size = f"250 SIZE {self._terms.limits.size}"
            lines += [size, "250 8BITMIME", "250 SMTPUTF8", "250 PIPELINING", "250 ENHANCEDSTATUSCODES"]
            if not self._wire.encrypted and self._terms.tls():
                lines.append("250 STARTTLS")
            lines += self._offers()
        self._say(*lines)

    async def _encrypt(self, rest: str) -> None:
        context = self._terms.tls()
        if rest:
            self._say("501 5.5.4 STARTTLS stands alone")
        elif self._wire.encrypted or context is None:
            self._say("503 5.5.1 Already encrypted" if self._wire.encrypted else "502 5.5.1 No certificate is set up")
        else:
            self._say("220 2.0.0 Go ahead")
            await self._wire.encrypt(context)
            self._forget()

    def _forget(self) -> None:
        """Reset the session state after STARTTLS: nothing received in plaintext remains valid (RFC 3207, 4.2)."""
        self._helo, self._envelope = "", None

    # -- the envelope --------------------------------------------------------------------------------------

    def _mail(self, rest: str) -> None:
        found = _path("FROM:", rest)
        if not self._helo:
            self._say(FIRST_HELO)
        elif barred := self._barred():
            self._say(barred)
        elif self._envelope:
            self._say("503 5.5.1 One mail at a time")
        elif found is None:
            self._say("501 5.5.4 Say MAIL FROM:<address>")
        elif not _SENDER.fullmatch(found[0]):
            self._say("501 5.1.7 The sender is not an address")
        else:
            self._begin(found[0], found[1])

    def _begin(self, sender: str, options: dict[str, str]) -> None:
        """Check the options of MAIL and create the envelope."""
        size, body = options.pop("SIZE", "0"), options.pop("BODY", "8BITMIME")
        utf8 = options.pop("SMTPUTF8", None) is not None
        for ignored in ("AUTH", "RET", "ENVID"):
            options.pop(ignored, None)
        if options or body.upper() not in ("7BIT", "8BITMIME") or not (size.isascii() and size.isdigit()):
            self._say("555 5.5.4 MAIL takes SIZE, BODY=8BITMIME and SMTPUTF8")
        elif len(size) > 20 or int(size) > self._terms.limits.size:
            self._say(self._terms.too_large)
        elif not sender.isascii() and not utf8:
            self._say("553 5.6.7 Say SMTPUTF8 with MAIL")
        else:
            self._envelope = Envelope(sender=sender, utf8=utf8, size=int(size))
            self._say("250 2.1.0 Ok")

    def _rcpt(self, rest: str) -> None:
        envelope, found = self._envelope, _path("TO:", rest)
        if envelope is None:
            self._say(self._barred() or FIRST_MAIL)
        elif found is None:
            self._say("501 5.5.4 Say RCPT TO:<address>")
        elif not found[1].keys() <= {"NOTIFY", "ORCPT"}:  # accepted and ignored
            self._say("555 5.5.4 RCPT takes no options but NOTIFY and ORCPT")
        elif not found[0].isascii() and not envelope.utf8:
            self._say("553 5.6.7 Say SMTPUTF8 with MAIL")
        else:
            self._say(self._admit(envelope, found[0]))

    async def _data(self, rest: str) -> None:
        if self._envelope is None:
            self._say(self._barred() or FIRST_MAIL)
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
                self._end(LEAVE)


def line(text: str) -> bytes:
    """Encode a reply line: ASCII without control characters, at most TEXT_MAX bytes."""
    return CONTROLS.sub(" ", text).encode("ascii", "backslashreplace")[:TEXT_MAX]


def _path(word: str, rest: str) -> tuple[str, dict[str, str]] | None:
    """Parse the argument of MAIL or RCPT after `word`: the address, and its options by name. None if invalid."""
    if rest[: len(word)].upper() != word or not (found := _PATH.fullmatch(rest[len(word) :].lstrip())):
        return None
    pairs = [option.partition("=") for option in found[3].split()]
    return found[1] or found[2] or "", {name.upper(): value for name, _, value in pairs}
