"""Token bucket per API key, shared by all processes: a rate per second and a burst of twice that (contract 11)."""

from collections import Counter
from collections.abc import Awaitable, Callable, Mapping, Sequence

import msgspec

from heliograph.storage.requests import Spent

Headers = list[tuple[bytes, bytes]]


class Turn(msgspec.Struct, frozen=True):
    """Rate-limit decision: whether the request may continue, its response headers, and the seconds to wait if not."""

    allowed: bool
    headers: Headers
    wait_s: int = 0
    asks: bool = False  # undecided: sync the counts between processes first, then take again


FREE = Turn(True, [])
TENTH = 10  # all processes together may allow a tenth of a burst before they sync


async def _nobody() -> None:
    pass


class RateLimits:
    """The token buckets of this process, reduced by the requests that other processes allowed.

    Each process allows a small share of a burst without a sync, and syncs every quarter of a second. To allow more,
    `agree` must be awaited first. The shared limit is therefore exact within a tenth, whatever the number of processes.
    """

    def __init__(self) -> None:
        self._buckets: dict[str, tuple[float, int]] = {}  # key → (tokens, time of that count in ms)
        self.spent: Counter[str] = Counter()  # key → requests allowed by this process since it started
        self._told: dict[str, int] = {}  # key → the part of `spent` that other processes know
        # Number of other processes; 0 while the database is unavailable, when each process counts alone
        self._others = 0
        self.agree: Callable[[], Awaitable[None]] = _nobody
        self._heard: dict[tuple[str, str], int] | None = None  # (process, key) → last count reported by that process

    def take(self, key_id: str, rate: int, now: int, cost: int = 1) -> Turn:
        """Take `cost` tokens if available. A rejected call takes none; `cost=0` only peeks."""
        if rate == 0:
            return FREE
        burst, tokens = 2 * rate, self._tokens(key_id, rate, now)
        if tokens < cost:
            return Turn(False, _headers(burst, 0, rate), max(1, -int(-(cost - tokens) // rate)))
        if self._others and cost:
            untold = self.spent[key_id] - self._told.get(key_id, 0)
            if untold >= max(1, burst // (TENTH * (self._others + 1))):
                return Turn(False, [], asks=True)
        self._buckets[key_id] = (tokens - cost, now)
        self.spent[key_id] += cost
        return Turn(True, _headers(burst, max(0, int(tokens - cost)), rate))

    def hear(
        self, heard: Sequence[Spent], rate_of: Callable[[str], int], now: int, told: Mapping[str, int] | None = None
    ) -> None:
        """Subtract the requests that other processes allowed.

        Counts before the first report are ignored. `told`: own counts that the other processes now know.
        """
        self._others = len({one.process for one in heard})
        self._told |= told or {}
        known, first = self._heard or {}, self._heard is None
        for one in heard:
            before = known.get((one.process, one.key), one.count if first else 0)
            known[one.process, one.key] = one.count
            # A lower count means that the process restarted
            since = one.count - before if one.count >= before else one.count
            if since and (rate := rate_of(one.key)):
                _, at = self._buckets.get(one.key, (0.0, now))
                # A bucket's time never moves back: the test clock of a team may be ahead of real time.
                self._buckets[one.key] = (max(-2 * rate, self._tokens(one.key, rate, now) - since), max(at, now))
        self._heard = known

    def forget(self, works: Callable[[str], bool]) -> None:
        """Drop the counts of keys that are revoked, expired or deleted."""
        for counts in (self._buckets, self.spent, self._told):
            for key in [key for key in counts if not works(key)]:
                del counts[key]
        if self._heard is not None:
            self._heard = {place: count for place, count in self._heard.items() if works(place[1])}

    def count_alone(self) -> None:
        """Stop syncing and count only this process, because the database is unavailable."""
        self._others = 0

    def _tokens(self, key: str, rate: int, now: int) -> float:
        tokens, at = self._buckets.get(key, (2.0 * rate, now))
        return min(2 * rate, tokens + max(0, now - at) * rate / 1000)


def _headers(burst: int, left: int, rate: int) -> Headers:
    return [
        (b"ratelimit-limit", b"%d" % burst),
        (b"ratelimit-remaining", b"%d" % left),
        (b"ratelimit-reset", b"%d" % -(-(burst - left) // rate)),
    ]
