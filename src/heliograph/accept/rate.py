"""Token buckets, one a key: so many requests a second, a burst of twice that (contract 11), over all processes."""

from collections import Counter
from collections.abc import Awaitable, Callable, Mapping, Sequence

import msgspec

from heliograph.storage.requests import Spent

Headers = list[tuple[bytes, bytes]]


class Turn(msgspec.Struct, frozen=True):
    """Whether the request may continue, the headers that say how many are left, and else how long to wait."""

    allowed: bool
    headers: Headers
    wait_s: int = 0
    asks: bool = False  # not decided: first the processes have to tell each other what they let through


FREE = Turn(True, [])
TENTH = 10  # of a burst: as much all processes together may let through before they tell each other


async def _nobody() -> None:
    pass


class RateLimits:
    """The buckets of this process. What other processes let through is taken out of them as it becomes known.

    Each lets a small share of a burst through without a word, and is told of every quarter of a second; before more,
    `agree` is to be awaited. So the bucket is one, within a tenth, however many processes there are.
    """

    def __init__(self) -> None:
        self._buckets: dict[str, tuple[float, int]] = {}  # key → tokens, at ms
        self.spent: Counter[str] = Counter()  # key → requests let through here since the start
        self._told: dict[str, int] = {}  # of these, what the others know
        self._others = 0  # how many there are; 0 as well while the database is away: each counts for itself
        self.agree: Callable[[], Awaitable[None]] = _nobody
        self._heard: dict[tuple[str, str], int] | None = None  # process, key → what it had let through

    def take(self, key_id: str, rate: int, now: int, cost: int = 1) -> Turn:
        """Take a token when there is one; a refusal takes nothing. With cost 0 it only looks."""
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
        """Learn what other processes have let through, and what
        they were told. What came before the first report is past.
        """
        self._others = len({one.process for one in heard})
        self._told |= told or {}
        known, first = self._heard or {}, self._heard is None
        for one in heard:
            before = known.get((one.process, one.key), one.count if first else 0)
            known[one.process, one.key] = one.count
            since = one.count - before if one.count >= before else one.count  # less than before: it was restarted
            if since and (rate := rate_of(one.key)):
                _, at = self._buckets.get(one.key, (0.0, now))
                # Time never goes back here: a team's test clock may be ahead of everybody's.
                self._buckets[one.key] = (max(-2 * rate, self._tokens(one.key, rate, now) - since), max(at, now))
        self._heard = known

    def forget(self, works: Callable[[str], bool]) -> None:
        """Drop the counts of keys that were revoked, have expired or are gone."""
        for counts in (self._buckets, self.spent, self._told):
            for key in [key for key in counts if not works(key)]:
                del counts[key]
        if self._heard is not None:
            self._heard = {place: count for place, count in self._heard.items() if works(place[1])}

    def count_alone(self) -> None:
        """Count alone, as the others cannot be asked."""
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
