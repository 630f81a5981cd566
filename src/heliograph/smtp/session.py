"""The dialogue of an SMTP server: greeting, TLS, envelopes, order and limits (RFC 5321).

Each of our servers says in a subclass who may send, to whom, and what becomes of a mail.
"""

import asyncio
import re
import ssl
from collections.abc import Callable
from typing import Generic, TypeVar

import msgspec

from heliograph.domain.text import CONTROLS
from heliograph.smtp.wire import BadLine, SmtpWire, TooSlow

COMMAND_S = 300.0  # for the next command (RFC 5321, 4.5.3.2.7)
TEXT_MAX = 480  # octets: a reply line has at most 512 (RFC 5321, 4.5.3.1.5)

FIRST_HELO = "503 5.5.1 Say EHLO first"
FIRST_MAIL = "503 5.5.1 Say MAIL first"
GO_ON = "354 End the mail with a dot on a line of its own"
ENOUGH = "421 4.7.0 Too many commands without a mail, try again later"
LEAVE = "421 4.3.2 Shutting down, try again"

_PATH = re.compile(r"(?:<([^<>]*)>|([^\s<>]+))((?:[ \t]+[^\s]+)*)[ \t]*")
_SENDER = re.compile(r'(?:(?:[^\s@"]+|"[^"\\]*")@[^\s@]+)?')

Tls = Callable[[], ssl.SSLContext | None]  # for the next handshake; None: there is no certificate
Who = TypeVar("Who")  # what a server keeps of a recipient


class SmtpLimits(msgspec.Struct, frozen=True, kw_only=True):
    size: int  # octets of a mail
    connections: int
    per_peer: int  # connections of one address, or one IPv6 network
    strangers: int | None = None  # of these, how many that have not shown a key; None: all
    replies: int = 1000  # to a client that gets no mail through


class Terms(msgspec.Struct, frozen=True, kw_only=True):
    """What the sessions of a server share."""

    name: str  # that we greet with
    limits: SmtpLimits
    tls: Tls
    too_large: str  # what a mail is refused with


class Envelope(msgspec.Struct, Generic[Who], kw_only=True):
    sender: str
    utf8: bool
    size: int  # that was announced
    recipients: list[Who] = []


class SmtpDialogue(Generic[Who]):
    def __init__(self, terms: Terms, wire: SmtpWire) -> None:
        self._terms = terms
        self._wire = wire
        self._helo = ""  # how the client calls itself, once it did
        self._over = self._draining = self._in_mail = False
        self._envelope: Envelope[Who] | None = None
        self._replies = 0

    # -- a server's own ------------------------------------------------------------------------------------

    @property
    def is_known(self) -> bool:
        return False

    def _patience(self) -> float:
        """Return how many seconds the next command may take."""
        return COMMAND_S

    def _offers(self) -> list[str]:
        """Return more lines for EHLO."""
        return []

    def _barred(self) -> str | None:
        """Return why this client may not send."""
        return None

    def _admit(self, envelope: Envelope[Who], given: str) -> str:
        """Return the reply to a recipient, who is in the envelope when it is welcome."""
        raise NotImplementedError

    async def _take(self, envelope: Envelope[Who]) -> None:
        """Read the mail and reply to it."""
        raise NotImplementedError

    # -- the dialogue --------------------------------------------------------------------------------------

    async def run(self, *, tls_first: bool) -> None:
        if tls_first and (context := self._terms.tls()):
            await self._wire.encrypt(context)
        self._say(f"220 {self._terms.name} ESMTP Heliograph")
        while not self._over:
            try:
                command = await self._wire.line(self._patience())
                if not self._over:  # sent away meanwhile
                    await self._hear(command)
            except BadLine:
                self._end("500 5.5.2 Lines have up to 12288 octets and end with CR LF")
            except TooSlow:
                self._end("421 4.4.2 Too slow")
            if self._wire.has_unread:  # pipelined commands must not keep others waiting
                await asyncio.sleep(0)

    def leave(self) -> None:
        """Leave because the process stops: what is being sent is finished, everything else comes again."""
        self._draining = True
        if not self._in_mail:
            self._over = True
            self._wire.hang_up(line(LEAVE))

    def _say(self, *lines: str) -> None:
        for text in lines[:-1]:
            self._wire.say(line(text[:3] + "-" + text[4:]))
        self._wire.say(line(lines[-1]))

    def _end(self, reply: str) -> None:
        self._say(reply)
        self._over = True

    async def _hear(self, command: bytes) -> None:
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
        """Forget it: nothing that was said in the clear holds inside TLS (RFC 3207, 4.2)."""
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
        elif not found[1].keys() <= {"NOTIFY", "ORCPT"}:  # taken and ignored
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
    """Return what a client may print: ASCII, no control characters, not too long."""
    return CONTROLS.sub(" ", text).encode("ascii", "backslashreplace")[:TEXT_MAX]


def _path(word: str, rest: str) -> tuple[str, dict[str, str]] | None:
    """Return the address after the word, and the options after it by name."""
    if rest[: len(word)].upper() != word or not (found := _PATH.fullmatch(rest[len(word) :].lstrip())):
        return None
    pairs = [option.partition("=") for option in found[3].split()]
    return found[1] or found[2] or "", {name.upper(): value for name, _, value in pairs}
