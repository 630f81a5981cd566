"""SMTP client session: connects, starts TLS, authenticates, and sends any number of mails.

If the connection is lost before the final dot, nothing was sent: Deferred. If it is lost after the dot and before the
reply, the mail may have arrived: Deferred with `uncertain`, and the retry has the same Message-ID.
"""

import asyncio
import base64
import os
import re
import ssl
from collections.abc import Awaitable, Callable, Iterable
from typing import Any, Self

import msgspec
from msgspec.structs import replace

from heliograph.carriers.email.tls_policy import (
    TLS_SUFFIX_BY_MODE,
    TlsaRecord,
    TlsMode,
    context_for,
    matches_tlsa,
    presented_chain,
)
from heliograph.carriers.email.wire import (
    ProtocolError,
    SmtpClientConnection,
    TlsError,
    describe_tls_error,
    dot_stuff,
)
from heliograph.domain.delivery.outcome import (
    FORWARDING_FAILED,
    Accepted,
    ConnectionFailure,
    Deferred,
    Outcome,
    Refused,
)
from heliograph.domain.mail.mailbox_provider import provider_of
from heliograph.domain.network.ssrf import is_denied
from heliograph.inbound.policy.bounce_recipient import names_other_recipient
from heliograph.inbound.policy.smtp_reply import (
    RECIPIENT_VERBS,
    Reply,
    Verb,
    classify_reply,
    pauses_host,
    read_size,
)
from heliograph.runtime import metrics

BLOCK_SIZE = 64 * 1024  # bytes of mail written at a time

_VALID_ADDRESS = re.compile(r"[^\x00-\x20\x7f-\xa0<>\u2028\u2029]*")
_TIMEOUT_BY_VERB: dict[Verb, str] = {"connect": "greeting", "data": "data", "body": "block", "final": "final"}


class Timeouts(msgspec.Struct, frozen=True, kw_only=True):
    """Timeouts in seconds; the timeouts of replies are those of RFC 5321, 4.5.3.2."""

    connect: float = 30
    greeting: float = 300
    command: float = 300
    data: float = 120
    block: float = 180
    final: float = 600
    quit: float = 5

    def reply_timeout(self, verb: Verb) -> float:
        timeout: float = getattr(self, _TIMEOUT_BY_VERB.get(verb, "command"))
        return timeout


class Destination(msgspec.Struct, frozen=True, kw_only=True):
    """Address and TLS requirements of an SMTP connection. Connections with equal destinations are interchangeable."""

    host: str  # name that the certificate must be issued for
    address: str  # a checked IP address, or the relay host that the operator configured
    port: int
    tls: TlsMode
    tlsa_records: tuple[TlsaRecord, ...] = ()
    certificate_domain: str | None = None  # second name that is accepted in a certificate from a pinned authority
    source_address: str | None = None  # local IP address to connect from


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
    """An open SMTP connection. `send` may be called repeatedly while `is_usable` is true."""

    def __init__(self, connection: SmtpClientConnection, destination: Destination, smtp_options: SmtpOptions) -> None:
        self._connection = connection
        self._smtp_options = smtp_options
        self._address = _socket_address(connection, "peername")
        self._capabilities: dict[str, str] = {}  # EHLO keyword → parameters
        self._needs_reset = False  # a transaction was abandoned: send RSET before the next one
        self._is_open = True
        self._recipient = ""  # recipient of the mail in progress
        self._connection_gauge = metrics.smtp_connections.labels(
            provider_of(destination.host), destination.source_address or "default"
        )
        self._connection_gauge.inc()
        self.destination = destination
        self.tls: str | None = None
        self.verb: Verb = "connect"  # last command sent
        self.mails_attempted = 0  # number of mails attempted, with any outcome
        self.on_closed: Callable[[], None] | None = None  # called once when the connection is closed

    @classmethod
    async def open(cls, destination: Destination, smtp_options: SmtpOptions) -> Self | Deferred:
        """Connect, send EHLO, start TLS and authenticate; return the session, or Deferred on failure.

        If opportunistic TLS fails, a second connection is made without TLS.
        """
        try:
            return await cls._open_once(destination, smtp_options)
        except TlsError:
            opened = await cls._open_once(replace(destination, tls="none"), smtp_options)
            if isinstance(opened, cls):
                opened.destination = destination
            return opened

    @classmethod
    async def _open_once(cls, destination: Destination, smtp_options: SmtpOptions) -> Self | Deferred:
        try:
            session = cls(await _connect(destination, smtp_options), destination, smtp_options)
        except (OSError, ValueError) as error:
            text = f"cannot connect to {destination.host}: {_describe_connect_error(error)}"
            trouble: ConnectionFailure = "encryption" if isinstance(error, ssl.SSLError) else "unreachable"
            return Deferred(detail=_detail(destination, text, trouble=trouble), unreachable=True)
        try:
            refusal = await session._start()
        except BaseException as error:
            session.abort()
            if isinstance(error, TlsError) and destination.tls == "opportunistic":
                raise
            return replace(session._outcome_of_failure(error), unreachable=True)
        if refusal is not None:
            session.abort()
            return Deferred(detail=refusal, unreachable=True)
        return session

    async def send(
        self, envelope_from: str, recipient: str, chunks: Iterable[bytes], size: int, needs_utf8: bool = False
    ) -> Outcome:
        """Send one mail to one recipient. If `chunks` raises, the connection is aborted and the mail discarded."""
        uses_utf8 = needs_utf8 or not (envelope_from + recipient).isascii()
        if detail := self._unsupported_detail(envelope_from, recipient, size, uses_utf8):
            return Refused(detail=detail)
        self.mails_attempted += 1
        self._recipient = recipient
        try:
            refused_outcome = await self._send_envelope(
                self._envelope_commands(envelope_from, recipient, size, uses_utf8)
            )
            return refused_outcome or await self._send_mail(chunks)
        except BaseException as error:
            self.abort()
            return self._outcome_of_failure(error)

    @property
    def is_usable(self) -> bool:
        """Return whether the connection is open and has no unexpected input."""
        return self._is_open and self._connection.is_clean

    def abort(self) -> None:
        if self._is_open:
            self._connection_gauge.dec()
            if self.on_closed:
                self.on_closed()
        self._is_open = False
        self._connection.transport.abort()

    async def quit(self) -> None:
        """Send QUIT, wait briefly for the reply, and close the connection."""
        try:
            if self.is_usable:
                self._connection.write(b"QUIT\r\n")
                await self._connection.next_reply(self._smtp_options.timeouts.quit)
        except (ProtocolError, TimeoutError):
            pass
        finally:
            self.abort()

    # -- opening: each step returns None on success, or the detail of the failure --

    async def _start(self) -> dict[str, Any] | None:
        if self.destination.tls == "implicit":
            self._check_certificate()
        greeting = await self._read_reply("connect")
        if classify_reply(greeting, "connect") != "accepted":
            return self._reply_detail(greeting)
        refusal = await self._ehlo() or await self._start_tls() or await self._log_in()
        if refusal is None:
            policy = "none" if self.tls is None else self.destination.tls
            metrics.smtp_tls[provider_of(self.destination.host), policy].inc()
        return refusal

    async def _ehlo(self) -> dict[str, Any] | None:
        name = self._smtp_options.helo or _address_literal(_socket_address(self._connection, "sockname"))
        reply = await self._run_command("ehlo", f"EHLO {name}")
        self._capabilities = {}
        if reply.code // 100 == 5:  # a server without ESMTP (before 1995)
            reply = await self._run_command("ehlo", f"HELO {name}")
        elif reply.code == 250:
            lines = [line.partition(" ") for line in reply.lines[1:]]
            self._capabilities = {keyword.upper(): parameters for keyword, _, parameters in lines}
        return None if reply.code == 250 else self._reply_detail(reply)

    async def _start_tls(self) -> dict[str, Any] | None:
        tls_mode = self.destination.tls
        if tls_mode in ("none", "implicit"):
            return None
        if "STARTTLS" not in self._capabilities:
            text = f"{self.destination.host} does not offer STARTTLS, which is required"
            return None if tls_mode == "opportunistic" else self._detail(text, trouble="encryption")
        reply = await self._run_command("starttls", "STARTTLS")
        if reply.code != 220:
            return None if tls_mode == "opportunistic" and reply.code != 421 else self._reply_detail(reply)
        context = context_for(tls_mode, self._smtp_options.roots)
        await self._connection.start_tls(context, self.destination.host, self._smtp_options.timeouts.connect)
        self._check_certificate()
        return await self._ehlo()  # discard the capabilities that were offered before TLS

    def _check_certificate(self) -> None:
        """Record the TLS version; raise TlsError if DANE is required and no TLSA record matches."""
        ssl_object, destination = self._connection.transport.get_extra_info("ssl_object"), self.destination
        names = filter(None, (destination.host, destination.certificate_domain))
        if destination.tls == "dane" and not matches_tlsa(
            presented_chain(ssl_object), destination.tlsa_records, list(names)
        ):
            raise TlsError("no TLSA record matches the certificate or its issuer")
        self.tls = f"{ssl_object.version()}{TLS_SUFFIX_BY_MODE.get(destination.tls, '')}"

    async def _log_in(self) -> dict[str, Any] | None:
        login = self._smtp_options.login
        if login is None:
            return None
        if self.tls is None and not (self._address and is_denied(self._address)):
            return self._detail(
                "the password was not sent: without TLS it is sent only to a relay at a private address",
                trouble="encryption",
            )
        mechanisms = self._capabilities.get("AUTH", "").upper().split()
        if "PLAIN" in mechanisms:
            credentials = _base64("\0".join(("", login.username, login.password)))
            reply = await self._run_command("auth", f"AUTH PLAIN {credentials}")
        elif "LOGIN" in mechanisms:
            reply = await self._run_command("auth", "AUTH LOGIN")
            for credentials in (login.username, login.password):
                if reply.code == 334:
                    reply = await self._run_command("auth", _base64(credentials))
        else:
            text = f"{self.destination.host} offers neither AUTH PLAIN nor AUTH LOGIN"
            return self._detail(text, trouble="account")
        return None if reply.code == 235 else self._reply_detail(reply)

    # -- sending --

    def _unsupported_detail(
        self, envelope_from: str, recipient: str, size: int, uses_utf8: bool
    ) -> dict[str, Any] | None:
        """Return the detail of a refusal if this server cannot accept the mail; None if the server may accept it."""
        host = self.destination.host
        if not (_VALID_ADDRESS.fullmatch(envelope_from) and _VALID_ADDRESS.fullmatch(recipient)):
            return self._detail("the address cannot be used in an SMTP command", enhanced="5.1.3")
        if uses_utf8 and "SMTPUTF8" not in self._capabilities:
            text = f"{host} does not accept international addresses: it does not offer SMTPUTF8"
            return self._detail(text, enhanced="5.6.7")
        limit = read_size(self._capabilities.get("SIZE", ""))
        if 0 < limit < size:
            return self._detail(f"{host} accepts at most {limit} bytes, and the mail has {size}", enhanced="5.3.4")
        return None

    def _envelope_commands(self, envelope_from: str, recipient: str, size: int, uses_utf8: bool) -> dict[Verb, bytes]:
        parameters = f" SIZE={size}" if "SIZE" in self._capabilities else ""
        if uses_utf8:
            # All other mail is 7bit: with BODY=8BITMIME a later hop might re-encode it and break the signature.
            parameters += " BODY=8BITMIME SMTPUTF8" if "8BITMIME" in self._capabilities else " SMTPUTF8"
        commands: dict[Verb, bytes] = {"rset": b"RSET\r\n"} if self._needs_reset else {}
        commands["mail"] = f"MAIL FROM:<{envelope_from}>{parameters}\r\n".encode()
        commands["rcpt"] = f"RCPT TO:<{recipient}>\r\n".encode()
        commands["data"] = b"DATA\r\n"
        return commands

    async def _send_envelope(self, commands: dict[Verb, bytes]) -> Outcome | None:
        """Send the envelope commands. Returns None if the server is ready for the mail, else the outcome."""
        can_pipeline = "PIPELINING" in self._capabilities
        if can_pipeline:
            self._connection.write(b"".join(commands.values()))
        unsent_commands = list(commands)
        while unsent_commands:
            verb = unsent_commands.pop(0)
            if not can_pipeline:
                self._connection.write(commands[verb])
            reply = await self._read_reply(verb)
            if classify_reply(reply, verb) != "accepted":
                await self._read_pending_replies(unsent_commands if can_pipeline else [])
                return self._outcome_of_reply(reply, verb)
        self._needs_reset = False
        return None

    async def _read_pending_replies(self, pending: list[Verb]) -> None:
        """Read the replies to commands already sent, so that the connection can be reused."""
        self._needs_reset, verb = True, self.verb
        try:
            replies = [await self._read_reply(pending_verb) for pending_verb in pending]
        except (ProtocolError, TimeoutError):
            self.abort()
        else:
            # The server waits for a mail: only closing the connection prevents the server from accepting an empty mail.
            if any(reply.code == 354 for reply in replies):
                self.abort()
        self.verb = verb

    async def _send_mail(self, chunks: Iterable[bytes]) -> Outcome:
        self.verb = "body"
        block = bytearray()
        for piece in dot_stuff(chunks):
            block += piece
            if len(block) >= BLOCK_SIZE:
                self._connection.write(bytes(block))
                block.clear()
                if outcome := await self._early_outcome():
                    return outcome
        if outcome := await self._early_outcome():
            return outcome
        self._connection.write(bytes(block + b".\r\n"))
        return self._outcome_of_reply(await self._read_reply("final"), "final")

    async def _early_outcome(self) -> Outcome | None:
        """Wait until the write buffer is empty; return the outcome if the server has already replied, otherwise None.

        A reply before the end of the mail is a refusal.
        """
        try:
            await self._connection.drain(self._smtp_options.timeouts.block)
        except ProtocolError:
            if not self._connection.has_reply:
                raise
        if not self._connection.has_reply:
            return None
        reply = await self._read_reply("body")
        self.abort()
        return self._outcome_of_reply(reply, "body")

    # -- commands, replies and outcomes --

    async def _run_command(self, verb: Verb, command: str) -> Reply:
        self._connection.write(f"{command}\r\n".encode())
        return await self._read_reply(verb)

    def _read_reply(self, verb: Verb) -> Awaitable[Reply]:
        self.verb = verb
        return self._connection.next_reply(self._smtp_options.timeouts.reply_timeout(verb))

    def _outcome_of_reply(self, reply: Reply, verb: Verb) -> Outcome:
        detail = self._reply_detail(reply)
        if pauses_host(detail):
            self.abort()
        match classify_reply(reply, verb):
            case "accepted":
                return Accepted(detail=detail)
            case "deferred":
                return Deferred(detail=detail)
            case "bounced" | "absent" if names_other_recipient(" ".join(reply.lines), self._recipient):
                return Refused(detail={**detail, "reason": FORWARDING_FAILED})
            case refusal_kind:
                by_inbox = verb in RECIPIENT_VERBS  # `complete_outcome` resets this flag for a relay
                return Refused(
                    detail=detail, bounced=refusal_kind != "failed", by_inbox=by_inbox, absent=refusal_kind == "absent"
                )

    def _outcome_of_failure(self, error: BaseException) -> Deferred:
        """Return the outcome of a lost connection or a timeout; re-raise any other exception."""
        host, seconds = self.destination.host, self._smtp_options.timeouts.reply_timeout(self.verb)
        match error:
            case TimeoutError():
                description = f"{host} did not respond within {seconds:g} s"
            case ProtocolError():
                description = f"{host}: {error}"
            case _:
                raise error
        if self.verb != "final":
            trouble: ConnectionFailure = "encryption" if isinstance(error, TlsError) else "unreachable"
            detail = self._detail(f"{description} (at {self.verb})", trouble=trouble)
            # During the body the mail may be the cause; a failure before the body means that the server is unreachable.
            return Deferred(detail=detail, unreachable=self.verb != "body")
        text = f"{description} (after the complete mail was sent: it may have arrived)"
        return Deferred(detail={**self._detail(text, trouble="server_silent"), "uncertain": True})

    def _reply_detail(self, reply: Reply) -> dict[str, Any]:
        return self._detail(reply.text, code=str(reply.code), enhanced=reply.enhanced)

    def _detail(self, text: str, **extra: str | None) -> dict[str, Any]:
        return _detail(self.destination, text, address=self._address, tls=self.tls, **extra)


async def _connect(destination: Destination, smtp_options: SmtpOptions) -> SmtpClientConnection:
    implicit = destination.tls == "implicit"
    async with asyncio.timeout(smtp_options.timeouts.connect):
        _, connection = await asyncio.get_running_loop().create_connection(
            SmtpClientConnection,
            destination.address,
            destination.port,
            local_addr=(destination.source_address, 0) if destination.source_address else None,
            ssl=context_for("implicit", smtp_options.roots) if implicit else None,
            server_hostname=destination.host if implicit else None,
        )
    return connection


def _describe_connect_error(error: Exception) -> str:
    match error:
        case TimeoutError():
            return "timed out"
        case ssl.SSLError():
            return describe_tls_error(error)
        case OSError(errno=int(code)) if code > 0:  # negative codes are from the resolver
            return os.strerror(code).lower()
        case OSError(strerror=str(description)):
            return description
        case _:
            return str(error) or type(error).__name__


def _detail(destination: Destination, text: str, **extra: str | None) -> dict[str, Any]:
    defaults = {"address": destination.address, "tls": None, "code": None, "enhanced": None}
    return {"host": destination.host, **defaults, **extra, "text": text}


def _socket_address(connection: SmtpClientConnection, side: str) -> str:
    return str((connection.transport.get_extra_info(side) or ("",))[0])


def _address_literal(address: str) -> str:
    return f"[IPv6:{address}]" if ":" in address else f"[{address}]"


def _base64(text: str) -> str:
    return base64.b64encode(text.encode()).decode()
