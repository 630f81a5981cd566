"""Token bucket per API key, shared by all processes: a rate per second and a burst of twice that (contract 11)."""

from collections import Counter
from collections.abc import Awaitable, Callable, Mapping, Sequence

import msgspec

from heliograph.storage.requests import ProcessUsage

Headers = list[tuple[bytes, bytes]]


class RateDecision(msgspec.Struct, frozen=True):
    """Rate-limit decision: whether the request may continue, its response headers, and the seconds to wait if not."""

    allowed: bool
    headers: Headers
    wait_s: int = 0
    needs_sync: bool = False  # undecided: await `sync`, then call `take` again


UNLIMITED = RateDecision(True, [])
UNSYNCED_DIVISOR = 10  # between two syncs, all processes together allow at most 1/10 of a burst


async def _no_sync() -> None:
    pass


class RateLimits:
    """The token buckets of this process, reduced by the requests that other processes allowed.

    Each process may allow a small share of a burst without a sync, and syncs every quarter of a second. Above this
    share, `sync` must be awaited first. Together, all processes exceed the limit by at most a tenth.
    """

    def __init__(self) -> None:
        self._buckets: dict[str, tuple[float, int]] = {}  # key → (tokens, time of that count in ms)
        self.allowed_counts: Counter[str] = Counter()  # key → requests allowed by this process since it started
        # Key → the part of `allowed_counts` that was reported to other processes
        self._reported_counts: dict[str, int] = {}
        # 0 also while the database is unavailable: each process then counts only its own requests
        self._other_processes = 0
        self.sync: Callable[[], Awaitable[None]] = _no_sync
        # (process, key) → last count reported by that process
        self._received_counts: dict[tuple[str, str], int] | None = None

    def take(self, key_id: str, rate: int, now: int, cost: int = 1) -> RateDecision:
        """Take `cost` tokens if available. A rejected call takes none; `cost=0` only peeks."""
        if rate == 0:
            return UNLIMITED
        burst, tokens = 2 * rate, self._current_tokens(key_id, rate, now)
        if tokens < cost:
            return RateDecision(False, _rate_limit_headers(burst, 0, rate), max(1, -int(-(cost - tokens) // rate)))
        if self._other_processes and cost:
            unreported = self.allowed_counts[key_id] - self._reported_counts.get(key_id, 0)
            if unreported >= max(1, burst // (UNSYNCED_DIVISOR * (self._other_processes + 1))):
                return RateDecision(False, [], needs_sync=True)
        self._buckets[key_id] = (tokens - cost, now)
        self.allowed_counts[key_id] += cost
        return RateDecision(True, _rate_limit_headers(burst, max(0, int(tokens - cost)), rate))

    def merge_usage(
        self,
        usages: Sequence[ProcessUsage],
        rate_of: Callable[[str], int],
        now: int,
        reported: Mapping[str, int] | None = None,
    ) -> None:
        """Take a token from this process's buckets for each request that other processes allowed since the last call.

        The first call takes none: it only remembers the other processes' counts. `reported`: counts of this process
        that have just been written where the other processes read them.
        """
        self._other_processes = len({usage.process for usage in usages})
        self._reported_counts |= reported or {}
        previous_counts, is_first = self._received_counts or {}, self._received_counts is None
        for usage in usages:
            previous = previous_counts.get((usage.process, usage.key), usage.count if is_first else 0)
            previous_counts[usage.process, usage.key] = usage.count
            # A lower count means that the process has restarted.
            new_requests = usage.count - previous if usage.count >= previous else usage.count
            if new_requests and (rate := rate_of(usage.key)):
                _, bucket_at = self._buckets.get(usage.key, (0.0, now))
                # The bucket's time must not move backwards: after a team used a test clock, it may be ahead of real
                # time.
                self._buckets[usage.key] = (
                    max(-2 * rate, self._current_tokens(usage.key, rate, now) - new_requests),
                    max(bucket_at, now),
                )
        self._received_counts = previous_counts

    def drop_inactive(self, is_active: Callable[[str], bool]) -> None:
        """Drop the counts of keys that are revoked, expired or deleted."""
        for counts in (self._buckets, self.allowed_counts, self._reported_counts):
            for key in [key for key in counts if not is_active(key)]:
                del counts[key]
        if self._received_counts is not None:
            self._received_counts = {
                process_key: count for process_key, count in self._received_counts.items() if is_active(process_key[1])
            }

    def count_alone(self) -> None:
        """Stop syncing and count only the requests of this process, because the database is unavailable."""
        self._other_processes = 0

    def _current_tokens(self, key: str, rate: int, now: int) -> float:
        tokens, counted_at = self._buckets.get(key, (2.0 * rate, now))
        return min(2 * rate, tokens + max(0, now - counted_at) * rate / 1000)


def _rate_limit_headers(burst: int, remaining: int, rate: int) -> Headers:
    return [
        (b"ratelimit-limit", b"%d" % burst),
        (b"ratelimit-remaining", b"%d" % remaining),
        (b"ratelimit-reset", b"%d" % -(-(burst - remaining) // rate)),
    ]
