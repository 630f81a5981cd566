"""Publishes this process's rate-limit counts to the other API processes, and reads theirs (contract 11)."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Protocol

from heliograph.domain.setup.keys import works
from heliograph.runtime.clock import Clock
from heliograph.storage.requests import Spent
from heliograph.storage.store import Store, StoreUnavailable

EVERY_S = 0.25  # sync interval while keys are far from their limits
PRESENCE_S = 2.0  # publish interval of a process without peers
FORGET_S = 60.0  # interval at which the counts of invalid keys are dropped


class Rates(Protocol):
    """The rate limits of this process."""

    agree: Callable[[], Awaitable[None]]

    @property
    def spent(self) -> Mapping[str, int]: ...

    def hear(
        self, heard: Sequence[Spent], rate_of: Callable[[str], int], now: int, told: Mapping[str, int] | None = None
    ) -> None: ...

    def forget(self, works: Callable[[str], bool]) -> None: ...

    def count_alone(self) -> None: ...


class Sharing:
    """Exchanges rate-limit counts with the other API processes through the database."""

    def __init__(self, store: Store, clock: Clock, rates: Rates) -> None:
        self._store = store
        self._clock = clock
        self._rates = rates
        self._told: dict[str, int] = {}
        self._under_way: asyncio.Task[None] | None = None
        self.alone = True

    async def exchange(self) -> None:
        """Sync the counts once; concurrent callers share the sync in progress."""
        if self._under_way is None:
            self._under_way = asyncio.create_task(self._exchange())
        await asyncio.shield(self._under_way)

    async def _exchange(self) -> None:
        told = {key: count for key, count in self._rates.spent.items() if self._told.get(key) != count}
        try:
            heard = await self._store.requests.exchange_spent(told)
        except StoreUnavailable:
            self._rates.count_alone()
        else:
            self._told |= told
            self._rates.hear(heard, self._rate_of, self._clock.now(), told)
            self.alone = not heard
        finally:
            self._under_way = None

    def forget_ended(self) -> None:
        """Drop the counts of expired, revoked and deleted keys."""
        self._rates.forget(self._works)
        self._told = {key: count for key, count in self._told.items() if self._works(key)}

    def _works(self, key: str) -> bool:
        caller = self._store.setup.current.callers.get(key)
        return caller is not None and works(caller.key, self._clock.of(caller.team.record.ref))

    def _rate_of(self, key: str) -> int:
        caller = self._store.setup.current.callers.get(key)
        return caller.team.record.rate_limit if caller and self._works(key) else 0


async def share_rates(store: Store, clock: Clock, rates: Rates) -> None:
    sharing, quiet_s, kept_s = Sharing(store, clock, rates), PRESENCE_S, 0.0
    rates.agree = sharing.exchange
    while True:
        if not sharing.alone or quiet_s >= PRESENCE_S:
            await sharing.exchange()
            quiet_s = 0.0
        await asyncio.sleep(EVERY_S)
        quiet_s, kept_s = quiet_s + EVERY_S, kept_s + EVERY_S
        if kept_s >= FORGET_S:
            sharing.forget_ended()
            kept_s = 0.0
