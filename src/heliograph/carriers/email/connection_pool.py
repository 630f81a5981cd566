"""SMTP connection pool of a carrier: reuses connections, limits them per host, and pauses a host after a 421."""

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import Any

import msgspec
from msgspec.structs import replace

from heliograph.carriers.connection_queue import Line
from heliograph.carriers.contract import Parcel
from heliograph.carriers.email.smtp import Destination, SmtpOptions, SmtpSession
from heliograph.domain.delivery.outcome import Accepted, Deferred, Outcome, Refused
from heliograph.domain.limits import SECOND_MS
from heliograph.domain.mail.mailbox_provider import provider_of
from heliograph.inbound.policy.smtp_reply import TEXT_MAX, pauses_host
from heliograph.runtime import metrics

IDLE_S = 10.0  # an idle connection is closed after this long
IDLE_MAX = 200  # maximum idle connections to all hosts, because each is an open file
USES_MAX = 100  # maximum mails on one connection
PAUSE_S = 60.0  # pause of a host after a 421; equals the first step of the retry schedule
QUEUE_S = 10.0  # wait for a free connection; meanwhile the message occupies a slot of its queue


class Prepared(msgspec.Struct, frozen=True, kw_only=True):
    """A built and signed mail, ready to send to one recipient. All recipients of a message share its contents."""

    envelope_from: str
    chunks: Callable[[], Iterable[bytes]]
    size: int
    needs_utf8: bool = False


Prepare = Callable[[Parcel], Awaitable[Prepared]]


class PoolLimits(msgspec.Struct, frozen=True, kw_only=True):
    """Limits of a connection pool."""

    per_host: int = 4  # maximum connections
    idle_s: float = IDLE_S
    pause_s: float = PAUSE_S
    queue_s: float = QUEUE_S
    again_s: float = 0.0  # retry delay of a mail that got no connection within `queue_s`; 0: no delay


LIMITS = PoolLimits()


class _Host:
    """The connections to one host and their state."""

    def __init__(self, per_host: int) -> None:
        self.line = Line(per_host)
        self.asking = 0  # messages that have or await a connection
        self.busy = 0  # messages that have a connection
        self.idle: dict[SmtpSession, float] = {}  # idle connection → expiry time, the oldest first
        self.timed = False  # a timer for the oldest connection is set
        self.paused_until = 0.0
        self.paused_by: Mapping[str, Any] = {}  # the detail of the 421 reply


class Pool:
    """SMTP connections of one carrier to all its hosts."""

    def __init__(self, smtp_options: SmtpOptions, limits: PoolLimits) -> None:
        self._smtp_options = smtp_options
        self._limits = limits
        self._hosts: dict[tuple[str, int], _Host] = {}  # keyed by address and port
        self._idle = 0
        self._goodbyes: set[asyncio.Task[None]] = set()

    async def send(self, destination: Destination, parcel: Parcel, mail: Prepared) -> Outcome:
        """Send a mail on a pooled connection; Deferred with `held` if the host is busy or paused."""
        key = (destination.address, destination.port)
        host = self._hosts.get(key)
        if host is None:
            host = self._hosts[key] = _Host(self._limits.per_host)
        host.asking += 1
        try:
            if not await host.line.take(parcel, self._limits.queue_s):
                why = f"is busy with {self._limits.per_host} connections of ours"
                return _not_asked(destination, why, self._limits.again_s)
            host.busy += 1
            try:
                return await self._send_in_turn(host, destination, parcel, mail)
            finally:
                host.busy -= 1
                host.line.give_back()
        finally:
            host.asking -= 1
            self._forget(key)

    async def close(self) -> None:
        for host in self._hosts.values():
            for session in list(host.idle):
                self._part(self._take(host, session))
        await asyncio.gather(*self._goodbyes)

    async def _send_in_turn(self, host: _Host, destination: Destination, parcel: Parcel, mail: Prepared) -> Outcome:
        # Checked after the wait, because the pause may have started meanwhile.
        if _now() < host.paused_until:
            return _paused(destination, host.paused_by, host.paused_until - _now())
        outcome = await self._speak_on_kept(host, destination, parcel, mail)
        if outcome is None:
            opened = await SmtpSession.open(destination, self._smtp_options)
            outcome = opened if isinstance(opened, Deferred) else await self._speak(host, opened, parcel, mail)
        said = str(outcome.detail.get("code") or "")
        metrics.smtp_replied[provider_of(destination.host), f"{said[0]}xx" if said else "none"].inc()
        if pauses_host(outcome.detail):
            host.paused_until, host.paused_by = _now() + self._limits.pause_s, outcome.detail
            _call_later(self._limits.pause_s, self._forget, (destination.address, destination.port))
        return outcome

    async def _speak_on_kept(
        self, host: _Host, destination: Destination, parcel: Parcel, mail: Prepared
    ) -> Outcome | None:
        """Send on an idle connection; None if there is none, or if the server closed it while idle."""
        session = await self._kept(host, destination)
        if session is None:
            return None
        outcome = await self._speak(host, session, parcel, mail)
        # A closed connection or a 421 at the first command is the server's idle timeout, unrelated to this mail.
        stale = isinstance(outcome, Deferred) and not session.usable and session.verb in ("rset", "mail")
        return None if stale else outcome

    async def _speak(self, host: _Host, session: SmtpSession, parcel: Parcel, mail: Prepared) -> Outcome:
        try:
            await parcel.passage.admit()
            return await session.send(mail.envelope_from, parcel.mailbox, mail.chunks(), mail.size, mail.needs_utf8)
        finally:
            self._keep(host, session)

    def _keep(self, host: _Host, session: SmtpSession) -> None:
        if session.usable and session.sent < USES_MAX and self._idle < IDLE_MAX:
            host.idle[session] = _now() + self._limits.idle_s
            self._idle += 1
            if not host.timed:
                host.timed = True
                _call_later(self._limits.idle_s, self._expire, host)
        else:
            self._part(session)

    async def _kept(self, host: _Host, destination: Destination) -> SmtpSession | None:
        """Return the most recently used idle connection to this destination; None if not found.

        If the host's limit is reached, the oldest idle connection to another destination is closed.
        """
        for session in reversed(list(host.idle)):
            if not session.usable:
                self._part(self._take(host, session))
            elif session.destination == destination:
                return self._take(host, session)
        if host.idle and host.busy + len(host.idle) > self._limits.per_host:
            await self._take(host, next(iter(host.idle))).quit()
        return None

    def _take(self, host: _Host, session: SmtpSession) -> SmtpSession:
        del host.idle[session]
        self._idle -= 1
        return session

    def _expire(self, host: _Host) -> None:
        now, host.timed = _now(), False
        for session in [session for session, until in host.idle.items() if until <= now]:
            self._part(self._take(host, session))
            self._forget((session.destination.address, session.destination.port))
        for until in host.idle.values():
            host.timed = True
            _call_later(until - now, self._expire, host)
            break

    def _part(self, session: SmtpSession) -> None:
        """Close the connection in the background."""
        task = asyncio.get_running_loop().create_task(session.quit())
        self._goodbyes.add(task)
        task.add_done_callback(self._goodbyes.discard)

    def _forget(self, key: tuple[str, int]) -> None:
        """Remove the host's entry if it is unused and not paused."""
        host = self._hosts.get(key)
        if host and not host.asking and not host.idle and host.paused_until <= _now():
            del self._hosts[key]


def _now() -> float:
    return asyncio.get_running_loop().time()


def _call_later(seconds: float, act: Callable[..., None], *given: Any) -> asyncio.TimerHandle:
    return asyncio.get_running_loop().call_later(seconds, act, *given)


def tell(outcome: Outcome, parcel: Parcel, carrier: str, started: float, *, delivered: bool) -> Outcome:
    """Return the outcome with the carrier's name, the duration, and the carrier id that later reports refer to.

    `delivered`: the server is the recipient's own, so that an accepted mail is delivered and a refused one bounces.
    """
    detail = {**outcome.detail, "duration_ms": round((_now() - started) * 1000), "carrier": carrier}
    if isinstance(outcome, Accepted):
        return Accepted(carrier_id=f"{parcel.message_id}/{parcel.position}", detail=detail, delivered=delivered)
    if isinstance(outcome, Refused):
        return replace(outcome, detail=detail, by_inbox=outcome.by_inbox and delivered)
    return replace(outcome, detail=detail)


def _paused(destination: Destination, reply: Mapping[str, Any], again_s: float) -> Deferred:
    """Return the deferral of a mail to a host that is paused because of its earlier 421 reply."""
    return _not_asked(destination, f"asked for a pause: {reply.get('text')}", again_s, reply.get("enhanced"))


def _not_asked(destination: Destination, why: str, again_s: float, enhanced: str | None = None) -> Deferred:
    """Return the deferral of a mail whose host was not contacted."""
    detail = {
        "host": destination.host,
        "address": destination.address,
        "tls": None,
        "code": None,
        "enhanced": enhanced,
        "text": f"{destination.host} was not asked: it {why}"[:TEXT_MAX],
    }
    return Deferred(detail=detail, held=True, retry_after_ms=int(again_s * SECOND_MS))
