"""Tells the other API processes what was let through here, and reads theirs (contract 11)."""

import asyncio
import contextlib
from collections.abc import Callable, Iterable, Mapping
from typing import Protocol

from heliograph.clock import Clock
from heliograph.storage.requests import Spent
from heliograph.storage.store import Store, StoreUnavailable

EVERY_S = 0.25  # how late processes learn of each other's requests
PRESENCE_S = 2.0  # how often a process that is alone publishes


class Rates(Protocol):
    """The rate limits of this process."""

    @property
    def spent(self) -> Mapping[str, int]: ...

    def hear(self, heard: Iterable[Spent], rate_of: Callable[[str], int], now: int) -> None: ...


async def share_rates(store: Store, clock: Clock, rates: Rates) -> None:
    shared: dict[str, int] = {}
    alone, quiet_s = True, PRESENCE_S
    while True:
        if not alone or quiet_s >= PRESENCE_S:
            spent = {key: count for key, count in rates.spent.items() if shared.get(key) != count}
            with contextlib.suppress(StoreUnavailable):  # meanwhile each counts for itself
                heard = await store.requests.exchange_spent(spent)
                shared |= spent
                rates.hear(heard, lambda key: _rate_of(store, key), clock.now())
                alone, quiet_s = not heard, 0.0
        await asyncio.sleep(EVERY_S)
        quiet_s += EVERY_S


def _rate_of(store: Store, key: str) -> int:
    caller = store.setup.current.callers.get(key)
    return caller.team.record.rate_limit if caller else 0
