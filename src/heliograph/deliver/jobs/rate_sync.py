"""Publishes this process's rate-limit counts to the other API processes, and reads theirs (contract 11)."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Protocol

from heliograph.domain.setup.keys import is_valid
from heliograph.runtime.clock import Clock
from heliograph.storage.requests import ProcessUsage
from heliograph.storage.store import Store, StoreUnavailable

SYNC_INTERVAL_S = 0.25  # sync interval while no key is near its limit
ANNOUNCE_INTERVAL_S = 2.0  # publish interval of a process without peers
CLEANUP_INTERVAL_S = 60.0  # interval at which counts of invalid keys are dropped


class Rates(Protocol):
    """The rate limits of this process."""

    sync: Callable[[], Awaitable[None]]

    @property
    def allowed_counts(self) -> Mapping[str, int]: ...

    def merge_usage(
        self,
        usages: Sequence[ProcessUsage],
        rate_of: Callable[[str], int],
        now: int,
        reported: Mapping[str, int] | None = None,
    ) -> None: ...

    def drop_inactive(self, is_active: Callable[[str], bool]) -> None: ...

    def count_alone(self) -> None: ...


class RateSync:
    """Exchanges rate-limit counts with the other API processes through the database."""

    def __init__(self, store: Store, clock: Clock, rates: Rates) -> None:
        self._store = store
        self._clock = clock
        self._rates = rates
        self._published_counts: dict[str, int] = {}
        self._sync_task: asyncio.Task[None] | None = None
        self.has_no_peers = True

    async def sync(self) -> None:
        """Sync the counts once; concurrent callers share the sync in progress."""
        if self._sync_task is None:
            self._sync_task = asyncio.create_task(self._sync())
        await asyncio.shield(self._sync_task)

    async def _sync(self) -> None:
        changed_counts = {
            key: count for key, count in self._rates.allowed_counts.items() if self._published_counts.get(key) != count
        }
        try:
            peer_usage = await self._store.requests.sync_usage(changed_counts)
        except StoreUnavailable:
            self._rates.count_alone()
        else:
            self._published_counts |= changed_counts
            self._rates.merge_usage(peer_usage, self._rate_of, self._clock.now(), changed_counts)
            self.has_no_peers = not peer_usage
        finally:
            self._sync_task = None

    def drop_invalid_keys(self) -> None:
        """Drop the counts of expired, revoked and deleted keys."""
        self._rates.drop_inactive(self._is_valid_key)
        self._published_counts = {
            key: count for key, count in self._published_counts.items() if self._is_valid_key(key)
        }

    def _is_valid_key(self, key: str) -> bool:
        caller = self._store.setup.current.callers.get(key)
        return caller is not None and is_valid(caller.key, self._clock.team_now(caller.team.record.ref))

    def _rate_of(self, key: str) -> int:
        caller = self._store.setup.current.callers.get(key)
        return caller.team.record.rate_limit if caller and self._is_valid_key(key) else 0


async def sync_rate_limits(store: Store, clock: Clock, rates: Rates) -> None:
    rate_sync, since_sync_s, since_cleanup_s = RateSync(store, clock, rates), ANNOUNCE_INTERVAL_S, 0.0
    rates.sync = rate_sync.sync
    while True:
        if not rate_sync.has_no_peers or since_sync_s >= ANNOUNCE_INTERVAL_S:
            await rate_sync.sync()
            since_sync_s = 0.0
        await asyncio.sleep(SYNC_INTERVAL_S)
        since_sync_s, since_cleanup_s = since_sync_s + SYNC_INTERVAL_S, since_cleanup_s + SYNC_INTERVAL_S
        if since_cleanup_s >= CLEANUP_INTERVAL_S:
            rate_sync.drop_invalid_keys()
            since_cleanup_s = 0.0
