"""Token buckets, one a key: so many requests a second, a burst of twice that (contract 11), over all processes."""

from collections import Counter
from collections.abc import Callable, Iterable

import msgspec

from heliograph.storage.requests import Spent

Headers = list[tuple[bytes, bytes]]


class Turn(msgspec.Struct, frozen=True):
    """Whether the request may continue, the headers that say how many are left, and else how long to wait."""

    allowed: bool
    headers: Headers
    wait_s: int = 0


FREE = Turn(True, [])


class RateLimits:
    """The buckets of this process. What other processes let through is taken out of them as it becomes known."""

    def __init__(self) -> None:
        self._buckets: dict[str, tuple[float, int]] = {}  # key → tokens, at ms
        self.spent: Counter[str] = Counter()  # key → requests let through here since the start
        self._heard: dict[tuple[str, str], int] | None = None  # process, key → what it had let through

    def take(self, key_id: str, rate: int, now: int, cost: int = 1) -> Turn:
        """Take a token when there is one; a refusal takes nothing. With cost 0 it only looks."""
        if rate == 0:
            return FREE
        burst, tokens = 2 * rate, self._tokens(key_id, rate, now)
        if tokens < cost:
            return Turn(False, _headers(burst, 0, rate), max(1, -int(-(cost - tokens) // rate)))
        self._buckets[key_id] = (tokens - cost, now)
        self.spent[key_id] += cost
        return Turn(True, _headers(burst, max(0, int(tokens - cost)), rate))

    def hear(self, heard: Iterable[Spent], rate_of: Callable[[str], int], now: int) -> None:
        """What other processes have let through. What came before the first report is past."""
        known, first = self._heard or {}, self._heard is None
        for one in heard:
            before = known.get((one.process, one.key), one.count if first else 0)
            known[one.process, one.key] = one.count
            since = one.count - before if one.count >= before else one.count  # less than before: it was restarted
            if since and (rate := rate_of(one.key)):
                self._buckets[one.key] = (max(-2 * rate, self._tokens(one.key, rate, now) - since), now)
        self._heard = known

    def _tokens(self, key: str, rate: int, now: int) -> float:
        tokens, at = self._buckets.get(key, (2.0 * rate, now))
        return min(2 * rate, tokens + max(0, now - at) * rate / 1000)


def _headers(burst: int, left: int, rate: int) -> Headers:
    return [
        (b"ratelimit-limit", b"%d" % burst),
        (b"ratelimit-remaining", b"%d" % left),
        (b"ratelimit-reset", b"%d" % -(-(burst - left) // rate)),
    ]
