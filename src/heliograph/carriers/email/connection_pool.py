"""SMTP connection pool of a carrier: reuses connections, limits them per host, and pauses a host after a 421."""

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import Any

import msgspec
from msgspec.structs import replace

from heliograph.carriers.connection_queue import PrioritySemaphore
from heliograph.carriers.contract import OutboundMessage
from heliograph.carriers.email.connection_gate import ConnectionGate
from heliograph.carriers.email.smtp import Destination, SmtpOptions, SmtpSession
from heliograph.domain.delivery.outcome import Accepted, Deferred, Outcome, Refused
from heliograph.domain.limits import SECOND_MS
from heliograph.domain.mail.mailbox_provider import provider_of
from heliograph.inbound.policy.smtp_reply import TEXT_MAX, is_rate_refusal, pauses_host
from heliograph.runtime import metrics

IDLE_TIMEOUT_S = 10.0  # an idle connection is closed after this long
IDLE_CONNECTIONS_MAX = 200  # maximum idle connections to all hosts, because each is an open file
MAILS_PER_CONNECTION_MAX = 100  # maximum mails on one connection
HOST_PAUSE_S = 60.0  # pause of a host after a 421; equals the first step of the retry schedule
QUEUE_TIMEOUT_S = 10.0  # maximum wait for a free connection; meanwhile the message occupies a slot of its queue


class PreparedMail(msgspec.Struct, frozen=True, kw_only=True):
    """A built and signed mail, ready to send to one recipient. All recipients of a message share its contents."""

    envelope_from: str
    chunks: Callable[[], Iterable[bytes]]
    size: int
    needs_utf8: bool = False


PrepareMail = Callable[[OutboundMessage], Awaitable[PreparedMail]]


class PoolLimits(msgspec.Struct, frozen=True, kw_only=True):
    """Limits of a connection pool."""

    connections_per_host: int = 4  # maximum connections
    idle_timeout_s: float = IDLE_TIMEOUT_S
    host_pause_s: float = HOST_PAUSE_S
    queue_timeout_s: float = QUEUE_TIMEOUT_S
    busy_retry_s: float = 0.0  # retry delay of a mail that got no connection within `queue_timeout_s`; 0: no delay


LIMITS = PoolLimits()


class _HostState:
    """The connections to one host, and whether the host is paused."""

    def __init__(self, connections: int) -> None:
        self.slots = PrioritySemaphore(connections)
        self.messages = 0  # messages that have or await a connection
        self.connections_in_use = 0  # connections on which a message is being sent
        self.idle: dict[SmtpSession, float] = {}  # idle connection → expiry time, the oldest first
        self.has_timer = False  # whether a timer will close the oldest idle connection
        # source address → end of its pause and the detail of the 421 reply; None: all source addresses
        self.pauses: dict[str | None, tuple[float, Mapping[str, Any]]] = {}

    @property
    def is_paused(self) -> bool:
        return any(until > _now() for until, _ in self.pauses.values())


class ConnectionPool:
    """SMTP connections of one carrier to all its hosts."""

    def __init__(self, smtp_options: SmtpOptions, limits: PoolLimits) -> None:
        self._smtp_options = smtp_options
        self._limits = limits
        self._hosts: dict[tuple[str, int], _HostState] = {}  # keyed by address and port
        self._idle_count = 0
        self._gates: dict[SmtpSession, ConnectionGate] = {}  # only for sessions that count towards a provider's limit
        self._quit_tasks: set[asyncio.Task[None]] = set()

    async def send(
        self,
        destination: Destination,
        message: OutboundMessage,
        mail: PreparedMail,
        gate: ConnectionGate | None = None,
        mails_per_connection: int = MAILS_PER_CONNECTION_MAX,
    ) -> Outcome:
        """Send a mail on a pooled connection. Returns Deferred with `held` if the host is busy or paused.

        `gate`: limits the connections to all hosts of the provider.
        """
        if gate is None:
            return await self._send_to_host(destination, message, mail, None, mails_per_connection)
        if not await gate.acquire(message, self._limits.queue_timeout_s):
            reason = "already has as many connections of ours as the provider's limit permits"
            outcome = _deferred_without_contact(destination, reason, self._limits.busy_retry_s)
            return replace(outcome, detail=outcome.detail | {"reason": "provider_rate"})
        try:
            return await self._send_to_host(destination, message, mail, gate, mails_per_connection)
        finally:
            gate.release()

    async def _send_to_host(
        self,
        destination: Destination,
        message: OutboundMessage,
        mail: PreparedMail,
        gate: ConnectionGate | None,
        mails_per_connection: int,
    ) -> Outcome:
        key = (destination.address, destination.port)
        host = self._hosts.get(key)
        if host is None:
            host = self._hosts[key] = _HostState(self._limits.connections_per_host)
        host.messages += 1
        try:
            if not await host.slots.acquire(message, self._limits.queue_timeout_s):
                reason = f"already has {self._limits.connections_per_host} connections of ours"
                return _deferred_without_contact(destination, reason, self._limits.busy_retry_s)
            host.connections_in_use += 1
            try:
                return await self._send_with_slot(host, destination, message, mail, gate, mails_per_connection)
            finally:
                host.connections_in_use -= 1
                host.slots.release()
        finally:
            host.messages -= 1
            self._drop_host_if_unused(key)

    async def close(self) -> None:
        for host in self._hosts.values():
            for session in list(host.idle):
                self._quit_in_background(self._remove_idle(host, session))
        await asyncio.gather(*self._quit_tasks)

    async def _send_with_slot(
        self,
        host: _HostState,
        destination: Destination,
        message: OutboundMessage,
        mail: PreparedMail,
        gate: ConnectionGate | None,
        mails_per_connection: int,
    ) -> Outcome:
        # Checked after the wait, because the pause may have started meanwhile.
        for source in {None, destination.source_address}:
            paused_until, reply = host.pauses.get(source, (0.0, {}))
            if _now() < paused_until:
                return _deferred_by_pause(destination, reply, paused_until - _now())
        outcome = await self._send_on_idle(host, destination, message, mail, mails_per_connection)
        if outcome is None:
            if gate is None:
                opened = await SmtpSession.open(destination, self._smtp_options)
            else:
                opened = await self._open_within(gate, destination)
            if isinstance(opened, Deferred):
                outcome = opened
            else:
                outcome = await self._send_on(host, opened, message, mail, mails_per_connection)
        code = str(outcome.detail.get("code") or "")
        metrics.smtp_replies[provider_of(destination.host), f"{code[0]}xx" if code else "none"].inc()
        if pauses_host(outcome.detail):
            source = destination.source_address if is_rate_refusal(outcome.detail) else None
            host.pauses[source] = _now() + self._limits.host_pause_s, outcome.detail
            _call_later(self._limits.host_pause_s, self._drop_host_if_unused, (destination.address, destination.port))
        return outcome

    async def _open_within(self, gate: ConnectionGate, destination: Destination) -> SmtpSession | Deferred:
        """Open a connection within the provider's limit; if necessary, first close an idle one to another host."""
        while gate.is_full:
            if gate.idle:
                session, host = next(iter(gate.idle.items()))
                await self._remove_idle(host, session).quit()
            else:
                await gate.wait_closed()
        gate.count_opened()
        try:
            opened = await SmtpSession.open(destination, self._smtp_options)
        except BaseException:
            gate.count_closed()
            raise
        if isinstance(opened, Deferred):
            gate.count_closed()
            return opened
        self._gates[opened] = gate
        opened.on_closed = lambda: self._gates.pop(opened).count_closed()
        return opened

    async def _send_on_idle(
        self,
        host: _HostState,
        destination: Destination,
        message: OutboundMessage,
        mail: PreparedMail,
        mails_per_connection: int,
    ) -> Outcome | None:
        """Send a mail on an idle connection; None if no connection is idle, or if the server closed it while idle."""
        session = await self._take_idle_session(host, destination)
        if session is None:
            return None
        outcome = await self._send_on(host, session, message, mail, mails_per_connection)
        # A closed connection or a 421 at the first command is the server's idle timeout, unrelated to this mail.
        was_stale = isinstance(outcome, Deferred) and not session.is_usable and session.verb in ("rset", "mail")
        return None if was_stale else outcome

    async def _send_on(
        self,
        host: _HostState,
        session: SmtpSession,
        message: OutboundMessage,
        mail: PreparedMail,
        mails_per_connection: int,
    ) -> Outcome:
        try:
            await message.hooks.before_send()
            return await session.send(
                mail.envelope_from, message.envelope_address, mail.chunks(), mail.size, mail.needs_utf8
            )
        finally:
            self._return_session(host, session, mails_per_connection)

    def _return_session(self, host: _HostState, session: SmtpSession, mails_per_connection: int) -> None:
        gate = self._gates.get(session)
        if (
            session.is_usable
            and session.mails_attempted < mails_per_connection
            and self._idle_count < IDLE_CONNECTIONS_MAX
            and not (gate and gate.has_surplus)
        ):
            host.idle[session] = _now() + self._limits.idle_timeout_s
            if gate:
                gate.idle[session] = host
            self._idle_count += 1
            if not host.has_timer:
                host.has_timer = True
                _call_later(self._limits.idle_timeout_s, self._close_expired, host)
        else:
            self._quit_in_background(session)

    async def _take_idle_session(self, host: _HostState, destination: Destination) -> SmtpSession | None:
        """Return the most recently used idle connection to this destination; None if not found.

        If the host's limit is reached, the oldest idle connection to another destination is closed.
        """
        for session in reversed(list(host.idle)):
            if not session.is_usable:
                self._quit_in_background(self._remove_idle(host, session))
            elif session.destination == destination:
                return self._remove_idle(host, session)
        if host.idle and host.connections_in_use + len(host.idle) > self._limits.connections_per_host:
            await self._remove_idle(host, next(iter(host.idle))).quit()
        return None

    def _remove_idle(self, host: _HostState, session: SmtpSession) -> SmtpSession:
        del host.idle[session]
        self._idle_count -= 1
        if gate := self._gates.get(session):
            gate.idle.pop(session, None)
        return session

    def _close_expired(self, host: _HostState) -> None:
        now, host.has_timer = _now(), False
        for session in [session for session, expires_at in host.idle.items() if expires_at <= now]:
            self._quit_in_background(self._remove_idle(host, session))
            self._drop_host_if_unused((session.destination.address, session.destination.port))
        for expires_at in host.idle.values():
            host.has_timer = True
            _call_later(expires_at - now, self._close_expired, host)
            break

    def _quit_in_background(self, session: SmtpSession) -> None:
        task = asyncio.get_running_loop().create_task(session.quit())
        self._quit_tasks.add(task)
        task.add_done_callback(self._quit_tasks.discard)

    def _drop_host_if_unused(self, key: tuple[str, int]) -> None:
        """Remove the host's entry if it has no connections and no pause."""
        host = self._hosts.get(key)
        if host and not host.messages and not host.idle and not host.is_paused:
            del self._hosts[key]


def _now() -> float:
    return asyncio.get_running_loop().time()


def _call_later(seconds: float, function: Callable[..., None], *args: Any) -> asyncio.TimerHandle:
    return asyncio.get_running_loop().call_later(seconds, function, *args)


def complete_outcome(
    outcome: Outcome, message: OutboundMessage, carrier: str, started_at: float, *, accepted_is_delivered: bool
) -> Outcome:
    """Return the outcome with the carrier's name, the duration, and the carrier id that later reports refer to.

    `accepted_is_delivered`: the server is the recipient's own, so that an accepted mail is delivered and a refused mail
    bounces.
    """
    detail = {**outcome.detail, "duration_ms": round((_now() - started_at) * 1000), "carrier": carrier}
    if isinstance(outcome, Accepted):
        return Accepted(
            carrier_id=f"{message.message_id}/{message.position}", detail=detail, delivered=accepted_is_delivered
        )
    if isinstance(outcome, Refused):
        return replace(outcome, detail=detail, by_inbox=outcome.by_inbox and accepted_is_delivered)
    return replace(outcome, detail=detail)


def _deferred_by_pause(destination: Destination, reply: Mapping[str, Any], retry_s: float) -> Deferred:
    """Return the deferral of a mail to a host that is paused because of its earlier 421 reply."""
    outcome = _deferred_without_contact(
        destination, f"asked for a pause: {reply.get('text')}", retry_s, reply.get("enhanced")
    )
    reason = {"reason": "provider_rate"} if is_rate_refusal(reply) else {}
    return replace(outcome, detail=outcome.detail | reason)


def _deferred_without_contact(
    destination: Destination, reason: str, retry_s: float, enhanced: str | None = None
) -> Deferred:
    """Return the deferral of a mail whose host was not contacted."""
    detail = {
        "host": destination.host,
        "address": destination.address,
        "tls": None,
        "code": None,
        "enhanced": enhanced,
        "text": f"{destination.host} was not contacted: it {reason}"[:TEXT_MAX],
    }
    return Deferred(detail=detail, held=True, retry_after_ms=int(retry_s * SECOND_MS))
