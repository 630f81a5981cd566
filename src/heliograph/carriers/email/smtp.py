"""SMTP client session: connects, starts TLS, authenticates, and sends any number of mails.

A connection lost before the final dot sent nothing: Deferred. If it is lost after the dot and before the reply, the
mail may have arrived: Deferred with `uncertain`, and the retry has the same Message-ID.
"""

import asyncio
import base64
import os
import re
import ssl
from collections.abc import Awaitable, Iterable
from typing import Any, Self

import msgspec
from msgspec.structs import replace

from heliograph.carriers.email.tls_policy import TRUST, Pin, Tls, context_for, is_pinned, presented
from heliograph.carriers.email.wire import Broken, Untrusted, Wire, tls_words, wire_form
from heliograph.domain.delivery.outcome import (
    FORWARDING_FAILED,
    Accepted,
    Deferred,
    Outcome,
    Refused,
    Trouble,
)
from heliograph.domain.mail.mailbox_provider import provider_of
from heliograph.domain.network.ssrf import is_denied
from heliograph.inbound.policy.bounce_recipient import begins_with_another
from heliograph.inbound.policy.smtp_reply import (
    ABOUT_THE_RECIPIENT,
    Reply,
    Verb,
    pauses_host,
    read_size,
    verdict,
)
from heliograph.runtime import metrics

BLOCK = 64 * 1024  # bytes of mail written at a time

_PATH = re.compile(r"[^\x00-\x20\x7f-\xa0<>\u2028\u2029]*")


_LIMITS: dict[Verb, str] = {"connect": "greeting", "data": "data", "body": "block", "final": "final"}


class Timeouts(msgspec.Struct, frozen=True, kw_only=True):
    """Timeouts in seconds; those for replies are from RFC 5321, 4.5.3.2."""

    connect: float = 30
    greeting: float = 300
    command: float = 300
    data: float = 120
    block: float = 180
    final: float = 600
    quit: float = 5

    def of(self, verb: Verb) -> float:
        """Return the timeout for the reply to `verb`."""
        limit: float = getattr(self, _LIMITS.get(verb, "command"))
        return limit


class Destination(msgspec.Struct, frozen=True, kw_only=True):
    """Address and TLS requirements of a connection. Connections with equal destinations are interchangeable."""

    host: str  # name that the certificate must be issued for
    address: str  # a checked IP address, or the relay host that the operator configured
    port: int
    tls: Tls
    pins: tuple[Pin, ...] = ()
    domain: str | None = None  # second name that is accepted in a certificate from a pinned authority
    source: str | None = None  # local IP address to connect from


class Login(msgspec.Struct, frozen=True, kw_only=True):
    username: str
    password: str

    def __repr__(self) -> str:
        return "Login(…)"


class SmtpOptions(msgspec.Struct, frozen=True, kw_only=True):
    """Options shared by all connections of a carrier."""

    helo: str | None = None  # EHLO name; None: the local address as a literal
    login: Login | None = None
    timeouts: Timeouts = Timeouts()
    roots: ssl.SSLContext | None = None  # trusted roots; None: the system's


DEFAULT_OPTIONS = SmtpOptions()


class SmtpSession:
    """An open SMTP connection. `send` may be called repeatedly while the session is `usable`."""

    def __init__(self, wire: Wire, destination: Destination, smtp_options: SmtpOptions) -> None:
        self._wire = wire
        self._smtp_options = smtp_options
        self._address = _host_of(wire, "peername")
        self._offers: dict[str, str] = {}  # EHLO keyword → parameters
        self._unclean = False  # a transaction was abandoned: send RSET before the next one
        self._open = True
        self._recipient = ""  # recipient of the mail in progress
        self._counted = metrics.smtp_connections.labels(provider_of(destination.host), destination.source or "default")
        self._counted.inc()
        self.destination = destination
        self.tls: str | None = None
        self.verb: Verb = "connect"  # last command sent
        self.sent = 0  # number of mails attempted, with any outcome

    @classmethod
    async def open(cls, destination: Destination, smtp_options: SmtpOptions) -> Self | Deferred:
        """Connect, send EHLO, start TLS and authenticate; return the session, or Deferred on failure.

        If opportunistic TLS fails, connect again without TLS.
        """
        try:
            return await cls._open_as_asked(destination, smtp_options)
        except Untrusted:
            opened = await cls._open_as_asked(replace(destination, tls="none"), smtp_options)
            if isinstance(opened, cls):
                opened.destination = destination
            return opened

    @classmethod
    async def _open_as_asked(cls, destination: Destination, smtp_options: SmtpOptions) -> Self | Deferred:
        try:
            session = cls(await _connect(destination, smtp_options), destination, smtp_options)
        except (OSError, ValueError) as error:
            text = f"cannot connect to {destination.host}: {_connect_words(error)}"
            trouble: Trouble = "encryption" if isinstance(error, ssl.SSLError) else "unreachable"
            return Deferred(detail=_detail(destination, text, trouble=trouble), unreachable=True)
        try:
            refusal = await session._greet()
        except BaseException as error:
            session.abort()
            if isinstance(error, Untrusted) and destination.tls == "opportunistic":
                raise
            return replace(session._broken(error), unreachable=True)
        if refusal is not None:
            session.abort()
            return Deferred(detail=refusal, unreachable=True)
        return session

    async def send(
        self, envelope_from: str, recipient: str, chunks: Iterable[bytes], size: int, needs_utf8: bool = False
    ) -> Outcome:
        """Send one mail to one recipient. If `chunks` raises, the connection is aborted and the mail discarded."""
        wide = needs_utf8 or not (envelope_from + recipient).isascii()
        if misfit := self._misfit(envelope_from, recipient, size, wide):
            return Refused(detail=misfit)
        self.sent += 1
        self._recipient = recipient
        try:
            refused = await self._envelope(self._commands(envelope_from, recipient, size, wide))
            return refused or await self._mail(chunks)
        except BaseException as error:
            self.abort()
            return self._broken(error)

    @property
    def usable(self) -> bool:
        """Return whether the connection is open and has no unexpected input."""
        return self._open and self._wire.quiet

    def abort(self) -> None:
        if self._open:
            self._counted.dec()
        self._open = False
        self._wire.transport.abort()

    async def quit(self) -> None:
        """Send QUIT, wait briefly for the reply, and close the connection."""
        try:
            if self.usable:
                self._wire.write(b"QUIT\r\n")
                await self._wire.reply(self._smtp_options.timeouts.quit)
        except (Broken, TimeoutError):
            pass
        finally:
            self.abort()

    # -- opening: each step returns None on success, or the detail of the failure --

    async def _greet(self) -> dict[str, Any] | None:
        if self.destination.tls == "implicit":
            self._judge()
        greeting = await self._read("connect")
        if verdict(greeting, "connect") != "accepted":
            return self._told(greeting)
        refusal = await self._hello() or await self._start_tls() or await self._log_in()
        if refusal is None:
            policy = "none" if self.tls is None else self.destination.tls
            metrics.smtp_secured[provider_of(self.destination.host), policy].inc()
        return refusal

    async def _hello(self) -> dict[str, Any] | None:
        name = self._smtp_options.helo or _literal(_host_of(self._wire, "sockname"))
        reply = await self._ask("ehlo", f"EHLO {name}")
        self._offers = {}
        if reply.code // 100 == 5:  # a server without ESMTP (before 1995)
            reply = await self._ask("ehlo", f"HELO {name}")
        elif reply.code == 250:
            words = [line.partition(" ") for line in reply.lines[1:]]
            self._offers = {keyword.upper(): parameters for keyword, _, parameters in words}
        return None if reply.code == 250 else self._told(reply)

    async def _start_tls(self) -> dict[str, Any] | None:
        asked = self.destination.tls
        if asked in ("none", "implicit"):
            return None
        if "STARTTLS" not in self._offers:
            lacking = f"{self.destination.host} does not offer STARTTLS, and without TLS nothing is sent to it"
            return None if asked == "opportunistic" else self._detail(lacking, trouble="encryption")
        reply = await self._ask("starttls", "STARTTLS")
        if reply.code != 220:
            return None if asked == "opportunistic" and reply.code != 421 else self._told(reply)
        context = context_for(asked, self._smtp_options.roots)
        await self._wire.secure(context, self.destination.host, self._smtp_options.timeouts.connect)
        self._judge()
        return await self._hello()  # discard the capabilities that were offered before TLS

    def _judge(self) -> None:
        """Record the TLS version; raise Untrusted if DANE is required and no TLSA record matches."""
        tls, destination = self._wire.transport.get_extra_info("ssl_object"), self.destination
        names = filter(None, (destination.host, destination.domain))
        if destination.tls == "dane" and not is_pinned(presented(tls), destination.pins, list(names)):
            raise Untrusted("the TLSA records know neither the certificate nor who issued it")
        self.tls = f"{tls.version()}{TRUST.get(destination.tls, '')}"

    async def _log_in(self) -> dict[str, Any] | None:
        login = self._smtp_options.login
        if login is None:
            return None
        if self.tls is None and not (self._address and is_denied(self._address)):
            return self._detail(
                "the password was not sent: without TLS it is sent only to a relay at a private address",
                trouble="encryption",
            )
        mechanisms = self._offers.get("AUTH", "").upper().split()
        if "PLAIN" in mechanisms:
            word = _base64("\0".join(("", login.username, login.password)))
            reply = await self._ask("auth", f"AUTH PLAIN {word}")
        elif "LOGIN" in mechanisms:
            reply = await self._ask("auth", "AUTH LOGIN")
            for word in (login.username, login.password):
                if reply.code == 334:
                    reply = await self._ask("auth", _base64(word))
        else:
            told = f"{self.destination.host} offers neither AUTH PLAIN nor AUTH LOGIN"
            return self._detail(told, trouble="account")
        return None if reply.code == 235 else self._told(reply)

    # -- sending --

    def _misfit(self, envelope_from: str, recipient: str, size: int, wide: bool) -> dict[str, Any] | None:
        """Return the detail of a refusal if this server cannot accept the mail; None if it may."""
        host = self.destination.host
        if not (_PATH.fullmatch(envelope_from) and _PATH.fullmatch(recipient)):
            return self._detail("the address cannot be used in an SMTP command", enhanced="5.1.3")
        if wide and "SMTPUTF8" not in self._offers:
            text = f"{host} does not take international addresses: it does not offer SMTPUTF8"
            return self._detail(text, enhanced="5.6.7")
        limit = read_size(self._offers.get("SIZE", ""))
        if 0 < limit < size:
            return self._detail(f"{host} takes at most {limit} octets, the mail has {size}", enhanced="5.3.4")
        return None

    def _commands(self, envelope_from: str, recipient: str, size: int, wide: bool) -> dict[Verb, bytes]:
        parameters = f" SIZE={size}" if "SIZE" in self._offers else ""
        if wide:
            # All other mail is 7bit: with BODY=8BITMIME a later hop might re-encode it and break the signature.
            parameters += " BODY=8BITMIME SMTPUTF8" if "8BITMIME" in self._offers else " SMTPUTF8"
        commands: dict[Verb, bytes] = {"rset": b"RSET\r\n"} if self._unclean else {}
        commands["mail"] = f"MAIL FROM:<{envelope_from}>{parameters}\r\n".encode()
        commands["rcpt"] = f"RCPT TO:<{recipient}>\r\n".encode()
        commands["data"] = b"DATA\r\n"
        return commands

    async def _envelope(self, commands: dict[Verb, bytes]) -> Outcome | None:
        """Send the envelope commands; None if the server is ready for the mail, else the outcome."""
        together = "PIPELINING" in self._offers
        if together:
            self._wire.write(b"".join(commands.values()))
        unanswered = list(commands)
        while unanswered:
            verb = unanswered.pop(0)
            if not together:
                self._wire.write(commands[verb])
            reply = await self._read(verb)
            if verdict(reply, verb) != "accepted":
                await self._give_up(unanswered if together else [])
                return self._outcome(reply, verb)
        self._unclean = False
        return None

    async def _give_up(self, unanswered: list[Verb]) -> None:
        """Read the replies to commands already sent, so that the connection can be reused."""
        self._unclean, verb = True, self.verb
        try:
            late = [await self._read(asked) for asked in unanswered]
        except (Broken, TimeoutError):
            self.abort()
        else:
            # The server awaits a mail: only closing the connection prevents it from accepting an empty one.
            if any(reply.code == 354 for reply in late):
                self.abort()
        self.verb = verb

    async def _mail(self, chunks: Iterable[bytes]) -> Outcome:
        self.verb = "body"
        block = bytearray()
        for piece in wire_form(chunks):
            block += piece
            if len(block) >= BLOCK:
                self._wire.write(bytes(block))
                block.clear()
                if early := await self._early():
                    return early
        if early := await self._early():
            return early
        self._wire.write(bytes(block + b".\r\n"))
        return self._outcome(await self._read("final"), "final")

    async def _early(self) -> Outcome | None:
        """Wait until the write buffer has drained. Return the outcome if the server has already replied.

        A reply before the end of the mail is a refusal.
        """
        try:
            await self._wire.drain(self._smtp_options.timeouts.block)
        except Broken:
            if not self._wire.has_reply:
                raise
        if not self._wire.has_reply:
            return None
        reply = await self._read("body")
        self.abort()
        return self._outcome(reply, "body")

    # -- commands, replies and outcomes --

    async def _ask(self, verb: Verb, command: str) -> Reply:
        self._wire.write(f"{command}\r\n".encode())
        return await self._read(verb)

    def _read(self, verb: Verb) -> Awaitable[Reply]:
        self.verb = verb
        return self._wire.reply(self._smtp_options.timeouts.of(verb))

    def _outcome(self, reply: Reply, verb: Verb) -> Outcome:
        detail = self._told(reply)
        if pauses_host(detail):
            self.abort()
        match verdict(reply, verb):
            case "accepted":
                return Accepted(detail=detail)
            case "deferred":
                return Deferred(detail=detail)
            case "bounced" | "absent" if begins_with_another(" ".join(reply.lines), self._recipient):
                return Refused(detail={**detail, "reason": FORWARDING_FAILED})
            case refused:
                by_inbox = verb in ABOUT_THE_RECIPIENT  # `tell` clears it for a relay
                return Refused(
                    detail=detail, bounced=refused != "failed", by_inbox=by_inbox, absent=refused == "absent"
                )

    def _broken(self, error: BaseException) -> Deferred:
        """Return the outcome for a lost connection or timeout; re-raise any other exception."""
        host, seconds = self.destination.host, self._smtp_options.timeouts.of(self.verb)
        match error:
            case TimeoutError():
                words = f"{host} was silent for {seconds:g} s"
            case Broken():
                words = f"{host}: {error}"
            case _:
                raise error
        if self.verb != "final":  # only at `body` can the mail be the cause; earlier, the server is unreachable
            trouble: Trouble = "encryption" if isinstance(error, Untrusted) else "unreachable"
            detail = self._detail(f"{words} (at {self.verb})", trouble=trouble)
            return Deferred(detail=detail, unreachable=self.verb != "body")
        text = f"{words} (after the whole mail: it may have arrived)"
        return Deferred(detail={**self._detail(text, trouble="server_silent"), "uncertain": True})

    def _told(self, reply: Reply) -> dict[str, Any]:
        return self._detail(reply.text, code=str(reply.code), enhanced=reply.enhanced)

    def _detail(self, text: str, **more: str | None) -> dict[str, Any]:
        return _detail(self.destination, text, address=self._address, tls=self.tls, **more)


async def _connect(destination: Destination, smtp_options: SmtpOptions) -> Wire:
    implicit = destination.tls == "implicit"
    async with asyncio.timeout(smtp_options.timeouts.connect):
        _, wire = await asyncio.get_running_loop().create_connection(
            Wire,
            destination.address,
            destination.port,
            local_addr=(destination.source, 0) if destination.source else None,
            ssl=context_for("implicit", smtp_options.roots) if implicit else None,
            server_hostname=destination.host if implicit else None,
        )
    return wire


def _connect_words(error: Exception) -> str:
    match error:
        case TimeoutError():
            return "timed out"
        case ssl.SSLError():
            return tls_words(error)
        case OSError(errno=int(code)) if code > 0:  # negative codes are from the resolver
            return os.strerror(code).lower()
        case OSError(strerror=str(words)):
            return words
        case _:
            return str(error) or type(error).__name__


def _detail(destination: Destination, text: str, **more: str | None) -> dict[str, Any]:
    unsaid = {"address": destination.address, "tls": None, "code": None, "enhanced": None}
    return {"host": destination.host, **unsaid, **more, "text": text}


def _host_of(wire: Wire, side: str) -> str:
    return str((wire.transport.get_extra_info(side) or ("",))[0])


def _literal(address: str) -> str:
    return f"[IPv6:{address}]" if ":" in address else f"[{address}]"


def _base64(text: str) -> str:
    return base64.b64encode(text.encode()).decode()
