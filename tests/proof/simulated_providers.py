"""Simulated mailbox providers with limits that the sender does not know, and an oracle that knows them.

A provider limits, per source address: connections, messages per sliding period, and messages per day of an address that
it has not known for long. It greylists new pairs of source address and sender domain. Each refused attempt lowers the
reputation of the source address, which lowers its limit per period; the reputation recovers with time.
"""

from collections import deque
from collections.abc import Iterable, Sequence
from random import Random

DAY_S = 86_400
GREYLISTED_S = 60  # wait until the second attempt of a greylisted pair is accepted
GREYLISTED = "451 4.7.1 Greylisted, please try again later"
TOO_FAST = "450 4.7.28 Our system has detected an unusual rate of mail from your IP address"
TOO_MANY_CONNECTIONS = "450 4.7.0 Too many connections from your IP address"
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
        self.first_seen: dict[int, float] = {}  # sender domain → first attempt


class SimulatedProvider:
    def __init__(self, name: str, random: Random) -> None:
        self.name = name
        self.period_s = random.choice((60, 60, 600, 3600))
        self.per_minute = random.randint(15, 45)
        self.limit = self.per_minute * self.period_s // 60  # messages per period
        self.connections = random.randint(3, 12)
        self.is_greylisting = random.random() < 0.5
        self.latency_s = random.uniform(0.1, 0.6)  # duration of a connection with one message
        self.new_addresses: frozenset[str] = frozenset()
        self.peers: dict[str, Peer] = {}

    def connect(self, source: str, domain: int, now: float) -> str | None:
        """Return a refusal of a message that arrives on a new connection, or None if it is accepted.

        The caller closes the connection with `disconnect` in either case.
        """
        peer = self.peers.setdefault(source, Peer())
        peer.open += 1
        if reply := self._refusal(peer, source, domain, now):
            if reply != GREYLISTED:
                peer.reputation = max(REPUTATION_MIN, self._reputation(peer, now) * PENALTY)
                peer.reputation_at = now
            return reply
        peer.sent.append(now)
        peer.sent_today += 1
        return None

    def disconnect(self, source: str) -> None:
        self.peers[source].open -= 1

    def daily_limit(self, source: str, now: float) -> float:
        day = int(now // DAY_S)
        if source not in self.new_addresses or day >= NEW_ADDRESS_DAYS:
            return float("inf")
        return NEW_ADDRESS_MESSAGES * NEW_ADDRESS_GROWTH**day

    def _refusal(self, peer: Peer, source: str, domain: int, now: float) -> str | None:
        if peer.open > self.connections:
            return TOO_MANY_CONNECTIONS
        if self.is_greylisting and now < peer.first_seen.setdefault(domain, now) + GREYLISTED_S:
            return GREYLISTED
        while peer.sent and peer.sent[0] <= now - self.period_s:
            peer.sent.popleft()
        if peer.day != (day := int(now // DAY_S)):
            peer.day, peer.sent_today = day, 0
        is_over = len(peer.sent) >= self.limit * self._reputation(peer, now)
        return TOO_FAST if is_over or peer.sent_today >= self.daily_limit(source, now) else None

    def _reputation(self, peer: Peer, now: float) -> float:
        return min(1.0, peer.reputation + (now - peer.reputation_at) / 3600 * RECOVERY_PER_HOUR)


def count_with_oracle(
    provider: SimulatedProvider, sources: Sequence[str], arrivals: Iterable[float], patience_s: float, end: float
) -> int:
    """Return how many messages a sender gets through that knows the limits, so that no attempt is refused.

    It sends each message at the earliest time that the limits of any source address permit, in order of arrival.
    """
    sent = {source: deque[float](maxlen=provider.limit) for source in sources}
    days = dict.fromkeys(sources, (0, 0))  # day, messages on that day
    delivered = 0

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
            delivered += 1
    return delivered
