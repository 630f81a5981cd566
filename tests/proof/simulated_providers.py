"""Simulated mailbox providers with limits that the sender does not know, and an oracle that knows them.

A provider limits, per source address: connections, messages per sliding period, and messages per day of an address that
it has not known for long. It greylists new pairs of source address and sender domain. Each refused attempt lowers the
reputation of the source address, which lowers its limit per period; the reputation recovers with time. Half of the
providers refuse with 421, which closes the connection.
"""

import asyncio
from collections import deque
from collections.abc import Iterable, Sequence
from random import Random
from typing import Any

from heliograph.carriers.email.connection_pool import PreparedMail
from heliograph.carriers.email.mx_lookup import MxRecords
from heliograph.carriers.email.smtp import Destination, SmtpOptions
from heliograph.domain.delivery.outcome import Accepted, Deferred, Outcome

DAY_S = 86_400
CONNECT_S = 0.05
GREYLISTED_S = 60  # wait until the second attempt of a greylisted pair is accepted
GREYLISTED = "451 4.7.1 Greylisted, please try again later"
TOO_FAST = "4.7.28 Our system has detected an unusual rate of mail from your IP address"
TOO_MANY_CONNECTIONS = "4.7.0 Too many connections from your IP address"
PENALTY = 0.97  # factor on the reputation for each refused attempt
REPUTATION_MIN = 0.4
RECOVERY_PER_HOUR = 0.02  # gain of reputation
NEW_ADDRESS_MESSAGES, NEW_ADDRESS_GROWTH = 300, 1.45  # messages on the first day of an address, and growth per day
NEW_ADDRESS_DAYS = 30


class Peer:
    """What a provider knows about one source address."""

    def __init__(self) -> None:
        self.open = 0
        self.sent = deque[float]()  # times of the messages accepted in the last period
        self.day, self.sent_today = 0, 0
        self.reputation, self.reputation_at = 1.0, 0.0
        self.first_seen: dict[str, float] = {}  # sender domain → first attempt


class SimulatedProvider:
    def __init__(self, name: str, domain: str, random: Random) -> None:
        self.name = name
        self.domain = domain
        self.hosts = (f"mx1.{domain}", f"mx2.{domain}")
        self.period_s = random.choice((60, 60, 600, 3600))
        self.per_minute = random.randint(15, 45)
        self.limit = self.per_minute * self.period_s // 60  # messages per period
        self.connections = random.randint(3, 12)
        self.is_greylisting = random.random() < 0.5
        self.refusal_code = random.choice(("421", "450"))
        self.latency_s = random.uniform(0.1, 0.6)  # duration of the transfer of a message
        self.new_addresses: frozenset[str] = frozenset()
        self.peers: dict[str, Peer] = {}
        self.attempts: dict[int, list[int]] = {}  # day → accepted, refused because of a limit, greylisted

    def connect(self, source: str, now: float) -> str | None:
        """Count a connection and return None, or return the reply that refuses it."""
        peer = self.peers.setdefault(source, Peer())
        if peer.open >= self.connections:
            return self._refuse(peer, TOO_MANY_CONNECTIONS, now)
        peer.open += 1
        return None

    def disconnect(self, source: str) -> None:
        self.peers[source].open -= 1

    def receive(self, source: str, sender_domain: str, now: float) -> str | None:
        """Accept a message and return None, or return the reply that refuses it."""
        peer = self.peers[source]
        if self.is_greylisting and now < peer.first_seen.setdefault(sender_domain, now) + GREYLISTED_S:
            self._count(2, now)
            return GREYLISTED
        while peer.sent and peer.sent[0] <= now - self.period_s:
            peer.sent.popleft()
        if peer.day != (day := int(now // DAY_S)):
            peer.day, peer.sent_today = day, 0
        is_over = len(peer.sent) >= self.limit * self._reputation(peer, now)
        if is_over or peer.sent_today >= self.daily_limit(source, now):
            return self._refuse(peer, TOO_FAST, now)
        peer.sent.append(now)
        peer.sent_today += 1
        self._count(0, now)
        return None

    def daily_limit(self, source: str, now: float) -> float:
        day = int(now // DAY_S)
        if source not in self.new_addresses or day >= NEW_ADDRESS_DAYS:
            return float("inf")
        return NEW_ADDRESS_MESSAGES * NEW_ADDRESS_GROWTH**day

    def _refuse(self, peer: Peer, reason: str, now: float) -> str:
        peer.reputation = max(REPUTATION_MIN, self._reputation(peer, now) * PENALTY)
        peer.reputation_at = now
        self._count(1, now)
        return f"{self.refusal_code} {reason}"

    def _count(self, kind: int, now: float) -> None:
        self.attempts.setdefault(int(now // DAY_S), [0, 0, 0])[kind] += 1

    def _reputation(self, peer: Peer, now: float) -> float:
        return min(1.0, peer.reputation + (now - peer.reputation_at) / 3600 * RECOVERY_PER_HOUR)


class SimulatedInternet:
    """Name server and network: replaces MxResolver and SmtpSession."""

    def __init__(self, providers: Sequence[SimulatedProvider], random: Random) -> None:
        self.providers = {provider.domain: provider for provider in providers}
        self.by_host = {host: provider for provider in providers for host in provider.hosts}
        hosts = [host for provider in providers for host in provider.hosts]
        self.addresses_by_host = {host: f"198.51.100.{number}" for number, host in enumerate(hosts, 1)}
        self.random = random

    async def mx_records(self, domain: str) -> MxRecords:
        hosts = self.providers[domain].hosts
        if self.random.random() < 0.5:
            hosts = hosts[::-1]
        return MxRecords(hosts=hosts, has_mx=True, dnssec_validated=False)

    async def addresses(self, host: str) -> list[str]:
        return [self.addresses_by_host[host]]

    async def txt_values(self, name: str) -> list[str]:
        return []

    async def open(self, destination: Destination, smtp_options: SmtpOptions) -> "SimulatedSession | Deferred":
        provider, source = self.by_host[destination.host], destination.source_address
        assert source
        await asyncio.sleep(CONNECT_S)
        if reply := provider.connect(source, asyncio.get_running_loop().time()):
            return Deferred(detail=reply_detail(destination, reply), unreachable=True)
        return SimulatedSession(provider, source, destination)


class SimulatedSession:
    """A connection to a simulated provider, with the interface of SmtpSession."""

    def __init__(self, provider: SimulatedProvider, source: str, destination: Destination) -> None:
        self.destination = destination
        self.is_usable = True
        self.verb = "connect"
        self.mails_attempted = 0
        self.on_closed: Any = None
        self._provider = provider
        self._source = source

    async def send(self, envelope_from: str, *mail: Any) -> Outcome:
        self.mails_attempted += 1
        self.verb = "final"
        await asyncio.sleep(self._provider.latency_s)
        sender_domain = envelope_from.rpartition("@")[2]
        reply = self._provider.receive(self._source, sender_domain, asyncio.get_running_loop().time())
        if reply is None:
            return Accepted(detail={"code": "250"})
        if reply.startswith("421"):
            self._close()
        return Deferred(detail=reply_detail(self.destination, reply))

    async def quit(self) -> None:
        self._close()

    def _close(self) -> None:
        if self.is_usable:
            self.is_usable = False
            self._provider.disconnect(self._source)
            if self.on_closed:
                self.on_closed()


def reply_detail(destination: Destination, reply: str) -> dict[str, Any]:
    code, enhanced, _ = reply.split(maxsplit=2)
    return {
        "host": destination.host,
        "address": destination.address,
        "tls": None,
        "code": code,
        "enhanced": enhanced,
        "text": reply,
    }


def simulated_mail(sender_domain: int) -> PreparedMail:
    return PreparedMail(envelope_from=f"bounce@{sender_domain}.test", chunks=lambda: (b"",), size=1)


def sent_by_oracle(
    provider: SimulatedProvider, sources: Sequence[str], arrivals: Iterable[float], patience_s: float, end: float
) -> list[float]:
    """Return the waits of the messages that a sender gets through that knows the limits, so that none is refused.

    It sends each message at the earliest time that the limits of any source address permit, in order of arrival.
    """
    sent = {source: deque[float](maxlen=provider.limit) for source in sources}
    days = dict.fromkeys(sources, (0, 0))  # day, messages on that day
    waits = list[float]()

    def free_at(source: str, arrival: float) -> float:
        times = sent[source]
        at = max(arrival, times[0] + provider.period_s if len(times) == provider.limit else 0.0)
        if len(times) >= provider.connections:
            at = max(at, times[-provider.connections] + provider.latency_s)
        day, count = days[source]
        is_full = at // DAY_S == day and count + 1 > provider.daily_limit(source, at)
        return (day + 1) * DAY_S if is_full else at

    for arrival in arrivals:
        at, source = min((free_at(source, arrival), source) for source in sources)
        if at <= min(arrival + patience_s, end):
            sent[source].append(at)
            day, count = days[source]
            days[source] = (day, count + 1) if at // DAY_S == day else (int(at // DAY_S), 1)
            waits.append(at - arrival)
    return waits
