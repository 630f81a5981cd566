"""Token buckets, one a key: so many requests a second, a burst of twice that (contract 11)."""

import msgspec

Headers = list[tuple[bytes, bytes]]


class Turn(msgspec.Struct, frozen=True):
    """Whether the request may go on, the headers that tell how many are left, and else how long to wait."""

    allowed: bool
    headers: Headers
    wait_s: int = 0


FREE = Turn(True, [])


class RateLimits:
    def __init__(self) -> None:
        self._buckets: dict[str, tuple[float, int]] = {}  # key → tokens, at ms

    def take(self, key_id: str, rate: int, now: int, cost: int = 1) -> Turn:
        """Take a token when there is one; a refusal takes nothing. With cost 0 it only looks."""
        if rate == 0:
            return FREE
        burst = 2 * rate
        tokens, at = self._buckets.get(key_id, (float(burst), now))
        tokens = min(burst, tokens + max(0, now - at) * rate / 1000)
        if tokens < cost:
            return Turn(False, _headers(burst, 0, rate), max(1, -int(-(cost - tokens) // rate)))
        self._buckets[key_id] = (tokens - cost, now)
        return Turn(True, _headers(burst, int(tokens - cost), rate))


def _headers(burst: int, left: int, rate: int) -> Headers:
    return [
        (b"ratelimit-limit", b"%d" % burst),
        (b"ratelimit-remaining", b"%d" % left),
        (b"ratelimit-reset", b"%d" % -(-(burst - left) // rate)),
    ]
